"""Requests and the runners that take them."""

from __future__ import annotations

from analysis.store import Store, requests


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
