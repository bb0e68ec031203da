"""A metric: what the receiver got in a flow's first seconds."""

from __future__ import annotations

from analysis.metrics.registry import metric
from analysis.runs import Flow

#: Length of the start, in s.
START_S = 2.0


# Unit, title, what it is measured of, source, which direction is better, and the heading of its column.
@metric("bytes", "Bytes in the first 2 seconds", Flow, "your source", better="more", column="start")
def my_crate(flow: Flow) -> float:
    """Bytes that the receiver got in the flow's first 2 s."""
    return float(flow.delivered_bytes(flow.begun_s, flow.begun_s + START_S))
