"""Two quantities of a campaign against each other: a dot for each run, means with both intervals, the Pareto edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.figures.model import COLOURS, MARKERS, Axis, Figure, Row, Series, axis_scale, frame_of
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.results import Quantity, ValueRow

#: Runs that are drawn one by one; of more, the means alone.
MOST_DOTS = 2000
#: Means that are drawn with intervals; of more, they would cover the runs.
MOST_INTERVALS = 40


@dataclass(frozen=True)
class _Mean:
    """A point's means: of x and y, each with the ends of its interval, in the units of the axes."""

    x: float
    y: float
    x_ends: tuple[float | None, float | None]
    y_ends: tuple[float | None, float | None]
    n: int


def tradeoff(
    rows: Sequence[ValueRow], x: Quantity, y: Quantity, titles: tuple[str, str], colour_of: Mapping[int, str]
) -> Figure | None:
    """Two quantities against each other; None if no run has both.

    Args:
        rows: of both quantities.
        x: along the x axis.
        y: along the y axis.
        titles: of the axes.
        colour_of: point to the value that its dots are coloured by.
    """
    runs: dict[tuple[int, str], dict[Quantity, float]] = {}
    for row in rows:
        runs.setdefault((row.point, row.run_id), {})[Quantity(row.name, row.subject, row.unit)] = row.value
    both = {key: (metrics[x], metrics[y]) for key, metrics in runs.items() if x in metrics and y in metrics}
    if not both:
        return None
    (x_size, x_unit), (y_size, y_unit) = (
        axis_scale((pair[at] for pair in both.values()), quantity.unit) for at, quantity in enumerate((x, y))
    )
    series: list[Series] = []
    means: dict[int, _Mean] = {}
    of_colour: dict[str, dict[tuple[int, str], tuple[float, float]]] = {value: {} for value in colour_of.values()}
    for key, pair in both.items():
        of_colour[colour_of[key[0]]][key] = pair
    for number, (value, mine) in enumerate(of_colour.items()):
        if not mine:
            continue
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        if len(both) <= MOST_DOTS:
            dots = [{"x": a / x_size, "y": b / y_size, "run": run_id} for (_, run_id), (a, b) in mine.items()]
            frame = pl.DataFrame(dots, schema={"x": pl.Float64, "y": pl.Float64, "run": pl.String}).sort("x")
            series.append(Series(value, "points", frame, colour, marker, 5, hollow=True))
        of_point: dict[int, list[tuple[float, float]]] = {}
        for (point, _), pair in mine.items():
            of_point.setdefault(point, []).append(pair)
        made = {point: _mean(pairs, x, y, x_size, y_size) for point, pairs in of_point.items()}
        of_series = {point: mean for point, mean in made.items() if mean is not None}
        means |= of_series
        name = value if len(both) > MOST_DOTS else ""
        series += _drawn(list(of_series.values()), colour, marker, name, len(means) <= MOST_INTERVALS)
    edge = pareto(
        list(means.values()),
        *(METRICS[quantity.metric].better if quantity.metric in METRICS else None for quantity in (x, y)),
    )
    if len(edge) > 1:
        line = frame_of([{"x": mean.x, "y": mean.y} for mean in edge])
        series.insert(0, Series("Pareto edge", "line", line, "soft", dash=(6.0, 3.0), size=1.0))
    return Figure(Axis(titles[0], x_unit), Axis(titles[1], y_unit), tuple(series), empty="no run has both")


def _mean(pairs: Sequence[tuple[float, float]], x: Quantity, y: Quantity, x_size: float, y_size: float) -> _Mean | None:
    """The means of a point's runs; None where they form two groups, because no mean stands for them."""
    of_x, of_y = (
        estimate(quantity.metric, quantity.unit, [pair[at] for pair in pairs]) for at, quantity in enumerate((x, y))
    )
    if "groups" in (of_x.form, of_y.form):
        return None
    (x0, x1), (y0, y1) = (
        tuple(None if end is None else end / size for end in mean.ends)
        for mean, size in ((of_x, x_size), (of_y, y_size))
    )
    return _Mean(of_x.mean / x_size, of_y.mean / y_size, (x0, x1), (y0, y1), len(pairs))


def _drawn(means: Sequence[_Mean], colour: str, marker: str, name: str, intervals: bool) -> list[Series]:
    ordered = sorted(means, key=lambda item: item.x)
    rows: list[Row] = [
        {"x": mean.x, "y": mean.y, "n": mean.n, "low": mean.y_ends[0], "high": mean.y_ends[1]} for mean in ordered
    ]
    across = []
    for mean in ordered:
        ends: list[Row] = [{"x": end, "y": mean.y} for end in mean.x_ends if end is not None]
        if intervals and len(ends) == 2:
            across.append(Series("", "line", frame_of(ends), colour, size=1.2))
    frame = frame_of(rows, *(("low", "high", "n") if intervals else ("n",)))
    return [*across, Series(name, "points", frame, colour, marker, 10)]  # type: ignore[arg-type]


def pareto(means: Sequence[_Mean], better_x: str | None, better_y: str | None) -> list[_Mean]:
    """Means that no other beats in both quantities, by x; empty if a quantity has no better direction."""
    if better_x is None or better_y is None:
        return []
    signs = [1 if better == "more" else -1 for better in (better_x, better_y)]
    front: list[_Mean] = []
    top = float("-inf")
    for mean in sorted(means, key=lambda item: (-signs[0] * item.x, -signs[1] * item.y)):
        if signs[1] * mean.y > top:
            front.append(mean)
            top = signs[1] * mean.y
    return sorted(front, key=lambda item: item.x)
