"""Runs that are committed together: all of them or none."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.store import Store, StoreError, StoreFailed, checksums
from analysis.store.artefacts import LocalArtefacts
from analysis.store.removal import UNDO_S
from analysis.store.rows import NewCampaign
from tests.unit.analysis.store.conftest import campaign_fields, pending_run

MEMBERS = [(0, 0, "r00"), (0, 1, "r01")]


def commit(store: Store) -> int:
    pending_runs = [pending_run(store, run_id, 1e6) for _, _, run_id in MEMBERS]
    return store.commit_campaign(NewCampaign(**campaign_fields()), [[("stack", "reno")]], MEMBERS, pending_runs)


def fails_at_second_files(monkeypatch: pytest.MonkeyPatch) -> None:
    put = LocalArtefacts.put

    def full(self: LocalArtefacts, run_id: str, folder: Path, version: str = "0") -> object:
        if run_id == "r01":
            raise OSError(28, "No space left on device")
        return put(self, run_id, folder, version)

    monkeypatch.setattr(LocalArtefacts, "put", full)


def fails_at_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFailed("the results store failed: database or disk is full")

    monkeypatch.setattr(checksums, "seal_campaign", full)


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("fails", [fails_at_second_files, fails_at_last_rows])
def test_a_full_disk_leaves_nothing_and_what_was_there_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, fails: Callable[[pytest.MonkeyPatch], None]
) -> None:
    store.commit_run(pending_run(store, "r00", 5.0, problems=("late",)))
    (before,) = store.run_ids("")
    kept = store.run(before)
    with monkeypatch.context() as patch:
        fails(patch)
        with pytest.raises(StoreError):
            commit(store)
    assert store.campaign_ids() == []
    assert store.run_ids("") == [before]
    assert store.run(before) == kept
    assert (store.run_folder(before) / "captures/a.pcap").read_bytes() == b"abc"
    runs = store.folder / "runs"
    assert [path.name for path in runs.glob("*/*")] == [before]


def test_everything_lands(store: Store) -> None:
    assert commit(store) == 2
    campaign = store.campaign("c1")
    assert campaign is not None
    assert (campaign.state, campaign.valid) == ("complete", 2)


def test_a_deleted_campaign_that_is_imported_again_is_listed_and_stays(store: Store, clock: SimpleNamespace) -> None:
    commit(store)
    store.set_aside("c1", "deleted")
    assert store.campaigns() == []
    commit(store)
    assert [row.id for row in store.campaigns()] == ["c1"]
    clock.now_s += 2 * UNDO_S + time.time()
    store.sweep()
    assert store.run_ids("") == ["r00", "r01"]
