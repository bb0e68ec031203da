"""Metrics of a simulated run from its counters, for runs that are too long or too fast to keep captures.

`backchannel-node simulate` writes counters.json where the scenario asks for it (`capture.counters`): in bins of equal length,
what came out of each direction of a link, how many packets waited before it, what each flow's receiver got and how wide its
sender's window was. Here each metric is one function again; where a metric of analysis.metrics has the same name it is the
same quantity. Periods that begin or end within a bin take the bin's share.

A direction of a link is called LINK:forward or LINK:reverse.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.metrics import Metric, jain

#: Time over which the utility is smoothed to tell when it has settled, in s; and how near it must come.
SETTLING_S, SETTLED = 200.0, 0.97


@dataclass(frozen=True)
class Counted:
    """A run's counters and its scenario."""

    scenario: Mapping[str, Any]
    every_s: float
    end_s: float
    links: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
    flows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def load(cls, folder: Path, scenario: Mapping[str, Any]) -> Counted | None:
        """Reads counters.json of a run's folder; None if the run has none."""
        path = folder / "counters.json"
        if not path.is_file():
            return None
        raw = json.loads(path.read_text())
        return cls(scenario, raw["every_s"], raw["end_s"], raw["links"], raw["flows"])

    @property
    def warm_up_s(self) -> float:
        """From here on the run is measured."""
        return float(self.scenario.get("warm_up_s", 0.0))

    def directions(self) -> Iterator[Direction]:
        """Every counted direction of a link."""
        specs = {link["name"]: link for link in self.scenario["links"]}
        for name, directions in self.links.items():
            for way, bins in directions.items():
                spec = specs[name]["forward" if way == "forward" else "reverse"]
                yield Direction(self, f"{name}:{way}", spec.get("rate_bps"), bins)

    def of_flows(self) -> list[CountedFlow]:
        """The scenario's flows."""
        return [CountedFlow(self, spec) for spec in self.scenario["workload"]]

    def total(self, bins: Sequence[float], from_s: float, to_s: float) -> float:
        """Sum over a period."""
        found = 0.0
        for bin_, share in self._shares(from_s, to_s):
            found += bins[bin_] * share
        return found

    def mean(self, levels: Sequence[float], from_s: float, to_s: float) -> float:
        """Mean over a period of bins that hold means."""
        shares = [(levels[bin_], share * self._length(bin_)) for bin_, share in self._shares(from_s, to_s)]
        whole = sum(weight for _, weight in shares)
        return sum(level * weight for level, weight in shares) / whole if whole else 0.0

    def whole(self, bins: Sequence[float], from_s: float, to_s: float) -> list[float]:
        """The bins that lie wholly within a period."""
        first = math.ceil(from_s / self.every_s - 1e-9)
        last = math.floor(to_s / self.every_s + 1e-9)
        return list(bins[first:last])

    def _length(self, number: int) -> float:
        return min((number + 1) * self.every_s, self.end_s) - number * self.every_s

    def _shares(self, from_s: float, to_s: float) -> Iterator[tuple[int, float]]:
        to_s = min(to_s, self.end_s)
        number = int(from_s / self.every_s + 1e-9)
        while number * self.every_s < to_s - 1e-9:
            begin, end = number * self.every_s, number * self.every_s + self._length(number)
            part = min(end, to_s) - max(begin, from_s)
            if part > 0:
                yield number, part / (end - begin)
            number += 1


@dataclass(frozen=True)
class Direction:
    """One direction of a link."""

    run: Counted
    name: str
    rate_bps: float | None
    bins: Mapping[str, Sequence[float]]

    def bits(self, *kinds: str) -> float:
        """Bits of IP packets of these kinds after the warm-up."""
        return sum(self.run.total(self.bins[f"{kind}_bytes"], self.run.warm_up_s, self.run.end_s) * 8 for kind in kinds)

    @property
    def measured_s(self) -> float:
        """The run without its warm-up, in s."""
        return self.run.end_s - self.run.warm_up_s


class CountedFlow:
    """One flow."""

    def __init__(self, run: Counted, spec: Mapping[str, Any]) -> None:
        self.run = run
        self.name = str(spec["name"])
        self.group: str | None = spec.get("group")
        self.counted = run.flows[self.name]
        self.start_s = max(float(spec.get("start_s", 0.0)), run.warm_up_s)
        self.end_s = min(float(spec.get("stop_s") or math.inf), run.end_s)

    def delivered_bits(self, from_s: float, to_s: float) -> float:
        """Bits of data that the receiver got in a period."""
        return self.run.total(self.counted["delivered_bytes"], from_s, to_s) * 8

    def packet_share(self) -> float:
        """Bytes of IP packets that a byte of data takes at the receiver; 1 without any."""
        payload = self.counted["payload_bytes"]
        return float(self.counted["packet_bytes"]) / payload if payload else 1.0


METRICS: dict[str, Metric] = {}


def _metric(
    unit: str, title: str, per: str, source: str
) -> Callable[[Callable[..., float | None]], Callable[..., float | None]]:
    def declare(function: Callable[..., float | None]) -> Callable[..., float | None]:
        name = function.__name__.removeprefix("counted_")
        METRICS[name] = Metric(name, unit, title, per, source, function)
        return function

    return declare


@_metric("rate", "Throughput", "flow", "asym 4.1")
def counted_throughput(flow: CountedFlow) -> float:
    """Bytes that the receiver got over the flow's time, from its start or the end of the warm-up to its stop or the run's end,
    in bit/s."""
    if flow.end_s <= flow.start_s:
        return 0.0
    return flow.delivered_bits(flow.start_s, flow.end_s) / (flow.end_s - flow.start_s)


@_metric("rate", "Throughput in packets", "flow", "asym 7.1 (CATALOGUE I-1), aq 4")
def counted_packet_throughput(flow: CountedFlow) -> float:
    """Throughput when whole IP packets count, in bit/s."""
    return (counted_throughput(flow) or 0.0) * flow.packet_share()


@_metric("rate", "Throughput in packets while all are active", "flow", "asym 7.1.2, 7.1.3")
def active_packet_throughput(flow: CountedFlow) -> float | None:
    """Packet throughput over the period in which every flow of the run is active, in bit/s; None for an empty period."""
    start_s, end_s = _all_active(flow.run)
    if end_s <= start_s:
        return None
    return flow.delivered_bits(start_s, end_s) * flow.packet_share() / (end_s - start_s)


@_metric("count", "Coarse timeouts", "flow", "ton IV-C")
def coarse_timeouts(flow: CountedFlow) -> float:
    """Coarse timeouts of the sender after the warm-up."""
    return flow.run.total(flow.counted["coarse_timeouts"], flow.start_s, flow.end_s)


@_metric("number", "Mean congestion window", "flow", "asym 7.1.1, table 1")
def cwnd_mean(flow: CountedFlow) -> float | None:
    """Time average of the sender's congestion window over the flow's time, in segments."""
    if flow.end_s <= flow.start_s:
        return None
    return flow.run.mean(flow.counted["cwnd_segments"], flow.start_s, flow.end_s)


@_metric("number", "Variation of the congestion window", "flow", "asym 7.1.1, figure 9")
def cwnd_coefficient_of_variation(flow: CountedFlow) -> float | None:
    """Standard deviation over mean of the congestion window's means over the bins of the flow's time."""
    return variation(flow.run.whole(flow.counted["cwnd_segments"], flow.start_s, flow.end_s))


@_metric("fraction", "Utilisation", "direction", "aq 4: bits sent over the rate times the time")
def utilisation(direction: Direction) -> float | None:
    """Bits of IP packets that came out of a direction after the warm-up, over its rate times that time; None without a rate."""
    return _of_rate(direction, "data", "ack", "other")


@_metric("fraction", "Utilisation by TCP", "direction", "aq 4.7")
def utilisation_tcp(direction: Direction) -> float | None:
    """The same for TCP segments alone."""
    return _of_rate(direction, "data", "ack")


@_metric("fraction", "Utilisation by data", "direction", "aq 4.5; pulsed 4.2")
def utilisation_data(direction: Direction) -> float | None:
    """The same for TCP segments with data."""
    return _of_rate(direction, "data")


@_metric("fraction", "Utilisation by acks", "direction", "aq 4.5")
def utilisation_acks(direction: Direction) -> float | None:
    """The same for TCP segments without data."""
    return _of_rate(direction, "ack")


@_metric("rate", "Carried rate", "direction", "pulsed 4.2, figure 4")
def carried(direction: Direction) -> float:
    """Bits of IP packets that came out of a direction a second after the warm-up, in bit/s."""
    return direction.bits("data", "ack", "other") / direction.measured_s


@_metric("rate", "Carried rate of TCP data", "direction", "aq 4.7")
def carried_data(direction: Direction) -> float:
    """The same for TCP segments with data, in bit/s."""
    return direction.bits("data") / direction.measured_s


@_metric("rate", "Carried rate of other than TCP", "direction", "aq 4.7")
def carried_other(direction: Direction) -> float:
    """The same for what is not TCP, in bit/s."""
    return direction.bits("other") / direction.measured_s


@_metric("fraction", "Share of data", "direction", "aq 4.5, figure 7; acq 3.2, figure 4")
def share_data(direction: Direction) -> float | None:
    """Bytes of TCP segments with data over all bytes of TCP segments that came out of a direction after the warm-up."""
    tcp = direction.bits("data", "ack")
    return direction.bits("data") / tcp if tcp else None


@_metric("fraction", "Share of acks", "direction", "aq 4.5, figure 7; acq 3.2, figure 4")
def share_acks(direction: Direction) -> float | None:
    """One less the share of data."""
    share = share_data(direction)
    return None if share is None else 1.0 - share


@_metric("number", "Variation of TCP data", "direction", "aq 1, figure 1")
def data_bin_variation(direction: Direction) -> float | None:
    """Standard deviation over mean of the bytes of TCP segments with data in the whole bins after the warm-up."""
    return variation(direction.run.whole(direction.bins["data_bytes"], direction.run.warm_up_s, direction.run.end_s))


@_metric("number", "Mean queue", "direction", "asym 7.1.3")
def queue_mean(direction: Direction) -> float:
    """Time average of the packets that wait before a direction after the warm-up, and from when every flow is active."""
    run = direction.run
    return run.mean(direction.bins["queue_packets"], max(run.warm_up_s, _all_active(run)[0]), run.end_s)


@_metric("rate", "Aggregate throughput in packets while all are active", "run", "asym 7.1.2")
def active_aggregate_throughput(run: Counted) -> float | None:
    """Sum of the flows' packet throughput over the period in which all are active, in bit/s; None for an empty period."""
    values = [active_packet_throughput(flow) for flow in run.of_flows()]
    return None if None in values else sum(value or 0.0 for value in values)


@_metric("number", "Fairness index", "run", "Jain; asym 3.2")
def counted_fairness_index(run: Counted) -> float | None:
    """Jain's index of the flows' throughput over the period in which all are active; None as in analysis.metrics."""
    start_s, end_s = _all_active(run)
    flows = run.of_flows()
    if len(flows) < 2 or end_s <= start_s:
        return None
    return jain([flow.delivered_bits(start_s, end_s) for flow in flows])


@_metric("number", "Utility", "link", "acq 2: x_r/C_r + x_f/C_f, data only")
def utility(forward: Direction, reverse: Direction) -> float | None:
    """Utilisation of both directions of a link by data, UDP's included, after the warm-up; at most 2."""
    parts = [_of_rate(one, "data", "other") for one in (forward, reverse)]
    return None if None in parts else sum(part or 0.0 for part in parts)


@_metric("time", "Settling time of the utility", "link", "acq 3.3, figure 5")
def utility_settling_time(forward: Direction, reverse: Direction) -> float | None:
    """When the utility, averaged over the 200 s before, first reaches 97 % of its mean over the run's second half, in s."""
    run = forward.run
    if not forward.rate_bps or not reverse.rate_bps or run.end_s < 4 * SETTLING_S:
        return None

    def mean(from_s: float, to_s: float) -> float:
        bits = {
            one.name: sum(run.total(one.bins[f"{kind}_bytes"], from_s, to_s) * 8 for kind in ("data", "other"))
            for one in (forward, reverse)
        }
        seconds = to_s - from_s
        return sum(bits[one.name] / (one.rate_bps or 1.0) / seconds for one in (forward, reverse))

    wanted = SETTLED * mean(run.end_s / 2, run.end_s)
    to_s = SETTLING_S
    while to_s <= run.end_s:
        if mean(to_s - SETTLING_S, to_s) >= wanted:
            return to_s
        to_s += max(run.every_s, SETTLING_S / 20)
    return None


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2 or not (mean := statistics.fmean(values)):
        return None
    return statistics.stdev(values) / mean


def _of_rate(direction: Direction, *kinds: str) -> float | None:
    if not direction.rate_bps or direction.measured_s <= 0:
        return None
    return direction.bits(*kinds) / direction.measured_s / direction.rate_bps


def _all_active(run: Counted) -> tuple[float, float]:
    flows = run.of_flows()
    return max(flow.start_s for flow in flows), min(flow.end_s for flow in flows)


#: Of a group of flows: the sum over its members.
SUMMED = frozenset({"throughput", "packet_throughput", "coarse_timeouts"})


def measure(run: Counted) -> list[dict[str, Any]]:
    """Every metric of a run: name, subject (a flow, a group, a direction, a link, or "" for the run), value, unit."""
    flows, directions = run.of_flows(), list(run.directions())
    pairs = {
        one.name.removesuffix(":forward"): (one, other)
        for one in directions
        for other in directions
        if one.name.endswith(":forward") and other.name == one.name.removesuffix("forward") + "reverse"
    }
    rows = []
    for metric in METRICS.values():
        values: dict[str, float | None]
        match metric.per:
            case "run":
                values = {"": metric.function(run)}
            case "direction":
                values = {one.name: metric.function(one) for one in directions}
            case "link":
                values = {name: metric.function(*ends) for name, ends in pairs.items()}
            case _:
                values = {flow.name: metric.function(flow) for flow in flows}
                if metric.name in SUMMED:
                    for group in dict.fromkeys(flow.group for flow in flows if flow.group is not None):
                        members = [values[flow.name] or 0.0 for flow in flows if flow.group == group]
                        values[group] = sum(members)
        for subject, value in values.items():
            if value is not None:
                rows.append({"metric": metric.name, "subject": subject, "value": float(value), "unit": metric.unit})
    return rows
