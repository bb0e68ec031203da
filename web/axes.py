"""Axes of drawings: round ticks, linear or logarithmic, and the frame around a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed import units
from web.drawing import Drawing, Line, Text, text_width


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round values from `low` to `high`: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times those where few decades are shown."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [one for one in found if low * 0.999 <= one <= high * 1.001]


@dataclass(frozen=True)
class Axis:
    """From values to a coordinate."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Its round values."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


@dataclass(frozen=True)
class Scale:
    """A unit in which an axis is labelled."""

    size: float
    unit: str

    @classmethod
    def of(cls, greatest: float, kind: str) -> Scale:
        """The unit that suits the greatest value of a unit kind of the registry."""
        if kind == "fraction":
            return cls(0.01, "%")
        size, unit = units.scale_of(greatest, kind)
        return cls(size, unit)

    def text(self, value: float) -> str:
        """A tick's label."""
        scaled = value / self.size
        for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            # Only numbers without a unit become so large.
            if abs(scaled) >= max(size, 1e5):
                return f"{scaled / size:.4g}{prefix}"
        return f"{scaled:.4g}"


def y_axis(drawing: Drawing, axis: Axis, left: float, right: float, label: str, text: Callable[[float], str]) -> None:
    """Draws a vertical axis with its grid."""
    for value in axis.ticks():
        y = axis.at(value)
        drawing.add(Line([(left, y), (right, y)], "line", 0.7), Text((left - 7, y), text(value), "soft", 11, "end"))
    widest = max((text_width(text(value), 11) for value in axis.ticks()), default=0.0)
    drawing.add(
        Text((max(left - widest - 22, 9), (axis.start + axis.end) / 2), label, "soft", 11, "middle", upright=True)
    )


def x_axis(
    drawing: Drawing,
    axis: Axis,
    top: float,
    bottom: float,
    label: str,
    values: Sequence[float],
    text: Callable[[float], str],
) -> None:
    """Draws a horizontal axis; labels that would touch their left neighbour are left out."""
    drawing.add(Line([(axis.start, bottom), (axis.end, bottom)], "soft", 1))
    used = -math.inf
    for value in values:
        x, told = axis.at(value), text(value)
        wide = text_width(told, 11)
        drawing.add(Line([(x, bottom), (x, bottom + 4)], "soft", 1))
        if x - wide / 2 > used + 6:
            drawing.add(Text((x, bottom + 14), told, "soft", 11, "middle"))
            used = x + wide / 2
    drawing.add(Text(((axis.start + axis.end) / 2, bottom + 32), label, "soft", 11, "middle"))
