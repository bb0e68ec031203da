"""The cells of one process: each in a thread of its own, which outlives it, and reused by every run that fits.

The engine gives the pool more runs than may be at work, so that a cell that is through finds its next one waiting. A
run's captures are analysed in other threads, while its cell goes on with the next run.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.store import Landing, Store
from experiments.engine import machine
from experiments.engine.execution import Worker, lines_key
from experiments.engine.slots import Slots
from experiments.language.campaign import Run
from experiments.testbeds import TestbedFactory
from testbed import cpu_hold, fidelity
from testbed.cell import Cell, topology_key
from testbed.errors import TestbedError
from testbed.report import Phase, Progress, Report
from testbed.scenario import Scenario

#: Seconds between two readings of the machine.
STATUS_INTERVAL_S = 1.0
#: Times that a job is passed over for one that needs no calibration.
MOST_PASSED_OVER = 8
#: What a try counts for that gave no result: a machine with too much to do is the likely cause.
FAILED_STRAIN = 1.01
#: Seconds after which a cell without a run is ended.
IDLE_S = 120.0


@dataclass(frozen=True)
class Job:
    """A try of a run."""

    run: Run
    attempt: int
    #: Drop the store's result of this run when the new one is there.
    replaces: bool = False
    #: For the manifest: where in the campaign's order the run stands.
    order: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What came of a job."""

    #: What makes the run invalid; or the one reason why there is no result.
    problems: tuple[str, ...] = ()
    #: It gave no result at all.
    failed: bool = False
    #: The pool was told to stop; it says nothing about the run.
    stopped: bool = False
    #: testbed.fidelity.strain; 0 in virtual time.
    strain: float = 0.0
    #: Maximum number of cells at work on the machine while it ran.
    cells: int = 1
    #: An error that is no run's own, such as a full disk.
    error: BaseException | None = None


@dataclass(frozen=True)
class PoolStatus:
    """A reading of the machine and of what the cells do."""

    #: Share of all CPUs that was at work, without what is niced.
    busy: float
    #: Share of all CPUs that the machine's own host took away.
    stolen: float
    #: Share of all CPUs that was at work which gives way to cells.
    niced: float
    #: TestbedFactory at work.
    running: int
    #: Of these, the ones that have no testbed yet.
    building: int
    #: Cells that may be at work, as the pool was told last.
    allowed: int
    #: Cell, run id, progress.
    cells: tuple[tuple[str, str, Progress], ...]


@dataclass
class _Waiting:
    """A job that no cell has yet."""

    job: Job
    done: Callable[[Result], None]
    topology: str
    lines: str
    #: Times that a later job was given a cell before it.
    passed_over: int = 0


class _Slot:
    """One thread with a worker."""

    def __init__(self, number: int, pool: CellPool) -> None:
        self.name = f"cell {number}"
        self.jobs: queue.SimpleQueue[tuple[Job, Callable[[Result], None]] | None] = queue.SimpleQueue()
        self.topology = ""
        self.run_id = ""
        #: Its run is not in virtual time.
        self.real_time = False
        self.progress = Progress(Phase.STARTING)
        self.max_cells = 0
        self.worker = Worker(self.name, self._on_progress, pool.cells, pool.building)
        self.thread = threading.Thread(target=pool._serve, args=(self,), name=self.name, daemon=True)
        self.thread.start()

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress


class CellPool:
    """Runs jobs, as many at once as it is allowed; none before it was told how many.

    Args:
        store: where runs land.
        on_status: called about once a second while there is something to do, from a thread of the pool.
        cells: what makes a cell.
    """

    def __init__(self, store: Store, on_status: Callable[[PoolStatus], None], cells: TestbedFactory = Cell) -> None:
        self._store = store
        self.cells = cells
        self._stop = threading.Event()
        #: Building a testbed takes a CPU for a second or two. With all of them at it, runs beside would be late, in
        #: whichever process of this machine.
        self.building = Slots("building", max(1, (os.cpu_count() or 1) // 2), self._stop)
        #: One process of the machine keeps the CPUs from halting; those of two would take them from each other.
        self._awake = Slots("awake", 1, self._stop)
        self._on_status = on_status
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._idle: list[_Slot] = []
        self._slots: list[_Slot] = []
        self._working: set[_Slot] = set()
        self._analysing: set[str] = set()
        self._allowed = self._others = 0
        self._analysts = ThreadPoolExecutor(
            max_workers=os.cpu_count() or 1, thread_name_prefix="analysis", initializer=_behind
        )
        threading.Thread(target=self._report_status, name="status", daemon=True).start()

    def submit(self, job: Job, done: Callable[[Result], None]) -> None:
        """Takes a job; `done` is called with its result from a thread of the pool."""
        scenario = Scenario.model_validate(job.run.scenario)
        with self._lock:
            self._waiting.append(_Waiting(job, done, topology_key(scenario), lines_key(scenario)))
        self._start()

    def allow(self, cells: int, others: int = 0) -> None:
        """Another number of cells that may be at work at once; those at work stay.

        Args:
            cells: of this pool.
            others: that are at work beside them, in other processes of this machine.
        """
        with self._lock:
            self._allowed, self._others = cells, others
            self._update_max_cells()
        self._start()

    def stop(self) -> None:
        """Ends what runs, at once; jobs come back as stopped. From any thread."""
        self._stop.set()
        with self._lock:
            waiting, self._waiting = self._waiting, []
            slots = list(self._slots)
        for slot in slots:
            slot.worker.kill()
        for one in waiting:
            one.done(Result(stopped=True))

    def close(self) -> None:
        """Ends every cell, after what is being analysed."""
        self._stop.set()
        for slot in self._slots:
            slot.jobs.put(None)
        for slot in self._slots:
            slot.thread.join()
        self._analysts.shutdown(wait=True)

    def status(self, busy: float, stolen: float, niced: float = 0.0) -> PoolStatus:
        """What is going on."""
        with self._lock:
            cells = [(slot.name, slot.run_id, slot.progress) for slot in self._slots if slot in self._working]
            building = sum(1 for *_, progress in cells if progress.phase in (Phase.STARTING, Phase.BUILDING))
            cells += [("analysis", run_id, Progress(Phase.ANALYSING)) for run_id in self._analysing]
            return PoolStatus(busy, stolen, niced, len(self._working), building, self._allowed, tuple(cells))

    def _start(self) -> None:
        """Gives waiting jobs to cells while that is allowed."""
        with self._lock:
            while self._waiting and len(self._working) < self._allowed and not self._stop.is_set():
                waiting, slot = self._next()
                self._waiting.remove(waiting)
                if slot is None:
                    slot = _Slot(len(self._slots) + 1, self)
                    self._slots.append(slot)
                else:
                    self._idle.remove(slot)
                slot.topology, slot.run_id = waiting.topology, waiting.job.run.id
                slot.progress = Progress(Phase.STARTING)
                slot.real_time = waiting.job.run.backend != "sim"
                slot.max_cells = 0
                self._working.add(slot)
                self._update_max_cells()
                slot.jobs.put((waiting.job, waiting.done))

    def _update_max_cells(self) -> None:
        for one in self._working:
            one.max_cells = max(one.max_cells, len(self._working) + self._others)

    def _next(self) -> tuple[_Waiting, _Slot | None]:
        """The next job and its cell; None: a new one.

        The first job for which a cell has measured the lines already; but a job is passed over only so often. Otherwise
        the first of all, in a cell that has its topology, in a new one, or in any.
        """
        first = self._waiting[0]
        if first.passed_over < MOST_PASSED_OVER:
            for waiting in self._waiting:
                for slot in self._idle:
                    if slot.topology == waiting.topology and waiting.lines in slot.worker.calibrated:
                        if waiting is not first:
                            first.passed_over += 1
                        return waiting, slot
        same = next((slot for slot in self._idle if slot.topology == first.topology), None)
        if same is None and self._idle and len(self._slots) >= self._allowed:
            same = self._idle[0]
        return first, same

    def _serve(self, slot: _Slot) -> None:
        while True:
            try:
                given = slot.jobs.get(timeout=IDLE_S)
            except queue.Empty:
                # Nobody has asked for a while; the runner may be gone.
                slot.worker.close()
                slot.topology = ""
                continue
            if given is None:
                break
            job, done = given
            try:
                self._run(slot, job, done)
            except BaseException as error:  # noqa: BLE001 (the engine raises it)
                done(Result(stopped=self._stop.is_set(), error=error))
            finally:
                with self._lock:
                    self._working.discard(slot)
                    self._idle.append(slot)
            self._start()
        slot.worker.close()

    def _run(self, slot: _Slot, job: Job, done: Callable[[Result], None]) -> None:
        folder = self._store.incoming(job.run.id)
        try:
            gathered = slot.worker.run(job.run, job.attempt, folder)
        except TestbedError as error:
            if self._stop.is_set():
                done(Result(stopped=True))
                return
            self._store.note_failure(job.run.id, job.attempt, str(error), folder)
            done(Result((str(error),), failed=True, strain=FAILED_STRAIN, cells=slot.max_cells))
            return
        with self._lock:
            self._analysing.add(job.run.id)
        max_cells = slot.max_cells
        self._analysts.submit(self._finish, job, gathered, folder, max_cells, done)

    def _finish(self, job: Job, gathered: Any, folder: Path, max_cells: int, done: Callable[[Result], None]) -> None:
        try:
            result = self._landed(job, gathered, folder, max_cells)
        except BaseException as error:  # noqa: BLE001 (the engine raises it)
            result = Result(error=error)
        with self._lock:
            self._analysing.discard(job.run.id)
        done(result)

    def _landed(self, job: Job, gathered: Any, folder: Path, max_cells: int) -> Result:
        try:
            landing: Landing = gathered({"cells": max_cells, **job.order})
            self._store.land(landing, replaces=job.replaces)
            strain = 0.0 if job.run.backend == "sim" else _strain(landing)
            return Result(tuple(landing.problems), strain=strain, cells=max_cells)
        except TestbedError as error:
            self._store.note_failure(job.run.id, job.attempt, str(error), folder)
            return Result((str(error),), failed=True)

    def _report_status(self) -> None:
        before = machine.cpu_seconds()
        cpus, policy, held = cpu_hold.CpuHold(), cpu_hold.HoldPolicy(), False
        try:
            while not self._stop.wait(STATUS_INTERVAL_S):
                now = machine.cpu_seconds()
                shares, before = machine.cpu_shares(before, now), now
                is_worth = policy.update(time.monotonic(), STATUS_INTERVAL_S, shares["steal"], held)
                held = is_worth and now["steal"] > 0 and self._in_real_time() and self._hold(cpus)
                if not held:
                    cpus.release()
                    self._awake.let_go()
                if self._working or self._analysing or self._waiting:
                    # Niced work, such as the analysis of runs, leaves the CPUs to cells.
                    self._on_status(self.status(shares["busy"], shares["steal"], shares["niced"]))
        finally:
            cpus.release()
            self._awake.let_go()

    def _hold(self, cpus: cpu_hold.CpuHold) -> bool:
        """Keeps the CPUs from halting, unless another process of this machine does; whether they are kept."""
        try:
            if not self._awake.take():
                return True
        except TestbedError:
            return False
        cpus.take()
        return cpus.active

    def _in_real_time(self) -> bool:
        """Packets are on their way, or are to be when the machine can carry them."""
        with self._lock:
            return any(slot.real_time for slot in self._working) or any(
                waiting.job.run.backend != "sim" for waiting in self._waiting
            )


def _strain(landing: Landing) -> float:
    report = Report.model_validate(landing.manifest["report"])
    return fidelity.strain(report, fidelity.limits_of(landing.scenario))


def _behind() -> None:
    """What this thread does, and the programs it starts, wait for the cells."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
