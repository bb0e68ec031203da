"""A simulated run as its counters show it: the provider of analysis/runs.py for runs too long or too fast to capture.

`backchannel-node simulate` writes counters.json if the scenario has `capture.counters`: in bins of equal length, what
came out of each direction of a link, how many packets waited before it, what each flow's receiver got, and the sender's
congestion window. A period that begins or ends within a bin takes the bin's share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NotRequired, TypedDict

import polars as pl

from analysis import slices
from analysis.routes import data_paths
from analysis.runs import Flow, Kind, Line, Link, RunView, Slices, Unmeasured, active_window_s
from analysis.statistics import variation
from testbed.report import LinkReport, Report
from testbed.scenario import DIRECTIONS, Direction, Flow as FlowSpec, Scenario


class LineBins(TypedDict):
    """Counters of one direction of a link (testbed/simulator/src/counters.rs). Lists have a value for each bin."""

    data_bytes: list[int]
    ack_bytes: list[int]
    other_bytes: list[int]
    queue_packets: list[float]
    data_packets: int
    data_payload_bytes: int
    ack_packets: int
    ack_packets_bytes: int
    longest_lost_run_of_acks: int


class FlowBins(TypedDict):
    """Counters of one flow."""

    delivered_bytes: list[int]
    last_s: float
    coarse_timeouts: list[int]
    cwnd_segments: list[float]
    round_trips: int
    round_trips_s: float
    #: Absent from older runs.
    round_trips_squared_s2: NotRequired[float]
    packet_bytes: int
    payload_bytes: int


@dataclass(frozen=True, repr=False)
class CountedRun(RunView):
    """A run's counters."""

    single_flow_is_active: ClassVar[bool] = True
    scenario: Scenario
    #: Length of a bin.
    every_s: float
    end_s: float
    #: By link and direction.
    link_bins: Mapping[str, Mapping[str, LineBins]]
    flow_bins: Mapping[str, FlowBins]
    #: The simulator's report.
    report: Report
    folder: Path | None = None

    @classmethod
    def load(cls, folder: Path, scenario: Scenario, report: Report) -> CountedRun | None:
        """Reads counters.json of a run's folder; None if the run has none."""
        path = folder / "counters.json"
        if not path.is_file():
            return None
        raw = json.loads(path.read_text())
        return cls(scenario, raw["every_s"], raw["end_s"], raw["links"], raw["flows"], report, folder)

    def __repr__(self) -> str:
        where = "" if self.folder is None else f" in {self.folder}"
        return f"<counted run{where}: {len(self.flow_bins)} flows, {len(self.link_bins)} links, {self.end_s:g} s>"

    @property
    def link_reports(self) -> Mapping[str, LinkReport]:
        """Those of the simulator."""
        return self.report.driver.links

    @cached_property
    def flows(self) -> list[CountedFlow]:
        """The scenario's flows."""
        return [CountedFlow(self, spec) for spec in self.scenario.workload]

    @cached_property
    def lines(self) -> list[CountedLine]:
        """Every counted direction of a link."""
        return [
            CountedLine(self, link, way, self.link_bins[link][way])
            for link in self.link_bins
            for way in DIRECTIONS
            if way in self.link_bins[link]
        ]

    @cached_property
    def links(self) -> list[CountedLink]:
        """Every link of which both directions are counted."""
        by_name = {line.name: line for line in self.lines}
        return [
            CountedLink(line.link, line, by_name[f"{line.link}/reverse"])
            for line in self.lines
            if line.way == "forward" and f"{line.link}/reverse" in by_name
        ]

    @cached_property
    def data_paths(self) -> Mapping[str, frozenset[str]]:
        """The lines that each flow's data cross."""
        return {name: frozenset(line for line, _ in path) for name, path in data_paths(self.scenario).items()}

    @property
    def window_s(self) -> tuple[float, float]:
        """The part of the run that is measured."""
        return float(self.scenario.warm_up_s), self.end_s

    # Bins ----------------------------------------------------------------------------------------------------

    def total(self, bins: Sequence[float], from_s: float, to_s: float) -> float:
        """Sum over a period."""
        sum_ = 0.0
        for number, share in self._shares(from_s, to_s):
            sum_ += bins[number] * share
        return sum_

    def mean(self, levels: Sequence[float], from_s: float, to_s: float) -> float:
        """Time average over a period of bins that hold means."""
        weighted = [(levels[number], share * self._length(number)) for number, share in self._shares(from_s, to_s)]
        weights = sum(weight for _, weight in weighted)
        return sum(level * weight for level, weight in weighted) / weights if weights else 0.0

    def complete_bins(self, bins: Sequence[float], from_s: float, to_s: float) -> list[float]:
        """The bins that lie wholly within a period."""
        first = math.ceil(from_s / self.every_s - 1e-9)
        last = math.floor(to_s / self.every_s + 1e-9)
        return list(bins[first:last])

    def levels(self, bins: Sequence[float], name: str) -> pl.DataFrame:
        """The mean of each bin, from the bin's start on, and the last one until the run's end: `t_s` and a column of
        this name.
        """
        starts_s = [at * self.every_s for at in range(len(bins))]
        times_s = [*starts_s, *([self.end_s] if bins else [])]
        return pl.DataFrame({"t_s": times_s, name: [*map(float, bins), *map(float, bins[-1:])]})

    def _length(self, number: int) -> float:
        return min((number + 1) * self.every_s, self.end_s) - number * self.every_s

    def _shares(self, from_s: float, to_s: float) -> Iterator[tuple[int, float]]:
        """Numbers of the bins in a period, and the share of each that lies in it."""
        to_s = min(to_s, self.end_s)
        number = int(from_s / self.every_s + 1e-9)
        while number * self.every_s < to_s - 1e-9:
            begin, end = number * self.every_s, number * self.every_s + self._length(number)
            part = min(end, to_s) - max(begin, from_s)
            if part > 0:
                yield number, part / (end - begin)
            number += 1


class CountedFlow(Flow):
    """One flow."""

    run: CountedRun

    def __init__(self, run: CountedRun, spec: FlowSpec) -> None:
        super().__init__(run, spec)
        self.bins = run.flow_bins[self.name]
        #: The sender's counters in the report, over the whole run.
        self.sent = run.report.flows[self.name].send

    def completed_s(self) -> float | None:
        """Arrival of the last byte."""
        delivered = sum(self.bins["delivered_bytes"])
        return float(self.bins["last_s"]) if self.size_bytes is not None and delivered >= self.size_bytes else None

    def delivered_bytes(self, from_s: float, to_s: float, *, closed: bool = False) -> float:
        """Bytes that the receiver got, to the length of a bin, so that a `closed` period is the same."""
        return self.run.total(self.bins["delivered_bytes"], from_s, to_s)

    def packet_bytes_per_byte(self) -> float:
        """Over the whole run."""
        payload = self.bins["payload_bytes"]
        return float(self.bins["packet_bytes"]) / payload if payload else 1.0

    def arrival_slices(self) -> Slices:
        """Bytes in the bins of the flow's time."""
        first = math.ceil(self.start_s / self.run.every_s)
        values = self._whole(self.bins["delivered_bytes"])
        return Slices(first, self.run.every_s, len(values), {at: value for at, value in enumerate(values) if value})

    def retransmissions(self) -> float | None:
        """The sender's counter, over the whole run."""
        return self.sent.retransmitted

    def fast_retransmits(self) -> float | None:
        """The sender's counter of fast retransmits, over the whole run."""
        return self.sent.fast_retransmits

    def coarse_timeouts(self) -> float:
        """The sender's coarse timeouts in the flow's measured time."""
        return self.run.total(self.bins["coarse_timeouts"], self.start_s, self.ended_s())

    def rtt_mean_s(self) -> float | None:
        """Mean of the sender's last exact round-trip time at each ack of new data, over the whole run."""
        samples = self.bins["round_trips"]
        return float(self.bins["round_trips_s"]) / samples if samples else None

    def rtt_sd_s(self) -> float | None:
        """Population standard deviation of the same samples; None for fewer than two."""
        samples = self.bins["round_trips"]
        if samples < 2 or "round_trips_squared_s2" not in self.bins:
            return None
        mean = float(self.bins["round_trips_s"]) / samples
        return math.sqrt(max(float(self.bins["round_trips_squared_s2"]) / samples - mean * mean, 0.0))

    def cwnd_mean_segments(self) -> float | None:
        """Time average over the flow's measured time."""
        end_s = self.ended_s()
        return self.run.mean(self.bins["cwnd_segments"], self.start_s, end_s) if end_s > self.start_s else None

    def cwnd_variation(self) -> float | None:
        """Sample standard deviation over mean of the window's means in the bins of the flow's time."""
        return variation(self._whole(self.bins["cwnd_segments"]))

    def cwnd_growth(self) -> float | None:
        """Growth from the first bin's mean to the last's, in segments/s."""
        levels = self._whole(self.bins["cwnd_segments"])
        return (levels[-1] - levels[0]) / ((len(levels) - 1) * self.run.every_s) if len(levels) > 1 else None

    def throughput_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """Not counted: counters hold what was delivered in order."""
        raise Unmeasured("counters record only data delivered in order; arrivals need captures (capture.at)")

    def slice_s(self, least_s: float) -> float:
        """The length of the counters' bins."""
        return self.run.every_s

    def delivery_over_time(self, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
        """In the bins of the counters, whatever slices are asked for."""
        bins, every_s = self.bins["delivered_bytes"], self.run.every_s
        times_s = [min((number + 1) * every_s, self.run.end_s) for number in range(len(bins))]
        return pl.DataFrame({"t_s": times_s, "bps": [float(value) * 8 / every_s for value in bins]})

    def window_levels(self, from_s: float, to_s: float) -> list[float]:
        """The means of the bins."""
        return self.run.complete_bins(self.bins["cwnd_segments"], from_s, to_s)

    def window_samples(self) -> pl.DataFrame:
        """The means of the bins; counters have no slow-start threshold."""
        levels = self.run.levels(self.bins["cwnd_segments"], "cwnd_segments")
        return levels.with_columns(pl.lit(None, pl.Float64).alias("ssthresh_segments"))

    def _whole(self, bins: Sequence[float]) -> list[float]:
        return self.run.complete_bins(bins, self.start_s, self.ended_s())


class CountedLine(Line):
    """One direction of a link."""

    run: CountedRun

    def __init__(self, run: CountedRun, link: str, way: Direction, bins: LineBins) -> None:
        self.run = run
        self.link = link
        self.way = way
        self.name = f"{link}/{way}"
        self.rate_bps = run.scenario.direction(link, way).rate_bps
        self.policy = run.scenario.direction(link, way).queue.name
        self.bins = bins
        self.counters = run.report.driver.links.get(link, {}).get(way)

    def bits(self, *kinds: Kind) -> float:
        """Bits of IP packets of these kinds after the warm-up."""
        return sum(self.run.total(self.bytes_of(kind), *self.run.window_s) * 8 for kind in kinds)

    def bytes_of(self, kind: Kind) -> Sequence[float]:
        """Bytes of IP packets of a kind in each bin."""
        match kind:
            case "data":
                return self.bins["data_bytes"]
            case "ack":
                return self.bins["ack_bytes"]
        return self.bins["other_bytes"]

    def share_of_capacity(self, *kinds: Kind) -> float | None:
        """From the warm-up to the run's end, over the declared rate times that time."""
        if not self.rate_bps or self._measured_s <= 0:
            return None
        return self.bits(*kinds) / self._measured_s / self.rate_bps

    def carried_bps(self, *kinds: Kind) -> float:
        """From the warm-up to the run's end."""
        return self.bits(*kinds) / self._measured_s

    def data_slices(self) -> list[float]:
        """Bytes of IP packets with data in the bins after the warm-up."""
        return self.run.complete_bins(self.bins["data_bytes"], *self.run.window_s)

    def queue_mean_packets(self) -> float:
        """From the end of the warm-up, or the last flow's start if that is later, to the run's end."""
        begin_s, end_s = self.run.window_s
        started_s = max(flow.start_s for flow in self.run.flows)
        return self.run.mean(self.bins["queue_packets"], max(begin_s, started_s), end_s)

    def queue_steps(self) -> pl.DataFrame:
        """The means of the bins."""
        levels = self.run.levels(self.bins["queue_packets"], "y")
        return levels.with_columns(pl.col("y").alias("most"))

    def gaps_s(self, kind: Kind) -> list[float]:
        """Times without packets of a kind while every flow is active, to the length of a bin; without the edges."""
        window = active_window_s(self.run.flows)
        bins = self.run.complete_bins(self.bytes_of(kind), *window) if window else []
        return [length * self.run.every_s for length in slices.gaps(bins)]

    @property
    def gap_slice_s(self) -> float:
        """Length of a bin."""
        return self.run.every_s

    def mean_data_packet_bytes(self) -> float | None:
        """From the counts of packets."""
        packets = float(self.bins["data_packets"])
        return float(sum(self.bins["data_bytes"]) / packets) if packets else None

    def mean_ack_packet_bytes(self) -> float | None:
        """From the counts of packets."""
        packets = float(self.bins["ack_packets"])
        return float(self.bins["ack_packets_bytes"]) / packets if packets else None

    @property
    def _measured_s(self) -> float:
        begin_s, end_s = self.run.window_s
        return end_s - begin_s


@dataclass(frozen=True)
class CountedLink(Link):
    """A link of which both directions are counted."""

    forward: CountedLine
    reverse: CountedLine
