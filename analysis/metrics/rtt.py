"""Round-trip times of the sender."""

from __future__ import annotations

import polars as pl

from analysis.captures import CapturedFlow
from analysis.metrics.registry import metric
from analysis.runs import Flow


def rtt_samples(flow: CapturedFlow) -> pl.DataFrame:
    """Round-trip samples of the flow's measured time at the sender's interface: `t_s` (the ack's) and `rtt_s`."""
    return flow.rtt_samples


@metric("time", "Round-trip time", Flow, "RFC 6298: Karn's rule; asym table 1", better="less")
def rtt_mean(flow: Flow) -> float | None:
    """Mean of the round-trip samples, in s; None without any."""
    return flow.rtt_mean_s()


@metric(
    "time", "Round-trip time, standard deviation", Flow, "asym 5.2; asym 7.2.2, figure 13", detail=True, better="less"
)
def rtt_sd(flow: Flow) -> float | None:
    """Standard deviation of the round-trip samples, in s; None for fewer than two."""
    return flow.rtt_sd_s()


@metric(
    "time",
    "Round-trip time, median",
    CapturedFlow,
    "quantile 0.5 of the samples, interpolated",
    detail=True,
    better="less",
)
def rtt_median(flow: CapturedFlow) -> float | None:
    """Median of the round-trip samples, in s; None without any."""
    return _quantile(flow, 0.5)


@metric(
    "time", "Round-trip time, 95th percentile", CapturedFlow, "quantile 0.95, interpolated", detail=True, better="less"
)
def rtt_p95(flow: CapturedFlow) -> float | None:
    """95th percentile of the round-trip samples, in s; None without any."""
    return _quantile(flow, 0.95)


def _quantile(flow: CapturedFlow, share: float) -> float | None:
    value_s = flow.rtt_samples["rtt_s"].quantile(share, "linear")
    return None if value_s is None else float(value_s)
