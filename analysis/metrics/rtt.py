"""Round-trip times, as the sender's acks tell them."""

from __future__ import annotations

import polars as pl

from analysis.metrics.data import DATA, RETRANSMISSION, Flow, is_a
from analysis.metrics.registry import metric


def rtt_samples(flow: Flow) -> pl.DataFrame:
    """Round-trip samples of the sender's data at its own interface: `t_s` (the ack's) and `rtt_s`.

    One for each ack that acknowledges a segment exactly; by Karn's rule (RFC 6298 section 3) never of retransmitted
    data. Only of the flow's measured time. Of a host that sends by one interface and hears by another, whose captures
    have one direction each, the same is done across both.
    """
    seen = flow.at_sender
    acks = seen.filter(pl.col("dir") == 1)
    if _sides(acks) & _sides(seen.filter(pl.col("dir") == 0)) or acks.is_empty():
        samples = acks.filter(pl.col("rtt_ns").is_not_null()).select("t_s", (pl.col("rtt_ns") / 1e9).alias("rtt_s"))
    else:
        samples = _across(seen)
    return samples.filter(pl.col("t_s") >= flow.start_s)


def _sides(segments: pl.DataFrame) -> set[int]:
    """The captures that segments are in."""
    return set(segments["file"].unique())


def _across(seen: pl.DataFrame) -> pl.DataFrame:
    """Samples from data in one capture and acks in another: of a segment sent once, and the first ack of its end."""
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
    found = once.select("stream", "end", pl.col("t_s").alias("sent_s")).join(
        first, left_on=["stream", "end"], right_on=["stream", "ack"]
    )
    return found.select("t_s", (pl.col("t_s") - pl.col("sent_s")).alias("rtt_s")).sort("t_s")


@metric("time", "Round-trip time", "flow", "RFC 6298: Karn's rule")
def rtt_mean(flow: Flow) -> float | None:
    """Mean of the round-trip samples, in s; None without any."""
    samples = rtt_samples(flow)["rtt_s"]
    return None if samples.is_empty() else float(samples.mean())  # type: ignore[arg-type]


@metric("time", "Round-trip time's deviation", "flow", "asym 5.2: its standard deviation", detail=True)
def rtt_sd(flow: Flow) -> float | None:
    """Sample standard deviation of the round-trip samples, in s; None for fewer than two."""
    samples = rtt_samples(flow)["rtt_s"]
    return float(samples.std()) if samples.len() > 1 else None  # type: ignore[arg-type]


@metric("time", "Round-trip time, median", "flow", "quantile 0.5 of the samples, linear between two", detail=True)
def rtt_median(flow: Flow) -> float | None:
    """Median of the round-trip samples, in s; None without any."""
    return _quantile(flow, 0.5)


@metric("time", "Round-trip time, 95 %", "flow", "quantile 0.95 of the samples, linear between two", detail=True)
def rtt_p95(flow: Flow) -> float | None:
    """The round-trip time that 95 of 100 samples do not exceed, in s; None without any."""
    return _quantile(flow, 0.95)


def _quantile(flow: Flow, share: float) -> float | None:
    found = rtt_samples(flow)["rtt_s"].quantile(share, "linear")
    return None if found is None else float(found)
