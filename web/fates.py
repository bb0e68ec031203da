"""What became of a segment of a run, in words, from its captures and the telemetry of its lines."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.captures import FAST_RETRANSMISSION, RETRANSMISSION, TIMEOUT, CapturedFlow, MissingCapture
from analysis.captures.fate import Lost, Sent, TransmissionOutcome, fate
from analysis.routes import Routes
from testbed.addressing import make_plan
from testbed.scenario import Direction
from testbed.units import number_of

#: Time between a packet's capture and what its line wrote down of it, at most, in s.
BESIDE_S = 0.001
#: Reasons of telemetry in words.
REASONS = {
    "dropped_full": "dropped",
    "dropped_early": "dropped early by the policy",
    "purged": "purged by the policy",
    "lost": "lost to an error of the link",
    "damaged": "damaged by an error of the link",
}


@dataclass(frozen=True)
class LossLocation:
    """Where and why a transmission was lost."""

    link: str
    direction: Direction
    t_s: float
    #: A key of REASONS, or "" without telemetry.
    event: str
    queue_packets: int | None
    limit_packets: int | None


@dataclass(frozen=True)
class SegmentExplanation:
    """What became of a transmission, for the page."""

    sentence: str
    sent_s: float
    arrived_s: float | None
    lost: LossLocation | None
    again_s: float | None


def explain_segment(flow: CapturedFlow, seq: int, payload: int, at: float) -> SegmentExplanation | None:
    """What became of the transmission of a segment at a time; None if the sender's capture does not have it.

    Raises:
        MissingCapture: the sender was not captured.
    """
    scenario, spec = flow.run.scenario, flow.spec
    columns = ("dir", "seq", "payload", "ack", "class")
    asks = (pl.col("dir") == 1) & (pl.col("ack") == seq) & (pl.col("payload") == 0)
    mine = (pl.col("dir") == 0) & (pl.col("seq") == seq) & (pl.col("payload") == payload)
    rows = flow.rows(columns, where=mine | asks)
    sent_rows = rows.filter((pl.col("dir") == 0) & ((pl.col("t_s") - at).abs() < 1e-6))
    if sent_rows.is_empty():
        return None
    stream = sent_rows["stream"][0]
    rows = rows.filter(pl.col("stream") == stream)
    sent = [Sent(t_s, _kind(bits)) for t_s, bits in rows.filter(pl.col("dir") == 0).select("t_s", "class").iter_rows()]
    acks = rows.filter(pl.col("dir") == 1)["t_s"].to_list()
    # Nothing is known of an import's network.
    path = Routes(make_plan(scenario.nodes, scenario.links)).between(spec.from_, spec.to) if scenario.links else []
    result = fate(sent, at, flow.capture_times(stream, seq, payload), path, acks)
    if result is None:
        return None
    place = _place(flow, result.lost) if result.lost else None
    again_s = result.again.t_s if result.again else None
    return SegmentExplanation(_sentence(result, place), result.sent.t_s, result.arrived_s, place, again_s)


def _kind(bits: int) -> str:
    if not bits & RETRANSMISSION:
        return ""
    return "timeout" if bits & TIMEOUT else "fast retransmission" if bits & FAST_RETRANSMISSION else "retransmission"


def _place(flow: CapturedFlow, lost: Lost) -> LossLocation:
    """Where it was lost, with the event that the line wrote down nearest to that instant, and its queue then."""
    scenario = flow.run.scenario
    link = next(link for link in scenario.links if link.name == lost.link)
    direction: Direction = "reverse" if link.ends.index(lost.node) else "forward"
    event, nearest_s, queue = "", BESIDE_S, None
    here = (pl.col("link") == lost.link) & (pl.col("direction") == direction) & pl.col("part").is_null()
    try:
        told = flow.tables.telemetry.filter(here).select("t_s", "packets", "event", "pure_ack")
    except MissingCapture:
        told = pl.DataFrame(schema=("t_s", "packets", "event", "pure_ack"))
    for t_s, packets, name, is_ack in told.iter_rows():
        apart_s = t_s - lost.t_s
        if packets is not None and apart_s <= 0:
            queue = int(packets)
        elif name in REASONS and not is_ack and abs(apart_s) < nearest_s:
            event, nearest_s = name, abs(apart_s)
    limit = scenario.direction(lost.link, direction).queue.options.get("limit_packets")
    if event == "dropped_full" and limit:
        # Samples are rarer than packets; the reason says that the queue was full.
        queue = int(limit)
    return LossLocation(lost.link, direction, lost.t_s, event, queue, int(limit) if limit else None)


def _sentence(result: TransmissionOutcome, place: LossLocation | None) -> str:
    if place is not None:
        held = f", queue {place.queue_packets} of {place.limit_packets} packets" if place.limit_packets else ""
        reason = REASONS.get(place.event, "lost")
        where = f"{reason[0].upper()}{reason[1:]} at {place.link} {place.direction}, {place.t_s:.3f} s"
        parts = [f"{where}{held if place.queue_packets is not None else ''}"]
    elif result.arrived_s is not None:
        parts = [f"Arrived after {(result.arrived_s - result.sent.t_s) * 1e3:.4g} ms"]
    else:
        parts = ["The captures do not show whether it arrived"]
    if result.again is None:
        return f"{parts[0]}; not retransmitted."
    waited_s = result.again.t_s - result.sent.t_s
    many = "in recovery, without duplicate acks"
    if result.duplicate_acks:
        many = f"after {number_of(result.duplicate_acks, 'duplicate ack')}"
    reasons = {"timeout": f"by a timeout, {waited_s:.3g} s later", "fast retransmission": many}
    why = reasons.get(result.again.kind, f"{waited_s:.3g} s later")
    return f"{parts[0]}; retransmitted at {result.again.t_s:.3f} s {why}."
