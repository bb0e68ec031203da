"""Figures of a campaign: a metric over a swept field, a metric at every point, and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from analysis.errors import AnalysisError, unknown
from analysis.figures.means import (
    MOST_GROUPS,
    MOST_SERIES,
    Group,
    Mean,
    Means,
    number_of,
    ordered,
    place_label,
    quantities,
)
from analysis.figures.model import Axis, Figure, Series, axis_scale, style_of
from analysis.metrics import METRICS, title_of
from analysis.metrics.registry import estimate
from analysis.results import of_subject
from analysis.store.rows import PointRow, TableRow
from analysis.swept import field_of

#: Means that span more than this factor are drawn on a logarithmic axis.
LOG_Y_FROM = 30


@dataclass(frozen=True)
class PublishedValue:
    """A published value of a stored metric, in the SI unit."""

    metric: str
    subject: str
    #: Axis to label.
    cell: Mapping[str, str]
    value: float


# From stored rows ----------------------------------------------------------------------------------------------------


def default_x(axes: Mapping[str, Sequence[str]]) -> str:
    """The field with the most quantities; without any, the one with the most values."""
    if not axes:
        return ""
    numeric = [name for name, values in axes.items() if len(values) > 2 and quantities(values) is not None]
    return max(numeric or axes, key=lambda name: len(axes[name]))


def of_points(
    points: Sequence[PointRow],
    rows: Sequence[TableRow],
    *,
    title: str,
    unit: str,
    metric: str,
    subject: str,
    x_field: str,
    fixed: Mapping[str, str],
    published: Sequence[PublishedValue] = (),
) -> Means:
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
        label = place_label({name: parameters[name] for name in parameters if name not in (x_field, *fixed)})
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
    known, kept = quantities(list(places)), list(groups.values())
    return Means(
        title=title,
        metric=metric,
        subject=subject,
        unit=unit,
        x_field=x_field,
        places=ordered(list(places)),
        sizes=None if known is None else sorted(known[1]),
        kind=known[0] if known else "",
        groups=kept[:MOST_SERIES],
        undrawn=kept[MOST_SERIES:],
    )


# From tables of `analysis.means` and `analysis.values` ---------------------------------------------------------------


def fields(table: pl.DataFrame) -> list[str]:
    """The swept fields of a table of `analysis.means` or `analysis.values`: its columns before `point`."""
    return table.columns[: table.columns.index("point")]


def within(table: pl.DataFrame, where: Mapping[str, str]) -> pl.DataFrame:
    """The rows that have the values of some swept fields.

    Args:
        table: of `analysis.means` or `analysis.values`.
        where: field, or its last words, to value.

    Raises:
        AnalysisError: unknown field or value.
    """
    for name, value in where.items():
        field = field_of(name, fields(table))
        swept = [str(text) for text in table[field].unique(maintain_order=True)]
        if value not in swept:
            raise unknown(f"value of {field}", value, swept)
        table = table.filter(pl.col(field) == value)
    return table


def bars(table: pl.DataFrame, metric: str, subjects: Sequence[str] = (), interval: str = "confidence") -> Figure:
    """Bars with error bars: of several subjects a group for each point, one bar for each subject; of one subject a
    group for each combination of the other fields, one bar for each value of a field of names.

    Args:
        table: of `analysis.means`.
        metric: its name.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
    """
    rows, shown = _chosen(table, metric, subjects)
    names = [name for name in fields(table) if rows[name].n_unique() > 1] or fields(table)[:1]
    few = [name for name in names if rows[name].n_unique() <= MOST_SERIES] if len(names) > 1 and len(shown) == 1 else []
    colour = max(few, key=lambda name: (not _is_numeric(rows, name), rows[name].n_unique()), default="")
    along = [name for name in names if name != colour]
    groups: dict[str, Group] = {}
    for row in rows.to_dicts():
        label = str(row[colour]) if colour else row["subject"] if len(shown) > 1 else ""
        group = groups.setdefault(label, Group(label))
        group.means.append(Mean(_short_name(row, along), estimate(metric, row["unit"], row["values"])))
    places = list(dict.fromkeys(mean.place for group in groups.values() for mean in group.means))
    means = Means(
        _title(metric, shown),
        metric,
        "",
        rows["unit"][0],
        "",
        places,
        None,
        "",
        list(groups.values()),
        interval=interval,
    ).over_names()
    return _with_note(means, len(places) - MOST_GROUPS, "places")


def sweep(
    table: pl.DataFrame, metric: str, axis: str = "", subjects: Sequence[str] = (), interval: str = "confidence"
) -> Figure:
    """A metric over a swept field: a line for each combination of the other fields and each subject.

    Args:
        table: of `analysis.means`.
        metric: its name.
        axis: the field, or its last words; without it the one with the most quantities.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
    """
    rows, shown = _chosen(table, metric, subjects)
    axis = _axis(table, axis)
    others = [name for name in fields(table) if name != axis and rows[name].n_unique() > 1]
    texts = [str(text) for text in rows[axis].unique(maintain_order=True)]
    axis_values = quantities(texts)
    if axis_values is None:
        odd = next((text for text in texts if number_of(text) is None), texts[0])
        raise AnalysisError(f"{axis} cannot be an axis: its value '{odd}' is not a quantity; a bar chart shows it")
    order = sorted(zip(axis_values[1], texts, strict=True))
    groups: dict[tuple[str, ...], Group] = {}
    for row in rows.to_dicts():
        name = _short_name(row, others) if others else ""
        apart = row["subject"] if len(shown) > 1 else ""
        label = ", ".join(part for part in (name, apart) if part)
        group = groups.setdefault((name, row["subject"]), Group(label))
        group.means.append(Mean(str(row[axis]), estimate(metric, row["unit"], row["values"])))
    means = Means(
        _title(metric, shown),
        metric,
        "",
        rows["unit"][0],
        axis,
        [text for _, text in order],
        [size for size, _ in order],
        axis_values[0],
        list(groups.values())[:MOST_SERIES],
        interval=interval,
    ).over_quantities()
    return _with_note(means, len(groups) - MOST_SERIES, "lines")


def _with_note(figure: Figure, left_out: int, what: str) -> Figure:
    """A figure that says how much it has no room for; with a logarithmic axis where its values lie far apart."""
    means = [value for series in figure.series if series.kind in ("line", "bars") for value in series.points["y"]]
    sizes = [value for value in means if value is not None and value > 0]
    if sizes and max(sizes) >= LOG_Y_FROM * min(sizes):
        # A bar begins at 0, which a logarithmic axis does not have: dots with their intervals take its place.
        series = [replace(each, kind="points", size=5) if each.kind == "bars" else each for each in figure.series]
        figure = replace(figure, y=replace(figure.y, log=True), series=tuple(series))
        if 0 in means:
            figure = replace(figure, notes=(*figure.notes, "0 cannot be shown on this axis"))
    if left_out > 0:
        note = f"{left_out} more {what} are left out; --where FIELD=VALUE chooses"
        figure = replace(figure, notes=(*figure.notes, note))
    return figure


def cdf(samples: Mapping[str, Sequence[float]], title: str, unit: str) -> Figure:
    """The empirical distribution of samples, P(X <= x): a step of 1/n at every value.

    Args:
        samples: by the name of a curve, in the SI unit; the legend names a curve without samples.
        title: of the quantity.
        unit: a metric's unit kind.
    """
    everything = [value for values in samples.values() for value in values]
    if not everything:
        raise AnalysisError(f"no sample of {title} to draw")
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
    rows, shown = _chosen(table, metric, subjects)
    names = fields(table)
    curves: dict[str, list[float]] = {}
    for row in rows.to_dicts():
        apart = [row["subject"]] if len(shown) > 1 and not pooled else []
        curves.setdefault(", ".join([_point_name(row, names), *apart]), []).append(row["value"])
    drawn = dict(list(curves.items())[:MOST_SERIES])
    return _with_note(cdf(drawn, _title(metric, shown), rows["unit"][0]), len(curves) - MOST_SERIES, "curves")


def _chosen(table: pl.DataFrame, metric: str, subjects: Sequence[str]) -> tuple[pl.DataFrame, list[str]]:
    """The rows of a metric, and its subjects in their order."""
    rows = table.filter(pl.col("metric") == metric)
    if rows.is_empty():
        if metric in METRICS:
            raise AnalysisError(
                f"no run of this campaign has a value of {metric}; 'results --metric {metric}' says why"
            )
        raise unknown("metric of this campaign", metric, sorted(set(table["metric"])))
    existing = list(dict.fromkeys(rows["subject"]))
    for subject in subjects:
        if subject not in existing:
            raise unknown(f"subject of {metric}", subject, existing)
    shown = list(subjects) or existing
    return rows.filter(pl.col("subject").is_in(shown)), shown


def _point_name(row: Mapping[str, str | None], names: Sequence[str]) -> str:
    if len(names) == 1:
        return str(row[names[0]])
    return ", ".join(f"{name.rpartition('.')[2]}={row[name]}" for name in names) or "all runs"


def _title(metric: str, subjects: Sequence[str] = ()) -> str:
    return of_subject(title_of(metric), subjects[0] if len(subjects) == 1 else "")


def _short_name(row: Mapping[str, str | None], names: Sequence[str]) -> str:
    """Values of fields: "droptail, 9.6 kbit/s"; bare numbers with the field's last word."""
    parts = [
        f"{name.rpartition('.')[2]} {row[name]}" if str(row[name]).replace(".", "").isdigit() else str(row[name])
        for name in names
    ]
    return ", ".join(parts) or "all runs"


def _is_numeric(table: pl.DataFrame, name: str) -> bool:
    return quantities([str(text) for text in table[name].unique()]) is not None


def _axis(table: pl.DataFrame, asked: str) -> str:
    if asked:
        return field_of(asked, fields(table))
    names = fields(table)
    numeric = [name for name in names if _is_numeric(table, name)]
    if not numeric:
        raise AnalysisError(
            f"no swept field has quantities, which a sweep needs; swept fields: {', '.join(names) or 'none'}. "
            "`plot bars` draws names"
        )
    return max(numeric, key=lambda name: table[name].n_unique())
