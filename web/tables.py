"""A run's tables: of millions of segments, only the columns and rows that a plot needs are read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from cachetools import LRUCache

from analysis.captures import CapturedFlow, MissingCapture, RunData, read_connections
from analysis.store.rows import RunRow
from testbed.report import InterfaceReport

T = TypeVar("T")

#: Bytes of what is made from tables that are kept, over all runs. Each counts for LEAST_BYTES at least.
MOST_BYTES, LEAST_BYTES = 500_000_000, 10_000_000

_derived: LRUCache[Hashable, tuple[Any, int]] = LRUCache(MOST_BYTES, getsizeof=lambda entry: entry[1])
_making: dict[Hashable, Future[Any]] = {}
_lock = threading.Lock()


def interface(
    folder: Path, run: RunRow, node: str, link: str, columns: Sequence[str], from_s: float, to_s: float
) -> RunData:
    """What metrics see of a run, with what passed the interface of a node on a link during a period.

    Raises:
        MissingCapture: the run has no tables, or nothing was captured there.
    """
    data = without_segments(folder, run)
    files = _files(data, [end for end in data.interfaces if end.node == node and end.link == link])
    here = _scan(folder).filter(pl.col("file").is_in(files), _during(data, from_s, to_s))
    return _with(data, here.select("file", "conn", "time_ns", *columns).collect())


def flow(
    folder: Path,
    run: RunRow,
    name: str,
    receiver: bool,
    columns: Sequence[str],
    where: pl.Expr | bool = True,
    period: tuple[float, float] | None = None,
) -> pl.DataFrame:
    """A flow's segments at its sender, or its receiver, in order of time, with `t_s` and `stream`.

    Args:
        folder: of the run.
        run: as the store gives it.
        name: of the flow.
        receiver: at whose interfaces.
        columns: of segments.parquet, which are read beside.
        where: which rows.
        period: from when to when, in s; all of them without it.

    Raises:
        MissingCapture: nothing was captured there, or there is no such flow.
    """
    data = without_segments(folder, run)
    within = True if period is None else _during(data, *period)
    t_s = ((pl.col("time_ns") - data.t0_epoch_ns) / 1e9).alias("t_s")
    frame = _rows(data, folder, name, receiver, where, within, [*columns, t_s])
    # A node with several interfaces sees a connection's two directions on different ones, or all on one.
    return frame if frame["t_s"].is_sorted() else frame.sort("t_s", maintain_order=True)


def unordered(
    folder: Path, run: RunRow, name: str, receiver: bool, columns: Sequence[str], where: pl.Expr
) -> pl.DataFrame:
    """The same without `t_s` and in no order, to be counted."""
    return _rows(without_segments(folder, run), folder, name, receiver, where, True, columns)


def _rows(
    data: RunData,
    folder: Path,
    name: str,
    receiver: bool,
    where: pl.Expr | bool,
    within: pl.Expr | bool,
    columns: Sequence[str | pl.Expr],
) -> pl.DataFrame:
    flow = next((flow for flow in data.flows if flow.name == name), None)
    if flow is None:
        raise MissingCapture(f"this run has no flow {name}")
    node = flow.receiver if receiver else flow.sender
    files = _files(data, [end for end in data.interfaces if end.node == node])
    connections = flow.connections.filter(pl.col("file").is_in(files)).select("file", "conn", "stream")
    rows = _scan(folder).filter(
        pl.col("file").is_in(connections["file"].unique().to_list()),
        pl.col("conn").is_in(connections["conn"].unique().to_list()),
        where,
        within,
    )
    if connections.height == 1:
        return rows.select(*columns).collect().with_columns(pl.lit(connections["stream"][0], pl.UInt32).alias("stream"))
    more = [column for column in columns if isinstance(column, pl.Expr) or column not in ("file", "conn")]
    frame = rows.select("file", "conn", *more).collect()
    # Only pairs are the flow's: captures number their connections each for itself.
    return frame.join(_typed(connections, frame), on=["file", "conn"], how="inner", maintain_order="left")


def sightings(
    folder: Path, run: RunRow, name: str, stream: int, seq: int, payload: int
) -> dict[tuple[str, str], list[float]]:
    """Where a data segment of a flow was captured: (node, link) to its times in s, ascending, in all of its copies.

    An interface that was captured and never saw it has no times.
    """
    data = without_segments(folder, run)
    flow = next(flow for flow in data.flows if flow.name == name)
    connections = flow.connections.filter(pl.col("stream") == stream).select("file", "conn")
    mine = (pl.col("dir") == 0) & (pl.col("seq") == seq) & (pl.col("payload") == payload)
    rows = _scan(folder).filter(mine).select("file", "conn", "time_ns").collect()
    kept = rows.join(_typed(connections, rows), on=["file", "conn"], how="semi").sort("time_ns")
    times: dict[int, list[float]] = {}
    for file, time_ns in kept.select("file", "time_ns").iter_rows():
        times.setdefault(file, []).append((time_ns - data.t0_epoch_ns) / 1e9)
    return {
        (end.node, end.link): times.get(data.files[end.interface], [])
        for end in data.interfaces
        if end.interface in data.files
    }


def flows(folder: Path, run: RunRow) -> list[CapturedFlow]:
    """Flows that were captured at their receivers."""
    flows_ = []
    try:
        data = without_segments(folder, run)
    except MissingCapture:
        return []
    for flow in data.flows:
        captured = {end.interface for end in data.interfaces if end.node == flow.receiver}
        if captured & set(data.files):
            flows_.append(flow)
    return flows_


def sacks(folder: Path, run: RunRow, name: str, receiver: bool) -> pl.DataFrame | None:
    """SACK blocks that a flow's receiver sent: `t_s`, `left` and `right` in bytes; None without a table of them."""
    path = folder / "sacks.parquet"
    if not path.is_file():
        return None
    data = without_segments(folder, run)
    flow = next(flow for flow in data.flows if flow.name == name)
    node = flow.receiver if receiver else flow.sender
    files = _files(data, [end for end in data.interfaces if end.node == node])
    where = flow.connections.filter(pl.col("file").is_in(files)).select("file", "conn").unique()
    rows = pl.scan_parquet(path).filter(pl.col("dir") == 1).collect()
    blocks = rows.join(_typed(where, rows), on=["file", "conn"], how="semi")
    return blocks.select(((pl.col("time_ns") - data.t0_epoch_ns) / 1e9).alias("t_s"), "left", "right").sort(
        "t_s", maintain_order=True
    )


def blocks_of(folder: Path, segments: pl.DataFrame) -> dict[tuple[int, int], list[list[int]]]:
    """SACK blocks of single segments, by their `file` and `frame`: [left edge, right edge] each, in their order."""
    path = folder / "sacks.parquet"
    if segments.is_empty() or not path.is_file():
        return {}
    here = pl.col("frame").is_between(segments["frame"].min(), segments["frame"].max())
    rows = pl.scan_parquet(path).filter(here).select("file", "frame", "left", "right").collect()
    blocks: dict[tuple[int, int], list[list[int]]] = {}
    for file, frame, left, right in rows.iter_rows():
        blocks.setdefault((file, frame), []).append([left, right])
    return blocks


def derived(key: tuple[Any, ...], make: Callable[[], T], size: Callable[[T], int]) -> T:
    """What was made from a run's tables, made if it is missing; the key begins with the run's folder.

    A landed run never changes; a run that was repeated has tables with another time. A request for something that is
    being made waits for it.
    """
    tables = [Path(key[0]) / name for name in ("segments.parquet", "counters.json")]
    dated = (*key, *(path.stat().st_mtime_ns for path in tables if path.exists()))
    with _lock:
        if dated in _derived:
            value: T = _derived[dated][0]
            return value
        theirs = _making.get(dated)
        if theirs is None:
            mine = _making[dated] = Future()
    if theirs is not None:
        waited: T = theirs.result()
        return waited
    try:
        made = make()
    except BaseException as error:
        with _lock:
            del _making[dated]
        mine.set_exception(error)
        raise
    with _lock:
        # A value larger than the whole cache is computed again each time.
        if (bytes_ := max(size(made), LEAST_BYTES)) <= MOST_BYTES:
            _derived[dated] = made, bytes_
        del _making[dated]
    mine.set_result(made)
    return made


def telemetry(folder: Path, name: str) -> list[dict[str, Any]]:
    """The samples that a flow's sender (or "links") wrote down; without the file, none."""
    path = folder / "telemetry" / f"{name}.jsonl"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _typed(keys: pl.DataFrame, like: pl.DataFrame) -> pl.DataFrame:
    """Keys as another table has them: two tables need not number alike."""
    return keys.cast({name: like.schema[name] for name in ("file", "conn")})


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(folder / "segments.parquet")


def _during(data: RunData, from_s: float, to_s: float) -> pl.Expr:
    """Whole numbers of ns, so that the reader can pass over what lies outside."""
    return pl.col("time_ns").is_between(
        data.t0_epoch_ns + int(from_s * 1e9) - 1, data.t0_epoch_ns + int(to_s * 1e9) + 1
    )


def _files(data: RunData, interfaces: Sequence[InterfaceReport]) -> list[int]:
    paths = [data.files[end.interface] for end in interfaces if end.interface in data.files]
    if not paths:
        raise MissingCapture("nothing was captured here: capture.at of the campaign says where")
    return paths


def without_segments(folder: Path, run: RunRow) -> RunData:
    """A run's connections, and which file is whose."""

    def make() -> RunData:
        try:
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            connections = read_connections(folder, run.documents.scenario)
        except OSError:
            raise MissingCapture("this run kept no captures") from None
        return RunData(
            scenario=run.documents.scenario,
            interfaces=run.documents.report.interfaces,
            t0_epoch_ns=run.documents.report.t0_epoch_ns,
            segments=pl.DataFrame(),
            connections=connections,
            files={file["label"]: file["file"] for file in summary["files"]},
        )

    return derived((str(folder), "connections"), make, lambda made: int(made.connections.estimated_size()))


def _with(data: RunData, segments: pl.DataFrame) -> RunData:
    return RunData(data.scenario, data.interfaces, data.t0_epoch_ns, segments, data.connections, data.files)
