"""Fairness between flows."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.estimates import SHARE
from analysis.metrics.registry import metric
from analysis.runs import Line, RunView, active_window_s


def jain(values: Iterable[float]) -> float | None:
    """Jain's index (sum x)^2 / (n sum x^2); None if all values are zero or there are none (asym 3.2)."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


@metric("number", "Fairness index", RunView, "Jain; asym 3.2", detail=True, better="more", bounds=SHARE)
def fairness_index(run: RunView) -> float | None:
    """Jain's index (sum x)^2 / (n sum x^2) of the throughput of all flows over the period in which all are active.

    It mixes flows of unlike lines, as the papers do; `direction_fairness` does not. Between 1/n and 1. None for fewer
    than two flows, an empty period, or if nothing was delivered in it.
    """
    window = active_window_s(run.flows)
    if len(run.flows) < 2 or window is None:
        return None
    return jain([flow.delivered_bytes(*window) for flow in run.flows])


@metric(
    "number", "Fairness of a direction", Line, "Jain, per shared link", better="more", bounds=SHARE, column="fairness"
)
def direction_fairness(line: Line) -> float | None:
    """Jain's index of the throughput of the flows whose data cross the line, over the period in which all are active.

    Of the lines that the same flows share, only the slowest has a value. Between 1/n and 1. None for a line that fewer
    than two flows cross, an empty period, or if nothing was delivered in it.
    """
    names = line.run.bottlenecks.get(line.name, ())
    flows = [flow for flow in line.run.flows if flow.name in names]
    window = active_window_s(flows)
    return None if window is None else jain([flow.delivered_bytes(*window) for flow in flows])
