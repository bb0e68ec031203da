"""Cells of an explorer, and the marks that show them: boxes, single runs, and a scale of colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.estimates import Estimate
from analysis.figures.means import LOG_FROM
from analysis.figures.model import LEVELS, Kind, Marker, Row, Series
from analysis.statistics import RunKey, outliers, quantile


@dataclass(frozen=True)
class Sample:
    """A metric's value of one valid run."""

    point: int
    key: RunKey
    run_id: str
    parameters: Mapping[str, str]
    #: In the SI unit.
    value: float


@dataclass(frozen=True)
class ViewCell:
    """The runs at one place of a view, and the estimate of their mean."""

    number: int
    #: Field to value.
    place: Mapping[str, str]
    samples: Sequence[Sample]
    #: None where no repetition has all of the pooled points.
    estimate: Estimate | None
    points: int

    @property
    def has_mean(self) -> bool:
        """Whether a mean stands for its runs; none does for two groups."""
        return self.estimate is not None and self.estimate.form != "groups"

    @property
    def runs(self) -> int:
        """Runs behind the estimate."""
        return self.estimate.n * self.points if self.estimate else 0


class Levels:
    """A scale of colours over means: equal steps, or equal ratios where the means span more than LOG_FROM."""

    def __init__(self, means: Sequence[float]) -> None:
        self._low, self._high = (min(means), max(means)) if means else (0.0, 1.0)
        self._log = self._low > 0 and self._high / self._low >= LOG_FROM
        self.colours = LEVELS if self._high > self._low else LEVELS[2:3]

    def of(self, mean: float) -> int:
        """The level of a mean."""
        low, high = self._place(self._low), self._place(self._high)
        share = (self._place(mean) - low) / (high - low) if high > low else 0.0
        return min(int(share * len(self.colours)), len(self.colours) - 1)

    def name(self, level: int, unit: str) -> str:
        """Its range: "1.2 to 1.8 Mbit/s"."""
        low, high = self._place(self._low), self._place(self._high)
        ends = [low + (high - low) * at / len(self.colours) for at in (level, level + 1)]
        first, last = (f"{math.exp(end) if self._log else end:.3g}" for end in ends)
        return (f"{first} to {last} {unit}" if first != last else f"{first} {unit}").strip()

    def _place(self, value: float) -> float:
        return math.log(value) if self._log else value


def boxes_of(
    name: str, colour: str, cells: Sequence[ViewCell], at: Mapping[int, float], size: float, wide: float
) -> list[Series]:
    """Quartiles as a box, the median across it, whiskers to the last values within Tukey's fences, others as dots."""
    boxes: list[Row] = []
    whiskers: list[Row] = []
    medians: list[Row] = []
    dots: list[Row] = []
    for cell in cells:
        values = sorted(sample.value for sample in cell.samples)
        beyond = set(outliers(values))
        inside = [value for value in values if value not in beyond]
        x, first, middle, third = at[cell.number], *(quantile(values, share) / size for share in (0.25, 0.5, 0.75))
        boxes.append({"x": x, "low": first, "y": third, "cell": cell.number})
        whiskers.append({"x": x, "low": inside[0] / size, "y": inside[-1] / size, "cell": cell.number})
        medians.append({"x": x, "y": middle, "cell": cell.number})
        dots += [
            {"x": x, "y": s.value / size, "cell": cell.number, "run": s.run_id}
            for s in cell.samples
            if s.value in beyond
        ]
    return [
        _series("", "segments", whiskers, colour, size=1.2),
        _series(name, "segments", boxes, colour, size=wide),
        _series("", "points", medians, "ink", "dash", wide * 1.3),
        _series("", "points", dots, colour, "circle", 4.0, hollow=True),
    ]


def single_runs(
    name: str, colour: str, cells: Sequence[ViewCell], at: Mapping[int, float], size: float, room: float, single: bool
) -> list[Series]:
    """Runs side by side in a slot's width, and the mean with its interval."""
    dots: list[Row] = []
    means: list[Row] = []
    for cell in cells:
        for number, sample in enumerate(cell.samples if single else ()):
            aside = ((number % 5) - 2) / 5 * room * 0.7
            dots.append(
                {"x": at[cell.number] + aside, "y": sample.value / size, "cell": cell.number, "run": sample.run_id}
            )
        if cell.has_mean and cell.estimate is not None and cell.estimate.form != "values":
            low, high = (None if end is None else end / size for end in cell.estimate.ends)
            means.append(
                {
                    "x": at[cell.number],
                    "y": cell.estimate.mean / size,
                    "low": low,
                    "high": high,
                    "n": cell.runs,
                    "cell": cell.number,
                }
            )
    return [
        _series(name, "points", dots, colour, "circle", 5.0, hollow=True),
        _series("mean", "points", means, "ink", "dash", 12.0, ends=True),
    ]


def _series(
    name: str,
    kind: Kind,
    rows: Sequence[Row],
    colour: str,
    marker: Marker = "",
    size: float = 0.0,
    hollow: bool = False,
    ends: bool = False,
) -> Series:
    schema: dict[str, Any] = {"x": pl.Float64, "y": pl.Float64, "cell": pl.Int64}
    if kind == "segments" or ends:
        schema["low"] = pl.Float64
    schema |= {"high": pl.Float64, "n": pl.Int64} if ends else {"run": pl.String} if hollow else {}
    return Series(name, kind, pl.DataFrame(list(rows), schema), colour, marker, size, hollow=hollow)
