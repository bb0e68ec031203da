"""Damage of a store: what is found, and what refuses to go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from analysis.store import RowDamaged, Store, StoreError
from analysis.store.copying import copy_campaign
from analysis.verifying import Verified, verify
from tests.unit.analysis.store.conftest import begin, pending_run

RUN = "r00"
CAPTURE = "captures/a.pcap"


@pytest.fixture
def kept(store: Store) -> Path:
    """The folder of a run whose captures have three bytes."""
    begin(store)
    store.commit_run(pending_run(store, RUN, 1e6))
    return store.run_folder(RUN)


def found(store: Store) -> Verified:
    return verify(store, [RUN])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


DAMAGES = [
    (Path.unlink, f"{CAPTURE} is missing"),
    (cut, f"{CAPTURE} has 2 bytes, but had 3 when the run was stored"),
    (flip, f"{CAPTURE} differs from its checksum"),
]


def test_a_store_that_is_as_it_was_stored(store: Store, kept: Path) -> None:
    assert found(store).findings == []
    assert (found(store).runs, found(store).bytes >= 3) == (1, True)


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_each_damage_of_a_file_is_found(store: Store, kept: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(kept / CAPTURE)
    (finding,) = found(store).findings
    assert (finding.run_id, finding.reason.startswith(reason)) == (RUN, True), finding
    assert found(store).damaged_runs == [RUN]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_no_damage_is_copied(
    store: Store, kept: Path, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(kept / CAPTURE)
    campaign = store.campaign("c1")
    assert campaign is not None
    with Store.open(tmp_path / "target") as target:
        with pytest.raises(StoreError, match=reason.split(" ", 1)[1]):
            copy_campaign(store, target, campaign)
        assert target.run(RUN) is None


@pytest.mark.parametrize(("damage", "reason"), DAMAGES[:2])
def test_a_file_that_is_missing_or_cut_off_is_named_to_its_reader(
    store: Store, kept: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(kept / CAPTURE)
    with pytest.raises(StoreError, match=reason.split(" ", 1)[1]):
        store.run_folder(RUN)


@pytest.mark.only_on("sqlite")
def test_a_row_that_cannot_be_read_is_found(store: Store, kept: Path) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute("UPDATE run SET manifest = '{'")
    (finding,) = found(store).findings
    assert (finding.run_id, "not JSON" in finding.reason) == (RUN, True)


@pytest.mark.only_on("sqlite")
def test_rows_of_nothing_are_found(store: Store, kept: Path) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute("DELETE FROM run")
    reasons = {finding.reason for finding in found(store).findings}
    lost = {f"the database: a row of table {table} refers to a missing row" for table in ("file", "metric")}
    assert reasons == {"its row is missing", *lost}


@pytest.mark.only_on("sqlite")
def test_a_store_without_checksums_gets_them(store: Store, kept: Path) -> None:
    store.commit_run(pending_run(store, "r01", 5.0))
    store.commit_run(pending_run(store, "r01", 6.0), replaces=True)
    before, moment = store.campaigns(texts=True), store.now()
    values = store.values("c1"), store.values_at("c1", moment), store.run(RUN)
    store.close()
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        # Of a later version.
        database.execute("DROP TABLE screened")
        for table, column in database.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table' AND (c.name LIKE '%\\_sum' ESCAPE '\\' OR c.name = 'checksum')"
        ).fetchall():
            database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        database.execute("UPDATE alembic_version SET version_num = '0009_aside'")
    with Store.open(store.folder) as again:
        assert again.campaigns(texts=True) == before
        assert (again.values("c1"), again.values_at("c1", moment), again.run(RUN)) == values
        assert not verify(again, again.run_ids("")).findings


#: What readers say of a damage: rows that carry results, changed by another program.
ROW_DAMAGES = {
    "UPDATE metric SET value = value + 1 WHERE run_id = 'r00'": "a value differs from its checksum",
    "UPDATE metric SET unit = 'time' WHERE run_id = 'r00'": "a value differs from its checksum",
    "DELETE FROM metric WHERE run_id = 'r00'": "its values differ from those that were stored",
    "UPDATE run SET state = 'invalid' WHERE id = 'r00'": "its row differs from its checksum",
    "UPDATE run SET seed = seed + 1 WHERE id = 'r00'": "its row differs from its checksum",
    "UPDATE run SET manifest = '{}' WHERE id = 'r00'": "its row differs from its checksum",
    "UPDATE file SET sha256 = '0' WHERE run_id = 'r00'": "the list of its files differs from its checksum",
    "DELETE FROM run WHERE id = 'r00'": "its row is missing",
    "UPDATE campaign SET text = 'x'": "campaign c1: its rows differ from their checksum",
    "UPDATE membership SET run_id = 'r10' WHERE run_id = 'r00'": "campaign c1: its rows differ from their checksum",
    "DELETE FROM membership WHERE run_id = 'r01'": "campaign c1: its rows differ from their checksum",
    "UPDATE point SET parameters = '[]' WHERE number = 0": "campaign c1: its rows differ from their checksum",
    "DELETE FROM campaign": "campaign c1: its rows differ from their checksum",
}


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("statement", ROW_DAMAGES)
def test_a_changed_row_is_named_to_readers_and_verify(store: Store, kept: Path, tmp_path: Path, statement: str) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute(statement)
    reason = ROW_DAMAGES[statement]

    def read() -> None:
        campaign = store.campaign("c1")
        assert campaign is not None
        store.table("c1")
        store.run(RUN)

    with pytest.raises(RowDamaged, match=reason):
        read()
    assert any(reason in str(finding) for finding in found(store).findings)


@pytest.mark.only_on("sqlite")
def test_a_run_that_is_made_again_is_whole_again(store: Store, kept: Path) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute("UPDATE metric SET value = value + 1 WHERE run_id = 'r00'")
    store.commit_run(pending_run(store, RUN, 7.0), replaces=True)
    assert found(store).findings == []
    # A damaged result is not an earlier result.
    assert store.values_at("c1", 0.0) == []


@pytest.mark.only_on("sqlite")
def test_a_change_of_a_damaged_campaign_does_not_hide_the_damage(store: Store, kept: Path) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute("UPDATE membership SET run_id = 'r10' WHERE run_id = 'r00'")
    with pytest.raises(RowDamaged):
        store.end_campaign("c1", complete=True)


@pytest.mark.only_on("sqlite")
def test_what_lands_between_two_reads_is_no_damage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of members that was read before a run landed, and the run's values."""
    begin(store)
    refuse_orphans = Store._refuse_orphans

    def landed_meanwhile(self: Store, missing: Collection[str]) -> None:
        monkeypatch.undo()
        with Store.open(store.folder) as other:
            other.commit_run(pending_run(other, RUN, 1e6))
        refuse_orphans(self, missing)

    monkeypatch.setattr(Store, "_refuse_orphans", landed_meanwhile)
    assert {head.state for head in store.heads("c1")} == {"missing"}
    assert [row.value for row in store.values("c1")] == [1e6]


def test_a_file_that_the_disk_cannot_read_is_one_of_the_findings(
    store: Store, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad_sector(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("analysis.store.damage.hashlib.file_digest", bad_sector)
    assert [finding.reason for finding in found(store).findings] == [f"{CAPTURE} cannot be read (Input/output error)"]
