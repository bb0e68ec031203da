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


@dataclass(frozen=True)
class Form:
    """A form of a measure."""

    #: The other keys that it needs.
    needs: tuple[str, ...]
    #: The cells of a measure of a table; the last argument is the value under the form's key.
    cells: Callable[[Table, Measure, Any], list[Cell]]


#: By the key that names it.
FORMS: dict[str, Form] = {}


def form(name: str, *needs: str) -> Callable[[Callable[[Table, Measure, Any], list[Cell]]], Any]:
    """Registers the function as a form of a measure. `Measure` has a field of its name."""

    def declare(cells: Callable[[Table, Measure, Any], list[Cell]]) -> Any:
        FORMS[name] = Form(needs, cells)
        return cells

    return declare


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
        present = [name for name in FORMS if getattr(self, name) is not None]
        if len(present) != 1:
            raise ValueError(f"a measure is exactly one of {', '.join(FORMS)}; this has {len(present)} of them")
        needs = FORMS[present[0]].needs
        if isinstance(self.by, dict):
            needs = (*needs, "axis")
        for name in ("axis", "between", "over", "below", "by"):
            if (getattr(self, name) is not None) != (name in needs):
                raise ValueError(f"a measure with '{present[0]}' {'needs' if name in needs else 'has no'} '{name}'")
        return self

    @property
    def form(self) -> tuple[str, Any]:
        """Its form, and the value under the form's key."""
        return next((name, value) for name in FORMS if (value := getattr(self, name)) is not None)

    @property
    def parts(self) -> list[str]:
        """Names of the measures that this one is computed from."""
        name, value = self.form
        if name in ("metric", "configured"):
            return []
        return [value] if isinstance(value, str) else list(value.values() if isinstance(value, dict) else value)


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
        kind, value = measure.form
        cells = FORMS[kind].cells(self, measure, value)
        return self._with_splits(name, cells) if kind == "metric" else cells

    def operands(self, name: str) -> list[Cell]:
        """Every cell of a measure as others compute with it."""
        return [cell.operand for cell in self.cells(name)]

    def of_metric(self, metric: str, subject: str) -> list[Cell]:
        """A cell for each point that has values of a stored metric."""
        by_point = [(labels, self._values.get((number, metric, subject))) for number, labels in self._points.items()]
        return [Cell(labels, list(values.values()), list(values)) for labels, values in by_point if values]

    def configured(self, path: str) -> list[Cell]:
        """A cell for each point whose scenario has a number at a path."""
        cells = [
            (labels, _look_up(self._scenarios[number].as_json(), path))
            for number, labels in self._points.items()
            if number in self._scenarios
        ]
        return [Cell.exact(labels, value) for labels, value in cells if value is not None]

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


@form("metric")
def _metric(table: Table, measure: Measure, metric: str) -> list[Cell]:
    return table.of_metric(metric, measure.of)


@form("configured")
def _configured(table: Table, measure: Measure, path: str) -> list[Cell]:
    return table.configured(path)


@form("difference", "axis", "between")
def _differences(table: Table, measure: Measure, part: str) -> list[Cell]:
    return _between(table.operands(part), measure, _difference)


@form("ratio", "axis", "between")
def _ratios(table: Table, measure: Measure, part: str) -> list[Cell]:
    return _between(table.operands(part), measure, _ratio)


@form("greatest", "over")
def _greatest(table: Table, measure: Measure, part: str) -> list[Cell]:
    cells = []
    for rest, members in _over(table.operands(part), measure.over):
        best = max(members, key=lambda cell: cell.mean)
        # Its runs were selected by what they measured, so without this interval they have none.
        interval = greatest_interval([cell.values for cell in members])
        greatest = Cell(rest, best.values, best.runs, interval)
        cells.append(greatest if interval else replace(greatest, values=[greatest.mean], runs=()))
    return cells


@form("mean", "over")
def _mean(table: Table, measure: Measure, part: str) -> list[Cell]:
    cells = []
    for rest, members in _over(table.operands(part), measure.over):
        # Runs of several cells share seeds: the label keeps them apart.
        runs = [(cell.labels[measure.over or ""], run) for cell in members for run in cell.by_run]
        cells.append(Cell(rest, [value for cell in members for value in cell.values], runs))
    return cells


@form("best", "over")
def _best(table: Table, measure: Measure, part: str) -> list[Cell]:
    cells = []
    for rest, members in _over(table.operands(part), measure.over):
        best = max(members, key=lambda cell: cell.mean)
        possible = [members[at] for at in possibly_greatest([cell.by_run for cell in members])]
        labels = [float(cell.labels[measure.over or ""]) for cell in possible]
        interval = Interval(min(labels), max(labels), LEVEL, "possible")
        cells.append(Cell(rest, [float(best.labels[measure.over or ""])], other_interval=interval))
    return cells


@form("share", "below")
def _share(table: Table, measure: Measure, part: str) -> list[Cell]:
    """One or nothing a run."""
    cells = []
    for cell in table.operands(part):
        hits = [float(value < (measure.below or 0.0)) for value in cell.values]
        cells.append(Cell(cell.labels, hits, cell.runs, share_interval(hits.count(1.0), len(hits))))
    return cells


@form("sum")
def _sum(table: Table, measure: Measure, names: Sequence[str]) -> list[Cell]:
    parts, cells = [table.operands(name) for name in names], []
    for cell in parts[0]:
        same = [next((other for other in others if other.labels == cell.labels), None) for others in parts]
        terms = [other.values for other in same if other is not None and len(other.values) == len(cell.values)]
        if len(terms) == len(parts):
            cells.append(Cell(cell.labels, [sum(of_run) for of_run in zip(*terms, strict=True)], cell.runs))
    return cells


@form("scale", "by")
def _scale(table: Table, measure: Measure, part: str) -> list[Cell]:
    return _by(table.cells(part), measure, operator.mul)


@form("plus", "by")
def _plus(table: Table, measure: Measure, part: str) -> list[Cell]:
    return _by(table.cells(part), measure, operator.add)


@form("stdev")
def _stdev(table: Table, measure: Measure, part: str) -> list[Cell]:
    several = [cell for cell in table.operands(part) if len(cell.values) > 1]
    return [
        Cell(cell.labels, [statistics.stdev(cell.values)], other_interval=sd_interval(cell.values)) for cell in several
    ]


@form("gather", "axis")
def _gather(table: Table, measure: Measure, parts: Mapping[str, str]) -> list[Cell]:
    cells = [(label, cell) for label, part in parts.items() for cell in table.cells(part)]
    return [cell.relabelled({**cell.labels, measure.axis or "": label}) for label, cell in cells]


def _by(cells: Sequence[Cell], measure: Measure, apply: Callable[[float, float], float]) -> list[Cell]:
    scaled, by = [], measure.by
    for cell in cells:
        number = by.get(cell.labels.get(measure.axis or "", "")) if isinstance(by, dict) else by
        if number is not None:
            scaled.append(cell.mapped(partial(apply, number)))
    return scaled


def _between(
    cells: Sequence[Cell], measure: Measure, compare: Callable[[Labels, Cell, Cell], Cell | None]
) -> list[Cell]:
    assert measure.axis is not None
    assert measure.between is not None
    compared = []
    for first in cells:
        if first.labels.get(measure.axis) != measure.between[0]:
            continue
        rest = {axis: label for axis, label in first.labels.items() if axis != measure.axis}
        other = next((cell for cell in cells if cell.labels == {**rest, measure.axis: measure.between[1]}), None)
        compared.append(None if other is None else compare(rest, first, other))
    return [cell for cell in compared if cell is not None]


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


def _over(cells: Sequence[Cell], axis: str | None) -> list[tuple[dict[str, str], list[Cell]]]:
    """The cells that differ only in their label on an axis, with their other labels."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        if axis in cell.labels:
            rest = tuple((name, label) for name, label in cell.labels.items() if name != axis)
            groups.setdefault(rest, []).append(cell)
    return [(dict(rest), members) for rest, members in groups.items()]
