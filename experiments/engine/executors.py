"""Where runs are executed: on this machine's own cells, or on a Dask cluster's (experiments.engine.dask_executor).

An executor runs jobs on machines. The dispatcher decides how many jobs each machine gets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from analysis.store import Store
from experiments.engine.pool import CellPool, Job, PoolStatus, Result
from experiments.testbeds import TestbedFactory
from testbed.cell import Cell


@dataclass(frozen=True)
class Machine:
    """One machine: workers on it share its CPUs, and so its governor."""

    #: Equal for two workers on one machine.
    id: str
    #: For people.
    name: str
    cpus: int
    memory_bytes: int


class Listener(Protocol):
    """Receives an executor's events, from any thread."""

    def on_status(self, machine_id: str, status: PoolStatus) -> None:
        """A reading of a machine."""

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        """A job has ended."""

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        """A job's worker is gone, and the state of the run is unknown."""


class Executor(Protocol):
    """Runs jobs on machines."""

    def machines(self) -> list[Machine]:
        """The machines that can take jobs now."""

    def submit(self, machine_id: str, job: Job) -> None:
        """Gives a job to a machine; the listener receives its result."""

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


class LabExecutor:
    """The sets of hosts of a lab, driven from this machine, which has the keys. Each is a machine of its own.

    Args:
        cells: connects to each set of hosts; "" is the name of the only one.
    """

    def __init__(self, store: Store, listener: Listener, cells: Mapping[str, TestbedFactory]) -> None:
        here = this_machine()
        #: By the id of the set's machine.
        self._executors: dict[str, LocalExecutor] = {}
        for name, factory in cells.items():
            machine = replace(here, id=f"{here.id} {name}", name=name)
            self._executors[machine.id] = LocalExecutor(store, listener, factory, machine)

    def machines(self) -> list[Machine]:
        """The sets of hosts."""
        return [machine for executor in self._executors.values() for machine in executor.machines()]

    def submit(self, machine_id: str, job: Job) -> None:
        """Gives a job to a set of hosts; the listener receives its result."""
        self._executors[machine_id].submit(machine_id, job)

    def allow(self, machine_id: str, cells: int) -> None:
        """How many runs a set of hosts may make at once."""
        self._executors[machine_id].allow(machine_id, cells)

    def stop(self) -> None:
        """Ends all runs at once."""
        for executor in self._executors.values():
            executor.stop()

    def close(self) -> None:
        """Releases the hosts."""
        for executor in self._executors.values():
            executor.close()


class LocalExecutor:
    """Cells of this machine, in threads of this process; or hosts that stand in for a machine.

    Args:
        machine: of a set of hosts; None: this one.
    """

    def __init__(
        self, store: Store, listener: Listener, cells: TestbedFactory = Cell, machine: Machine | None = None
    ) -> None:
        self._machine = machine or this_machine()
        self._listener = listener
        self._lock = threading.Lock()
        self._pool = CellPool(
            store, lambda status: listener.on_status(self._machine.id, status), cells, on_hosts=machine is not None
        )

    def machines(self) -> list[Machine]:
        """The machines that can take jobs now."""
        return [self._machine]

    def submit(self, machine_id: str, job: Job) -> None:
        """Gives a job to a machine; the listener receives its result."""
        done: Callable[[Result], None] = lambda result: self._listener.on_result(machine_id, job, result)  # noqa: E731
        self._pool.submit(job, done)

    def allow(self, machine_id: str, cells: int) -> None:
        """How many cells may be busy on a machine at once."""
        self._pool.allow(cells)

    def stop(self) -> None:
        """Ends all runs at once."""
        self._pool.stop()

    def close(self) -> None:
        """Ends everything that was started for this batch."""
        self._pool.close()
