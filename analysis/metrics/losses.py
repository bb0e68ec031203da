"""Retransmissions by their cause."""

from __future__ import annotations

import polars as pl

from analysis.captures import SPURIOUS, CapturedFlow, is_a
from analysis.metrics.registry import metric
from analysis.runs import Flow, RunView


@metric(
    "count", "Retransmissions", Flow, "class RETRANSMISSION (docs/traces.md)", summed=True, better="less", column="retx"
)
def retransmissions(flow: Flow) -> float | None:
    """Number of data segments that the sender sent again; None for a flow that is not TCP."""
    return flow.retransmissions()


@metric("count", "Fast retransmits", Flow, "RFC 5681 3.2; ton IV-B, figure 5", detail=True, summed=True, better="less")
def fast_retransmits(flow: Flow) -> float | None:
    """Number of retransmissions that duplicate acks caused; None for a flow that is not TCP."""
    return flow.fast_retransmits()


@metric(
    "count",
    "Spurious retransmissions",
    CapturedFlow,
    "class SPURIOUS (docs/traces.md)",
    detail=True,
    summed=True,
    better="less",
)
def spurious_retransmissions(flow: CapturedFlow) -> float:
    """Number of retransmissions of data that had been acknowledged by then, at the sender's interface."""
    return float(flow.retransmitted.filter(is_a(SPURIOUS)).height)


def timeouts(flow: CapturedFlow) -> pl.DataFrame:
    """The retransmissions that only a timer explains: `t_s`, `stream`, `seq`, and `waited_s`.

    analysis/captures/losses.py has the rule.
    """
    return flow.timeouts


@metric("count", "Coarse timeouts", Flow, "asym 5.2, ton IV: retransmissions by timer", summed=True, better="less")
def coarse_timeouts(flow: Flow) -> float | None:
    """Number of retransmissions that a timer caused."""
    return flow.coarse_timeouts()


@metric("number", "Retransmissions per packet lost", RunView, "ton IV-B", detail=True, better="less")
def retransmissions_per_loss(run: RunView) -> float | None:
    """Segments that the senders sent again over packets that error models destroyed in the links' forward directions.

    None without such losses.
    """
    lost = _lost_forward(run)
    return sum(flow.retransmissions() or 0 for flow in run.flows) / lost if lost else None


def _lost_forward(run: RunView) -> int:
    """Packets that error models destroyed in the links' forward directions."""
    return sum(link["forward"].error_losses for link in run.link_reports.values() if "forward" in link)


@metric("number", "Losses repaired by source and base station", RunView, "ton IV-B", detail=True, better="less")
def resent_twice_per_loss(run: RunView) -> float | None:
    """Segments that a base station and then their source sent again, over packets that error models destroyed in the
    links' forward directions.

    None without such losses.
    """
    lost = _lost_forward(run)
    ways = (way for link in run.link_reports.values() for way in link.values())
    return sum(way.events.get("source_retransmit", 0) for way in ways) / lost if lost else None
