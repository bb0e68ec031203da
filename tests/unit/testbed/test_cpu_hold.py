"""Holding the CPUs: when to hold them, and that the process ends with the hold."""

from __future__ import annotations

import os
import time
from pathlib import Path

from testbed import cpu_hold
from tests.support.faults.leftovers import command_line, processes
from tests.support.waiting import wait_until


def work(policy: cpu_hold.HoldPolicy, seconds: int, stolen: float) -> list[bool]:
    """One reading a second; the hold follows `policy`."""
    held, answers = False, []
    for second in range(seconds):
        held = policy.update(float(second), 1.0, stolen, held)
        answers.append(held)
    return answers


def test_little_stolen_time_leaves_the_hold() -> None:
    assert all(work(cpu_hold.HoldPolicy(), 300, 0.03))


def test_much_stolen_time_ends_the_hold_for_a_while() -> None:
    answers = work(cpu_hold.HoldPolicy(), 300, 0.1)
    assert answers[:8] == [True] * 8, "the mean is taken over this time"
    assert answers[8:128] == [False] * 120
    assert answers[128:136] == [True] * 8, "then it is tried again"
    assert not answers[136]


def test_time_stolen_without_a_hold_does_not_count() -> None:
    policy = cpu_hold.HoldPolicy()
    assert policy.update(0.0, 1.0, 0.9, held=False)
    assert policy.update(1.0, 1.0, 0.0, held=True)


def test_a_hold_keeps_every_cpu_and_ends() -> None:
    with cpu_hold.held(wanted=True):
        # Of proc_pid_stat(5), fields 3 (state), 19 (nice) and 41 (policy), counted from the third. A thread that keeps
        # its CPU is always ready to run. Whether it runs depends on what else does.
        ready = ("R", "19", str(os.SCHED_IDLE))
        # The kernel closes the pipe that Popen waits for a moment before it sets the new command line.
        holder = wait_until(_holder, "the holder")
        states: list[tuple[str, str, str]] = []

        def all_are_ready() -> bool:
            stats = [(task / "stat").read_text() for task in Path(f"/proc/{holder}/task").iterdir()]
            words = [stat.rsplit(")", 1)[1].split() for stat in stats if "(awake " in stat]
            states[:] = [(word[0], word[16], word[38]) for word in words]
            return states == [ready] * len(os.sched_getaffinity(0))

        wait_until(all_are_ready, "a thread for each CPU")
        for _ in range(10):
            time.sleep(0.01)
            assert all_are_ready(), states
    assert not Path(f"/proc/{holder}").exists()


def test_a_hold_that_is_not_wanted_starts_nothing() -> None:
    with cpu_hold.held(wanted=False):
        assert not _holder()


def _holder() -> int:
    """The process that keeps the CPUs; 0 without one."""
    wanted = ["awake", "--parent", str(os.getpid())]
    return next((pid for pid in processes() if command_line(pid)[1:4] == wanted), 0)
