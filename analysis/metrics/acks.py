"""What became of acks: sent, filtered, dropped, marked, reconstructed, delivered."""

from __future__ import annotations

from typing import Any

import polars as pl

from analysis.metrics.data import DATA, PURE_ACK, Flow, RunData, is_a
from analysis.metrics.lines import Line
from analysis.metrics.registry import metric


@metric("count", "Acks sent", "flow", "pure acks at the receiver's interface", detail=True, summed=True)
def acks_sent(flow: Flow) -> float:
    """Number of pure acks that the flow's receiver sent, at its own interface."""
    return float(flow.at_receiver.filter((pl.col("dir") == 1) & is_a(PURE_ACK)).height)


@metric("count", "Acks delivered", "flow", "pure acks at the sender's interface", detail=True, summed=True)
def acks_delivered(flow: Flow) -> float:
    """Number of pure acks that arrived at the flow's sender, at its interface; reconstructed ones among them."""
    return float(flow.at_sender.filter((pl.col("dir") == 1) & is_a(PURE_ACK)).height)


@metric("number", "Data segments per ack", "flow", "asym 6.1: the delayed-ack factor d", detail=True)
def segments_per_ack(flow: Flow) -> float | None:
    """Data segments that arrived at the receiver over the pure acks it sent; None without acks."""
    acks = acks_sent(flow)
    data = flow.at_receiver.filter((pl.col("dir") == 0) & is_a(DATA)).height
    return data / acks if acks else None


def _count(line: Line, *kinds: str) -> float:
    return float(sum(line.events(kind).filter(pl.col("pure_ack")).height for kind in kinds))


@metric("count", "Acks filtered", "line", "asym 6.2: purged as redundant; the links' telemetry", detail=True)
def acks_filtered(line: Line) -> float | None:
    """Number of pure acks that the line's policy removed because a later one said more."""
    return _count(line, "purged")


@metric("count", "Acks dropped", "line", "the links' telemetry", detail=True)
def acks_dropped(line: Line) -> float | None:
    """Number of pure acks that the line's policy dropped, full or early."""
    return _count(line, "dropped_full", "dropped_early")


@metric("count", "Acks marked", "line", "asym 6.1, 6.3; the links' telemetry", detail=True)
def acks_marked(line: Line) -> float | None:
    """Number of pure acks that the line's policy marked: ECN, or a duplicate one for fast retransmit."""
    return _count(line, "marked", "marked_dupack")


@metric("count", "Acks reconstructed", "line", "asym 6.4; the links' telemetry", detail=True)
def acks_reconstructed(line: Line) -> float | None:
    """Number of pure acks that a middlebox of this direction made."""
    return _count(line, "made")


@metric("count", "Acks lost", "line", "the links' telemetry", detail=True)
def acks_lost(line: Line) -> float | None:
    """Number of pure acks that the line's error models lost or damaged."""
    return _count(line, "lost", "damaged")


def ack_accounting(run: RunData) -> pl.DataFrame:
    """Of every direction of every link with captures at both ends: what its policy did to acks.

    Columns: line, policy, `entered` (captured at the sending end), `filtered`, `dropped`, `marked`, `reconstructed`,
    `lost` (the links' telemetry), `delivered` (captured at the receiving end), and `unexplained`: entered +
    reconstructed - filtered - dropped - lost - delivered, which is what waits or travels when the run ends.

    Raises:
        MissingCapture: a link's end was not captured, or there is no telemetry.
    """
    rows = []
    for line in run.all_lines:
        entered, delivered = (frame.filter(is_a(PURE_ACK)).height for frame in (line.at_entry, line.at_exit))
        functions = {
            "filtered": acks_filtered, "dropped": acks_dropped, "marked": acks_marked,
            "reconstructed": acks_reconstructed, "lost": acks_lost,
        }  # fmt: skip
        counted = {name: int(function(line) or 0) for name, function in functions.items()}
        left = entered + counted["reconstructed"] - counted["filtered"] - counted["dropped"] - counted["lost"]
        row: dict[str, Any] = {"line": line.name, "policy": line.policy, "entered": entered}
        rows.append({**row, **counted, "delivered": delivered, "unexplained": left - delivered})
    schema = dict.fromkeys(("line", "policy"), pl.String) | dict.fromkeys(
        ("entered", "filtered", "dropped", "marked", "reconstructed", "lost", "delivered", "unexplained"), pl.Int64
    )
    return pl.DataFrame(rows, schema=schema)
