"""`papers run` and `papers score`: run the papers' artefacts and compare the results with the published values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import (
    RESULTS,
    ArtefactNames,
    AttemptsOption,
    BackendOption,
    ForceOption,
    JobsOption,
    LabOption,
    LimitOption,
    ResultsOption,
)
from experiments.commands.shared import (
    answer_console,
    console,
    fail,
    open_existing,
    rejecting,
    show_note,
    show_parts,
    store_location,
    wants_json,
)
from experiments.engine.options import ATTEMPTS, Options
from experiments.labels import duration_text
from testbed.local_folders import ScratchFolder
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents
    from experiments.papers.reproduction import Reproduction
    from experiments.papers.targets import Target
    from experiments.terminal import TerminalReporter


papers = typer.Typer(help="Reproduce the papers' tables, figures and claims.", no_args_is_help=True)


@papers.command("run", short_help="Run what the results folder lacks, and print its score")
def run(
    names: ArtefactNames = None,
    backend: BackendOption = None,
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
    attempts: AttemptsOption = ATTEMPTS,
    force: ForceOption = False,
    limit: LimitOption = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Run nothing; print the runs and the expected time.")
    ] = False,
    defaults: Annotated[
        bool,
        typer.Option(
            "--defaults",
            help="Run in simulation with the defaults of all parameters that were chosen where a paper is silent "
            "(experiments/PAPER/chosen.yaml), as separate campaigns. The score shows both. Fields that campaigns leave "
            "at their defaults (experiments/chosen.yaml) stay.",
        ),
    ] = False,
    inventory: LabOption = None,
) -> Answer[documents.Scorecard | documents.ExpectedPapers]:
    """Run the papers' tables, figures and claims that the results folder lacks, and print their score.

    With --backend, only artefacts run whose file has fields for that backend; with --inventory, only those whose
    topology fits the hosts (docs/physical.md).
    """
    from experiments.papers.reproduction import reproduce, select_reproductions

    with rejecting():
        if defaults and (backend not in (None, "sim") or inventory is not None):
            given = "--inventory" if inventory is not None else f"--backend {backend}"
            raise ValueError(f"--defaults runs in simulation; leave out {given}")
        if inventory is not None and backend not in (None, "physical"):
            raise ValueError(f"--inventory has hosts for the backend 'physical', not '{backend}'; leave --backend out")
        backend = "sim" if defaults else "physical" if inventory is not None else backend
        selected = select_reproductions(names or (), backend=backend, defaults=defaults, inventory=inventory)
    if plan_only:
        return _expected(selected, backend, results, jobs, force, limit, defaults, inventory)
    from experiments.papers.scorecard import document, scorecard
    from experiments.papers.tables import score_table
    from experiments.terminal import TerminalReporter

    terminal = answer_console()
    options = Options(store_location(results), jobs, force, limit=limit, attempts=attempts, inventory=inventory)
    done = reproduce(selected, backend, options, TerminalReporter(terminal), show_note, defaults=defaults)
    for result in done:
        if result.refused:
            terminal.print(
                f"{result.reproduction.artefact}: not run: {result.refused}", style="yellow", highlight=False
            )
    artefacts = {result.reproduction.artefact for result in done}
    with analysis.open(results) as opened:
        scored = [artefact for artefact in scorecard(opened) if artefact.id in artefacts]
    outcomes = [result.outcome for result in done if result.outcome is not None]
    is_interrupted = any(outcome.interrupted for outcome in outcomes)
    failed = any(outcome.failed for outcome in outcomes)
    return Answer(
        document(scored),
        lambda: terminal.print(score_table(scored, details=True), soft_wrap=True),
        exits.INTERRUPTED if is_interrupted else exits.FAILED if failed else exits.OK,
    )


def _expected(
    selected: Sequence[Reproduction],
    backend: str | None,
    results: str,
    jobs: int | None,
    force: bool,
    limit: int | None,
    defaults: bool,
    inventory: Path | None,
) -> Answer[documents.ExpectedPapers]:
    from experiments.papers.reproduction import expected
    from experiments.plain_table import plain_table

    with open_existing(results, None) as store:
        rows, total_s = expected(
            selected,
            backend,
            store,
            os.cpu_count() or 1,
            jobs,
            force,
            limit,
            defaults=defaults,
            inventory=inventory,
            warn=show_note,
        )
    columns = ("combinations", "repetitions", "to run", "runs", "time", "cells")
    table = plain_table("artefact", *columns, right=columns)
    for row in rows:
        if not row.refused:
            counts = (row.points, row.repetitions, row.to_run, row.runs, duration_text(row.time_s), row.cells)
            table.add_row(row.artefact, *map(str, counts))
    lines = [f"{row.artefact}: not run: {row.refused}" for row in rows if row.refused]
    lines.append(f"{number_of(sum(row.to_run for row in rows), 'run')}, about {duration_text(total_s)} as one batch")
    return Answer({"artefacts": rows, "time_s": total_s}, lambda: show_parts(console(), [table], lines))


@papers.command("score", short_help="Compare results with the published values")
def score(
    names: ArtefactNames = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Print every value and ordering. Always on when a single artefact is named."),
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Run the named artefacts in simulation as chosen, and with one chosen parameter at a time at its "
            "default and its alternatives (experiments/PAPER/chosen.yaml), and with links that are up to 0.1 % off, in "
            "a folder of its own. Prints the verdicts that flip.",
        ),
    ] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--repetitions",
            min=1,
            show_default=False,
            help="Number of simulated runs of each combination. Runs the named artefacts in a temporary folder and "
            "scores them. More runs may decide an inconclusive verdict. With --sensitivity: of each variant. "
            "Default: as in the campaign file.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown page with a table for each paper.")
    ] = False,
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
) -> Answer[documents.Scorecard | Sequence[documents.ChoiceOutcome]]:
    """Compare the results with the published ones: values within tolerance, orderings that hold, and their counts."""
    if sensitivity:
        return _sensitivity(names, repetitions, jobs)
    if repetitions is not None:
        return _with_repetitions(names, repetitions, jobs)
    from experiments.papers.reproduction import select_named
    from experiments.papers.scorecard import document, scorecard
    from experiments.papers.tables import score_table

    with analysis.open(results) as opened:
        everything = scorecard(opened)
    with rejecting():
        artefacts = select_named(everything, names or (), lambda item: (item.paper, item.id), "paper or artefact")

    def text() -> None:
        if markdown:
            from experiments.papers.choices import all_choices
            from experiments.papers.page import page

            typer.echo(page(artefacts, all_choices()), nl=False)
        else:
            console().print(score_table(artefacts, details or len(artefacts) == 1), soft_wrap=True)

    return Answer(document(artefacts), text)


@contextmanager
def _own_runs(
    option: str, names: Sequence[str] | None, jobs: int | None
) -> Iterator[tuple[list[tuple[Reproduction, Target]], Options, TerminalReporter]]:
    """The named artefacts, and how an option of `papers score` runs them, in a temporary folder."""
    from experiments.papers.reproduction import select_reproductions
    from experiments.papers.targets import all_targets
    from experiments.terminal import TerminalReporter

    if not names:
        example = f"papers score asym-table1 {option}"
        fail(f"{option} needs the artefacts or papers to run, for example: {example}", exits.BAD_INPUT)
    with rejecting():
        selected = select_reproductions(names, backend="sim")
    targets = {target.id: target for target in all_targets()}
    chosen = [(reproduction, targets[reproduction.artefact]) for reproduction in selected]
    with ScratchFolder() as folder:
        yield chosen, Options(folder / "results", jobs), TerminalReporter(console(stderr=True))


def _with_repetitions(names: Sequence[str] | None, repetitions: int, jobs: int | None) -> Answer[documents.Scorecard]:
    from experiments.papers.choice_sensitivity import score_as_chosen
    from experiments.papers.scorecard import artefact_of, document
    from experiments.papers.tables import score_table

    artefacts = []
    with _own_runs(f"--repetitions {repetitions}", names, jobs) as (chosen, options, reporter):
        for reproduction, target in chosen:
            made = score_as_chosen(reproduction, target, options, reporter, repetitions)
            artefacts.append(artefact_of(target, {"sim": made}, {}, has_choices=False))
    return Answer(document(artefacts), lambda: console().print(score_table(artefacts, details=True), soft_wrap=True))


def _sensitivity(
    names: Sequence[str] | None, repetitions: int | None, jobs: int | None
) -> Answer[Sequence[documents.ChoiceOutcome]]:
    from experiments.papers.choice_sensitivity import outcomes
    from experiments.papers.tables import outcome_line

    tried = []
    with _own_runs("--sensitivity", names, jobs) as (chosen, options, reporter):
        for reproduction, target in chosen:
            for outcome in outcomes(reproduction, target, options, reporter, repetitions):
                tried.append(outcome)
                if not wants_json.get():
                    console().print(outcome_line(outcome), soft_wrap=True)
    choices = [outcome for outcome in tried if outcome.variant.changed]
    perturbed = [outcome for outcome in tried if outcome.variant.perturbation]
    of_choices, of_lines = (sum(outcome.flips for outcome in part) for part in (choices, perturbed))
    summary = (
        f"{of_choices} of {len(choices)} changes of one choice and {of_lines} of {len(perturbed)} perturbations of "
        "the links flip a verdict"
    )
    return Answer([outcome.as_json() for outcome in tried], lambda: console().print(summary))
