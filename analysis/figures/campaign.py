"""Figures of a campaign: a metric over a swept field, a metric at every point, and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.errors import AnalysisError, unknown
from analysis.figures.means import INTERVALS, MOST_SERIES, Group, Mean, Means, number_of, quantities
from analysis.figures.model import Axis, Figure, Series, axis_scale, style_of
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.store.rows import PointRow, TableRow

#: Columns of `analysis.means` that are no swept fields.
_OWN = frozenset(
    ("point", "metric", "subject", "unit", "n", "mean", "sd", "low", "high", "level", "method", "groups", "values",
     "attempts", "marked",
     "repetition", "run_id", "value")
)  # fmt: skip


@dataclass(frozen=True)
class PublishedValue:
    """A published value of a stored metric, in the SI unit."""

    metric: str
    subject: str
    #: Axis to label.
    cell: Mapping[str, str]
    value: float


# From stored rows ----------------------------------------------------------------------------------------------------


def axes_of(points: Sequence[PointRow]) -> dict[str, list[str]]:
    """Swept fields and their values, in the order of the sweep."""
    values_of: dict[str, dict[str, None]] = {}
    for point in points:
        for name, value in point.parameters:
            values_of.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in values_of.items()}


def default_x(axes: Mapping[str, Sequence[str]]) -> str:
    """The field with the most quantities; without any, the one with the most values."""
    if not axes:
        return ""
    numeric = [name for name, values in axes.items() if len(values) > 2 and quantities(values) is not None]
    return max(numeric or axes, key=lambda name: len(axes[name]))


def of_points(
    points: Sequence[PointRow], rows: Sequence[TableRow], *, title: str, unit: str, metric: str,
    subject: str, x_field: str, fixed: Mapping[str, str], published: Sequence[PublishedValue] = (),
) -> Means:  # fmt: skip
    """Means of a metric along one swept field; a group for each combination of the others.

    Args:
        points: of the store.
        rows: of the store.
        title: of the metric.
        unit: its unit kind.
        metric: which rows.
        subject: of the metric.
        x_field: the field along the x axis; empty: there is one point.
        fixed: fields held at one value.
        published: drawn beside.
    """
    row_of_point = {row.point: row for row in rows if row.name == metric and row.subject == subject}
    groups: dict[str, Group] = {}
    places: dict[str, None] = {}
    keys: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}
    for point in points:
        parameters = dict(point.parameters)
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
        row = row_of_point.get(point.number)
        if row is not None:
            group.means.append(Mean(x, estimate(metric, unit, row.values)))
    for published_value in published:
        # A cell names a point by its labels: an axis is a field, or the last word of one.
        for parameters_, (label, x) in (
            keys.items() if (published_value.metric, published_value.subject) == (metric, subject) else ()
        ):
            here = dict(parameters_) | {name.rpartition(".")[2]: value for name, value in parameters_}
            if published_value.cell and all(here.get(axis) == wanted for axis, wanted in published_value.cell.items()):
                groups[label].published.append((x, published_value.value))
    known, ordered, kept = quantities(list(places)), list(places), list(groups.values())
    if known is not None:
        ordered = [place for _, place in sorted(zip(known[1], ordered, strict=True))]
    return Means(
        title=title, metric=metric, subject=subject, unit=unit, x_field=x_field, places=ordered,
        sizes=None if known is None else sorted(known[1]), kind=known[0] if known else "",
        groups=kept[:MOST_SERIES], undrawn=kept[MOST_SERIES:],
    )  # fmt: skip


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
    places = list(dict.fromkeys(mean.place for group in groups.values() for mean in group.means))
    return Means(
        _title(metric), metric, "", rows["unit"][0], "", places, None, "", list(groups.values()), interval=interval
    ).over_names()


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
    return Means(
        _title(metric), metric, "", rows["unit"][0], axis, [text for _, text in order], [size for size, _ in order],
        known[0], list(groups.values()), interval=interval,
    ).over_quantities()  # fmt: skip


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
        look = style_of(number)
        series.append(Series(label, "steps", distribution(values, size), look.colour, dash=look.dash))
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
        matches = [name for name in names if name == asked or name.endswith("." + asked)]
        if len(matches) != 1:
            raise unknown("swept field", asked, names)
        return matches[0]
    numeric = [name for name in names if quantities([str(text) for text in table[name].unique()]) is not None]
    if len(numeric) != 1:
        listed = ", ".join(numeric or names) or "none"
        raise AnalysisError(f"--axis must say which swept field is the axis; there are: {listed}")
    return numeric[0]
