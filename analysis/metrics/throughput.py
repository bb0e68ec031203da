"""Throughput: what the receivers got, per flow and of all, over stated periods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import polars as pl

from analysis.metrics.data import Flow, RunData
from analysis.metrics.registry import metric


def rate_bps(size_bytes: float, from_s: float, to_s: float) -> float:
    """8 size / (to - from), in bit/s; 0 for a period without length."""
    return size_bytes * 8 / (to_s - from_s) if to_s > from_s else 0.0


def active_window_s(flows: Sequence[Flow]) -> tuple[float, float] | None:
    """The period in which all the flows are active: from the last start (or the warm-up's end) to the first end.

    None when there is no such period, or no flow.
    """
    if not flows:
        return None
    start_s, end_s = max(flow.start_s for flow in flows), min(flow.ended_s() for flow in flows)
    return (start_s, end_s) if end_s > start_s else None


@metric("rate", "Throughput", "flow", "asym 4.1: measured at the receiver", summed=True, better="more")
def throughput(flow: Flow) -> float:
    """Bytes delivered in order at the receiver's interface over the flow's own time: 8 bytes / time, in bit/s.

    The time runs from the flow's start, or the end of the warm-up, to its end: the arrival of its last byte, its stop,
    or the end of the run.
    """
    end_s = flow.ended_s()
    return rate_bps(flow.delivered_bytes(flow.start_s, _just_after(end_s)), flow.start_s, end_s)


@metric("rate", "Throughput in packets", "flow", "asym 7.1 (CATALOGUE I-1), aq 4", summed=True, better="more")
def packet_throughput(flow: Flow) -> float:
    """Throughput when whole IP packets count, as simulations without headers do, in bit/s.

    Throughput times the bytes of IP packets that a byte of data takes at the receiver.
    """
    return (throughput(flow) or 0.0) * flow.packet_bytes_per_byte()


@metric("rate", "Throughput while all are active", "flow", "asym 7.1.2, 7.1.3, 9: both-active time", summed=True)
def active_throughput(flow: Flow) -> float | None:
    """Bytes delivered in order in the period in which every flow of the run is active, over that period, in bit/s.

    None for a run of one flow, where it is the throughput, or without such a period.
    """
    return None if len(flow.run.flows) < 2 else throughput_while(flow, flow.run.flows)


@metric("rate", "Throughput in packets while all are active", "flow", "asym 7.1.2, 7.1.3", detail=True, summed=True)
def active_packet_throughput(flow: Flow) -> float | None:
    """`active_throughput` when whole IP packets count, in bit/s; None as it."""
    rate = active_throughput(flow)
    return None if rate is None else rate * flow.packet_bytes_per_byte()


def throughput_while(flow: Flow, others: Sequence[Flow]) -> float | None:
    """Throughput of a flow over the period in which all of `others` are active, in bit/s; None without one."""
    window = active_window_s(others)
    return None if window is None else rate_bps(flow.delivered_bytes(*window), *window)


@metric("rate", "Aggregate throughput", "run", "bytes of all flows over one period", better="more")
def aggregate_throughput(run: RunData) -> float | None:
    """8 (bytes that all flows delivered in order) / period, in bit/s, all over the same period.

    It runs from the first start of a flow, or the end of the warm-up, to the last end of one. None without flows.
    """
    if not run.flows:
        return None
    start_s = min(flow.start_s for flow in run.flows)
    end_s = max(flow.ended_s() for flow in run.flows)
    total = sum(flow.delivered_bytes(start_s, _just_after(end_s)) for flow in run.flows)
    return rate_bps(total, start_s, end_s)


def _just_after(end_s: float) -> float:
    """An end that the arrival of a flow's last byte, which defines it, still lies before."""
    return math.nextafter(end_s, math.inf)


@metric("rate", "Aggregate throughput while all are active", "run", "asym table 2: total over the both-active time")
def active_total_throughput(run: RunData) -> float | None:
    """Sum of the flows' throughput over the period in which all of them are active, in bit/s.

    None for fewer than two flows, or without such a period.
    """
    window = active_window_s(run.flows)
    if len(run.flows) < 2 or window is None:
        return None
    return sum(rate_bps(flow.delivered_bytes(*window), *window) for flow in run.flows)


@metric("rate", "Standard deviation over flows", "run", "CATALOGUE 1.8: over concurrent flows", detail=True)
def throughput_sd(run: RunData) -> float | None:
    """Sample standard deviation of the flows' throughput, in bit/s; None for fewer than two flows."""
    return statistics.stdev(throughput(flow) or 0.0 for flow in run.flows) if len(run.flows) > 1 else None


def throughput_over_time(flow: Flow, width_s: float, from_s: float = 0.0, to_s: float | None = None) -> pl.DataFrame:
    """Throughput at the receiver in slices: `t_s` (the slice's end) and `bps`; a slice without bytes has 0.

    Args:
        flow: the flow.
        width_s: of a slice; the last one may reach beyond `to_s`.
        from_s: where the first slice begins.
        to_s: the last slice begins before it; the run's end if absent.
    """
    if not width_s > 0:
        raise ValueError(f"a slice of {width_s} s has no length")
    end_s = flow.run.window_s[1] if to_s is None else to_s
    count = max(-int(-(end_s - from_s) // width_s), 0)
    slices = pl.DataFrame({"slice": range(count)}, schema={"slice": pl.Int64})
    number = ((pl.col("t_s") - from_s) / width_s).floor().cast(pl.Int64).alias("slice")
    got = flow.arrivals.group_by(number).agg(pl.col("bytes").sum())
    filled = slices.join(got, on="slice", how="left", maintain_order="left").with_columns(pl.col("bytes").fill_null(0))
    return filled.select(
        (from_s + (pl.col("slice") + 1) * width_s).alias("t_s"), (pl.col("bytes") * 8 / width_s).alias("bps")
    )


#: Slices in a row that make an upswing, and how far their mean is above the whole's.
UPSWING_SLICES, UPSWING_FACTOR = 10, 2.0


def upswing(got: Sequence[float]) -> int | None:
    """The first slice with something, after one with nothing, from which on UPSWING_SLICES get more than UPSWING_FACTOR
    times the mean of all; None without any.
    """
    wanted = UPSWING_FACTOR * UPSWING_SLICES * statistics.fmean(got) if got else 0.0
    for first in range(1, len(got) - UPSWING_SLICES + 1):
        if not got[first - 1] and got[first] and sum(got[first : first + UPSWING_SLICES]) > wanted > 0:
            return first
    return None


@metric("time", "First upswing", "flow", "asym 4.2.2, figure 4", detail=True)
def first_upswing(flow: Flow) -> float | None:
    """Start of the first ten seconds, after one without anything, in which the receiver gets more than twice its mean
    of the flow's whole time, in s since the run's start; in whole seconds, None without any.
    """
    start_s = math.ceil(flow.start_s)
    count = max(math.floor(flow.ended_s()) - start_s, 0)
    first = upswing(throughput_over_time(flow, 1.0, start_s, start_s + count)["bps"].to_list())
    return None if first is None else float(start_s + first)
