"""Retransmissions by their cause."""

from __future__ import annotations

import math

import polars as pl

from analysis.captures.segments import DATA, FAST_RETRANSMISSION, RETRANSMISSION, is_a

#: An ack of new data that arrived this shortly before a retransmission may have caused it, in s.
TRIGGER_S = 0.005
#: Longest reaction of a sender to an ack, in s.
REACTION_S = 0.001
#: Shortest coarse timer: Linux's minimum RTO, in s. 4.4BSD's is 1 s (CATALOGUE 1.3), RFC 6298's as well.
LEAST_RTO_S = 0.2


def retransmitted(at_sender: pl.DataFrame) -> pl.DataFrame:
    """The data segments that the sender sent again, at its interface."""
    return at_sender.filter((pl.col("dir") == 0) & is_a(DATA) & is_a(RETRANSMISSION))


def timeouts(at_sender: pl.DataFrame) -> pl.DataFrame:
    """The retransmissions that only a timer explains: `t_s`, `stream`, `seq`, and `waited_s`.

    All of these hold:

    - The segment begins at the first unacknowledged byte.
    - At least LEAST_RTO_S have passed since that byte was last sent (`waited_s`).
    - No ack arrived in the REACTION_S before: a selective ack may trigger a retransmission at once (RFC 6675, 8985).
    - No ack of new data arrived in the TRIGGER_S before.
    - It is not a fast retransmission, unless the byte was retransmitted before: a lost retransmission leaves Reno and
      its successors only the timer (RFC 5681 3.2).

    A tail loss probe of a flight of one segment looks like a timeout and counts as one.
    """
    ack = pl.when(pl.col("dir") == 1)
    seen = (
        at_sender.lazy()
        .with_columns(
            ack.then(pl.col("ack")).cum_max().over("stream").alias("acked"),
            ack.then(pl.col("t_s")).forward_fill().over("stream").alias("heard_s"),
        )
        .with_columns(pl.col("acked").forward_fill().over("stream").fill_null(0))
    )
    before = pl.col("acked").shift(1).over("stream").fill_null(0)
    seen = seen.with_columns(
        pl.when((pl.col("dir") == 1) & (pl.col("acked") > before)).then(pl.col("t_s")).alias("advanced_s")
    ).with_columns(pl.col("advanced_s").forward_fill().over("stream"))
    since_advance = pl.col("t_s") - pl.col("advanced_s").fill_null(-math.inf)
    data = seen.filter((pl.col("dir") == 0) & is_a(DATA))
    since_data = (pl.col("t_s") - pl.col("t_s").shift(1).over("stream")).alias("since_data_s")
    # Few segments are sent again, and windows over all numbers are slow.
    again = data.filter(is_a(RETRANSMISSION)).select("stream", "seq").unique()
    data = data.with_columns(since_data).join(again, on=["stream", "seq"], how="semi", maintain_order="left")
    data = data.with_columns(
        (pl.col("t_s") - pl.col("t_s").shift(1).over("stream", "seq")).alias("since_same_s"),
        is_a(RETRANSMISSION).shift(1, fill_value=False).over("stream", "seq").alias("resent"),
    ).with_columns(pl.coalesce("since_same_s", "since_data_s").alias("waited_s"))
    by_timer = (
        is_a(RETRANSMISSION)
        & (pl.col("seq") <= pl.max_horizontal(pl.col("acked"), 1))
        & (pl.col("seq") + pl.col("payload") > pl.col("acked"))
        & (since_advance > TRIGGER_S)
        & (pl.col("waited_s") >= LEAST_RTO_S)
        & (pl.col("t_s") - pl.col("heard_s").fill_null(-math.inf) > REACTION_S)
        & (~is_a(FAST_RETRANSMISSION) | pl.col("resent"))
    )
    return data.filter(by_timer).select("t_s", "stream", "seq", "waited_s").collect()
