"""Acks: sent, filtered, dropped, marked, reconstructed, delivered."""

from __future__ import annotations

from typing import Any

import polars as pl

from analysis.captures import DATA, PURE_ACK, CapturedFlow, CapturedLine, RunData, is_a
from analysis.metrics.registry import metric
from analysis.metrics.throughput import LEAST_S


@metric(
    "count", "Acks sent", CapturedFlow, "pure acks at the receiver's interface", detail=True, summed=True, better=None
)
def acks_sent(flow: CapturedFlow) -> float:
    """Number of pure acks that the flow's receiver sent, at its own interface."""
    return float(flow.ack_times(receiver=True).len())


@metric(
    "count",
    "Acks delivered",
    CapturedFlow,
    "pure acks at the sender's interface",
    detail=True,
    summed=True,
    better=None,
)
def acks_delivered(flow: CapturedFlow) -> float:
    """Number of pure acks that arrived at the flow's sender, at its interface, reconstructed ones included."""
    return float(flow.ack_times(receiver=False).len())


@metric(
    "number", "Acks delivered a second", CapturedFlow, "pure acks at the sender's interface", detail=True, better=None
)
def ack_rate(flow: CapturedFlow) -> float | None:
    """Pure acks that arrived at the flow's sender in its measured time over that time, in 1/s; None without a time."""
    end_s = flow.ended_s()
    inside = flow.ack_times(receiver=False).is_between(flow.start_s, end_s)
    return float(inside.sum()) / (end_s - flow.start_s) if end_s - flow.start_s > LEAST_S else None


@metric("number", "Data segments per ack", CapturedFlow, "asym 6.1: the delayed-ack factor d", detail=True, better=None)
def segments_per_ack(flow: CapturedFlow) -> float | None:
    """Data segments that arrived at the receiver over the pure acks it sent; None without acks."""
    acks = acks_sent(flow)
    data = flow.at_receiver.filter((pl.col("dir") == 0) & is_a(DATA)).height
    return data / acks if acks else None


def _count(line: CapturedLine, *kinds: str) -> float:
    return float(sum(line.acks_by_event.get(kind, 0) for kind in kinds))


@metric(
    "count",
    "Acks filtered",
    CapturedLine,
    "asym 6.2: purged as redundant; the links' telemetry",
    detail=True,
    better=None,
)
def acks_filtered(line: CapturedLine) -> float | None:
    """Number of pure acks that the line's policy removed because a later ack made them redundant."""
    return _count(line, "purged")


@metric("count", "Acks dropped", CapturedLine, "the links' telemetry", detail=True, better=None)
def acks_dropped(line: CapturedLine) -> float | None:
    """Number of pure acks that the line's policy dropped, because the queue was full or early."""
    return _count(line, "dropped_full", "dropped_early")


@metric("count", "Acks marked", CapturedLine, "asym 6.1, 6.3; the links' telemetry", detail=True, better=None)
def acks_marked(line: CapturedLine) -> float | None:
    """Number of pure acks that the line's policy marked: ECN, or a duplicate one for fast retransmit."""
    return _count(line, "marked", "marked_dupack")


@metric("count", "Acks reconstructed", CapturedLine, "asym 6.4; the links' telemetry", detail=True, better=None)
def acks_reconstructed(line: CapturedLine) -> float | None:
    """Number of pure acks that a middlebox of this direction created."""
    return _count(line, "made")


@metric("count", "Acks lost", CapturedLine, "the links' telemetry", detail=True, better=None)
def acks_lost(line: CapturedLine) -> float | None:
    """Number of pure acks that the line's error models lost or damaged."""
    return _count(line, "lost", "damaged")


def ack_accounting(run: RunData) -> pl.DataFrame:
    """What happened to acks on every line.

    Columns: line, policy, `entered` (captured at the sending end), `filtered`, `dropped`, `marked`, `reconstructed`,
    `lost` (the links' telemetry), `delivered` (captured at the receiving end), and `unexplained`: entered +
    reconstructed - filtered - dropped - lost - delivered, the acks in the queue or in flight when the run ends.

    Raises:
        MissingCapture: a line's end was not captured, or there is no telemetry.
    """
    rows = []
    for line in run.all_lines:
        entered, delivered = (frame.filter(is_a(PURE_ACK)).height for frame in (line.at_entry, line.at_exit))
        functions = {
            "filtered": acks_filtered,
            "dropped": acks_dropped,
            "marked": acks_marked,
            "reconstructed": acks_reconstructed,
            "lost": acks_lost,
        }
        counted = {name: int(function(line) or 0) for name, function in functions.items()}
        left = entered + counted["reconstructed"] - counted["filtered"] - counted["dropped"] - counted["lost"]
        row: dict[str, Any] = {"line": line.name, "policy": line.policy, "entered": entered}
        rows.append({**row, **counted, "delivered": delivered, "unexplained": left - delivered})
    schema = dict.fromkeys(("line", "policy"), pl.String) | dict.fromkeys(
        ("entered", "filtered", "dropped", "marked", "reconstructed", "lost", "delivered", "unexplained"), pl.Int64
    )
    return pl.DataFrame(rows, schema=schema)
