"""`compare`: one campaign against another."""

from __future__ import annotations

from typing import Annotated

import typer

from experiments import exits
from experiments.commands.options import RESULTS, ArtefactsOption, JsonOption, MarginOption, ResultsOption
from experiments.commands.shared import console, fail


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="The baseline: NAME (or id), FOLDER, or FOLDER:NAME, where FOLDER may be a PostgreSQL URL; add @DATE "
            "for its results on that date.",
            show_default=False,
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The campaign to compare with it.", show_default=False)],
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            min=0.5,
            max=0.9999,
            help="Confidence level of all intervals and of all verdicts together.",
        ),
    ] = 0.95,
    margin: MarginOption = 0.05,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Compare only this metric. Repeatable; all by default.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print equal metrics as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare campaign B with campaign A: differences with confidence intervals. Exit status 1 when a metric of B is
    worse.
    """
    from analysis import comparison
    from analysis.metrics import METRICS
    from analysis.results import is_output
    from experiments.language import registry
    from experiments.tables import comparison_table

    for metric in metrics or ():
        if metric not in METRICS and not is_output(metric):
            fail(registry.unknown("metric", metric, METRICS), exits.BAD_INPUT)
    try:
        in_a, in_b = (comparison.load(name, folder, artefacts) for name in (a, b))
        compared = comparison.compare(in_a, in_b, confidence, margin, metrics or ())
    except comparison.CompareError as error:
        fail(str(error), exits.BAD_INPUT)
    if as_json:
        typer.echo(compared.as_json())
    else:
        console().print(comparison_table(compared, everything))
    if compared.regressions:
        raise typer.Exit(exits.FAILED)
