"""Damage of a store: what is found, and what refuses to go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.store import Store, StoreError
from analysis.store.copying import copy_campaign
from analysis.verifying import Verified, verify
from tests.unit.analysis.store.conftest import begin, landing

RUN = "r00"
CAPTURE = "captures/a.pcap"


@pytest.fixture
def kept(store: Store) -> Path:
    """The folder of a run whose captures have three bytes."""
    begin(store)
    store.land(landing(store, RUN, 1e6))
    return store.run_folder(RUN)


def found(store: Store) -> Verified:
    return verify(store, [RUN])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


DAMAGES = [
    (Path.unlink, f"{CAPTURE} is missing"),
    (cut, f"{CAPTURE} has 2 bytes, and had 3 when the run landed"),
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
def test_a_damaged_run_is_not_copied(
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
    assert (finding.run_id, finding.reason.startswith("its row cannot be read: ")) == (RUN, True)


@pytest.mark.only_on("sqlite")
def test_rows_of_nothing_are_found(store: Store, kept: Path) -> None:
    with sqlite3.connect(store.folder / "results.sqlite") as database:
        database.execute("DELETE FROM run")
    reasons = {finding.reason for finding in found(store).findings}
    assert reasons == {f"the database: a row of {table} belongs to nothing" for table in ("file", "metric")}
