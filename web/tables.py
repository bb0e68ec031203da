"""A run's tables, read once and kept while people look at them: only the capture that a plot needs is loaded."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from analysis.metrics import Flow, MissingCapture, RunData

T = TypeVar("T")

#: Rows kept in memory over all runs; a row takes about 80 bytes.
MOST_ROWS = 6_000_000

#: Series made from them that are kept; a flow's take about as much as its capture.
MOST_DERIVED = 6

_kept: OrderedDict[tuple[str, int, tuple[str, ...]], RunData] = OrderedDict()
_derived: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def capture(folder: Path, run: Mapping[str, Any], node: str) -> RunData:
    """What metrics see of a run, with the segments of one node's interfaces alone.

    Raises:
        MissingCapture: the run has no tables, or nothing was captured there.
    """
    return _at(folder, run, tuple(one["interface"] for one in _interfaces(run) if one["node"] == node))


def interface(folder: Path, run: Mapping[str, Any], node: str, link: str) -> RunData:
    """The same for the interface of a node on a link."""
    here = [one["interface"] for one in _interfaces(run) if one["node"] == node and one["link"] == link]
    return _at(folder, run, tuple(here))


def flow(folder: Path, run: Mapping[str, Any], name: str, receiver: bool = False) -> pl.DataFrame:
    """A flow's segments at its sender, or its receiver.

    Raises:
        MissingCapture: nothing was captured there, or there is no such flow.
    """
    spec = next((one for one in run["scenario"]["workload"] if one["name"] == name), None)
    if spec is None:
        raise MissingCapture(f"this run has no flow {name}")
    data = capture(folder, run, spec["to" if receiver else "from"])
    found = next(one for one in data.flows if one.name == name)
    return found.at_receiver if receiver else found.at_sender


def flows(folder: Path, run: Mapping[str, Any], name: str = "") -> list[Flow]:
    """Flows as their receivers' captures show them; those that were not captured are left out."""
    found = []
    for spec in run["scenario"]["workload"]:
        if name and spec["name"] != name:
            continue
        try:
            data = capture(folder, run, spec["to"])
        except MissingCapture:
            continue
        found.append(next(one for one in data.flows if one.name == spec["name"]))
    return found


def sacks(folder: Path, run: Mapping[str, Any], name: str, receiver: bool) -> pl.DataFrame | None:
    """SACK blocks that a flow's receiver sent: `x` (s), `from` and `y` (their edges, kB); None where none are told."""
    path = folder / "sacks.parquet"
    if not path.is_file():
        return None
    spec = next(one for one in run["scenario"]["workload"] if one["name"] == name)
    data = capture(folder, run, spec["to" if receiver else "from"])
    segments = flow(folder, run, name, receiver)
    where = segments.select("file", "conn").unique()
    blocks = pl.scan_parquet(path).filter(pl.col("dir") == 1).collect().join(where, on=["file", "conn"], how="semi")
    return blocks.select(
        ((pl.col("time_ns") - data.t0_epoch_ns) / 1e9).alias("x"),
        (pl.col("left") / 1e3).alias("from"),
        (pl.col("right") / 1e3).alias("y"),
    ).sort("x", maintain_order=True)


def derived(key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What was made from a run's tables, made now if it is not kept; the key begins with the run's folder."""
    path = Path(key[0]) / "segments.parquet"
    whole = (*key, path.stat().st_mtime_ns if path.exists() else 0)
    with _lock:
        if whole in _derived:
            _derived.move_to_end(whole)
            found: T = _derived[whole]
            return found
    made = make()
    with _lock:
        _derived[whole] = made
        while len(_derived) > MOST_DERIVED:
            _derived.popitem(last=False)
    return made


def telemetry(folder: Path, name: str) -> list[dict[str, Any]]:
    """The samples that a flow's sender (or "links") wrote down; without the file, none."""
    path = folder / "telemetry" / f"{name}.jsonl"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _interfaces(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(run["manifest"].get("report", {}).get("interfaces", []))


def _at(folder: Path, run: Mapping[str, Any], names: tuple[str, ...]) -> RunData:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        changed = (folder / "segments.parquet").stat().st_mtime_ns
    except OSError:
        raise MissingCapture("this run kept no captures") from None
    files = {one["label"]: one["file"] for one in summary["files"]}
    numbers = [files[name] for name in names if name in files]
    if not numbers:
        raise MissingCapture("nothing was captured here: capture.at of the campaign says where")
    key = (str(folder), changed, names)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    segments = pl.scan_parquet(folder / "segments.parquet").filter(pl.col("file").is_in(numbers)).collect()
    data = RunData(
        scenario=run["scenario"],
        interfaces=_interfaces(run),
        t0_epoch_ns=int(run["manifest"]["report"]["t0_epoch_ns"]),
        segments=segments,
        connections=pl.read_parquet(folder / "connections.parquet"),
        files=files,
    )
    with _lock:
        _kept[key] = data
        while len(_kept) > 1 and sum(one.segments.height for one in _kept.values()) > MOST_ROWS:
            _kept.popitem(last=False)
    return data
