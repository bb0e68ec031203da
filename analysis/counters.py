"""Metrics of a simulated run from its counters, for runs that are too long or too fast to keep captures.

`backchannel-node simulate` writes counters.json where the scenario asks for it (`capture.counters`): in bins of
equal length, what came out of each direction of a link, how many packets waited before it, what each flow's receiver
got and how wide its sender's window was. Here each metric is one function again; where a metric of analysis.metrics
has the same name it is the same quantity. Periods that begin or end within a bin take the bin's share.

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

from analysis.metrics import Metric, jain, upswing
from analysis.statistics import variation

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
    #: The simulator's report.
    report: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path, scenario: Mapping[str, Any], report: Mapping[str, Any]) -> Counted | None:
        """Reads counters.json of a run's folder; None if the run has none."""
        path = folder / "counters.json"
        if not path.is_file():
            return None
        raw = json.loads(path.read_text())
        return cls(scenario, raw["every_s"], raw["end_s"], raw["links"], raw["flows"], report)

    @property
    def warm_up_s(self) -> float:
        """From here on the run is measured."""
        return float(self.scenario.get("warm_up_s", 0.0))

    def packet_bytes(self, flow: Mapping[str, Any]) -> int:
        """Greatest packet of a flow's sender."""
        stacks = {node["name"]: node.get("stack") for node in self.scenario["nodes"]}
        options = {**(stacks[flow["from"]] or {}).get("options", {}), **flow.get("stack", {})}
        return int(options.get("packet_bytes", 1500))

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
        self.spec = spec
        self.name = str(spec["name"])
        self.group: str | None = spec.get("group")
        self.counted = run.flows[self.name]
        self.start_s = max(float(spec.get("start_s", 0.0)), run.warm_up_s)
        self.sent: Mapping[str, Any] = run.report["flows"][self.name]["send"]
        self.begun_s = float(spec.get("start_s", 0.0))
        size, delivered = spec.get("bytes"), sum(self.counted["delivered_bytes"])
        #: When its last byte arrived, for a flow with a size that is through.
        self.completed_s = float(self.counted["last_s"]) if size is not None and delivered >= size else None
        self.end_s = self.completed_s or min(float(spec.get("stop_s") or math.inf), run.end_s)

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
    """Bytes that the receiver got over the flow's time, from its start or the end of the warm-up to its stop or the
    run's end, in bit/s.
    """
    if flow.end_s <= flow.start_s:
        return 0.0
    return flow.delivered_bits(flow.start_s, flow.end_s) / (flow.end_s - flow.start_s)


@_metric("rate", "Throughput in packets", "flow", "asym 7.1 (CATALOGUE I-1), aq 4")
def counted_packet_throughput(flow: CountedFlow) -> float:
    """Throughput when whole IP packets count, in bit/s."""
    return (counted_throughput(flow) or 0.0) * flow.packet_share()


@_metric("rate", "Throughput in packets while all are active", "flow", "asym 7.1.2, 7.1.3")
def active_packet_throughput(flow: CountedFlow) -> float | None:
    """Packet throughput over the period in which every flow of the run is active, in bit/s; None for an empty
    period.
    """
    start_s, end_s = _all_active(flow.run)
    if end_s <= start_s:
        return None
    return flow.delivered_bits(start_s, end_s) * flow.packet_share() / (end_s - start_s)


@_metric("time", "Completion time", "flow", "asym 7.3")
def counted_completion_time(flow: CountedFlow) -> float | None:
    """From the flow's start to the arrival of its last byte, in s; None for a flow without a size or unfinished."""
    return None if flow.completed_s is None else flow.completed_s - flow.begun_s


@_metric("time", "Mean completion time", "run", "asym 7.3, figure 16")
def mean_completion_time(run: Counted) -> float | None:
    """Over the run's flows with a size that are through, in s; None without one."""
    times = [time for flow in run.of_flows() if (time := counted_completion_time(flow)) is not None]
    return statistics.fmean(times) if times else None


@_metric("rate", "Throughput while all are active", "flow", "asym 9.1.3")
def active_throughput(flow: CountedFlow) -> float | None:
    """Throughput over the period in which every flow of the run is active, in bit/s; None for an empty period."""
    start_s, end_s = _all_active(flow.run)
    return flow.delivered_bits(start_s, end_s) / (end_s - start_s) if end_s > start_s else None


@_metric("time", "First upswing", "flow", "asym 4.2.2, figure 4")
def first_upswing(flow: CountedFlow) -> float | None:
    """Start of the first ten bins in a row, after one without anything, in which the receiver gets more than twice
    its mean of the flow's whole time, in s since the run's start; None without any.
    """
    first = upswing(flow.run.whole(flow.counted["delivered_bytes"], flow.start_s, flow.end_s))
    return None if first is None else (math.ceil(flow.start_s / flow.run.every_s) + first) * flow.run.every_s


@_metric("count", "Coarse timeouts", "flow", "ton IV-C")
def coarse_timeouts(flow: CountedFlow) -> float:
    """Coarse timeouts of the sender after the warm-up."""
    return flow.run.total(flow.counted["coarse_timeouts"], flow.start_s, flow.end_s)


@_metric("count", "Fast retransmits", "flow", "ton IV-B, figure 5")
def fast_retransmits(flow: CountedFlow) -> float | None:
    """Fast retransmits of the sender in the whole run; None for a flow that is no TCP."""
    return flow.sent.get("fast_retransmits")


@_metric("count", "Retransmissions", "flow", "the sender's own count")
def counted_retransmissions(flow: CountedFlow) -> float | None:
    """Data segments that the sender sent again in the whole run; None for a flow that is no TCP."""
    return flow.sent.get("retransmitted")


@_metric("count", "Falls of the congestion window", "flow", "ton IV-B, figure 4")
def cwnd_excursions(flow: CountedFlow) -> float:
    """How often the congestion window, after its first 5 s, falls from 23 000 bytes or more, the wide-area path's
    product of bandwidth and delay, to less: by its means over the bins, with 40 bytes of header a packet.
    """
    data_bytes = flow.run.packet_bytes(flow.spec) - 40
    levels = flow.run.whole(flow.counted["cwnd_segments"], flow.start_s + 5.0, flow.end_s)
    above = [level * data_bytes >= 23_000 for level in levels]
    return float(sum(before and not now for before, now in zip(above, above[1:], strict=False)))


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


@_metric("time", "Round-trip time", "flow", "asym 7.1.1, table 1")
def counted_rtt_mean(flow: CountedFlow) -> float | None:
    """Mean of the sender's last exact round-trip time at each ack of new data, over the whole run, in s."""
    samples = flow.counted["round_trips"]
    return float(flow.counted["round_trips_s"]) / samples if samples else None


@_metric("time", "Spread of the round-trip time", "flow", "asym 7.2.2, figure 13")
def rtt_stddev(flow: CountedFlow) -> float | None:
    """Standard deviation of the samples of `rtt_mean`, in s."""
    samples = flow.counted["round_trips"]
    if samples < 2 or "round_trips_squared_s2" not in flow.counted:
        return None
    mean = float(flow.counted["round_trips_s"]) / samples
    return math.sqrt(max(float(flow.counted["round_trips_squared_s2"]) / samples - mean * mean, 0.0))


@_metric("number", "Growth of the congestion window", "flow", "pulsed 3.2.2")
def cwnd_growth(flow: CountedFlow) -> float | None:
    """Segments a second by which the window's means over the bins grow from the first to the last of the flow's
    time.
    """
    levels = flow.run.whole(flow.counted["cwnd_segments"], flow.start_s, flow.end_s)
    return (levels[-1] - levels[0]) / ((len(levels) - 1) * flow.run.every_s) if len(levels) > 1 else None


@_metric("number", "Size of data packets", "direction", "pulsed 4.1, table 4")
def data_packet_size(direction: Direction) -> float | None:
    """Mean bytes of the IP packets with TCP data that came out of a direction in the whole run."""
    packets = float(direction.bins["data_packets"])  # type: ignore[arg-type]
    return sum(direction.bins["data_bytes"]) / packets if packets else None


@_metric(
    "fraction", "Goodput of data", "direction", "ton IV-A: the transfer's bytes over all that were sent over a link"
)
def data_goodput(direction: Direction) -> float | None:
    """Bytes that the receivers of all flows got over the bytes of TCP data that came out of a direction, damaged or
    not and without headers, in the whole run.
    """
    sent = float(direction.bins["data_payload_bytes"])  # type: ignore[arg-type]
    return sum(sum(flow.counted["delivered_bytes"]) for flow in direction.run.of_flows()) / sent if sent else None


@_metric("number", "Size of acks", "direction", "pulsed 4.1, table 4")
def ack_packet_size(direction: Direction) -> float | None:
    """Mean bytes of the pure acks that came out of a direction in the whole run."""
    packets = float(direction.bins["ack_packets"])  # type: ignore[arg-type]
    return float(direction.bins["ack_packets_bytes"]) / packets if packets else None  # type: ignore[arg-type]


@_metric("number", "Acks lost in a row", "direction", "asym 7.1.1 B")
def longest_ack_drop_run(direction: Direction) -> float:
    """The most pure acks in a row, in the order in which they entered, of which none came out."""
    return float(direction.bins["longest_lost_run_of_acks"])  # type: ignore[arg-type]


@_metric("time", "Longest gap of data", "direction", "asym 7.1.3, figure 10")
def longest_gap_of_data(direction: Direction) -> float:
    """Longest time without TCP data out of a direction while every flow is active, in s, to the length of a bin."""
    return max(_gaps(direction, "data_bytes"), default=0) * direction.run.every_s


@_metric("time", "Commonest gap of acks", "direction", "asym 7.1.3, figure 11")
def commonest_gap_of_acks(direction: Direction) -> float | None:
    """Mode of the times of more than 50 ms without pure acks out of a direction while every flow is active, in s, to
    the length of a bin; None where no bin is that short, or without such a gap.
    """
    every_s = direction.run.every_s
    gaps = [gap for gap in _gaps(direction, "ack_bytes") if gap * every_s > 0.05]
    return statistics.mode(gaps) * every_s if gaps and every_s < 0.05 else None


@_metric("fraction", "Utilisation", "direction", "aq 4: bits sent over the rate times the time")
def utilisation(direction: Direction) -> float | None:
    """Bits of IP packets that came out of a direction after the warm-up, over its rate times that time; None without
    a rate.
    """
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


@_metric("rate", "Carried rate of acks", "direction", "docs/beyond.md")
def carried_acks(direction: Direction) -> float:
    """The same for TCP segments without data, in bit/s."""
    return direction.bits("ack") / direction.measured_s


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
    """Time average of the packets that wait before a direction after the warm-up, and from when every flow is
    active.
    """
    run = direction.run
    return run.mean(direction.bins["queue_packets"], max(run.warm_up_s, _all_active(run)[0]), run.end_s)


@_metric("rate", "Aggregate throughput in packets while all are active", "run", "asym 7.1.2")
def active_aggregate_throughput(run: Counted) -> float | None:
    """Sum of the flows' packet throughput over the period in which all are active, in bit/s; None for an empty
    period.
    """
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


@_metric("number", "Retransmissions of the source for each packet lost", "run", "ton IV-B")
def resent_per_loss(run: Counted) -> float | None:
    """Segments that the senders sent again over the packets that error models destroyed in the forward directions of
    all links.
    """
    lost = sum(link["forward"]["error_losses"] for link in run.report["driver"]["links"].values())
    return sum(flow.sent.get("retransmitted", 0) for flow in run.of_flows()) / lost if lost else None


@_metric("number", "Variation over the flows", "run", "asym 7.2.3, table 6")
def throughput_variation(run: Counted) -> float | None:
    """Standard deviation over mean of the flows' throughput in packets, over all of them (not a sample of more);
    None for one.
    """
    values = [counted_packet_throughput(flow) or 0.0 for flow in run.of_flows()]
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if len(values) > 1 and mean else None


@_metric("rate", "Spread over the flows, as printed", "run", "asym 7.2.3, table 6")
def throughput_spread(run: Counted) -> float | None:
    """Standard deviation of the flows' throughput in packets times their number, in bit/s: what table 6 must have
    printed, for its values exceed what a single flow's can be.
    """
    values = [counted_packet_throughput(flow) or 0.0 for flow in run.of_flows()]
    return statistics.pstdev(values) * len(values) if len(values) > 1 else None


@_metric("rate", "Aggregate throughput in packets", "run", "sum over the flows")
def aggregate_packet_throughput(run: Counted) -> float:
    """Sum of the flows' throughput in packets, in bit/s."""
    return sum(counted_packet_throughput(flow) or 0.0 for flow in run.of_flows())


@_metric("fraction", "Idle share", "direction", "asym 5.2")
def idle_fraction(direction: Direction) -> float | None:
    """Share of the bins, from the start of the first flow to the end of the last, without TCP data out of a
    direction.
    """
    run = direction.run
    flows = run.of_flows()
    bins = run.whole(
        direction.bins["data_bytes"], min(flow.begun_s for flow in flows), max(flow.end_s for flow in flows)
    )
    return sum(not count for count in bins) / len(bins) if bins else None


@_metric("number", "Utility", "link", "acq 2: x_r/C_r + x_f/C_f, data only")
def utility(forward: Direction, reverse: Direction) -> float | None:
    """Utilisation of both directions of a link by data, UDP's included, after the warm-up; at most 2."""
    parts = [_of_rate(one, "data", "other") for one in (forward, reverse)]
    return None if None in parts else sum(part or 0.0 for part in parts)


@_metric("time", "Settling time of the utility", "link", "acq 3.3, figure 5")
def utility_settling_time(forward: Direction, reverse: Direction) -> float | None:
    """When the utility, averaged over the 200 s before, first reaches 97 % of its mean over the run's second half,
    in s.
    """
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


def _gaps(direction: Direction, kind: str) -> list[int]:
    """Runs of empty bins, without those at the edges, while every flow is active."""
    run = direction.run
    lengths, length = [], 0
    for count in run.whole(direction.bins[kind], *_all_active(run)):
        if count:
            lengths.append(length)
            length = 0
        else:
            length += 1
    return [one for one in lengths[1:] if one]


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
