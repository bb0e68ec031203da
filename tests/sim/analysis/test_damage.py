"""Damage of stores and bundles: a small `./backchannel bench damage`, and each column of each table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from analysis.store import Store, checksums
from analysis.store.schema import campaign, file, membership, metric, point, run
from tests.support.called import called
from tests.support.damaging import Damaged, commanded, flip, made

#: Tables whose rows are results.
OF_RESULTS = (campaign, point, membership, run, metric, file)


def ran(path: Path, results: Path) -> None:
    status, _, err = called("run", path, "--results", results)
    assert status == 0, err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def stored(place: Path) -> tuple[Damaged, Path]:
    results, bundle = made(place, ran)
    return Damaged(results, place), bundle


def changed_value(damaged: Damaged) -> Path:
    """A copy of the store with other values of the run."""
    copy = damaged.copied()
    with closing(sqlite3.connect(copy / "results.sqlite")) as database, database:
        database.execute("UPDATE metric SET value = value + 1 WHERE run_id = ?", (damaged.run_id,))
    return copy


@pytest.mark.parametrize("table", OF_RESULTS, ids=lambda table: str(table.name))
def test_no_changed_column_breaks_a_reader_or_changes_a_number(table: sa.Table, stored: tuple[Damaged, Path]) -> None:
    damaged, _ = stored
    findings, damaged.refused, read = [], 0, damaged.files if table is file else damaged.rows
    # A value that each reader asks for by its name, and a file of the run that is read.
    named = {metric: "WHERE name = 'throughput'", file: f"WHERE run_id = '{damaged.run_id}'"}.get(table, "")
    row = f"(SELECT max(rowid) FROM {table.name} {named})"  # noqa: S608
    for number, column in enumerate(table.c):
        copy = damaged.copied()
        changed = f"CASE typeof({column.name}) WHEN 'text' THEN {column.name} || '7' ELSE {column.name} + 700 END"
        with closing(sqlite3.connect(copy / "results.sqlite")) as database, database:
            database.execute(f"UPDATE {table.name} SET {column.name} = {changed} WHERE rowid = {row}")  # noqa: S608
        findings += damaged.findings(number, copy, read, site=False, where=column.name)
    assert findings == []
    assert damaged.refused > 0


def test_no_flipped_bit_of_a_file_breaks_a_reader_or_changes_a_number(stored: tuple[Damaged, Path]) -> None:
    damaged, _ = stored
    files = [path for path in next((damaged.results / "runs").glob(f"*/{damaged.run_id}")).rglob("*") if path.is_file()]
    captures = sorted(path for path in files if path.suffix == ".gz")
    files = [path for path in files if path not in captures[1:]]
    findings = []
    for number, path in enumerate(sorted(files)):
        copy = damaged.copied()
        flip(copy / path.relative_to(damaged.results), path.stat().st_size // 2, 3)
        findings += damaged.findings(number, copy, damaged.files, site=False, where=path.name)
    assert findings == []


@pytest.mark.slow(reason="each of its calls damages other places, because rows and files have the time")
def test_no_random_damage_breaks_a_reader_or_changes_a_number(stored: tuple[Damaged, Path]) -> None:
    damaged, _ = stored
    found = [finding for number in range(1, 201) for finding in damaged.database(number, site=number < 20)]
    assert found + [finding for number in range(1, 101) for finding in damaged.artefact(number, site=False)] == []


@pytest.mark.parametrize(
    "numbers", [range(1, 6), pytest.param(range(6, 21), marks=pytest.mark.slow(reason="more of the same damages"))]
)
def test_no_changed_bundle_leaves_anything_or_other_values(numbers: range, stored: tuple[Damaged, Path]) -> None:
    damaged, bundle = stored
    assert [finding for number in numbers for finding in damaged.bundle(number, bundle)] == []


def test_damages_find_what_no_checksum_covers(stored: tuple[Damaged, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: without checksums, a changed value is another number."""
    damaged, _ = stored
    for name in ("of", "of_run", "of_campaign", "of_documents"):
        monkeypatch.setattr(checksums, name, lambda *_: Anything())
    assert damaged.findings(1, changed_value(damaged), damaged.rows, site=False)


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
    copy = changed_value(damaged)
    assert commanded(("results", "damaged"), copy, place / "out", "").status == 1
    status, out, _ = called("verify", "--results", copy)
    assert (status, f"run {damaged.run_id}: a value differs from its checksum" in out) == (1, True)
    (command,) = (line.split() for line in out.splitlines() if line.startswith("  ./backchannel run "))
    assert called(*command[1:])[0] == 0
    assert called("verify", "--results", copy)[0] == 0
    with Store.open(copy) as store, Store.open(damaged.results) as right:
        assert store.values(damaged.campaign_id) == right.values(damaged.campaign_id)
