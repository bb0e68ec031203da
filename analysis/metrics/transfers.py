"""Completion times of the finite transfers of a flow (analysis/exchanges.py), over all sizes and by size."""

from __future__ import annotations

import math

import polars as pl

from analysis import exchange_kinds
from analysis.metrics.latency import quantile
from analysis.metrics.registry import metric
from analysis.runs import Flow

#: Sizes up to which a transfer is small and medium, in bytes: the initial window carries 10 kB in one round trip
#: (RFC 6928 with segments of 1460 bytes: 14,600), and 100 kB leave slow start on few of the lines here.
SMALL_BYTES, MEDIUM_BYTES = 10_000, 100_000


def completion_times(flow: Flow, above: float = 0, up_to: float = math.inf) -> pl.Series | None:
    """Times from the opening of a connection to the arrival of its last byte, in s, of transfers of these sizes.

    None for workloads without transfers.
    """
    if flow.spec.kind not in exchange_kinds.transfers():
        return None
    of_size = flow.exchanges.filter((pl.col("bytes") > above) & (pl.col("bytes") <= up_to))
    return (of_size["arrived_s"] - of_size["sent_s"]).drop_nulls()


@metric(
    "time",
    "Flow completion, median",
    Flow,
    "RFC 6077 3.3: flow completion time",
    better="less",
    column="completion p50",
)
def flow_completion_p50(flow: Flow) -> float | None:
    """Median of `completion_times`, in s; None without any."""
    return quantile(completion_times(flow), 0.5)


@metric(
    "time", "Flow completion, 95th percentile", Flow, "as flow_completion_p50", better="less", column="completion p95"
)
def flow_completion_p95(flow: Flow) -> float | None:
    """95th percentile of the same times, in s."""
    return quantile(completion_times(flow), 0.95)


@metric("time", "Flow completion, 99th percentile", Flow, "as flow_completion_p50", detail=True, better="less")
def flow_completion_p99(flow: Flow) -> float | None:
    """99th percentile of the same times, in s."""
    return quantile(completion_times(flow), 0.99)


@metric("time", "Flow completion up to 10 kB, median", Flow, "as flow_completion_p50", detail=True, better="less")
def flow_completion_small(flow: Flow) -> float | None:
    """Median of the times of transfers of at most SMALL_BYTES, in s."""
    return quantile(completion_times(flow, up_to=SMALL_BYTES), 0.5)


@metric("time", "Flow completion 10 to 100 kB, median", Flow, "as flow_completion_p50", detail=True, better="less")
def flow_completion_medium(flow: Flow) -> float | None:
    """Median of the times of transfers above SMALL_BYTES and of at most MEDIUM_BYTES, in s."""
    return quantile(completion_times(flow, SMALL_BYTES, MEDIUM_BYTES), 0.5)


@metric("time", "Flow completion above 100 kB, median", Flow, "as flow_completion_p50", detail=True, better="less")
def flow_completion_large(flow: Flow) -> float | None:
    """Median of the times of transfers above MEDIUM_BYTES, in s."""
    return quantile(completion_times(flow, MEDIUM_BYTES), 0.5)


@metric("fraction", "Transfers unfinished", Flow, "the end of the run cuts them", detail=True, better="less")
def transfers_unfinished(flow: Flow) -> float | None:
    """Share of the transfers that had begun whose last byte had not arrived at the end; None without a transfer."""
    begun = 0 if flow.spec.kind not in exchange_kinds.transfers() else flow.exchanges.height
    return flow.exchanges["arrived_s"].null_count() / begun if begun else None
