"""Where a store is: what opens and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.store import Store, StoreError


def test_a_store_whose_folder_was_deleted_meanwhile_can_be_closed(store: Store) -> None:
    store.incoming("r00")
    shutil.rmtree(store.folder / "assembling")
    store.close()


@pytest.mark.parametrize(
    ("where", "artefacts", "message"),
    [
        ("postgresql://user@host/lab", None, "needs a place for captures and tables"),
        ("mysql://user@host/lab", "file:///tmp/x", "is no store"),
        ("results", "file:///tmp/x", "a results folder keeps its files itself"),
    ],
)
def test_a_store_of_another_kind_is_refused(
    where: str, artefacts: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BACKCHANNEL_ARTEFACTS", raising=False)
    with pytest.raises(StoreError, match=message):
        Store.open(where, artefacts)
