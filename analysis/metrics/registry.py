"""The table of metrics, and the one place that computes all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from analysis.metrics.data import MissingCapture, RunData


@dataclass(frozen=True)
class Metric:
    """A metric's declaration."""

    name: str
    #: "rate", "time", "fraction", "bytes", "packets", "segments", "count" or "number":
    #: in bit/s, s, 1, bytes, packets, segments, 1, 1.
    unit: str
    title: str
    #: What it is of: "flow", "run", "line" (a direction of a link) or "link".
    per: str
    source: str
    function: Callable[..., float | None]
    #: Whether it is a detail: in the store, in exports and on request, but not in a campaign's tables.
    detail: bool = False
    #: Whether a group's value is the sum over its flows; a group has none otherwise.
    summed: bool = False
    #: Which values are better; None where neither is.
    better: Literal["more", "less"] | None = None


METRICS: dict[str, Metric] = {}

Function = Callable[..., float | None]


def metric(
    unit: str, title: str, per: str, source: str, *, detail: bool = False, summed: bool = False,
    better: Literal["more", "less"] | None = None,
) -> Callable[[Function], Function]:  # fmt: skip
    """Declares the function as a metric; its name is the function's."""

    def declare(function: Function) -> Function:
        name = function.__name__
        if name in METRICS:
            raise ValueError(f"there are two metrics '{name}'")
        METRICS[name] = Metric(name, unit, title, per, source, function, detail, summed, better)
        return function

    return declare


def measure(run: RunData, notes: list[str] | None = None) -> list[dict[str, Any]]:
    """Every metric of a run as rows: metric, subject, value, unit.

    The subject is a flow, a group, "link/direction", a link, or "" for the run. A metric that has no value for a
    subject (no such event, nothing to divide by) has no row.

    Args:
        run: its data.
        notes: takes a sentence for every metric that a missing capture prevented.
    """
    rows = []
    for one in METRICS.values():
        values: dict[str, float | None] = {}
        for subject, thing in _subjects(run, one.per):
            try:
                values[subject] = one.function(thing)
            except MissingCapture as why:
                if notes is not None:
                    notes.append(f"{one.name}: {why}")
        if one.summed:
            for name, flows in run.groups.items():
                known = [values.get(flow.name) for flow in flows]
                if any(value is not None for value in known) and all(flow.name in values for flow in flows):
                    values[name] = sum(value or 0.0 for value in known)
        for subject, value in values.items():
            if value is not None:
                rows.append({"metric": one.name, "subject": subject, "value": float(value), "unit": one.unit})
    return rows


def _subjects(run: RunData, per: str) -> list[tuple[str, Any]]:
    if per == "run":
        return [("", run)]
    if per == "flow":
        return [(flow.name, flow) for flow in run.flows]
    if per == "line":
        return [(line.name, line) for line in run.lines]
    if per == "link":
        pairs: dict[str, list[Any]] = {}
        for line in run.lines:
            pairs.setdefault(line.link, []).append(line)
        return [(link, lines) for link, lines in pairs.items() if len(lines) == 2]
    raise ValueError(f"a metric is per flow, run, line or link, not '{per}'")
