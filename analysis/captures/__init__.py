"""Runs as their classified captures (docs/traces.md) and telemetry show them: a provider of analysis/runs.py."""

from analysis.captures.run import MissingCapture, RunData  # isort: split

from analysis.captures.flow import CapturedFlow  # isort: split

from analysis.captures.line import CapturedLine  # isort: split

from analysis.captures.losses import timeouts
from analysis.captures.rtt import rtt_samples
from analysis.captures.segments import (
    DATA,
    DUPLICATE_ACK,
    FAST_RETRANSMISSION,
    KEEP_ALIVE,
    NEW,
    OUT_OF_ORDER,
    PURE_ACK,
    RETRANSMISSION,
    SACK,
    SPURIOUS,
    WINDOW_UPDATE,
    ZERO_WINDOW,
    is_a,
    step_mean,
)

__all__ = [
    "DATA", "DUPLICATE_ACK", "FAST_RETRANSMISSION", "KEEP_ALIVE", "NEW", "OUT_OF_ORDER", "PURE_ACK", "RETRANSMISSION",
    "SACK", "SPURIOUS", "WINDOW_UPDATE", "ZERO_WINDOW", "CapturedFlow", "CapturedLine", "MissingCapture", "RunData",
    "is_a", "rtt_samples", "step_mean", "timeouts",
]  # fmt: skip
