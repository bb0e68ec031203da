"""`./backchannel plot`: a figure of a run or a campaign, as SVG, PDF, PNG or an interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import AnalysisError, unknown
from analysis.swept import condition
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import open_campaign, reading

if TYPE_CHECKING:
    from analysis.handle import OpenResults, StoredRun
    from experiments.commands import documents


def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="{figures} `./backchannel list figures` describes them.")],
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CAMPAIGN",
            help="Id of a run, or its first characters; for figures of a campaign its name or id.",
        ),
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write: .svg, .pdf, .png or .html (an interactive page). Repeatable. Default: KIND.svg.",
            show_default=False,
        ),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            "--of",
            metavar="NAME",
            help="Flow, group or link/direction to draw. Repeatable. Default: all; of a campaign "
            "without --metric the one that it asks about.",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric", metavar="NAME", help="Metric that a figure of a campaign shows. Default: what it asks about."
        ),
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            show_default=False,
            help="Draw only this value of a swept field of a campaign. Repeatable.",
        ),
    ] = None,
    axis: Annotated[
        str,
        typer.Option(
            "--axis",
            metavar="FIELD",
            help="Swept field on the x axis of a sweep. Default: the one with the most numbers.",
        ),
    ] = "",
    interval: Annotated[
        str,
        typer.Option("--bars", help="Error bars: confidence (95 % intervals of the means) or sd (standard deviation)."),
    ] = "confidence",
    from_s: Annotated[
        float | None, typer.Option("--from", metavar="S", help="Start of the period drawn, in s.")
    ] = None,
    to_s: Annotated[float | None, typer.Option("--to", metavar="S", help="End of the period drawn, in s.")] = None,
    slice_s: Annotated[
        float | None,
        typer.Option(
            "--slice",
            metavar="S",
            min=1e-6,
            help="Interval of throughput and utilisation, in s. Default: a hundredth of the period.",
        ),
    ] = None,
    pooled: Annotated[
        bool, typer.Option("--pooled", help="In a cdf, one curve for each combination with the values of all subjects.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Files]:
    """Draw a figure of a run or a campaign, for print or as an interactive page."""
    from analysis.figures.printed import FORMATS, save
    from analysis.figures.registry import CAMPAIGN_FIGURES, FIGURES, AskedOfCampaign
    from analysis.question import known_metric

    files = out or [Path(f"{kind}.svg")]
    for path in files:
        # Checked before anything is computed.
        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise typer.BadParameter(f"{path}: a figure's name ends in .{', .'.join(FORMATS)}", param_hint="--out")
    if kind not in FIGURES and kind not in CAMPAIGN_FIGURES:
        raise unknown("figure", kind, [*FIGURES, *CAMPAIGN_FIGURES])
    with reading(results, artefacts) as store:
        if kind in FIGURES:
            figure = _run(store, kind, subject).plot(kind, of or (), from_s, to_s, slice_s)
        else:
            metric = known_metric(metric) if metric else ""
            campaign = open_campaign(store, subject)
            values = dict(condition(text, campaign.axes) for text in where or ())
            figure = campaign.plot(kind, AskedOfCampaign(metric, of or (), axis, values, interval, pooled))
    for path in files:
        save(figure, path)
    written = [str(path) for path in files]
    return Answer({"files": written}, written)


def _run(store: OpenResults, kind: str, name: str) -> StoredRun:
    """The run of a name.

    Raises:
        AnalysisError: there is none. A campaign's name gets its runs as an answer.
    """
    campaign = next((row for row in store.store.campaigns() if name in (row.id, row.name)), None)
    if campaign is None or store.store.run_ids(name):
        return store.run(name)
    runs = store[campaign.id].run_ids
    such = f", such as {runs[0]}" if runs else ""
    raise AnalysisError(
        f"`plot {kind}` draws one run, and {name} is a campaign: give the id of one of its {len(runs)} runs{such}. "
        f"`./backchannel runs {name}` lists them"
    )
