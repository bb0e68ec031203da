"""A run as metrics see it: its flows, its lines (directions of links) and its links.

Two providers fill these interfaces: analysis/captures, from classified captures and telemetry, and
analysis/counters.py, from the simulator's counters. A method that is abstract here is measured by each provider in its
own way; docs/metrics.md lists where the definitions differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import ClassVar, Literal, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from analysis import exchanges
from analysis.errors import AnalysisError
from analysis.routes import bottlenecks
from testbed.report import DirectionReport, LinkReport
from testbed.scenario import Flow as FlowSpec, Scenario

#: Size of a packet if neither the flow's nor its sender's stack options have `packet_bytes`.
PACKET_BYTES = 1500

#: What came out of a line, by kind of packet: TCP segments with data, TCP segments without, everything else.
Kind = Literal["data", "ack", "other"]
KINDS: tuple[Kind, ...] = ("data", "ack", "other")


class Unmeasured(AnalysisError):
    """A run did not keep what a metric needs. The message says what, and what to set."""


class RunView(ABC):
    """One run."""

    kind: ClassVar[str] = "run"
    scenario: Scenario
    #: Where the run's files are; None: nowhere.
    folder: Path | None
    #: Whether a single flow has values over the period in which all flows are active.
    single_flow_is_active: ClassVar[bool]

    @property
    @abstractmethod
    def flows(self) -> Sequence[Flow]:
        """The flows of the scenario."""

    @property
    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """The lines that are measured."""

    @property
    @abstractmethod
    def links(self) -> Sequence[Link]:
        """The links of which both directions are measured."""

    @property
    @abstractmethod
    def window_s(self) -> tuple[float, float]:
        """The part of the run that is measured: from the end of the warm-up to the end of the run."""

    @property
    @abstractmethod
    def link_reports(self) -> Mapping[str, LinkReport]:
        """What the links counted over the whole run, by link and direction; empty without a report."""

    @property
    def caveat(self) -> str:
        """What figures state of the run's source; "" where the captures or counters are ours."""
        return ""

    @cached_property
    def bottlenecks(self) -> Mapping[str, Sequence[str]]:
        """Lines that several flows share in one direction, each with the names of these flows."""
        return bottlenecks(self.scenario)

    @property
    def groups(self) -> Mapping[str, Sequence[Flow]]:
        """Flows that are also measured together, by the group's name."""
        return grouped(self.flows)

    def forget(self) -> None:
        """Drops what was computed once. Flows and links refer to their run, so that its tables would otherwise stay in
        memory until Python looks for cycles: hundreds of runs' tables in a long campaign.
        """
        for name in list(vars(self)):
            if isinstance(getattr(type(self), name, None), cached_property):
                del vars(self)[name]

    def active_window_s(self) -> tuple[float, float] | None:
        """The period in which every flow is active; None without one, and as `single_flow_is_active` says."""
        alone = len(self.flows) < 2 and not self.single_flow_is_active
        return None if alone else active_window_s(self.flows)


class Flow(ABC):
    """One flow with all of its connections."""

    kind: ClassVar[str] = "flow"

    def __init__(self, run: RunView, spec: FlowSpec) -> None:
        self.run = run
        self.spec = spec
        self.name = spec.name
        self.group = spec.group
        #: Bytes to deliver; None: no limit.
        self.size_bytes = spec.bytes
        #: Start in the scenario, and start of the time over which the flow is measured.
        self.begun_s = float(spec.start_s)
        self.start_s = max(self.begun_s, run.window_s[0])

    @property
    def packet_bytes(self) -> int:
        """Largest packet of the sender."""
        stack = self.run.scenario.node(self.spec.from_).stack
        return int({**(stack.options if stack else {}), **self.spec.stack}.get("packet_bytes", PACKET_BYTES))

    def ended_s(self) -> float:
        """End of the time over which the flow is measured: arrival of its last byte, its stop, or the run's end."""
        done_s = self.completed_s()
        if done_s is not None:
            return done_s
        end_s = self.run.window_s[1]
        return end_s if self.spec.stop_s is None else min(float(self.spec.stop_s), end_s)

    @cached_property
    def exchanges(self) -> pl.DataFrame:
        """The exchanges of the flow's application that began in its measured time; columns: analysis/exchanges.py.

        Raises:
            Unmeasured: the run did not record them.
        """
        found = exchanges.read(self.run.folder, self.spec)
        if found is None:
            raise Unmeasured(f"flow {self.name} left no record of its application: set capture.telemetry to true")
        return found.filter(pl.col("sent_s") >= self.start_s)

    @abstractmethod
    def completed_s(self) -> float | None:
        """Arrival of the last byte, all bytes before it having arrived; None if unfinished, or without a size."""

    @abstractmethod
    def delivered_bytes(self, from_s: float, to_s: float, *, closed: bool = False) -> float:
        """Bytes that the receiver got in [from_s, to_s), or with `closed` in [from_s, to_s]."""

    @abstractmethod
    def packet_bytes_per_byte(self) -> float:
        """Bytes of IP packets that a byte of data takes at the receiver; 1 without any."""

    @abstractmethod
    def arrival_slices(self) -> Slices:
        """What the receiver got, in slices of the flow's time."""

    @abstractmethod
    def retransmissions(self) -> float | None:
        """Data segments that the sender sent again; None for a flow that is not TCP."""

    @abstractmethod
    def fast_retransmits(self) -> float | None:
        """Retransmissions that duplicate acks caused; None for a flow that is not TCP."""

    @abstractmethod
    def coarse_timeouts(self) -> float | None:
        """Retransmissions that a timer caused; None for a flow that is not TCP."""

    @abstractmethod
    def rtt_mean_s(self) -> float | None:
        """Mean round-trip time."""

    @abstractmethod
    def rtt_sd_s(self) -> float | None:
        """Standard deviation of the round-trip time."""

    @abstractmethod
    def cwnd_mean_segments(self) -> float | None:
        """Time average of the sender's congestion window."""

    @abstractmethod
    def cwnd_variation(self) -> float | None:
        """Coefficient of variation of the sender's congestion window."""

    @abstractmethod
    def cwnd_growth(self) -> float | None:
        """Growth of the sender's congestion window over the flow's time, in segments per second."""

    @abstractmethod
    def throughput_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """Data that arrives at the receiver, in slices: `t_s` (the slice's end) and `bps`; without bytes, 0."""

    @abstractmethod
    def delivery_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """Data that becomes deliverable in order, in slices: the bytes behind a hole count when it is filled."""

    @abstractmethod
    def slice_s(self, least_s: float) -> float:
        """Length of slices of at least `least_s` in which several packets arrive (slices.width_s)."""

    @abstractmethod
    def window_levels(self, from_s: float, to_s: float) -> Sequence[float]:
        """Means of the sender's congestion window in the whole slices of a period, in segments."""

    @abstractmethod
    def window_samples(self) -> pl.DataFrame:
        """The sender's congestion window: `t_s`, `cwnd_segments`, `ssthresh_segments` (null: none yet)."""

    def relay_windows(self) -> Mapping[str, pl.DataFrame]:
        """Windows of the senders in the network that carry the flow's data: `t_s`, `cwnd_segments`, by their names."""
        return {}


class Line(ABC):
    """One direction of a link."""

    kind: ClassVar[str] = "line"
    run: RunView
    #: LINK/forward, LINK/reverse, LINK/port-N for further ends of a shared medium.
    name: str
    link: str
    #: Declared rate at the start in bit/s; None: not limited.
    rate_bps: int | None
    #: Counters of the line in the run's report, over the whole run; None without a report.
    counters: DirectionReport | None
    #: Name of its queue's policy.
    policy: str

    @abstractmethod
    def share_of_capacity(self, *kinds: Kind) -> float | None:
        """Bits of IP packets of these kinds that came out, over what the line can carry; None without a rate."""

    @abstractmethod
    def carried_bps(self, *kinds: Kind) -> float:
        """Bits of IP packets of these kinds that came out after the warm-up, per second."""

    @abstractmethod
    def data_slices(self) -> Sequence[float]:
        """Bytes of packets with data that came out, in the whole slices after the warm-up."""

    @abstractmethod
    def gaps_s(self, kind: Kind) -> Sequence[float]:
        """Times without packets of a kind from the line while every flow is active, in whole slices of `gap_slice_s`.

        Before the first packet and after the last one there is no gap.
        """

    @property
    @abstractmethod
    def gap_slice_s(self) -> float:
        """Length of the slices of `gaps_s`."""

    @abstractmethod
    def mean_data_packet_bytes(self) -> float | None:
        """Mean bytes of the IP packets with TCP data that came out, over the whole run; None without any."""

    @abstractmethod
    def mean_ack_packet_bytes(self) -> float | None:
        """Mean bytes of the pure acks that came out, over the whole run; None without any."""

    @abstractmethod
    def queue_mean_packets(self) -> float | None:
        """Time average of the packets that wait; None for a line without a queue."""

    @abstractmethod
    def queue_steps(self) -> pl.DataFrame:
        """Packets waiting in the queue: `t_s`, `y`, and `most`, the greatest number since the row before."""

    def queue_events(self) -> Mapping[str, Sequence[float]]:
        """When packets were dropped, purged or marked there, in s, by the event's name."""
        return {}


@dataclass(frozen=True)
class Link:
    """A link of which both directions are measured."""

    kind: ClassVar[str] = "link"
    name: str
    forward: Line
    reverse: Line


@dataclass(frozen=True)
class Slices:
    """A quantity in slices of equal length."""

    #: Number of the first slice, counted from the run's start.
    first: int
    width_s: float
    #: Number of slices.
    count: int
    #: The values that are not 0, by the slice's place after the first one.
    filled: Mapping[int, float]


AnyFlow = TypeVar("AnyFlow", bound=Flow)
Result = TypeVar("Result")


def once_a_flow(function: Callable[[AnyFlow], Result]) -> Callable[[AnyFlow], Result]:
    """A function whose result is kept as long as its flow: several metrics start from it."""
    kept: WeakKeyDictionary[AnyFlow, Result] = WeakKeyDictionary()

    @wraps(function)
    def cached(flow: AnyFlow) -> Result:
        if flow not in kept:
            kept[flow] = function(flow)
        return kept[flow]

    return cached


def grouped(flows: Sequence[AnyFlow]) -> dict[str, list[AnyFlow]]:
    """The flows of each group."""
    groups: dict[str, list[AnyFlow]] = {}
    for flow in flows:
        if flow.group is not None:
            groups.setdefault(flow.group, []).append(flow)
    return groups


def active_window_s(flows: Sequence[Flow]) -> tuple[float, float] | None:
    """The period in which all the flows are active: from the last start (or the warm-up's end) to the first end.

    None if there is no such period, or no flow.
    """
    if not flows:
        return None
    start_s, end_s = max(flow.start_s for flow in flows), min(flow.ended_s() for flow in flows)
    return (start_s, end_s) if end_s > start_s else None
