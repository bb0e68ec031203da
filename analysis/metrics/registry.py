"""The registry of metrics, and the function that computes all of them for a run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import polars as pl

from analysis.estimates import AT_LEAST_0, SHARE, Bounds, Estimate
from analysis.registry import Declared, Registry, calling, plugin_of
from analysis.results import MetricValue, is_output
from analysis.runs import RunView, Unmeasured
from testbed.node_binary import PACKAGE

Function = TypeVar("Function", bound=Callable[..., float | None])
#: Which values are better.
Better = Literal["more", "less"]


@dataclass(frozen=True)
class Metric(Declared):
    """A metric's declaration."""

    #: The function's name.
    name: str
    #: "rate", "time", "fraction", "bytes", "packets", "segments", "count" or "number":
    #: in bit/s, s, 1, bytes, packets, segments, 1, 1.
    unit: str
    title: str
    #: Type of what it measures: an interface of analysis/runs.py if every provider serves it, otherwise a provider's.
    subject: type[Any]
    #: Section of a paper or RFC, or where the values come from.
    source: str
    function: Callable[..., float | None]
    #: None where neither more nor less is better.
    better: Better | None
    #: Values that it can take.
    bounds: Bounds
    #: Whether only run pages, exports and explicit requests show it, and not a campaign's tables.
    detail: bool = False
    #: Whether a group's value is the sum over its flows. Other metrics have no value for groups.
    summed: bool = False
    #: Head of its column in the table of `./backchannel results`; "": it has none.
    column: str = ""

    @property
    def per(self) -> str:
        """What it is of: "flow", "run", "line" (a direction of a link) or "link"."""
        return str(self.subject.kind)

    @property
    def definition(self) -> str:
        """What its docstring states."""
        return inspect.getdoc(self.function) or ""


@dataclass(frozen=True)
class Measured:
    """All metrics of a run."""

    rows: list[MetricValue] = field(default_factory=list)
    #: Reason to the names of the metrics that have no value because of it.
    refused: dict[str, list[str]] = field(default_factory=dict)

    @property
    def values(self) -> dict[tuple[str, str], float]:
        """By metric and subject."""
        return {(row.metric, row.subject): row.value for row in self.rows}

    @property
    def unmeasured(self) -> list[str]:
        """The refusals as sentences."""
        return [_sentence(names, reason) for reason, names in self.refused.items()]


def _sentence(names: Sequence[str], reason: str) -> str:
    return f"{', '.join(names)}: {reason}"


def refusals(unmeasured: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Metrics and reason of each sentence of `Measured.unmeasured`, which manifests keep."""
    for sentence in unmeasured:
        names, _, reason = sentence.partition(": ")
        yield names.split(", "), reason


def refusals_of(unmeasured: Iterable[str], wanted: Callable[[str], bool]) -> list[str]:
    """The sentences about the metrics that are wanted, without the others."""
    kept = (([name for name in names if wanted(name)], reason) for names, reason in refusals(unmeasured))
    return [_sentence(names, reason) for names, reason in kept if names]


#: Every metric, in the order in which metrics are shown.
METRICS: Registry[Metric] = Registry("metric", "backchannel.metrics", [f"{PACKAGE}analysis.metrics"])


def metric(
    unit: str,
    title: str,
    subject: type[Any],
    source: str,
    *,
    better: Better | None,
    bounds: Bounds | None = None,
    detail: bool = False,
    summed: bool = False,
    column: str = "",
) -> Callable[[Function], Function]:
    """Declares the function as a metric with the function's name. Without `bounds`, those of its unit hold."""

    def declare(function: Function) -> Function:
        name = function.__name__
        within = bounds_of(unit) if bounds is None else bounds
        METRICS.add(Metric(name, unit, title, subject, source, function, better, within, detail, summed, column))
        return function

    return declare


def bounds_of(unit: str) -> Bounds:
    """The values that metrics of a unit can take unless they declare others: shares 0 to 1, all else at least 0."""
    return SHARE if unit == "fraction" else AT_LEAST_0


def catalogue() -> pl.DataFrame:
    """Every metric: name, title, unit, of (flow, line, link or run), better (more, less or null), source, definition,
    and the package that adds it (null: Backchannel).
    """
    columns = ("name", "title", "unit", "of", "better", "source", "definition", "package")
    rows = [
        {column: getattr(metric, column, None) for column in columns}
        | {"of": metric.per, "package": plugin.name if (plugin := plugin_of(metric.module)) else None}
        for metric in METRICS.values()
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String))


def is_added(name: str) -> bool:
    """Whether a package outside the checkout adds the metric."""
    return name in METRICS and plugin_of(METRICS[name].module) is not None


def title_of(name: str) -> str:
    """A metric's title; its name if this version does not have it."""
    return METRICS[name].title if name in METRICS else name


def estimate(name: str, unit: str, values: Sequence[float]) -> Estimate:
    """The mean of a metric's values over runs, within the metric's bounds. Older stores may have other metrics."""
    within = METRICS[name].bounds if name in METRICS else Bounds() if is_output(name) else bounds_of(unit)
    return Estimate(tuple(values), within, resolution=1.0 if unit == "count" else 0.0)


def measure(*views: RunView, names: Collection[str] | None = None) -> Measured:
    """The metrics of a run, from the first of its views that has a value.

    A metric without a value for a subject (nothing happened, nothing to divide by) has no row.

    Args:
        views: of the run.
        names: of the metrics; None: every one.
    """
    measured = Measured()
    for metric in METRICS.values() if names is None else (METRICS.find(name) for name in names):
        values: dict[str, float | None] = {}
        reasons: dict[str, str] = {}
        for view in views:
            for subject, part in _subjects(view, metric.per):
                if values.get(subject) is None:
                    try:
                        values[subject] = _value(metric, part)
                    except Unmeasured as refusal:
                        reasons.setdefault(subject, str(refusal))
        if metric.summed and views:
            values |= _sums(views[0], values)
        measured.rows.extend(
            MetricValue(metric.name, subject, float(value), metric.unit)
            for subject, value in values.items()
            if value is not None
        )
        for reason in dict.fromkeys(reason for subject, reason in reasons.items() if subject not in values):
            measured.refused.setdefault(reason, []).append(metric.name)
    for view in views:
        view.forget()
    return measured


def _value(metric: Metric, part: Any) -> float | None:
    """The metric's value for a flow, line, link or run; None without one, as where there is nothing to divide by: round
    trips over links without rate and delay take no time.

    Raises:
        Unmeasured: the provider does not have what it needs.
    """
    if not isinstance(part, metric.subject):
        raise Unmeasured(_NEEDS[metric.subject.__module__.removeprefix(PACKAGE).split(".")[1]])
    with calling(metric):
        try:
            value = metric.function(part)
        except ZeroDivisionError:
            return None
        # The store keeps no such value, and its author is to learn why.
        if value is not None and not math.isfinite(value) and is_added(metric.name):
            raise ValueError(f"it returned {value}; a metric without a value returns None")
        return value


_NEEDS = {"captures": "needs captures (capture.at)", "counters": "needs counters (capture.counters), in a simulation"}


def _sums(view: RunView, values: dict[str, float | None]) -> dict[str, float]:
    """Sums over groups; None of a group with a flow that was not measured, or without any value."""
    sums = {}
    for name, flows in view.groups.items():
        known = [values.get(flow.name) for flow in flows]
        if any(value is not None for value in known) and all(flow.name in values for flow in flows):
            sums[name] = sum(value or 0.0 for value in known)
    return sums


def _subjects(view: RunView, per: str) -> Sequence[tuple[str, Any]]:
    parts: dict[str, Sequence[Any]] = {"flow": view.flows, "line": view.lines, "link": view.links}
    return [("", view)] if per == "run" else [(part.name, part) for part in parts[per]]
