"""Random damage of stores and bundles: a small `./backchannel bench damage`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analysis.store import Store, checksums
from tests.support.called import called
from tests.support.damaging import Damaged, commanded, made

#: Some of the first, and those that broke readers once: damaged names in the schema, and indices that lead elsewhere.
DATABASES = (1, 2, 3, 4, 5, 20, 112, 115, 117, 121, 209, 224)


def run(file: Path, results: Path) -> None:
    status, _, err = called("run", file, "--results", results)
    assert status == 0, err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def stored(place: Path) -> tuple[Damaged, Path]:
    results, bundle = made(place, run)
    return Damaged(results, place), bundle


def test_no_damage_of_a_database_breaks_a_reader_or_changes_a_number(stored: tuple[Damaged, Path]) -> None:
    damaged, _ = stored
    assert [finding for number in DATABASES for finding in damaged.database(number, site=number < 3)] == []


def test_no_flipped_bit_of_a_file_breaks_a_reader_or_changes_a_number(stored: tuple[Damaged, Path]) -> None:
    damaged, _ = stored
    assert [finding for number in range(1, 5) for finding in damaged.artefact(number, site=False)] == []


def test_no_changed_bundle_leaves_anything_or_other_values(stored: tuple[Damaged, Path]) -> None:
    damaged, bundle = stored
    assert [finding for number in range(1, 21) for finding in damaged.bundle(number, bundle)] == []


def test_what_no_checksum_covers_is_found_by_the_damages(
    stored: tuple[Damaged, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test can fail: without checksums, one of these damages gives another number."""
    damaged, _ = stored
    for name in ("of", "of_run", "of_campaign", "of_documents"):
        monkeypatch.setattr(checksums, name, lambda *_: Anything())
    assert [finding for number in range(1, 21) for finding in damaged.database(number, site=False)]


class Anything(int):
    """Equal to each checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __radd__(self, other: object) -> Anything:
        return self

    __hash__ = int.__hash__


def test_verify_says_what_to_repeat_and_repeating_heals(stored: tuple[Damaged, Path], place: Path) -> None:
    damaged, _ = stored
    copy = damaged.copied()
    with closing(sqlite3.connect(copy / "results.sqlite")) as database, database:
        database.execute("UPDATE metric SET value = value + 1 WHERE run_id = ?", (damaged.run_id,))
    assert commanded(("results", "damaged"), copy, place / "out", "").status == 1
    status, out, _ = called("verify", "--results", copy)
    assert (status, f"run {damaged.run_id}: a value differs from its checksum" in out) == (1, True)
    (command,) = (line.split() for line in out.splitlines() if line.startswith("  ./backchannel run "))
    assert called(*command[1:])[0] == 0
    assert called("verify", "--results", copy)[0] == 0
    with Store.open(copy) as store, Store.open(damaged.results) as right:
        assert store.values(damaged.campaign_id) == right.values(damaged.campaign_id)
