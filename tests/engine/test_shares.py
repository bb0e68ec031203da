"""How a machine's cells are shared out to its workers, on workers that are made up."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.engine.dispatch import AHEAD
from experiments.engine.shares import Shares


class MadeUp:
    """Workers that start what they may, end runs when the dice say so, and tell how they are now and then."""

    def __init__(self, workers: int, allowed: int, seed: int = 1) -> None:
        self.dice = random.Random(seed)
        self.shares = Shares()
        self.shares.allowed = allowed
        self.told = {f"w{number}": 0 for number in range(workers)}
        self.running: dict[str, list[int]] = {worker: [] for worker in self.told}
        self.waiting: dict[str, deque[int]] = {worker: deque() for worker in self.told}
        self.given = 0
        self.begun: list[int] = []
        self.most = 0

    @property
    def jobs(self) -> dict[str, list[int]]:
        return {one: sorted([*self.running[one], *self.waiting[one]]) for one in self.told}

    def submit(self) -> None:
        self.waiting[self.shares.next(self.jobs)].append(self.given)
        self.given += 1

    def step(self, feed: bool = True) -> None:
        """What happens between two looks of the runner."""
        self.told |= self.shares.settle(self.jobs)
        # As the engine does.
        while feed and sum(map(len, self.jobs.values())) < max(1, self.shares.allowed) * (1 + AHEAD):
            self.submit()
        for worker, share in self.told.items():
            for run in list(self.running[worker]):
                if self.dice.random() < 0.2:
                    self.running[worker].remove(run)
            while self.waiting[worker] and len(self.running[worker]) < share:
                self.begun.append(self.waiting[worker][0])
                self.running[worker].append(self.waiting[worker].popleft())
        self.most = max(self.most, sum(map(len, self.running.values())))
        for worker, share in self.told.items():
            if self.dice.random() < 0.1:
                assert self.shares.heard(worker, share, len(self.running[worker]))


@pytest.mark.parametrize(("allowed", "workers"), [(1, 2), (3, 2), (12, 8), (5, 8), (0, 2), (2, 1)])
def test_shares_sum_to_what_is_allowed(allowed: int, workers: int) -> None:
    machine = MadeUp(workers, allowed)
    assert sum(machine.shares.settle(machine.jobs).values()) == allowed
    for _ in range(allowed * 3 // 2 + 1):
        machine.submit()
    found = machine.shares.settle(machine.jobs)
    assert sum(found.values()) == allowed
    assert max(found.values()) - min(found.values()) <= 1


def test_with_one_cell_every_job_goes_to_the_worker_that_has_it() -> None:
    machine = MadeUp(2, 1)
    machine.shares.settle(machine.jobs)
    machine.submit()
    machine.submit()
    assert sorted(map(len, machine.jobs.values())) == [0, 2]


def test_while_nothing_is_allowed_somebody_has_the_job_that_waits() -> None:
    machine = MadeUp(2, 0)
    machine.shares.settle(machine.jobs)
    machine.submit()
    assert sum(map(len, machine.jobs.values())) == 1


@settings(max_examples=60, deadline=None)
@given(workers=st.integers(1, 9), allowed=st.integers(1, 14), seed=st.integers(0, 1000))
def test_never_more_at_work_than_allowed_and_nobody_waits_for_ever(workers: int, allowed: int, seed: int) -> None:
    machine = MadeUp(workers, allowed, seed)
    for _ in range(300):
        machine.step()
    assert machine.most == allowed
    last = machine.given
    for _ in range(400):
        machine.step(feed=False)
    assert sorted(machine.begun) == list(range(last))
    overtaken = max(at - run for at, run in enumerate(machine.begun))
    # Of some sixty for each cell.
    assert overtaken <= 20 + 20 * allowed


def test_a_job_that_waits_where_a_cell_was_taken_away_has_its_turn() -> None:
    shares = Shares()
    shares.allowed = 2
    shares.settle({"a": [0], "b": [1, 2]})
    shares.allowed = 1
    # Both have a cell at work; the next one to end leaves none to begin.
    assert shares.settle({"a": [0], "b": [1, 2]}) == {"a": 1, "b": 0}
    # The first run of b is through, and its second one waits, as long as a is at work.
    assert shares.settle({"a": [0], "b": [2]}) == {"a": 1, "b": 0}
    assert shares.heard("b", 0, 0)
    # A newer one at a does not come before it.
    assert shares.settle({"a": [3], "b": [2]}) == {"a": 0, "b": 0}
    assert shares.settle({"a": [], "b": [2]}) == {"a": 0, "b": 1}


def test_a_share_that_shrank_is_another_ones_only_when_it_is_not_in_use_any_more() -> None:
    shares = Shares()
    shares.allowed = 4
    assert shares.settle({"a": [0, 1, 2, 3]}) == {"a": 4}
    many = {"a": [0, 1, 2, 3], "b": [4, 5]}
    assert shares.settle(many) == {"a": 2, "b": 0}
    assert not shares.heard("a", 4, 4), "it does not know yet"
    assert shares.settle(many) == {"a": 2, "b": 0}
    assert shares.heard("a", 2, 3)
    assert shares.settle(many) == {"a": 2, "b": 1}
    assert shares.heard("a", 2, 2)
    assert shares.settle(many) == {"a": 2, "b": 2}


def test_cells_that_a_worker_has_no_jobs_for_serve_another() -> None:
    shares = Shares()
    shares.allowed = 4
    assert shares.settle({"a": [0, 1], "b": [2, 3]}) == {"a": 2, "b": 2}
    assert shares.settle({"a": [], "b": [2, 3, 4, 5]}) == {"a": 0, "b": 4}


def test_the_cells_of_a_worker_that_is_gone_are_the_others() -> None:
    shares = Shares()
    shares.allowed = 3
    shares.settle({"a": [0, 1], "b": [2]})
    assert shares.settle({"b": [2]}) == {"b": 3}
    assert shares.heard("a", 1, 1), "nobody asks it any more"
