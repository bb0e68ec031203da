"""Dispatches a batch's runs to machines: as many as each serves in time, and invalid runs again."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from analysis.store import Store, StoreError, requests
from analysis.store.documents import Batch
from experiments import lab
from experiments.engine.batch import PlannedCampaign
from experiments.engine.claiming import Claiming
from experiments.engine.executors import Executor, LabExecutor, LocalExecutor, Machine
from experiments.engine.governor import Governor, most_cells
from experiments.engine.options import Options
from experiments.engine.pool import Job, PoolStatus, Result
from experiments.engine.progress import (
    CellProgress,
    Observer,
    Progress,
    RunEvent,
    RunFinished,
    RunGivenUp,
    RunMadeElsewhere,
    RunParked,
    RunRetried,
    WorkerLost,
)
from experiments.language.backends import in_virtual_time
from experiments.language.campaign import Plan, Run
from testbed.errors import TestbedError

#: A run that has lost its worker more often than this is given up, because it is the likely cause.
MAX_LOSSES = 3
#: Jobs that a machine holds beyond the running ones, as a share of them: a free cell then need not wait for the engine,
#: and can choose a run on lines that it has already calibrated.
AHEAD = 0.5
#: Emulated campaigns with at least this many runs use a local Dask cluster.
CLUSTER_RUNS = 200
#: Time between two attempts to reach a lost host, and the longest time to wait for one, in s.
PARKED_S, MOST_PARKED_S = 10.0, 3600.0
#: Interval between two writes of progress to the store, in s.
STORE_INTERVAL_S = 2.0


@dataclass
class MachineState:
    """A machine as the engine sees it."""

    machine: Machine
    governor: Governor
    #: Submitted jobs without a result, by run id.
    jobs: dict[str, Job] = field(default_factory=dict)
    status: PoolStatus | None = None
    #: Number of cells that the executor was last allowed.
    allowed: int = 0
    #: Since when a host of this set of a lab has been lost, and when to try again; None: none is.
    lost_s: float | None = None
    parked_until_s: float = 0.0
    #: Runs that had been handed out when the host was lost: their success does not show that it is back.
    before_loss: set[str] = field(default_factory=set)

    @property
    def capacity(self) -> int:
        """Jobs that it is given at once. At least one: a machine without a job reports no status."""
        return max(1, self.governor.allowed)


class Dispatcher:
    """Runs a batch on an executor. Decisions are made in the calling thread; executors only enqueue events."""

    def __init__(
        self, store: Store, campaigns: Sequence[PlannedCampaign], options: Options, observer: Observer
    ) -> None:
        self._store = store
        self._campaigns = [campaign for campaign in campaigns if campaign.runs or campaign.shared]
        self._backend = campaigns[0].plan.backend
        self._options = options
        self._observer = observer
        runs = [run for campaign in self._campaigns for run in campaign.runs]
        self._runs = {run.id: run for run in runs}
        #: The campaigns that contain each run. The first of them makes it.
        self._users: dict[str, list[PlannedCampaign]] = {run.id: [] for run in runs}
        for campaign in self._campaigns:
            for run_id in [run.id for run in campaign.runs] + list(campaign.shared):
                self._users[run_id].append(campaign)
        #: Each run's place in its campaign's order, for the manifest.
        self._order: dict[str, Batch] = {}
        for campaign in self._campaigns:
            seed = {} if campaign.order_seed is None else {"order_seed": campaign.order_seed}
            self._order |= {
                run.id: Batch(position=position, of=len(campaign.runs), **seed)
                for position, run in enumerate(campaign.runs)
            }
        #: Runs that wait, each with the number of its next attempt.
        self._waiting: deque[tuple[Run, int]] = deque((run, 1) for run in runs)
        self._n_left = len(runs)
        self._claiming = Claiming(store, [run_id for campaign in self._campaigns for run_id in campaign.replaced])
        #: Runs that another runner makes, each with the number of its next attempt here.
        self._elsewhere: dict[str, tuple[Run, int]] = {}
        self._losses: dict[str, int] = {}
        self._machines: dict[str, MachineState] = {}
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        #: An error that is not one run's own.
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._failed_fast = False
        self._started = time.monotonic()

    # Executors call these, from any thread --------------------------------------------------------------------

    def on_status(self, machine_id: str, status: PoolStatus) -> None:
        """A reading of a machine."""
        self._events.put(lambda: self._handle_status(machine_id, status))

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        """A job has ended."""
        self._events.put(lambda: self._handle_result(machine_id, job, result))

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        """A job's worker is gone."""
        self._events.put(lambda: self._handle_loss(machine_id, job, reason))

    # The calling thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when all runs have ended, or when the batch is stopped."""
        plans = [campaign.plan for campaign in self._campaigns]
        total_s = sum(campaign.total_s for campaign in self._campaigns)
        with interruptible(self._stop), self._observer.watch(plans, self._n_left, total_s) as show:
            executor = self._open_executor()
            try:
                stored = 0.0
                while self._n_left and not self._stop.is_set():
                    self._submit_jobs(executor)
                    self._handle_events(0.1)
                    show(self._progress(self._campaigns))
                    if time.monotonic() - stored > STORE_INTERVAL_S:
                        stored = time.monotonic()
                        self._claiming.renew()
                        self._look_elsewhere()
                        self._store_progress()
            finally:
                if self._stop.is_set():
                    self._mark_stopped()
                    executor.stop()
                executor.close()
                # Runs that were being analysed have landed meanwhile.
                self._handle_events(0)
                # A store that failed is the error to tell.
                with contextlib.suppress(StoreError):
                    self._claiming.release()
            show(self._progress(self._campaigns))
        if isinstance(self._error, TestbedError | StoreError):
            raise self._error
        if self._error is not None:
            # The operating system's words, or the database's.
            words = getattr(self._error, "strerror", None) or getattr(self._error, "orig", None)
            cause = words or f"{type(self._error).__name__}: {self._error}"
            raise TestbedError(
                f"the campaign stopped: {cause}; landed runs stay, and the same command continues"
            ) from self._error

    def _mark_stopped(self) -> None:
        """Notes in the outcomes why the batch stopped: by itself, or by a signal or a cancel."""
        is_interrupt = self._error is None and not self._failed_fast
        for campaign in self._campaigns:
            campaign.outcome.ended_early = self._failed_fast and not campaign.is_finished
            campaign.outcome.interrupted = is_interrupt and not campaign.is_finished

    def _store_progress(self) -> None:
        """Writes each campaign's progress to the store, closes finished ones, and stops when one is cancelled."""
        for campaign in self._campaigns:
            if campaign.closed:
                continue
            if campaign.is_finished:
                campaign.close(self._store)
                continue
            progress = self._progress([campaign])
            # A campaign that waits for its turn has no progress yet.
            if progress.cells or campaign.finished:
                self._store.set_progress(campaign.outcome.campaign_id, progress.row())
        open_ids = [campaign.outcome.campaign_id for campaign in self._campaigns if not campaign.closed]
        if requests.stop_wanted(self._store, open_ids):
            self._stop.set()

    def _open_executor(self) -> Executor:
        if self._backend == "physical":
            return LabExecutor(self._store, self, lab.cells(self._options.inventory, self._campaigns[0].plan.name))
        scheduler = self._options.scheduler
        if scheduler is None:
            scheduler = "local" if len(self._runs) >= CLUSTER_RUNS else "none"
        if scheduler == "none":
            return LocalExecutor(self._store, self)
        from experiments.engine.dask_executor import DaskExecutor

        return DaskExecutor(None if scheduler == "local" else scheduler, self._options, self)

    def _submit_jobs(self, executor: Executor) -> None:
        available = {machine.id: machine for machine in executor.machines()}
        for machine in available.values():
            if machine.id not in self._machines:
                self._machines[machine.id] = MachineState(machine, self._governor_for(machine))
        machines = [self._machines[machine_id] for machine_id in available]
        for state in machines:
            if state.allowed != state.governor.allowed:
                state.allowed = state.governor.allowed
                executor.allow(state.machine.id, state.allowed)
        jobs = sum(math.ceil(state.capacity * (1 + AHEAD)) for state in machines)
        while self._waiting:
            now_s = time.monotonic()
            with_room = [
                state
                for state in machines
                if now_s >= state.parked_until_s and len(state.jobs) < state.capacity * (1 + AHEAD)
            ]
            if not with_room:
                break
            state = min(with_room, key=lambda state: (state.lost_s is not None, len(state.jobs) / state.capacity))
            run, attempt = self._waiting.popleft()
            if not self._claiming.is_mine(run.id, (other.id for other, _ in self._waiting), jobs):
                self._elsewhere[run.id] = run, attempt
                continue
            job = Job(run, attempt, run.id in self._owner(run.id).replaced, self._order[run.id])
            state.jobs[run.id] = job
            executor.submit(state.machine.id, job)

    def _look_elsewhere(self) -> None:
        """Takes note of what other runners have made or given up."""
        made, free = self._claiming.settled(list(self._elsewhere)) if self._elsewhere else (set(), set())
        for run_id in made:
            run, _ = self._elsewhere.pop(run_id)
            owner = self._owner(run_id)
            owner.outcome.reused += 1
            owner.made_elsewhere += 1
            self._finish(run)
            self._emit(RunMadeElsewhere(self._plan(run), run))
        self._waiting.extend(self._elsewhere.pop(run_id) for run_id in sorted(free))

    def _governor_for(self, machine: Machine) -> Governor:
        if in_virtual_time(self._backend):
            # A run uses one CPU completely, and its results do not depend on the load.
            return Governor(machine.cpus, machine.cpus, self._options.jobs or machine.cpus)
        if self._backend == "physical":
            return Governor(machine.cpus, 1, 1)
        return Governor(machine.cpus, most_cells(machine.memory_bytes), self._options.jobs)

    def _handle_events(self, timeout_s: float) -> None:
        """Handles all events, after waiting for the first."""
        try:
            self._events.get(timeout=timeout_s)() if timeout_s else self._events.get_nowait()()
            while True:
                self._events.get_nowait()()
        except queue.Empty:
            pass

    def _handle_status(self, machine_id: str, status: PoolStatus) -> None:
        state = self._machines.get(machine_id)
        if state is None:
            return
        state.status = status
        running = sum(other.status.running for other in self._machines.values() if other.status)
        for campaign in self._campaigns:
            if not campaign.is_finished:
                campaign.outcome.cells = max(campaign.outcome.cells, running)
        if not in_virtual_time(self._backend):
            # A lab's timing is that of its hosts, not of the machine that drives them.
            stolen = 0.0 if self._backend == "physical" else status.stolen
            cells = status.running - status.building
            state.governor.on_reading(time.monotonic(), status.busy, cells, stolen, status.niced)

    def _handle_result(self, machine_id: str, job: Job, result: Result) -> None:
        state = self._machines[machine_id]
        if state.jobs.pop(job.run.id, None) is None or result.stopped:
            return
        run = job.run
        if result.error is not None:
            self._error = self._error or result.error
            self._stop.set()
            return
        if result.lost_host:
            self._park(state, run, job.attempt, result.lost_host)
            return
        if result.lease_over:
            self._leave_out(run, result.lease_over)
            return
        if run.id not in state.before_loss:
            state.lost_s = None
        state.before_loss.discard(run.id)
        if not in_virtual_time(run.backend):
            state.governor.on_run(time.monotonic(), result.strain, result.cells, result.length_s)
        if result.problems:
            self._retry(run, job.attempt, "; ".join(result.problems))
            return
        self._owner(run.id).outcome.landed += 1
        self._finish(run)
        self._emit(RunFinished(self._plan(run), run))

    def _park(self, state: MachineState, run: Run, attempt: int, reason: str) -> None:
        """Puts a run back with all its attempts, for other sets of hosts. Its own gets none for a while: the next would
        fail for the same reason.
        """
        now_s = time.monotonic()
        if state.lost_s is None:
            state.lost_s = now_s
            state.before_loss = set(state.jobs)
            others = any(other is not state and other.lost_s is None for other in self._machines.values())
            self._emit(RunParked(self._plan(run), run, reason, state.machine.name if others else ""))
        state.before_loss.discard(run.id)
        self._waiting.appendleft((run, attempt))
        state.parked_until_s = now_s + PARKED_S
        lost = [other.lost_s for other in self._machines.values()]
        if all(since_s is not None and now_s - since_s > MOST_PARKED_S for since_s in lost):
            self._error = TestbedError(
                f"{reason}; it was waited for during {MOST_PARKED_S / 60:.0f} min; landed runs stay, and the same "
                "command continues"
            )
            self._stop.set()

    def _leave_out(self, run: Run, reason: str) -> None:
        """Ends a run without an attempt, because the lab's hosts are taken away too soon."""
        for campaign in self._users[run.id]:
            campaign.outcome.lease_left_out += 1
            campaign.outcome.lease_over = campaign.outcome.lease_over or reason
        self._finish(run)

    def _handle_loss(self, machine_id: str, job: Job, reason: str) -> None:
        run = job.run
        if self._machines[machine_id].jobs.pop(run.id, None) is None:
            return
        self._losses[run.id] = self._losses.get(run.id, 0) + 1
        if self._losses[run.id] <= MAX_LOSSES:
            self._emit(WorkerLost(self._plan(run), run, reason))
            self._waiting.appendleft((run, job.attempt))
            return
        problem = f"{reason}, for the {MAX_LOSSES + 1}th time with this run"
        # The worker, which would note it, is gone.
        self._store.note_failure(run.id, job.attempt, problem)
        self._give_up(run, problem, f"{MAX_LOSSES + 1} workers")

    def _retry(self, run: Run, attempt: int, problems: str) -> None:
        # In virtual time the result would be the same again.
        attempts = 1 if in_virtual_time(run.backend) else self._options.tries
        if attempt < attempts:
            self._emit(RunRetried(self._plan(run), run, attempt, attempts, problems))
            # Not at once, beside the runs that disturbed it; and not last, where all easily disturbed runs would meet.
            self._waiting.insert(sum(state.capacity for state in self._machines.values()), (run, attempt + 1))
            return
        self._give_up(run, problems, "1 try" if attempts == 1 else f"{attempts} tries")

    def _give_up(self, run: Run, problems: str, after: str) -> None:
        self._emit(RunGivenUp(self._plan(run), run, after, problems))
        for campaign in self._users[run.id]:
            campaign.outcome.failed[run.id] = problems
        self._finish(run)
        if self._options.fail_fast:
            self._failed_fast = True
            self._stop.set()

    def _finish(self, run: Run) -> None:
        self._n_left -= 1
        self._claiming.ended(run.id)
        # The plan keeps its runs, and a typed scenario takes 10 kB.
        run.document.free()
        for campaign in self._users[run.id]:
            campaign.on_finished(run.id)

    def _owner(self, run_id: str) -> PlannedCampaign:
        return self._users[run_id][0]

    def _plan(self, run: Run) -> Plan:
        return self._owner(run.id).plan

    def _emit(self, event: RunEvent) -> None:
        self._observer.on_event(event, is_batch=len(self._campaigns) > 1)

    def _progress(self, campaigns: Sequence[PlannedCampaign]) -> Progress:
        """The progress of some of the campaigns."""
        is_all = len(campaigns) == len(self._campaigns)
        cells = tuple(
            CellProgress(
                f"{state.machine.name} {name}" if len(self._machines) > 1 else name,
                self._runs[run_id],
                progress,
            )
            for state in self._machines.values()
            if state.status is not None
            for name, run_id, progress in state.status.cells
            if run_id in state.jobs and (is_all or self._owner(run_id) in campaigns)
        )
        passed_s = sum(
            min(cell.progress.passed_s, self._owner(cell.run.id).efforts_s[cell.run.id]) for cell in cells
        )  # fmt: skip
        return Progress(
            finished_s=sum(campaign.finished_s for campaign in campaigns) + passed_s,
            total_s=sum(campaign.total_s for campaign in campaigns),
            done=sum(campaign.outcome.landed for campaign in campaigns),
            failed=sum(len(campaign.outcome.failed.keys() - campaign.shared) for campaign in campaigns),
            runs=sum(len(campaign.runs) for campaign in campaigns),
            elapsed_s=time.monotonic() - self._started,
            allowed=sum(state.governor.allowed for state in self._machines.values()),
            cells=cells,
            pid=os.getpid(),
            elsewhere=sum(self._owner(run_id) in campaigns for run_id in self._elsewhere),
            made_elsewhere=sum(campaign.made_elsewhere for campaign in campaigns),
        )


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event instead of ending the process."""

    def set_stop(_: int, __: FrameType | None) -> None:
        stop.set()

    old = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
