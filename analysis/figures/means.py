"""Means of a metric with error bars, over a swept field, and the figure that shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from analysis.errors import unknown
from analysis.estimates import Estimate
from analysis.figures.model import COLOURS, Axis, Figure, Row, Series, axis_scale, csv_text, frame_of, style_of
from analysis.statistics import sd
from testbed import units

#: What an error bar shows.
INTERVALS = {"confidence": "95 % confidence", "sd": "standard deviation"}
#: More series or groups of bars cannot be told apart.
MOST_SERIES, MOST_GROUPS = 12, 40
#: Swept values up to this number are ticks themselves.
MOST_TICKS = 12
#: A quantity axis whose values span more than this factor is logarithmic.
LOG_FROM = 10
#: Ends of fields' names to the kinds of their numbers.
SUFFIXES = {"_bps": "rate", "_bytes": "bytes", "_s": "time"}
#: Kinds whose values may be bare numbers in a campaign file.
_BARE_BESIDE = units.BARE_ALLOWED | {"fraction"}
_QUANTITY = re.compile(r"\s*([-+0-9.eE]+)\s*(\S*)")


@dataclass(frozen=True)
class Mean:
    """A metric at a point, in the SI unit."""

    #: The value of the x field, as the campaign file writes it.
    place: str
    estimate: Estimate
    #: Points that each value of the estimate is pooled over.
    points: int = 1
    #: The number of its cell in an explorer.
    cell: int | None = None

    @property
    def runs(self) -> int:
        """Runs behind the mean."""
        return self.estimate.n * self.points

    @property
    def mean(self) -> float:
        """The mean of the runs."""
        return self.estimate.mean


def ends_of(estimate: Estimate, interval: str) -> tuple[float, float] | tuple[None, None]:
    """Both ends of an error bar.

    Args:
        estimate: the mean.
        interval: a key of INTERVALS.

    Raises:
        AnalysisError: it is none.
    """
    if interval not in INTERVALS:
        raise unknown("kind of error bar", interval, INTERVALS)
    if interval == "confidence":
        return estimate.ends
    deviation = sd(estimate.values)
    return (None, None) if deviation is None else (estimate.mean - deviation, estimate.mean + deviation)


def dots_of(estimate: Estimate) -> tuple[float, ...]:
    """Values drawn one by one, because no interval describes them."""
    lone = estimate.form == "values" and estimate.n > 1
    return estimate.values if lone or estimate.form == "groups" else ()


def dots(places: Iterable[tuple[float, Estimate]], size: float, colour: str) -> list[Series]:
    """The series of such values, in units of `size`; none without any."""
    rows: list[Row] = [{"x": x, "y": value / size} for x, estimate in places for value in dots_of(estimate)]
    return [Series("single runs", "points", frame_of(rows), colour, "circle", 4, hollow=True)] if rows else []


@dataclass
class Group:
    """One line of a figure, or one bar at every place."""

    label: str
    means: list[Mean] = field(default_factory=list)
    #: Published values: place and value.
    published: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Means:
    """Means of one metric, by the value of a field and by group."""

    title: str
    metric: str
    subject: str
    unit: str
    x_field: str
    #: Values of the x field, in order, and their sizes in the SI unit where all are quantities of one kind.
    places: list[str]
    sizes: list[float] | None
    kind: str
    groups: list[Group]
    #: Groups for which the figure has no room; tables have them.
    undrawn: list[Group] = field(default_factory=list)
    #: Place to colour, where every bar has its own.
    colours: Mapping[str, str] = field(default_factory=dict)
    #: What error bars show: a key of INTERVALS.
    interval: str = "confidence"
    #: Size and name of the y axis' unit, where several figures share it.
    scale: tuple[float, str] | None = None

    @property
    def is_line(self) -> bool:
        """Whether it is drawn as lines over quantities; bars over names otherwise."""
        return self.sizes is not None and len(self.places) >= 3

    @property
    def left_out(self) -> int:
        """Groups that are not drawn."""
        return len(self.undrawn)

    @property
    def has_published(self) -> bool:
        """Whether published values are drawn beside."""
        return any(group.published for group in self.groups)

    def as_csv(self) -> str:
        """Its values in SI units, undrawn groups included."""
        head = [
            self.x_field or "point",
            "series",
            "metric",
            "unit",
            "runs",
            "mean",
            "low_95",
            "high_95",
            "values",
            "published",
        ]
        return csv_text(head, (row for group in (*self.groups, *self.undrawn) for row in self._csv_rows(group)))

    def _csv_rows(self, group: Group) -> Iterable[Sequence[object]]:
        published = dict(group.published)
        for mean in group.means:
            yield [
                mean.place,
                group.label,
                self.metric,
                self.unit,
                mean.estimate.n,
                mean.mean,
                *mean.estimate.ends,
                " ".join(map(str, mean.estimate.values)),
                published.get(mean.place, ""),
            ]

    def figure(self) -> Figure:
        """Lines if the x field has quantities, else bars."""
        return self.over_quantities() if self.is_line else self.over_names()

    def over_quantities(self) -> Figure:
        """A line for each group over the sizes of the x field."""
        assert self.sizes is not None
        low, high = self.sizes[0], self.sizes[-1]
        log = low > 0 and high / low >= LOG_FROM
        x_size, x_unit = axis_scale([math.sqrt(low * high) if log else high], _kind_of(self.x_field, self.kind))
        x_unit = x_unit or (self.kind if self.kind in units.BARE_ALLOWED else "")
        size, y = _axis_of(self)
        places = {place: value / x_size for place, value in zip(self.places, self.sizes, strict=True)}
        ticks = tuple((value, f"{value:.10g}") for value in places.values()) if len(places) <= MOST_TICKS else ()
        series: list[Series] = []
        for number, group in enumerate(self.groups):
            rows = sorted((self._row(mean, places[mean.place], size) for mean in group.means), key=lambda row: row["x"])
            look = style_of(number)
            points = _frame(rows)
            series += [Series(group.label, "line", points, look.colour, look.marker, dash=look.dash)]
            series += dots(((places[mean.place], mean.estimate) for mean in group.means), size, look.colour)
            series += _published(group, places, size, look.colour)
        x = Axis(short(self.x_field), x_unit, log=log, ticks=ticks)
        return Figure(x, y, tuple(series), notes=self.notes(), empty="no valid run yet")

    def over_names(self) -> Figure:
        """A bar for each group at every place."""
        size, y = _axis_of(self)
        places = {place: float(number) for number, place in enumerate(self.places[:MOST_GROUPS])}
        width = 0.8 / max(len(self.groups), 1)
        series: list[Series] = []
        for number, group in enumerate(self.groups):
            shift = (number - (len(self.groups) - 1) / 2) * width
            by_colour: dict[str, list[Row]] = {}
            for mean in group.means:
                if mean.place in places:
                    colour = self.colours.get(mean.place, COLOURS[number % len(COLOURS)])
                    by_colour.setdefault(colour, []).append(self._row(mean, places[mean.place] + shift, size))
            series += [
                # After the last colour they begin again, hatched.
                Series(
                    group.label,
                    "bars",
                    _frame(rows),
                    colour,
                    width=width * 0.92,
                    hollow=number >= len(COLOURS),
                )
                for colour, rows in by_colour.items()
            ]
            points = ((places[mean.place] + shift, mean.estimate) for mean in group.means if mean.place in places)
            series += [*dots(points, size, "ink"), *_published(group, places, size, "ink", shift)]
        ticks = tuple((at, place or "all runs") for place, at in places.items())
        x = Axis(short(self.x_field), ticks=ticks)
        return Figure(x, y, tuple(series), notes=self.notes(), empty="no valid run yet")

    def _row(self, mean: Mean, x: float, size: float) -> Row:
        """A point of a series. Two groups have no mean that stands for them: their values are drawn."""
        low, high = (None if end is None else end / size for end in ends_of(mean.estimate, self.interval))
        y = None if mean.estimate.form == "groups" else mean.mean / size
        return {"x": x, "y": y, "n": mean.runs, "low": low, "high": high, "cell": mean.cell}

    def notes(self) -> tuple[str, ...]:
        """What is drawn: means of how many runs, and what their error bars are."""
        return means_note([mean.estimate for group in self.groups for mean in group.means], self.interval)


def means_note(estimates: Sequence[Estimate], interval: str) -> tuple[str, ...]:
    """ "means of 3 to 5 runs; bars: 95 % confidence".

    Args:
        estimates: the means that are drawn.
        interval: a key of INTERVALS, or "" without error bars.
    """
    counts = [estimate.n for estimate in estimates]
    if not counts:
        return ()
    low, high = min(counts), max(counts)
    if high == 1:
        return ("one run each",)
    notes = [f"means of {low} runs" if low == high else f"means of {low} to {high} runs"]
    if interval and any(None not in ends_of(estimate, interval) for estimate in estimates):
        notes.append(f"bars: {INTERVALS[interval]}")
    if any(dots_of(estimate) for estimate in estimates):
        notes.append("open circles: single runs, where they are two or form two groups")
    return ("; ".join(notes),)


def number_of(text: str) -> tuple[float, str] | None:
    """A swept value as SI number and unit kind ("28.8 kbit/s" is 28800, "rate"); None if it is not a quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    for kind in ("number",) if not match[2] else ("rate", "time", "bytes", "packets", "segments", "fraction"):
        try:
            return float(units.parse(text, kind)), kind
        except ValueError:
            continue
    return None


def quantities(values: Sequence[str]) -> tuple[str, list[float]] | None:
    """The unit kind of values that are all quantities of one kind, and their sizes; None otherwise.

    A bare number beside quantities is one of them if campaign files read it so: "2 packets", "4".
    """
    numbers = [number for number in map(number_of, values) if number is not None]
    kinds = {kind for _, kind in numbers}
    if kinds & _BARE_BESIDE and len(kinds) == 2:
        kinds -= {"number"}
    if len(numbers) < len(values) or len(kinds) > 1:
        return None
    return next(iter(kinds), ""), [size for size, _ in numbers]


def short(name: str) -> str:
    """A field for people: "reverse.rate"."""
    return name.replace("network.", "")


def ordered(values: Sequence[str]) -> list[str]:
    """Quantities by size; names as the sweep has them."""
    known = quantities(values)
    return list(values) if known is None else [text for _, text in sorted(zip(known[1], values, strict=True))]


def place_label(place: Mapping[str, str]) -> str:
    """Values of fields: "droptail, rate 9.6 kbit/s"."""
    return ", ".join(
        f"{name.rpartition('.')[2]} {value}" if value[:1].isdigit() else value for name, value in place.items()
    )


def _kind_of(field: str, kind: str) -> str:
    """The unit kind of a field; bare numbers have that of the SI unit in its name, as in `c_d_bps`."""
    return next((of for end, of in SUFFIXES.items() if field.endswith(end)), kind) if kind == "number" else kind


def _axis_of(means: Means) -> tuple[float, Axis]:
    values = [value for group in means.groups for _, value in group.published]
    for group in means.groups:
        for mean in group.means:
            _, high = ends_of(mean.estimate, means.interval)
            values += [*mean.estimate.values, *([] if high is None else [high])]
    size, unit = means.scale or axis_scale(values, means.unit)
    return size, Axis(means.title, unit)


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    cells = ["cell"] if any(row["cell"] is not None for row in rows) else []
    return frame_of(rows, "low", "high", "n", *cells)


def _published(group: Group, places: Mapping[str, float], size: float, colour: str, shift: float = 0.0) -> list[Series]:
    rows: list[Row] = [
        {"x": places[place] + shift, "y": value / size} for place, value in group.published if place in places
    ]
    return [Series("published", "points", frame_of(rows), colour, "diamond", 7, hollow=True)] if rows else []
