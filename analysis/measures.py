"""A paper's measures, computed from a campaign's stored metrics: the names and cells in which an artefact is published.

A campaign file defines each measure under `measures`, in one of these forms:

    throughput: {metric: packet_throughput, of: forward}                    # of a flow, line, link, or run
    advantage: {difference: throughput, axis: policy, between: [aq, droptail]}  # the first less the second
    gain: {ratio: throughput, axis: policy, between: [aq, droptail]}            # the first over the second
    most: {greatest: advantage, over: rate}                                     # the greatest mean over an axis
    typical: {mean: throughput, over: rate}
    optimum: {best: throughput, over: rate}                                     # the label where it is greatest
    both: {sum: [up, down]}
    shut_out: {share: throughput, below: 500}                                   # of a cell's runs
    percent: {scale: utilisation, by: 100}
    of_most: {scale: throughput, axis: path, by: {lan: 6.7e-7, wan: 7.4e-7}}    # by the label on an axis
    more: {plus: gain, by: -1}
    spread: {stdev: throughput}                                                 # over a cell's runs
    rate: {configured: links.air.forward.rate_bps}                              # of the scenario that ran
    timeouts: {gather: {wired: wired, wireless: wireless}, axis: part}          # as labels of an axis

A cell is one label of every axis; its values are those of its runs. `split` divides the runs of a cell in two, for
papers that report the runs of two kinds separately. A difference or ratio of cells whose runs pair
(analysis/statistics.py) has a value for each pair, otherwise one value, that of the means.

The interval of a cell is that of its values' mean. A greatest mean, its label, a share and a deviation have another
one. What other forms than `scale`, `plus` and `gather` compute from these has no interval.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from analysis.results import RENAMED, CellLabel, Parameters, Quantity, Values, line_name
from analysis.statistics import (
    LEVEL,
    Interval,
    exact_interval,
    greatest_interval,
    pairs_of,
    possibly_greatest,
    sd_interval,
    share_interval,
    t_interval,
)
from testbed.scenario import Scenario

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One combination of labels with a value for each run."""

    labels: Labels
    values: Sequence[float]
    #: What pairs the values with those of other cells; empty if nothing does.
    runs: Sequence[Hashable] = ()
    #: Interval of the mean, where it is not the t interval of the values.
    other_interval: Interval | None = None

    @classmethod
    def exact(cls, labels: Labels, value: float) -> Cell:
        """A computed or configured value, in which there is no chance."""
        return cls(labels, [value], other_interval=exact_interval(value))

    def mapped(self, function: Callable[[float], float]) -> Cell:
        """The cell with each value converted by a monotone function."""
        interval = self.other_interval and self.other_interval.mapped(function)
        return Cell(self.labels, [function(value) for value in self.values], self.runs, interval)

    def relabelled(self, labels: Labels) -> Cell:
        """The same values under other labels."""
        return replace(self, labels=labels)

    @property
    def mean(self) -> float:
        """Of the values."""
        return statistics.fmean(self.values)

    @property
    def interval(self) -> Interval | None:
        """95 % confidence interval of the mean; None for fewer than two values."""
        return self.other_interval or t_interval(self.values)

    @property
    def operand(self) -> Cell:
        """The cell as other measures compute with it. With an interval that is not its values', it is its mean alone,
        which has no interval.
        """
        return self if self.other_interval is None else Cell(self.labels, [self.mean])

    @property
    def by_run(self) -> dict[Hashable, float]:
        """Run to value; without `runs`, by position."""
        return dict(zip(self.runs or range(len(self.values)), self.values, strict=True))


#: Form of a measure to the other keys that it needs.
FORMS: Mapping[str, tuple[str, ...]] = {
    "metric": (), "configured": (), "difference": ("axis", "between"), "ratio": ("axis", "between"),
    "greatest": ("over",), "mean": ("over",), "best": ("over",), "share": ("below",), "sum": (), "scale": ("by",),
    "plus": ("by",), "stdev": (), "gather": ("axis",),
}  # fmt: skip


class Measure(BaseModel):
    """One of the forms above."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    metric: str | None = None
    of: str = ""
    configured: str | None = None
    difference: str | None = None
    ratio: str | None = None
    greatest: str | None = None
    mean: str | None = None
    best: str | None = None
    share: str | None = None
    sum: list[str] | None = Field(default=None, min_length=1)
    scale: str | None = None
    plus: str | None = None
    stdev: str | None = None
    gather: dict[str, str] | None = Field(default=None, min_length=1)
    axis: str | None = None
    between: tuple[str, str] | None = None
    over: str | None = None
    below: float | None = None
    by: float | dict[str, float] | None = None

    @field_validator("metric")
    @classmethod
    def _todays_name(cls, metric: str | None) -> str | None:
        return RENAMED.get(metric, metric) if metric else metric

    @field_validator("of")
    @classmethod
    def _todays_subject(cls, subject: str) -> str:
        return line_name(subject)

    @model_validator(mode="after")
    def _one_form(self) -> Measure:
        present = [form for form in FORMS if getattr(self, form) is not None]
        if len(present) != 1:
            raise ValueError(f"a measure is exactly one of {', '.join(FORMS)}; this has {len(present)} of them")
        needs = FORMS[present[0]]
        if isinstance(self.by, dict):
            needs = (*needs, "axis")
        for name in ("axis", "between", "over", "below", "by"):
            if (getattr(self, name) is not None) != (name in needs):
                raise ValueError(f"a measure with '{present[0]}' {'needs' if name in needs else 'has no'} '{name}'")
        return self

    @property
    def parts(self) -> list[str]:
        """Names of the measures that this one is computed from."""
        single = (
            self.difference, self.ratio, self.greatest, self.mean, self.best, self.share, self.scale, self.plus,
            self.stdev,
        )  # fmt: skip
        return [name for name in (*single, *(self.sum or ()), *(self.gather or {}).values()) if name is not None]


#: Measures in a row that are computed from each other, at most.
MAX_CHAIN = 50


def chain_problem(measures: Mapping[str, Measure]) -> tuple[str, str] | None:
    """A measure that cannot be computed, and why: it refers to itself, or through too many others. None if all can."""
    left = {name: [part for part in measure.parts if part in measures] for name, measure in measures.items()}
    for _ in range(MAX_CHAIN):
        ready = {name for name, parts in left.items() if not any(part in left for part in parts)}
        if not ready:
            break
        left = {name: parts for name, parts in left.items() if name not in ready}
    if not left:
        return None
    # Every measure that is left refers to another one that is left: following them closes a circle or meets the limit.
    chain = [next(iter(left))]
    while chain[-1] not in chain[:-1]:
        following = next((part for part in left[chain[-1]] if part in left), None)
        if following is None:
            return chain[0], f"refers through more than {MAX_CHAIN} measures; define it by a metric"
        chain.append(following)
    circle = chain[chain.index(chain[-1]) :]
    return circle[0], f"refers to itself: {' -> '.join(circle)}; define it by other measures"


class Split(BaseModel):
    """Divides the runs of the cells with `label` on `axis`.

    Runs whose measure `by` is less than `below` get the first label of `into`, the others the second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    axis: str
    label: str
    by: str
    below: float
    into: tuple[str, str]


class Table:
    """A campaign's results as a paper's measures.

    Args:
        measures: the definitions.
        splits: of runs.
        points: number and labels of each point.
        values: by the point's number.
        scenarios: of one run of each point.
    """

    def __init__(
        self,
        measures: Mapping[str, Measure],
        splits: Sequence[Split],
        points: Mapping[int, Parameters],
        values: Mapping[int, Mapping[Quantity, Values]],
        scenarios: Mapping[int, Scenario] | None = None,
    ) -> None:
        self._scenarios = scenarios or {}
        self._measures = measures
        self._splits = splits
        self._points = points
        self._values = {
            (number, quantity.metric, quantity.subject): of_runs
            for number, of_point in values.items()
            for quantity, of_runs in of_point.items()
        }
        self._made: dict[str, list[Cell]] = {}

    def cells(self, name: str) -> list[Cell]:
        """Every cell of a measure; none for a measure that the campaign does not define."""
        if name not in self._made:
            self._made[name] = []  # a measure that refers to itself has no cells
            self._made[name] = self._make(name)
        return self._made[name]

    def cell(self, name: str, labels: Mapping[str, CellLabel]) -> Cell:
        """Every cell that has these labels, whatever its others, as one; without values if there is none."""
        texts = {axis: str(label) for axis, label in labels.items()}
        cells = [
            cell for cell in self.cells(name) if all(cell.labels.get(axis) == label for axis, label in texts.items())
        ]
        if len(cells) == 1:
            return cells[0]
        return Cell(texts, [value for cell in cells for value in cell.operand.values])

    def _make(self, name: str) -> list[Cell]:
        measure = self._measures.get(name)
        if measure is None:
            return []
        if measure.metric is not None:
            return self._with_splits(name, self._of_metric(measure.metric, measure.of))
        if measure.configured is not None:
            cells = [
                (labels, _look_up(self._scenarios[number].as_json(), measure.configured))
                for number, labels in self._points.items()
                if number in self._scenarios
            ]
            return [Cell.exact(labels, value) for labels, value in cells if value is not None]
        if measure.sum is not None:
            return _sum([self._operands(part) for part in measure.sum])
        if measure.gather is not None:
            axis = measure.axis or ""
            parts = [(label, cell) for label, part in measure.gather.items() for cell in self.cells(part)]
            return [cell.relabelled({**cell.labels, axis: label}) for label, cell in parts]
        if measure.share is not None:
            return [_share(cell, measure.below or 0.0) for cell in self._operands(measure.share)]
        if measure.by is not None:
            return _by(self.cells(measure.scale or measure.plus or ""), measure)
        if measure.stdev is not None:
            several = [cell for cell in self._operands(measure.stdev) if len(cell.values) > 1]
            return [
                Cell(cell.labels, [statistics.stdev(cell.values)], other_interval=sd_interval(cell.values))
                for cell in several
            ]
        if measure.axis is not None and measure.between is not None:
            return _between(self._operands(measure.difference or measure.ratio or ""), measure)
        return _over(self._operands(measure.greatest or measure.mean or measure.best or ""), measure)

    def _operands(self, name: str) -> list[Cell]:
        return [cell.operand for cell in self.cells(name)]

    def _of_metric(self, metric: str, subject: str) -> list[Cell]:
        by_point = [(labels, self._values.get((number, metric, subject))) for number, labels in self._points.items()]
        return [Cell(labels, list(values.values()), list(values)) for labels, values in by_point if values]

    def _with_splits(self, name: str, cells: list[Cell]) -> list[Cell]:
        grouped = list(cells)
        for split in self._splits:
            deciding = cells if name == split.by else self.cells(split.by)
            for cell in cells:
                by = next((other.values for other in deciding if other.labels == cell.labels), ())
                if cell.labels.get(split.axis) != split.label or len(by) != len(cell.values):
                    continue
                for into, low in zip(split.into, (True, False), strict=True):
                    kept = [at for at, value in enumerate(by) if (value < split.below) == low]
                    if kept:
                        labels = {**cell.labels, split.axis: into}
                        grouped.append(Cell(labels, [cell.values[at] for at in kept], [cell.runs[at] for at in kept]))
        return grouped


def _look_up(scenario: Any, path: str) -> float | None:
    """A number deep in a scenario's JSON; entries of lists by name. None if there is none."""
    for part in path.split("."):
        if isinstance(scenario, list):
            scenario = next((entry for entry in scenario if entry.get("name") == part), None)
        elif isinstance(scenario, Mapping):
            scenario = scenario.get(part)
        else:
            return None
    return float(scenario) if isinstance(scenario, int | float) else None


def _share(cell: Cell, below: float) -> Cell:
    """One or nothing a run."""
    hits = [float(value < below) for value in cell.values]
    return Cell(cell.labels, hits, cell.runs, share_interval(hits.count(1.0), len(hits)))


def _sum(parts: Sequence[Sequence[Cell]]) -> list[Cell]:
    cells = []
    for cell in parts[0]:
        same = [next((other for other in others if other.labels == cell.labels), None) for others in parts]
        terms = [other.values for other in same if other is not None and len(other.values) == len(cell.values)]
        if len(terms) == len(parts):
            cells.append(Cell(cell.labels, [sum(of_run) for of_run in zip(*terms, strict=True)], cell.runs))
    return cells


def _by(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    scaled = []
    for cell in cells:
        by = measure.by
        number = by.get(cell.labels.get(measure.axis or "", "")) if isinstance(by, dict) else by
        if number is not None:
            scaled.append(cell.mapped(partial(operator.mul if measure.scale else operator.add, number)))
    return scaled


def _between(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    assert measure.axis is not None
    assert measure.between is not None
    differences = []
    for first in cells:
        if first.labels.get(measure.axis) != measure.between[0]:
            continue
        rest = {axis: label for axis, label in first.labels.items() if axis != measure.axis}
        other = next((cell for cell in cells if cell.labels == {**rest, measure.axis: measure.between[1]}), None)
        if other is None:
            continue
        made = _difference(rest, first, other) if measure.ratio is None else _ratio(rest, first, other)
        if made is not None:
            differences.append(made)
    return differences


def _difference(labels: Labels, first: Cell, second: Cell) -> Cell:
    a, b = first.by_run, second.by_run
    pairs = pairs_of(a, b)
    if pairs is None:
        return Cell(labels, [first.mean - second.mean])
    return Cell(labels, [a[run] - b[run] for run in pairs], pairs)


def _ratio(labels: Labels, first: Cell, second: Cell) -> Cell | None:
    """The ratio of the means: one of single runs is dominated by the least denominator. The values of pairs lie around
    it as it varies with numerator and denominator, to first order (delta method). None over a mean of nothing.
    """
    a, b = first.by_run, second.by_run
    pairs = pairs_of(a, b)
    top, bottom = (statistics.fmean([side[run] for run in pairs or side]) for side in (a, b))
    if not bottom:
        return None
    ratio = top / bottom
    if pairs is None:
        return Cell(labels, [ratio])
    return Cell(labels, [ratio + (a[run] - ratio * b[run]) / bottom for run in pairs], pairs)


def _over(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    assert measure.over is not None
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        if measure.over in cell.labels:
            rest = tuple((axis, label) for axis, label in cell.labels.items() if axis != measure.over)
            groups.setdefault(rest, []).append(cell)
    best_cells = []
    for rest, members in groups.items():
        best = max(members, key=lambda cell: cell.mean)
        if measure.greatest is not None:
            # Its runs were selected by what they measured, so without this interval they have none.
            interval = greatest_interval([cell.values for cell in members])
            greatest = Cell(dict(rest), best.values, best.runs, interval)
            best_cells.append(greatest if interval else replace(greatest, values=[greatest.mean], runs=()))
        elif measure.best is not None:
            possible = [members[at] for at in possibly_greatest([cell.by_run for cell in members])]
            labels = [float(cell.labels[measure.over]) for cell in possible]
            interval = Interval(min(labels), max(labels), LEVEL, "possible")
            best_cells.append(Cell(dict(rest), [float(best.labels[measure.over])], other_interval=interval))
        else:
            values = [value for cell in members for value in cell.values]
            # Runs of several cells share seeds: the label keeps them apart.
            runs = [(cell.labels[measure.over], run) for cell in members for run in cell.by_run]
            best_cells.append(Cell(dict(rest), values, runs))
    return best_cells
