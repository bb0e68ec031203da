"""`run` and `plan`: run a campaign, or show what would run."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import (
    RESULTS,
    ArtefactsOption,
    AttemptsOption,
    BackendOption,
    FileArgument,
    ForceOption,
    JobsOption,
    LabOption,
    LimitOption,
    OnlyOption,
    OrderOption,
    ResultsOption,
    RetryFailedOption,
    SetOption,
    TrustOption,
)
from experiments.commands.shared import (
    answer_console,
    is_file_order,
    load_runnable_plan,
    open_existing,
    reading_runs,
    reasons_of,
    results_option,
    results_parts,
    show_note,
    show_parts,
    store_location,
    wants_json,
)
from experiments.engine import pace
from experiments.engine.options import ATTEMPTS, Options
from experiments.labels import duration_text, exact_note, point_label, results_document, run_label
from testbed import capability, fidelity
from testbed.units import number_of, show

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.store import Store
    from experiments.commands import documents
    from experiments.engine.forecast import Forecast
    from experiments.engine.scheduling import Outcome
    from experiments.language.campaign import Plan, Run


def run(
    file: FileArgument,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    attempts: AttemptsOption = ATTEMPTS,
    only: OnlyOption = None,
    limit: LimitOption = None,
    force: ForceOption = False,
    retry_failed: RetryFailedOption = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first run that has no valid result after its last attempt.")
    ] = False,
    order: OrderOption = "shuffled",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            show_default=False,
            help="Dask scheduler whose workers make the runs, such as tcp://host:8786. Default: this machine makes "
            "them.",
        ),
    ] = None,
    backend: BackendOption = None,
    inventory: LabOption = None,
    trust_code: TrustOption = False,
) -> Answer[documents.Results]:
    """Run every run of a campaign that the results folder lacks, then print its table.

    After an interruption the same command continues. Exit status 1 if a run failed, or stayed invalid after its last
    attempt.
    """
    from analysis.handle import StoredCampaign
    from analysis.metrics import METRICS
    from analysis.store import Store
    from experiments.engine.scheduling import run_campaign
    from experiments.terminal import TerminalReporter

    file_order = is_file_order(order)
    terminal = answer_console()
    plan = load_runnable_plan(file, overrides, backend, results, artefacts, inventory, trust_code)
    options = Options(
        results=store_location(results),
        jobs=jobs,
        attempts=attempts,
        force=force,
        only=only or (),
        retry_failed=retry_failed,
        limit=limit,
        fail_fast=fail_fast,
        file_order=file_order,
        scheduler=_address(scheduler),
        artefacts=artefacts,
        inventory=inventory,
    )
    if plan.backend.in_cell and options.scheduler is None and capability.works_without_root():
        show_note(capability.WITHOUT_ROOT)
    # A package that cannot be loaded is found before runs are made, not after the first one.
    METRICS.plugins()
    outcome = run_campaign(plan, options, TerminalReporter(terminal))
    with Store.open(options.results, artefacts) as store, reading_runs(store):
        row = store.campaign(plan.id)
        assert row is not None
        campaign = StoredCampaign(store, row)
        document = results_document(campaign) if wants_json.get() else None
        if document is None:
            show_parts(terminal, results_parts(terminal, campaign))
        _print_outcome(terminal, plan, outcome, store, results)
    failed = outcome.failed or outcome.lease_over
    return Answer(document, (), exits.INTERRUPTED if outcome.interrupted else exits.FAILED if failed else exits.OK)


def _address(scheduler: str | None) -> str | None:
    """A scheduler's address. Earlier versions had 'none' and 'local' for this machine."""
    if scheduler not in ("none", "local"):
        return scheduler
    show_note(f"leave out '--scheduler {scheduler}': this machine makes the runs by default")
    return None


def plan(
    file: FileArgument,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    force: ForceOption = False,
    retry_failed: RetryFailedOption = False,
    order: OrderOption = "shuffled",
    backend: BackendOption = None,
    inventory: LabOption = None,
    trust_code: TrustOption = False,
) -> Answer[documents.Plan]:
    """Show what `run` would run, what the results folder has already, and the expected time and disk space."""
    from experiments.engine.batch import chosen, ordered, to_make, unique
    from experiments.engine.forecast import Forecaster

    file_order = is_file_order(order)
    plan = load_runnable_plan(file, overrides, backend, results, artefacts, inventory, trust_code)
    selected = unique(chosen(plan, only or ()))
    with open_existing(results, artefacts) as store:
        done = store.valid_runs(plan.run_ids) if store is not None else set()
        if store is not None:
            selected = to_make(selected, set() if force else done, store.tried_runs if retry_failed else None)
        elif retry_failed:
            selected = []
        history = store.history(plan.backend) if store is not None else []
    missing = plan.runs_of(ordered(selected, None if file_order else plan.seed)[:limit])
    expected = Forecaster(plan.backend, history, os.cpu_count() or 1, jobs, pace.of(plan.backend)).forecast(missing)
    document = _plan_document(plan, missing, done, expected) if wants_json.get() else None
    return Answer(document, lambda: _print_plan(plan, missing, done, expected, results))


def _plan_document(plan: Plan, missing: Sequence[Run], done: set[str], expected: Forecast) -> dict[str, Any]:
    position = {run.id: number for number, run in enumerate(missing)}
    return {
        "campaign": plan.id,
        "name": plan.name,
        "points": [dict(point.parameters) for point in plan.points],
        "exact_points": [number for number, point in enumerate(plan.points) if point.is_exact],
        "expected": {
            "runs": expected.runs,
            "time_s": expected.time_s,
            "disk_bytes": expected.disk_bytes,
            "cells": expected.cells,
            "based_on_runs": expected.based_on,
        },
        "runs": [
            {
                "id": run.id,
                "point": run.point,
                "repetition": run.repetition,
                "backend": run.backend,
                "done": run.id in done,
                "position": position.get(run.id),
                "scenario": run.document.document,
            }
            for run in plan.runs
        ],
    }


def _print_plan(plan: Plan, missing: Sequence[Run], done: set[str], expected: Forecast, results: str) -> None:
    from analysis.store import shown

    typer.echo(f"{plan.title}\n")
    missing_ids = {run.id for run in missing}
    for number, of_point in itertools.groupby(plan.members, key=lambda run: run.point):
        runs, point = list(of_point), plan.points[number]
        n_done, n_missing = sum(run.id in done for run in runs), sum(run.id in missing_ids for run in runs)
        line = f"  {number + 1:3}  {n_done}/{len(runs)} done, {n_missing} to run  {point_label(point.parameters)}"
        typer.echo(line.rstrip())
    if note := exact_note(plan):
        typer.echo(f"\n{note}")
    if plan.programs:
        typer.echo(
            f"\nThis campaign runs programs on this machine or lab, with your rights: {', '.join(plan.programs)}"
        )
    # How fast virtual time passes depends on the simulator.
    passing = "of virtual time" if plan.backend.in_virtual_time else "one after another"
    typer.echo(
        f"\n{number_of(len(plan.points), 'combination')}, {number_of(len(plan.runs), 'run')} on the {plan.backend} "
        f"backend, {duration_text(plan.duration_s)} {passing}"
    )
    durations_s = {run.id: run.duration_s for run in missing}
    typer.echo(
        f"{shown(results)} has {sum(run.id in done for run in plan.members)} of them; "
        f"to be run: {len(durations_s)}, {duration_text(sum(durations_s.values()))} {passing}"
    )
    if expected.runs:
        basis = "what the links can carry"
        if expected.based_on:
            basis = f"{number_of(expected.based_on, 'run')} in {shown(results)}"
        elif expected.pace_runs:
            basis += f", at the pace of {number_of(expected.pace_runs, 'earlier run')} of this machine"
        typer.echo(
            f"expected: about {duration_text(expected.time_s)} with {expected.cells} at a time, "
            f"{show(expected.disk_bytes, 'bytes')} of disk (from {basis}){_disk_warning(results, expected.disk_bytes)}"
        )


def _reasons(plan: Plan, store: Store) -> list[str]:
    """Why metrics of packages outside the checkout have no value, as the manifests of the runs state."""
    from analysis.metrics import METRICS
    from analysis.metrics.registry import is_added, refusals_of

    if not METRICS.plugins():
        return []
    rows = filter(None, map(store.run, dict.fromkeys(run.id for run in plan.members)))
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(refusals_of(row.documents.manifest.unmeasured, is_added))
    return reasons_of(counts)


def _disk_warning(results: str, needed_bytes: float) -> str:
    """A warning where the results folder's disk has less free space than that; otherwise empty."""
    where = store_location(results)
    if not isinstance(where, Path):
        return ""
    existing = next(path for path in (where.absolute(), *where.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return f"; only {show(free, 'bytes')} are free there" if free < needed_bytes else ""


def _print_outcome(terminal: Console, plan: Plan, outcome: Outcome, store: Store, results: str) -> None:
    def print_line(text: str) -> None:
        terminal.print(text, highlight=False, soft_wrap=True)

    cells = f", {outcome.cells} at a time" if outcome.cells > 1 else ""
    print_line(
        f"\n{number_of(outcome.landed, 'run')} made{cells}, {outcome.reused} taken from {store.where}, "
        f"{len(outcome.failed)} without a valid result"
    )
    if note := exact_note(plan):
        print_line(note)
    for limits in sorted(
        {"; ".join(fidelity.wider(scenario.fidelity)) for _, scenario in plan.first_scenarios()} - {""}
    ):
        print_line(f"This campaign accepts runs by wider limits than the default: {limits}")
    runs = {run.id: run for run in reversed(plan.members)} if outcome.failed else {}
    for run_id, problems in outcome.failed.items():
        first, _, more = problems.partition("; ")
        others = f" (and {more.count('; ') + 1} more)" if more else ""
        folder = store.failed_folder(run_id)
        # A run whose worker died left no files.
        captures = f"; captures: {store.where}, run {run_id}" if store.run_ids(run_id) else ""
        files = f"; files: {folder}" if folder else captures
        print_line(f"  {run_label(plan, runs[run_id])}: {first}{others}{files}")
    if outcome.failed:
        print_line("To repeat only these runs, add --retry-failed.")
    for line in _reasons(plan, store):
        print_line(line)
    if outcome.lease_over:
        were = "was" if outcome.lease_left_out == 1 else "were"
        print_line(f"{number_of(outcome.lease_left_out, 'run')} {were} not started: {outcome.lease_over}")
    if outcome.left_out:
        print_line(f"Still to be run: {number_of(outcome.left_out, 'run')} of the campaign.")
    if outcome.ended_early:
        print_line("Stopped at the first run without a valid result; the same command continues.")
    if outcome.interrupted:
        print_line("Interrupted; the same command continues.")
    place = results_option(results)
    print_line(
        f"Next: ./backchannel serve{place} shows every run with its plots; "
        f"./backchannel results {plan.name}{place} --json is for scripts."
    )
