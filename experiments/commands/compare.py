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
    from analysis import comparison
    from analysis.exports import tables
    from analysis.question import known_metric
    from experiments.tables import comparison_table, contrast_table

    if first:
        show_note("'--first' is now '--baseline'")
        baseline = baseline or first
    # None for all of them, empty for none that was named.
    names = None if "all" in (metrics or ()) else [known_metric(name) for name in metrics or ()]
    # What somebody names is printed whatever it shows.
    shows_all = everything or bool(names)
    if b:
        for option, value in (("--field", field), ("--baseline", baseline), ("--out", out)):
            if value:
                fail(f"{option} compares the values of one campaign: leave {b} out", exits.BAD_INPUT)
        in_a, in_b = (comparison.load(name, folder, artefacts, show_note) for name in (a, b))
        compared = comparison.compare(in_a, in_b, confidence, margin, names or ())
        return Answer(
            compared.as_json(),
            lambda: console().print(comparison_table(compared, shows_all)),
            exits.FAILED if compared.regressions else exits.OK,
        )
    if confidence is not None:
        fail("--confidence is for two campaigns; of one, question.level of its file is the level", exits.BAD_INPUT)
    with reading(folder, artefacts) as store:
        campaign = open_campaign(store, a)
        if not names and names is not None and campaign.question is not None:
            names = [campaign.question.quantity.metric]
        table = campaign.contrast(field, baseline, names or (), margin=margin)
    if out is not None:
        tables.write(table, out)
        return Answer({"files": [str(out)]}, [str(out)])
    to = console()
    return Answer(table.to_dicts(), lambda: to.print(contrast_table(table, shows_all, to.width)))
