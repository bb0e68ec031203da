"""`./backchannel plot`: a figure of a run or a campaign, as SVG, PDF, PNG or an interactive page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.metrics import Flow, RunData
    from analysis.metrics.lines import Line
    from analysis.store import Store


@dataclass(frozen=True)
class Asked:
    """What the command line said."""

    subject: str
    of: Sequence[str]
    metric: str
    axis: str
    interval: str
    from_s: float | None
    to_s: float | None
    slice_s: float | None
    pooled: bool = False


#: What can be drawn of a run, and what it shows.
OF_RUN = {
    "sequence": "sequence numbers of a flow at its sender: data, retransmissions, acks, SACK, window",
    "cwnd": "a sender's congestion window and threshold",
    "rtt": "round-trip samples of flows",
    "outstanding": "bytes sent and not acknowledged, of flows",
    "throughput": "throughput of flows at their receivers",
    "queue": "a line's queue, with what was dropped there",
    "utilisation": "use of lines over time",
    "rtt-cdf": "distribution of round-trip samples of flows",
}
#: The same of a campaign.
OF_CAMPAIGN = {
    "bars": "a metric at every point, with error bars",
    "sweep": "a metric over a swept field, with error bars",
    "cdf": "distribution of a metric over runs, a curve a point",
    "figure": "what the campaign file says under `figure`, beside the published values",
}


def plot(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help=f"Of a run: {', '.join(OF_RUN)}. Of a campaign: {', '.join(OF_CAMPAIGN)}."),
    ],
    subject: Annotated[str, typer.Argument(metavar="RUN|CAMPAIGN", help="A run's id or its beginning; a campaign.")],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            help="File: .svg, .pdf, .png, .html (an interactive page). Repeatable; KIND.svg.",
            show_default=False,
        ),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option("--of", metavar="NAME", help="Flow, group, or link/direction; all without it. Repeatable."),
    ] = None,
    metric: Annotated[str, typer.Option("--metric", help="What a campaign's figure shows.")] = "throughput",
    axis: Annotated[str, typer.Option("--axis", metavar="FIELD", help="Swept field of a sweep's axis.")] = "",
    interval: Annotated[str, typer.Option("--bars", help="Error bars: t, bootstrap or sd.")] = "t",
    from_s: Annotated[float | None, typer.Option("--from", metavar="S", help="Begin here, in s.")] = None,
    to_s: Annotated[float | None, typer.Option("--to", metavar="S", help="End here, in s.")] = None,
    slice_s: Annotated[
        float | None, typer.Option("--slice", metavar="S", min=1e-6, help="Length of a slice of throughput, in s.")
    ] = None,
    pooled: Annotated[
        bool, typer.Option("--pooled", help="One curve a point in a cdf, all subjects together.")
    ] = False,
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", envvar="BACKCHANNEL_RESULTS", help="Where results are kept.")
    ] = Path("results"),
) -> None:
    """Draw a figure of a run or a campaign, for print or as an interactive page."""
    from analysis.plots import FORMATS, save

    files = out or [Path(f"{kind}.svg")]
    for path in files:
        # Told before anything is computed.
        if path.suffix.lower().removeprefix(".") not in FORMATS:
            raise typer.BadParameter(f"{path}: a figure's name ends in .{', .'.join(FORMATS)}", param_hint="--out")
    asked = Asked(subject, of or [], metric, axis, interval, from_s, to_s, slice_s, pooled)
    drawn = draw(kind, asked, results)
    for path in files:
        save(drawn, path)
        typer.echo(str(path))


def draw(kind: str, asked: Asked, results: Path) -> Figure:
    """The figure.

    Raises:
        AnalysisError: what was asked for is not there.
    """
    from analysis import frames
    from analysis.errors import AnalysisError, unknown
    from analysis.metrics import MissingCapture

    if kind not in OF_RUN and kind not in OF_CAMPAIGN:
        raise unknown("figure", kind, [*OF_RUN, *OF_CAMPAIGN])
    store = frames.open_store(results)
    try:
        return _of_campaign(kind, asked, store) if kind in OF_CAMPAIGN else _of_run(kind, asked, store)
    except MissingCapture as error:
        raise AnalysisError(str(error)) from None
    finally:
        store.close()


def _of_campaign(kind: str, asked: Asked, store: Store) -> Figure:
    from analysis import frames, plots

    if kind == "figure":
        return _as_published(asked.subject, store)
    if kind == "cdf":
        return plots.cdf_of_runs(frames.values(asked.subject, store), asked.metric, asked.of, pooled=asked.pooled)
    table = frames.means(asked.subject, store)
    if kind == "bars":
        return plots.bars(table, asked.metric, asked.of, asked.interval)
    return plots.sweep(table, asked.metric, asked.axis, asked.of, asked.interval)


def _as_published(name: str, store: Store) -> Figure:
    from analysis import drawn, frames, plots
    from analysis.errors import AnalysisError
    from experiments.catalogue import FOLDER

    campaign = frames.find_campaign(store, name)
    made = drawn.of_campaign(store, campaign["id"], campaign["text"], FOLDER)
    if made is None:
        raise AnalysisError(f"the file of campaign {campaign['name']} has no `figure`: bars and sweep draw any metric")
    return plots.as_published(made)


def _of_run(kind: str, asked: Asked, store: Store) -> Figure:
    from analysis import frames, metrics, plots
    from analysis.errors import AnalysisError

    run = frames.run_data(asked.subject, store)
    view = (
        plots.whole(run)[0] if asked.from_s is None else asked.from_s,
        plots.whole(run)[1] if asked.to_s is None else asked.to_s,
    )
    if not view[1] > view[0]:
        raise AnalysisError(f"there is nothing between {view[0]:g} s and {view[1]:g} s")
    if kind in ("queue", "utilisation"):
        lines = _lines(run, asked.of)
        return plots.queue(lines[0], view) if kind == "queue" else plots.utilisation(lines, view, asked.slice_s)
    flows = _flows(run, asked.of)
    figures: Mapping[str, Callable[[], Figure]] = {
        "sequence": lambda: plots.time_sequence(flows[0], view),
        "cwnd": lambda: plots.congestion_window(flows[0], view),
        "rtt": lambda: plots.round_trips(flows, view),
        "outstanding": lambda: plots.outstanding(flows, view),
        "throughput": lambda: plots.throughput(flows, view, asked.slice_s),
        "rtt-cdf": lambda: plots.cdf(
            {flow.name: metrics.rtt_samples(flow)["rtt_s"].to_list() for flow in flows}, "round-trip time", "time"
        ),
    }
    if kind in ("sequence", "cwnd") and len(flows) > 1 and asked.of:
        raise AnalysisError(f"{kind} shows one flow: give one --of")
    return figures[kind]()


def _flows(run: RunData, names: Sequence[str]) -> list[Flow]:
    from analysis.errors import unknown

    of_name = {flow.name: [flow] for flow in run.flows} | run.groups
    for name in names:
        if name not in of_name:
            raise unknown("flow or group", name, of_name)
    return [flow for name in names for flow in of_name[name]] or run.flows


def _lines(run: RunData, names: Sequence[str]) -> list[Line]:
    from analysis.errors import AnalysisError, unknown

    of_name = {line.name: line for line in run.all_lines}
    for name in names:
        if name not in of_name:
            raise unknown("line", name, of_name)
    found = [of_name[name] for name in names] or run.lines
    if not found:
        raise AnalysisError("this run has no links: it was imported")
    return found
