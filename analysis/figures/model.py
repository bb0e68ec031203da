"""The description of a figure: axes, series with their error intervals, and notes, apart from what draws it.

analysis/figures/printed.py draws it with matplotlib, static/figure.js with uPlot. Coordinates are in the unit of their
axis.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Required, TypedDict

import polars as pl

from analysis.estimates import decimals
from analysis.thinning import View, thin
from testbed import units

#: line and steps join their points; a step holds until the next point. Segments run upright from `low` to `y`; bars
#: from zero to `y`, `Series.width` wide. Cells are squares around their points, `Series.width` wide and high.
Kind = Literal["line", "steps", "points", "segments", "bars", "cells"]
Marker = Literal["", "circle", "square", "triangle", "diamond", "down", "cross", "tick", "dash"]

#: The light palette of static/figure.css. The series colours also differ in lightness, for print in grey.
PALETTE = {
    "s0": "#1f5fa8",
    "s1": "#c8541c",
    "s2": "#2f8f4e",
    "s3": "#8a4fb0",
    "s4": "#a57c00",
    "s5": "#1c9a9a",
    "s6": "#b0306a",
    "s7": "#5b6670",
    "mark": "#d1351c",
    "ink": "#1c2321",
    "soft": "#5d6966",
    "h0": "#e6eff7",
    "h1": "#c6dcef",
    "h2": "#9fc5e4",
    "h3": "#72a8d4",
    "h4": "#3779b3",
    "h5": "#225f98",
    "h6": "#0f4578",
}
#: Series colours in their order, and the markers and dashes that tell further series apart.
COLOURS = tuple(f"s{number}" for number in range(8))
#: Colours of a scale from little to much. Text on those from DARK_FROM on is light.
LEVELS, DARK_FROM = tuple(f"h{number}" for number in range(7)), 4
MARKERS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "down", "cross")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.5), (8, 3, 2, 3))
#: Points of a series on a self-contained page; longer series are thinned.
MOST_POINTS = 20_000


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, in which unit, and over which range."""

    title: str = ""
    unit: str = ""
    log: bool = False
    #: Fixed limits; without them the axis fits what is shown.
    range: tuple[float, float] | None = None
    #: Whether a fitted linear axis starts at zero, unless zero is far away.
    zero: bool = True
    #: Positions and labels, where an axis has names or few values; without them the renderer chooses.
    ticks: tuple[tuple[float, str], ...] = ()
    integers: bool = False

    @property
    def label(self) -> str:
        """Title and unit: "Throughput (Mbit/s)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Series:
    """One series of a figure."""

    name: str
    kind: Kind
    #: `x` and `y`; `low` and `high`, the ends of an error interval or `low` of a segment; `n`, the runs behind a mean;
    #: `run`, the id of the run that a point is; `cell`, the number of the cell of an explorer (figures/explorer.py);
    #: `label`, written into a cell, and `text`, the value in words.
    points: pl.DataFrame
    colour: str = "s0"
    marker: Marker = ""
    #: Marker size or line width, in points; 0 is the renderer's own.
    size: float = 0.0
    dash: tuple[float, ...] = ()
    #: An open marker, or a hatched bar or cell.
    hollow: bool = False
    #: Never thinned: losses and retransmissions.
    keep_all: bool = False
    #: Whether the fitted range of an axis makes room for it. A receive window may lie far from the rest.
    fits: bool = True
    #: A limit to compare with, such as a line's rate: it shows nothing that was measured.
    reference: bool = False
    #: Of a bar or cell, in units of the axis.
    width: float = 0.0

    def within(self, view: View) -> Series:
        """The series in a view, thinned, with the points where a line meets the edges."""
        points = thin(self.points, view, all_stay=self.keep_all)
        if self.kind in ("line", "steps"):
            return replace(self, points=_with_edges(points, view, stepped=self.kind == "steps"))
        return replace(self, points=points.filter(pl.col("x").is_between(view.from_s, view.to_s)))

    def as_json(self) -> dict[str, Any]:
        """For static/figure.js. Points that are not finite are left out; a line keeps a null, which interrupts it."""
        kept = pl.col("y").is_finite() | (pl.lit(self.kind == "line") & pl.col("y").is_null())
        frame = self.points.filter(pl.col("x").is_finite() & kept)
        columns: dict[str, Any] = {
            name: frame[name].cast(pl.Float64).round_sig_figs(12 if name == "x" else 10).to_list()
            for name in ("x", "y", "low", "high")
            if name in frame.columns
        }
        columns |= {
            name: frame[name].to_list() for name in ("n", "run", "cell", "label", "text") if name in frame.columns
        }
        return {
            "name": self.name,
            "kind": self.kind,
            "colour": self.colour,
            "marker": self.marker,
            "size": self.size,
            "dash": list(self.dash),
            "hollow": self.hollow,
            "fits": self.fits,
            "width": self.width,
            **columns,
        }


@dataclass(frozen=True)
class Figure:
    """One figure."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    title: str = ""
    #: Printed small beside the figure: what error bars are, over how many runs.
    notes: tuple[str, ...] = ()
    #: Why there is nothing to draw.
    empty: str = ""
    #: Series for which the figure has no room; exports have them.
    undrawn: tuple[Series, ...] = ()
    #: Upright lines across the figure: position and name.
    verticals: tuple[tuple[float, str], ...] = field(default=())
    #: The longest label of a cell of the figures beside this one. Labels have room in all of them, or in none.
    longest_label: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no series has a point."""
        return all(line.points.is_empty() for line in self.series)

    def within(self, low: float, high: float, most_points: int = MOST_POINTS) -> Figure:
        """The part of a figure over a range of its x axis, with at most about so many points a series."""
        view = View(low, high, most_points)
        series = tuple(line.within(view) for line in self.series)
        return replace(self, x=replace(self.x, range=(low, high)), series=series)

    def cut(self, low: float, high: float) -> Figure:
        """Exactly the points whose x lies in a range, for exports."""
        inside = pl.col("x").is_between(low, high)
        return replace(self, series=tuple(replace(line, points=line.points.filter(inside)) for line in self.series))

    def as_json(self) -> dict[str, Any]:
        """For static/figure.js."""
        axes = {
            name: {
                "label": axis.label,
                "unit": axis.unit,
                "log": axis.log,
                "range": axis.range,
                "zero": axis.zero,
                "ticks": axis.ticks or None,
                "integers": axis.integers,
            }
            for name, axis in (("x", self.x), ("y", self.y))
        }
        return {
            "title": self.title,
            **axes,
            "series": [line.as_json() for line in self.series],
            "notes": self.notes,
            "empty": self.empty,
            "verticals": self.verticals,
            "longest_label": self.longest_label,
            "description": self.description(),
        }

    def description(self) -> str:
        """The figure in words, for those who do not see it: its axes, and its values where they are few."""
        head = f"{self.title + ': ' if self.title else ''}{self.y.title} by {self.x.title or 'combination'}"
        shown = [line for line in self.series if not line.points.is_empty()]
        if not shown:
            return f"{head}: {self.empty or 'nothing to show'}"
        if sum(line.points.height for line in shown) > 24:
            return f"{head}: {', '.join(dict.fromkeys(line.name for line in shown if line.name))}".rstrip(": ")
        label_of = dict(self.x.ticks)
        parts = []
        for line in shown:
            for row in line.points.iter_rows(named=True):
                nearest = label_of.get(row["x"]) or label_of.get(round(row["x"])) or f"{row['x']:.4g}"
                place = f"{nearest} {self.x.unit}"
                if row["y"] is None:
                    continue
                value = f"{row['y']:.4g}{_spread(row)} {self.y.unit}".strip()
                parts.append(f"{', '.join(part for part in (place.strip(), line.name) if part)}: {value}")
        return f"{head}: {'; '.join(parts)}"

    def as_csv(self, x_name: str) -> str:
        """Every point of every series, in the units of the axes."""
        segments = any(line.kind == "segments" for line in self.series)
        head = ["series", x_name, self.y.label or "value", *(["from"] if segments else [])]
        return csv_text(head, (row for line in (*self.series, *self.undrawn) for row in _csv_rows(line, segments)))


def csv_text(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV; without a head, its further lines."""
    text = io.StringIO()
    writer = csv.writer(text)
    if head:
        writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def axis_scale(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Size and name of the unit in which an axis up to the greatest of the values reads best.

    Args:
        values: in the SI unit; values that are not finite do not count.
        unit: a metric's unit kind.
    """
    if unit == "fraction":
        return 0.01, "%"
    greatest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return units.scale_of(greatest if greatest > 0 else 1.0, unit)


def fitted(axis: Axis, figure: Figure, name: str) -> tuple[float, float]:
    """The limits of an axis that fit what is shown; the same rule as in static/figure.js."""
    values = []
    for line in figure.series:
        if not line.fits:
            continue
        points = line.points
        if name == "y" and figure.x.range is not None:
            points = points.filter(pl.col("x").is_between(*figure.x.range))
        reach = line.width / 2 if name == "x" else 0.0
        for column in ("x",) if name == "x" else ("y", "low", "high"):
            if column in points.columns:
                column_values = points[column].drop_nulls().drop_nans()
                column_values = column_values.filter(column_values > 0) if axis.log else column_values
                if len(column_values):
                    values += [float(column_values.min()) - reach, float(column_values.max()) + reach]  # type: ignore[arg-type]
        if line.kind == "bars" and name == "y" and not axis.log:
            values.append(0.0)
    if not values:
        return (0.1, 1.0) if axis.log else (0.0, 1.0)
    low, high = min(values), max(values)
    if low == high == 0:
        return 0.0, 1.0
    if axis.log:
        return low / 1.15, high * 1.15
    room = (high - low or abs(high) or 1.0) * 0.05
    if name == "x" and axis.ticks and any(line.kind == "bars" for line in figure.series):
        # Bars of one or two groups are as wide as those of three.
        middle, half = (low + high) / 2, max((high - low) / 2 + 0.1, 1.5)
        return middle - half, middle + half
    return (min(low, 0.0) if axis.zero and low <= 0.4 * high else low - room), high + room


@dataclass(frozen=True)
class Style:
    """How a series of a figure of means looks."""

    colour: str
    marker: Marker
    dash: tuple[float, ...]


def style_of(number: int) -> Style:
    """The style of the n-th series of a figure of means."""
    return Style(
        COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[number // len(COLOURS) % len(DASHES)]
    )


class Row(TypedDict, total=False):
    """A row of a series' points (Series.points)."""

    x: Required[float]
    #: None interrupts a line.
    y: Required[float | None]
    low: float | None
    high: float | None
    n: int
    cell: int | None
    run: str
    label: str
    text: str


def frame_of(rows: Sequence[Row], *columns: str) -> pl.DataFrame:
    """Points of a series with `x`, `y` and further columns."""
    schema: dict[str, Any] = dict.fromkeys(("x", "y", *columns), pl.Float64)
    schema |= {name: pl.Int64 for name in ("n", "cell") if name in schema}
    return pl.DataFrame([[row.get(name) for name in schema] for row in rows], schema=schema, orient="row")


def _spread(row: dict[str, Any]) -> str:
    """ " ± 0.3", or " [0.8, 0.9]" for an interval that is not symmetric; empty without one."""
    low, high = row.get("low"), row.get("high")
    if low is None or high is None or low == high:
        return ""
    if math.isclose(high - row["y"], row["y"] - low, rel_tol=1e-6):
        half = (high - low) / 2
        return f" ± {half:.{decimals(half)}f}"
    return f" [{low:.3g}, {high:.3g}]"


def _csv_rows(series: Series, segments: bool) -> Iterable[Sequence[object]]:
    columns = ["x", "y", *(["low"] if segments and "low" in series.points.columns else [])]
    return ([series.name, *row] for row in series.points.select(columns).iter_rows() if row[1] is not None)


def _with_edges(frame: pl.DataFrame, view: View, stepped: bool) -> pl.DataFrame:
    """A line with points at both edges of the view, where it runs on beyond them."""
    edges = []
    for edge in (float(view.from_s), float(view.to_s)):
        before, after = frame.filter(pl.col("x") < edge).tail(1), frame.filter(pl.col("x") > edge).head(1)
        if before.is_empty() or after.is_empty() or (frame["x"] == edge).any():
            continue
        (x0, y0), (x1, y1) = before.select("x", "y").row(0), after.select("x", "y").row(0)
        edges.append({"x": edge, "y": y0 if stepped else y0 + (y1 - y0) * (edge - x0) / (x1 - x0)})
    if not edges:
        return frame
    return pl.concat([frame.select("x", "y"), pl.DataFrame(edges)]).sort("x", maintain_order=True)
