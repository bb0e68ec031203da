"""Series for plots, from a run's tables and telemetry: {"series": [{"name", "style", "x", "y"}], "y": axis title}.

Long series are thinned: the time in view is cut into slices, and of each the first, the last, the least and greatest
value stay, so that no peak ever vanishes. Marks (what was sent again, dropped, purged) are what people look for: all of
those in view stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis.metrics import DATA, RETRANSMISSION, Flow, MissingCapture, RunData


@dataclass(frozen=True)
class View:
    """The part of a run that is looked at, in s, and how many points a series may have."""

    from_s: float
    to_s: float
    points: int


def thin(frame: pl.DataFrame, view: View, all_stay: bool = False) -> pl.DataFrame:
    """A frame of `x` (sorted) and `y` within the view, thinned to about its number of points unless all are to stay.

    The points next to the view on either side stay, so that lines run to its edges.
    """
    inside = frame.filter((pl.col("x") >= view.from_s) & (pl.col("x") <= view.to_s))
    before = frame.filter(pl.col("x") < view.from_s).tail(1)
    after = frame.filter(pl.col("x") > view.to_s).head(1)
    if inside.height > view.points and not all_stay:
        slices = max(view.points // 4, 1)
        width = (view.to_s - view.from_s) / slices or 1.0
        numbered = inside.with_row_index("row").with_columns(
            ((pl.col("x") - view.from_s) / width).floor().alias("slice")
        )
        kept = numbered.group_by("slice").agg(
            pl.col("row").first().alias("a"),
            pl.col("row").last().alias("b"),
            pl.col("row").get(pl.col("y").arg_min()).alias("c"),
            pl.col("row").get(pl.col("y").arg_max()).alias("d"),
        )
        rows = pl.concat([kept[name] for name in "abcd"]).unique().sort()
        inside = inside[rows.to_list()]
    return pl.concat([before, inside, after])


def sequence(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """Sequence numbers over time as the sender saw them: data, what was sent again, and acks. In kB."""
    flow = _flow(folder, run, flow_name)
    if flow is None:
        return _nothing("this flow was not captured at its sender")
    try:
        segments = flow.at_sender
    except MissingCapture as error:
        return _nothing(str(error))
    data = segments.filter((pl.col("dir") == 0) & (pl.col("class") & DATA != 0))
    again = pl.col("class") & RETRANSMISSION != 0
    acks = segments.filter((pl.col("dir") == 1) & (pl.col("ack") >= 0))
    end = (pl.col("seq") + pl.col("payload")) / 1e3
    return {
        "y": "sequence number (kB)",
        "series": [
            _series("acknowledged", "steps", _xy(acks, pl.col("ack") / 1e3), view),
            _series("data", "dots", _xy(data.filter(~again), end), view),
            _series("retransmitted", "marks", _xy(data.filter(again), end), view),
        ],
    }


def throughput(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """Throughput at the receiver over time: bytes in order per slice of a hundredth of the run, in kbit/s."""
    width_s = max(float(run["duration_s"]) / 100, 0.01)
    result = []
    for flow in _data(folder, run).flows:
        if flow_name and flow.name != flow_name:
            continue
        try:
            data = flow.at_receiver.filter(pl.col("dir") == 0)
        except MissingCapture:
            continue
        slices = pl.DataFrame({"slice": pl.int_range(0, int(float(run["duration_s"]) / width_s) + 1, eager=True)})
        ends = data.group_by((pl.col("t_s") / width_s).floor().cast(pl.Int64).alias("slice")).agg(
            pl.col("in_order").max()
        )
        filled = (
            slices.join(ends, on="slice", how="left", maintain_order="left")
            .with_columns(pl.col("in_order").forward_fill().fill_null(0))
            .with_columns((pl.col("in_order").diff().fill_null(pl.col("in_order")) * 8 / width_s / 1e3).alias("y"))
            .with_columns(((pl.col("slice") + 1) * width_s).alias("x"))
            .select("x", "y")
        )
        result.append(_series(flow.name, "line", filled, view))
    return {"y": "throughput (kbit/s)", "series": result}


def queue(folder: Path, run: Mapping[str, Any], name: str, view: View) -> dict[str, Any]:
    """Packets waiting in a queue over time ("link/direction"), and what was dropped or purged there."""
    link, _, direction = name.rpartition("/")
    lengths, events = [], []
    path = folder / "telemetry" / "links.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        if (row["link"], row["direction"]) != (link, direction) or "part" in row:
            continue
        if "event" in row:
            events.append((row["t_ns"] / 1e9, row["event"]))
        else:
            # The peak since the last line, then what it is now.
            lengths += [(row["t_ns"] / 1e9, float(row["max"])), (row["t_ns"] / 1e9, float(row["packets"]))]
    frame = pl.DataFrame(lengths, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
    result = [_series("waiting", "steps", frame, view)]
    for kind in sorted({kind for _, kind in events}):
        at = pl.DataFrame({"x": [t for t, one in events if one == kind]}, schema={"x": pl.Float64}).with_columns(
            pl.lit(0.0).alias("y")
        )
        result.append(_series(kind.replace("_", " "), "marks", at, view))
    return {"y": "packets", "series": result}


def cwnd(folder: Path, run: Mapping[str, Any], flow_name: str, view: View) -> dict[str, Any]:
    """The sender's congestion window and slow-start threshold over time, as its kernel told them every 50 ms.

    With them, the window of a split connection's further part that carries the flow's data.
    """
    spec = next((one for one in run["scenario"]["workload"] if one["name"] == flow_name), None)
    path = folder / "telemetry" / f"{flow_name}.jsonl"
    if spec is None or not path.exists():
        return _nothing("this flow left no telemetry")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    start_s = float(spec.get("start_s", 0.0))
    result = []
    for name, key in (("cwnd", "cwnd_segments"), ("ssthresh", "ssthresh_segments")):
        pairs = [(row["t_ns"] / 1e9 + start_s, float(row[key])) for row in rows if row.get(key) is not None]
        frame = pl.DataFrame(pairs, schema={"x": pl.Float64, "y": pl.Float64}, orient="row")
        result.append(_series(name, "steps", frame, view))
    for name, frame in _parts(folder, int(spec["port"])):
        result.append(_series(name, "steps", frame, view))
    return {"y": "segments", "series": result}


def _parts(folder: Path, port: int) -> list[tuple[str, pl.DataFrame]]:
    """Windows of the senders in the network whose data go to this port, by the name of their part."""
    path = folder / "telemetry" / "links.jsonl"
    found: dict[str, list[tuple[float, float]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if '"part"' not in line:
            continue
        row = json.loads(line)
        if row["to"].endswith(f":{port}"):
            found.setdefault(f"cwnd, {row['part']} part", []).append((row["t_ns"] / 1e9, float(row["cwnd_segments"])))
    schema = {"x": pl.Float64, "y": pl.Float64}
    return [(name, pl.DataFrame(pairs, schema=schema, orient="row")) for name, pairs in sorted(found.items())]


Kind = Callable[[Path, Mapping[str, Any], str, View], dict[str, Any]]
KINDS: Mapping[str, Kind] = {"sequence": sequence, "throughput": throughput, "queue": queue, "cwnd": cwnd}


def _data(folder: Path, run: Mapping[str, Any]) -> RunData:
    return RunData.load(folder, run["scenario"], run["manifest"]["report"])


def _flow(folder: Path, run: Mapping[str, Any], name: str) -> Flow | None:
    return next((flow for flow in _data(folder, run).flows if flow.name == name), None)


def _xy(frame: pl.DataFrame, y: pl.Expr) -> pl.DataFrame:
    return frame.select(pl.col("t_s").alias("x"), y.cast(pl.Float64).alias("y")).sort("x", maintain_order=True)


def _series(name: str, style: str, frame: pl.DataFrame, view: View) -> dict[str, Any]:
    thinned = thin(frame, view, all_stay=style == "marks")
    return {"name": name, "style": style, "x": thinned["x"].round(6).to_list(), "y": thinned["y"].round(3).to_list()}


def _nothing(why: str) -> dict[str, Any]:
    return {"y": "", "series": [], "note": why}
