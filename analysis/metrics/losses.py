"""What was sent again, and why."""

from __future__ import annotations

import math

import polars as pl

from analysis.metrics.data import DATA, FAST_RETRANSMISSION, RETRANSMISSION, SPURIOUS, Flow, is_a
from analysis.metrics.registry import metric

#: An ack that arrived this shortly before a retransmission may have caused it, in s.
TRIGGER_S = 0.005
#: A sender that acts on an ack does so within this time, in s.
REACTION_S = 0.001
#: No coarse timer is shorter: Linux' least RTO; 4.4BSD's is 1 s (CATALOGUE 1.3), RFC 6298's as well.
LEAST_RTO_S = 0.2


def _sent_again(flow: Flow) -> pl.DataFrame:
    return flow.at_sender.filter((pl.col("dir") == 0) & is_a(DATA) & is_a(RETRANSMISSION))


@metric("count", "Retransmissions", "flow", "docs/traces.md, class RETRANSMISSION", summed=True, better="less")
def retransmissions(flow: Flow) -> float:
    """Number of data segments that the sender sent again, at its own interface."""
    return float(_sent_again(flow).height)


@metric("count", "Fast retransmits", "flow", "RFC 5681 3.2; class FAST_RETRANSMISSION", detail=True, summed=True)
def fast_retransmits(flow: Flow) -> float:
    """Number of retransmissions that duplicate acks asked for, and of the other holes of the same recovery.

    As class FAST_RETRANSMISSION has them (docs/traces.md), at the sender's interface; less those that were the timer's
    all the same (`timeouts`).
    """
    fast = _sent_again(flow).filter(is_a(FAST_RETRANSMISSION))
    return float(fast.join(timeouts(flow), on=["t_s", "stream", "seq"], how="anti").height)


@metric("count", "Spurious retransmissions", "flow", "docs/traces.md, class SPURIOUS", detail=True, summed=True)
def spurious_retransmissions(flow: Flow) -> float:
    """Number of retransmissions of what had been acknowledged by then, at the sender's interface."""
    return float(_sent_again(flow).filter(is_a(SPURIOUS)).height)


@metric("count", "Coarse timeouts", "flow", "asym 5.2, ton IV: retransmissions by timer", summed=True, better="less")
def coarse_timeouts(flow: Flow) -> float:
    """Number of retransmissions that a timer caused, at the sender's interface: rows of `timeouts`."""
    return float(timeouts(flow).height)


def timeouts(flow: Flow) -> pl.DataFrame:
    """The retransmissions that only a timer explains: `t_s`, `stream`, `seq`, and `waited_s` since it was sent before.

    Such a one begins at the first byte that is not acknowledged; at least LEAST_RTO_S have passed since that byte was
    last sent; and nothing arrived that could have caused it: no ack at all in the REACTION_S before (a selective one
    may ask for it at once, RFC 6675, RFC 8985), none that acknowledged new data in the TRIGGER_S before. Nor did
    duplicate acks ask for it, unless the byte had been sent again before: a lost retransmission leaves Reno and its
    heirs only the timer (RFC 5681 3.2). A tail loss probe of a flight of one segment looks the same as a timeout, and
    counts.
    """
    ack = pl.when(pl.col("dir") == 1)
    seen = flow.at_sender.with_columns(
        ack.then(pl.col("ack")).cum_max().over("stream").alias("acked"),
        ack.then(pl.col("t_s")).forward_fill().over("stream").alias("heard_s"),
    ).with_columns(pl.col("acked").forward_fill().over("stream").fill_null(0))
    before = pl.col("acked").shift(1).over("stream").fill_null(0)
    seen = seen.with_columns(
        pl.when((pl.col("dir") == 1) & (pl.col("acked") > before)).then(pl.col("t_s")).alias("advanced_s")
    ).with_columns(pl.col("advanced_s").forward_fill().over("stream"))
    since_advance = pl.col("t_s") - pl.col("advanced_s").fill_null(-math.inf)
    data = seen.filter((pl.col("dir") == 0) & is_a(DATA))
    data = data.with_columns(
        (pl.col("t_s") - pl.col("t_s").shift(1).over("stream", "seq")).alias("since_same_s"),
        is_a(RETRANSMISSION).shift(1, fill_value=False).over("stream", "seq").alias("resent"),
    ).with_columns(pl.coalesce("since_same_s", pl.col("t_s") - pl.col("t_s").shift(1).over("stream")).alias("waited_s"))
    by_timer = (
        is_a(RETRANSMISSION)
        & (pl.col("seq") <= pl.max_horizontal(pl.col("acked"), 1))
        & (pl.col("seq") + pl.col("payload") > pl.col("acked"))
        & (since_advance > TRIGGER_S)
        & (pl.col("waited_s") >= LEAST_RTO_S)
        & (pl.col("t_s") - pl.col("heard_s").fill_null(-math.inf) > REACTION_S)
        & (~is_a(FAST_RETRANSMISSION) | pl.col("resent"))
    )
    return data.filter(by_timer).select("t_s", "stream", "seq", "waited_s")
