"""`doubt`: whether a campaign's conclusions are artefacts of the tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import (
    RESULTS,
    ArtefactsOption,
    AttemptsOption,
    FileArgument,
    JobsOption,
    ResultsOption,
    SetOption,
)
from experiments.commands.shared import (
    console,
    fail,
    open_existing,
    rejecting,
    results_option,
    run_plans,
    store_location,
)
from experiments.engine.options import ATTEMPTS, Options
from experiments.labels import duration_text
from testbed import units
from testbed.errors import Unavailable
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents
    from experiments.papers.doubt_plan import Planned

ChangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="CHANGE",
        show_default=False,
        help="Make this change only: seeds, half, perturbed, sim, virtual-kernel, htb, netem or emulated. Repeatable.",
    ),
]
WithinOption = Annotated[
    str,
    typer.Option(
        "--within",
        metavar="TIME",
        help="Longest expected time of a change. One that takes longer has fewer repetitions, or is left out.",
    ),
]


def doubt(
    file: FileArgument,
    overrides: SetOption = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAME",
            show_default=False,
            help="Backend of the original runs. Default: the file's, or sim; virtual-kernel where the file cannot be "
            "simulated.",
        ),
    ] = None,
    only: ChangeOption = None,
    perturbations: Annotated[
        int, typer.Option("--perturbations", "-n", metavar="N", min=0, max=100, help="Number of perturbed copies.")
    ] = 2,
    within: WithinOption = "10 min",
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Run nothing; print the changes, their runs and the expected time.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    attempts: AttemptsOption = ATTEMPTS,
) -> Answer[documents.Doubt | Sequence[documents.PlannedChange]]:
    """Repeat a campaign's conclusions with other seeds, half of the duration, links that are 0.1 % off, and on other
    backends, and say which survive (docs/doubt.md). Exit status 1 when one flips.
    """
    from analysis.store import Store
    from experiments.papers import doubt_plan
    from experiments.papers.tables import doubt_table

    with rejecting("--within"):
        within_s = float(units.parse(within, "time"))
    first = doubt_plan.original(file, list(overrides or ()), backend)
    plan = first.make(None)
    if len(plan.points) < 2:
        fail(
            f"{plan.name} has one combination, so it compares nothing and has no conclusions to doubt; sweep a "
            "field over two or more values",
            exits.BAD_INPUT,
        )
    all_changes = list(doubt_plan.changes(file, list(overrides or ()), plan, perturbations))
    with rejecting("--only"):
        changes = doubt_plan.named(all_changes, only or ())
    with open_existing(results, artefacts) as store:
        planned = [doubt_plan.planned(change, within_s, store, jobs) for change in (first, *changes)]
    if planned[0].plan is None:
        fail(f"the original runs: {planned[0].column.left_out}", exits.BAD_INPUT)
    if plan_only:
        return Answer([_planned_document(entry) for entry in planned], lambda: _print_plan(planned, to_stderr=False))
    _print_plan(planned, to_stderr=True)
    options = Options(store_location(results), jobs=jobs, attempts=attempts, artefacts=artefacts)
    # Where the original decides nothing, changes of it have nothing to say.
    done = _run(planned[:1], options)
    with Store.open(options.results, options.artefacts) as store:
        assessment = doubt_plan.assess(done, store)
    if assessment.conclusions:
        done = _run(planned, options)
        with Store.open(options.results, options.artefacts) as store:
            assessment = doubt_plan.assess(done, store)
    return Answer(
        assessment.as_json(),
        lambda: console().print(doubt_table(assessment, results_option(results))),
        exits.FAILED if assessment.flips else exits.OK,
    )


def _planned_document(entry: Planned) -> dict[str, object]:
    column = entry.column
    return {
        "name": column.name,
        "what": column.what,
        "backend": column.backend,
        "runs": column.runs,
        "missing": entry.missing,
        "expected_s": entry.expected_s,
        "left_out": column.left_out,
    }


def _print_plan(planned: Sequence[Planned], *, to_stderr: bool) -> None:
    total_s = sum(entry.expected_s for entry in planned)
    for entry in planned:
        column = entry.column
        text = f"left out: {column.left_out}"
        if entry.plan is not None:
            text = (
                f"{number_of(column.runs, 'run')} on {column.backend}, {entry.missing} to be made, "
                f"about {duration_text(entry.expected_s)}"
            )
        typer.echo(f"{column.name:16} {column.what}: {text}", err=to_stderr)
    typer.echo(f"expected: about {duration_text(total_s)} in all", err=to_stderr)


def _run(planned: Sequence[Planned], options: Options) -> list[Planned]:
    """Runs the plans, those of a backend together. A change whose backend is not available is left out."""
    done = list(planned)
    quiet = not console(stderr=True).is_terminal
    for backend in dict.fromkeys(entry.plan.backend for entry in planned if entry.plan is not None):
        plans = [entry.plan for entry in planned if entry.plan is not None and entry.plan.backend == backend]
        try:
            run_plans(plans, options, quiet)
        except Unavailable as error:
            if planned[0].plan is not None and planned[0].plan.backend == backend:
                raise
            done = [
                replace(entry, plan=None, column=replace(entry.column, campaign="", left_out=str(error)))
                if entry.plan is not None and entry.plan.backend == backend
                else entry
                for entry in done
            ]
    return done
