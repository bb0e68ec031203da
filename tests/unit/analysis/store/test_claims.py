"""Claims of runners that share a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.store import Store
from analysis.store.claims import LAPSES_AFTER_S, Claims
from tests.unit.analysis.store.conftest import POSTGRESQL, opened


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Iterator[Store]:
    second = opened(tmp_path)
    yield second
    second.close()


def test_a_run_has_one_runner(store: Store, other: Store) -> None:
    first, second = Claims(store), Claims(other)
    assert first.take(["a", "b", "b"]) == {"a", "b"}
    assert second.take(["b", "c"]) == {"c"}
    assert first.take(["a", "c"]) == {"a"}
    assert first.settled(["a", "b", "c"]) == (set(), {"a", "b"})
    assert second.settled(["a", "b", "c"]) == (set(), {"c"})


def test_what_has_ended_is_free(store: Store, other: Store) -> None:
    first, second = Claims(store), Claims(other)
    first.take(["a", "b"])
    second.take(["c"])
    first.end("a")
    first.end("c")
    assert second.take(["a"]) == set(), "until the next renewal"
    first.renew()
    assert second.take(["a", "b"]) == {"a"}
    assert first.settled(["c"]) == (set(), set()), "another runner's claim stays"
    first.release()
    assert second.take(["b"]) == {"b"}


def test_claims_that_are_not_renewed_lapse(store: Store, other: Store, clock: SimpleNamespace) -> None:
    first, second = Claims(store, clock.time), Claims(other, clock.time)
    first.take(["a", "b"])
    clock.now_s += LAPSES_AFTER_S
    assert second.take(["a"]) == set()
    first.renew()
    clock.now_s += LAPSES_AFTER_S
    assert second.take(["a"]) == set()
    clock.now_s += 1.0
    assert second.take(["a"]) == {"a"}
    # A runner that stood still does not take it back.
    first.renew()
    assert first.settled(["a", "b"]) == (set(), {"b"})


def test_a_clock_that_was_set_back_keeps_no_claim(store: Store, other: Store, clock: SimpleNamespace) -> None:
    first, second = Claims(store, clock.time), Claims(other, clock.time)
    first.take(["a"])
    clock.now_s -= LAPSES_AFTER_S
    assert second.take(["a"]) == set()
    clock.now_s -= 1.0
    assert second.take(["a"]) == {"a"}


def test_more_runs_than_a_statement_has_room_for(store: Store, other: Store) -> None:
    many = [f"r{number}" for number in range(2500)]
    assert Claims(store).take(many) == set(many)
    assert Claims(other).take([*many, "last"]) == {"last"}


@pytest.mark.skipif(POSTGRESQL is not None, reason="a team's database does not see the locks of other hosts")
def test_in_a_folder_the_claims_of_a_process_that_has_ended_are_free_at_once(store: Store, tmp_path: Path) -> None:
    # Leaves without closing anything, like a process that was killed.
    child = os.fork()
    if not child:
        taken = Claims(Store.open(tmp_path / "results")).take(["a"])
        os._exit(0 if taken == {"a"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Claims(store).take(["a"]) == {"a"}
