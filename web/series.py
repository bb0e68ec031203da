"""Series for plots, from a run's tables and telemetry: {"series": [{"name", "style", "ink", "x", "y"}], "y": title}.

Long series are thinned (analysis/thinning.py). Marks (what was sent again, dropped, purged) are what people look for:
all of those in view stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis.metrics import DATA, RETRANSMISSION, MissingCapture
from analysis.thinning import View, thin
from web import tables

FAST, SACK, TIMEOUT, DAMAGED = 1 << 2, 1 << 11, 1 << 13, 1 << 21


def sequence(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """Sequence numbers over time at the sender: data, acks, the window; what was sent again and what never arrived."""
    return _sequence(folder, run, flow_name, view, receiver=False)


def received(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """The same at the receiver."""
    return _sequence(folder, run, flow_name, view, receiver=True)


def _sequence(folder: Path, run: Mapping[str, Any], flow_name: str, view: View, receiver: bool) -> dict[str, Any]:
    try:
        key = (str(folder), "sequence", flow_name, receiver)
        whole = tables.derived(key, lambda: _sequences(folder, run, flow_name, receiver), _size)
    except MissingCapture as error:
        return _nothing(str(error))
    found = [_series(name, style, frame, view, ink) for name, style, ink, frame in whole]
    return {"y": "sequence number (kB)", "series": [one for one in found if one["x"]]}


#: Name, style, ink, and all of the points.
Whole = list[tuple[str, str, str, pl.DataFrame]]


def _size(whole: Whole) -> int:
    return sum(int(frame.estimated_size()) for _, _, _, frame in whole)


def _sequences(folder: Path, run: Mapping[str, Any], flow_name: str, receiver: bool) -> Whole:
    columns = ("dir", "seq", "payload", "ack", "window", "class")
    segments = tables.flow(folder, run, flow_name, receiver, columns).with_columns(pl.col("class").cast(pl.UInt32))
    is_data, is_ack = (pl.col("dir") == 0) & (pl.col("class") & DATA != 0), (pl.col("dir") == 1) & (pl.col("ack") >= 0)
    data = segments.lazy().filter(is_data).select("t_s", "stream", "seq", "payload", "class").collect()
    again, fast, timeout, damaged = (pl.col("class") & bit != 0 for bit in (RETRANSMISSION, FAST, TIMEOUT, DAMAGED))
    acks = segments.lazy().filter(is_ack).select("t_s", "ack", "window", "class").collect()
    end, acked = (pl.col("seq") + pl.col("payload")) / 1e3, pl.col("ack") / 1e3
    blocks = tables.sacks(folder, run, flow_name, receiver)
    sack = ("SACK", "dots", "s3", _xy(acks.filter(pl.col("class") & SACK != 0), acked))
    if blocks is not None:
        sack = ("SACK", "bars", "s3", blocks)
    resent = data.filter(again)
    found = [
        ("acknowledged", "steps", "s2", _xy(acks, acked)),
        ("data", "dots", "s0", _xy(data.filter(~again), end)),
        sack,
        ("fast retransmission", "marks", "s4", _xy(resent.filter(fast & ~timeout), end)),
        ("timeout retransmission", "marks", "s1", _xy(resent.filter(timeout), end)),
        ("retransmission", "marks", "mark", _xy(resent.filter(~fast & ~timeout), end)),
        ("damaged", "marks", "s5", _xy(segments.filter(damaged & (pl.col("dir") == 0)), end)),
    ]
    window = acks.with_columns((pl.col("ack") + pl.col("window")).alias("edge"))
    found.insert(1, ("window", "steps", "s7", _xy(window, pl.col("edge") / 1e3)))
    if not receiver:
        lost = _lost(folder, run, flow_name, data)
        if lost is not None:
            found.append(("never arrived", "marks", "s6", _xy(lost, end)))
    return found


def _lost(folder: Path, run: Mapping[str, Any], flow_name: str, data: pl.DataFrame) -> pl.DataFrame | None:
    """Data segments that were sent more often than they came to the receiver: the earliest of them count as lost."""
    is_data = (pl.col("dir") == 0) & (pl.col("payload") > 0)
    try:
        there = tables.unordered(folder, run, flow_name, True, ("seq", "payload"), is_data)
    except MissingCapture:
        return None
    # Each connection counts from zero; laid one behind the other, every byte of the flow has a place of its own.
    start = pl.lit(0)
    if not (data["stream"] == data["stream"].first()).all():
        tops = data.group_by("stream").agg((pl.col("seq") + pl.col("payload")).max().alias("top")).sort("stream")
        start = pl.col("stream").replace_strict(tops["stream"], tops["top"].cum_sum() - tops["top"], default=None)
    # A segment is told by where it begins and its length.
    key = ((pl.col("seq") + start) * (1 << 20) + pl.col("payload")).alias("key")
    # They mostly ascend as they are: a stable sort takes that for done.
    sent, arrived = data.with_columns(key), there.select(key)["key"].drop_nulls().to_numpy()
    came = pl.Series("key", np.sort(arrived, kind="stable"))
    # What was sent once is lost when it never came; only the few that were sent again have to be counted.
    twice = sent.filter(pl.col("class") & RETRANSMISSION != 0)["key"].unique()
    again = sent["key"].is_in(twice.implode())
    once = sent.filter(~again & ~_among(sent["key"], came))
    counted = came.filter(came.is_in(twice.implode())).value_counts(name="came")
    several = sent.filter(again).join(counted, on="key", how="left")
    several = several.sort("t_s", maintain_order=True).with_columns(pl.int_range(pl.len()).over("key").alias("nth"))
    missing = pl.len().over("key").cast(pl.Int64) - pl.col("came").fill_null(0).cast(pl.Int64)
    return pl.concat([once, several.filter(pl.col("nth") < missing).select(once.columns)])


def _among(values: pl.Series, ascending: pl.Series) -> pl.Series:
    """Which of the values an ascending series holds: by halving, as what mostly ascends is found soonest."""
    if ascending.is_empty():
        return pl.repeat(False, values.len(), eager=True)
    wanted, there = values.to_numpy(), ascending.to_numpy()
    at = np.minimum(np.searchsorted(there, wanted), there.size - 1)
    return pl.Series(there[at] == wanted)


def rtt(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """Round-trip samples of the sender's data over time, in ms; by Karn's rule none of what was sent again."""

    def make() -> Whole:
        of_ack = (pl.col("dir") == 1) & pl.col("rtt_ns").is_not_null()
        samples = tables.flow(folder, run, flow_name, False, ("rtt_ns",), of_ack)
        return [("round trip", "dots", "s0", _xy(samples, pl.col("rtt_ns") / 1e6))]

    try:
        whole = tables.derived((str(folder), "rtt", flow_name), make, _size)
    except MissingCapture as error:
        return _nothing(str(error))
    return {
        "y": "round trip (ms)",
        "series": [_series(name, style, frame, view, ink) for name, style, ink, frame in whole],
    }


def throughput(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """Throughput at the receiver over time: bytes in order per slice of a hundredth of the run, in kbit/s."""

    def make() -> Whole:
        return [
            (flow.name, "line", f"s{number % 8}", _throughput(folder, run, flow.name))
            for number, flow in enumerate(tables.flows(folder, run, flow_name))
        ]

    whole = tables.derived((str(folder), "throughput", flow_name), make, _size)
    return {
        "y": "throughput (kbit/s)",
        "series": [_series(name, style, frame, view, ink) for name, style, ink, frame in whole],
    }


def _throughput(folder: Path, run: Mapping[str, Any], flow_name: str) -> pl.DataFrame:
    width_s = max(float(run["duration_s"]) / 100, 0.01)
    data = tables.flow(folder, run, flow_name, True, ("in_order",), pl.col("dir") == 0)
    slices = pl.DataFrame({"slice": pl.int_range(0, int(float(run["duration_s"]) / width_s) + 1, eager=True)})
    # Each connection counts from its own beginning.
    reached = data.group_by((pl.col("t_s") / width_s).floor().cast(pl.Int64).alias("slice"), "stream").agg(
        pl.col("in_order").max()
    )
    grown = (
        reached.sort("stream", "slice")
        .with_columns((pl.col("in_order").cum_max()).over("stream").alias("top"))
        .with_columns((pl.col("top") - pl.col("top").shift(1, fill_value=0)).over("stream").alias("bytes"))
        .group_by("slice")
        .agg(pl.col("bytes").sum())
    )
    return (
        slices.join(grown, on="slice", how="left", maintain_order="left")
        .with_columns((pl.col("bytes").fill_null(0) * 8 / width_s / 1e3).alias("y"))
        .with_columns(((pl.col("slice") + 1) * width_s).alias("x"))
        .select("x", "y")
    )


def queue(folder: Path, run: Mapping[str, Any], name: str, view: View) -> dict[str, Any]:
    """Packets waiting in a queue over time ("link/direction"), and what was dropped or purged there."""
    link, _, direction = name.rpartition("/")
    lengths, events = [], []
    for row in tables.telemetry(folder, "links"):
        if (row["link"], row["direction"]) != (link, direction) or "part" in row:
            continue
        if "event" in row:
            events.append((row["t_ns"] / 1e9, row["event"]))
        else:
            # The peak since the last line, then what it is now.
            lengths += [(row["t_ns"] / 1e9, float(row["max"])), (row["t_ns"] / 1e9, float(row["packets"]))]
    if not lengths and not events:
        return _nothing("this run kept no samples of its lines")
    frame = pl.DataFrame(lengths, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
    result = [_series("waiting", "steps", frame, view, "s0")]
    for kind in sorted({kind for _, kind in events}):
        at = pl.DataFrame({"x": [t for t, one in events if one == kind]}, schema={"x": pl.Float64}).with_columns(
            pl.lit(0.0).alias("y")
        )
        result.append(_series(kind.replace("_", " "), "marks", at, view, EVENT_INKS.get(kind, "mark")))
    return {"y": "packets", "series": result}


#: What a policy takes out on purpose is no loss, and looks otherwise.
EVENT_INKS = {"purged": "s2", "marked": "s4", "damaged": "s3", "reordered": "s5", "duplicated": "s5"}


def cwnd(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """The sender's congestion window and slow-start threshold over time, in its own words.

    With them, the window of a split connection's further part that carries the flow's data.
    """
    spec = next((one for one in run["scenario"]["workload"] if one["name"] == flow_name), None)
    rows = tables.telemetry(folder, flow_name) if spec is not None else []
    if spec is None or not rows:
        return _nothing("this flow left no telemetry")
    # Its samples count from the flow's start.
    start_s = float(spec.get("start_s", 0.0))
    result = []
    for name, key, ink in (("cwnd", "cwnd_segments", "s0"), ("ssthresh", "ssthresh_segments", "s1")):
        pairs = [(row["t_ns"] / 1e9 + start_s, float(row[key])) for row in rows if row.get(key) is not None]
        frame = pl.DataFrame(pairs, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
        result.append(_series(name, "steps", frame, view, ink))
    for number, (name, frame) in enumerate(_parts(folder, int(spec["port"]))):
        result.append(_series(name, "steps", frame, view, f"s{2 + number % 6}"))
    return {"y": "segments", "series": result}


def _parts(folder: Path, port: int) -> list[tuple[str, pl.DataFrame]]:
    """Windows of the senders in the network whose data go to this port, by the name of their part."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in tables.telemetry(folder, "links"):
        if "part" not in row:
            continue
        if row["to"].endswith(f":{port}"):
            found.setdefault(f"cwnd, {row['part']} part", []).append((row["t_ns"] / 1e9, float(row["cwnd_segments"])))
    schema = {"x": pl.Float64, "y": pl.Float64}
    return [(name, pl.DataFrame(pairs, schema=schema, orient="row")) for name, pairs in sorted(found.items())]


Kind = Callable[[Path, Mapping[str, Any], str, View], dict[str, Any]]
KINDS: Mapping[str, Kind] = {
    "sequence": sequence, "received": received, "throughput": throughput, "rtt": rtt, "queue": queue, "cwnd": cwnd,
}  # fmt: skip


def _xy(frame: pl.DataFrame, y: pl.Expr) -> pl.DataFrame:
    points = frame.select(pl.col("t_s").alias("x"), y.cast(pl.Float64).alias("y"))
    # Captures are in order but for what several interfaces saw at once.
    return points if points["x"].is_sorted() else points.sort("x", maintain_order=True)


def _series(name: str, style: str, frame: pl.DataFrame, view: View, ink: str = "s0") -> dict[str, Any]:
    thinned = thin(frame, view, all_stay=style == "marks")
    if style in ("line", "steps"):
        thinned = _with_edges(thinned, view, style)
    if style == "bars":
        # From its left to its right edge, then a gap.
        flat = [[t, t, t] for t in thinned["x"].round(6)]
        edges = zip(thinned["from"].round(3), thinned["y"].round(3), strict=True)
        x, y = [t for three in flat for t in three], [edge for low, high in edges for edge in (low, high, None)]
        return {"name": name, "style": style, "ink": ink, "x": x, "y": y}
    x, y = thinned["x"].round(6).to_list(), thinned["y"].round(3).to_list()
    return {"name": name, "style": style, "ink": ink, "x": x, "y": y}


def _with_edges(frame: pl.DataFrame, view: View, style: str) -> pl.DataFrame:
    """A line with points of its own at both edges of the view: between two samples there is a line as well."""
    edges = []
    for edge in (float(view.from_s), float(view.to_s)):
        before, after = frame.filter(pl.col("x") < edge).tail(1), frame.filter(pl.col("x") > edge).head(1)
        if before.is_empty() or after.is_empty() or (frame["x"] == edge).any():
            continue
        (x0, y0), (x1, y1) = before.select("x", "y").row(0), after.select("x", "y").row(0)
        edges.append({"x": edge, "y": y0 if style == "steps" else y0 + (y1 - y0) * (edge - x0) / (x1 - x0)})
    if not edges:
        return frame
    return pl.concat([frame.select("x", "y"), pl.DataFrame(edges)]).sort("x", maintain_order=True)


def _nothing(why: str) -> dict[str, Any]:
    return {"y": "", "series": [], "note": why}
