"""Figures of one run: what happened over time."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis import metrics
from analysis.captures import CapturedLine
from analysis.errors import AnalysisError
from analysis.metrics import DATA, RETRANSMISSION, SACK, CapturedFlow, RunData, is_a
from analysis.plots import page, style

#: Seconds; the ends of what is drawn.
View = tuple[float, float]


def whole(run: RunData) -> View:
    """The view that shows all of a run."""
    return 0.0, run.window_s[1]


def _inside(frame: pl.DataFrame, view: View) -> pl.DataFrame:
    return frame.filter((pl.col("t_s") >= view[0]) & (pl.col("t_s") <= view[1]))


def _held(frame: pl.DataFrame, view: View) -> pl.DataFrame:
    """The rows in view, and the one before it, at its edge: what a step line needs."""
    before = frame.filter(pl.col("t_s") < view[0]).tail(1).with_columns(pl.lit(view[0]).alias("t_s"))
    return pl.concat([before, _inside(frame, view)])


def _over_time(axes: Axes, view: View, what: str) -> None:
    """The frame of a figure of something that is never negative, over the time in view."""
    axes.set_xlim(*view)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (s)")
    axes.set_ylabel(what)
    axes.legend()


def time_sequence(flow: CapturedFlow, view: View) -> Figure:
    """Sequence numbers over time at the sender: data as bars from first to last byte, retransmissions, acks, window.

    Acks that carry selective blocks are marked at their number, with the blocks themselves where the run's tables have
    them; the window is what the last ack allows.
    """
    segments = flow.at_sender
    data = _inside(segments.filter((pl.col("dir") == 0) & is_a(DATA)), view)
    again = data.filter(is_a(RETRANSMISSION))
    acks = segments.filter((pl.col("dir") == 1) & (pl.col("ack") >= 0))
    with style.figure(f"{flow.name}: sequence numbers at the sender") as (made, axes):
        for rows, colour, name in (
            (data.filter(~is_a(RETRANSMISSION)), style.DATA, "data"), (again, style.AGAIN, "retransmitted"),
        ):  # fmt: skip
            bars = [
                ((t_s, seq / 1e3), (t_s, (seq + size) / 1e3))
                for t_s, seq, size in rows.select("t_s", "seq", "payload").iter_rows()
            ]
            drawn = LineCollection(
                bars, colors=colour, linewidths=1.6, label=f"{name} ({rows.height})", capstyle="butt",
                zorder=3 if name == "data" else 4, rasterized=len(bars) > style.MOST_VECTORS,
            )  # fmt: skip
            axes.add_collection(drawn)
            if rows is again:
                page.keep_all(drawn)
        if again.height:
            rings = axes.plot(
                again["t_s"], again["seq"] / 1e3, "o", ms=2.5, mfc="none", mec=style.AGAIN, mew=0.7, zorder=4
            )
            page.keep_all(*rings)
        step = _held(acks.with_columns(pl.col("ack").cum_max().over("stream")), view)
        many = step.height > style.MOST_VECTORS
        axes.step(step["t_s"], step["ack"] / 1e3, where="post", color=style.ACK, label="acknowledged", rasterized=many)
        edge = (step["ack"] + step["window"]) / 1e3
        page.beyond(
            *axes.step(step["t_s"], edge, where="post", color=style.WINDOW, lw=0.8, label="window", rasterized=many)
        )
        selective = _inside(acks.filter(is_a(SACK)), view)
        blocks = _inside(flow.sack_blocks, view)
        if blocks.height:
            bars = [
                ((t_s, left / 1e3), (t_s, right / 1e3))
                for t_s, left, right in blocks.select("t_s", "left", "right").iter_rows()
            ]
            rough = len(bars) > style.MOST_VECTORS
            axes.add_collection(LineCollection(bars, colors=style.SACK, linewidths=0.9, rasterized=rough, zorder=2))
        if selective.height:
            axes.plot(
                selective["t_s"], selective["ack"] / 1e3, "|", ms=4, mew=0.6, color=style.SACK,
                label=f"acks with SACK ({selective.height})", rasterized=selective.height > style.MOST_VECTORS,
            )  # fmt: skip
        axes.autoscale_view()
        axes.set_xlim(*view)
        top = max([0.0, *(data["seq"] + data["payload"]).to_list(), *step["ack"].to_list()]) / 1e3
        low = min([top * 1e3, *data["seq"].to_list(), *step["ack"].to_list()]) / 1e3
        room = max((top - low) * 0.06, 1.0)
        axes.set_ylim(low - room / 2, top + room)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("sequence number (kB)")
        axes.legend(loc="upper left")
        return made


def congestion_window(flow: CapturedFlow, view: View) -> Figure:
    """The sender's congestion window and slow-start threshold, as its stack told them; in segments.

    Raises:
        MissingCapture: the run kept no telemetry of the flow.
    """
    rows = flow.telemetry
    with style.figure(f"{flow.name}: congestion window") as (made, axes):
        for number, (column, name) in enumerate((("cwnd_segments", "cwnd"), ("ssthresh_segments", "ssthresh"))):
            known = _held(rows.filter(pl.col(column).is_not_null()), view)
            drawn = axes.step(
                known["t_s"], known[column], where="post", label=name, color=style.COLOURS[number],
                ls="-" if number == 0 else "--", rasterized=known.height > style.MOST_VECTORS,
            )  # fmt: skip
            if name == "ssthresh":
                page.beyond(*drawn)
        _over_time(axes, view, "segments")
        # A threshold that stands for "none yet" would leave the window no room.
        top = _held(rows.filter(pl.col("cwnd_segments").is_not_null()), view)["cwnd_segments"].max()
        if top is not None:
            axes.set_ylim(top=float(top) * 1.3 + 1)  # type: ignore[arg-type]
        return made


def round_trips(flows: Sequence[CapturedFlow], view: View) -> Figure:
    """Round-trip samples over time at the senders, by Karn's rule; in ms."""
    with style.figure("round-trip time at the sender") as (made, axes):
        for number, flow in enumerate(flows):
            samples = _inside(metrics.rtt_samples(flow), view)
            axes.plot(
                samples["t_s"], samples["rtt_s"] * 1e3, style.MARKERS[number % len(style.MARKERS)], ms=2, mew=0,
                color=style.COLOURS[number % len(style.COLOURS)], label=f"{flow.name} ({samples.height} samples)",
                rasterized=samples.height > style.MOST_VECTORS,
            )  # fmt: skip
        _over_time(axes, view, "round-trip time (ms)")
        return made


def outstanding(flows: Sequence[CapturedFlow], view: View) -> Figure:
    """Bytes sent and not acknowledged over time, at the senders; in kB."""
    with style.figure("outstanding data at the sender") as (made, axes):
        for number, flow in enumerate(flows):
            steps = _held(metrics.outstanding(flow), view)
            axes.step(
                steps["t_s"], steps["y"] / 1e3, where="post", color=style.COLOURS[number % len(style.COLOURS)],
                label=flow.name, rasterized=steps.height > style.MOST_VECTORS,
            )  # fmt: skip
        _over_time(axes, view, "outstanding (kB)")
        return made


def queue(line: CapturedLine, view: View) -> Figure:
    """Packets that wait in a line's queue over time, with the peaks between two samples, and what was dropped there.

    Raises:
        MissingCapture: the run kept no telemetry.
    """
    steps = _held(line.queue_steps(), view)
    with style.figure(f"{line.name}: queue ({line.policy})") as (made, axes):
        many = steps.height > style.MOST_VECTORS
        peaks = steps.filter(pl.col("most") > pl.col("y"))
        axes.vlines(
            peaks["t_s"], peaks["y"], peaks["most"], color=style.DATA, alpha=0.35, lw=0.8, rasterized=many,
            label="most since the sample before",
        )  # fmt: skip
        axes.step(steps["t_s"], steps["y"], where="post", color=style.DATA, label="waiting", rasterized=many)
        for number, kind in enumerate(("dropped_full", "dropped_early", "purged", "marked", "lost")):
            events = _inside(line.events(kind), view)
            if events.height:
                marks = axes.plot(
                    events["t_s"], [0.0] * events.height, style.MARKERS[number], ms=3, mew=0, clip_on=False,
                    color=style.COLOURS[1 + number % (len(style.COLOURS) - 1)], zorder=5,
                    label=f"{kind.replace('_', ', ')} ({events.height})", rasterized=events.height > style.MOST_VECTORS,
                )  # fmt: skip
                page.keep_all(*marks)
        _over_time(axes, view, "packets")
        return made


def throughput(flows: Sequence[CapturedFlow], view: View, width_s: float | None = None) -> Figure:
    """Throughput at the receivers in slices; of a hundredth of what is in view unless told otherwise."""
    width_s = max((view[1] - view[0]) / 100, 0.01) if width_s is None else width_s
    series = [(flow, metrics.throughput_over_time(flow, width_s, *view)) for flow in flows]
    size, unit = style.scale([value for _, frame in series for value in frame["bps"]], "rate")
    with style.figure(f"throughput at the receiver, per {width_s:g} s") as (made, axes):
        for number, (flow, frame) in enumerate(series):
            # A slice's value holds from its beginning to its end.
            axes.step(
                [view[0], *frame["t_s"]], [*(frame["bps"][:1] / size), *(frame["bps"] / size)], where="pre",
                color=style.COLOURS[number % len(style.COLOURS)], label=flow.name,
            )  # fmt: skip
        _over_time(axes, view, style.label("throughput", unit))
        return made


def utilisation(lines: Sequence[CapturedLine], view: View, width_s: float | None = None) -> Figure:
    """Utilisation of lines per interval; the warm-up's end is marked."""
    width_s = max((view[1] - view[0]) / 100, 0.01) if width_s is None else width_s
    limited = [line for line in lines if line.rate_bps is not None]
    if not limited:
        raise AnalysisError("no line of this run has a rate, so none has a utilisation")
    with style.figure(f"utilisation, per {width_s:g} s") as (made, axes):
        for number, line in enumerate(limited):
            frame = metrics.utilisation_over_time(line, width_s)
            axes.step(
                frame["t_s"], frame["share"] * 100, where="pre", color=style.COLOURS[number % len(style.COLOURS)],
                label=line.name,
            )  # fmt: skip
            if number == 0 and line.run.window_s[0] > 0:
                axes.axvline(line.run.window_s[0], color=style.WINDOW, ls=":", label="end of the warm-up")
        _over_time(axes, view, "utilisation (%)")
        return made
