"""How long a transfer took."""

from __future__ import annotations

from analysis.metrics.data import Flow
from analysis.metrics.registry import metric


@metric("time", "Completion time", "flow", "asym 7.3", better="less")
def completion_time(flow: Flow) -> float | None:
    """From the flow's start to the arrival of its last byte, all before it being there, in s.

    Over all of the flow's connections. None for a flow without a size, or unfinished.
    """
    done_s = flow.completed_s()
    return None if done_s is None else done_s - flow.begun_s
