"""Calibration: measures the rate and delay of a link's directions and compares them with what the scenario declares.

A probe train is a burst of back-to-back packets, whose spacing at the receiver gives the rate, followed by single
packets on an idle line, whose transit gives the delay. This module is arithmetic; `testbed.conductor` sends the trains.

The limits are those of testbed.fidelity: rate within 0.5 % and delay within 1 ms unless the scenario sets others. A
packet that the link's own error model did not take must not be lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from testbed import kernel_links, node_binary
from testbed.fidelity import LIMITS
from testbed.report import Arrival, DirectionReport, Measurement
from testbed.scenario import Direction, DirectionSpec, Limits, LinkSpec, Named

PORT = 9007
#: Time for which a burst occupies the line, so long that a timer's lateness is far below the limit of the rate.
BURST_S = 1.2
MIN_BURST, MAX_BURST = 8, 1500
#: Fewest gaps between packets from which a rate is computed.
LEAST_GAPS = 4
#: Time over which the single packets are spread. It exceeds most pauses of a shared machine, so that one pause does not
#: decide the median.
SPACED_S = 0.4
MIN_SPACED, MAX_SPACED = 5, 15
#: Measurements of a link before its problems are reported. A pause of the machine is over by then.
ROUNDS = 3


@dataclass(frozen=True)
class Train:
    """A probe train: `burst` packets at once, then `spaced` single ones, all of `size_bytes` (IP length)."""

    size_bytes: int
    burst: int
    spaced: int
    #: Between the burst and the single packets: the line becomes idle.
    pause_s: float
    #: Between single packets.
    interval_s: float
    #: Longest time until the last packet arrives.
    patience_s: float

    @property
    def total(self) -> int:
        """Packets."""
        return self.burst + self.spaced


@dataclass(frozen=True)
class Probe:
    """A train and its arrivals on one direction of a link."""

    link: LinkSpec
    direction: Direction
    train: Train
    arrivals: Sequence[Arrival]

    @property
    def declared(self) -> DirectionSpec:
        """What the scenario declares."""
        return self.link.direction(self.direction)


@node_binary.cached
def _disorderly() -> frozenset[str]:
    """Error models under which a train measures neither rate nor delay."""
    models = node_binary.registry()["error_models"]
    return frozenset(model["name"] for model in models if model["disorder"] != "none")


def for_probing(link: LinkSpec) -> LinkSpec:
    """The link without schedule, jitter and reordering, with queues that hold a whole train.

    Jitter would need many more packets; during a run each is compared with what the line drew for it (analysis/audit).
    """
    queue = Named(name="droptail", options={"limit_packets": 2 * MAX_BURST})
    changes: dict[str, object] = {}
    for way, direction in link.directions():
        if _framing(direction) == "ppp":
            # Escapes would give probes of one size different lengths: milliseconds on a slow line.
            direction = direction.replace(options={**direction.options, "accm": 0})
        errors = tuple(model for model in direction.errors if model.name not in _disorderly())
        # CAKE is its own queue, and has no limit in packets.
        own = direction.queue if link.options.get("shaper") == "cake" else queue
        changes[way] = direction.replace(queue=own, schedule=(), errors=errors, jitter_s=0.0, keep_order=False)
    if link.options.get("shaper") == "cake":
        # CAKE brings its own queue management, which would drop from the burst.
        changes["options"] = {**link.options, "rtt_s": kernel_links.PATIENT_RTT_S}
    return link.replace(**changes)


@dataclass(frozen=True)
class Medium:
    """How a kind of link is probed."""

    #: Longest time of a packet over its time at the nominal rate.
    slack: float = 1.0
    #: Both directions share the medium, so they are probed one after the other.
    shared: bool = False
    #: A token bucket lets the first bytes pass at once. The rate is that of later packets, and a single packet's time
    #: on the line does not count towards its transit.
    bucket: bool = False


@node_binary.cached
def media() -> Mapping[str, Medium]:
    """Link kinds that can be probed. On other kinds a packet's time depends on other stations or on a trace; there the
    emulator compares every packet of a run with the link's own timeline.
    """
    emulated = {link["name"]: Medium(**link["probing"]) for link in node_binary.registry()["links"] if link["probing"]}
    return {**emulated, "kernel": Medium(bucket=True)}


#: Upper bound of what framing and escapes add to a probe on a serial line.
FRAMING_SLACK = 1.05


def _framing(direction: DirectionSpec) -> str:
    return str(direction.options.get("framing", "none"))


def train_for(link: LinkSpec, way: Direction, mtu_bytes: int | None = None) -> Train:
    """A train that takes about BURST_S on one direction of a link. Its packets fit the MTU of the link's interfaces,
    because the link would count each fragment.
    """
    direction = link.direction(way)
    slack = media()[link.kind].slack
    rate_bps = direction.rate_bps
    size = min(1500 if rate_bps is None or rate_bps >= 100_000 else 500, mtu_bytes or 1500)
    if rate_bps is None:
        burst, packet_s = MIN_BURST, 0.0
    else:
        bits_per_byte = direction.options.get("bits_per_byte", 8)
        packet_s = size * bits_per_byte / rate_bps * (1.0 if _framing(direction) == "none" else FRAMING_SLACK)
        burst = min(max(round(BURST_S / packet_s), MIN_BURST), MAX_BURST) + _bucket_packets(link, direction, size)
    interval_s = 1.5 * packet_s + 0.02
    pause_s = slack * burst * packet_s + 0.05
    spaced = min(max(round(SPACED_S / interval_s), MIN_SPACED), MAX_SPACED)
    total_s = pause_s + spaced * interval_s + packet_s + direction.delay_s
    return Train(size, burst, spaced, pause_s, interval_s, patience_s=2 * total_s + 3.0)


def _bucket_packets(link: LinkSpec, direction: DirectionSpec, size_bytes: int) -> int:
    """Packets of a burst that say nothing about the rate: those that fill a token bucket, and the one that overdraws
    it.
    """
    if direction.rate_bps is None or not media()[link.kind].bucket:
        return 0
    bucket_bytes = kernel_links.burst_bytes(direction.rate_bps, link.options)
    return math.ceil(bucket_bytes / size_bytes) + 1 if bucket_bytes else 0


def measurement(probe: Probe, counters: DirectionReport, limits: Limits = LIMITS) -> Measurement:
    """Compares a probe with the declaration; `counters` are the direction's, for what its error models took."""
    declared, train = probe.declared, probe.train
    arrivals = sorted(probe.arrivals, key=lambda arrival: arrival.seq)
    problems = []

    bucket = _bucket_packets(probe.link, declared, train.size_bytes)
    rate_bps = _rate_bps(arrivals, train, counters, bucket)
    if declared.rate_bps is not None:
        if rate_bps is None:
            problems.append("too few packets arrived to measure the rate")
        elif abs(rate_bps / declared.rate_bps - 1) > limits.rate:
            problems.append(f"rate {rate_bps:.0f} bit/s instead of {declared.rate_bps} bit/s")

    delay_s = _delay_s(arrivals, train, None if bucket else declared.rate_bps, counters)
    if delay_s is not None and declared.rate_bps is not None and _framing(declared) != "none":
        # Each single packet, and the first of the burst, finds the line idle and carries one more delimiter.
        more_bytes = 1 - (train.spaced + 1) / train.total
        delay_s -= more_bytes * declared.options.get("bits_per_byte", 8) / declared.rate_bps
    if delay_s is None:
        problems.append("too few packets arrived to measure the delay")
    elif abs(delay_s - declared.delay_s) > limits.delay_s:
        problems.append(f"delay {delay_s * 1e3:.2f} ms instead of {declared.delay_s * 1e3:.2f} ms")

    taken = counters.error_losses
    lost = train.total - len(arrivals)
    if lost != taken:
        problems.append(f"{lost} of {train.total} packets lost, {taken} of them by the error model")
    return Measurement(
        link=probe.link.name,
        direction=probe.direction,
        declared_rate_bps=declared.rate_bps,
        measured_rate_bps=rate_bps if declared.rate_bps is not None else None,
        declared_delay_s=declared.delay_s,
        measured_delay_s=delay_s,
        sent=train.total,
        received=len(arrivals),
        taken_by_errors=taken,
        problems=tuple(problems),
    )


def in_rounds(links: set[str], measure: Callable[[set[str]], Sequence[Measurement]]) -> list[Measurement]:
    """Measures links by name, and repeats those with problems up to ROUNDS times in all.

    Returns: the last measurement of each direction, in the order of the first round.
    """
    latest: dict[tuple[str, str], Measurement] = {}
    for _ in range(ROUNDS):
        measured = measure(links)
        latest.update({(line.link, line.direction): line for line in measured})
        links = {line.link for line in measured if line.problems}
        if not links:
            break
    return list(latest.values())


def _wire_bytes(counters: DirectionReport, train: Train) -> float:
    """Bytes per probe on the line, with the link's framing."""
    transmitted = counters.transmitted_packets
    return counters.transmitted_wire_bytes / transmitted if transmitted else train.size_bytes


def _rate_bps(arrivals: Sequence[Arrival], train: Train, counters: DirectionReport, first: int = 0) -> float | None:
    """From the first to the last packet of the burst that arrived; lost packets in between used the line too."""
    burst = [arrival for arrival in arrivals if first <= arrival.seq < train.burst]
    if len(burst) < 2:
        return None
    gaps = burst[-1].seq - burst[0].seq
    span_ns = burst[-1].received_ns - burst[0].received_ns
    if gaps < LEAST_GAPS or span_ns <= 0:
        return None
    return float(gaps * _wire_bytes(counters, train) * 8 * 1e9 / span_ns)


def _delay_s(
    arrivals: Sequence[Arrival], train: Train, rate_bps: float | None, counters: DirectionReport
) -> float | None:
    """Median transit of the single packets, less their time on the line."""
    transits = sorted(
        (arrival.received_ns - arrival.sent_ns) / 1e9 for arrival in arrivals if arrival.seq >= train.burst
    )
    if not transits:
        return None
    median = float(transits[len(transits) // 2])
    return median - (_wire_bytes(counters, train) * 8 / rate_bps if rate_bps else 0.0)
