"""`compare`: one campaign with another, or the values of a swept field with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, MarginOption, ResultsOption
from experiments.commands.shared import console, fail, open_campaign, reading, show_note

if TYPE_CHECKING:
    from experiments.commands import documents

MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        show_default=False,
        help="Compare this metric, or 'all'. Repeatable. Default: of one campaign the metric that it asks about, of "
        "two campaigns all.",
    ),
]
FieldOption = Annotated[
    str,
    typer.Option(
        "--field", metavar="FIELD", help="Swept field whose values are compared. Needed if the campaign sweeps several."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        show_default=False,
        help="Write the comparison of one campaign as a table (.csv, .parquet or .json) instead.",
    ),
]


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="The campaign, or the baseline of two: NAME (or id), FOLDER, or FOLDER:NAME, where FOLDER may be a "
            "PostgreSQL URL; add @DATE for its results on that date.",
            show_default=False,
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="[B]", help="Campaign to compare with it. Default: A's own values.")] = "",
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    field: FieldOption = "",
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            metavar="VALUE",
            help="Value of the field that the others are compared with. Default: the first of the sweep.",
        ),
    ] = "",
    first: Annotated[str, typer.Option("--first", hidden=True)] = "",
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="LEVEL",
            min=0.5,
            max=0.9999,
            show_default=False,
            help="Confidence level of two campaigns' intervals together. Default: the question's, 0.95 without one.",
        ),
    ] = None,
    margin: MarginOption = 0.05,
    metrics: MetricOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Print comparisons that show nothing as well.")] = False,
    out: OutOption = None,
) -> Answer[documents.Comparison | Sequence[documents.Contrast] | documents.Files]:
    """Compare the values of a swept field, or campaign B with campaign A: differences with confidence intervals.

    Runs with the same repetition and seed are compared in pairs (docs/metrics.md). Exit status 1 when a metric of B is
    worse.
    """
    if first:
        show_note("'--first' is now '--baseline'")
        baseline = baseline or first
    names = _known(metrics or ())
    if b:
        for option, value in (("--field", field), ("--baseline", baseline), ("--out", out)):
            if value:
                fail(f"{option} compares the values of one campaign: leave {b} out", exits.BAD_INPUT)
        return _compare_campaigns(a, b, folder, artefacts, confidence, margin, names, everything)
    if confidence is not None:
        fail("--confidence is for two campaigns; of one, question.level of its file is the level", exits.BAD_INPUT)
    return _compare_values(a, folder, artefacts, field, baseline, names, margin, everything, out)


def _known(metrics: Sequence[str]) -> list[str] | None:
    """The metrics by their names; None for all of them, empty for none that was named."""
    from analysis.question import known_metric

    return None if "all" in metrics else [known_metric(name) for name in metrics]


def _compare_campaigns(
    a: str,
    b: str,
    folder: str,
    artefacts: str | None,
    confidence: float | None,
    margin: float,
    names: list[str] | None,
    everything: bool,
) -> Answer[documents.Comparison]:
    from analysis import comparison
    from experiments.tables import comparison_table

    try:
        in_a, in_b = (comparison.load(name, folder, artefacts, show_note) for name in (a, b))
        compared = comparison.compare(in_a, in_b, confidence, margin, names or ())
    except comparison.CompareError as error:
        fail(str(error), exits.BAD_INPUT)
    return Answer(
        compared.as_json(),
        # What somebody names is printed whatever it shows.
        lambda: console().print(comparison_table(compared, everything or bool(names))),
        exits.FAILED if compared.regressions else exits.OK,
    )


def _compare_values(
    name: str,
    folder: str,
    artefacts: str | None,
    field: str,
    baseline: str,
    names: list[str] | None,
    margin: float,
    everything: bool,
    out: Path | None,
) -> Answer[Sequence[documents.Contrast] | documents.Files]:
    from analysis.exports import tables
    from experiments.tables import contrast_table

    with reading(folder, artefacts) as store:
        campaign = open_campaign(store, name)
        asked, named = campaign.question, bool(names)
        if names is not None and not names and asked is not None:
            names = [asked.quantity.metric]
        table = campaign.contrast(field, baseline, names or (), margin=margin)
    if out is not None:
        tables.write(table, out)
        return Answer({"files": [str(out)]}, [str(out)])
    to = console()
    return Answer(table.to_dicts(), lambda: to.print(contrast_table(table, everything or named, to.width)))
