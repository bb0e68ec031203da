"""Figures of one run over time. They take tables of points, so that captures and counters can fill them alike.

Times are seconds since the start of the run; every table is in order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis import qlog
from analysis.captures import BAD_CHECKSUM, DATA, FAST_RETRANSMISSION, RETRANSMISSION, SACK, TIMEOUT, is_a
from analysis.figures.model import COLOURS, Axis, Figure, Marker, Series, axis_scale

TIME = Axis("time", "s")
#: Columns of segments.parquet that `sequence` reads, beside `t_s` and `stream`.
SEQUENCE_COLUMNS = ("dir", "seq", "payload", "ack", "window", "class")
#: The class of a queueing discipline without classes.
ONE_CLASS = "all"
#: Queue events: colour and marker. Packets that a policy removes or marks on purpose are not losses.
EVENTS: Mapping[str, tuple[str, Marker]] = {
    "dropped_full": ("mark", "cross"),
    "dropped_early": ("mark", "down"),
    "lost": ("mark", "triangle"),
    "purged": ("s2", "diamond"),
    "marked": ("s4", "square"),
    "damaged": ("s3", "cross"),
    "reordered": ("s5", "tick"),
    "duplicated": ("s5", "square"),
}


def sequence(
    title: str, segments: pl.DataFrame, blocks: pl.DataFrame | None = None, arrived: pl.DataFrame | None = None
) -> Figure:
    """Sequence numbers over time at one host: data, acks, receive window, SACK, retransmissions and losses.

    Args:
        title: of the figure.
        segments: SEQUENCE_COLUMNS, `t_s` and `stream` of the flow; `dir` 0 is the direction of its data.
        blocks: SACK blocks, `t_s`, `left` and `right`; without them the acks that carry blocks are marked.
        arrived: `seq`, `payload` and `stream` of the data segments at the receiver, in any order; data segments that
            were sent more often than they arrived are drawn as "never arrived".
    """
    segments = segments.with_columns(pl.col("class").cast(pl.UInt32))
    is_data, is_ack = (pl.col("dir") == 0) & is_a(DATA), (pl.col("dir") == 1) & (pl.col("ack") >= 0)
    data = segments.lazy().filter(is_data).select("t_s", "stream", "seq", "payload", "class").collect()
    again, fast, timeout = is_a(RETRANSMISSION), is_a(FAST_RETRANSMISSION), is_a(TIMEOUT)
    acks = segments.lazy().filter(is_ack).select("t_s", "ack", "window", "class").collect()
    end, acked = pl.col("seq") + pl.col("payload"), pl.col("ack")
    if blocks is None:
        selective = Series("SACK", "points", _kb(acks.filter(is_a(SACK)), acked), "s3", "tick")
    else:
        selective = Series("SACK", "segments", _kb(blocks, pl.col("right"), pl.col("left")), "s3")
    resent = data.filter(again)
    edge = _kb(acks, pl.col("ack") + pl.col("window"))

    def marks(name: str, rows: pl.DataFrame, colour: str, marker: Marker) -> Series:
        return Series(name, "points", _kb(rows, end), colour, marker, 6, keep_all=True)

    series = [
        Series("acknowledged", "steps", _kb(acks, acked), "s2", size=1.2),
        Series("window", "steps", edge, "s7", size=0.8, fits=False),
        Series("data", "segments", _kb(data.filter(~again), end, pl.col("seq")), "s0", size=2),
        selective,
        marks("fast retransmission", resent.filter(fast & ~timeout), "s4", "triangle"),
        marks("timeout retransmission", resent.filter(timeout), "s1", "square"),
        marks("retransmission", resent.filter(~fast & ~timeout), "mark", "diamond"),
        marks("damaged", segments.filter(is_a(BAD_CHECKSUM) & (pl.col("dir") == 0)), "s5", "down"),
    ]
    if arrived is not None:
        series.append(marks("never arrived", _lost(data, arrived), "s6", "cross"))
    shown = tuple(line for line in series if line.points.height)
    return Figure(TIME, Axis("sequence number", "kB"), shown, title)


def stream_data(title: str, data: pl.DataFrame) -> Figure:
    """Data of QUIC's streams over time at one end, by its log, and how much of them the peer has acknowledged.

    Args:
        title: of the figure.
        data: `t_s`, `bytes`, `position` and `again` (qlog.placed); of a sender also `acked_s`.
    """
    end, start, again = pl.col("position") + pl.col("bytes"), pl.col("position"), pl.col("again")
    series = [Series("data", "segments", _kb(data.filter(~again), end, start), "s0", size=2)]
    is_sent = "acked_s" in data.columns
    if is_sent:
        acked = data.filter(pl.col("acked_s").is_not_null()).sort("acked_s", maintain_order=True)
        grown = qlog.in_order(
            acked.select(
                pl.col("acked_s").alias("t_s"),
                pl.lit(0).alias("connection"),
                pl.lit(0).alias("stream_id"),
                start.alias("offset"),
                "bytes",
            )
        )
        series.insert(0, Series("acknowledged", "steps", _kb(grown, pl.col("bytes").cum_sum()), "s2", size=1.2))
    series.append(
        Series(
            "sent again" if is_sent else "late",
            "points",
            _kb(data.filter(again), end),
            "mark",
            "diamond",
            6,
            keep_all=True,
        )
    )
    shown = tuple(line for line in series if line.points.height)
    return Figure(TIME, Axis("data of streams", "kB"), shown, title)


def round_trips(title: str, samples: Mapping[str, pl.DataFrame]) -> Figure:
    """Round-trip samples over time; `t_s` and `rtt_s` by flow."""
    series = tuple(
        Series(name, "points", _xy(rows, pl.col("rtt_s") * 1e3), _colour(number), "circle")
        for number, (name, rows) in enumerate(samples.items())
    )
    return Figure(TIME, Axis("round-trip time", "ms"), series, title)


def outstanding(title: str, steps: Mapping[str, pl.DataFrame]) -> Figure:
    """Bytes sent and not acknowledged over time; `t_s` and `y` by flow."""
    series = tuple(
        Series(name, "steps", _xy(rows, pl.col("y") / 1e3), _colour(number))
        for number, (name, rows) in enumerate(steps.items())
    )
    return Figure(TIME, Axis("outstanding data", "kB"), series, title)


def throughput(
    title: str,
    arriving: Mapping[str, pl.DataFrame],
    delivered: Mapping[str, pl.DataFrame],
    rates: Mapping[str, Sequence[tuple[float, float]]],
    period: tuple[float, float],
    unit: str = "",
) -> Figure:
    """Throughput at the receivers, in steps, with the rates of the lines that limit it.

    Args:
        title: of the figure.
        arriving: `t_s`, the end of a slice, and `bps` by flow: data as it arrives.
        delivered: the same, data as it becomes deliverable in order. It exceeds the line's rate when a hole is filled,
            so the axis makes no room for it beside what arrives.
        rates: from when (s) a line has which rate (bit/s), by line.
        period: that the slices cover, in s.
        unit: "kbit/s" or another rate; the one that suits the values without it.
    """
    shown = [rows["bps"].max() or 0.0 for rows in (arriving or delivered).values()]
    size, unit = (1e3, unit) if unit else axis_scale(shown, "rate")  # type: ignore[arg-type]
    # What was delivered has the colour of what arrived.
    colours = {name: _colour(number) for number, name in enumerate(dict.fromkeys([*arriving, *delivered]))}
    series = [
        Series(name, "steps", _from_ends(rows, period[0], size), colours[name], size=1.6)
        for name, rows in arriving.items()
    ]
    series += [
        Series(
            f"{name}, in order",
            "steps",
            _from_ends(rows, period[0], size),
            colours[name],
            size=1.0,
            dash=(3.0, 2.0) if name in arriving else (),
            fits=name not in arriving,
        )
        for name, rows in delivered.items()
    ]
    for line, changes in rates.items():
        times, values = zip(*changes, strict=True)
        points = pl.DataFrame(
            {"x": [*times, max(period[1], times[-1])], "y": [v / size for v in (*values, values[-1])]}
        )
        series.append(Series(f"rate of {line}", "steps", points, "soft", size=1.0, dash=(8.0, 4.0), reference=True))
    return Figure(TIME, Axis("throughput", unit), tuple(series), title)


def _from_ends(slices: pl.DataFrame, from_s: float, size: float) -> pl.DataFrame:
    """Steps from the starts of slices; the last one ends with a point."""
    times, values = slices["t_s"].to_list(), (slices["bps"] / size).to_list()
    steps = zip([from_s, *times], [*values, *values[-1:]], strict=True) if times else ()
    return pl.DataFrame(list(steps), schema={"x": pl.Float64, "y": pl.Float64}, orient="row")


def utilisation(title: str, shares: Mapping[str, pl.DataFrame], warm_up_s: float = 0.0) -> Figure:
    """Utilisation of links; `t_s`, the end of a slice, and `share` by line. The end of the warm-up is marked."""
    series = tuple(
        Series(name, "line", _xy(rows, pl.col("share") * 100), _colour(number), size=1.4)
        for number, (name, rows) in enumerate(shares.items())
    )
    verticals = ((warm_up_s, "end of the warm-up"),) if warm_up_s > 0 else ()
    return Figure(TIME, Axis("utilisation", "%"), series, title, verticals=verticals)


def queue(title: str, lengths: pl.DataFrame, events: Mapping[str, Sequence[float]]) -> Figure:
    """Packets that wait in a queue, the peaks between samples, and what happened to packets there.

    Args:
        title: of the figure.
        lengths: `t_s`, `y`, and `most` since the row before.
        events: times in s, by the event's name.
    """
    peaks = lengths.filter(pl.col("most") > pl.col("y"))
    rising = _xy(peaks, pl.col("most")).with_columns(peaks["y"].cast(pl.Float64).alias("low"))
    series = [Series("peak since the last sample", "segments", rising, "s7", size=1.2)] if peaks.height else []
    series.append(Series("waiting", "steps", _xy(lengths, pl.col("y")), "s0", size=1.4))
    for kind in sorted(events):
        if not len(events[kind]):
            continue
        colour, marker = EVENTS.get(kind, ("mark", "cross"))
        points = pl.DataFrame({"x": list(events[kind]), "y": [0.0] * len(events[kind])})
        series.append(Series(kind.replace("_", " "), "points", points, colour, marker, 6, keep_all=True))
    return Figure(TIME, Axis("queue", "packets"), tuple(series), title)


def queue_delay(title: str, classes: Mapping[str, pl.DataFrame]) -> Figure:
    """Queueing delay over time, as a kernel's queueing discipline reports it; `t_s` and `y` in s by class."""
    series = tuple(
        Series("waiting" if name == ONE_CLASS else name, "steps", _xy(rows, pl.col("y") * 1e3), _colour(number))
        for number, (name, rows) in enumerate(classes.items())
    )
    return Figure(TIME, Axis("queueing delay", "ms"), series, title)


def mark_probability(title: str, classes: Mapping[str, pl.DataFrame]) -> Figure:
    """Probability of a mark or a drop over time, as a kernel's queueing discipline reports it; `t_s`, `y` by class."""
    series = tuple(
        Series("all" if name == ONE_CLASS else name, "steps", _xy(rows, pl.col("y") * 100), _colour(number))
        for number, (name, rows) in enumerate(classes.items())
    )
    return Figure(TIME, Axis("probability of a mark or drop", "%"), series, title)


def congestion_window(title: str, samples: pl.DataFrame, relays: Mapping[str, pl.DataFrame] | None = None) -> Figure:
    """The sender's congestion window and slow-start threshold, as its stack reports them.

    Args:
        title: of the figure.
        samples: `t_s`, `cwnd_segments`, `ssthresh_segments` (null: none yet).
        relays: `t_s` and `cwnd_segments` of the further senders of a split connection, by name.
    """
    series = []
    for name, column, colour, fits in (
        ("cwnd", "cwnd_segments", "s0", True),
        ("ssthresh", "ssthresh_segments", "s1", False),
    ):
        defined = samples.filter(pl.col(column).is_not_null())
        if defined.is_empty():
            continue
        dash = (6.0, 3.0) if name == "ssthresh" else ()
        series.append(Series(name, "steps", _xy(defined, pl.col(column)), colour, dash=dash, fits=fits))
    for number, (name, rows) in enumerate((relays or {}).items()):
        series.append(Series(name, "steps", _xy(rows, pl.col("cwnd_segments")), _colour(2 + number)))
    return Figure(TIME, Axis("window", "segments"), tuple(series), title)


def nothing(why: str) -> Figure:
    """A figure without data, and why there is none."""
    return Figure(TIME, Axis(), (), empty=why)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _xy(frame: pl.DataFrame, y: pl.Expr) -> pl.DataFrame:
    points = frame.select(pl.col("t_s").alias("x"), y.cast(pl.Float64).alias("y"))
    # Captures are in order, except for packets that several interfaces saw at the same instant.
    return points if points["x"].is_sorted() else points.sort("x", maintain_order=True)


def _kb(frame: pl.DataFrame, end: pl.Expr, start: pl.Expr | None = None) -> pl.DataFrame:
    low = [] if start is None else [(start.cast(pl.Float64) / 1e3).alias("low")]
    points = frame.select(pl.col("t_s").alias("x"), (end.cast(pl.Float64) / 1e3).alias("y"), *low)
    return points if points["x"].is_sorted() else points.sort("x", maintain_order=True)


def _lost(data: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
    """Data segments that were sent more often than they arrived; the earliest of equal ones count as lost."""
    # Each connection counts from zero. Laid end to end, every byte of the flow has a number of its own.
    start = pl.lit(0)
    if data["stream"].n_unique() > 1:
        tops = data.group_by("stream").agg((pl.col("seq") + pl.col("payload")).max().alias("top")).sort("stream")
        start = pl.col("stream").replace_strict(tops["stream"], tops["top"].cum_sum() - tops["top"], default=None)
    key = ((pl.col("seq") + start) * (1 << 20) + pl.col("payload")).alias("key")
    # Both columns mostly ascend, which makes a stable sort fast.
    sent, keys = data.with_columns(key), arrived.select(key)["key"].drop_nulls().to_numpy()
    came = pl.Series("key", np.sort(keys, kind="stable"))
    # A segment that was sent once is lost if it never arrived; only those that were sent again have to be counted.
    twice = sent.filter(is_a(RETRANSMISSION))["key"].unique()
    again = sent["key"].is_in(twice.implode())
    once = sent.filter(~again & ~_among(sent["key"], came))
    counted = came.filter(came.is_in(twice.implode())).value_counts(name="came")
    several = sent.filter(again).join(counted, on="key", how="left")
    several = several.sort("t_s", maintain_order=True).with_columns(pl.int_range(pl.len()).over("key").alias("nth"))
    missing = pl.len().over("key").cast(pl.Int64) - pl.col("came").fill_null(0).cast(pl.Int64)
    return pl.concat([once, several.filter(pl.col("nth") < missing).select(once.columns)])


def _among(values: pl.Series, ascending: pl.Series) -> pl.Series:
    """Which of the values an ascending series contains."""
    if ascending.is_empty():
        return pl.repeat(False, values.len(), eager=True)
    searched, sorted_values = values.to_numpy(), ascending.to_numpy()
    at = np.minimum(np.searchsorted(sorted_values, searched), sorted_values.size - 1)
    return pl.Series(sorted_values[at] == searched)
