"""Timing of a sender's packets and acks: bursts, pauses, outstanding data, spacing and compression of acks."""

from __future__ import annotations

import polars as pl

from analysis.captures import DATA, PURE_ACK, CapturedFlow, is_a, step_mean
from analysis.metrics.registry import metric
from analysis.runs import once_a_flow

#: Data segments that leave the sender no further apart belong to one burst, in s. Less than a 300-byte packet takes at
#: 10 Mbit/s, and far more than the spacing at which a host writes packets.
BURST_GAP_S = 0.0002
#: Longer pauses between two data segments count as idle, in s: the shortest coarse timer of 4.4BSD.
IDLE_S = 1.0
#: Acks are compressed if they arrive in less than this share of the time in which they were sent.
COMPRESSED = 1 / 3


@once_a_flow
def _data_sent(flow: CapturedFlow) -> pl.DataFrame:
    """Times `t_s` of data segments at the sender's interface."""
    sent = (pl.col("dir") == 0) & is_a(DATA) & (pl.col("t_s") >= flow.start_s)
    return flow.at_sender.select(pl.col("t_s").filter(sent))


@once_a_flow
def bursts(flow: CapturedFlow) -> pl.DataFrame:
    """Runs of data segments that left the sender's interface at most BURST_GAP_S apart: `t_s` of the first, `segments`.

    Source: asym 6.3, where a burst is what a sender sends back to back.
    """
    sent = _data_sent(flow).with_columns((pl.col("t_s").diff() > BURST_GAP_S).fill_null(True).cum_sum().alias("burst"))
    return (
        sent.group_by("burst", maintain_order=True)
        .agg(pl.col("t_s").first(), pl.len().cast(pl.Int64).alias("segments"))
        .drop("burst")
    )


@metric("segments", "Burst size", CapturedFlow, "asym 6.3: segments sent back to back", detail=True, better=None)
def burst_mean(flow: CapturedFlow) -> float | None:
    """Mean number of segments of a burst (`bursts`); None if nothing was sent."""
    lengths = bursts(flow)["segments"]
    return None if lengths.is_empty() else float(lengths.mean())  # type: ignore[arg-type]


@metric("segments", "Largest burst", CapturedFlow, "asym 6.3: segments sent back to back", detail=True, better=None)
def burst_max(flow: CapturedFlow) -> float | None:
    """Number of segments of the largest burst (`bursts`); None if nothing was sent."""
    lengths = bursts(flow)["segments"]
    return None if lengths.is_empty() else float(lengths.max())  # type: ignore[arg-type]


def idle_gaps(flow: CapturedFlow, longer_than_s: float = IDLE_S) -> pl.DataFrame:
    """Pauses between successive data segments at the sender's interface: `t_s` (start) and `gap_s`.

    Source: asym 5.2 and 7.1.3, whose idle times are the flat parts of a sequence trace. Data may be in flight.
    """
    return pauses(_data_sent(flow), longer_than_s)


def pauses(sent: pl.DataFrame, longer_than_s: float = IDLE_S) -> pl.DataFrame:
    """The same of data segments with their times `t_s` at the sender, ascending."""
    gaps = sent.with_columns((pl.col("t_s").shift(-1) - pl.col("t_s")).alias("gap_s"))
    return gaps.filter(pl.col("gap_s") > longer_than_s).select("t_s", "gap_s")


@metric(
    "fraction", "Idle share", CapturedFlow, "asym 5.2: pauses of the sender over the transfer's duration", better="less"
)
def idle_share(flow: CapturedFlow) -> float | None:
    """Sum of the sender's pauses longer than IDLE_S over the time from its first data segment to its last.

    None for fewer than two data segments.
    """
    sent = _data_sent(flow)["t_s"]
    if sent.len() < 2:
        return None
    duration_s = float(sent[-1]) - float(sent[0])
    return float(idle_gaps(flow)["gap_s"].sum()) / duration_s if duration_s > 0 else None


@metric("time", "Longest pause", CapturedFlow, "asym 7.1.3: multi-second idle times", detail=True, better="less")
def idle_longest(flow: CapturedFlow) -> float | None:
    """The longest pause between two data segments of the sender, in s; None for fewer than two of them."""
    gaps_s = idle_gaps(flow, -1.0)["gap_s"]
    return None if gaps_s.is_empty() else float(gaps_s.max())  # type: ignore[arg-type]


@once_a_flow
def outstanding(flow: CapturedFlow) -> pl.DataFrame:
    """Bytes sent and not acknowledged, at the sender's interface: `t_s`, `y`; a row for each segment.

    The greatest sequence number sent less the greatest acknowledgment received, summed over the flow's connections.
    """
    end = pl.when((pl.col("dir") == 0) & is_a(DATA)).then(pl.col("seq") + pl.col("payload"))
    ack = pl.when(pl.col("dir") == 1).then(pl.col("ack"))
    steps = (
        flow.at_sender.lazy()
        .select("t_s", "stream", end.cum_max().over("stream").alias("end"), ack.cum_max().over("stream").alias("ack"))
        .with_columns(pl.col("end", "ack").forward_fill().over("stream").fill_null(1))
    )
    flying = pl.max_horizontal(pl.col("end") - pl.max_horizontal(pl.col("ack"), 1), 0)
    steps = steps.with_columns(flying.alias("flying"))
    change = (pl.col("flying") - pl.col("flying").shift(1, fill_value=0)).over("stream")
    return steps.select("t_s", change.cum_sum().alias("y")).collect()


@metric("bytes", "Outstanding data", CapturedFlow, "mean over time; RFC 5681 2: FLIGHT SIZE", detail=True, better=None)
def outstanding_mean(flow: CapturedFlow) -> float | None:
    """Mean over the flow's measured time of the bytes sent and not acknowledged, in bytes."""
    return step_mean(outstanding(flow), flow.start_s, flow.ended_s())


@metric("bytes", "Outstanding data, maximum", CapturedFlow, "RFC 5681 2: FLIGHT SIZE", detail=True, better=None)
def outstanding_max(flow: CapturedFlow) -> float | None:
    """The most bytes sent and not acknowledged at any time, in bytes; None if nothing was captured."""
    peak = outstanding(flow)["y"].max()
    return None if peak is None else float(peak)  # type: ignore[arg-type]


@metric(
    "fraction",
    "Share of time with nothing outstanding",
    CapturedFlow,
    "CATALOGUE 1.8: idle fraction",
    detail=True,
    better=None,
)
def nothing_outstanding_share(flow: CapturedFlow) -> float | None:
    """Share of the flow's measured time in which no data were outstanding."""
    steps = outstanding(flow).with_columns((pl.col("y") > 0).cast(pl.Float64).alias("y"))
    busy = step_mean(steps, flow.start_s, flow.ended_s())
    return None if busy is None else 1.0 - busy


def ack_arrivals(flow: CapturedFlow) -> pl.DataFrame:
    """Pure acks at the sender's interface: `t_s`, `stream`, `ack`."""
    is_ack = (pl.col("dir") == 1) & is_a(PURE_ACK) & (pl.col("t_s") >= flow.start_s)
    return flow.at_sender.select(pl.col("t_s", "stream", "ack").filter(is_ack))


@metric("time", "Ack spacing", CapturedFlow, "asym 4.2.1: time between acks at the sender", detail=True, better=None)
def ack_spacing(flow: CapturedFlow) -> float | None:
    """Median time between successive pure acks at the sender's interface, in s; None for fewer than two."""
    gaps = ack_arrivals(flow)["t_s"].diff().drop_nulls()
    return None if gaps.is_empty() else float(gaps.median())  # type: ignore[arg-type]


@metric(
    "fraction", "Ack compression", CapturedFlow, "Zhang, Shenker, Clark 1991; Paxson 1997", detail=True, better=None
)
def ack_compression(flow: CapturedFlow) -> float | None:
    """Share of successive acks that arrived at the sender in under a third of the time in which they were sent.

    Acks that advance are matched at both ends by their number. For two that arrive one after the other, the spacing at
    the sender's interface is compared with their spacing at the receiver's. None for fewer than two.
    """
    arrived = _first_of_each_number(flow.at_sender, flow.start_s)
    sent = _first_of_each_number(flow.at_receiver, float("-inf"))
    both = arrived.join(sent, on=["stream", "ack"], suffix="_sent").sort("t_s")
    gaps = (
        both.select(
            (pl.col("t_s").diff().over("stream")).alias("arrived"),
            (pl.col("t_s_sent").diff().over("stream")).alias("sent"),
        )
        .filter(pl.col("sent") > 0)
        .collect()
    )
    return None if gaps.is_empty() else float((gaps["arrived"] < COMPRESSED * gaps["sent"]).mean())  # type: ignore[arg-type]


def _first_of_each_number(segments: pl.DataFrame, from_s: float) -> pl.LazyFrame:
    acks = segments.lazy().filter((pl.col("dir") == 1) & is_a(PURE_ACK) & (pl.col("t_s") >= from_s))
    advance = pl.col("ack") > pl.col("ack").cum_max().shift(1).over("stream").fill_null(-1)
    return acks.filter(advance).group_by("stream", "ack").agg(pl.col("t_s").min())
