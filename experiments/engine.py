"""Runs a campaign: what the store lacks, as many cells at a time as machines serve in time, invalid runs again."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from analysis.store import Store, StoreError, requests
from experiments import lab, select
from experiments.campaign import Plan, Run
from experiments.executor import Executor, LocalExecutor, Machine
from experiments.governor import Governor, most_cells
from experiments.pool import Beat, Job, Result
from experiments.show import Reporter, State
from testbed.capability import require_emulation
from testbed.errors import TestbedError

#: Tries of a run; a machine that is busy with other things spoils some.
ATTEMPTS = 5
#: Times that a run may lose its worker before it is taken for the cause.
LOSSES = 3
#: Runs beyond those at work that a machine is given, for each of these: a free cell need not wait for the engine, and
#: can choose one whose lines it has measured already.
AHEAD = 0.5
#: As many runs of an emulated campaign and more are given to a local Dask cluster.
MANY_RUNS = 200


@dataclass(frozen=True)
class Options:
    """How to run."""

    #: A folder, or a PostgreSQL URL.
    results: Path | str
    #: Cells at a time; None: as many as the fidelity guard allows.
    jobs: int | None = None
    #: Run again what the store has.
    force: bool = False
    #: Conditions on runs (experiments.select).
    only: Sequence[str] = ()
    #: Only runs that were tried and have no valid result.
    retry_failed: bool = False
    #: At most so many runs.
    limit: int | None = None
    #: End with the first run that has no valid result after its last try.
    fail_fast: bool = False
    #: Points in the order of the file.
    file_order: bool = False
    #: Address of a Dask scheduler; "local" for a cluster of this machine, "none" for threads of this process; None:
    #: what suits the number of runs.
    scheduler: str | None = None
    #: fsspec URL of the files, beside a PostgreSQL store.
    artefacts: str | None = None
    #: Of the lab, for the physical backend.
    inventory: Path | None = None


@dataclass
class Outcome:
    """How a campaign ended."""

    campaign_id: str
    reused: int
    landed: int = 0
    #: Run id to why it has no valid result.
    failed: dict[str, str] = field(default_factory=dict)
    #: Runs that the plan has, and that this command was not about.
    left_out: int = 0
    #: Most cells that were at work at once.
    cells: int = 0
    interrupted: bool = False
    #: Ended by fail_fast.
    ended_early: bool = False

    @property
    def complete(self) -> bool:
        """Whether every run is in the store and valid."""
        return not self.failed and not self.interrupted and not self.ended_early and not self.left_out


def run_campaign(plan: Plan, options: Options, reporter: Reporter) -> Outcome:
    """Brings every run of a plan into the store.

    Raises:
        CampaignError: a condition of `only` that names nothing.
        Unavailable: this machine cannot run the backend, or there is no cluster.
        StoreError: the store cannot be used.
        TestbedError: something that is no run's own failure, such as a full disk; what has landed stays.
    """
    wanted = select.unique(select.chosen(plan, options.only))
    if plan.backend == "physical":
        # Every scenario fits the lab, before anything is made.
        lab.check(options.inventory, [run.scenario for run in wanted])
        if isinstance(options.results, Path) and not options.results.exists():
            lab.greet(options.inventory, plan.name, wanted[0].scenario)
    remote = options.scheduler not in (None, "none", "local")
    if _emulated(wanted) and not remote and isinstance(options.results, Path) and not options.results.exists():
        # Nothing can be reused: refuse before anything is made.
        require_emulation()
    store = Store.open(options.results, options.artefacts)
    try:
        store.sweep_incoming()
        every = list(dict.fromkeys(run.id for run in plan.runs))
        valid = store.valid_runs(every)
        known = set() if options.force else valid
        missing = [run for run in wanted if run.id not in known]
        if options.retry_failed:
            tried = store.tried_runs([run.id for run in missing])
            missing = [run for run in missing if run.id in tried]
        order_seed = None if options.file_order else plan.seed
        missing = select.ordered(missing, order_seed)[: options.limit]
        if _emulated(missing) and not remote:
            require_emulation()
        if missing and plan.backend == "physical":
            lab.greet(options.inventory, plan.name, missing[0].scenario)
        _enter(store, plan)
        made = {run.id for run in missing}
        outcome = Outcome(plan.id, reused=len(valid - made), left_out=len(set(every) - valid - made))
        try:
            if missing:
                replaced = valid & made
                _Execution(store, plan, options, missing, replaced, order_seed, reporter, outcome).run()
        finally:
            store.end_campaign(plan.id, store.valid_runs(every) == set(every))
    finally:
        store.close()
    return outcome


def _emulated(runs: Sequence[Run]) -> bool:
    return any(run.backend == "emulated" for run in runs)


def _enter(store: Store, plan: Plan) -> None:
    fields = {
        "id": plan.id, "name": plan.name, "title": plan.title, "file": plan.file, "text": plan.text,
        "overrides": dict(plan.overrides), "backend": plan.backend, "seed": plan.seed, "repetitions": plan.repetitions,
    }  # fmt: skip
    points = [list(point.parameters.items()) for point in plan.points]
    store.begin_campaign(fields, points, [(run.point, run.repetition, run.id) for run in plan.runs])


@dataclass
class _Place:
    """A machine as the engine sees it."""

    machine: Machine
    governor: Governor
    #: Run id to job, of what was handed over and has not come back.
    given: dict[str, Job] = field(default_factory=dict)
    beat: Beat | None = None
    told: int = 0


class _Execution:
    """One campaign on an executor. Everything is decided in the calling thread; executors only leave messages."""

    def __init__(
        self, store: Store, plan: Plan, options: Options, runs: Sequence[Run], replaced: set[str],
        order_seed: int | None, reporter: Reporter, outcome: Outcome,
    ) -> None:  # fmt: skip
        self._store = store
        self._plan = plan
        self._options = options
        self._reporter = reporter
        self._outcome = outcome
        #: Runs whose old result goes when the new one is there, not before.
        self._replaced = replaced
        self._runs = {run.id: run for run in runs}
        seed = {} if order_seed is None else {"order_seed": order_seed}
        self._order = {run.id: {**seed, "position": at, "of": len(runs)} for at, run in enumerate(runs)}
        self._todo: deque[tuple[Run, int]] = deque((run, 1) for run in runs)
        self._left = len(runs)
        self._total_s = sum(float(run.scenario["duration_s"]) for run in runs)
        self._done_s = 0.0
        self._lost: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._trouble: BaseException | None = None
        self._stop = threading.Event()
        self._started = time.monotonic()

    # What executors say, from any thread: it is done in the calling one ---------------------------------------

    def on_beat(self, machine_id: str, beat: Beat) -> None:
        """A reading of a machine."""
        self._news.put(lambda: self._beat(machine_id, beat))

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        """A job has ended."""
        self._news.put(lambda: self._result(machine_id, job, result))

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        """A job's worker is gone."""
        self._news.put(lambda: self._lost_worker(machine_id, job, reason))

    # The calling thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing is left to do, or somebody says stop."""
        with (
            interruptible(self._stop),
            self._reporter.progress(self._plan, self._left, self._total_s) as shown,
        ):
            executor = self._open()
            try:
                last_told = 0.0
                while self._left and not self._stop.is_set():
                    self._hand_out(executor)
                    self._hear(0.1)
                    state = self._state()
                    shown.update(state)
                    if time.monotonic() - last_told > 2:
                        last_told = time.monotonic()
                        self._store.tell_progress(self._plan.id, state.as_json())
                        if requests.stop_wanted(self._store, self._plan.id):
                            self._stop.set()
            finally:
                if self._stop.is_set():
                    # Ctrl-C, unless the campaign itself set it.
                    self._outcome.interrupted = self._trouble is None and not self._outcome.ended_early
                    executor.stop()
                executor.close()
                # What was being analysed has landed meanwhile.
                self._hear(0)
            shown.update(self._state())
        if isinstance(self._trouble, TestbedError | StoreError):
            raise self._trouble
        if self._trouble is not None:
            what = getattr(self._trouble, "strerror", None) or f"{type(self._trouble).__name__}: {self._trouble}"
            raise TestbedError(
                f"the campaign stopped: {what}; what has landed stays, and the same command goes on"
            ) from self._trouble

    def _open(self) -> Executor:
        if self._plan.backend == "physical":
            # One testbed, one run at a time, from this machine, which has the keys.
            return LocalExecutor(self._store, self, lab.cells(self._options.inventory, self._plan.name))
        scheduler = self._options.scheduler
        if scheduler is None:
            scheduler = "local" if len(self._runs) >= MANY_RUNS else "none"
        if scheduler == "none":
            return LocalExecutor(self._store, self)
        from experiments.dask_executor import DaskExecutor

        return DaskExecutor(None if scheduler == "local" else scheduler, self._options, self)

    def _hand_out(self, executor: Executor) -> None:
        there = {machine.id: machine for machine in executor.machines()}
        for machine in there.values():
            if machine.id not in self._places:
                self._places[machine.id] = _Place(machine, self._govern(machine))
        while self._todo:
            open_places = [
                place for place in self._places.values()
                if place.machine.id in there and len(place.given) < self._allowed(place) * (1 + AHEAD)
            ]  # fmt: skip
            if not open_places:
                break
            place = min(open_places, key=lambda place: len(place.given) / self._allowed(place))
            run, attempt = self._todo.popleft()
            job = Job(run, attempt, self._allowed(place), run.id in self._replaced, self._order[run.id])
            place.given[run.id] = job
            executor.submit(place.machine.id, job)
        for place in self._places.values():
            if place.machine.id in there and place.told != self._allowed(place):
                place.told = self._allowed(place)
                executor.allow(place.machine.id, place.told)

    def _govern(self, machine: Machine) -> Governor:
        if self._plan.backend == "sim":
            # Virtual time takes a CPU whole, and no run is the worse for it.
            return Governor(machine.cpus, machine.cpus, self._options.jobs or machine.cpus)
        if self._plan.backend == "physical":
            return Governor(machine.cpus, 1, 1)
        return Governor(machine.cpus, most_cells(machine.memory_bytes), self._options.jobs)

    def _allowed(self, place: _Place) -> int:
        return place.governor.allowed

    def _hear(self, patience_s: float) -> None:
        """Does what there is news of, after waiting for the first."""
        try:
            self._news.get(timeout=patience_s)() if patience_s else self._news.get_nowait()()
            while True:
                self._news.get_nowait()()
        except queue.Empty:
            pass

    def _beat(self, machine_id: str, beat: Beat) -> None:
        place = self._places.get(machine_id)
        if place is None:
            return
        place.beat = beat
        self._outcome.cells = max(
            self._outcome.cells, sum(one.beat.running for one in self._places.values() if one.beat)
        )
        if self._plan.backend != "sim":
            place.governor.beat(time.monotonic(), beat.busy, beat.running - beat.building, beat.stolen)

    def _result(self, machine_id: str, job: Job, result: Result) -> None:
        place = self._places[machine_id]
        if place.given.pop(job.run.id, None) is None or result.stopped:
            return
        run = job.run
        if result.trouble is not None:
            # No run may be lost without a word.
            self._trouble = self._trouble or result.trouble
            self._stop.set()
            return
        if run.backend != "sim":
            place.governor.verdict(time.monotonic(), result.strain, result.beside)
        if result.problems:
            self._again(run, job.attempt, "; ".join(result.problems))
            return
        self._outcome.landed += 1
        self._through(run)
        self._reporter.note_run(self._plan, run, "")

    def _lost_worker(self, machine_id: str, job: Job, reason: str) -> None:
        if self._places[machine_id].given.pop(job.run.id, None) is None:
            return
        self._lost[job.run.id] = self._lost.get(job.run.id, 0) + 1
        if self._lost[job.run.id] <= LOSSES:
            self._reporter.note_run(self._plan, job.run, f"{reason}; this run is made again")
            self._todo.appendleft((job.run, job.attempt))
            return
        self._give_up(job.run, f"{reason}, for the {LOSSES + 1}th time with this run", f"{LOSSES + 1} workers")

    def _again(self, run: Run, attempt: int, why: str) -> None:
        # Virtual time gives the same again.
        most = 1 if run.backend == "sim" else ATTEMPTS
        if attempt < most:
            self._reporter.note_run(self._plan, run, f"try {attempt} of {most} is not valid: {_short(why)}")
            self._todo.append((run, attempt + 1))
            return
        self._give_up(run, why, "1 try" if most == 1 else f"{most} tries")

    def _give_up(self, run: Run, why: str, after: str) -> None:
        self._reporter.note_run(self._plan, run, f"given up after {after}: {_short(why)}")
        self._outcome.failed[run.id] = why
        self._through(run)
        if self._options.fail_fast:
            self._outcome.ended_early = True
            self._stop.set()

    def _through(self, run: Run) -> None:
        self._left -= 1
        self._done_s += float(run.scenario["duration_s"])

    def _state(self) -> State:
        cells = [
            (f"{place.machine.name} {name}" if len(self._places) > 1 else name, self._runs[run_id], phase)
            for place in self._places.values()
            if place.beat is not None
            for name, run_id, phase in place.beat.cells
            if run_id in place.given
        ]
        return State(
            through_s=self._done_s + sum(_passed_s(phase) for _, _, phase in cells),
            total_s=self._total_s,
            done=self._outcome.landed, failed=len(self._outcome.failed), runs=len(self._runs),
            elapsed_s=time.monotonic() - self._started,
            allowed=sum(one.governor.allowed for one in self._places.values()),
            cells=tuple(cells), pid=os.getpid(),
        )  # fmt: skip


def _short(why: str) -> str:
    first, _, more = why.partition("; ")
    return f"{first}; and {more.count('; ') + 1} more" if more else first


def _passed_s(phase: str) -> float:
    word, _, seconds = phase.partition(" ")
    return float(seconds) if word == "running" and seconds else 0.0


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event instead of ending the process in the middle."""

    def note(_: int, __: FrameType | None) -> None:
        stop.set()

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
