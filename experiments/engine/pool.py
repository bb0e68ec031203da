"""The cells of one process. Each has a thread and is reused for runs with the same topology.

The engine gives the pool more jobs than it may run, so that a free cell finds its next job waiting. Other threads
analyse a run's captures while its cell continues with the next run.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.store import PendingRun, Store
from experiments.engine import machine
from experiments.engine.execution import Worker, lines_key
from experiments.engine.jobs import Job, PoolStatus, Result
from experiments.testbeds import TestbedFactory
from testbed import cpu_hold, fidelity
from testbed.cell import Cell, topology_key
from testbed.errors import HostLost, LeaseOver, TestbedError
from testbed.report import Phase, Progress
from testbed.slots import Slots

#: Interval between two readings of the machine, in s.
STATUS_INTERVAL_S = 1.0
#: Maximum number of times that a later job that needs no calibration overtakes a waiting job.
MOST_PASSED_OVER = 8
#: Ratio of an attempt without a result, because an overloaded machine is the likely cause.
FAILED_RATIO = 1.01
#: Of threads that analyse captures.
ANALYSIS_NICENESS = 10
#: Idle time after which a cell is ended, in s.
IDLE_S = 120.0


@dataclass
class _WaitingJob:
    """A job without a cell."""

    job: Job
    done: Callable[[Result], None]
    topology: str
    lines: str
    #: Number of later jobs that were given a cell before it.
    passed_over: int = 0


class _CellThread:
    """One thread with a worker."""

    def __init__(self, number: int, pool: CellPool) -> None:
        self.name = f"cell {number}"
        self.jobs: queue.SimpleQueue[tuple[Job, Callable[[Result], None]] | None] = queue.SimpleQueue()
        self.topology = ""
        self.run_id = ""
        #: Whether its run has real packets.
        self.real_time = False
        self.progress = Progress(Phase.STARTING)
        self.max_cells = 0
        self.worker = Worker(self.name, self._on_progress, pool.cells, pool.building)
        self.thread = threading.Thread(target=pool._serve, args=(self,), name=self.name, daemon=True)
        self.thread.start()

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress


class CellPool:
    """Runs as many jobs at once as `allow` permits; none before the first call.

    Args:
        store: for the runs.
        on_status: called about once a second while there is work, from a thread of the pool.
        cells: makes a cell.
        on_hosts: cells are other machines' hosts, so that many may be connected at once.
    """

    def __init__(
        self,
        store: Store,
        on_status: Callable[[PoolStatus], None],
        cells: TestbedFactory = Cell,
        on_hosts: bool = False,
    ) -> None:
        self._store = store
        self.cells = cells
        self._stop = threading.Event()
        #: Building a testbed uses a CPU for a second or two. Half of the CPUs stay free for runs, across all processes
        #: of this machine.
        self.building: AbstractContextManager[None] = (
            nullcontext() if on_hosts else Slots("building", max(1, (os.cpu_count() or 1) // 2), self._stop)
        )
        self._awake = Slots(cpu_hold.SLOT, 1, self._stop)
        self._on_status = on_status
        self._lock = threading.Lock()
        self._waiting: list[_WaitingJob] = []
        self._idle: list[_CellThread] = []
        self._slots: list[_CellThread] = []
        self._working: set[_CellThread] = set()
        self._analysing: set[str] = set()
        self._allowed = 0
        self._analysts = ThreadPoolExecutor(
            max_workers=os.cpu_count() or 1, thread_name_prefix="analysis", initializer=_lower_priority
        )
        threading.Thread(target=self._report_status, name="status", daemon=True).start()

    def submit(self, job: Job, done: Callable[[Result], None]) -> None:
        """Enqueues a job. `done` receives its result, in a thread of the pool."""
        scenario = job.run.scenario
        with self._lock:
            self._waiting.append(_WaitingJob(job, done, topology_key(scenario), lines_key(scenario)))
        self._start()

    def allow(self, cells: int) -> None:
        """Sets the number of cells that may be busy. Busy cells continue."""
        with self._lock:
            self._allowed = cells
        self._start()

    def stop(self) -> None:
        """Ends all runs at once; their jobs end as stopped. Callable from any thread."""
        self._stop.set()
        with self._lock:
            waiting, self._waiting = self._waiting, []
            slots = list(self._slots)
        for slot in slots:
            slot.worker.kill()
        for job in waiting:
            job.done(Result(stopped=True))

    def close(self) -> None:
        """Ends every cell, after pending analyses."""
        self._stop.set()
        for slot in self._slots:
            slot.jobs.put(None)
        for slot in self._slots:
            slot.thread.join()
        self._analysts.shutdown(wait=True)

    def status(self, busy: float, stolen: float, niced: float = 0.0) -> PoolStatus:
        """The current status."""
        with self._lock:
            cells = [(slot.name, slot.run_id, slot.progress) for slot in self._slots if slot in self._working]
            building = sum(1 for *_, progress in cells if progress.phase in (Phase.STARTING, Phase.BUILDING))
            cells += [("analysis", run_id, Progress(Phase.ANALYSING)) for run_id in self._analysing]
            return PoolStatus(busy, stolen, niced, len(self._working), building, self._allowed, tuple(cells))

    def _start(self) -> None:
        """Assigns waiting jobs to cells, as far as allowed."""
        with self._lock:
            while self._waiting and len(self._working) < self._allowed and not self._stop.is_set():
                waiting, slot = self._next()
                self._waiting.remove(waiting)
                if slot is None:
                    slot = _CellThread(len(self._slots) + 1, self)
                    self._slots.append(slot)
                else:
                    self._idle.remove(slot)
                slot.topology, slot.run_id = waiting.topology, waiting.job.run.id
                slot.progress = Progress(Phase.STARTING)
                slot.real_time = not waiting.job.run.backend.in_virtual_time
                slot.max_cells = 0
                self._working.add(slot)
                for working in self._working:
                    working.max_cells = max(working.max_cells, len(self._working))
                slot.jobs.put((waiting.job, waiting.done))

    def _next(self) -> tuple[_WaitingJob, _CellThread | None]:
        """The next job and its cell; None for a new cell.

        Preferred is the first job on lines that an idle cell has calibrated, as long as the first waiting job was
        passed over fewer than MOST_PASSED_OVER times. Otherwise the first waiting job gets a cell with its topology, a
        new cell, or any idle cell.
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

    def _serve(self, slot: _CellThread) -> None:
        while True:
            try:
                assigned = slot.jobs.get(timeout=IDLE_S)
            except queue.Empty:
                # The runner may be gone.
                slot.worker.close()
                slot.topology = ""
                continue
            if assigned is None:
                break
            job, done = assigned
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

    def _run(self, slot: _CellThread, job: Job, done: Callable[[Result], None]) -> None:
        folder = self._store.staging_folder(job.run.id)
        began_s = time.monotonic()
        try:
            gathered = slot.worker.run(job.run, job.attempt, folder)
        except TestbedError as error:
            if self._stop.is_set():
                done(Result(stopped=True))
                return
            if isinstance(error, HostLost):
                done(Result(lost_host=str(error)))
                return
            if isinstance(error, LeaseOver):
                done(Result(lease_over=str(error)))
                return
            self._store.note_failure(job.run.id, job.attempt, str(error), folder)
            length_s = time.monotonic() - began_s
            done(
                Result(
                    (str(error),), failed=True, worst_limit_ratio=FAILED_RATIO, cells=slot.max_cells, length_s=length_s
                )
            )
            return
        with self._lock:
            self._analysing.add(job.run.id)
        ran = Result(cells=slot.max_cells, length_s=time.monotonic() - began_s)
        self._analysts.submit(self._finish, job, gathered, folder, ran, done)

    def _finish(self, job: Job, gathered: Any, folder: Path, ran: Result, done: Callable[[Result], None]) -> None:
        try:
            result = self._landed(job, gathered, folder, ran)
        except BaseException as error:  # noqa: BLE001 (the engine raises it)
            result = Result(error=error)
        with self._lock:
            self._analysing.discard(job.run.id)
        done(result)

    def _landed(self, job: Job, gathered: Any, folder: Path, ran: Result) -> Result:
        try:
            pending: PendingRun = gathered(job.order.replace(cells=ran.cells))
            self._store.commit_run(pending, replaces=job.replaces)
            worst_limit_ratio = 0.0 if job.run.backend.in_virtual_time else _worst_limit_ratio(pending)
            return replace(ran, problems=tuple(pending.problems), worst_limit_ratio=worst_limit_ratio)
        except TestbedError as error:
            self._store.note_failure(job.run.id, job.attempt, str(error), folder)
            # Nothing is known of its packets, so it does not count as a run of so many cells.
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
                    self._awake.release()
                if self._working or self._analysing or self._waiting:
                    # Niced work, such as the analysis of runs, leaves the CPUs to cells.
                    self._on_status(self.status(shares["busy"], shares["steal"], shares["niced"]))
        finally:
            cpus.release()
            self._awake.release()

    def _hold(self, cpus: cpu_hold.CpuHold) -> bool:
        """Keeps the CPUs from halting, unless another process of this machine does. Returns whether they are kept."""
        try:
            if not self._awake.take():
                return True
        except TestbedError:
            return False
        cpus.take()
        return cpus.active

    def _in_real_time(self) -> bool:
        """Whether runs with real packets are running, or wait for the machine."""
        with self._lock:
            return any(slot.real_time for slot in self._working) or any(
                not waiting.job.run.backend.in_virtual_time for waiting in self._waiting
            )


def _worst_limit_ratio(pending: PendingRun) -> float:
    return fidelity.worst_limit_ratio(pending.documents.report, pending.documents.scenario.fidelity)


def _lower_priority() -> None:
    """Lowers the priority of this thread, and of the programs that it starts, below the cells'. One that `nice` has
    lowered further stays, because only root may raise it.
    """
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(ANALYSIS_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
