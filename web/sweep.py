"""The figure that a campaign makes: a metric over one swept field, with a line or bars per combination of the others.

Error bars are the 95 % confidence intervals of the means (Student's t). Published values, where a scorecard has them,
are drawn beside as open diamonds.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.statistics import half_width
from testbed import units
from web.axes import Axis, Scale, x_axis, y_axis
from web.drawing import DASHES, MARKERS, SERIES, Dot, Drawing, Line, Rect, Text, fitted, text_width

WIDTH, HEIGHT = 860.0, 420.0
#: More lines or bars a group than these can hardly be told apart.
MOST_SERIES = 12
MOST_GROUPS = 40


@dataclass(frozen=True)
class Value:
    """One mean with half of its interval, in SI units; the place on the x axis as the file writes it."""

    x: str
    mean: float
    half: float | None
    n: int
    point: int


@dataclass
class Series:
    """One line, or one bar of every group."""

    label: str
    values: list[Value] = field(default_factory=list)
    #: Published values at the same places.
    published: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """What is to be drawn."""

    title: str
    metric: str
    subject: str
    unit: str
    x_field: str
    #: The values of the x axis, in order, and their sizes in the SI unit where all are quantities of one kind.
    places: list[str]
    sizes: list[float] | None
    kind: str
    series: list[Series]
    #: Those beyond them: a picture has no room for them, a table has.
    undrawn: list[Series] = field(default_factory=list)
    #: Place to ink, where bars are told apart by more than their names.
    inks: Mapping[str, str] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """How many there are beyond those that are drawn."""
        return len(self.undrawn)

    @property
    def is_line(self) -> bool:
        """A line over quantities, or bars over names."""
        return self.sizes is not None and len(self.places) >= 3

    @property
    def has_published(self) -> bool:
        """Whether published values stand beside."""
        return any(one.published for one in self.series)


def quantities(values: Sequence[str]) -> tuple[str, list[float]] | None:
    """The unit kind that all values are of, and their sizes; None for names."""
    for kind in ("rate", "time", "bytes", "packets", "segments", "fraction"):
        try:
            return kind, [float(units.parse(value, kind)) for value in values]
        except ValueError:
            continue
    return None


def axes_of(points: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Field to its values, in the order of the sweep."""
    found: dict[str, dict[str, None]] = {}
    for point in points:
        for name, value in point["parameters"]:
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def default_x(axes: Mapping[str, Sequence[str]]) -> str:
    """The field with the most quantities; without any, the one with the most values."""
    if not axes:
        return ""
    numeric = [name for name, values in axes.items() if len(values) > 2 and quantities(values) is not None]
    return max(numeric or axes, key=lambda name: len(axes[name]))


def make(
    points: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    unit: str,
    metric: str,
    subject: str,
    x_field: str,
    fixed: Mapping[str, str],
    published: Sequence[Mapping[str, Any]] = (),
) -> Figure:
    """Puts a figure together.

    Args:
        points: of the store: number, parameters.
        rows: of the store: point, name, subject, n, mean, sd.
        title: of the metric, for people.
        unit: its unit kind.
        metric: which rows.
        subject: whose.
        x_field: the field along the x axis; empty: there is but one point.
        fixed: fields that only one value of is shown.
        published: of web.scorecard.published_for.
    """
    values = {row["point"]: row for row in rows if row["name"] == metric and row["subject"] == subject}
    series: dict[str, Series] = {}
    places: dict[str, None] = {}
    keys: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}
    for point in points:
        parameters = dict(point["parameters"])
        if any(parameters.get(name) != value for name, value in fixed.items()):
            continue
        x = parameters.get(x_field, "")
        others = [
            f"{name.rpartition('.')[2]} {value}" if value[:1].isdigit() else value
            for name, value in parameters.items()
            if name != x_field and name not in fixed
        ]
        label = ", ".join(others)
        places[x] = None
        keys[tuple(sorted(parameters.items()))] = (label, x)
        own = series.setdefault(label, Series(label))
        row = values.get(point["number"])
        if row is not None:
            own.values.append(Value(x, row["mean"], half_width(row["sd"], row["n"]), row["n"], point["number"]))
    for one in published:
        # A cell names a point by its labels: an axis is a field, or the last word of one.
        for parameters_, (label, x) in keys.items() if (one["metric"], one["subject"]) == (metric, subject) else ():
            here = dict(parameters_) | {name.rpartition(".")[2]: value for name, value in parameters_}
            if one["cell"] and all(here.get(axis) == wanted for axis, wanted in one["cell"].items()):
                series[label].published.append((x, float(one["value"])))
    known = quantities(list(places))
    ordered = list(places)
    if known is not None:
        ordered = [place for _, place in sorted(zip(known[1], ordered, strict=True))]
    kept = list(series.values())
    return Figure(
        title=title, metric=metric, subject=subject, unit=unit, x_field=x_field, places=ordered,
        sizes=None if known is None else sorted(known[1]), kind=known[0] if known else "",
        series=kept[:MOST_SERIES], undrawn=kept[MOST_SERIES:],
    )  # fmt: skip


def draw(figure: Figure) -> Drawing:
    """Draws it."""
    tops = [value.mean + (value.half or 0.0) for one in figure.series for value in one.values]
    tops += [value for one in figure.series for _, value in one.published]
    greatest = max(tops, default=0.0) or 1.0
    lows = [value.mean - (value.half or 0.0) for one in figure.series for value in one.values if value.mean < 0]
    scale = Scale.of(greatest, figure.unit)
    legend = [one for one in figure.series if one.label]
    drawing = Drawing(WIDTH, HEIGHT, _description(figure))
    left, right, top, bottom = 76.0, WIDTH - 16, 14.0, HEIGHT - 48
    top = _legend(drawing, legend, figure, left, right, top)
    y = Axis(min(lows, default=0.0), greatest * 1.06, bottom, top)
    y_axis(drawing, y, left, right, f"{figure.title}{f' ({scale.unit})' if scale.unit else ''}", scale.text)
    if figure.is_line:
        _lines(drawing, figure, y, left, right, bottom)
    else:
        _bars(drawing, figure, y, left, right, bottom)
    if not tops:
        drawing.add(Text(((left + right) / 2, (top + bottom) / 2), "no valid run yet", "soft", 13, "middle"))
    return drawing


def as_csv(figure: Figure) -> str:
    """Its values, in SI units."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        [figure.x_field or "point", "series", "metric", "unit", "runs", "mean", "half_interval_95", "published"]
    )
    for one in [*figure.series, *figure.undrawn]:
        published = dict(one.published)
        for value in one.values:
            half = "" if value.half is None else value.half
            writer.writerow(
                [value.x, one.label, figure.metric, figure.unit, value.n, value.mean, half, published.get(value.x, "")]
            )
    return text.getvalue()


def _legend(drawing: Drawing, legend: Sequence[Series], figure: Figure, left: float, right: float, top: float) -> float:
    """Above the plot, in as many lines as it needs; gives where the plot begins."""
    entries = [(number, fitted(one.label, 11, 260)) for number, one in enumerate(legend)]
    if figure.has_published:
        entries.append((-1, "published"))
    if len(entries) < 2 and not figure.has_published:
        return top
    x, y = left, top + 4
    for number, label in entries:
        wide = text_width(label, 11) + 40
        if x + wide > right and x > left:
            x, y = left, y + 18
        if number < 0:
            drawing.add(Dot((x + 10, y), "ink", 3.4, "diamond", filled=False))
        elif figure.is_line:
            drawing.add(
                Line([(x, y), (x + 20, y)], f"s{number % SERIES}", 1.8, DASHES[number // SERIES % len(DASHES)]),
                Dot((x + 10, y), f"s{number % SERIES}", 3.2, MARKERS[number % len(MARKERS)]),
            )
        else:
            drawing.add(Rect(x + 6, y - 5, 10, 10, f"s{number % SERIES}", radius=1.5))
        drawing.add(Text((x + 25, y), label, "ink", 11))
        x += wide
    return y + 18


def _lines(drawing: Drawing, figure: Figure, y: Axis, left: float, right: float, bottom: float) -> None:
    assert figure.sizes is not None
    low, high = figure.sizes[0], figure.sizes[-1]
    log = low > 0 and high / low >= 10
    pad = 0.04 * (high - low)
    x = (
        Axis(low / 1.15, high * 1.15, left, right, True)
        if log
        else Axis(max(low - pad, 0 if low >= 0 else low - pad), high + pad, left, right)
    )
    scale = Scale.of(high if not log else math.sqrt(low * high), figure.kind)
    name = figure.x_field.replace("network.", "")
    label = f"{name}{f' ({scale.unit})' if scale.unit else ''}"
    # The swept values themselves are the ticks, where there is room for them.
    values = figure.sizes if len(figure.sizes) <= 12 else x.ticks()
    x_axis(drawing, x, y.end, bottom, label, values, scale.text)
    size_of = dict(zip(figure.places, figure.sizes, strict=True))
    for number, one in enumerate(figure.series):
        ink, dash = f"s{number % SERIES}", DASHES[number // SERIES % len(DASHES)]
        path = sorted((x.at(size_of[value.x]), y.at(value.mean)) for value in one.values)
        drawing.add(Line(path, ink, 1.8, dash))
        for value in one.values:
            at = x.at(size_of[value.x])
            _whisker(drawing, at, value, y, ink)
            drawing.add(
                Dot((at, y.at(value.mean)), ink, 3.4, MARKERS[number % len(MARKERS)], title=_told(figure, one, value))
            )
        for place, published in one.published:
            drawing.add(
                Dot(
                    (x.at(size_of[place]), y.at(published)),
                    ink,
                    4.2,
                    "diamond",
                    filled=False,
                    title=f"published: {units.show(published, figure.unit)}",
                )
            )


def _bars(drawing: Drawing, figure: Figure, y: Axis, left: float, right: float, bottom: float) -> None:
    places = figure.places[:MOST_GROUPS]
    room = (right - left) / max(len(places), 1)
    across = min(room * 0.78, 46.0 * len(figure.series) + 30)
    bar = across / max(len(figure.series), 1)
    zero = y.at(max(y.low, 0.0))
    for number, one in enumerate(figure.series):
        # With one series each bar has its own name below, and colours would say nothing.
        ink = f"s{number % SERIES}"
        published = dict(one.published)
        for value in one.values:
            if value.x not in places:
                continue
            middle = left + room * (places.index(value.x) + 0.5)
            x = middle - across / 2 + number * bar
            at = y.at(value.mean)
            drawing.add(
                Rect(
                    x + bar * 0.06,
                    min(at, zero),
                    bar * 0.88,
                    abs(zero - at),
                    figure.inks.get(value.x, ink),
                    radius=1.5,
                    title=_told(figure, one, value),
                )
            )
            _whisker(drawing, x + bar / 2, value, y, "ink")
            if value.x in published:
                drawing.add(
                    Dot(
                        (x + bar / 2, y.at(published[value.x])),
                        "ink",
                        4.2,
                        "diamond",
                        filled=False,
                        title=f"published: {units.show(published[value.x], figure.unit)}",
                    )
                )
    drawing.add(Line([(left, zero), (right, zero)], "soft", 1))
    for number, place in enumerate(places):
        middle = left + room * (number + 0.5)
        drawing.add(Text((middle, bottom + 14), fitted(place or "all runs", 11, room - 4), "soft", 11, "middle"))
    drawing.add(Text(((left + right) / 2, bottom + 34), figure.x_field.replace("network.", ""), "soft", 11, "middle"))


def _whisker(drawing: Drawing, x: float, value: Value, y: Axis, ink: str) -> None:
    if value.half is None:
        return
    low, high = y.at(max(value.mean - value.half, y.low)), y.at(value.mean + value.half)
    drawing.add(
        Line([(x, low), (x, high)], ink, 1.2),
        Line([(x - 4, low), (x + 4, low)], ink, 1.2),
        Line([(x - 4, high), (x + 4, high)], ink, 1.2),
    )


def _told(figure: Figure, one: Series, value: Value) -> str:
    interval = "" if value.half is None else f" ± {units.show(value.half, figure.unit)}"
    name = ", ".join(part for part in (value.x, one.label) if part)
    runs = "1 run" if value.n == 1 else f"{value.n} runs"
    return f"{name}{': ' if name else ''}{units.show(value.mean, figure.unit)}{interval}, {runs}"


def _description(figure: Figure) -> str:
    told = [f"{_told(figure, one, value)}" for one in figure.series for value in one.values]
    more = f"; and {len(told) - 12} more" if len(told) > 12 else ""
    return f"{figure.title} by {figure.x_field or 'point'}: {'; '.join(told[:12])}{more}"
