"""Figures of a campaign: a metric over a swept field, a metric at every point, and distributions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from analysis.errors import AnalysisError, unknown
from analysis.estimates import Estimate
from analysis.figures.model import (
    COLOURS,
    Axis,
    Figure,
    Series,
    axis_scale,
    csv_text,
    frame_of,
    style_of,
)
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
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
#: Columns of `analysis.means` that are no swept fields.
_OWN = frozenset(
    ("point", "metric", "subject", "unit", "n", "mean", "sd", "low", "high", "level", "method", "groups", "values",
     "repetition", "run_id", "value")
)  # fmt: skip
_QUANTITY = re.compile(r"\s*([-+0-9.eE]+)\s*(\S*)")


@dataclass(frozen=True)
class Mean:
    """A metric at a point, in the SI unit."""

    #: The value of the x field, as the campaign file writes it.
    place: str
    estimate: Estimate
    #: A key of INTERVALS.
    interval: str = "confidence"

    @property
    def mean(self) -> float:
        """The mean of the runs."""
        return self.estimate.mean

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """Both ends of the error bar."""
        return ends_of(self.estimate, self.interval)


def ends_of(estimate: Estimate, interval: str) -> tuple[float, float] | tuple[None, None]:
    """Both ends of an error bar.

    Args:
        estimate: the mean.
        interval: a key of INTERVALS.
    """
    if interval == "confidence":
        return estimate.ends
    deviation = sd(estimate.values)
    return (None, None) if deviation is None else (estimate.mean - deviation, estimate.mean + deviation)


def dots_of(estimate: Estimate) -> tuple[float, ...]:
    """Values that are drawn one by one, because an interval cannot stand for them."""
    lone = estimate.form == "values" and estimate.n > 1
    return estimate.values if lone or estimate.form == "groups" else ()


def dots(places: Iterable[tuple[float, Estimate]], size: float, colour: str) -> list[Series]:
    """The series of such values, in units of `size`; none without any."""
    rows = [{"x": x, "y": value / size} for x, estimate in places for value in dots_of(estimate)]
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
    interval: str = "confidence"

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
        return any(one.published for one in self.groups)

    def as_csv(self) -> str:
        """Its values in SI units, undrawn groups included."""
        head = [
            self.x_field or "point", "series", "metric", "unit", "runs", "mean", "low_95", "high_95", "values",
            "published",
        ]  # fmt: skip
        return csv_text(head, (row for group in (*self.groups, *self.undrawn) for row in self._csv_rows(group)))

    def _csv_rows(self, group: Group) -> Iterable[Sequence[object]]:
        published = dict(group.published)
        for one in group.means:
            yield [
                one.place, group.label, self.metric, self.unit, one.estimate.n, one.mean, *one.estimate.ends,
                " ".join(map(str, one.estimate.values)), published.get(one.place, ""),
            ]  # fmt: skip

    def figure(self) -> Figure:
        """Its description: lines over quantities, bars over names."""
        return _over_quantities(self) if self.is_line else _over_names(self)

    def notes(self) -> tuple[str, ...]:
        """What is drawn: means of how many runs, and what their error bars are."""
        return means_note([one.estimate for group in self.groups for one in group.means], self.interval)


def means_note(estimates: Sequence[Estimate], interval: str) -> tuple[str, ...]:
    """ "means of 3 to 5 runs; bars: 95 % confidence".

    Args:
        estimates: the means that are drawn.
        interval: a key of INTERVALS, or "" without error bars.
    """
    counts = [one.n for one in estimates]
    if not counts:
        return ()
    low, high = min(counts), max(counts)
    if high == 1:
        return ("one run each",)
    notes = [f"means of {low} runs" if low == high else f"means of {low} to {high} runs"]
    if interval and any(None not in ends_of(one, interval) for one in estimates):
        notes.append(f"bars: {INTERVALS[interval]}")
    if any(dots_of(one) for one in estimates):
        notes.append("dots: single runs, where they are two or form two groups")
    return ("; ".join(notes),)


# From stored rows ----------------------------------------------------------------------------------------------------


def axes_of(points: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Swept fields and their values, in the order of the sweep."""
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


def of_points(
    points: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], *, title: str, unit: str, metric: str,
    subject: str, x_field: str, fixed: Mapping[str, str], published: Sequence[Mapping[str, Any]] = (),
) -> Means:  # fmt: skip
    """Means of a metric along one swept field; a group for each combination of the others.

    Args:
        points: of the store: number, parameters.
        rows: of the store: point, name, subject, values.
        title: of the metric.
        unit: its unit kind.
        metric: which rows.
        subject: of the metric.
        x_field: the field along the x axis; empty: there is one point.
        fixed: fields held at one value.
        published: metric, subject, cell (axis to label) and value in the SI unit.
    """
    found = {row["point"]: row for row in rows if row["name"] == metric and row["subject"] == subject}
    groups: dict[str, Group] = {}
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
        group = groups.setdefault(label, Group(label))
        row = found.get(point["number"])
        if row is not None:
            group.means.append(Mean(x, estimate(metric, unit, row["values"])))
    for one in published:
        # A cell names a point by its labels: an axis is a field, or the last word of one.
        for parameters_, (label, x) in keys.items() if (one["metric"], one["subject"]) == (metric, subject) else ():
            here = dict(parameters_) | {name.rpartition(".")[2]: value for name, value in parameters_}
            if one["cell"] and all(here.get(axis) == wanted for axis, wanted in one["cell"].items()):
                groups[label].published.append((x, float(one["value"])))
    known, ordered, kept = quantities(list(places)), list(places), list(groups.values())
    if known is not None:
        ordered = [place for _, place in sorted(zip(known[1], ordered, strict=True))]
    return Means(
        title=title, metric=metric, subject=subject, unit=unit, x_field=x_field, places=ordered,
        sizes=None if known is None else sorted(known[1]), kind=known[0] if known else "",
        groups=kept[:MOST_SERIES], undrawn=kept[MOST_SERIES:],
    )  # fmt: skip


def number_of(text: str) -> tuple[float, str] | None:
    """A swept value as SI number and unit kind ("28.8 kbit/s" is 28800, "rate"); None if it is no quantity."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    for kind in ("number",) if not found[2] else ("rate", "time", "bytes", "packets", "segments", "fraction"):
        try:
            return float(units.parse(text, kind)), kind
        except ValueError:
            continue
    return None


def quantities(values: Sequence[str]) -> tuple[str, list[float]] | None:
    """The unit kind of values that are all quantities of one kind, and their sizes; None otherwise."""
    found = [number_of(value) for value in values]
    if any(one is None for one in found) or len({one[1] for one in found if one}) > 1:
        return None
    return found[0][1] if found and found[0] else "", [one[0] for one in found if one]


# Descriptions --------------------------------------------------------------------------------------------------------


def _axis_of(means: Means) -> tuple[float, Axis]:
    drawn = [one for group in means.groups for one in group.means]
    highs = [value for one in drawn for value in (*one.estimate.values, one.ends[1]) if value is not None]
    size, unit = axis_scale([*highs, *(value for group in means.groups for _, value in group.published)], means.unit)
    return size, Axis(means.title, unit)


def _row(one: Mean, x: float, size: float) -> dict[str, Any]:
    """A point of a series. Two groups have no mean that stands for them: their values are drawn."""
    low, high = (None if value is None else value / size for value in one.ends)
    y = None if one.estimate.form == "groups" else one.mean / size
    return {"x": x, "y": y, "n": one.estimate.n, "low": low, "high": high}


def _published(group: Group, places: Mapping[str, float], size: float, colour: str, shift: float = 0.0) -> list[Series]:
    rows = [{"x": places[place] + shift, "y": value / size} for place, value in group.published if place in places]
    return [Series("published", "points", frame_of(rows), colour, "diamond", 7, hollow=True)] if rows else []


def _over_quantities(means: Means) -> Figure:
    assert means.sizes is not None
    low, high = means.sizes[0], means.sizes[-1]
    log = low > 0 and high / low >= LOG_FROM
    x_size, x_unit = axis_scale([math.sqrt(low * high) if log else high], means.kind)
    size, y = _axis_of(means)
    places = {place: value / x_size for place, value in zip(means.places, means.sizes, strict=True)}
    ticks = tuple((value, f"{value:g}") for value in places.values()) if len(places) <= MOST_TICKS else ()
    series: list[Series] = []
    for number, group in enumerate(means.groups):
        rows = sorted((_row(one, places[one.place], size) for one in group.means), key=lambda row: row["x"])
        look = style_of(number)
        points = frame_of(rows, "low", "high", "n")
        series += [Series(group.label, "line", points, **look)]
        series += dots(((places[one.place], one.estimate) for one in group.means), size, look["colour"])
        series += _published(group, places, size, look["colour"])
    x = Axis(means.x_field.replace("network.", ""), x_unit, log=log, ticks=ticks)
    return Figure(x, y, tuple(series), notes=means.notes(), empty="no valid run yet")


def _over_names(means: Means) -> Figure:
    size, y = _axis_of(means)
    places = {place: float(number) for number, place in enumerate(means.places[:MOST_GROUPS])}
    width = 0.8 / max(len(means.groups), 1)
    series: list[Series] = []
    for number, group in enumerate(means.groups):
        shift = (number - (len(means.groups) - 1) / 2) * width
        by_colour: dict[str, list[dict[str, Any]]] = {}
        for one in group.means:
            if one.place in places:
                colour = means.colours.get(one.place, COLOURS[number % len(COLOURS)])
                by_colour.setdefault(colour, []).append(_row(one, places[one.place] + shift, size))
        series += [
            Series(group.label, "bars", frame_of(rows, "low", "high", "n"), colour, width=width * 0.92)
            for colour, rows in by_colour.items()
        ]
        there = ((places[one.place] + shift, one.estimate) for one in group.means if one.place in places)
        series += [*dots(there, size, "ink"), *_published(group, places, size, "ink", shift)]
    ticks = tuple((at, place or "all runs") for place, at in places.items())
    x = Axis(means.x_field.replace("network.", ""), ticks=ticks)
    return Figure(x, y, tuple(series), notes=means.notes(), empty="no valid run yet")


# From tables of `analysis.means` and `analysis.values` ---------------------------------------------------------------


def fields(table: pl.DataFrame) -> list[str]:
    """The swept fields of a table of `analysis.means` or `analysis.values`."""
    return [column for column in table.columns if column not in _OWN]


def bars(table: pl.DataFrame, metric: str, subjects: Sequence[str] = (), interval: str = "confidence") -> Figure:
    """A group of bars for each point, one bar for each subject, with error bars.

    Args:
        table: of `analysis.means`.
        metric: its name.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
    """
    rows, wanted = _chosen(table, metric, subjects)
    names = fields(table)
    groups = {subject: Group(subject if len(wanted) > 1 else "") for subject in wanted}
    for row in rows.to_dicts():
        groups[row["subject"]].means.append(_mean_of(row, _point_name(row, names), interval))
    places = list(dict.fromkeys(one.place for group in groups.values() for one in group.means))
    return _over_names(
        Means(
            _title(metric), metric, "", rows["unit"][0], "", places, None, "", list(groups.values()), interval=interval
        )
    )


def sweep(
    table: pl.DataFrame, metric: str, axis: str = "", subjects: Sequence[str] = (), interval: str = "confidence"
) -> Figure:
    """A metric over a swept field: a line for each combination of the other fields and each subject.

    Args:
        table: of `analysis.means`.
        metric: its name.
        axis: the field, or its last words; without it the only one whose values are quantities.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
    """
    rows, wanted = _chosen(table, metric, subjects)
    axis = _axis(table, axis)
    others = [name for name in fields(table) if name != axis]
    texts = [str(text) for text in rows[axis].unique(maintain_order=True)]
    known = quantities(texts)
    if known is None:
        odd = next((text for text in texts if number_of(text) is None), texts[0])
        raise AnalysisError(f"{axis} cannot be an axis: its value '{odd}' is no quantity; a bar chart shows it")
    order = sorted(zip(known[1], texts, strict=True))
    groups: dict[tuple[str, ...], Group] = {}
    for row in rows.to_dicts():
        name = _point_name(row, others) if others else ""
        apart = row["subject"] if len(wanted) > 1 else ""
        label = ", ".join(part for part in (name, apart) if part)
        group = groups.setdefault((name, row["subject"]), Group(label))
        group.means.append(_mean_of(row, str(row[axis]), interval))
    return _over_quantities(
        Means(
            _title(metric), metric, "", rows["unit"][0], axis, [text for _, text in order],
            [size for size, _ in order], known[0], list(groups.values()), interval=interval,
        )
    )  # fmt: skip


def cdf(samples: Mapping[str, Sequence[float]], title: str, unit: str) -> Figure:
    """The empirical distribution of samples, P(X <= x): a step of 1/n at every value.

    Args:
        samples: by the name of a curve, in the SI unit; the legend names a curve without samples.
        title: of the quantity.
        unit: a metric's unit kind.
    """
    everything = [value for values in samples.values() for value in values]
    if not everything:
        raise AnalysisError(f"there is no sample of {title} to draw")
    size, unit_name = axis_scale(everything, unit)
    series = []
    for number, (name, values) in enumerate(samples.items()):
        label = f"{name} ({len(values)})" if name else f"{len(values)} samples"
        look = style_of(number) | {"marker": ""}
        series.append(Series(label, "steps", distribution(values, size), **look))
    return Figure(Axis(title, unit_name, zero=False), Axis("share of samples", range=(0.0, 1.02)), tuple(series))


def distribution(values: Sequence[float], size: float) -> pl.DataFrame:
    """Points of an empirical distribution, from (least value, 0) on; in units of `size`."""
    ordered = sorted(value / size for value in values)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    return pl.DataFrame(
        {"x": [*ordered[:1], *ordered], "y": [*([0.0] if ordered else []), *shares]},
        schema={"x": pl.Float64, "y": pl.Float64},
    )


def cdf_of_runs(table: pl.DataFrame, metric: str, subjects: Sequence[str] = (), *, pooled: bool = False) -> Figure:
    """The distribution of a metric over runs: a curve for each point and subject.

    Args:
        table: of `analysis.values`.
        metric: its name.
        subjects: flows, groups or lines; all without any.
        pooled: the values of all subjects together, a curve for each point.
    """
    rows, wanted = _chosen(table, metric, subjects)
    names = fields(table)
    curves: dict[str, list[float]] = {}
    for row in rows.to_dicts():
        apart = [row["subject"]] if len(wanted) > 1 and not pooled else []
        curves.setdefault(", ".join([_point_name(row, names), *apart]), []).append(row["value"])
    return cdf(curves, _title(metric), rows["unit"][0])


def _mean_of(row: Mapping[str, Any], place: str, interval: str) -> Mean:
    if interval not in INTERVALS:
        raise unknown("kind of error bar", interval, INTERVALS)
    return Mean(place, estimate(row["metric"], row["unit"], row["values"]), interval)


def _chosen(table: pl.DataFrame, metric: str, subjects: Sequence[str]) -> tuple[pl.DataFrame, list[str]]:
    """The rows of a metric, and its subjects in their order."""
    rows = table.filter(pl.col("metric") == metric)
    if rows.is_empty():
        raise unknown("metric of this campaign", metric, sorted(set(table["metric"])))
    known = list(dict.fromkeys(rows["subject"]))
    for subject in subjects:
        if subject not in known:
            raise unknown(f"subject of {metric}", subject, known)
    wanted = list(subjects) or known
    return rows.filter(pl.col("subject").is_in(wanted)), wanted


def _point_name(row: Mapping[str, str | None], names: Sequence[str]) -> str:
    if len(names) == 1:
        return str(row[names[0]])
    return ", ".join(f"{name.rpartition('.')[2]}={row[name]}" for name in names) or "all runs"


def _title(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric


def _axis(table: pl.DataFrame, asked: str) -> str:
    names = fields(table)
    if asked:
        found = [name for name in names if name == asked or name.endswith("." + asked)]
        if len(found) != 1:
            raise unknown("swept field", asked, names)
        return found[0]
    numeric = [name for name in names if quantities([str(text) for text in table[name].unique()]) is not None]
    if len(numeric) != 1:
        listed = ", ".join(numeric or names) or "none"
        raise AnalysisError(f"--axis must say which swept field is the axis; there are: {listed}")
    return numeric[0]
