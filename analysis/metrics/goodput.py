"""Useful bytes over bytes sent on the sender's link. Other links: links.link_goodput, links.data_goodput."""

from __future__ import annotations

import math

from analysis.captures import CapturedFlow
from analysis.metrics.registry import metric


@metric(
    "fraction",
    "Goodput",
    CapturedFlow,
    "ton IV-A: useful bytes over bytes on the link",
    better="more",
    column="goodput",
)
def goodput(flow: CapturedFlow) -> float | None:
    """Bytes delivered in order to the receiver over all bytes of IP packets that the sender put on its link.

    None if the sender sent nothing.
    """
    sent = flow.sent_bytes()
    return flow.delivered_bytes(-math.inf, math.inf) / sent if sent else None
