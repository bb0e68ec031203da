"""Where a store is: what opens and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.store import Store, StorePlaceError, shown


def test_a_store_whose_folder_was_deleted_meanwhile_can_be_closed(store: Store) -> None:
    store.staging_folder("r00")
    shutil.rmtree(store.folder / "assembling")
    store.close()


@pytest.mark.parametrize(
    ("where", "artefacts", "message"),
    [
        ("postgresql://user@host/lab", None, "needs a place for captures and tables"),
        ("a://b://", "file:///tmp/x", "is named like postgresql://"),
        ("mysql://user@host/lab", "file:///tmp/x", "is not a store"),
        ("results", "file:///tmp/x", "a results folder keeps its files itself"),
    ],
)
def test_a_store_of_another_kind_is_refused(
    where: str, artefacts: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BACKCHANNEL_ARTEFACTS", raising=False)
    with pytest.raises(StorePlaceError, match=message):
        Store.open(where, artefacts)


@pytest.mark.parametrize("name", ["r?1", "r%20x", "r[1]*", "r#a;b", "r 'a\"", "r:é"])
def test_a_folder_of_any_name_has_its_own_database(name: str, tmp_path: Path) -> None:
    Store.open(tmp_path / name).close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "results.sqlite").is_file()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("r?1", "r?1"),
        (Path("results"), "results"),
        ("postgresql://me:secret@host:5/lab", "postgresql://me:***@host:5/lab"),
        ("a://b://", "a://b://"),
    ],
)
def test_a_store_is_shown_without_a_password(where: str | Path, expected: str) -> None:
    assert shown(where) == expected
