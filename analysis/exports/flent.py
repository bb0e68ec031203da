"""Flent's data format, read and written (flent.org; flent/resultset.py of Flent 2.1, file format version 4).

A file is JSON, mostly gzipped: `metadata` (what was run; SERIES_META per series with UNITS), `x_values` (s since T0),
`results` (series name to a value for each x, null where there is none), `raw_values` (series name to points of `t`,
s since the epoch, and `val`). Rates are in Mbit/s and times in ms, as Flent has them.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import json
import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis import metrics, slices
from analysis.captures import CapturedFlow, MissingCapture, RunData
from analysis.errors import AnalysisError, writing
from analysis.exchange_kinds import datagrams

VERSION = 4
#: Limit of an unpacked results file.
MOST_BYTES = 1 << 29
#: Versions before 4 hold raw values of these series as they were measured, and not in the series' unit.
_MS_OF_RATE = "UDP"
_MS_OF_S = "HTTP latency"


@dataclass(frozen=True)
class FlentData:
    """A results file."""

    metadata: Mapping[str, Any]
    #: A row for each x: `t_s` since T0, and a column for each series.
    series: pl.DataFrame
    #: A row for each raw point: `series`, `t_s` since the epoch, `value`.
    raw: pl.DataFrame
    #: Series to its unit, "" where untold.
    units: Mapping[str, str]


def read(path: Path) -> FlentData:
    """Reads a results file, of any version up to 4; gzip and bzip2 are recognised by content.

    Raises:
        AnalysisError: it cannot be read, or is not a results file.
    """
    document = _parse(path)
    if not isinstance(document, dict) or not {"metadata", "x_values", "results"} <= document.keys():
        raise AnalysisError(f"{path} is not a Flent results file: it has no metadata, x_values and results")
    version = document.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise AnalysisError(f"{path}: unsupported version {version} of Flent's format (supported: 1 to {VERSION})")
    metadata, xs, results = document["metadata"], document["x_values"], document["results"]
    if not isinstance(metadata, dict) or not isinstance(results, dict) or not isinstance(xs, list):
        raise AnalysisError(f"{path} is not a Flent results file: metadata, x_values or results are of the wrong kind")
    for name, values in results.items():
        if not isinstance(values, list) or len(values) != len(xs):
            raise AnalysisError(f"{path}: series '{name}' does not have a value for each of {len(xs)} x values")
    of_series = metadata.get("SERIES_META") or {}
    raw_values = document.get("raw_values")
    if not raw_values:
        # Version 1 kept them with the series' metadata.
        raw_values = {name: line["RAW_VALUES"] for name, line in of_series.items() if "RAW_VALUES" in line}
    try:
        columns = {"t_s": [float(x) for x in xs]}
        columns |= {
            name: [None if value is None else float(value) for value in values] for name, values in results.items()
        }
        frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))
        rows = [row for name, points in raw_values.items() for row in _raw(name, points, version)]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise AnalysisError(f"{path}: a value is not a number: {error}") from None
    raw = pl.DataFrame(rows, schema={"series": pl.String, "t_s": pl.Float64, "value": pl.Float64}, orient="row")
    units = {name: str((of_series.get(name) or {}).get("UNITS") or "") for name in results}
    return FlentData(metadata, frame, raw, units)


def _parse(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            begins = stream.read(3)
        opener: Any = gzip.open if begins[:2] == b"\x1f\x8b" else bz2.open if begins == b"BZh" else open
        with opener(path, "rb") as stream:
            text = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise AnalysisError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > MOST_BYTES:
        raise AnalysisError(f"{path} is not a Flent results file: it holds more than {MOST_BYTES >> 20} MiB")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnalysisError(f"{path} is not a Flent results file: {error}") from None


def _raw(name: str, points: list[Mapping[str, Any]], version: int) -> list[tuple[str, float, float]]:
    rows = []
    for point in points:
        if point.get("t") is None or point.get("val") is None:
            continue
        value = float(point["val"])
        if version < 4 and _MS_OF_RATE in name and "dur" in point:
            value = 1000 / value if value else math.nan
        elif version < 4 and name == _MS_OF_S:
            value *= 1000
        rows.append((name, float(point["t"]), value))
    return rows


def write(run: RunData, path: Path, title: str, step_s: float = 0.2) -> None:
    """Writes a run as Flent would have: throughput at the receivers, round trips and windows at the senders.

    Flows that send as the first one does are its downloads, the others its uploads; test names are Flent's own, so that
    its plots find their series: `tcp_bidirectional`, or `tcp_ndown` when all send one way.

    Args:
        run: its tables.
        path: FILE.flent.gz, or FILE.flent for plain JSON.
        title: its name in Flent's legends.
        step_s: between x values; 0.2 s is Flent's own. Doubled until there are at most `slices.MAX_DENSE` of them. A
            run with more steps has x values only where it has data (analysis/slices.py).

    Raises:
        AnalysisError: no flow was captured, or the file cannot be written.
    """
    document = compose(run, title, step_s)
    text = json.dumps(document, indent=1, sort_keys=True).encode()
    with writing(path):
        # No name and no time inside: equal runs give equal files.
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def compose(run: RunData, title: str, step_s: float = 0.2) -> dict[str, Any]:
    """The document that `write` writes."""
    length_s = run.window_s[1]
    t0_s = run.t0_epoch_ns / 1e9
    names = _series_names(run)
    results: dict[str, list[float | None]] = {}
    raw: dict[str, list[dict[str, float]]] = {}
    meta: dict[str, dict[str, Any]] = {}
    step_s, x_values, series = _grid(run, step_s)
    for flow, suffix, unit, frame in series:
        key = names[flow] if suffix == "" else f"{names[flow]}::{suffix}"
        results[key] = _on_grid(frame, x_values)
        raw[key] = [{"t": t0_s + t_s, "val": value} for t_s, value in frame.iter_rows()]
        samples = [value for value in results[key] if value is not None]
        meta[key] = {"UNITS": unit, "FLOW": flow}
        if samples:
            meta[key] |= {"MEAN_VALUE": math.fsum(samples) / len(samples)}
    if not any(value is not None for values in results.values() for value in values):
        raise AnalysisError("no flow of this run was captured where it is needed: there is nothing to write")
    for way in ("TCP download", "TCP upload"):
        parts = [results[name] for name in names.values() if name.startswith(f"{way}::") and name in results]
        if parts:
            sums = [math.fsum(value or 0.0 for value in at) for at in zip(*parts, strict=True)]
            results[f"{way} sum"] = list(sums)
            results[f"{way} avg"] = [value / len(parts) for value in sums]
            meta |= {f"{way} sum": {"UNITS": "Mbits/s"}, f"{way} avg": {"UNITS": "Mbits/s"}}
    downloads = sum(name.startswith("TCP download") for name in names.values())
    one_way = downloads == len(names)
    began = datetime.datetime.fromtimestamp(t0_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {
        "NAME": "tcp_ndown" if one_way and downloads > 1 else "tcp_bidirectional",
        "TITLE": title,
        "TIME": began,
        "T0": began,
        "LENGTH": length_s,
        "TOTAL_LENGTH": length_s,
        "STEP_SIZE": step_s,
        "HOST": run.flows[0].receiver,
        "HOSTS": sorted({flow.receiver for flow in run.flows}),
        "LOCAL_HOST": run.flows[0].sender,
        "NOTE": "made by Backchannel from captures",
        "IP_VERSION": 4,
        "TEST_PARAMETERS": {"download_streams": str(downloads)},
        "BATCH_NAME": None,
        "BATCH_TIME": None,
        "BATCH_TITLE": None,
        "BATCH_UUID": None,
        "FLENT_VERSION": None,
        "SERIES_META": meta,
        "DATA_FILENAME": None,
        "HTTP_GETTER_URLLIST": None,
        "HTTP_GETTER_DNS": None,
        "HTTP_GETTER_WORKERS": None,
    }
    return {"version": VERSION, "metadata": metadata, "x_values": x_values, "results": results, "raw_values": raw}


def _series_names(run: RunData) -> dict[str, str]:
    """Flow to series: "TCP download", or "TCP download::1", ... where several flows go one way."""
    if not run.flows:
        raise AnalysisError("this run has no flows: there is nothing to write")
    first = run.flows[0]
    opposed = {(after, link, before) for before, link, after in _hops(run, first)}
    opposed.add((first.receiver, "", first.sender))
    downloads: list[str] = []
    uploads: list[str] = []
    for flow in run.flows:
        against = opposed.intersection([*_hops(run, flow), (flow.sender, "", flow.receiver)])
        (uploads if against else downloads).append(flow.name)
    names: dict[str, str] = {}
    for way, names_of_way in (("TCP download", downloads), ("TCP upload", uploads)):
        names |= {name: way if len(names_of_way) == 1 else f"{way}::{at + 1}" for at, name in enumerate(names_of_way)}
    return names


def _hops(run: RunData, flow: CapturedFlow) -> list[tuple[str, str, str]]:
    """(node, link, next node) of a flow's data; without the scenario's links, of an imported run, none."""
    return run.all_lines[0].path(flow) if run.all_lines else []


#: Flow, suffix, unit, frame of time and value, which holds until the next.
_Series = tuple[str, str, str, pl.DataFrame]


def _grid(run: RunData, step_s: float) -> tuple[float, list[float], list[_Series]]:
    """The step that keeps the x values few enough, the x values, and the series."""
    while True:
        count = slices.count(0.0, run.window_s[1], step_s) + 1
        dense = count <= slices.MAX_DENSE
        series = [line for flow in run.flows for line in _of_flow(flow, step_s, dense)]
        times_s = pl.concat([pl.Series("t_s", [], pl.Float64), *(frame["t_s"] for *_, frame in series)])
        occupied = ((times_s - _ROUNDING_S) / step_s).ceil()
        listed = slices.listed_slices(occupied.filter((occupied >= 0) & (occupied < count)), count)
        if listed.len() <= slices.MAX_DENSE:
            return step_s, [number * step_s for number in listed.to_list()], series
        step_s *= 2


def _of_flow(flow: CapturedFlow, step_s: float, dense: bool) -> list[_Series]:
    """A flow's throughput, round-trip times and congestion window, as far as they were captured.

    Args:
        flow: the flow.
        step_s: between x values.
        dense: whether every step is listed; otherwise slices are one step long.
    """
    series: list[_Series] = []
    with suppress(MissingCapture):
        width_s = flow.slice_s(step_s) if dense else step_s
        # A slice of several steps holds from its first step on.
        of_step = [pl.col("t_s") - width_s + step_s, pl.col("bps") / 1e6]
        series.append((flow.name, "", "Mbits/s", flow.throughput_over_time(width_s).select(of_step)))
        if flow.spec.kind not in datagrams():
            series.append((flow.name, "in_order", "Mbits/s", flow.delivery_over_time(width_s).select(of_step)))
    with suppress(MissingCapture):
        samples = metrics.rtt_samples(flow)
        series.append((flow.name, "tcp_rtt", "ms", samples.select("t_s", pl.col("rtt_s") * 1e3)))
    with suppress(MissingCapture):
        windows = flow.telemetry.filter(pl.col("cwnd_segments").is_not_null())
        series.append((flow.name, "tcp_cwnd", "", windows.select("t_s", "cwnd_segments")))
    return series


#: Allowance for rounding of the times at the ends of slices.
_ROUNDING_S = 1e-9


def _on_grid(frame: pl.DataFrame, x_values: Sequence[float]) -> list[float | None]:
    """A value for each x: the last one up to it, or None."""
    times_s, values = (column.to_list() for column in frame.get_columns())
    before = (bisect_right(times_s, x + _ROUNDING_S) for x in x_values)
    return [values[at - 1] if at else None for at in before]
