"""Divides a machine's cells among its worker processes; together they never run more cells than allowed.

A worker learns of a smaller share with a delay, and finishes the cells at work. So a share grows only by cells that no
other worker may still use: a worker counts with its old share until it has reported its cells, or has no job left.

Pure: reports of workers are passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Worker to its jobs, each by a number that is smaller for an older one, the oldest first.
Jobs = Mapping[str, Sequence[int]]


@dataclass
class WorkerShare:
    """The share of one worker."""

    #: Cells that it may have at work.
    share: int = 0
    #: Cells that may still be at work, because they started under a larger share.
    over: int = 0


class Shares:
    """The shares of one machine's workers."""

    def __init__(self) -> None:
        #: Cells that may be at work on the machine.
        self.allowed = 0
        self._parts: dict[str, WorkerShare] = {}

    def settle(self, jobs: Jobs) -> dict[str, int]:
        """Updates the shares.

        Args:
            jobs: of all workers that are there.
        """
        self._parts = {worker: self._parts.get(worker, WorkerShare()) for worker in jobs}
        wanted = self._wanted(jobs)
        for worker, part in self._parts.items():
            if wanted[worker] < part.share:
                part.over = max(part.over, part.share)
                part.share = wanted[worker]
            part.over = min(part.over, len(jobs[worker]))
        free = self.allowed - sum(max(part.share, part.over) for part in self._parts.values())
        for worker, part in self._parts.items():
            own = max(0, part.over - part.share)
            more = max(0, min(wanted[worker] - part.share, own + max(0, free)))
            free -= max(0, more - own)
            part.share += more
        return {worker: part.share for worker, part in self._parts.items()}

    def next(self, jobs: Jobs) -> str:
        """The worker for the next job: the one with the fewest jobs for each of its cells."""
        wanted = self._wanted(jobs)
        # While the machine's host holds all cells back, somebody has the job that waits.
        serving = [worker for worker in jobs if wanted[worker]] or list(jobs)
        return min(serving, key=lambda one: ((len(jobs[one]) + 1) / max(wanted[one], 1), len(jobs[one])))

    def heard(self, worker: str, share: int, running: int) -> bool:
        """Handles a worker's report. Returns whether the worker knows its current share.

        Args:
            worker: that reports.
            share: the last one that it received.
            running: cells at work.
        """
        part = self._parts.get(worker)
        if part is None or share != part.share:
            return part is None
        part.over = running
        return True

    def _wanted(self, jobs: Jobs) -> dict[str, int]:
        """Shares as they are to become: equal ones, but no worker has cells that it has no jobs for while another
        worker's jobs wait. With fewer cells than workers, the oldest jobs come first, lest one waits for ever.
        """
        wanted = dict.fromkeys(jobs, 0)
        if not jobs:
            return wanted

        def order(worker: str) -> tuple[int, float, int]:
            age = 0 if wanted[worker] else jobs[worker][0] if jobs[worker] else math.inf
            # What need not move stays.
            return wanted[worker], age, -self._parts.get(worker, WorkerShare()).share

        for _ in range(self.allowed):
            waiting = [worker for worker in jobs if wanted[worker] < len(jobs[worker])]
            wanted[min(waiting or jobs, key=order)] += 1
        return wanted
