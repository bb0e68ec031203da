"""`./backchannel plot`: a figure of a run or a campaign, as SVG, PDF, PNG or an interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption


def plot(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="{figures} `./backchannel list figures` describes them."),
    ],
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
        typer.Option("--of", metavar="NAME", help="Flow, group or link/direction to draw. Repeatable. Default: all."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="Metric that a figure of a campaign shows.")
    ] = "throughput",
    axis: Annotated[
        str,
        typer.Option(
            "--axis", metavar="FIELD", help="Swept field on the x axis of a sweep. Default: the only numeric field."
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
        bool, typer.Option("--pooled", help="In a cdf, one curve for each point with the values of all subjects.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """Draw a figure of a run or a campaign, for print or as an interactive page."""
    import analysis
    from analysis.errors import unknown
    from analysis.figures.printed import FORMATS, save
    from analysis.figures.registry import CAMPAIGN_FIGURES, FIGURES, AskedOfCampaign

    files = out or [Path(f"{kind}.svg")]
    for path in files:
        # Checked before anything is computed.
        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise typer.BadParameter(f"{path}: a figure's name ends in .{', .'.join(FORMATS)}", param_hint="--out")
    if kind not in FIGURES and kind not in CAMPAIGN_FIGURES:
        raise unknown("figure", kind, [*FIGURES, *CAMPAIGN_FIGURES])
    with analysis.open(results, artefacts) as store:
        if kind in FIGURES:
            figure = store.run(subject).plot(kind, of or (), from_s, to_s, slice_s)
        else:
            figure = store[subject].plot(kind, AskedOfCampaign(metric, of or (), axis, interval, pooled))
    for path in files:
        save(figure, path)
        typer.echo(str(path))
