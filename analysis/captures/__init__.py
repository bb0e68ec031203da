"""Runs as their classified captures (docs/traces.md) and telemetry show them: a provider of analysis/runs.py."""

from analysis.captures.flow import CapturedFlow as CapturedFlow
from analysis.captures.line import CapturedLine as CapturedLine
from analysis.captures.run import RunData as RunData, run_of as run_of
from analysis.captures.segments import (
    BAD_CHECKSUM as BAD_CHECKSUM,
    DATA as DATA,
    DUPLICATE_ACK as DUPLICATE_ACK,
    FAST_RETRANSMISSION as FAST_RETRANSMISSION,
    KEEP_ALIVE as KEEP_ALIVE,
    NEW as NEW,
    OUT_OF_ORDER as OUT_OF_ORDER,
    PURE_ACK as PURE_ACK,
    RETRANSMISSION as RETRANSMISSION,
    SACK as SACK,
    SPURIOUS as SPURIOUS,
    TIMEOUT as TIMEOUT,
    WINDOW_UPDATE as WINDOW_UPDATE,
    ZERO_WINDOW as ZERO_WINDOW,
    class_labels as class_labels,
    is_a as is_a,
    step_mean as step_mean,
)
from analysis.captures.tables import MissingCapture as MissingCapture, read_connections as read_connections
