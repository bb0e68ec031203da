"""Division of a machine's cells among simulated workers."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.engine.dispatch import AHEAD
from experiments.engine.shares import Shares


class SimulatedWorkers:
    """Workers that fill their shares with runs, end runs at random, and report at random."""

    def __init__(self, workers: int, allowed: int, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.shares = Shares()
        self.shares.allowed = allowed
        self.limits = {f"w{number}": 0 for number in range(workers)}
        self.running: dict[str, list[int]] = {worker: [] for worker in self.limits}
        self.waiting: dict[str, deque[int]] = {worker: deque() for worker in self.limits}
        self.submitted = 0
        self.started: list[int] = []
        self.most = 0

    @property
    def jobs(self) -> dict[str, list[int]]:
        return {worker: sorted([*self.running[worker], *self.waiting[worker]]) for worker in self.limits}

    def submit(self) -> None:
        self.waiting[self.shares.next(self.jobs)].append(self.submitted)
        self.submitted += 1

    def step(self, feed: bool = True) -> None:
        """Events between two polls of the runner."""
        self.limits |= self.shares.settle(self.jobs)
        # The engine submits jobs up to this number.
        while feed and sum(map(len, self.jobs.values())) < max(1, self.shares.allowed) * (1 + AHEAD):
            self.submit()
        for worker, share in self.limits.items():
            for run in list(self.running[worker]):
                if self.random.random() < 0.2:
                    self.running[worker].remove(run)
            while self.waiting[worker] and len(self.running[worker]) < share:
                self.started.append(self.waiting[worker][0])
                self.running[worker].append(self.waiting[worker].popleft())
        self.most = max(self.most, sum(map(len, self.running.values())))
        for worker, share in self.limits.items():
            if self.random.random() < 0.1:
                assert self.shares.on_report(worker, share, len(self.running[worker]))


@pytest.mark.parametrize(("allowed", "workers"), [(1, 2), (3, 2), (12, 8), (5, 8), (0, 2), (2, 1)])
def test_shares_sum_to_what_is_allowed(allowed: int, workers: int) -> None:
    machine = SimulatedWorkers(workers, allowed)
    assert sum(machine.shares.settle(machine.jobs).values()) == allowed
    for _ in range(allowed * 3 // 2 + 1):
        machine.submit()
    result = machine.shares.settle(machine.jobs)
    assert sum(result.values()) == allowed
    assert max(result.values()) - min(result.values()) <= 1


def test_with_one_cell_every_job_goes_to_the_worker_that_has_it() -> None:
    machine = SimulatedWorkers(2, 1)
    machine.shares.settle(machine.jobs)
    machine.submit()
    machine.submit()
    assert sorted(map(len, machine.jobs.values())) == [0, 2]


def test_while_nothing_is_allowed_somebody_has_the_job_that_waits() -> None:
    machine = SimulatedWorkers(2, 0)
    machine.shares.settle(machine.jobs)
    machine.submit()
    assert sum(map(len, machine.jobs.values())) == 1


@given(workers=st.integers(1, 9), allowed=st.integers(1, 14), seed=st.integers(0, 1000))
def test_never_more_at_work_than_allowed_and_nobody_waits_for_ever(workers: int, allowed: int, seed: int) -> None:
    machine = SimulatedWorkers(workers, allowed, seed)
    for _ in range(300):
        machine.step()
    assert machine.most == allowed
    last = machine.submitted
    for _ in range(400):
        machine.step(feed=False)
    assert sorted(machine.started) == list(range(last))
    overtaken = max(at - run for at, run in enumerate(machine.started))
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
    assert shares.on_report("b", 0, 0)
    # A newer one at a does not come before it.
    assert shares.settle({"a": [3], "b": [2]}) == {"a": 0, "b": 0}
    assert shares.settle({"a": [], "b": [2]}) == {"a": 0, "b": 1}


def test_a_share_that_shrank_is_another_ones_only_when_it_is_not_in_use_any_more() -> None:
    shares = Shares()
    shares.allowed = 4
    assert shares.settle({"a": [0, 1, 2, 3]}) == {"a": 4}
    many = {"a": [0, 1, 2, 3], "b": [4, 5]}
    assert shares.settle(many) == {"a": 2, "b": 0}
    assert not shares.on_report("a", 4, 4), "it does not know yet"
    assert shares.settle(many) == {"a": 2, "b": 0}
    assert shares.on_report("a", 2, 3)
    assert shares.settle(many) == {"a": 2, "b": 1}
    assert shares.on_report("a", 2, 2)
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
    assert shares.on_report("a", 1, 1), "nobody asks it any more"
