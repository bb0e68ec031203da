"""Columns of the classified captures (docs/traces.md), of telemetry, and step functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl

from testbed import node_binary

#: Bits of the column `class`.
NEW = 1 << 0
RETRANSMISSION = 1 << 1
FAST_RETRANSMISSION = 1 << 2
SPURIOUS = 1 << 3
OUT_OF_ORDER = 1 << 4
DUPLICATE_ACK = 1 << 6
WINDOW_UPDATE = 1 << 7
ZERO_WINDOW = 1 << 8
KEEP_ALIVE = 1 << 9
PURE_ACK = 1 << 10
SACK = 1 << 11
DATA = 1 << 12
TIMEOUT = 1 << 13
BAD_CHECKSUM = 1 << 21

#: Columns of the links' telemetry; null where a row has no such value.
LINK_TELEMETRY = {
    "t_ns": pl.Int64,
    "link": pl.String,
    "direction": pl.String,
    "packets": pl.Int64,
    "bytes": pl.Int64,
    "max": pl.Int64,
    "event": pl.String,
    "pure_ack": pl.Boolean,
    "part": pl.String,
    "to": pl.String,
    "cwnd_segments": pl.Float64,
    "count": pl.Int64,
    "class": pl.String,
    "delay_s": pl.Float64,
    "probability": pl.Float64,
    "arrived_packets": pl.Int64,
    "dropped_packets": pl.Int64,
    "marked_packets": pl.Int64,
    "step_marked_packets": pl.Int64,
    "waiting_bytes": pl.Int64,
}
#: Columns of a flow's telemetry.
FLOW_TELEMETRY = {
    "t_ns": pl.Int64,
    "cwnd_segments": pl.Float64,
    "ssthresh_segments": pl.Float64,
    "rto_s": pl.Float64,
    "event": pl.String,
}


@cache
def class_labels() -> tuple[tuple[int, str], ...]:
    """Bit and label of every class, lowest bit first."""
    return tuple((entry["bit"], entry["label"]) for entry in node_binary.call("registry")["segment_classes"])


def is_a(bits: int) -> pl.Expr:
    """Whether a segment has any of these class bits."""
    return pl.col("class") & bits != 0


def step_mean(steps: pl.DataFrame, from_s: float, to_s: float) -> float | None:
    """Time average of a value that holds from each row (`t_s`, `y`) to the next, and is 0 before the first.

    None for a period without length.
    """
    if not to_s > from_s:
        return None
    times, values = steps["t_s"].to_numpy(), steps["y"].to_numpy()
    inside = (times > from_s) & (times < to_s)
    first = values[times <= from_s][-1:]
    held = np.concatenate([first if first.size else [0.0], values[inside]])
    # Added one after the other: another order gives other last bits.
    total = np.cumsum(held * np.diff(times[inside], prepend=from_s, append=to_s))[-1]
    return float(total / (to_s - from_s))


def step_means(steps: pl.DataFrame, edges_s: Sequence[float]) -> list[float]:
    """Time averages of such a value between consecutive ones of these times, which ascend."""
    if len(edges_s) < 2:
        return []
    times, values = steps["t_s"].to_numpy(), steps["y"].to_numpy()
    held = np.concatenate([[0.0], values])
    # The integral grows linearly between two changes of the value.
    known = np.concatenate([[min([edges_s[0], *times[:1]])], times])
    total = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(known))])
    last = np.searchsorted(known, edges_s, side="right") - 1
    integral = total[last] + held[last] * (np.asarray(edges_s) - known[last])
    return list((np.diff(integral) / np.diff(edges_s)).tolist())


def step_variation(steps: pl.DataFrame, from_s: float, to_s: float) -> float | None:
    """Coefficient of variation over time, sqrt(E y^2 - (E y)^2) / E y, of such a value; None for a mean of 0."""
    mean = step_mean(steps, from_s, to_s)
    square = step_mean(steps.with_columns(pl.col("y").pow(2)), from_s, to_s)
    return None if not mean or square is None else max(square - mean * mean, 0.0) ** 0.5 / mean
