"""Bar charts with error bars as SVG, laid out here so that they need no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import units

LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH = 190, 300, 130
ROW, TOP = 30, 8


@dataclass(frozen=True)
class Bar:
    """One bar: mean and standard deviation in the SI unit."""

    label: str
    mean: float
    sd: float


@dataclass(frozen=True)
class Drawn:
    """A bar in the drawing's coordinates."""

    label: str
    short: str
    text: str
    y: float
    middle: float
    width: float
    error_from: float
    error_to: float


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from zero to the greatest mean plus deviation."""

    title: str
    unit: str
    bars: Sequence[Bar]

    @property
    def width(self) -> int:
        """Of the drawing."""
        return LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH

    @property
    def height(self) -> int:
        """Of the drawing."""
        return TOP * 2 + ROW * len(self.bars)

    @property
    def left(self) -> int:
        """Where the bars begin."""
        return LABEL_WIDTH

    @property
    def drawn(self) -> list[Drawn]:
        """The bars."""
        greatest = max((bar.mean + bar.sd for bar in self.bars), default=0.0) or 1.0
        result = []
        for number, bar in enumerate(self.bars):
            y = TOP + number * ROW
            at = [
                LABEL_WIDTH + BAR_WIDTH * max(value, 0.0) / greatest
                for value in (bar.mean, bar.mean - bar.sd, bar.mean + bar.sd)
            ]
            result.append(
                Drawn(
                    label=bar.label,
                    short=bar.label if len(bar.label) <= 30 else bar.label[:29] + "…",
                    text=units.show(bar.mean, self.unit),
                    y=y + 5,
                    middle=y + ROW / 2,
                    width=at[0] - LABEL_WIDTH,
                    error_from=at[1],
                    error_to=at[2],
                )
            )
        return result
