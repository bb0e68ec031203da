"""`reproduce` and `score`: run the papers' artefacts and compare the results with the published values."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from experiments import exits
from experiments.commands.options import (
    RESULTS,
    ArtefactNames,
    BackendOption,
    ForceOption,
    JobsOption,
    JsonOption,
    LimitOption,
    ResultsOption,
    TriesOption,
)
from experiments.commands.shared import console, fail, open_existing, require_existing
from experiments.engine.options import TRIES

if TYPE_CHECKING:
    from analysis.scorecard import Artefact
    from analysis.store import Store
    from experiments.catalogue import Reproduction


def reproduce(
    names: ArtefactNames = None,
    backend: BackendOption = None,
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
    tries: TriesOption = TRIES,
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
            "(experiments/PAPER/chosen.yaml), as separate campaigns. The score shows both.",
        ),
    ] = False,
) -> None:
    """Run the papers' tables, figures and claims that the results folder lacks, and print their score.

    With --backend, only artefacts run whose file has fields for that backend.
    """
    from analysis.store import Store
    from experiments import reproduce as reproducing
    from experiments.catalogue import select_reproductions
    from experiments.engine.options import Options
    from experiments.tables import score_table
    from experiments.terminal import TerminalReporter

    try:
        if defaults and backend not in (None, "sim"):
            raise ValueError(f"--defaults runs in simulation, not on the backend '{backend}'; leave --backend out")
        backend = "sim" if defaults else backend
        selected = select_reproductions(names or (), backend=backend, defaults=defaults)
    except ValueError as error:
        fail(str(error), exits.BAD_INPUT)
    if plan_only:
        _print_expected(selected, backend, results, jobs, force, limit, defaults)
        return
    terminal = console()
    options = Options(results, jobs, force, limit=limit, tries=tries)
    done = reproducing.reproduce(selected, backend, options, TerminalReporter(terminal), defaults=defaults)
    for result in done:
        if result.refused:
            terminal.print(
                f"{result.reproduction.artefact}: not run: {result.refused}", style="yellow", highlight=False
            )
    artefacts = {result.reproduction.artefact for result in done}
    scores = [score for score in _scorecard(Store.open(results)) if score.id in artefacts]
    terminal.print(score_table(scores, details=True), soft_wrap=True)
    outcomes = [result.outcome for result in done if result.outcome is not None]
    if any(outcome.interrupted for outcome in outcomes):
        raise typer.Exit(exits.INTERRUPTED)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(exits.FAILED)


def _print_expected(
    selected: Sequence[Reproduction],
    backend: str | None,
    results: str,
    jobs: int | None,
    force: bool,
    limit: int | None,
    defaults: bool,
) -> None:
    from experiments.labels import duration_text
    from experiments.reproduce import expected
    from experiments.tables import expected_table

    store = open_existing(results, None)
    try:
        rows, total_s = expected(selected, backend, store, os.cpu_count() or 1, jobs, force, limit, defaults=defaults)
    finally:
        if store is not None:
            store.close()
    console().print(expected_table(rows))
    typer.echo(f"{sum(row.to_run for row in rows)} runs, about {duration_text(total_s)} as one batch")


def score(
    names: ArtefactNames = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Print every value and ordering. Always on when a single artefact is named."),
    ] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare the results with the published ones: values within tolerance, orderings that hold, and their counts."""
    from analysis.scorecard import document
    from experiments.catalogue import select_named
    from experiments.tables import score_table

    everything = _scorecard(require_existing(results))
    try:
        artefacts = select_named(everything, names or (), lambda item: (item.paper, item.id), "paper or artefact")
    except ValueError as error:
        fail(str(error), exits.BAD_INPUT)
    if as_json:
        typer.echo(json.dumps(document(artefacts), indent=2))
    else:
        console().print(score_table(artefacts, details or len(artefacts) == 1), soft_wrap=True)


def _scorecard(store: Store) -> list[Artefact]:
    from analysis.scorecard import scorecard
    from experiments.catalogue import FOLDER

    return scorecard(store, FOLDER)
