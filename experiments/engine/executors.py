"""Where runs are executed: by this process, or by the workers of a Dask cluster (experiments.engine.dask_executor).

An executor runs jobs on machines, and posts what happens as events. The engine decides how many jobs each machine gets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from analysis.store import Store
from experiments.engine.core import Event, JobEnded, StatusRead
from experiments.engine.jobs import Job, Machine, PoolStatus
from experiments.engine.pool import CellPool
from experiments.testbeds import TestbedFactory

#: Receives an event, from any thread.
Post = Callable[[Event], None]


class Executor(Protocol):
    """Runs jobs on machines."""

    def machines(self) -> list[Machine]:
        """The machines that can take jobs now."""

    def submit(self, machine_id: str, job: Job) -> None:
        """Gives a job to a machine, whose end or loss is posted."""

    def allow(self, machine_id: str, cells: int) -> None:
        """How many cells may be busy on a machine at once."""

    def stop(self) -> None:
        """Ends all runs at once."""

    def close(self) -> None:
        """Ends everything that was started for this batch."""


def this_machine() -> Machine:
    """The machine on which this process runs."""
    return Machine(_boot_id(), os.uname().nodename, os.cpu_count() or 1, _free_memory_bytes())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def _free_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class LocalExecutor:
    """Cells of this machine, in threads of this process; or the sets of hosts of a lab, each of which is a machine.
    This process drives them, because it has the keys.

    Args:
        store: for the runs.
        post: receives events.
        sets: connects to each set of hosts; "" is the name of the only one. None: cells of this machine.
    """

    def __init__(self, store: Store, post: Post, sets: Mapping[str, TestbedFactory] | None = None) -> None:
        here = this_machine()
        testbeds: dict[Machine, dict[str, Any]] = {here: {}}
        if sets is not None:
            testbeds = {
                replace(here, id=f"{here.id} {name}", name=name): {"cells": factory, "on_hosts": True}
                for name, factory in sets.items()
            }
        self._post = post
        self._machines = list(testbeds)
        self._pools = {
            machine.id: CellPool(store, partial(self._read, machine.id), **testbed)
            for machine, testbed in testbeds.items()
        }

    def machines(self) -> list[Machine]:
        """The machines that can take jobs now."""
        return self._machines

    def submit(self, machine_id: str, job: Job) -> None:
        """Gives a job to a machine, whose end is posted."""
        self._pools[machine_id].submit(job, lambda result: self._post(JobEnded(machine_id, job, result)))

    def _read(self, machine_id: str, status: PoolStatus) -> None:
        self._post(StatusRead(machine_id, status))

    def allow(self, machine_id: str, cells: int) -> None:
        """How many cells may be busy on a machine at once."""
        self._pools[machine_id].allow(cells)

    def stop(self) -> None:
        """Ends all runs at once."""
        for pool in self._pools.values():
            pool.stop()

    def close(self) -> None:
        """Ends everything that was started for this batch."""
        for pool in self._pools.values():
            pool.close()
