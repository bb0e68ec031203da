"""Runs as their classified captures (docs/traces.md) and telemetry show them: a provider of analysis/runs.py."""

from analysis.captures.flow import CapturedFlow
from analysis.captures.line import CapturedLine
from analysis.captures.run import RunData, run_of
from analysis.captures.segments import (
    BAD_CHECKSUM,
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
    TIMEOUT,
    WINDOW_UPDATE,
    ZERO_WINDOW,
    class_labels,
    is_a,
    step_mean,
)
from analysis.captures.tables import MissingCapture, read_connections

__all__ = [
    "BAD_CHECKSUM",
    "DATA",
    "DUPLICATE_ACK",
    "FAST_RETRANSMISSION",
    "KEEP_ALIVE",
    "NEW",
    "OUT_OF_ORDER",
    "PURE_ACK",
    "RETRANSMISSION",
    "SACK",
    "SPURIOUS",
    "TIMEOUT",
    "WINDOW_UPDATE",
    "ZERO_WINDOW",
    "CapturedFlow",
    "CapturedLine",
    "MissingCapture",
    "RunData",
    "class_labels",
    "is_a",
    "read_connections",
    "run_of",
    "step_mean",
]
