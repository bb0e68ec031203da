"""A campaign's results as the measures that its file defines (experiments/language/measures.py).

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

from analysis.results import CellLabel, Parameters, Quantity, Values
from analysis.statistics import (
    LEVEL,
    Interval,
    candidate_maxima,
    exact_interval,
    greatest_interval,
    pairs_of,
    sd_interval,
    share_interval,
    t_interval,
)
from experiments.language import measures as forms
from testbed.scenario import Scenario

Labels = Mapping[str, str]


@dataclass(frozen=True)
class TableCell:
    """One combination of labels with a value for each run."""

    labels: Labels
    values: Sequence[float]
    #: What pairs the values with those of other cells; empty if nothing does.
    runs: Sequence[Hashable] = ()
    #: Interval of the mean, where it is not the t interval of the values.
    other_interval: Interval | None = None

    @classmethod
    def exact(cls, labels: Labels, value: float) -> TableCell:
        """A computed or configured value, in which there is no chance."""
        return cls(labels, [value], other_interval=exact_interval(value))

    def mapped(self, function: Callable[[float], float]) -> TableCell:
        """The cell with each value converted by a monotone function."""
        interval = self.other_interval and self.other_interval.mapped(function)
        return TableCell(self.labels, [function(value) for value in self.values], self.runs, interval)

    @property
    def mean(self) -> float:
        """Of the values."""
        return statistics.fmean(self.values)

    @property
    def interval(self) -> Interval | None:
        """95 % confidence interval of the mean; None for fewer than two values."""
        return self.other_interval or t_interval(self.values)

    @property
    def operand(self) -> TableCell:
        """The cell as other measures compute with it. With an interval that is not its values', it is its mean alone,
        which has no interval.
        """
        return self if self.other_interval is None else TableCell(self.labels, [self.mean])

    @property
    def by_run(self) -> dict[Hashable, float]:
        """Run to value; without `runs`, by position."""
        return dict(zip(self.runs or range(len(self.values)), self.values, strict=True))


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
        measures: Mapping[str, forms.AnyForm],
        splits: Sequence[forms.Split],
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
        self._made: dict[str, list[TableCell]] = {}

    def cells(self, name: str) -> list[TableCell]:
        """Every cell of a measure; none for a measure that the campaign does not define."""
        if name not in self._made:
            self._made[name] = []  # a measure that refers to itself has no cells
            self._made[name] = self._make(name)
        return self._made[name]

    def cell(self, name: str, labels: Mapping[str, CellLabel]) -> TableCell:
        """Every cell that has these labels, whatever its others, as one; without values if there is none."""
        texts = {axis: str(label) for axis, label in labels.items()}
        cells = [
            cell for cell in self.cells(name) if all(cell.labels.get(axis) == label for axis, label in texts.items())
        ]
        if len(cells) == 1:
            return cells[0]
        return TableCell(texts, [value for cell in cells for value in cell.operand.values])

    def _make(self, name: str) -> list[TableCell]:
        measure = self._measures.get(name)
        match measure:
            case None:
                return []
            case forms.Metric():
                return self._with_splits(name, self._of_metric(measure.metric, measure.of))
            case forms.Configured():
                return self._configured(measure.configured)
            case forms.Sum():
                return _sums([self._operands(part) for part in measure.sum])
            case forms.Gather():
                return [
                    replace(cell, labels={**cell.labels, measure.axis: label})
                    for label, part in measure.gather.items()
                    for cell in self.cells(part)
                ]
            case forms.Scale():
                return _by(self.cells(measure.scale), measure.axis, measure.by, operator.mul)
            case forms.Plus():
                return _by(self.cells(measure.plus), measure.axis, measure.by, operator.add)
        (part,) = measure.parts
        cells = self._operands(part)
        match measure:
            case forms.Difference():
                return _between(cells, measure.axis, measure.between, _difference)
            case forms.Ratio():
                return _between(cells, measure.axis, measure.between, _ratio)
            case forms.Greatest():
                return [_greatest(rest, members) for rest, members in _over(cells, measure.over)]
            case forms.Mean():
                return [_mean(rest, members, measure.over) for rest, members in _over(cells, measure.over)]
            case forms.Best():
                return [_best(rest, members, measure.over) for rest, members in _over(cells, measure.over)]
            case forms.Share():
                return [_share(cell, measure.below) for cell in cells]
            case forms.Stdev():
                return [_stdev(cell) for cell in cells if len(cell.values) > 1]

    def _operands(self, name: str) -> list[TableCell]:
        """Every cell of a measure as others compute with it."""
        return [cell.operand for cell in self.cells(name)]

    def _of_metric(self, metric: str, subject: str) -> list[TableCell]:
        """A cell for each point that has values of a stored metric."""
        by_point = [(labels, self._values.get((number, metric, subject))) for number, labels in self._points.items()]
        return [TableCell(labels, list(values.values()), list(values)) for labels, values in by_point if values]

    def _configured(self, path: str) -> list[TableCell]:
        """A cell for each point whose scenario has a number at a path."""
        cells = [
            (labels, _look_up(self._scenarios[number].as_json(), path))
            for number, labels in self._points.items()
            if number in self._scenarios
        ]
        return [TableCell.exact(labels, value) for labels, value in cells if value is not None]

    def _with_splits(self, name: str, cells: list[TableCell]) -> list[TableCell]:
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
                        grouped.append(
                            TableCell(labels, [cell.values[at] for at in kept], [cell.runs[at] for at in kept])
                        )
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


def _greatest(rest: Labels, members: Sequence[TableCell]) -> TableCell:
    best = max(members, key=lambda cell: cell.mean)
    # Its runs were selected by what they measured, so without this interval they have none.
    interval = greatest_interval([cell.values for cell in members])
    return TableCell(rest, best.values, best.runs, interval) if interval else TableCell(rest, [best.mean])


def _mean(rest: Labels, members: Sequence[TableCell], axis: str) -> TableCell:
    # Runs of several cells share seeds: the label keeps them apart.
    runs = [(cell.labels[axis], run) for cell in members for run in cell.by_run]
    return TableCell(rest, [value for cell in members for value in cell.values], runs)


def _best(rest: Labels, members: Sequence[TableCell], axis: str) -> TableCell:
    best = max(members, key=lambda cell: cell.mean)
    possible = [members[at] for at in candidate_maxima([cell.by_run for cell in members])]
    labels = [float(cell.labels[axis]) for cell in possible]
    interval = Interval(min(labels), max(labels), LEVEL, "possible")
    return TableCell(rest, [float(best.labels[axis])], other_interval=interval)


def _share(cell: TableCell, below: float) -> TableCell:
    """One or nothing a run."""
    hits = [float(value < below) for value in cell.values]
    return TableCell(cell.labels, hits, cell.runs, share_interval(hits.count(1.0), len(hits)))


def _stdev(cell: TableCell) -> TableCell:
    return TableCell(cell.labels, [statistics.stdev(cell.values)], other_interval=sd_interval(cell.values))


def _sums(parts: Sequence[Sequence[TableCell]]) -> list[TableCell]:
    cells = []
    for cell in parts[0]:
        same = [next((other for other in others if other.labels == cell.labels), None) for others in parts]
        terms = [other.values for other in same if other is not None and len(other.values) == len(cell.values)]
        if len(terms) == len(parts):
            cells.append(TableCell(cell.labels, [sum(of_run) for of_run in zip(*terms, strict=True)], cell.runs))
    return cells


def _by(
    cells: Sequence[TableCell],
    axis: str | None,
    by: float | Mapping[str, float],
    apply: Callable[[float, float], float],
) -> list[TableCell]:
    if not isinstance(by, Mapping):
        return [cell.mapped(partial(apply, by)) for cell in cells]
    numbers = [(cell, by.get(cell.labels.get(axis or "", ""))) for cell in cells]
    return [cell.mapped(partial(apply, number)) for cell, number in numbers if number is not None]


def _between(
    cells: Sequence[TableCell],
    axis: str,
    between: tuple[str, str],
    compare: Callable[[Labels, TableCell, TableCell], TableCell | None],
) -> list[TableCell]:
    compared = []
    for first in cells:
        if first.labels.get(axis) != between[0]:
            continue
        rest = {name: label for name, label in first.labels.items() if name != axis}
        other = next((cell for cell in cells if cell.labels == {**rest, axis: between[1]}), None)
        compared.append(None if other is None else compare(rest, first, other))
    return [cell for cell in compared if cell is not None]


def _difference(labels: Labels, first: TableCell, second: TableCell) -> TableCell:
    a, b = first.by_run, second.by_run
    pairs = pairs_of(a, b)
    if pairs is None:
        return TableCell(labels, [first.mean - second.mean])
    return TableCell(labels, [a[run] - b[run] for run in pairs], pairs)


def _ratio(labels: Labels, first: TableCell, second: TableCell) -> TableCell | None:
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
        return TableCell(labels, [ratio])
    return TableCell(labels, [ratio + (a[run] - ratio * b[run]) / bottom for run in pairs], pairs)


def _over(cells: Sequence[TableCell], axis: str) -> list[tuple[dict[str, str], list[TableCell]]]:
    """The cells that differ only in their label on an axis, with their other labels."""
    groups: dict[tuple[tuple[str, str], ...], list[TableCell]] = {}
    for cell in cells:
        if axis in cell.labels:
            rest = tuple((name, label) for name, label in cell.labels.items() if name != axis)
            groups.setdefault(rest, []).append(cell)
    return [(dict(rest), members) for rest, members in groups.items()]
