"""What metrics see of a run: its tables, and the segments of each flow at both of its ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from analysis.metrics.lines import Line

#: Bits of the column `class` (docs/traces.md).
NEW = 1 << 0
RETRANSMISSION = 1 << 1
FAST_RETRANSMISSION = 1 << 2
SPURIOUS = 1 << 3
OUT_OF_ORDER = 1 << 4
DUPLICATE_ACK = 1 << 6
WINDOW_UPDATE = 1 << 7
ZERO_WINDOW = 1 << 8
KEEP_ALIVE = 1 << 9
PURE_ACK = 1 << 10
SACK = 1 << 11
DATA = 1 << 12

#: Columns of `RunData.telemetry`; what a line does not have is null.
TELEMETRY = {
    "t_ns": pl.Int64, "link": pl.String, "direction": pl.String, "packets": pl.Int64, "bytes": pl.Int64,
    "max": pl.Int64, "event": pl.String, "pure_ack": pl.Boolean, "part": pl.String, "to": pl.String,
    "cwnd_segments": pl.Float64,
}  # fmt: skip


def is_a(bits: int) -> pl.Expr:
    """Whether a segment has any of these class bits."""
    return pl.col("class") & bits != 0


class MissingCapture(Exception):
    """A metric needs a capture, or telemetry, that the run has not."""


@dataclass(frozen=True)
class RunData:
    """A run's tables."""

    scenario: Mapping[str, Any]
    #: Interfaces of the run's report: node, interface, link, end, address.
    interfaces: Sequence[Mapping[str, Any]]
    t0_epoch_ns: int
    segments: pl.DataFrame
    connections: pl.DataFrame
    #: Capture label (the interface's name) to file number.
    files: Mapping[str, int]
    #: What the driver counted: link to direction to counters. A second source, beside the captures.
    counters: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    #: The run's folder, for its telemetry.
    folder: Path | None = None

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
            counters=report.get("driver", {}).get("links", {}),
            folder=folder,
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

    @cached_property
    def lines(self) -> list[Line]:
        """The directions of the links that are measured, see `lines.measured`."""
        from analysis.metrics.lines import measured

        return measured(self)

    @cached_property
    def all_lines(self) -> list[Line]:
        """Both directions of every link; of a run that was imported, without a scenario's links, none."""
        from analysis.metrics.lines import lines_of

        return lines_of(self)

    @property
    def window_s(self) -> tuple[float, float]:
        """The part of the run that is measured: from the end of the warm-up to the end of the run."""
        return float(self.scenario.get("warm_up_s") or 0.0), float(self.scenario["duration_s"])

    @cached_property
    def busy_window_s(self) -> tuple[float, float]:
        """The part of `window_s` before the last flow ends: over what comes after, no line's use means anything."""
        begin_s, end_s = self.window_s
        try:
            last_s = max((flow.ended_s() for flow in self.flows), default=end_s)
        except MissingCapture:  # a transfer whose end was not captured
            last_s = end_s
        return begin_s, max(min(last_s, end_s), begin_s)

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """Node to the addresses of its interfaces."""
        found: dict[str, list[str]] = {}
        for one in self.interfaces:
            found.setdefault(one["node"], []).append(one["address"])
        return found

    @cached_property
    def of_connection(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        """(file, conn) to its segments in order of time, with `t_s`: seconds since the run's zero."""
        timed = self.segments.with_columns(((pl.col("time_ns") - self.t0_epoch_ns) / 1e9).alias("t_s"))
        return timed.partition_by("file", "conn", as_dict=True)

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """Queue lengths and events of all links, as `telemetry/links.jsonl` has them, with `t_s`.

        Raises:
            MissingCapture: the run kept none.
        """
        path = None if self.folder is None else self.folder / "telemetry" / "links.jsonl"
        if path is None or not path.is_file():
            raise MissingCapture("the run kept no telemetry of its links: let capture.telemetry be true")
        rows = pl.read_ndjson(path, schema=TELEMETRY) if path.stat().st_size else pl.DataFrame(schema=TELEMETRY)
        return rows.with_columns((pl.col("t_ns") / 1e9).alias("t_s"))


class Flow:
    """One flow with all of its connections, at both ends."""

    def __init__(self, run: RunData, spec: Mapping[str, Any]) -> None:
        self.run = run
        self.spec = spec
        self.name = str(spec["name"])
        self.group: str | None = spec.get("group")
        self.begun_s = float(spec.get("start_s", 0.0))
        #: From here on it is measured.
        self.start_s = max(self.begun_s, run.window_s[0])
        stop_s = spec.get("stop_s")
        self.end_s = min(math.inf if stop_s is None else float(stop_s), run.window_s[1])
        self.size_bytes: int | None = spec.get("bytes")
        self.sender, self.receiver, self._port = str(spec["from"]), str(spec["to"]), spec["port"]

    @cached_property
    def at_sender(self) -> pl.DataFrame:
        """Its segments (both directions, `dir` 0 is its data's) at the sender's interfaces, in order of time.

        Beside the columns of segments.parquet: `t_s`, and `stream`, the number of the connection within the flow.

        Raises:
            MissingCapture: none of them was captured.
        """
        return self._segments(self.sender)

    @cached_property
    def at_receiver(self) -> pl.DataFrame:
        """The same at the receiver's interfaces."""
        return self._segments(self.receiver)

    @cached_property
    def connections(self) -> pl.DataFrame:
        """Rows of connections.parquet that are this flow's, wherever captured, with `stream`.

        A connection has the same `stream` in every capture: its place among those of its client port, in order of time.
        """
        addresses = self.run.addresses
        own = self.run.connections.filter(
            pl.col("client").is_in(addresses.get(self.sender, []))
            & pl.col("server").is_in(addresses.get(self.receiver, []))
            & (pl.col("server_port") == self._port)
        ).sort("file", "first_ns", maintain_order=True)
        nth = pl.int_range(pl.len()).over("file", "client", "client_port", "server")
        keys = own.with_columns(nth.alias("nth"))
        ranked = keys.group_by("client", "client_port", "server", "nth").agg(pl.col("first_ns").min())
        ranked = ranked.sort("first_ns", "client", "client_port", "nth").with_row_index("stream").drop("first_ns")
        return keys.join(ranked, on=["client", "client_port", "server", "nth"], maintain_order="left").drop("nth")

    def _segments(self, node: str) -> pl.DataFrame:
        captured = [one["interface"] for one in self.run.interfaces if one["node"] == node]
        files = [self.run.files[name] for name in captured if name in self.run.files]
        if not files:
            raise MissingCapture(f"flow {self.name} was not captured at {node}: let capture.at name that interface")
        own = self.connections.filter(pl.col("file").is_in(files))
        parts = [
            self.run.of_connection[row["file"], row["conn"]].with_columns(
                pl.lit(row["stream"], pl.UInt32).alias("stream")
            )
            for row in own.select("file", "conn", "stream").iter_rows(named=True)
            if (row["file"], row["conn"]) in self.run.of_connection
        ]
        if not parts:
            empty = self.run.segments.clear()
            return empty.with_columns(
                pl.lit(None, pl.Float64).alias("t_s"), pl.lit(None, pl.UInt32).alias("stream")
            ).clear()
        # A node with several interfaces sees a connection's two directions on different ones, or all on one.
        return pl.concat(parts).sort("time_ns", maintain_order=True)

    @cached_property
    def sack_blocks(self) -> pl.DataFrame:
        """Selective blocks in the acks that its sender received: `t_s`, `ack`, `left`, `right`, in the acks' order.

        Without rows where the run's tables have no blocks (sacks.parquet).
        """
        nothing = pl.DataFrame(schema={"t_s": pl.Float64, "ack": pl.Int64, "left": pl.Int64, "right": pl.Int64})
        path = None if self.run.folder is None else self.run.folder / "sacks.parquet"
        own = self.at_sender.select("file", "conn").unique()
        if path is None or not path.is_file() or own.is_empty():
            return nothing
        rows = pl.read_parquet(path).filter(pl.col("dir") == 1).join(own, on=["file", "conn"], how="semi")
        timed = rows.with_columns(((pl.col("time_ns") - self.run.t0_epoch_ns) / 1e9).alias("t_s"))
        return timed.select(nothing.columns).sort("t_s", maintain_order=True)

    @cached_property
    def telemetry(self) -> pl.DataFrame:
        """What the sender's stack told: `t_s`, `cwnd_segments`, `ssthresh_segments`, `rto_s`, `event`; null if untold.

        Raises:
            MissingCapture: the run kept none.
        """
        path = None if self.run.folder is None else self.run.folder / "telemetry" / f"{self.name}.jsonl"
        if path is None or not path.is_file():
            raise MissingCapture(f"flow {self.name} left no telemetry: let capture.telemetry be true")
        columns = dict.fromkeys(("cwnd_segments", "ssthresh_segments", "rto_s"), pl.Float64)
        schema = {"t_ns": pl.Int64, **columns, "event": pl.String}
        rows = pl.read_ndjson(path, schema=schema) if path.stat().st_size else pl.DataFrame(schema=schema)
        # Stacks count from the flow's own start.
        return rows.with_columns((pl.col("t_ns") / 1e9 + self.begun_s).alias("t_s"))

    @cached_property
    def relay(self) -> pl.DataFrame:
        """What the sender that passes its data on, of a split connection, told: `t_s`, `event`, `cwnd_segments`.

        No rows where no middlebox sends on its own account.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        places = [f"{address}:{self._port}" for address in self.run.addresses.get(self.receiver, [])]
        own = self.run.telemetry.filter(pl.col("part").is_not_null() & pl.col("to").is_in(places))
        return own.select("t_s", "event", "cwnd_segments")

    @cached_property
    def arrivals(self) -> pl.DataFrame:
        """What became deliverable at the receiver's interfaces, and when: `t_s`, `bytes`, and `total` since the start.

        Over all of the flow's connections; in each, the bytes by which its data before the first hole grew. Where acks
        alone were captured, the bytes by which they grew.
        """
        data = self.at_receiver.filter(pl.col("dir") == 0)
        top = pl.col("in_order").cum_max()
        acks = self.at_receiver.filter(pl.col("ack") >= 0).join(data, on="stream", how="anti")
        if acks.height:
            # The first byte is 1; that of a capture that begins amid a transfer is the first one acknowledged.
            told = acks.with_columns((pl.col("ack") - 1).clip(0).alias("in_order"))
            data = pl.concat([data, told]).sort("t_s", maintain_order=True)
        grown = data.select("t_s", (top - top.shift(1, fill_value=0)).over("stream").alias("bytes"))
        return grown.filter(pl.col("bytes") > 0).with_columns(pl.col("bytes").cum_sum().alias("total"))

    def delivered_bytes(self, from_s: float, to_s: float) -> int:
        """Bytes that became deliverable in order at the receiver's interface in [from_s, to_s)."""
        inside = self.arrivals.filter((pl.col("t_s") >= from_s) & (pl.col("t_s") < to_s))
        return int(inside["bytes"].sum())

    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets that each byte of data takes, over the data segments at the receiver; 1 without any."""
        data = self.at_receiver.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
        payload = int(data["payload"].sum())
        return int(data["ip_len"].sum()) / payload if payload else 1.0

    def completed_s(self) -> float | None:
        """When its last byte arrived, all before it being there; None while any are missing, or without a size.

        The bytes of all its connections count together.
        """
        if self.size_bytes is None:
            return None
        whole = self.arrivals.filter(pl.col("total") >= self.size_bytes)
        return None if whole.is_empty() else float(whole["t_s"][0])

    def ended_s(self) -> float:
        """The end of the time over which it is measured: the arrival of its last byte, its stop, or the run's end."""
        done_s = self.completed_s()
        return self.end_s if done_s is None else done_s


def step_mean(steps: pl.DataFrame, from_s: float, to_s: float) -> float | None:
    """Mean over time of a value that holds from each row (`t_s`, `y`) to the next, and is 0 before the first.

    None for a period without length.
    """
    if not to_s > from_s:
        return None
    before = steps.filter(pl.col("t_s") <= from_s).tail(1)
    inside = steps.filter((pl.col("t_s") > from_s) & (pl.col("t_s") < to_s))
    first = float(before["y"][0]) if before.height else 0.0
    times = [from_s, *inside["t_s"].to_list(), to_s]
    values = [first, *inside["y"].to_list()]
    total = sum(value * (end - begin) for value, begin, end in zip(values, times, times[1:], strict=False))
    return float(total / (to_s - from_s))
