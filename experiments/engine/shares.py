"""Divides a machine's cells among its worker processes, which together never run more cells than allowed.

A worker receives a smaller share with a delay and finishes its busy cells. A share therefore grows only by cells
that no other worker may still use: a worker counts with its old share until it has reported its cells or has no job.

Pure: reports of workers are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Sequence numbers of each worker's jobs, in ascending order. Older jobs have smaller numbers.
Jobs = Mapping[str, Sequence[int]]


@dataclass
class WorkerShare:
    """The share of a worker."""

    #: Number of cells that it may have busy.
    share: int = 0
    #: Number of cells that may still be busy, because they started under a larger share.
    over: int = 0


class Shares:
    """The shares of one machine's workers."""

    def __init__(self) -> None:
        #: Number of cells that may be busy on the machine.
        self.allowed = 0
        self._parts: dict[str, WorkerShare] = {}

    def settle(self, jobs: Jobs) -> dict[str, int]:
        """Updates the shares.

        Args:
            jobs: of all connected workers.
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
            still_used = max(0, part.over - part.share)
            more = max(0, min(wanted[worker] - part.share, still_used + max(0, free)))
            free -= max(0, more - still_used)
            part.share += more
        return {worker: part.share for worker, part in self._parts.items()}

    def next(self, jobs: Jobs) -> str:
        """The worker for the next job: the worker with the fewest jobs per cell."""
        wanted = self._wanted(jobs)
        # While no cells are allowed, any worker may hold the job.
        serving = [worker for worker in jobs if wanted[worker]] or list(jobs)
        return min(serving, key=lambda worker: ((len(jobs[worker]) + 1) / max(wanted[worker], 1), len(jobs[worker])))

    def on_report(self, worker: str, share: int, running: int) -> bool:
        """Handles a worker's report. Returns whether the worker has its current share.

        Args:
            worker: sender of the report.
            share: the last share that it received.
            running: number of busy cells.
        """
        part = self._parts.get(worker)
        if part is None or share != part.share:
            return part is None
        part.over = running
        return True

    def _wanted(self, jobs: Jobs) -> dict[str, int]:
        """The target shares: equal, but no worker has cells without jobs while jobs of another worker wait. With fewer
        cells than workers, the workers with the oldest jobs come first, so that every job runs at some time.
        """
        wanted = dict.fromkeys(jobs, 0)
        if not jobs:
            return wanted

        def order(worker: str) -> tuple[int, float, int]:
            age = 0 if wanted[worker] else jobs[worker][0] if jobs[worker] else math.inf
            # Among equals, the current share stays.
            return wanted[worker], age, -self._parts.get(worker, WorkerShare()).share

        for _ in range(self.allowed):
            waiting = [worker for worker in jobs if wanted[worker] < len(jobs[worker])]
            wanted[min(waiting or jobs, key=order)] += 1
        return wanted
