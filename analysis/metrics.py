"""Metrics of a run, from its captures alone. Each is one function with its formula, unit and source.

A run's data are the tables that `backchannel-node trace` made of its captures (docs/traces.md) and the scenario. Times
are seconds since the run's zero; "at" an interface means in its capture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

RETRANSMISSION = 1 << 1
DATA = 1 << 12


@dataclass(frozen=True)
class RunData:
    """What metrics see of a run."""

    scenario: Mapping[str, Any]
    #: Interfaces of the run's report: node, interface, link, end, address.
    interfaces: Sequence[Mapping[str, Any]]
    t0_epoch_ns: int
    segments: pl.DataFrame
    connections: pl.DataFrame
    #: Capture label (the interface's name) to file number.
    files: Mapping[str, int]

    @classmethod
    def load(cls, folder: Path, scenario: Mapping[str, Any], report: Mapping[str, Any]) -> RunData:
        """Reads segments.parquet, connections.parquet and summary.json of a run's folder."""
        summary = json.loads((folder / "summary.json").read_text())
        return cls(
            scenario=scenario,
            interfaces=report["interfaces"],
            t0_epoch_ns=int(report["t0_epoch_ns"]),
            segments=pl.read_parquet(folder / "segments.parquet"),
            connections=pl.read_parquet(folder / "connections.parquet"),
            files={file["label"]: file["file"] for file in summary["files"]},
        )

    @cached_property
    def flows(self) -> list[Flow]:
        """The scenario's flows, each with its captures."""
        return [Flow(self, spec) for spec in self.scenario["workload"]]

    @cached_property
    def groups(self) -> dict[str, list[Flow]]:
        """Flows that are measured together as well, by the group's name."""
        found: dict[str, list[Flow]] = {}
        for flow in self.flows:
            if flow.group is not None:
                found.setdefault(flow.group, []).append(flow)
        return found


class Flow:
    """One flow and its connection, at both ends."""

    def __init__(self, run: RunData, spec: Mapping[str, Any]) -> None:
        self.run = run
        self.name = str(spec["name"])
        self.group: str | None = spec.get("group")
        self.begun_s = float(spec.get("start_s", 0.0))
        #: From here on it is measured.
        self.start_s = max(self.begun_s, float(run.scenario.get("warm_up_s", 0.0)))
        self.end_s = min(float(spec.get("stop_s") or math.inf), float(run.scenario["duration_s"]))
        self.size_bytes: int | None = spec.get("bytes")
        self._from, self._to, self._port = spec["from"], spec["to"], spec["port"]

    @cached_property
    def at_sender(self) -> pl.DataFrame:
        """Its segments (both directions, `dir` 0 is its data's) at the sender's interface, with `t_s`."""
        return self._segments(self._from)

    @cached_property
    def at_receiver(self) -> pl.DataFrame:
        """The same at the receiver's interface."""
        return self._segments(self._to)

    def _segments(self, node: str) -> pl.DataFrame:
        ends = {one["node"]: one for one in reversed(self.run.interfaces)}
        number = self.run.files.get(ends[node]["interface"])
        if number is None:
            raise MissingCapture(f"flow {self.name} was not captured at {node}: let capture.at name that interface")
        connection = self.run.connections.filter(
            (pl.col("file") == number)
            & (pl.col("client") == ends[self._from]["address"])
            & (pl.col("server") == ends[self._to]["address"])
            & (pl.col("server_port") == self._port)
        )
        numbers = connection["conn"].to_list()
        return self.run.segments.filter((pl.col("file") == number) & pl.col("conn").is_in(numbers)).with_columns(
            ((pl.col("time_ns") - self.run.t0_epoch_ns) / 1e9).alias("t_s")
        )

    def delivered_bytes(self, from_s: float, to_s: float) -> int:
        """Bytes that became deliverable in order at the receiver's interface in a period."""
        data = self.at_receiver.filter(pl.col("dir") == 0)
        return _top(data.filter(pl.col("t_s") < to_s)) - _top(data.filter(pl.col("t_s") < from_s))

    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets that each byte of data takes, over the data segments at the receiver; 1 without any."""
        data = self.at_receiver.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
        payload = int(data["payload"].sum())
        return int(data["ip_len"].sum()) / payload if payload else 1.0

    def completed_s(self) -> float | None:
        """When its last byte arrived in order; None while bytes are missing, or for a flow without a size."""
        if self.size_bytes is None:
            return None
        data = self.at_receiver.filter((pl.col("dir") == 0) & (pl.col("in_order") >= self.size_bytes))
        return None if data.is_empty() else float(data["t_s"].min())  # type: ignore[arg-type]


def _top(data: pl.DataFrame) -> int:
    """The greatest `in_order`; 0 for no rows."""
    return int(data.select(pl.col("in_order").max().fill_null(0)).item())


class MissingCapture(Exception):
    """A metric needs a capture that the run has not."""


@dataclass(frozen=True)
class Metric:
    """A metric's declaration."""

    name: str
    #: "rate", "time", "fraction", "count" or "number", in bit/s, s, 1, 1, 1.
    unit: str
    title: str
    #: "flow" or "run".
    per: str
    source: str
    function: Callable[..., float | None]


METRICS: dict[str, Metric] = {}


def _metric(
    unit: str, title: str, per: str, source: str
) -> Callable[[Callable[..., float | None]], Callable[..., float | None]]:
    def declare(function: Callable[..., float | None]) -> Callable[..., float | None]:
        METRICS[function.__name__] = Metric(function.__name__, unit, title, per, source, function)
        return function

    return declare


@_metric("rate", "Throughput", "flow", "asym 4.1: measured at the receiver")
def throughput(flow: Flow) -> float:
    """Bytes delivered in order at the receiver's interface over the flow's own time, in bit/s.

    The time runs from the flow's start, or the end of the warm-up, to its end: the arrival of its last byte, its stop,
    or the end of the run.
    """
    end_s = flow.completed_s() or flow.end_s
    if end_s <= flow.start_s:
        return 0.0
    return flow.delivered_bytes(flow.start_s, end_s) * 8 / (end_s - flow.start_s)


@_metric("rate", "Throughput in packets", "flow", "asym 7.1 (CATALOGUE I-1), aq 4")
def packet_throughput(flow: Flow) -> float:
    """Throughput when whole IP packets count, as simulations without headers do, in bit/s.

    Throughput times the bytes of IP packets that a byte of data takes at the receiver.
    """
    return (throughput(flow) or 0.0) * flow.packet_bytes_per_byte()


@_metric("fraction", "Goodput", "flow", "ton IV-A: useful bytes over bytes on the link")
def goodput(flow: Flow) -> float | None:
    """Bytes delivered in order at the receiver over all bytes of IP packets that the sender put on its link.

    None when the sender sent nothing.
    """
    sent = int(flow.at_sender.filter(pl.col("dir") == 0)["ip_len"].sum())
    return flow.delivered_bytes(-math.inf, math.inf) / sent if sent else None


@_metric("count", "Retransmissions", "flow", "docs/traces.md, class RETRANSMISSION")
def retransmissions(flow: Flow) -> float:
    """Data segments that the sender sent again, at its own interface."""
    sent = flow.at_sender.filter((pl.col("dir") == 0) & (pl.col("class") & DATA != 0))
    return float(sent.filter(pl.col("class") & RETRANSMISSION != 0).height)


@_metric("time", "Round-trip time", "flow", "RFC 6298: Karn's rule")
def rtt_mean(flow: Flow) -> float | None:
    """Mean of the round-trip samples of the sender's data at its own interface, in s; never of retransmitted data."""
    samples = flow.at_sender.filter((pl.col("dir") == 1) & pl.col("rtt_ns").is_not_null())["rtt_ns"]
    return None if samples.is_empty() else float(samples.mean()) / 1e9  # type: ignore[arg-type]


@_metric("time", "Completion time", "flow", "asym 7.3")
def completion_time(flow: Flow) -> float | None:
    """From the flow's start to the arrival of its last byte, in s; None for a flow without a size or unfinished."""
    done_s = flow.completed_s()
    return None if done_s is None else done_s - flow.begun_s


@_metric("number", "Fairness index", "run", "Jain; asym 3.2")
def fairness_index(run: RunData) -> float | None:
    """Jain's index (sum x)^2 / (n sum x^2) of the flows' throughput over the period in which all are active.

    Between 1/n and 1. None for fewer than two flows, an empty period, or when nothing was delivered in it.
    """
    start_s = max(flow.start_s for flow in run.flows)
    end_s = min(flow.completed_s() or flow.end_s for flow in run.flows)
    if len(run.flows) < 2 or end_s <= start_s:
        return None
    return jain([flow.delivered_bytes(start_s, end_s) for flow in run.flows])


@_metric("rate", "Aggregate throughput", "run", "sum over the flows")
def aggregate_throughput(run: RunData) -> float:
    """Sum of the flows' throughput, in bit/s."""
    return sum(throughput(flow) or 0.0 for flow in run.flows)


def jain(values: Iterable[float]) -> float | None:
    """Jain's fairness index; None when all values are zero or there are none (asym 3.2)."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


#: Of a group of flows: the sum over its members.
SUMMED = frozenset({"throughput", "packet_throughput", "retransmissions"})


def measure(run: RunData) -> list[dict[str, Any]]:
    """Every metric of a run: name, subject (a flow, a group, or "" for the run), value, unit; absent ones left out."""
    rows = []
    for metric in METRICS.values():
        values: dict[str, float | None] = {}
        if metric.per == "run":
            values[""] = metric.function(run)
        else:
            values = {flow.name: metric.function(flow) for flow in run.flows}
            if metric.name in SUMMED:
                values |= {name: sum(values[flow.name] or 0.0 for flow in flows) for name, flows in run.groups.items()}
        for subject, value in values.items():
            if value is not None:
                rows.append({"metric": metric.name, "subject": subject, "value": float(value), "unit": metric.unit})
    return rows
