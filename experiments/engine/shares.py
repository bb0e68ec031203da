"""How a machine's cells are shared out to the worker processes on it: never more at work in all of them than allowed.

A worker that is told a smaller share hears of it a moment later, and goes on with the cells that are at work. So a
share grows only by what no other worker may still be using: until it has said how many are at work, or has no job left,
a worker counts with the share that it had.

Pure: what workers say is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Worker to its jobs, each by a number that is smaller for an older one, the oldest first.
Jobs = Mapping[str, Sequence[int]]


@dataclass
class _Part:
    """Of one worker."""

    #: Cells that it may have at work.
    share: int = 0
    #: Cells that may be at work in it all the same, begun under a greater share.
    over: int = 0


class Shares:
    """The shares of one machine's workers."""

    def __init__(self) -> None:
        #: Cells that may be at work on the machine.
        self.allowed = 0
        self._parts: dict[str, _Part] = {}

    def settle(self, jobs: Jobs) -> dict[str, int]:
        """The share of every worker, from now on.

        Args:
            jobs: of all workers that are there.
        """
        self._parts = {worker: self._parts.get(worker, _Part()) for worker in jobs}
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
        """The worker for one more job: the one with least to do for each of its cells."""
        wanted = self._wanted(jobs)
        # While the machine's host holds all cells back, somebody has the job that waits.
        serving = [worker for worker in jobs if wanted[worker]] or list(jobs)
        return min(serving, key=lambda one: ((len(jobs[one]) + 1) / max(wanted[one], 1), len(jobs[one])))

    def heard(self, worker: str, share: int, running: int) -> bool:
        """What a worker says of itself; whether it knows its share.

        Args:
            worker: that said it.
            share: that it was told last.
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
            return wanted[worker], age, -self._parts.get(worker, _Part()).share

        for _ in range(self.allowed):
            waiting = [worker for worker in jobs if wanted[worker] < len(jobs[worker])]
            wanted[min(waiting or jobs, key=order)] += 1
        return wanted
