"""What the engine and the machines exchange: a machine, a job for it, the job's result, and readings of its cells."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.store.documents import Batch
from experiments.language.campaign import Run
from testbed.report import Progress


@dataclass(frozen=True)
class Machine:
    """One machine, or one set of hosts of a lab."""

    id: str
    #: For people.
    name: str
    cpus: int
    memory_bytes: int


@dataclass(frozen=True)
class Job:
    """An attempt of a run."""

    run: Run
    attempt: int
    #: Replace the store's result of this run when the new one has landed.
    replaces: bool = False
    #: The run's place in the campaign's order, for the manifest.
    order: Batch = Batch()


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    #: What makes the run invalid, or why it has no result.
    problems: tuple[str, ...] = ()
    #: Whether it gave no result.
    failed: bool = False
    #: Whether the pool was stopped, which means nothing for the run.
    stopped: bool = False
    #: testbed.fidelity.worst_limit_ratio; 0 in virtual time.
    worst_limit_ratio: float = 0.0
    #: Maximum number of busy cells on the machine while it ran.
    cells: int = 1
    #: How long the cell worked on it, in s.
    length_s: float = 0.0
    #: Why a host of the lab does not answer, which means nothing for the run; empty: all do.
    lost_host: str = ""
    #: Why the lab's hosts are taken away before the run would end; empty: they are not.
    lease_over: str = ""
    #: An error that the run did not cause, such as a full disk.
    error: BaseException | None = None


@dataclass(frozen=True)
class PoolStatus:
    """A reading of the machine and its cells."""

    #: Busy share of all CPUs, without niced work.
    busy: float
    #: Share of all CPUs that the machine's host stole.
    stolen: float
    #: Share of all CPUs that niced work used, which gives way to cells.
    niced: float
    #: Number of busy cells.
    running: int
    #: Number of them that have no testbed yet.
    building: int
    #: Number of cells that the pool was last allowed.
    allowed: int
    #: Cell, run id, progress.
    cells: tuple[tuple[str, str, Progress], ...]
