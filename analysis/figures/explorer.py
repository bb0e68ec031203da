"""A campaign's metric over any of its fields: panels by two fields, means, heatmaps and distributions.

Fields that a view leaves out are pooled. Points share the seeds of their repetitions, so the pooled value of a
repetition is its mean over the points, and an estimate over such values has the right interval. A repetition that lacks
a point is left out of a pooled mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import polars as pl

from analysis.figures.cells import Levels, Sample, ViewCell, boxes_of, single_runs
from analysis.figures.means import MOST_GROUPS, MOST_SERIES, Group, Mean, Means, ordered, place_label, quantities, short
from analysis.figures.model import COLOURS, Axis, Figure, Row, Series, axis_scale, fitted, style_of
from analysis.metrics.registry import estimate
from analysis.results import Quantity
from analysis.statistics import RunKey
from testbed.units import number_of

#: Kinds of views and their names.
KINDS = {
    "means": "means",
    "heatmap": "heatmap",
    "dots": "single runs",
    "box": "box plot",
    "ecdf": "distribution (ECDF)",
    "effects": "main effects",
    "against": "metric against metric",
}
#: Where a field can be drawn, and its names.
SLOTS = {"x": "x axis", "colour": "colour", "row": "rows of panels", "column": "columns of panels"}
#: More panels, and values of a field that makes them, are not drawn; nor more runs one by one in a view.
MOST_PANELS, MOST_FACETS, MOST_DOTS = 24, 6, 5000
#: Columns of points that are runs.
OF_RUNS = {"x": pl.Float64, "y": pl.Float64, "cell": pl.Int64, "run": pl.String}


@dataclass(frozen=True)
class Layout:
    """A kind of view, and the field in each slot; "" for none."""

    kind: str
    x: str = ""
    colour: str = ""
    row: str = ""
    column: str = ""
    #: Axes that are logarithmic, where they show quantities: "x", "y".
    log: tuple[str, ...] = ()

    @property
    def fields(self) -> list[str]:
        """The fields that are drawn. Of two metrics, the x axis is the other metric's."""
        x = "" if self.kind == "against" else self.x
        return [name for name in (x, self.colour, self.row, self.column) if name]


@dataclass(frozen=True)
class Across:
    """The metric on the x axis of a view of a metric against a metric."""

    title: str
    unit: str
    #: Its value in each run that has one, in the SI unit.
    values: Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One figure of a view."""

    #: Its values of the fields that make panels: "rate 9.6 kbit/s".
    title: str
    figure: Figure
    cells: Sequence[ViewCell]


@dataclass(frozen=True)
class View:
    """All panels of a layout."""

    layout: Layout
    panels: Sequence[Panel]
    #: Panels side by side.
    columns: int
    #: What is pooled and what is left out, as sentences.
    notes: Sequence[str] = field(default=())


def default_layout(axes: Mapping[str, Sequence[str]]) -> Layout:
    """A heatmap from two fields of quantities on, means over one, single runs without fields."""
    swept = {name: values for name, values in axes.items() if len(values) > 1}
    order = sorted(swept, key=lambda name: -len(swept[name]))
    numeric = [name for name in order if len(swept[name]) > 2 and quantities(swept[name]) is not None]
    if not order:
        return Layout("dots")
    x = numeric[0] if numeric else order[0]
    kind = "heatmap" if len(numeric) > 1 else "means"
    rest = [name for name in reversed(order) if name != x]
    colour = numeric[1] if len(numeric) > 1 else next((name for name in rest if len(swept[name]) <= MOST_SERIES), "")
    facets = [name for name in rest if name != colour and len(swept[name]) <= MOST_FACETS]
    column, row = [*facets, "", ""][:2]
    return Layout(kind, x, colour, row, column)


def view(
    samples: Sequence[Sample],
    axes: Mapping[str, Sequence[str]],
    layout: Layout,
    quantity: Quantity,
    title: str,
    across: Across | None = None,
) -> View:
    """The panels of a metric.

    Args:
        samples: of the valid runs that are looked at.
        axes: swept fields and the values that are looked at, in their order.
        layout: of KINDS, with fields of `axes`.
        quantity: the metric.
        title: of the metric.
        across: the metric on the x axis, of a layout of the kind "against".
    """
    if across is not None:
        samples = [sample for sample in samples if sample.run_id in across.values]
    maker = _Maker(samples, {name: ordered(values) for name, values in axes.items()}, layout, quantity, title, across)
    panels = maker.effects() if layout.kind == "effects" else maker.panels()
    columns = 2 if layout.kind == "effects" else len(axes.get(layout.column, [""]))
    return View(layout, _with_shared_axes(maker.logarithmic(panels), layout.kind), columns, maker.notes)


def selected(figure: Figure, x: tuple[float, float], y: tuple[float, float] | None) -> tuple[set[int], set[str]]:
    """What a box over a figure holds: numbers of cells, and ids of runs that are drawn one by one.

    Args:
        figure: of a panel.
        x: from and to, in units of the axis.
        y: the same; None: everything above x.
    """
    cells: set[int] = set()
    runs: set[str] = set()
    for line in figure.series:
        frame = line.points
        if "cell" not in frame.columns or frame.is_empty():
            continue
        reach = line.width / 2
        inside = (pl.col("x") + reach >= x[0]) & (pl.col("x") - reach <= x[1])
        if y is not None:
            up = reach if line.kind == "cells" else 0.0
            low = pl.col("low") if line.kind == "segments" else pl.lit(0.0) if line.kind == "bars" else pl.col("y") - up
            inside &= (pl.col("y") + up >= y[0]) & (low <= y[1])
        kept = frame.filter(inside)
        if "run" in kept.columns:
            runs |= set(kept["run"])
        else:
            cells |= set(kept["cell"].drop_nulls())
    return cells, runs


@dataclass
class _Maker:
    """Makes the panels of a view."""

    samples: Sequence[Sample]
    axes: Mapping[str, Sequence[str]]
    layout: Layout
    quantity: Quantity
    title: str
    across: Across | None = None
    notes: list[str] = field(default_factory=list)
    _numbers: int = 0

    def panels(self) -> list[Panel]:
        """A panel for each value of both fields that make them."""
        layout = self.layout
        rows, columns = (self.axes.get(name, [""]) for name in (layout.row, layout.column))
        panel_places = [
            {name: value for name, value in ((layout.row, row), (layout.column, column)) if name}
            for row, column in product(rows, columns)
        ]
        if len(panel_places) > MOST_PANELS:
            self.notes.append(
                f"{len(panel_places) - MOST_PANELS} more panels are left out. Filter a field to see them."
            )
        self._note_pooled()
        cells = self.cells(layout.fields)
        kept = [
            (place, [cell for cell in cells if place.items() <= cell.place.items()])
            for place in panel_places[:MOST_PANELS]
        ]
        # One scale for all panels.
        drawn = [cell for _, some in kept for cell in some]
        draw = self._drawer(self._scale(drawn), drawn)
        return [Panel(place_label(place), draw(some), some) for place, some in kept]

    def effects(self) -> list[Panel]:
        """A panel for each field, with its values' means over everything else."""
        fields = [name for name, values in self.axes.items() if len(values) > 1]
        of_field = {name: self.cells([name]) for name in fields}
        scale = self._scale([cell for cells in of_field.values() for cell in cells])
        self.notes.append(
            "Each field's values, pooled over all other fields. A repetition's mean over the combinations is one value."
        )
        return [
            Panel(f"by {short(name)}", self._means(cells, scale, name, ""), cells) for name, cells in of_field.items()
        ]

    def logarithmic(self, panels: Sequence[Panel]) -> list[Panel]:
        """The panels with the axes that the layout wants logarithmic, where these show quantities."""
        drawn = []
        for panel in panels:
            x, y = (
                replace(axis, log=not axis.ticks and axis.range is None) if name in self.layout.log else axis
                for name, axis in (("x", panel.figure.x), ("y", panel.figure.y))
            )
            drawn.append(replace(panel, figure=replace(panel.figure, x=x, y=y)))
        hidden = sum(sample.value <= 0 for sample in self.samples) if "y" in self.layout.log else 0
        if self.across and "x" in self.layout.log:
            hidden += sum(self.across.values[sample.run_id] <= 0 for sample in self.samples)
        if hidden:
            self.notes.append(f"{number_of(hidden, 'value')} of 0 or less cannot be shown on a logarithmic axis.")
        return drawn

    def cells(self, fields: Sequence[str]) -> list[ViewCell]:
        """The samples by their values of some fields, in the order of the values."""
        samples: dict[tuple[str, ...], list[Sample]] = {}
        for sample in self.samples:
            samples.setdefault(tuple(sample.parameters[name] for name in fields), []).append(sample)
        cells = []
        for key in product(*(self.axes[name] for name in fields)):
            if key in samples:
                place = dict(zip(fields, key, strict=True))
                cells.append(self._cell(place, samples[key]))
        return cells

    def _cell(self, place: Mapping[str, str], samples: Sequence[Sample]) -> ViewCell:
        self._numbers += 1
        values, points = pooled(samples)
        estimated = estimate(self.quantity.metric, self.quantity.unit, values) if values else None
        return ViewCell(self._numbers, place, samples, estimated, points)

    def _note_pooled(self) -> None:
        layout = self.layout
        # The curves of a distribution are the colours' or, without any, those of the x field.
        drawn = replace(layout, x="").fields if layout.kind == "ecdf" and layout.colour else layout.fields
        hidden = [short(name) for name, values in self.axes.items() if len(values) > 1 and name not in drawn]
        if hidden and self.layout.kind in ("box", "ecdf", "against"):
            self.notes.append(f"Runs of all values of {', '.join(hidden)} are together.")
        elif hidden:
            self.notes.append(f"Pooled over {', '.join(hidden)}: a repetition's mean is one value.")

    def _scale(self, cells: Iterable[ViewCell]) -> tuple[float, str]:
        return axis_scale([value.value for cell in cells for value in cell.samples], self.quantity.unit)

    def _drawer(self, scale: tuple[float, str], cells: Sequence[ViewCell]) -> Callable[[Sequence[ViewCell]], Figure]:
        layout = self.layout
        if layout.kind == "heatmap":
            levels = Levels([cell.estimate.mean / scale[0] for cell in cells if cell.estimate and cell.has_mean])
            return lambda some: self._heatmap(some, scale, levels)
        if layout.kind == "ecdf":
            return lambda some: self._ecdf(some, scale)
        if self.across is not None:
            across = self.across
            across_scale = axis_scale([across.values[sample.run_id] for sample in self.samples], across.unit)
            return lambda some: self._against(some, scale, across, across_scale)
        if layout.kind in ("dots", "box"):
            if layout.kind == "dots" and len(self.samples) > MOST_DOTS:
                self.notes.append(f"Runs are drawn one by one up to {MOST_DOTS}; filter a field to see them.")
            return lambda some: self._distributions(some, scale)
        series = self.axes.get(layout.colour, [""])
        if len(series) > MOST_SERIES:
            self.notes.append(f"{len(series) - MOST_SERIES} more values of {short(layout.colour)} are left out.")
        if len(self.axes.get(layout.x, [])) > MOST_GROUPS and quantities(self.axes[layout.x]) is None:
            self.notes.append(f"The first {MOST_GROUPS} values of {short(layout.x)} are drawn.")
        return lambda some: self._means(some, scale, layout.x, layout.colour)

    def _means(self, cells: Sequence[ViewCell], scale: tuple[float, str], x: str, colour: str) -> Figure:
        groups = {value: Group(place_label({colour: value}) if colour else "") for value in self.axes.get(colour, [""])}
        for cell in cells:
            if cell.estimate is not None:
                mean = Mean(cell.place.get(x, ""), cell.estimate, points=cell.points, cell=cell.number)
                groups[cell.place.get(colour, "")].means.append(mean)
        places = list(self.axes.get(x, [""]))
        known = quantities(places) if x else None
        kept = list(groups.values())
        return Means(
            self.title,
            self.quantity.metric,
            self.quantity.subject,
            self.quantity.unit,
            x,
            places,
            known[1] if known else None,
            known[0] if known else "",
            kept[:MOST_SERIES],
            kept[MOST_SERIES:],
            scale=scale,
        ).figure()

    def _heatmap(self, cells: Sequence[ViewCell], scale: tuple[float, str], levels: Levels) -> Figure:
        x, y = self.layout.x, self.layout.colour
        rows: dict[int, list[Row]] = {}
        for cell in cells:
            if cell.estimate is None:
                continue
            flat = cell.has_mean
            mean = cell.estimate.mean / scale[0]
            rows.setdefault(levels.of(mean) if flat else -1, []).append(
                {
                    "x": float(self._index(x, cell)),
                    "y": float(self._index(y, cell)),
                    "cell": cell.number,
                    "label": f"{mean:.3g}" if flat else _both(cell.estimate.groups, scale[0]),
                    "text": f"{self.title}: {cell.estimate.text(self.quantity.unit)}, {number_of(cell.runs, 'run')}",
                }
            )
        schema = {"x": pl.Float64, "y": pl.Float64, "cell": pl.Int64, "label": pl.String, "text": pl.String}
        series = [
            Series(
                levels.name(number, scale[1]), "cells", pl.DataFrame(rows.get(number, []), schema), colour, width=0.96
            )
            for number, colour in enumerate(levels.colours)
        ]
        if -1 in rows:
            groups = pl.DataFrame(rows[-1], schema)
            series.append(Series("two groups, no mean", "cells", groups, "soft", width=0.96, hollow=True))
        return Figure(self._names(x), self._names(y), tuple(series), empty="no valid run yet")

    def _ecdf(self, cells: Sequence[ViewCell], scale: tuple[float, str]) -> Figure:
        by = self.layout.colour or self.layout.x
        series = []
        for number, value in enumerate(self.axes.get(by, [""])[:MOST_SERIES]):
            drawn = [(cell, sample) for cell in cells if cell.place.get(by, "") == value for sample in cell.samples]
            drawn.sort(key=lambda pair: pair[1].value)
            rows: list[Row] = [
                {"x": sample.value / scale[0], "y": at / len(drawn), "cell": cell.number, "run": sample.run_id}
                for at, (cell, sample) in enumerate([*drawn[:1], *drawn])
            ]
            name, look = place_label({by: value}) if by else "all runs", style_of(number)
            series.append(Series(name, "steps", pl.DataFrame(rows, OF_RUNS), look.colour, dash=look.dash))
        x = Axis(self.title, scale[1], zero=False)
        return Figure(x, Axis("share of runs", range=(0.0, 1.02)), tuple(series), empty="no valid run yet")

    def _against(
        self, cells: Sequence[ViewCell], scale: tuple[float, str], across: Across, across_scale: tuple[float, str]
    ) -> Figure:
        """A mark for each run, coloured by a field."""
        by = self.layout.colour
        series = []
        for number, value in enumerate(self.axes.get(by, [""])[:MOST_SERIES]):
            drawn = [(cell, sample) for cell in cells if cell.place.get(by, "") == value for sample in cell.samples]
            rows: list[Row] = [
                {
                    "x": across.values[sample.run_id] / across_scale[0],
                    "y": sample.value / scale[0],
                    "cell": cell.number,
                    "run": sample.run_id,
                }
                for cell, sample in drawn
            ]
            name, look = place_label({by: value}) if by else "", style_of(number)
            frame = pl.DataFrame(rows, OF_RUNS)
            series.append(Series(name, "points", frame, look.colour, look.marker, 7.0, hollow=True))
        x = Axis(across.title, across_scale[1])
        return Figure(x, Axis(self.title, scale[1]), tuple(series), empty="no run has both metrics")

    def _distributions(self, cells: Sequence[ViewCell], scale: tuple[float, str]) -> Figure:
        """Boxes, or single runs with the mean and its interval, side by side at each place."""
        x, colour = self.layout.x, self.layout.colour
        values = list(self.axes.get(colour, [""]))[:MOST_SERIES]
        series: list[Series] = []
        for number, value in enumerate(values):
            mine = [cell for cell in cells if cell.place.get(colour, "") == value]
            shift = (number - (len(values) - 1) / 2) * 0.8 / len(values)
            at = {cell.number: self._index(x, cell) + shift for cell in mine}
            name, ink = place_label({colour: value}) if colour else "", COLOURS[number % len(COLOURS)]
            if self.layout.kind == "box":
                wide = max(3.0, min(16.0, 400.0 / max(len(cells), 1)))
                series += boxes_of(name, ink, mine, at, scale[0], wide)
            else:
                series += single_runs(name, ink, mine, at, scale[0], 0.8 / len(values), len(self.samples) <= MOST_DOTS)
        return Figure(self._names(x), Axis(self.title, scale[1]), tuple(series), empty="no valid run yet")

    def _index(self, name: str, cell: ViewCell) -> int:
        return list(self.axes[name]).index(cell.place[name]) if name else 0

    def _names(self, name: str) -> Axis:
        """An axis with a field's values at 0, 1, 2 ..."""
        values = self.axes.get(name, [""])
        ticks = tuple((float(number), value or "all runs") for number, value in enumerate(values))
        return Axis(short(name), ticks=ticks, range=(-0.5, len(values) - 0.5))


def _both(groups: Sequence[Sequence[float]], size: float) -> str:
    """The means of two groups: "1.2 | 7.9"."""
    return " | ".join(f"{math.fsum(group) / len(group) / size:.3g}" for group in groups)


def pooled(samples: Sequence[Sample]) -> tuple[list[float], int]:
    """Values to estimate a mean from, and how many points each of them is the mean over."""
    by_point: dict[int, dict[RunKey, Sample]] = {}
    for sample in samples:
        by_point.setdefault(sample.point, {})[sample.key] = sample
    keys = [key for key in next(iter(by_point.values())) if all(key in values for values in by_point.values())]
    means = [math.fsum(values[key].value for values in by_point.values()) / len(by_point) for key in sorted(keys)]
    return means, len(by_point)


def _with_shared_axes(panels: Sequence[Panel], kind: str) -> list[Panel]:
    """Panels that are read against each other have the same axes."""
    if len(panels) < 2:
        return list(panels)
    shown = tuple(series for panel in panels for series in panel.figure.series)
    joint = replace(panels[0].figure, series=shown)
    y = fitted(joint.y, joint, "y") if joint.y.range is None else joint.y.range
    x = None if kind == "effects" else joint.x.range or fitted(joint.x, joint, "x")
    labels = [label for series in shown if "label" in series.points.columns for label in series.points["label"]]
    longest = max(labels, key=len, default="")

    def shared(figure: Figure) -> Figure:
        return replace(figure, x=replace(figure.x, range=x), y=replace(figure.y, range=y), longest_label=longest)

    return [replace(panel, figure=shared(panel.figure)) for panel in panels]
