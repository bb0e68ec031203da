"""Duration of transfers."""

from __future__ import annotations

import statistics

from analysis.metrics.registry import metric
from analysis.runs import Flow, RunView


@metric("time", "Completion time", Flow, "asym 7.3", better="less", column="completion time")
def completion_time(flow: Flow) -> float | None:
    """From the flow's start to the arrival of its last byte, all bytes before it having arrived, in s.

    Over all of the flow's connections. None for a flow without a size, or unfinished.
    """
    done_s = flow.completed_s()
    return None if done_s is None else done_s - flow.begun_s


@metric("time", "Mean completion time", RunView, "asym 7.3, figure 16", detail=True, better="less")
def mean_completion_time(run: RunView) -> float | None:
    """Mean `completion_time` of the flows that have one, in s; None without any."""
    times = [time for flow in run.flows if (time := completion_time(flow)) is not None]
    return statistics.fmean(times) if times else None
