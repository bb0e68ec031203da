"""Which machine makes which run, what follows a result, and when a batch ends.

Pure: `step` takes an event and the time, updates the state, and returns actions. experiments.engine.scheduling executes
them on an executor and a store.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from experiments.engine.batch import PlannedCampaign
from experiments.engine.governor import Governor, most_cells
from experiments.engine.jobs import Job, Machine, PoolStatus, Result
from experiments.engine.options import Options
from experiments.engine.progress import (
    CellProgress,
    Progress,
    RunCompletedElsewhere,
    RunDeferred,
    RunEvent,
    RunFailed,
    RunFinished,
    RunRetried,
    WorkerLost,
)
from experiments.language.backends import Backend
from experiments.language.campaign import Plan, Run
from testbed.errors import TestbedError

#: A run that has lost its worker more often than this is given up, because it is the likely cause.
MAX_LOSSES = 3
#: Jobs that a machine holds beyond the running ones, as a share of them: a free cell then need not wait for the engine,
#: and can choose a run on lines that it has already calibrated.
AHEAD = 0.5
#: Runs that are claimed at once, per job that the machines hold: other runners find work until shortly before the end.
CLAIMED_PER_JOB = 2
#: Time between two attempts to reach a lost host, and the longest time to wait for one, in s.
PARKED_S, MOST_PARKED_S = 10.0, 3600.0


# Events


@dataclass(frozen=True)
class MachinesSeen:
    """The machines that can take jobs now."""

    machines: Sequence[Machine]


@dataclass(frozen=True)
class StatusRead:
    """A reading of a machine."""

    machine_id: str
    status: PoolStatus


@dataclass(frozen=True)
class JobEnded:
    """A job has a result."""

    machine_id: str
    job: Job
    result: Result


@dataclass(frozen=True)
class JobLost:
    """A job's worker is gone, and the state of the run is unknown."""

    machine_id: str
    job: Job
    reason: str


@dataclass(frozen=True)
class Claimed:
    """The answer to `Claim`: those of the requested runs that are this runner's; another one makes the others."""

    requested: Sequence[str]
    mine: Collection[str]


@dataclass(frozen=True)
class SettledElsewhere:
    """Of the runs at other runners: those that have a result now, and those that are free again."""

    made: Collection[str]
    free: Collection[str]


@dataclass(frozen=True)
class Interrupted:
    """A signal, or a cancel by the site."""


Event = MachinesSeen | StatusRead | JobEnded | JobLost | Claimed | SettledElsewhere | Interrupted


# Actions


@dataclass(frozen=True)
class Allow:
    """How many cells may be busy on a machine at once."""

    machine_id: str
    cells: int


@dataclass(frozen=True)
class Submit:
    """Gives a job to a machine."""

    machine_id: str
    job: Job


@dataclass(frozen=True)
class Claim:
    """Claims runs in the store; the answer is `Claimed`."""

    run_ids: Sequence[str]


@dataclass(frozen=True)
class ReleaseClaim:
    """A run has ended."""

    run_id: str


@dataclass(frozen=True)
class NoteFailure:
    """Records an attempt in the store, in place of the worker that is gone."""

    run_id: str
    attempt: int
    problem: str


@dataclass(frozen=True)
class Report:
    """Shows an event to the user."""

    event: RunEvent


Action = Allow | Submit | Claim | ReleaseClaim | NoteFailure | Report


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

    @property
    def most_jobs(self) -> float:
        """Jobs that it holds at most."""
        return self.capacity * (1 + AHEAD)


@dataclass(frozen=True)
class Stop:
    """Why a batch stops before its end: an error, the first run without a valid result, or else the user."""

    error: BaseException | None = None
    failed_fast: bool = False


class State:
    """A batch under way."""

    def __init__(self, campaigns: Sequence[PlannedCampaign], options: Options, now_s: float) -> None:
        self.campaigns = [campaign for campaign in campaigns if campaign.runs or campaign.shared]
        self.backend: Backend = campaigns[0].plan.backend
        self.options = options
        self.started_s = now_s
        #: The campaigns that contain each run. The first of them makes it.
        self.users: dict[str, list[PlannedCampaign]] = {
            run.id: [campaign] for campaign in self.campaigns for run in campaign.runs
        }
        for campaign in self.campaigns:
            for run_id in campaign.shared:
                self.users[run_id].append(campaign)
        #: Runs that wait, each with the number of its next attempt.
        self.waiting = deque((run, 1) for campaign in self.campaigns for run in campaign.runs)
        #: Runs that this runner may make. Every runner makes what `--force` asks for.
        self.mine = {run_id for campaign in self.campaigns for run_id in campaign.replaced}
        #: Runs that another runner makes, each with the number of its next attempt here.
        self.elsewhere: dict[str, tuple[Run, int]] = {}
        self.losses: dict[str, int] = {}
        self.machines: dict[str, MachineState] = {}
        #: Ids of the machines that can take jobs now.
        self.available: list[str] = []
        self.stop: Stop | None = None

    @property
    def is_over(self) -> bool:
        """Whether all runs have ended, or the batch is stopped."""
        return self.stop is not None or all(campaign.is_finished for campaign in self.campaigns)

    def owner(self, run_id: str) -> PlannedCampaign:
        """The campaign that makes a run."""
        return self.users[run_id][0]

    def plan(self, run: Run) -> Plan:
        """The plan of the campaign that makes a run."""
        return self.owner(run.id).plan


def step(state: State, event: Event, now_s: float) -> list[Action]:
    """Updates the state for an event at `now_s` of a monotonic clock. Returns the actions that follow, in order."""
    return list(_step(state, event, now_s))


def _step(state: State, event: Event, now_s: float) -> Iterator[Action]:
    match event:
        case MachinesSeen():
            yield from _see_machines(state, event.machines)
            yield from _submit_jobs(state, now_s)
        case Claimed():
            _divide(state, event)
            yield from _submit_jobs(state, now_s)
        case StatusRead():
            _read_status(state, event, now_s)
        case JobEnded():
            yield from _end_job(state, event, now_s)
        case JobLost():
            yield from _lose_job(state, event)
        case SettledElsewhere():
            yield from _settle(state, event)
        case Interrupted():
            _stop(state, Stop())


def _see_machines(state: State, machines: Sequence[Machine]) -> Iterator[Action]:
    state.available = [machine.id for machine in machines]
    for machine in machines:
        if machine.id not in state.machines:
            state.machines[machine.id] = MachineState(machine, _governor(state, machine))
        of_machine = state.machines[machine.id]
        if of_machine.allowed != of_machine.governor.allowed:
            of_machine.allowed = of_machine.governor.allowed
            yield Allow(machine.id, of_machine.allowed)


def _governor(state: State, machine: Machine) -> Governor:
    if state.backend.in_virtual_time:
        # A run uses one CPU completely, and its results do not depend on the load.
        return Governor(machine.cpus, machine.cpus, state.options.jobs or machine.cpus)
    if state.backend.in_lab:
        return Governor(machine.cpus, 1, 1)
    return Governor(machine.cpus, most_cells(machine.memory_bytes), state.options.jobs)


def _submit_jobs(state: State, now_s: float) -> Iterator[Action]:
    """Gives waiting runs to machines with room. Stops at a run that is not claimed yet."""
    machines = [state.machines[machine_id] for machine_id in state.available]
    while state.waiting:
        with_room = [
            machine for machine in machines if now_s >= machine.parked_until_s and len(machine.jobs) < machine.most_jobs
        ]
        if not with_room:
            return
        if state.waiting[0][0].id not in state.mine:
            most = 1 + CLAIMED_PER_JOB * sum(math.ceil(machine.most_jobs) for machine in machines)
            unclaimed = (run.id for run, _ in state.waiting if run.id not in state.mine)
            yield Claim(tuple(islice(unclaimed, most)))
            return
        run, attempt = state.waiting.popleft()
        machine = min(with_room, key=lambda machine: (machine.lost_s is not None, len(machine.jobs) / machine.capacity))
        owner = state.owner(run.id)
        job = Job(run, attempt, run.id in owner.replaced, owner.place(run.id))
        machine.jobs[run.id] = job
        yield Submit(machine.machine.id, job)


def _divide(state: State, claimed: Claimed) -> None:
    state.mine |= set(claimed.mine)
    others = set(claimed.requested) - state.mine
    state.elsewhere |= {run.id: (run, attempt) for run, attempt in state.waiting if run.id in others}
    state.waiting = deque(entry for entry in state.waiting if entry[0].id not in others)


def _read_status(state: State, event: StatusRead, now_s: float) -> None:
    machine = state.machines.get(event.machine_id)
    if machine is None:
        return
    status = machine.status = event.status
    running = sum(other.status.running for other in state.machines.values() if other.status)
    for campaign in state.campaigns:
        if not campaign.is_finished:
            campaign.outcome.cells = max(campaign.outcome.cells, running)
    if not state.backend.in_virtual_time:
        # A lab's timing is that of its hosts, not of the machine that drives them.
        stolen = 0.0 if state.backend.in_lab else status.stolen
        machine.governor.on_reading(now_s, status.busy, status.running - status.building, stolen, status.niced)


def _end_job(state: State, event: JobEnded, now_s: float) -> Iterator[Action]:
    machine, run, result = state.machines[event.machine_id], event.job.run, event.result
    if machine.jobs.pop(run.id, None) is None or result.stopped:
        return
    if result.error is not None:
        _stop(state, Stop(result.error))
        return
    if result.lost_host:
        yield from _park(state, machine, event.job, result.lost_host, now_s)
        return
    if result.lease_over:
        # The lab's hosts are taken away too soon.
        for campaign in state.users[run.id]:
            campaign.outcome.lease_left_out += 1
            campaign.outcome.lease_over = campaign.outcome.lease_over or result.lease_over
        yield _finish(state, run)
        return
    if run.id not in machine.before_loss:
        machine.lost_s = None
    machine.before_loss.discard(run.id)
    if not state.backend.in_virtual_time:
        machine.governor.on_run(now_s, result.worst_limit_ratio, result.cells, result.length_s)
    if result.problems:
        yield from _retry(state, run, event.job.attempt, "; ".join(result.problems))
        return
    state.owner(run.id).outcome.landed += 1
    yield _finish(state, run)
    yield Report(RunFinished(state.plan(run), run))


def _park(state: State, machine: MachineState, job: Job, reason: str, now_s: float) -> Iterator[Action]:
    """Puts a run back with all its attempts, for other sets of hosts. Its own gets none for a while: the next would
    fail for the same reason.
    """
    if machine.lost_s is None:
        machine.lost_s = now_s
        machine.before_loss = set(machine.jobs)
        others = any(other is not machine and other.lost_s is None for other in state.machines.values())
        yield Report(RunDeferred(state.plan(job.run), job.run, reason, machine.machine.name if others else ""))
    machine.before_loss.discard(job.run.id)
    state.waiting.appendleft((job.run, job.attempt))
    machine.parked_until_s = now_s + PARKED_S
    lost = [other.lost_s for other in state.machines.values()]
    if all(since_s is not None and now_s - since_s > MOST_PARKED_S for since_s in lost):
        words = (
            f"{reason}; gave up after {MOST_PARKED_S / 60:.0f} min; stored runs are kept, and the same "
            "command continues"
        )
        _stop(state, Stop(TestbedError(words)))


def _lose_job(state: State, event: JobLost) -> Iterator[Action]:
    run, attempt = event.job.run, event.job.attempt
    if state.machines[event.machine_id].jobs.pop(run.id, None) is None:
        return
    state.losses[run.id] = state.losses.get(run.id, 0) + 1
    if state.losses[run.id] <= MAX_LOSSES:
        yield Report(WorkerLost(state.plan(run), run, event.reason))
        state.waiting.appendleft((run, attempt))
        return
    problem = f"{event.reason}, for the {MAX_LOSSES + 1}th time with this run"
    yield NoteFailure(run.id, attempt, problem)
    yield from _give_up(state, run, problem, f"{MAX_LOSSES + 1} workers")


def _retry(state: State, run: Run, attempt: int, problems: str) -> Iterator[Action]:
    # In virtual time the result would be the same again.
    attempts = 1 if state.backend.in_virtual_time else state.options.attempts
    if attempt < attempts:
        yield Report(RunRetried(state.plan(run), run, attempt, attempts, problems))
        # Not at once, beside the runs that disturbed it; and not last, where all easily disturbed runs would meet.
        state.waiting.insert(sum(machine.capacity for machine in state.machines.values()), (run, attempt + 1))
        return
    yield from _give_up(state, run, problems, "1 attempt" if attempts == 1 else f"{attempts} attempts")


def _give_up(state: State, run: Run, problems: str, after: str) -> Iterator[Action]:
    yield Report(RunFailed(state.plan(run), run, after, problems))
    for campaign in state.users[run.id]:
        campaign.outcome.failed[run.id] = problems
    yield _finish(state, run)
    if state.options.fail_fast:
        _stop(state, Stop(failed_fast=True))


def _settle(state: State, event: SettledElsewhere) -> Iterator[Action]:
    for run_id in event.made:
        run, _ = state.elsewhere.pop(run_id)
        owner = state.owner(run_id)
        owner.outcome.reused += 1
        owner.made_elsewhere += 1
        yield _finish(state, run)
        yield Report(RunCompletedElsewhere(state.plan(run), run))
    state.waiting.extend(state.elsewhere.pop(run_id) for run_id in sorted(event.free))


def _finish(state: State, run: Run) -> Action:
    # The plan keeps its runs, and a typed scenario takes 10 kB.
    run.document.free()
    for campaign in state.users[run.id]:
        campaign.on_finished(run.id)
    state.mine.discard(run.id)
    return ReleaseClaim(run.id)


def _stop(state: State, stop: Stop) -> None:
    """Stops the batch. An error is the reason to report; otherwise the first is."""
    if state.stop is None or (state.stop.error is None and stop.error is not None):
        state.stop = stop


def note_stop(state: State) -> None:
    """Records in the outcomes of unfinished campaigns whether the batch stopped by itself or the user stopped it."""
    for campaign in state.campaigns:
        if state.stop is not None and not campaign.is_finished:
            campaign.outcome.ended_early = state.stop.failed_fast
            campaign.outcome.interrupted = state.stop == Stop()


def progress(state: State, campaigns: Sequence[PlannedCampaign], now_s: float, pid: int) -> Progress:
    """How far some of the campaigns are, of which process `pid` makes the runs."""
    is_all = len(campaigns) == len(state.campaigns)
    cells = tuple(
        CellProgress(
            f"{machine.machine.name} {name}" if len(state.machines) > 1 else name, machine.jobs[run_id].run, progress
        )
        for machine in state.machines.values()
        if machine.status is not None
        for name, run_id, progress in machine.status.cells
        if run_id in machine.jobs and (is_all or state.owner(run_id) in campaigns)
    )
    passed_s = sum(min(cell.progress.passed_s, state.owner(cell.run.id).efforts_s[cell.run.id]) for cell in cells)
    return Progress(
        finished_s=sum(campaign.finished_s for campaign in campaigns) + passed_s,
        total_s=sum(campaign.total_s for campaign in campaigns),
        done=sum(campaign.outcome.landed for campaign in campaigns),
        failed=sum(len(campaign.outcome.failed.keys() - campaign.shared) for campaign in campaigns),
        runs=sum(len(campaign.runs) for campaign in campaigns),
        elapsed_s=now_s - state.started_s,
        allowed=sum(machine.governor.allowed for machine in state.machines.values()),
        cells=cells,
        pid=pid,
        elsewhere=sum(state.owner(run_id) in campaigns for run_id in state.elsewhere),
        made_elsewhere=sum(campaign.made_elsewhere for campaign in campaigns),
    )
