"""Round-trip samples from the sender's captures."""

from __future__ import annotations

import polars as pl

from analysis.captures.segments import DATA, RETRANSMISSION, is_a


def rtt_samples(seen: pl.DataFrame) -> pl.DataFrame:
    """Round-trip samples of a flow's segments at the sender: `t_s` (the ack's) and `rtt_s`.

    One sample for each ack that acknowledges a segment exactly. Retransmitted data give none (Karn's rule, RFC 6298
    section 3). A host that sends and receives on different interfaces has captures of one direction each: its samples
    match data in one capture with acks in the other.
    """
    acks = seen.filter(pl.col("dir") == 1)
    if _sides(acks) & _sides(seen.filter(pl.col("dir") == 0)) or acks.is_empty():
        samples = acks.filter(pl.col("rtt_ns").is_not_null()).select("t_s", (pl.col("rtt_ns") / 1e9).alias("rtt_s"))
    else:
        samples = _across(seen)
    return samples


def _sides(segments: pl.DataFrame) -> set[int]:
    """File numbers of the captures that segments are in."""
    return set(segments["file"].unique())


def _across(seen: pl.DataFrame) -> pl.DataFrame:
    """Samples from data in one capture and acks in another: a segment sent once, and the first ack of its end."""
    data = seen.filter((pl.col("dir") == 0) & is_a(DATA)).with_columns((pl.col("seq") + pl.col("payload")).alias("end"))
    again = data.filter(is_a(RETRANSMISSION)).select("stream", pl.col("seq").alias("from"), pl.col("end").alias("to"))
    hit = data.join_where(
        again, pl.col("stream") == pl.col("stream_right"), pl.col("seq") < pl.col("to"), pl.col("end") > pl.col("from")
    )
    once = data.filter(~is_a(RETRANSMISSION)).join(
        hit.select("stream", "seq").unique(), on=["stream", "seq"], how="anti"
    )
    top = pl.col("ack").cum_max().shift(1).over("stream").fill_null(0)
    first = seen.filter(pl.col("dir") == 1).filter(pl.col("ack") > top).select("stream", "ack", "t_s")
    matched_rows = once.select("stream", "end", pl.col("t_s").alias("sent_s")).join(
        first, left_on=["stream", "end"], right_on=["stream", "ack"]
    )
    return matched_rows.select("t_s", (pl.col("t_s") - pl.col("sent_s")).alias("rtt_s")).sort("t_s")
