"""Copies of campaigns between stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.store import Store, StoreError, StorePlaceError, notes
from analysis.store.copying import Copied, copy_campaign
from analysis.store.rows import CampaignRow
from tests.unit.analysis.store.conftest import begin, pending_run


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Store]:
    result = Store.open(tmp_path / "target")
    yield result
    result.close()


def of(store: Store) -> CampaignRow:
    campaign = store.campaign("c1")
    assert campaign is not None
    return campaign


def test_a_copy_has_what_the_source_has_and_is_complete_with_its_last_run(store: Store, target: Store) -> None:
    begin(store)
    for number, run_id in enumerate(("r00", "r10", "r11")):
        store.commit_run(pending_run(store, run_id, 1e6 + number))
    assert copy_campaign(store, target, of(store)) == Copied(runs=3, copied=3)
    assert of(target).state == "incomplete"
    store.commit_run(pending_run(store, "r01", 2e6))
    assert copy_campaign(store, target, of(store)) == Copied(runs=4, copied=1)
    own, copied = of(store), of(target)
    assert copied.state == "complete"
    for field in ("name", "title", "file", "text", "overrides", "backend", "seed", "repetitions", "points"):
        assert getattr(copied, field) == getattr(own, field), field
    for run_id in ("r00", "r01", "r10", "r11"):
        first, second = store.run(run_id), target.run(run_id)
        assert first is not None
        assert second is not None
        for field in ("backend", "documents", "metrics", "problems", "attempt", "state"):
            assert getattr(second, field) == getattr(first, field), field
        assert (target.run_folder(run_id) / "captures/a.pcap").read_bytes() == b"abc"


def test_notes_go_along_and_those_of_the_target_stay(store: Store, target: Store) -> None:
    begin(store)
    for number, run_id in enumerate(("r00", "r10")):
        store.commit_run(pending_run(store, run_id, 1e6 + number))
    notes.write(store, "r00", "a burst at 3 s", ["odd"])
    copy_campaign(store, target, of(store))
    assert notes.of_run(target, "r00") == notes.of_run(store, "r00")
    notes.write(target, "r00", "the burst is the modem's", [])
    notes.write(store, "r10", "as r00", [])
    copy_campaign(store, target, of(store))
    assert {run_id: row.text for run_id, row in notes.of_campaign(target, "c1").items()} == {
        "r00": "the burst is the modem's",
        "r10": "as r00",
    }


def test_a_copy_of_invalid_runs_is_not_complete(store: Store, target: Store) -> None:
    begin(store)
    for run_id in ("r00", "r01", "r10"):
        store.commit_run(pending_run(store, run_id, 1e6))
    store.commit_run(pending_run(store, "r11", 1e6, problems=("line: late",)))
    assert copy_campaign(store, target, of(store)) == Copied(runs=4, copied=4)
    assert of(target).state == "incomplete"


def test_a_campaign_that_runs_in_the_target_keeps_its_state(store: Store, target: Store) -> None:
    begin(store)
    begin(target)
    with pytest.raises(StoreError, match="campaign demo is running in .*target: copy it when that has ended"):
        copy_campaign(store, target, of(store))
    assert of(target).state == "running"


def test_a_store_is_not_copied_into_itself(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 1e6, problems=("line: late",)))
    with pytest.raises(StorePlaceError, match="it is the store that you copy from"):
        copy_campaign(store, store, of(store))
    assert of(store).state == "running"
