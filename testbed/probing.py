"""Calibration: what a link's directions really do, held against what the scenario declares.

A probe is a burst of back-to-back packets, whose spacing at the far end gives the rate, and then single packets that
find the line idle, whose transit gives the delay. Everything here is arithmetic; `testbed.emulated` sends the probes.

Limits are those of the calibration gate (testbed.fidelity): rate within 0.5 %, delay within 1 ms, unless the scenario
sets others, and no packet lost that the link's own error model did not take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from testbed import kernel_links
from testbed.fidelity import LIMITS, Limits

PORT = 9007
#: What a burst should occupy the line for: long enough that a timer's lateness is far below the rate limit.
BURST_S = 1.2
MIN_BURST, MAX_BURST = 8, 1500
#: Fewer spacings than these tell no rate.
LEAST_GAPS = 4
#: What the single packets should be spread over: longer than most moments in which a shared machine stands still, so
#: that one of these does not decide.
SPACED_S = 0.4
MIN_SPACED, MAX_SPACED = 5, 15
#: Measurements of a link before its problems are believed: a bad moment is past by then, a wrong line is still wrong.
ROUNDS = 3


@dataclass(frozen=True)
class Train:
    """A probe: `burst` packets at once, then `spaced` single ones, all of `size_bytes` (IP length)."""

    size_bytes: int
    burst: int
    spaced: int
    #: Between the burst and the single packets: until the line is idle again.
    pause_s: float
    #: Between single packets.
    interval_s: float
    #: Longest time until the last packet should have come.
    patience_s: float

    @property
    def total(self) -> int:
        """Packets in all."""
        return self.burst + self.spaced


@dataclass(frozen=True)
class Probed:
    """What came of a probe: the receiver's report has `packets`, a list of {"seq", "sent_ns", "received_ns"}."""

    link: Mapping[str, Any]
    direction: str
    train: Train
    received: Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """One direction of one link, declared and measured. Rates in bit/s, delays in s; None where nothing is declared."""

    link: str
    direction: str
    declared_rate_bps: float | None
    measured_rate_bps: float | None
    declared_delay_s: float
    measured_delay_s: float | None
    sent: int
    received: int
    #: Packets that the link's error model took; these are meant to be lost.
    taken_by_errors: int
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


#: Error models under which a train of probes measures neither rate nor delay.
DISORDERLY = frozenset({"reorder", "duplicate"})


def for_probing(link: Mapping[str, Any]) -> dict[str, Any]:
    """The link with queues so deep that no probe is dropped by a policy, with no changes over time, and in order."""
    deep = {"name": "droptail", "options": {"limit_packets": 2 * MAX_BURST}}
    changed: dict[str, Any] = {}
    for name in ("forward", "reverse"):
        direction = {key: value for key, value in link[name].items() if key != "schedule"} | {"queue": deep}
        if _framing(direction) == "ppp":
            # Escapes make probes of one size unequal on the line, which on a slow one is milliseconds.
            direction["options"] = {**direction["options"], "accm": 0}
        if "errors" in direction:
            direction["errors"] = [model for model in direction["errors"] if model["name"] not in DISORDERLY]
        changed[name] = direction
    if link["options"].get("shaper") == "cake":
        # Its queue is its own, and takes from a burst as from a flow that does not listen.
        changed["options"] = {**link["options"], "rtt_s": kernel_links.PATIENT_RTT_S}
    return {**link, **changed}


@dataclass(frozen=True)
class Medium:
    """How a kind of link is probed."""

    #: What a packet takes at most, over its bits at the rate.
    slack: float = 1.0
    #: Both directions are one medium and would measure each other.
    shared: bool = False
    #: Some bytes may pass at once at first: the rate is that of the packets after them. Such a link lets a single
    #: packet pass at once too, whose time on the line then shows in the spacing alone.
    bucket: bool = False


#: Kinds of links that can be probed. A packet's time on the others depends on who else talks, or on a trace: there each
#: run holds every packet against the link's own timeline.
MEDIA: Mapping[str, Medium] = {
    "point-to-point": Medium(),
    # Spacing, backoff, preamble: up to half as long again.
    "wavelan": Medium(slack=1.5, shared=True),
    "kernel": Medium(bucket=True),
}

#: Framing and its escapes add to a probe on a serial line, at most.
FRAMING_SLACK = 1.05


def _framing(direction: Mapping[str, Any]) -> str:
    return str(direction.get("options", {}).get("framing", "none"))


def train_for(link: Mapping[str, Any], way: str) -> Train:
    """A train that takes about BURST_S on one direction of a link."""
    direction = link[way]
    slack = MEDIA[link["kind"]].slack
    rate_bps = direction.get("rate_bps")
    size = 1500 if rate_bps is None or rate_bps >= 100_000 else 500
    if rate_bps is None:
        burst, packet_s = MIN_BURST, 0.0
    else:
        bits_per_byte = direction.get("options", {}).get("bits_per_byte", 8)
        packet_s = size * bits_per_byte / rate_bps * (1.0 if _framing(direction) == "none" else FRAMING_SLACK)
        burst = min(max(round(BURST_S / packet_s), MIN_BURST), MAX_BURST) + _at_once(link, way, size)
    delay_s = float(direction.get("delay_s", 0.0))
    interval_s = 1.5 * packet_s + 0.02
    pause_s = slack * burst * packet_s + 0.05
    spaced = min(max(round(SPACED_S / interval_s), MIN_SPACED), MAX_SPACED)
    total_s = pause_s + spaced * interval_s + packet_s + delay_s
    return Train(size, burst, spaced, pause_s, interval_s, patience_s=2 * total_s + 3.0)


def _at_once(link: Mapping[str, Any], way: str, size_bytes: int) -> int:
    """Packets of a burst that tell nothing of the rate: those that fill a token bucket, and one that overdraws it."""
    rate_bps = link[way].get("rate_bps")
    if rate_bps is None or not MEDIA[link["kind"]].bucket:
        return 0
    held_bytes = kernel_links.burst_bytes(rate_bps, link["options"])
    return math.ceil(held_bytes / size_bytes) + 1 if held_bytes else 0


def hold_against(probed: Probed, report: Mapping[str, Any], limits: Limits = LIMITS) -> Measurement:
    """Holds one probe against the declaration; `report` is the emulator's, for what its error models took."""
    declared = probed.link[probed.direction]
    packets = sorted(probed.received["packets"], key=lambda packet: packet["seq"])
    counters = report["links"][probed.link["name"]][probed.direction]
    taken = int(counters["error_losses"])
    problems = []

    at_once = _at_once(probed.link, probed.direction, probed.train.size_bytes)
    rate_bps = _rate_bps(packets, probed.train, counters, at_once)
    declared_bps = declared.get("rate_bps")
    if declared_bps is not None:
        if rate_bps is None:
            problems.append("too few packets arrived to tell the rate")
        elif abs(rate_bps / declared_bps - 1) > limits.rate:
            problems.append(f"rate {rate_bps:.0f} bit/s instead of {declared_bps} bit/s")

    declared_s = float(declared.get("delay_s", 0.0))
    delay_s = _delay_s(packets, probed.train, None if at_once else declared_bps, counters)
    if delay_s is not None and declared_bps is not None and _framing(declared) != "none":
        # Each single packet finds the line idle and brings a delimiter more; of the burst, one does.
        more_bytes = 1 - (probed.train.spaced + 1) / probed.train.total
        delay_s -= more_bytes * declared.get("options", {}).get("bits_per_byte", 8) / declared_bps
    if delay_s is None:
        problems.append("too few packets arrived to tell the delay")
    elif abs(delay_s - declared_s) > limits.delay_s:
        problems.append(f"delay {delay_s * 1e3:.2f} ms instead of {declared_s * 1e3:.2f} ms")

    lost = probed.train.total - len(packets)
    if lost != taken:
        problems.append(f"{lost} of {probed.train.total} packets lost, {taken} of them by the error model")
    return Measurement(
        link=probed.link["name"],
        direction=probed.direction,
        declared_rate_bps=declared_bps,
        measured_rate_bps=rate_bps if declared_bps is not None else None,
        declared_delay_s=declared_s,
        measured_delay_s=delay_s,
        sent=probed.train.total,
        received=len(packets),
        taken_by_errors=taken,
        problems=tuple(problems),
    )


def in_rounds(links: set[str], measure: Callable[[set[str]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Measures links, and those with problems again; `measure` takes their names and gives measurements as dicts.

    Returns: the last measurement of each direction, in the order of the first.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(ROUNDS):
        measured = measure(links)
        found.update({(one["link"], one["direction"]): one for one in measured})
        links = {one["link"] for one in measured if one["problems"]}
        if not links:
            break
    return list(found.values())


def _wire_bytes(counters: Mapping[str, Any], train: Train) -> float:
    """Bytes that a probe occupies the line with: its own and the link's framing."""
    transmitted = int(counters["transmitted_packets"])
    return counters["transmitted_wire_bytes"] / transmitted if transmitted else train.size_bytes


def _rate_bps(
    packets: list[Mapping[str, Any]], train: Train, counters: Mapping[str, Any], first: int = 0
) -> float | None:
    """From the first to the last packet of the burst that arrived; lost ones in between occupied the line too."""
    burst = [packet for packet in packets if first <= packet["seq"] < train.burst]
    if len(burst) < 2:
        return None
    gaps = burst[-1]["seq"] - burst[0]["seq"]
    span_ns = burst[-1]["received_ns"] - burst[0]["received_ns"]
    if gaps < LEAST_GAPS or span_ns <= 0:
        return None
    return float(gaps * _wire_bytes(counters, train) * 8 * 1e9 / span_ns)


def _delay_s(
    packets: list[Mapping[str, Any]], train: Train, rate_bps: float | None, counters: Mapping[str, Any]
) -> float | None:
    """Median transit of the single packets, less their time on the line."""
    transits = sorted(
        (packet["received_ns"] - packet["sent_ns"]) / 1e9 for packet in packets if packet["seq"] >= train.burst
    )
    if not transits:
        return None
    median = float(transits[len(transits) // 2])
    return median - (_wire_bytes(counters, train) * 8 / rate_bps if rate_bps else 0.0)
