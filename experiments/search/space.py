"""The axes of a search, points on them, and who proposes points: a Sobol sequence, then Optuna."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed import units

#: Digits of a number on an axis: a place that people can write down.
DIGITS = 3
_NUMBER = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(\S*)\s*")


@dataclass(frozen=True)
class Numbers:
    """A range of a field."""

    field: str
    low: float
    high: float
    is_log: bool
    #: Of both ends in the file; "" without a unit.
    unit: str
    is_whole: bool

    def value(self, share: float) -> str | int | float:
        """The field's value at a share of the range, 0 to 1, as a campaign file writes it."""
        if self.is_log:
            number = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            number = self.low + share * (self.high - self.low)
        number = min(max(float(f"{number:.{DIGITS}g}"), self.low), self.high)
        plain = round(number) if self.is_whole else number
        return f"{plain:.15g} {self.unit}" if self.unit else plain

    def share(self, value: object) -> float:
        """The place of a value on the axis, 0 to 1."""
        number = _parts(value)[0]
        if self.is_log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Choices:
    """Values of a field."""

    field: str
    values: tuple[Any, ...]

    def value(self, share: float) -> Any:
        """The value at a share of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def share(self, value: object) -> float:
        """The middle of a value's part."""
        return (self.values.index(value) + 0.5) / len(self.values)


Axis = Numbers | Choices
#: A value for each axis, by field.
Point = Mapping[str, Any]


def read_axis(field: str, value: Any) -> Axis:
    """An axis of a search file: a list of values, or {from, to, scale}.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, list) and len(value) > 1:
        return Choices(field, tuple(value))
    if not isinstance(value, dict) or not {"from", "to"} <= value.keys() <= {"from", "to", "scale"}:
        raise ValueError("an axis is a list of two or more values, or {from: 50 kbit/s, to: 5 Mbit/s, scale: log}")
    scale = value.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise ValueError(f"unknown scale '{scale}'; allowed: linear, log")
    (low, unit), (high, other) = _parts(value["from"]), _parts(value["to"])
    if unit != other:
        (low, high), unit = _common(value["from"], value["to"])
    if not low < high or (scale == "log" and low <= 0):
        raise ValueError(f"'from' must be less than 'to'{', and above 0 on a log scale' if scale == 'log' else ''}")
    kind = next((kind for kind, known in units.UNITS.items() if unit and unit in known), "")
    ends = isinstance(value["from"], int) and isinstance(value["to"], int)
    return Numbers(field, low, high, scale == "log", unit, kind in units.WHOLE or ends)


def _parts(value: object) -> tuple[float, str]:
    match = _NUMBER.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(f"'{value}' is not a number with a unit, such as 50 kbit/s")
    return float(match[1]), match[2]


def _common(low: object, high: object) -> tuple[tuple[float, float], str]:
    """Both ends in the SI unit of their kind."""
    for kind, known in units.UNITS.items():
        if all(_parts(end)[1] in known for end in (low, high)):
            si_unit = next(spelling for spelling, size in known.items() if size == 1)
            return (float(units.parse(low, kind)), float(units.parse(high, kind))), si_unit
    for kind, known in units.UNITS.items():
        if any(_parts(end)[1] in known and _parts(end)[1] for end in (low, high)):
            # Rejects the end that has another unit.
            units.parse(low, kind), units.parse(high, kind)
    raise ValueError(f"'{low}' and '{high}' have no common kind of unit")


def design(axes: Sequence[Axis], count: int, seed: int) -> list[Point]:
    """The first points of a scrambled Sobol sequence (Owen 1998), which fill the space evenly."""
    from scipy.stats import qmc

    # Powers of two keep the sequence's balance; what is too many is left out.
    drawn = qmc.Sobol(len(axes), seed=seed).random_base2(max(count - 1, 1).bit_length())
    return [{axis.field: axis.value(share) for axis, share in zip(axes, row, strict=True)} for row in drawn[:count]]


class Adaptive:
    """Proposes points where a score is high: Optuna's tree-structured Parzen estimator (Bergstra et al. 2011).

    Raises:
        ImportError: Optuna is not installed.
    """

    def __init__(self, axes: Sequence[Axis], seed: int) -> None:
        # Slow to import, and optional (pyproject.toml: search).
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._axes = axes
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=1)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            axis.field: optuna.distributions.CategoricalDistribution(list(range(len(axis.values))))
            if isinstance(axis, Choices)
            else optuna.distributions.FloatDistribution(0.0, 1.0)
            for axis in axes
        }

    def tell(self, point: Point, score: float) -> None:
        """Adds what is known of a point."""
        trial = self._optuna.trial.create_trial(
            params=self._parameters(point), distributions=self._distributions, value=score
        )
        self._study.add_trial(trial)

    def ask(self, count: int) -> list[Point]:
        """Points to try next."""
        trials = [self._study.ask(self._distributions) for _ in range(count)]
        points: list[Point] = [
            {
                axis.field: axis.values[trial.params[axis.field]]
                if isinstance(axis, Choices)
                else axis.value(trial.params[axis.field])
                for axis in self._axes
            }
            for trial in trials
        ]
        for trial in trials:
            # Their scores come by `tell`, at the places that were really tried.
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return points

    def _parameters(self, point: Point) -> dict[str, Any]:
        return {
            axis.field: axis.values.index(point[axis.field])
            if isinstance(axis, Choices)
            else min(max(axis.share(point[axis.field]), 0.0), 1.0)
            for axis in self._axes
        }
