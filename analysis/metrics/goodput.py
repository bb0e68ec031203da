"""Useful bytes over bytes sent, on the sender's own link; of other links: links.link_goodput."""

from __future__ import annotations

import math

import polars as pl

from analysis.metrics.data import Flow
from analysis.metrics.registry import metric


@metric("fraction", "Goodput", "flow", "ton IV-A: useful bytes over bytes on the link", better="more")
def goodput(flow: Flow) -> float | None:
    """Bytes delivered in order at the receiver over all bytes of IP packets that the sender put on its link.

    None when the sender sent nothing.
    """
    sent = int(flow.at_sender.filter(pl.col("dir") == 0)["ip_len"].sum())
    return flow.delivered_bytes(-math.inf, math.inf) / sent if sent else None
