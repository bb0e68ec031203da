"""A direction of a link as the captures at its ends, and the links' telemetry, show it."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from analysis import slices
from analysis.captures.flow import CapturedFlow
from analysis.captures.segments import DATA, PURE_ACK, is_a, step_mean
from analysis.captures.tables import MissingCapture, Tables
from analysis.routes import Routes, direction_name
from analysis.runs import Kind, Line, RunView, active_window_s
from analysis.transports import is_quic
from testbed.addressing import make_plan
from testbed.report import DirectionReport
from testbed.scenario import LinkSpec

#: Length of `data_slices`, in s: those of aq's figure 1.
SLICE_S = 0.2
#: Length of the slices of `gaps_s`, in s: the bins of asym's figure 11.
GAP_SLICE_S = 0.01
_CLASSES = {"data": DATA, "ack": PURE_ACK}


class CapturedLine(Line):
    """One direction of a link."""

    def __init__(self, run: RunView, tables: Tables, link: LinkSpec, port: int, network: Routes) -> None:
        self.run = run
        self.tables = tables
        self.link = link.name
        #: "forward" from the first end, "reverse" from the second, "port-N" from further ones.
        self.direction = direction_name(port)
        self.name = f"{self.link}/{self.direction}"
        self.spec = link.forward if port == 0 else link.reverse
        self.rate_bps = self.spec.rate_bps
        self.policy = self.spec.queue.name
        self.ends = list(link.ends)
        #: The node at its sending end.
        self.sender = self.ends[port]
        self._port = port
        self._network = network

    @property
    def counters(self) -> DirectionReport | None:  # type: ignore[override]
        """Counters of the line in the run's report, over the whole run; None without a report."""
        return self.tables.counters.get(self.link, {}).get(self.direction)

    @cached_property
    def busy_window_s(self) -> tuple[float, float]:
        """The measured part of the run before the last flow ends; after it the line is idle."""
        begin_s, end_s = self.run.window_s
        try:
            last_s = max((flow.ended_s() for flow in self.run.flows), default=end_s)
        except MissingCapture:  # a transfer whose end was not captured
            last_s = end_s
        return begin_s, max(min(last_s, end_s), begin_s)

    # Route and capacity --------------------------------------------------------------------------------------

    def path(self, flow: CapturedFlow) -> list[tuple[str, str, str]]:
        """(node, link, next node) for every hop of a flow's data."""
        return self._route(flow)

    def path_back(self, flow: CapturedFlow) -> list[tuple[str, str, str]]:
        """(node, link, next node) for every hop of a flow's acks."""
        return self._route(flow, back=True)

    def _route(self, flow: CapturedFlow, *, back: bool = False) -> list[tuple[str, str, str]]:
        """Between the addresses that the flow's connections use."""
        route, source, target = self._network.between, flow.sender, flow.receiver
        if not flow.connections.is_empty():
            route, source, target = self._network.path, flow.connections["client"][0], flow.connections["server"][0]
        return route(target, source) if back else route(source, target)

    def rate_at(self, t_s: float) -> float:
        """The declared rate at an instant, with the schedule, in bit/s; infinite if not limited."""
        rate = math.inf if self.rate_bps is None else float(self.rate_bps)
        for change in self.spec.schedule:
            if change.rate_bps and float(change.at_s) <= t_s:
                rate = float(change.rate_bps)
        return rate

    def capacity_bits(self, from_s: float, to_s: float) -> float | None:
        """Bits that the line can carry in a period, by its declared rate and schedule; None: not limited."""
        if self.rate_bps is None:
            return None
        changes = sorted((float(change.at_s), change.rate_bps) for change in self.spec.schedule if change.rate_bps)
        steps = [(float("-inf"), self.rate_bps), *changes, (float("inf"), 0)]
        bits = 0.0
        for (begin_s, rate), (end_s, _) in pairwise(steps):
            bits += rate * max(min(end_s, to_s) - max(begin_s, from_s), 0.0)
        return bits

    # Segments ------------------------------------------------------------------------------------------------

    @cached_property
    def at_entry(self) -> pl.DataFrame:
        """TCP segments that entered the line: those captured on the interface at its sending end, with `t_s`.

        They are captured before the queue, and before a middlebox at that end.
        """
        return self._crossing([self._port])

    @cached_property
    def at_exit(self) -> pl.DataFrame:
        """TCP segments that left the line: those captured on the interfaces at its receiving ends, with `t_s`."""
        return self._crossing(self._receiving)

    def _crossing(self, ports: list[int]) -> pl.DataFrame:
        captured = self._captured(ports)
        parts = []
        rows = self.tables.connections.filter(pl.col("file").is_in(list(captured)))
        for row in rows.select("file", "conn", "client", "server").iter_rows(named=True):
            segments = self.tables.of_connection.get((row["file"], row["conn"]))
            for direction, (source, target) in enumerate(
                ((row["client"], row["server"]), (row["server"], row["client"]))
            ):
                if segments is not None and self._crosses(source, target, captured[row["file"]]):
                    parts.append(segments.filter(pl.col("dir") == direction))
        if not parts:
            return self.tables.segments.clear().with_columns(pl.lit(None, pl.Float64).alias("t_s")).clear()
        return pl.concat(parts).sort("time_ns", maintain_order=True)

    def _captured(self, ports: list[int]) -> dict[int, str]:
        """Number of each capture at the link's interfaces of some ends, and its node."""
        captured = {
            self.tables.files[interface.interface]: interface.node
            for interface in self.tables.interfaces
            if interface.link == self.link and interface.end in ports and interface.interface in self.tables.files
        }
        if not captured:
            where = " or ".join(f"{self.ends[port]}:{self.link}" for port in ports)
            raise MissingCapture(f"{self.name} was not captured at {where}: add it to capture.at")
        return captured

    def _crosses(self, source: str, target: str, node: str) -> bool:
        """Whether packets between two addresses cross the line, and a node on the link sees them."""
        path = self._network.path(source, target)
        # A medium with more than two ends shows a packet only to its receiver.
        receivers = {after for before, link, after in path if link == self.link and before == self.sender}
        return bool(receivers) and (node == self.sender or node in receivers)

    @cached_property
    def others_at_exit(self) -> pl.DataFrame:
        """Packets of UDP and echoes of ICMP that left the line: `t_s`, `ip_len`, in order of time.

        Raises:
            MissingCapture: the run has no table of them, or nothing was captured at the receiving end.
        """
        datagrams = self.tables.datagrams
        if datagrams is None:
            raise MissingCapture("captures hold TCP only: set capture.counters, in a simulation")
        captured = self._captured(self._receiving)
        rows = datagrams.filter(pl.col("file").is_in(list(captured)))
        ends = rows.select("file", "src", "dst").unique()
        here = [self._crosses(source, target, captured[file]) for file, source, target in ends.iter_rows()]
        kept = rows.join(ends.filter(here), on=["file", "src", "dst"], how="semi")
        return kept.select(self.tables.t_s, "ip_len").sort("t_s")

    @property
    def _receiving(self) -> list[int]:
        return [port for port in range(len(self.ends)) if port != self._port]

    # Telemetry -----------------------------------------------------------------------------------------------

    def events(self, kind: str) -> pl.DataFrame:
        """Events of a kind, such as `dropped_full`: `t_s`, `bytes`, `pure_ack`.

        Of a link that the kernel shapes, a row is a sample in which the kernel had counted events since the one before,
        and the last two columns are null.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        return self._telemetry.filter(pl.col("event") == kind).select("t_s", "bytes", "pure_ack")

    @cached_property
    def acks_by_event(self) -> dict[str, int]:
        """Number of events of each kind that pure acks had.

        Raises:
            MissingCapture: the run kept no telemetry of its links, or the kernel counted all packets together.
        """
        if self._telemetry["count"].is_not_null().any():
            raise MissingCapture(f"the kernel's queue of {self.name} does not count acks separately")
        acks = self._telemetry.filter(pl.col("pure_ack"))
        return dict(acks.group_by("event").len().iter_rows())

    def queue_steps(self) -> pl.DataFrame:
        """Packets waiting in the queue: `t_s`, `y`, `most`.

        A row for every change of the length, at most one in 10 ms. `most` is the greatest since the row before.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        return self._queue_steps

    @cached_property
    def _queue_steps(self) -> pl.DataFrame:
        rows = self._telemetry.filter(pl.col("packets").is_not_null())
        return rows.select("t_s", pl.col("packets").cast(pl.Float64).alias("y"), pl.col("max").alias("most"))

    def queue_events(self) -> dict[str, list[float]]:
        """When packets were dropped, purged or marked there, in s, by the event's name.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        rows = self._telemetry.filter(pl.col("event").is_not_null() & pl.col("part").is_null())
        return {name: rows.filter(pl.col("event") == name)["t_s"].to_list() for name in rows["event"].unique()}

    def class_steps(self, column: str) -> dict[str, pl.DataFrame]:
        """A value of each class of a kernel's queueing discipline: `t_s` and `y` by class, a row for every change.

        Args:
            column: `delay_s`, `probability`, or a count of packets since the run's start.

        Raises:
            MissingCapture: the run kept no telemetry of its links.
        """
        rows = self._telemetry.filter(pl.col("class").is_not_null() & pl.col(column).is_not_null())
        names = rows["class"].unique().sort().to_list()
        values = rows.select("t_s", "class", pl.col(column).cast(pl.Float64).alias("y"))
        return {name: values.filter(pl.col("class") == name).drop("class") for name in names}

    @cached_property
    def _telemetry(self) -> pl.DataFrame:
        rows = self.tables.telemetry
        return rows.filter((pl.col("link") == self.link) & (pl.col("direction") == self.direction))

    # What every provider measures ----------------------------------------------------------------------------

    def share_of_capacity(self, *kinds: Kind) -> float | None:
        """From the capture at the receiving end, over `busy_window_s`; `capacity_bits` is what the line can carry.

        `other` adds nothing in a run whose captures were read for TCP only.
        """
        capacity = self.capacity_bits(*self.busy_window_s)
        return self._carried_bits(kinds, *self.busy_window_s) / capacity if capacity else None

    def carried_bps(self, *kinds: Kind) -> float:
        """From the capture at the receiving end, from the warm-up to the run's end.

        `other` adds nothing in a run whose captures were read for TCP only.

        Raises:
            MissingCapture: `other` alone is asked for, in such a run.
        """
        if kinds == ("other",):
            self.others_at_exit  # noqa: B018  raises
        from_s, to_s = self.run.window_s
        return self._carried_bits(kinds, from_s, to_s) / (to_s - from_s)

    def _carried_bits(self, kinds: tuple[Kind, ...], from_s: float, to_s: float) -> int:
        quic = next((flow.name for flow in self.run.flows if is_quic(self.run.scenario, flow.spec)), None)
        if quic is not None and "other" in kinds:
            raise MissingCapture(
                f"captures hold TCP only, and flow {quic} is QUIC: set capture.counters, in a simulation"
            )
        others = 0
        if "other" in kinds and self.tables.datagrams is not None:
            others = _bytes_in(self.others_at_exit, from_s, to_s)
        if kinds == ("other",):
            return 8 * others
        bits = None if {"data", "ack"} <= set(kinds) else DATA if "data" in kinds else PURE_ACK
        return 8 * (others + _bytes_in(self.at_exit, from_s, to_s, bits))

    def data_slices(self) -> list[float]:
        """Bytes of IP packets with data at the receiving end, in slices of 0.2 s."""
        return _in_slices(self.at_exit.filter(is_a(DATA)), SLICE_S, *self.run.window_s)

    def gaps_s(self, kind: Kind) -> list[float]:
        """At the receiving end."""
        window = active_window_s(self.run.flows)
        if window is None:
            return []
        packets = self.others_at_exit if kind == "other" else self.at_exit.filter(is_a(_CLASSES[kind]))
        bins = _in_slices(packets, self.gap_slice_s, *window)
        return [length * self.gap_slice_s for length in slices.gaps(bins)]

    @property
    def gap_slice_s(self) -> float:
        """A bin of the counters, or 10 ms in a run without them."""
        counters = self.run.scenario.capture.counters
        return GAP_SLICE_S if counters is None else counters.every_s

    def mean_data_packet_bytes(self) -> float | None:
        """At the receiving end."""
        return _mean_bytes(self.at_exit.filter(is_a(DATA)))

    def mean_ack_packet_bytes(self) -> float | None:
        """At the receiving end."""
        return _mean_bytes(self.at_exit.filter(is_a(PURE_ACK)))

    def queue_mean_packets(self) -> float | None:
        """From telemetry, over `busy_window_s`, without the packet in transmission; None for a line without a rate."""
        return None if self.rate_bps is None else step_mean(self.queue_steps(), *self.busy_window_s)


def _in_slices(packets: pl.DataFrame, width_s: float, from_s: float, to_s: float) -> list[float]:
    """Sums of `ip_len` in the whole slices of a period."""
    begin, end = (round(edge_s / width_s, 9) for edge_s in (from_s, to_s))
    first, last = math.ceil(begin), max(math.floor(end), math.ceil(begin))
    sums = np.bincount(
        np.clip((packets["t_s"].to_numpy() / width_s).astype(np.int64) - first + 1, 0, last - first + 1),
        weights=packets["ip_len"].to_numpy(),
        minlength=last - first + 2,
    )
    # The first and last sums are of everything before and after the whole slices.
    return list(sums[1 : last - first + 1].tolist())


def _bytes_in(packets: pl.DataFrame, from_s: float, to_s: float, bits: int | None = None) -> int:
    """Sum of `ip_len` of the packets of a period, or of those that have any of these class bits."""
    # Many metrics ask. Columns take a tenth of the time of a query.
    inside = (packets["t_s"] >= from_s) & (packets["t_s"] < to_s)
    if bits is not None:
        inside &= (packets["class"] & bits) != 0
    return int(packets["ip_len"].filter(inside).sum())


def _mean_bytes(packets: pl.DataFrame) -> float | None:
    mean = packets["ip_len"].mean()
    return None if mean is None else float(mean)  # type: ignore[arg-type]


def lines_of(run: RunView, tables: Tables) -> list[CapturedLine]:
    """Both directions of every link; every end's of a shared medium, the first of a one-way link."""
    links = run.scenario.links
    if not links:
        return []
    network = Routes(
        make_plan(run.scenario.nodes, links),
        {entry.address: entry.node for entry in tables.interfaces if entry.address},
    )
    return [
        CapturedLine(run, tables, link, port, network)
        for link in links
        for port in range(1 if link.one_way else len(link.ends))
    ]
