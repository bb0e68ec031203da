"""Throughput: bytes that the receivers got, per flow and in total, over stated periods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import polars as pl

from analysis.metrics.registry import metric
from analysis.runs import Flow, RunView, Slices, active_window_s

#: Times are whole nanoseconds. Less lies between two of them by rounding alone.
LEAST_S = 0.5e-9


def rate_bps(size_bytes: float, from_s: float, to_s: float) -> float:
    """8 size / (to - from), in bit/s; 0 for a period without length."""
    return size_bytes * 8 / (to_s - from_s) if to_s - from_s > LEAST_S else 0.0


def throughput_over_time(flow: Flow, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
    """Throughput at the receiver in slices: `t_s` (the slice's end) and `bps`; a slice without bytes has 0."""
    return flow.throughput_over_time(width_s, from_s, to_s)


@metric(
    "rate", "Throughput", Flow, "asym 4.1: measured at the receiver", summed=True, better="more", column="throughput"
)
def throughput(flow: Flow) -> float:
    """Bytes delivered to the receiver over the flow's time: 8 bytes / time, in bit/s.

    The time runs from the flow's start, or the end of the warm-up, to its end: the arrival of its last byte, its stop,
    or the end of the run.
    """
    end_s = flow.ended_s()
    return rate_bps(flow.delivered_bytes(flow.start_s, end_s, closed=True), flow.start_s, end_s)


@metric("rate", "Packet throughput", Flow, "asym 7.1 (CATALOGUE I-1), aq 4", summed=True, better="more")
def packet_throughput(flow: Flow) -> float:
    """Throughput counting whole IP packets, as simulations without headers do, in bit/s.

    Throughput times the bytes of IP packets that a byte of data takes at the receiver.
    """
    return throughput(flow) * flow.packet_bytes_per_byte()


@metric(
    "rate",
    "Throughput while all are active",
    Flow,
    "asym 7.1.2, 7.1.3, 9: both-active time",
    summed=True,
    better="more",
)
def active_throughput(flow: Flow) -> float | None:
    """Bytes delivered while every flow of the run is active, over that period, in bit/s; None without such a period."""
    window = flow.run.active_window_s()
    return None if window is None else rate_bps(flow.delivered_bytes(*window), *window)


@metric(
    "rate", "Packet throughput while all are active", Flow, "asym 7.1.2, 7.1.3", detail=True, summed=True, better="more"
)
def active_packet_throughput(flow: Flow) -> float | None:
    """`active_throughput` counting whole IP packets, in bit/s."""
    rate = active_throughput(flow)
    return None if rate is None else rate * flow.packet_bytes_per_byte()


def throughput_while(flow: Flow, others: Sequence[Flow]) -> float | None:
    """Throughput of a flow over the period in which all of `others` are active, in bit/s; None without one."""
    window = active_window_s(others)
    return None if window is None else rate_bps(flow.delivered_bytes(*window), *window)


@metric("rate", "Aggregate throughput", RunView, "bytes of all flows over one period", better="more")
def aggregate_throughput(run: RunView) -> float | None:
    """8 (bytes delivered by all flows) / period, in bit/s.

    The period runs from the first start of a flow, or the end of the warm-up, to the last end of one. None without
    flows.
    """
    if not run.flows:
        return None
    start_s = min(flow.start_s for flow in run.flows)
    end_s = max(flow.ended_s() for flow in run.flows)
    total = sum(flow.delivered_bytes(start_s, end_s, closed=True) for flow in run.flows)
    return rate_bps(total, start_s, end_s)


@metric("rate", "Aggregate packet throughput", RunView, "sum over the flows", detail=True, better="more")
def aggregate_packet_throughput(run: RunView) -> float | None:
    """Sum of the flows' packet throughput, in bit/s; None without flows."""
    return sum(packet_throughput(flow) for flow in run.flows) if run.flows else None


@metric(
    "rate",
    "Aggregate throughput while all are active",
    RunView,
    "asym table 2: total over the both-active time",
    better="more",
)
def active_total_throughput(run: RunView) -> float | None:
    """Sum of the flows' `active_throughput`, in bit/s; None for fewer than two flows, or without such a period."""
    window = active_window_s(run.flows)
    if len(run.flows) < 2 or window is None:
        return None
    return sum(rate_bps(flow.delivered_bytes(*window), *window) for flow in run.flows)


@metric("rate", "Aggregate packet throughput while all are active", RunView, "asym 7.1.2", detail=True, better="more")
def active_total_packet_throughput(run: RunView) -> float | None:
    """Sum of the flows' `active_packet_throughput`, in bit/s; None if a flow has none."""
    values = [active_packet_throughput(flow) for flow in run.flows]
    return None if None in values or not values else sum(value or 0.0 for value in values)


@metric(
    "rate", "Standard deviation over flows", RunView, "CATALOGUE 1.8: over concurrent flows", detail=True, better=None
)
def throughput_sd(run: RunView) -> float | None:
    """Sample standard deviation of the flows' throughput, in bit/s; None for fewer than two flows."""
    return statistics.stdev(throughput(flow) for flow in run.flows) if len(run.flows) > 1 else None


@metric("number", "Variation over flows", RunView, "asym 7.2.3, table 6", detail=True, better=None)
def throughput_variation(run: RunView) -> float | None:
    """Population standard deviation over mean of the flows' packet throughput; None for fewer than two flows."""
    values = [packet_throughput(flow) for flow in run.flows]
    mean = statistics.fmean(values) if values else 0.0
    return statistics.pstdev(values) / mean if len(values) > 1 and mean else None


@metric("rate", "Spread over flows, as printed", RunView, "asym 7.2.3, table 6", detail=True, better=None)
def throughput_spread(run: RunView) -> float | None:
    """Population standard deviation of the flows' packet throughput times their number, in bit/s.

    The values in table 6 exceed what a single flow's deviation can be, so that it must have printed this. None for
    fewer than two flows.
    """
    values = [packet_throughput(flow) for flow in run.flows]
    return statistics.pstdev(values) * len(values) if len(values) > 1 else None


#: Slices in a row that make an upswing, and the factor by which their mean exceeds the mean of all slices.
UPSWING_SLICES, UPSWING_FACTOR = 10, 2.0


def throughput_onset(slices: Slices) -> int | None:
    """Place of the first slice of an upswing; None without any.

    It has something, the slice before it has nothing, and from it on UPSWING_SLICES slices have more than
    UPSWING_FACTOR times the mean of all.
    """
    filled = slices.filled
    wanted = UPSWING_FACTOR * UPSWING_SLICES * (math.fsum(filled.values()) / slices.count) if filled else 0.0
    for first in sorted(filled):
        is_start = first > 0 and first - 1 not in filled and first + UPSWING_SLICES <= slices.count
        if is_start and sum(filled.get(first + after, 0.0) for after in range(UPSWING_SLICES)) > wanted:
            return first
    return None


@metric("time", "First upswing", Flow, "asym 4.2.2, figure 4", detail=True, better=None)
def first_upswing(flow: Flow) -> float | None:
    """Start of the first upswing: ten slices, after one without anything, with more than twice the mean, in s.

    Since the run's start, to the length of a slice (1 s, or a counter's bin). None without any.
    """
    slices = flow.arrival_slices()
    first = throughput_onset(slices)
    return None if first is None else (slices.first + first) * slices.width_s
