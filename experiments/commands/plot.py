"""`./backchannel plot`: a figure of a run or a campaign, as SVG, PDF, PNG or an interactive page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption

if TYPE_CHECKING:
    from analysis.captures import CapturedFlow, CapturedLine, RunData
    from analysis.figures.model import Figure
    from analysis.store import Store


@dataclass(frozen=True)
class Request:
    """What to draw."""

    #: A run's id or its beginning, or a campaign.
    subject: str
    #: Flows, groups or link/direction; all without any.
    of: Sequence[str]
    metric: str
    axis: str
    interval: str
    from_s: float | None
    to_s: float | None
    slice_s: float | None
    pooled: bool = False


#: Figures of a run.
OF_RUN = {
    "sequence": "sequence numbers of a flow at its sender: data, retransmissions, losses, acks, SACK, window",
    "cwnd": "a sender's congestion window and slow-start threshold",
    "rtt": "round-trip samples of flows",
    "outstanding": "bytes sent and not acknowledged, of flows",
    "throughput": "throughput of flows at their receivers",
    "queue": "a line's queue, with the packets dropped, purged or marked there",
    "queue-delay": "queueing delay of a line that the kernel shapes, by class",
    "mark-probability": "probability of a mark or drop on a line that the kernel shapes, by class",
    "utilisation": "utilisation of lines over time",
    "rtt-cdf": "distribution of round-trip samples of flows",
}
#: Figures of a campaign.
OF_CAMPAIGN = {
    "bars": "a metric at every point, with error bars",
    "sweep": "a metric over a swept field, with error bars",
    "cdf": "distribution of a metric over runs, a curve for each point",
    "figure": "the figure that the campaign file defines under `figure`, with the published values",
}


def plot(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help=f"Of a run: {', '.join(OF_RUN)}. Of a campaign: {', '.join(OF_CAMPAIGN)}."),
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
    from analysis.figures.printed import FORMATS, save

    files = out or [Path(f"{kind}.svg")]
    for path in files:
        # Checked before anything is computed.
        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise typer.BadParameter(f"{path}: a figure's name ends in .{', .'.join(FORMATS)}", param_hint="--out")
    request = Request(subject, of or [], metric, axis, interval, from_s, to_s, slice_s, pooled)
    figure = draw(kind, request, results, artefacts)
    for path in files:
        save(figure, path)
        typer.echo(str(path))


def draw(kind: str, request: Request, results: Path | str, artefacts: str | None = None) -> Figure:
    """The figure.

    Raises:
        AnalysisError: unknown kind or subject, or its data are missing.
    """
    from analysis import frames
    from analysis.captures import MissingCapture
    from analysis.errors import AnalysisError, unknown

    if kind not in OF_RUN and kind not in OF_CAMPAIGN:
        raise unknown("figure", kind, [*OF_RUN, *OF_CAMPAIGN])
    store = frames.open_store(results, artefacts)
    try:
        return _of_campaign(kind, request, store) if kind in OF_CAMPAIGN else _of_run(kind, request, store)
    except MissingCapture as error:
        raise AnalysisError(str(error)) from None
    finally:
        store.close()


def _of_campaign(kind: str, request: Request, store: Store) -> Figure:
    from analysis import frames
    from analysis.figures import campaign

    if kind == "figure":
        return _as_published(request.subject, store)
    if kind == "cdf":
        values = frames.values(request.subject, store)
        return campaign.cdf_of_runs(values, request.metric, request.of, pooled=request.pooled)
    table = frames.means(request.subject, store)
    if kind == "bars":
        return campaign.bars(table, request.metric, request.of, request.interval)
    return campaign.sweep(table, request.metric, request.axis, request.of, request.interval)


def _as_published(name: str, store: Store) -> Figure:
    from analysis import frames
    from analysis.errors import AnalysisError
    from analysis.figures import published
    from experiments.catalogue import FOLDER

    campaign = frames.find_campaign(store, name)
    made = published.of_campaign(store, campaign.id, campaign.text, FOLDER)
    if made is None:
        raise AnalysisError(f"the file of campaign {campaign.name} has no `figure`; bars and sweep draw any metric")
    if made.is_empty:
        raise AnalysisError(f"there is no value yet for the figure '{made.title}'")
    return made.figure()


def _of_run(kind: str, request: Request, store: Store) -> Figure:
    from analysis import frames
    from analysis.errors import AnalysisError

    run = frames.run_data(request.subject, store)
    low = 0.0 if request.from_s is None else request.from_s
    high = run.window_s[1] if request.to_s is None else request.to_s
    if not high > low:
        raise AnalysisError(f"there is nothing between {low:g} s and {high:g} s")
    slice_s = request.slice_s or max((high - low) / 100, 0.01)
    if kind in ("queue", "queue-delay", "mark-probability", "utilisation"):
        figure = _of_lines(kind, _lines(run, request.of), slice_s)
    else:
        flows = _flows(run, request.of)
        if kind in ("sequence", "cwnd") and len(flows) > 1 and request.of:
            raise AnalysisError(f"{kind} shows one flow: give one --of")
        figure = _of_flows(kind, flows, (low, high), slice_s)
    return figure if kind == "rtt-cdf" else figure.within(low, high, ALL_POINTS)


#: More points than a run has: files are complete, only pages are thinned.
ALL_POINTS = 10**9


def _of_flows(kind: str, flows: Sequence[CapturedFlow], period: tuple[float, float], slice_s: float) -> Figure:
    from analysis import metrics
    from analysis.figures import campaign, run

    figures: Mapping[str, Callable[[], Figure]] = {
        "sequence": lambda: _sequence(flows[0]),
        "cwnd": lambda: run.congestion_window(f"{flows[0].name}: congestion window", flows[0].telemetry),
        "rtt": lambda: run.round_trips(
            "round-trip time at the sender", {flow.name: metrics.rtt_samples(flow) for flow in flows}
        ),
        "outstanding": lambda: run.outstanding(
            "outstanding data at the sender", {flow.name: metrics.outstanding(flow) for flow in flows}
        ),
        "throughput": lambda: run.throughput(
            f"throughput at the receiver, per {slice_s:g} s",
            {flow.name: metrics.throughput_over_time(flow, slice_s, *period) for flow in flows},
        ),
        "rtt-cdf": lambda: campaign.cdf(
            {flow.name: metrics.rtt_samples(flow)["rtt_s"].to_list() for flow in flows}, "round-trip time", "time"
        ),
    }
    return figures[kind]()


def _sequence(flow: CapturedFlow) -> Figure:
    import polars as pl

    from analysis.captures import MissingCapture
    from analysis.figures import run

    try:
        seen = flow.at_receiver.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
        arrived = seen.select("seq", "payload", "stream")
    except MissingCapture:
        arrived = None
    blocks = flow.sack_blocks
    title = f"{flow.name}: sequence numbers at the sender"
    return run.sequence(title, flow.at_sender, blocks if blocks.height else None, arrived)


def _of_lines(kind: str, lines: Sequence[CapturedLine], slice_s: float) -> Figure:
    from analysis import metrics
    from analysis.errors import AnalysisError
    from analysis.figures import run

    if kind == "queue":
        line = lines[0]
        events = {name: line.events(name)["t_s"].to_list() for name in run.EVENTS}
        return run.queue(f"{line.name}: queue ({line.policy})", line.queue_steps(), events)
    if kind in ("queue-delay", "mark-probability"):
        line = lines[0]
        classes = line.class_steps("delay_s" if kind == "queue-delay" else "probability")
        if not classes:
            raise AnalysisError(f"{line.name} has no such samples; codel, dualpi2 and cake of the kernel have")
        draw_ = run.queue_delay if kind == "queue-delay" else run.mark_probability
        return draw_(f"{line.name}: {line.policy}", classes)
    limited = [line for line in lines if line.rate_bps is not None]
    if not limited:
        raise AnalysisError("no line of this run has a rate, so none has a utilisation")
    shares = {line.name: metrics.utilisation_over_time(line, slice_s) for line in limited}
    return run.utilisation(f"utilisation, per {slice_s:g} s", shares, limited[0].run.window_s[0])


def _flows(run: RunData, names: Sequence[str]) -> list[CapturedFlow]:
    from analysis.errors import AnalysisError, unknown

    of_name = {flow.name: [flow] for flow in run.flows} | run.groups
    for name in names:
        if name not in of_name:
            raise unknown("flow or group", name, of_name)
    flows = [flow for name in names for flow in of_name[name]] or run.flows
    if not flows:
        raise AnalysisError("this run has no flows: there is nothing to draw")
    return flows


def _lines(run: RunData, names: Sequence[str]) -> list[CapturedLine]:
    from analysis.errors import AnalysisError, unknown

    of_name = {line.name: line for line in run.all_lines}
    for name in names:
        if name not in of_name:
            raise unknown("line", name, of_name)
    lines = [of_name[name] for name in names] or run.lines
    if not lines:
        raise AnalysisError("this run has no links: it was imported")
    return lines
