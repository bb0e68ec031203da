"""Latency and loss of packets and transactions, as applications experience them (analysis/exchanges.py).

Quantiles are interpolated. They are of what arrived: a packet that was lost has no delay, and counts in `packet_loss`.
"""

from __future__ import annotations

import polars as pl

from analysis.exchange_kinds import answered, datagrams
from analysis.metrics.registry import metric
from analysis.runs import Flow

#: Share of the latencies that the responsiveness leaves out, the greatest ones.
TRIMMED = 0.05
#: Weight of the newest difference in the interarrival jitter (RFC 3550 A.8).
JITTER_GAIN = 1 / 16


def latencies(flow: Flow) -> pl.Series | None:
    """Times from sending to the return of probes, or from request to response, in s; None for other workloads."""
    if flow.spec.kind not in answered():
        return None
    return (flow.exchanges["returned_s"] - flow.exchanges["sent_s"]).drop_nulls()


def one_way(flow: Flow, start: str, end: str) -> pl.Series | None:
    """Times between two instants of each packet, in the order of sending; None for workloads without packets."""
    if flow.spec.kind not in datagrams():
        return None
    return (flow.exchanges[end] - flow.exchanges[start]).drop_nulls()


def quantile(values: pl.Series | None, share: float) -> float | None:
    """A quantile; None without values."""
    found = None if values is None else values.quantile(share, "linear")
    return None if found is None else float(found)


@metric(
    "time",
    "Latency, median",
    Flow,
    "RFC 2681: round-trip delay of packets, and of transactions",
    better="less",
    column="latency p50",
)
def latency_p50(flow: Flow) -> float | None:
    """Median time from sending a probe to its return, or from a request to its response, in s."""
    return quantile(latencies(flow), 0.5)


@metric("time", "Latency, 95th percentile", Flow, "as latency_p50", better="less", column="p95")
def latency_p95(flow: Flow) -> float | None:
    """95th percentile of the same times, in s."""
    return quantile(latencies(flow), 0.95)


@metric("time", "Latency, 99th percentile", Flow, "as latency_p50", better="less", column="p99")
def latency_p99(flow: Flow) -> float | None:
    """99th percentile of the same times, in s."""
    return quantile(latencies(flow), 0.99)


@metric(
    "number",
    "Responsiveness, round trips a minute",
    Flow,
    "draft-ietf-ippm-responsiveness",
    better="more",
    column="round trips/min",
)
def responsiveness(flow: Flow) -> float | None:
    """Round trips that fit into a minute: 60 s over the mean of the same times without the greatest 5 %.

    The draft averages the times of several protocols' handshakes and requests; here they are the flow's own.
    """
    found = latencies(flow)
    if found is None or found.is_empty():
        return None
    kept = found.sort().head(max(round(found.len() * (1 - TRIMMED)), 1))
    return 60.0 / float(kept.mean())  # type: ignore[arg-type]


@metric("time", "One-way delay forward, median", Flow, "RFC 7679", better="less", column="delay forward")
def delay_forward(flow: Flow) -> float | None:
    """Median time of the packets from the sender to the receiver, in s."""
    return quantile(one_way(flow, "sent_s", "arrived_s"), 0.5)


@metric("time", "One-way delay forward, 95th percentile", Flow, "RFC 7679", detail=True, better="less")
def delay_forward_p95(flow: Flow) -> float | None:
    """95th percentile of the same times, in s."""
    return quantile(one_way(flow, "sent_s", "arrived_s"), 0.95)


@metric("time", "One-way delay back, median", Flow, "RFC 7679", better="less", column="delay back")
def delay_reverse(flow: Flow) -> float | None:
    """Median time of returned packets from the receiver to the sender, in s; None if the receiver returns none."""
    return quantile(one_way(flow, "arrived_s", "returned_s"), 0.5)


@metric("time", "One-way delay back, 95th percentile", Flow, "RFC 7679", detail=True, better="less")
def delay_reverse_p95(flow: Flow) -> float | None:
    """95th percentile of the same times, in s."""
    return quantile(one_way(flow, "arrived_s", "returned_s"), 0.95)


@metric("time", "Jitter", Flow, "RFC 3393: mean absolute delay variation", better="less", column="jitter")
def jitter(flow: Flow) -> float | None:
    """Mean absolute difference of the one-way delays forward of consecutive packets that arrived, in s."""
    if flow.spec.kind not in datagrams():
        return None
    delays = flow.exchanges.select("seq", delay=pl.col("arrived_s") - pl.col("sent_s")).drop_nulls()
    steps = delays.with_columns(pl.all().diff()).filter(pl.col("seq") == 1)
    return None if steps.is_empty() else float(steps["delay"].abs().mean())  # type: ignore[arg-type]


@metric("time", "Interarrival jitter", Flow, "RFC 3550 6.4.1, A.8: at the last arrival", detail=True, better="less")
def interarrival_jitter(flow: Flow) -> float | None:
    """What an RTP receiver reports after the last packet, in s.

    In order of arrival, `J += (|D| - J) / 16`. D is the difference of the transit times of a packet and the one before.
    None with fewer than two arrivals.
    """
    if flow.spec.kind not in datagrams():
        return None
    came = flow.exchanges.select("arrived_s", transit=pl.col("arrived_s") - pl.col("sent_s")).drop_nulls()
    steps = came.sort("arrived_s", maintain_order=True)["transit"].diff().drop_nulls().abs()
    if steps.is_empty():
        return None
    estimate = 0.0
    for step in steps:
        estimate += (step - estimate) * JITTER_GAIN
    return estimate


@metric(
    "fraction", "Packet loss", Flow, "RFC 7680; RFC 6673 for packets that are returned", better="less", column="loss"
)
def packet_loss(flow: Flow) -> float | None:
    """Share of the packets that never arrived, or never returned, of those sent before the last one that did.

    Later ones may have been under way at the end. None without a packet that arrived.
    """
    if flow.spec.kind not in datagrams():
        return None
    end = "returned_s" if flow.spec.kind in answered() else "arrived_s"
    came = flow.exchanges.filter(pl.col(end).is_not_null())
    if came.is_empty():
        return None
    sent = flow.exchanges.filter(pl.col("sent_s") <= came["sent_s"].max()).height
    return 1.0 - came.height / sent


@metric("number", "Transactions a second", Flow, "RFC 6815", detail=True, better="more")
def transaction_rate(flow: Flow) -> float | None:
    """Responses that arrived over the flow's measured time, in 1/s."""
    span_s = flow.ended_s() - flow.start_s
    if flow.spec.kind != "transactions" or span_s <= 0:
        return None
    return flow.exchanges["returned_s"].drop_nulls().len() / span_s
