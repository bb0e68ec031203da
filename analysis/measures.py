"""From a campaign's stored metrics to the measures of a paper: the names and cells in which an artefact is published.

A campaign file says under `measures` what each of the paper's measures is:

    throughput: {metric: packet_throughput, of: forward}                    # of a flow, direction, link, or run
    advantage: {difference: throughput, axis: policy, between: [aq, droptail]}  # the first less the second
    gain: {ratio: throughput, axis: policy, between: [aq, droptail]}            # the first over the second
    most: {greatest: advantage, over: rate}                                     # over an axis
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

A cell is one label of every axis; its values are those of its runs. `split` divides the runs of a cell in two, as a
paper does that tells the runs of two kinds apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Cell:
    """One combination of labels with a value for each run."""

    labels: Labels
    values: Sequence[float]


class Measure(BaseModel):
    """One of the forms above."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    metric: str | None = None
    of: str = ""
    configured: str | None = None
    difference: str | None = None
    ratio: str | None = None
    greatest: str | None = None
    mean: str | None = None
    best: str | None = None
    share: str | None = None
    sum: list[str] | None = Field(None, min_length=1)
    scale: str | None = None
    plus: str | None = None
    stdev: str | None = None
    gather: dict[str, str] | None = Field(None, min_length=1)
    axis: str | None = None
    between: tuple[str, str] | None = None
    over: str | None = None
    below: float | None = None
    by: float | dict[str, float] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Measure:
        forms = (
            "metric",
            "configured",
            "difference",
            "ratio",
            "greatest",
            "mean",
            "best",
            "share",
            "sum",
            "scale",
            "plus",
            "stdev",
            "gather",
        )
        given = [form for form in forms if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"a measure is exactly one of {', '.join(forms)}; this has {len(given)} of them")
        needs = {
            "difference": ("axis", "between"), "ratio": ("axis", "between"), "greatest": ("over",), "mean": ("over",),
            "best": ("over",), "share": ("below",), "scale": ("by",), "plus": ("by",),
            "gather": ("axis",),
        }.get(given[0], ())  # fmt: skip
        for name in ("axis", "between", "over", "below", "by"):
            if name == "axis" and isinstance(self.by, dict):
                needs = (*needs, "axis")
            there = getattr(self, name) is not None
            if there != (name in needs):
                raise ValueError(f"a measure with '{given[0]}' {'needs' if name in needs else 'has no'} '{name}'")
        return self


class Split(BaseModel):
    """Runs of the cells with `label` on `axis` whose `by` lies below `below` get the first label of `into`, others
    the second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    axis: str
    label: str
    by: str
    below: float
    into: tuple[str, str]


class Table:
    """A campaign's results in a paper's terms.

    Args:
        measures: what each measure is.
        splits: of runs.
        points: number and labels of each point.
        rows: of Store.table.
        scenarios: of one run of each point.
    """

    def __init__(
        self,
        measures: Mapping[str, Measure],
        splits: Sequence[Split],
        points: Mapping[int, Labels],
        rows: Iterable[Mapping[str, Any]],
        scenarios: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self._scenarios = scenarios or {}
        self._measures = measures
        self._splits = splits
        self._points = points
        self._rows = {(row["point"], row["name"], row["subject"]): row["values"] for row in rows}
        self._known: dict[str, list[Cell]] = {}

    def cells(self, name: str) -> list[Cell]:
        """Every cell of a measure; none for a measure that the campaign does not declare."""
        if name not in self._known:
            self._known[name] = []  # a measure of itself has no cells
            self._known[name] = self._make(name)
        return self._known[name]

    def values(self, name: str, wanted: Mapping[str, object]) -> list[float]:
        """The values of every cell that has the wanted labels, whatever its others."""
        named = {axis: str(label) for axis, label in wanted.items()}
        return [
            value
            for cell in self.cells(name)
            if all(cell.labels.get(axis) == label for axis, label in named.items())
            for value in cell.values
        ]

    def _make(self, name: str) -> list[Cell]:
        measure = self._measures.get(name)
        if measure is None:
            return []
        if measure.metric is not None:
            cells = [
                Cell(labels, values)
                for number, labels in self._points.items()
                if (values := self._rows.get((number, measure.metric, measure.of)))
            ]
            return self._with_splits(name, cells)
        if measure.configured is not None:
            told = [
                (labels, _look_up(self._scenarios[number], measure.configured))
                for number, labels in self._points.items()
                if number in self._scenarios
            ]
            return [Cell(labels, [value]) for labels, value in told if value is not None]
        if measure.sum is not None:
            return _sum([self.cells(one) for one in measure.sum])
        if measure.gather is not None:
            axis = measure.axis or ""
            parts = [(label, cell) for label, one in measure.gather.items() for cell in self.cells(one)]
            return [Cell({**cell.labels, axis: label}, cell.values) for label, cell in parts]
        if measure.share is not None:
            assert measure.below is not None
            below = measure.below
            found = self.cells(measure.share)
            return [
                Cell(cell.labels, [sum(value < below for value in cell.values) / len(cell.values)]) for cell in found
            ]
        if measure.by is not None:
            return _by(self.cells(measure.scale or measure.plus or ""), measure)
        if measure.stdev is not None:
            found = [cell for cell in self.cells(measure.stdev) if len(cell.values) > 1]
            return [Cell(cell.labels, [statistics.stdev(cell.values)]) for cell in found]
        if measure.axis is not None and measure.between is not None:
            return _between(self.cells(measure.difference or measure.ratio or ""), measure)
        return _over(self.cells(measure.greatest or measure.mean or measure.best or ""), measure)

    def _with_splits(self, name: str, cells: list[Cell]) -> list[Cell]:
        found = list(cells)
        for split in self._splits:
            told = cells if name == split.by else self.cells(split.by)
            for cell in cells:
                by = next((one.values for one in told if one.labels == cell.labels), ())
                if cell.labels.get(split.axis) != split.label or len(by) != len(cell.values):
                    continue
                for into, low in zip(split.into, (True, False), strict=True):
                    kept = [value for value, of in zip(cell.values, by, strict=True) if (of < split.below) == low]
                    if kept:
                        found.append(Cell({**cell.labels, split.axis: into}, kept))
        return found


def _look_up(scenario: Any, path: str) -> float | None:
    """A number deep in a scenario; the entries of lists go by name. None where there is none."""
    for part in path.split("."):
        if isinstance(scenario, list):
            scenario = next((one for one in scenario if one.get("name") == part), None)
        elif isinstance(scenario, Mapping):
            scenario = scenario.get(part)
        else:
            return None
    return float(scenario) if isinstance(scenario, int | float) else None


def _sum(parts: Sequence[Sequence[Cell]]) -> list[Cell]:
    found = []
    for cell in parts[0]:
        same = [next((one for one in others if one.labels == cell.labels), None) for others in parts]
        if all(one is not None and len(one.values) == len(cell.values) for one in same):
            found.append(Cell(cell.labels, [sum(of) for of in zip(*(one.values for one in same if one), strict=True)]))
    return found


def _by(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    found = []
    for cell in cells:
        by = measure.by
        if isinstance(by, dict):
            by = by.get(cell.labels.get(measure.axis or "", ""))
        if by is not None:
            number = by
            found.append(
                Cell(cell.labels, [value * number if measure.scale else value + number for value in cell.values])
            )
    return found


def _between(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    assert measure.axis is not None
    assert measure.between is not None
    found = []
    for first in cells:
        if first.labels.get(measure.axis) != measure.between[0]:
            continue
        rest = {axis: label for axis, label in first.labels.items() if axis != measure.axis}
        other = next((one for one in cells if one.labels == {**rest, measure.axis: measure.between[1]}), None)
        if other is None:
            continue
        if measure.ratio is not None:
            # Of means: a ratio of single runs is dominated by the least denominator.
            below = statistics.fmean(other.values)
            values = [value / below for value in first.values] if below else []
        elif len(first.values) == len(other.values):
            values = [one - two for one, two in zip(first.values, other.values, strict=True)]
        else:
            values = [statistics.fmean(first.values) - statistics.fmean(other.values)]
        if values:
            found.append(Cell(rest, values))
    return found


def _over(cells: Sequence[Cell], measure: Measure) -> list[Cell]:
    assert measure.over is not None
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        if measure.over in cell.labels:
            rest = tuple((axis, label) for axis, label in cell.labels.items() if axis != measure.over)
            groups.setdefault(rest, []).append(cell)
    found = []
    for rest, members in groups.items():
        best = max(members, key=lambda cell: statistics.fmean(cell.values))
        if measure.greatest is not None:
            values = list(best.values)
        elif measure.best is not None:
            values = [float(best.labels[measure.over])]
        else:
            values = [value for cell in members for value in cell.values]
        found.append(Cell(dict(rest), values))
    return found
