"""Archiving, deleting and restoring: what is listed, what goes, and that nothing of another campaign goes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from analysis.store import Store, notes, removal
from analysis.store.removal import UNDO_S, RemovalError
from analysis.store.rows import NewCampaign
from tests.unit.analysis.store.conftest import campaign_fields, enter, pending_run


def commit(store: Store, run_id: str) -> None:
    store.commit_run(pending_run(store, run_id, 1e6, capture=b"x" * 1000))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two campaigns that share a run."""
    store = Store.open(tmp_path / "results")
    enter(store, "first", "alone", "both")
    enter(store, "second", "both")
    for run_id in ("alone", "both"):
        commit(store, run_id)
    return store


def listed(store: Store) -> set[str]:
    return {row.id for row in store.campaigns()}


def in_a_day(store: Store) -> None:
    removal.purge(store._database, store._artefacts, time.time() + UNDO_S + 1)


def test_what_is_archived_is_in_no_list_and_is_never_purged(store: Store) -> None:
    store.set_aside("first", "archived")
    assert listed(store) == {"second"}
    assert store.count_campaigns() == 1
    in_a_day(store)
    assert store.campaign_head("first") is not None
    store.restore("first")
    assert listed(store) == {"first", "second"}


def test_what_is_deleted_can_be_restored_until_its_time_is_over(store: Store) -> None:
    goes = store.would_go("first")
    assert (goes.runs, goes.bytes, goes.shared) == (1, 1000, 1)
    store.set_aside("first", "deleted")
    assert {row.id for row in store.newest()} == {"both"}
    store.sweep()
    assert store.folder_of_run("alone").exists(), "a day has not passed"
    store.restore("first")
    in_a_day(store)
    assert store.run("alone") is not None
    assert store.folder_of_run("alone").exists()


def test_after_its_time_runs_go_with_files_rows_and_notes_but_those_of_others_stay(store: Store) -> None:
    notes.write(store, "alone", "slow", ["x"])
    store.note_failure("alone", 1, "lost", store.staging_folder("attempt"))
    alone, both = store.folder_of_run("alone"), store.folder_of_run("both")
    store.set_aside("first", "deleted")
    in_a_day(store)
    assert (alone.exists(), both.exists()) == (False, True)
    assert (store.run("alone"), store.failed_folder("alone"), notes.of_run(store, "alone")) == (None, None, None)
    assert store.run("both") is not None
    assert store.campaign_head("first") is None
    assert listed(store) == {"second"}
    assert store.integrity() == []


def test_a_campaign_that_runs_again_is_listed_and_is_not_purged(store: Store) -> None:
    store.set_aside("first", "deleted")
    enter(store, "first", "alone", complete=False)
    in_a_day(store)
    assert listed(store) == {"first", "second"}
    with pytest.raises(RemovalError, match="running: cancel it first"):
        store.set_aside("first", "deleted")


def test_a_run_of_a_collection_is_deleted_and_restored_alone(store: Store) -> None:
    imports = NewCampaign(**campaign_fields(id="imports", text=""))
    for run_id in ("import1", "import2"):
        commit(store, run_id)
        store.add_member(imports, [("file", "a.pcap")], run_id)
    own = store.set_run_aside("import1", "deleted")
    campaign = store.campaign("imports")
    assert campaign is not None
    assert [member.run_id for member in campaign.points[0].members] == ["import2"]
    store.restore(own)
    campaign = store.campaign("imports")
    assert campaign is not None
    assert {member.run_id for member in campaign.points[0].members} == {"import1", "import2"}
    assert listed(store) == {"first", "second", "imports"}
    folder = store.folder_of_run("import2")
    store.purge(store.set_run_aside("import2", "deleted"))
    assert not folder.exists()
    assert store.run("import2") is None
    store.purge(store.set_run_aside("import1", "deleted"))
    assert store.campaign_head("imports") is None, "an empty collection is in no list"
    with pytest.raises(RemovalError, match="campaign first asks for this run"):
        store.set_run_aside("alone", "deleted")
