"""Runs a campaign: what the store lacks, as many cells at a time as machines serve in time, invalid runs again."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from analysis.store import Store, StoreError, requests
from experiments import lab
from experiments.engine import selection as select
from experiments.engine.executors import Executor, LocalExecutor, Machine
from experiments.engine.forecast import effort_s
from experiments.engine.governor import Governor, most_cells
from experiments.engine.options import Options
from experiments.engine.pool import Beat, Job, Result
from experiments.language.campaign import Plan, Run
from experiments.language.problems import CampaignError, Problem
from experiments.show import Reporter, State
from testbed.capability import require_emulation
from testbed.errors import TestbedError

#: Times that a run may lose its worker before it is taken for the cause.
LOSSES = 3
#: Runs beyond those at work that a machine is given, for each of these: a free cell need not wait for the engine, and
#: can choose one whose lines it has measured already.
AHEAD = 0.5
#: As many runs of an emulated campaign and more are given to a local Dask cluster.
MANY_RUNS = 200


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
        CampaignError: a condition of `only` that names nothing, or conditions that no run meets.
        Unavailable: this machine cannot run the backend, or there is no cluster.
        StoreError: the store cannot be used.
        TestbedError: something that is no run's own failure, such as a full disk; what has landed stays.
    """
    return run_campaigns([plan], options, reporter)[0]


def run_campaigns(plans: Sequence[Plan], options: Options, reporter: Reporter) -> list[Outcome]:
    """Brings every run of several plans of one backend into the store, all of them as one batch: cells that one
    campaign has no use for serve the next, and its longest runs do not keep the others waiting.

    A run that two of them ask for is made once. Plans with long runs come first; `limit` is that of the batch.

    Raises:
        As run_campaign.
    """
    backend = plans[0].backend
    wanted = {plan.id: select.unique(select.chosen(plan, options.only)) for plan in plans}
    everything = [run for plan in plans for run in wanted[plan.id]]
    if not everything:
        conditions = " ".join(f"--only {text}" for text in options.only)
        raise CampaignError(
            plans[0].file, [Problem(0, "", "no run of the campaign meets all of these conditions", conditions)]
        )
    fresh = isinstance(options.results, Path) and not options.results.exists()
    if backend == "physical":
        # Every scenario fits the lab, before anything is made.
        lab.check(options.inventory, [run.scenario for run in everything])
        if fresh:
            lab.greet(options.inventory, plans[0].name, everything[0].scenario)
    remote = options.scheduler not in (None, "none", "local")
    if _emulated(everything) and not remote and fresh:
        # Nothing can be reused: refuse before anything is made.
        require_emulation()
    store = Store.open(options.results, options.artefacts)
    try:
        store.sweep_incoming()
        parts = _parts(store, plans, wanted, options)
        missing = [run for part in parts for run in part.runs]
        if _emulated(missing) and not remote:
            require_emulation()
        if missing and backend == "physical":
            lab.greet(options.inventory, plans[0].name, missing[0].scenario)
        for part in parts:
            _enter(store, part.plan)
        try:
            if missing:
                _Execution(store, parts, options, reporter).run()
        finally:
            for part in parts:
                part.end(store)
    finally:
        store.close()
    outcomes = {part.plan.id: part.outcome for part in parts}
    return [outcomes[plan.id] for plan in plans]


def _emulated(runs: Sequence[Run]) -> bool:
    return any(run.backend == "emulated" for run in runs)


def _parts(store: Store, plans: Sequence[Plan], wanted: Mapping[str, Sequence[Run]], options: Options) -> list[_Part]:
    """What is to be made for each plan, those with the longest runs first."""
    seen: set[str] = set()
    room = options.limit
    parts = []
    for plan in sorted(plans, key=lambda plan: -plan.longest_s):
        valid = store.valid_runs(plan.run_ids)
        known = set() if options.force else valid
        missing = select.to_make(wanted[plan.id], known, store.tried_runs if options.retry_failed else None)
        order_seed = None if options.file_order else plan.seed
        shared = {run.id for run in missing} & seen
        missing = [run for run in select.ordered(missing, order_seed) if run.id not in seen][:room]
        made = {run.id for run in missing}
        seen |= made
        room = None if room is None else room - len(made)
        outcome = Outcome(plan.id, reused=len(valid - made), left_out=len(set(plan.run_ids) - valid - made - shared))
        parts.append(_Part(plan, outcome, missing, order_seed, valid & made, shared))
    return parts


@dataclass
class _Part:
    """One campaign of a batch."""

    plan: Plan
    outcome: Outcome
    #: To be made for it, in order.
    runs: list[Run]
    order_seed: int | None
    #: Runs whose old result goes when the new one is there, not before.
    replaced: set[str]
    #: Ids of runs that it lacks too and another part makes.
    shared: set[str]
    #: Ids of runs that are through, those of others among them; and seconds of its own.
    through: set[str] = field(default_factory=set)
    through_s: float = 0.0
    ended: bool = False

    def __post_init__(self) -> None:
        self.efforts_s = {run.id: effort_s(run) for run in self.runs}
        #: Seconds of all runs that are made for it.
        self.total_s = sum(self.efforts_s.values())

    def mark(self, run_id: str) -> None:
        """A run is through, with or without a result."""
        self.through.add(run_id)
        self.through_s += self.efforts_s.get(run_id, 0.0)

    @property
    def is_through(self) -> bool:
        """Whether nothing of it is left to do."""
        return len(self.through) == len(self.runs) + len(self.shared)

    def end(self, store: Store) -> None:
        """Marks the campaign in the store as what it now is."""
        if not self.ended:
            every = set(self.plan.run_ids)
            store.end_campaign(self.outcome.campaign_id, store.valid_runs(list(every)) == every)
            self.ended = True


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

    @property
    def room(self) -> int:
        """Runs for which it is given jobs: one at least, so that it has something to wait for, and tells how it is."""
        return max(1, self.governor.allowed)


class _Execution:
    """A batch on an executor. Everything is decided in the calling thread; executors only leave messages."""

    def __init__(self, store: Store, parts: Sequence[_Part], options: Options, reporter: Reporter) -> None:
        self._store = store
        self._parts = [part for part in parts if part.runs or part.shared]
        self._backend = parts[0].plan.backend
        self._options = options
        self._reporter = reporter
        runs = [run for part in self._parts for run in part.runs]
        self._runs = {run.id: run for run in runs}
        #: Run id to the campaigns that ask for it, of which the first has it made.
        self._askers: dict[str, list[_Part]] = {run.id: [] for run in runs}
        for part in self._parts:
            for run_id in [run.id for run in part.runs] + list(part.shared):
                self._askers[run_id].append(part)
        self._order: dict[str, dict[str, int]] = {}
        for part in self._parts:
            seed = {} if part.order_seed is None else {"order_seed": part.order_seed}
            self._order |= {run.id: {**seed, "position": at, "of": len(part.runs)} for at, run in enumerate(part.runs)}
        self._todo: deque[tuple[Run, int]] = deque((run, 1) for run in runs)
        self._left = len(runs)
        self._lost: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._trouble: BaseException | None = None
        self._stop = threading.Event()
        self._ended_early = False
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
        plans = [part.plan for part in self._parts]
        total_s = sum(part.total_s for part in self._parts)
        with (
            interruptible(self._stop),
            self._reporter.progress(plans, self._left, total_s) as shown,
        ):
            executor = self._open()
            try:
                last_told = 0.0
                while self._left and not self._stop.is_set():
                    self._hand_out(executor)
                    self._hear(0.1)
                    shown.update(self._state(self._parts))
                    if time.monotonic() - last_told > 2:
                        last_told = time.monotonic()
                        self._tell()
            finally:
                if self._stop.is_set():
                    # Ctrl-C, unless the campaign itself set it.
                    for part in self._parts:
                        part.outcome.ended_early = self._ended_early and not part.is_through
                        part.outcome.interrupted = (
                            self._trouble is None and not self._ended_early and not part.is_through
                        )
                    executor.stop()
                executor.close()
                # What was being analysed has landed meanwhile.
                self._hear(0)
            shown.update(self._state(self._parts))
        if isinstance(self._trouble, TestbedError | StoreError):
            raise self._trouble
        if self._trouble is not None:
            what = getattr(self._trouble, "strerror", None) or f"{type(self._trouble).__name__}: {self._trouble}"
            raise TestbedError(
                f"the campaign stopped: {what}; what has landed stays, and the same command goes on"
            ) from self._trouble

    def _tell(self) -> None:
        """Tells the store how far each campaign is; ends those that are through, and all when one is cancelled."""
        for part in self._parts:
            if part.ended:
                continue
            if part.is_through:
                part.end(self._store)
                continue
            state = self._state([part])
            # One that waits for its turn has nothing to tell.
            if state.cells or part.through:
                self._store.tell_progress(part.outcome.campaign_id, state.as_json())
        if requests.stop_wanted(self._store, [part.outcome.campaign_id for part in self._parts if not part.ended]):
            self._stop.set()

    def _open(self) -> Executor:
        if self._backend == "physical":
            # One testbed, one run at a time, from this machine, which has the keys.
            return LocalExecutor(self._store, self, lab.cells(self._options.inventory, self._parts[0].plan.name))
        scheduler = self._options.scheduler
        if scheduler is None:
            scheduler = "local" if len(self._runs) >= MANY_RUNS else "none"
        if scheduler == "none":
            return LocalExecutor(self._store, self)
        from experiments.engine.dask_executor import DaskExecutor

        return DaskExecutor(None if scheduler == "local" else scheduler, self._options, self)

    def _hand_out(self, executor: Executor) -> None:
        there = {machine.id: machine for machine in executor.machines()}
        for machine in there.values():
            if machine.id not in self._places:
                self._places[machine.id] = _Place(machine, self._govern(machine))
        for place in self._places.values():
            if place.machine.id in there and place.told != place.governor.allowed:
                place.told = place.governor.allowed
                executor.allow(place.machine.id, place.told)
        while self._todo:
            open_places = [
                place for place in self._places.values()
                if place.machine.id in there and len(place.given) < place.room * (1 + AHEAD)
            ]  # fmt: skip
            if not open_places:
                break
            place = min(open_places, key=lambda place: len(place.given) / place.room)
            run, attempt = self._todo.popleft()
            replaces = run.id in self._owner(run.id).replaced
            job = Job(run, attempt, replaces, self._order[run.id])
            place.given[run.id] = job
            executor.submit(place.machine.id, job)

    def _govern(self, machine: Machine) -> Governor:
        if self._backend == "sim":
            # Virtual time takes a CPU whole, and no run is the worse for it.
            return Governor(machine.cpus, machine.cpus, self._options.jobs or machine.cpus)
        if self._backend == "physical":
            return Governor(machine.cpus, 1, 1)
        return Governor(machine.cpus, most_cells(machine.memory_bytes), self._options.jobs)

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
        running = sum(one.beat.running for one in self._places.values() if one.beat)
        for part in self._parts:
            if not part.is_through:
                part.outcome.cells = max(part.outcome.cells, running)
        if self._backend != "sim":
            # A lab's timing is that of its hosts, not of the machine that directs them.
            stolen = 0.0 if self._backend == "physical" else beat.stolen
            place.governor.beat(time.monotonic(), beat.busy, beat.running - beat.building, stolen, beat.niced)

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
        self._owner(run.id).outcome.landed += 1
        self._through(run)
        self._note(run, "")

    def _lost_worker(self, machine_id: str, job: Job, reason: str) -> None:
        if self._places[machine_id].given.pop(job.run.id, None) is None:
            return
        self._lost[job.run.id] = self._lost.get(job.run.id, 0) + 1
        if self._lost[job.run.id] <= LOSSES:
            self._note(job.run, f"{reason}; this run is made again")
            self._todo.appendleft((job.run, job.attempt))
            return
        why = f"{reason}, for the {LOSSES + 1}th time with this run"
        # Nobody else could: who tried it is gone.
        self._store.note_failure(job.run.id, job.attempt, why)
        self._give_up(job.run, why, f"{LOSSES + 1} workers")

    def _again(self, run: Run, attempt: int, why: str) -> None:
        # Virtual time gives the same again.
        most = 1 if run.backend == "sim" else self._options.tries
        if attempt < most:
            self._note(run, f"try {attempt} of {most} is not valid: {_short(why)}")
            # Neither at once, beside what spoiled it, nor at the end, where those that are easily spoiled would be
            # alone with each other.
            self._todo.insert(sum(place.room for place in self._places.values()), (run, attempt + 1))
            return
        self._give_up(run, why, "1 try" if most == 1 else f"{most} tries")

    def _give_up(self, run: Run, why: str, after: str) -> None:
        self._note(run, f"given up after {after}: {_short(why)}")
        for part in self._askers[run.id]:
            part.outcome.failed[run.id] = why
        self._through(run)
        if self._options.fail_fast:
            self._ended_early = True
            self._stop.set()

    def _through(self, run: Run) -> None:
        self._left -= 1
        for part in self._askers[run.id]:
            part.mark(run.id)

    def _owner(self, run_id: str) -> _Part:
        return self._askers[run_id][0]

    def _note(self, run: Run, trouble: str) -> None:
        self._reporter.note_run(self._owner(run.id).plan, run, trouble, many=len(self._parts) > 1)

    def _state(self, parts: Sequence[_Part]) -> State:
        """How far these campaigns are."""
        cells = [
            (f"{place.machine.name} {name}" if len(self._places) > 1 else name, self._runs[run_id], phase)
            for place in self._places.values()
            if place.beat is not None
            for name, run_id, phase in place.beat.cells
            if run_id in place.given and (len(parts) == len(self._parts) or self._owner(run_id) in parts)
        ]
        failed = sum(len(part.outcome.failed.keys() - part.shared) for part in parts)
        return State(
            through_s=sum(part.through_s for part in parts)
            + sum(min(_passed_s(phase), self._owner(run.id).efforts_s[run.id]) for _, run, phase in cells),
            total_s=sum(part.total_s for part in parts),
            done=sum(part.outcome.landed for part in parts), failed=failed,
            runs=sum(len(part.runs) for part in parts),
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
