"""The engine's decisions, as tables of events and actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.engine import core
from experiments.engine.batch import Outcome, PlannedCampaign
from experiments.engine.core import (
    Action,
    Allow,
    Claim,
    Claimed,
    Interrupted,
    JobEnded,
    JobLost,
    MachinesSeen,
    NoteFailure,
    ReleaseClaim,
    Report,
    SettledElsewhere,
    State,
    StatusRead,
    Stop,
    Submit,
    step,
)
from experiments.engine.jobs import Job, Machine, PoolStatus, Result
from experiments.engine.options import Options
from experiments.engine.progress import (
    RunCompletedElsewhere,
    RunDeferred,
    RunFailed,
    RunFinished,
    RunRetried,
    WorkerLost,
)
from experiments.language.campaign import Plan, load
from testbed import report
from testbed.errors import TestbedError
from tests.support.campaign_texts import one_line

HERE = Machine("here", "pc1", 2, 8_000_000_000)
THERE = Machine("there", "pc2", 2, 8_000_000_000)


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[..., Plan]:
    def make(backend: str = "sim", name: str = "core", runs: int = 8) -> Plan:
        file = tmp_path / f"{name}.yaml"
        stack = "reno" if backend == "physical" else "newreno"
        file.write_text(one_line(name, f"repetitions: {runs}", backend=backend, stack=stack))
        return load(file)

    return make


def planned(plan: Plan, **more: Any) -> PlannedCampaign:
    values: dict[str, Any] = {"order_seed": 1, "replaced": set(), "shared": set(), "runs": list(plan.runs), **more}
    return PlannedCampaign(plan, Outcome(plan.id, reused=0), **values)


def batch(*campaigns: PlannedCampaign, **options: Any) -> State:
    return State(campaigns, Options(Path("unused"), **{"jobs": 1, **options}), 0.0)


def claimed(state: State, machines: tuple[Machine, ...] = (HERE,), now_s: float = 0.0) -> list[Action]:
    """Actions of a look at the machines, of which every claim succeeds."""
    actions = step(state, MachinesSeen(machines), now_s)
    while actions and isinstance(claim := actions[-1], Claim):
        actions = [*actions[:-1], *step(state, Claimed(claim.run_ids, claim.run_ids), now_s)]
    return actions


def jobs(actions: list[Action]) -> list[Job]:
    return [action.job for action in actions if isinstance(action, Submit)]


def shown(actions: list[Action]) -> list[type]:
    """The kinds of the actions, and of what is shown to the user."""
    return [type(action.event) if isinstance(action, Report) else type(action) for action in actions]


def status(**more: Any) -> PoolStatus:
    return PoolStatus(
        **{"busy": 0.5, "stolen": 0.0, "niced": 0.0, "running": 1, "building": 0, "allowed": 1, "cells": (), **more}
    )


def test_runs_are_claimed_a_few_at_a_time_before_they_are_handed_out(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(runs=20)
    state = batch(planned(plan), jobs=2)
    allow, claim = step(state, MachinesSeen([HERE]), 0.0)
    assert allow == Allow("here", 2)
    # Two cells and one job ahead: three jobs, and two claims for each beside the first.
    assert isinstance(claim, Claim)
    assert list(claim.run_ids) == plan.run_ids[:7]
    others = plan.run_ids[1:3]
    submitted = jobs(step(state, Claimed(claim.run_ids, set(claim.run_ids) - set(others)), 0.0))
    assert [job.run.id for job in submitted] == [plan.run_ids[number] for number in (0, 3, 4)]
    assert [job.order.position for job in submitted] == [0, 3, 4]
    assert set(state.elsewhere) == set(others)
    assert step(state, MachinesSeen([HERE]), 0.1) == []
    # Forced runs need no claim.
    forced = batch(planned(plan, replaced=set(plan.run_ids)))
    assert [job.replaces for job in jobs(step(forced, MachinesSeen([HERE]), 0.0))] == [True, True]


def test_what_other_runners_made_counts_and_what_they_gave_up_is_made_here(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(runs=2)
    campaign = planned(plan)
    state = batch(campaign)
    step(state, MachinesSeen([HERE]), 0.0)
    assert step(state, Claimed(plan.run_ids, set()), 0.0) == []
    made, free = plan.run_ids
    actions = step(state, SettledElsewhere({made}, {free}), 2.0)
    assert shown(actions) == [ReleaseClaim, RunCompletedElsewhere]
    assert (campaign.outcome.reused, campaign.outcome.landed) == (1, 0)
    (job,) = jobs(claimed(state))
    assert job.run.id == free
    step(state, JobEnded("here", job, Result()), 3.0)
    assert (campaign.outcome.landed, state.is_over) == (1, True)


TROUBLE = Result(("late",), worst_limit_ratio=2.0)

#: Backend, option, result of the job; then the kinds of actions and whether the batch is over, of one run.
ENDS: dict[str, tuple[str, dict[str, Any], Result, list[type], bool]] = {
    "valid": ("sim", {}, Result(), [ReleaseClaim, RunFinished], True),
    "invalid in virtual time": ("sim", {"attempts": 3}, TROUBLE, [RunFailed, ReleaseClaim], True),
    "invalid in real time": ("emulated", {"attempts": 3}, TROUBLE, [RunRetried], False),
    "invalid the last time": ("emulated", {"attempts": 1}, TROUBLE, [RunFailed, ReleaseClaim], True),
    "stopped": ("sim", {}, Result(stopped=True), [], False),
    "a lost host": ("physical", {}, Result(lost_host="pc1 does not answer"), [RunDeferred], False),
    "the end of a lease": ("physical", {}, Result(lease_over="hosts go"), [ReleaseClaim], True),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_follows_a_job(plan_of: Callable[..., Plan], end: str) -> None:
    backend, options, result, kinds, is_over = ENDS[end]
    state = batch(planned(plan_of(backend, runs=1)), **options)
    (job,) = jobs(claimed(state))
    assert shown(step(state, JobEnded("here", job, result), 1.0)) == kinds
    assert state.is_over is is_over
    # The same job cannot end twice.
    assert step(state, JobEnded("here", job, result), 1.0) == []


def test_an_invalid_run_is_repeated_after_as_many_others_as_there_are_cells(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("emulated", runs=8)
    state = batch(planned(plan), jobs=2, attempts=2)
    first, *_ = jobs(claimed(state))
    assert shown(step(state, JobEnded("here", first, TROUBLE), 1.0)) == [RunRetried]
    assert [(run.id, attempt) for run, attempt in state.waiting][1:4] == [
        (plan.run_ids[4], 1), (first.run.id, 2), (plan.run_ids[5], 1),
    ]  # fmt: skip


def test_a_run_that_takes_its_workers_with_it_is_given_up(plan_of: Callable[..., Plan]) -> None:
    state = batch(planned(plan_of(runs=1)))
    for _ in range(core.MAX_LOSSES):
        (job,) = jobs(claimed(state))
        assert shown(step(state, JobLost("here", job, "the worker is gone"), 1.0)) == [WorkerLost]
    (job,) = jobs(claimed(state))
    note, *rest = step(state, JobLost("here", job, "the worker is gone"), 1.0)
    assert note == NoteFailure(job.run.id, 1, "the worker is gone, for the 4th time with this run")
    assert shown(rest) == [RunFailed, ReleaseClaim]
    assert state.is_over


def test_a_lost_set_of_hosts_rests_while_another_makes_its_runs(plan_of: Callable[..., Plan]) -> None:
    state = batch(planned(plan_of("physical")))
    both = (HERE, THERE)
    submitted = claimed(state, both)
    (job, *_) = [action.job for action in submitted if isinstance(action, Submit) and action.machine_id == "here"]
    (parked,) = step(state, JobEnded("here", job, Result(lost_host="pc1 does not answer")), 1.0)
    assert isinstance(parked, Report)
    assert isinstance(parked.event, RunDeferred)
    assert parked.event.set_name == "pc1"
    assert not [a for a in claimed(state, both, 2.0) if isinstance(a, Submit) and a.machine_id == "here"]
    assert [a for a in claimed(state, both, 1.0 + core.PARKED_S) if isinstance(a, Submit) and a.machine_id == "here"]


def test_a_lab_without_any_host_ends_the_batch_in_the_end(plan_of: Callable[..., Plan]) -> None:
    state = batch(planned(plan_of("physical", runs=1)))
    for now_s in (0.0, core.MOST_PARKED_S, core.MOST_PARKED_S + core.PARKED_S + 1):
        assert state.stop is None
        (job,) = jobs(claimed(state, now_s=now_s))
        step(state, JobEnded("here", job, Result(lost_host="pc1 does not answer")), now_s)
    assert isinstance(state.stop and state.stop.error, TestbedError)
    assert str(state.stop and state.stop.error).startswith("pc1 does not answer; gave up after 60 min")


#: Events, and how the outcome ends: by itself, or by the user. An error is raised.
STOPS: dict[str, tuple[list[str], Stop, tuple[bool, bool]]] = {
    "a signal": (["signal"], Stop(), (False, True)),
    "fail fast": (["invalid"], Stop(failed_fast=True), (True, False)),
    "fail fast, then a signal": (["invalid", "signal"], Stop(failed_fast=True), (True, False)),
    "a signal, then fail fast": (["signal", "invalid"], Stop(), (False, True)),
}


@pytest.mark.parametrize("case", STOPS)
def test_why_a_batch_stopped(plan_of: Callable[..., Plan], case: str) -> None:
    events, stop, (ended_early, interrupted) = STOPS[case]
    campaign = planned(plan_of(runs=2))
    state = batch(campaign, fail_fast=True)
    job, *_ = jobs(claimed(state))
    made: dict[str, core.Event] = {"signal": Interrupted(), "invalid": JobEnded("here", job, Result(("late",)))}
    for event in events:
        step(state, made[event], 1.0)
    assert (state.stop, state.is_over) == (stop, True)
    core.note_stop(state)
    assert (campaign.outcome.ended_early, campaign.outcome.interrupted) == (ended_early, interrupted)


def test_an_error_counts_more_than_the_signal_before_it(plan_of: Callable[..., Plan]) -> None:
    state, full = batch(planned(plan_of())), OSError(28, "No space left on device")
    job, *_ = jobs(claimed(state))
    step(state, Interrupted(), 1.0)
    step(state, JobEnded("here", job, Result(error=full)), 1.0)
    assert state.stop == Stop(full)


def test_a_campaign_that_finished_was_not_interrupted(plan_of: Callable[..., Plan]) -> None:
    short, long = planned(plan_of(name="short", runs=1)), planned(plan_of(name="long", runs=2), runs=[])
    long.shared.update(short.plan.run_ids)
    state = batch(short, long)
    (job,) = jobs(claimed(state))
    step(state, Interrupted(), 1.0)
    step(state, JobEnded("here", job, Result()), 1.0)
    core.note_stop(state)
    assert (short.outcome.complete, long.outcome.complete) == (True, True)


def test_stolen_time_holds_runs_in_cells_and_not_in_virtual_time(plan_of: Callable[..., Plan]) -> None:
    for backend, held in (("emulated", True), ("sim", False), ("physical", False)):
        state = batch(planned(plan_of(backend)))
        claimed(state)
        for second in range(60):
            step(state, StatusRead("here", status(stolen=0.9, busy=0.1)), float(second))
        allowed = [action.cells for action in claimed(state, now_s=60.0) if isinstance(action, Allow)]
        assert allowed == ([0] if held else [])


def test_progress_counts_the_cells_of_jobs_that_are_under_way(plan_of: Callable[..., Plan]) -> None:
    state = batch(planned(plan_of(runs=4)), jobs=2)
    job, *_ = jobs(claimed(state))
    cells = (
        ("cell 1", job.run.id, report.Progress(report.Phase.RUNNING, 1.0)),
        ("cell 2", "gone", report.Progress(report.Phase.RUNNING)),
    )
    step(state, StatusRead("here", status(cells=cells)), 1.0)
    shown_ = core.progress(state, state.campaigns, 10.0, pid=7)
    assert [cell.cell for cell in shown_.cells] == ["cell 1"]
    assert (shown_.runs, shown_.done, shown_.elapsed_s, shown_.allowed, shown_.pid) == (4, 0, 10.0, 2, 7)
    assert 0 < shown_.finished_s < shown_.total_s
