"""Requests and the runners that take them."""

from __future__ import annotations

from types import SimpleNamespace

from analysis.store import Store, requests
from analysis.store.claims import LAPSES_AFTER_S
from tests.unit.analysis.store.conftest import begin


def state(store: Store, campaign_id: str) -> str:
    head = store.campaign_head(campaign_id)
    assert head is not None
    return head.state


def test_runners_are_there_until_they_leave(store: Store) -> None:
    for number, runner in enumerate(("first", "second")):
        requests.show_runner(store, runner, float(number), [])
    requests.show_runner(store, "second", 1.0, ["kernel"])
    assert [(row.id, row.lacks) for row in requests.runners(store)] == [("first", []), ("second", ["kernel"])]
    requests.remove_runner(store, "first")
    assert [row.id for row in requests.runners(store)] == ["second"]


def test_one_request_is_found_by_its_number(store: Store) -> None:
    number = requests.ask_run(store, "a.yaml", "name: a")
    requests.ask_run(store, "b.yaml", "name: b")
    cancel = requests.ask_cancel(store, "c1")
    result = requests.find(store, number)
    assert result is not None
    assert (result.file, result.text) == ("a.yaml", "name: a")
    assert requests.find(store, cancel) is None


def test_after_15_s_of_silence_a_runner_is_gone_and_its_work_released(store: Store, clock: SimpleNamespace) -> None:
    begin(store)
    number = requests.ask_run(store, "a.yaml", "name: a")
    requests.show_runner(store, "runner", clock.now_s, [])
    assert requests.take(store, "runner") is not None
    requests.name_campaign(store, number, "c1")
    clock.now_s = 1014.9
    assert [row.id for row in requests.runners(store)] == ["runner"]
    assert requests.release_lost(store) == 0
    assert state(store, "c1") == "running"
    clock.now_s = 1015.0
    assert requests.runners(store) == []
    assert requests.release_lost(store) == 1
    released = requests.find(store, number)
    assert released is not None
    assert (released.state, released.finished, state(store, "c1")) == (requests.FAILED, 1015.0, "incomplete")
    assert requests.release_lost(store) == 0


def test_a_clock_that_was_set_back_keeps_no_request_of_a_killed_runner(store: Store, clock: SimpleNamespace) -> None:
    clock.now_s = 9000.0
    begin(store)
    store.set_progress("c1", {"share": 0.5})
    number = requests.ask_run(store, "a.yaml", "name: a")
    requests.show_runner(store, "killed", clock.now_s, [])
    assert requests.take(store, "killed") is not None
    clock.now_s = 1000.0
    assert requests.runners(store) == []
    assert requests.release_lost(store) == 2
    released = requests.find(store, number)
    assert released is not None
    assert (released.state, state(store, "c1")) == (requests.FAILED, "incomplete")


def test_a_runner_is_gone_only_after_several_updates_were_missed() -> None:
    assert min(requests.GONE_AFTER_S, LAPSES_AFTER_S) > 4 * requests.SEEN_EVERY_S


def test_a_campaign_that_reports_nothing_for_two_minutes_has_no_process(store: Store, clock: SimpleNamespace) -> None:
    for campaign_id in ("c1", "c2", "c3"):
        begin(store, id=campaign_id)
    store.set_progress("c2", {"share": 0.5})
    clock.now_s = 1120.0
    # It waits for its turn in a batch.
    store.set_waiting(["c1"])
    assert requests.release_lost(store) == 0
    clock.now_s = 1120.5
    # The process of the last was killed before it reported anything.
    assert requests.release_lost(store) == 2
    assert [state(store, campaign_id) for campaign_id in ("c1", "c2", "c3")] == ["running", "incomplete", "incomplete"]


def test_the_latest_requests_to_run_are_listed_without_texts_and_cancels(store: Store) -> None:
    first, second = (requests.ask_run(store, name, "name: a") for name in ("a.yaml", "b.yaml"))
    requests.ask_cancel(store, "c1")
    requests.name_campaign(store, first, "c1")
    assert [(row.id, row.file, row.text) for row in requests.recent(store, 2)] == [
        (second, "b.yaml", ""), (first, "a.yaml", ""),
    ]  # fmt: skip
    assert [row.id for row in requests.recent(store, 1)] == [second]
    assert [row.id for row in requests.recent(store, 2, "c1")] == [first]
