"""Figures of a campaign: points beside each other, over an axis, and distributions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.errors import AnalysisError, unknown
from analysis.metrics import METRICS
from analysis.plots import style
from testbed import units

#: What an error bar shows.
INTERVALS = {
    "t": "95 % confidence, Student's t", "bootstrap": "95 % confidence, bootstrap", "sd": "standard deviation",
}  # fmt: skip
#: A sweep of up to so many values has a tick at each of them.
MOST_TICKS = 8
#: Columns of `analysis.means` that are no swept fields.
_OWN = frozenset(
    ("point", "metric", "subject", "unit", "n", "mean", "sd", "t_low", "t_high", "bootstrap_low", "bootstrap_high",
     "repetition", "run_id", "value")
)  # fmt: skip


def _reach(row: Mapping[str, float | None], interval: str) -> tuple[float, float]:
    """How far the error bar goes down and up from the mean; nothing where one run tells nothing."""
    if interval not in INTERVALS:
        raise unknown("kind of error bar", interval, INTERVALS)
    mean = row["mean"] or 0.0
    if interval == "sd":
        return (row["sd"] or 0.0,) * 2
    low, high = row[f"{interval}_low"], row[f"{interval}_high"]
    return (0.0, 0.0) if low is None or high is None else (mean - low, high - mean)


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


def fields(table: pl.DataFrame) -> list[str]:
    """The swept fields of a table of `analysis.means` or `analysis.values`."""
    return [column for column in table.columns if column not in _OWN]


def _point_name(row: Mapping[str, str | None], names: Sequence[str]) -> str:
    if len(names) == 1:
        return str(row[names[0]])
    return ", ".join(f"{name.rpartition('.')[2]}={row[name]}" for name in names) or "all runs"


def _title(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric


def _foot(axes: Axes, interval: str, counts: Sequence[int]) -> None:
    runs = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    axes.annotate(
        f"means of {runs} runs; bars: {INTERVALS[interval]}", (1, 1), xycoords="axes fraction", ha="right", va="bottom",
        fontsize=6.5, color="#666666",
    )  # fmt: skip


def bars(table: pl.DataFrame, metric: str, subjects: Sequence[str] = (), interval: str = "t") -> Figure:
    """A group of bars for each point, one bar a subject, with error bars.

    Args:
        table: of `analysis.means`.
        metric: its name.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
    """
    rows, wanted = _chosen(table, metric, subjects)
    names = fields(table)
    size, unit = style.scale([value or 0.0 for value in rows["mean"]], rows["unit"][0])
    points = rows.unique("point", keep="first", maintain_order=True)
    place = {point: number for number, point in enumerate(points["point"])}
    width = 0.8 / len(wanted)
    with style.figure(width_in=max(style.WIDTH_IN, 1.2 + 0.5 * points.height)) as (made, axes):
        for number, subject in enumerate(wanted):
            own = rows.filter(pl.col("subject") == subject).to_dicts()
            reach = [_reach(row, interval) for row in own]
            axes.bar(
                [place[row["point"]] + (number - (len(wanted) - 1) / 2) * width for row in own],
                [row["mean"] / size for row in own], width * 0.92, color=style.COLOURS[number % len(style.COLOURS)],
                yerr=[[low / size for low, _ in reach], [high / size for _, high in reach]], capsize=2.5,
                error_kw={"lw": 0.9}, label=subject or _title(metric),
            )  # fmt: skip
        labels = [_point_name(row, names) for row in points.to_dicts()]
        long = max(map(len, labels)) > 60 / len(labels)
        axes.set_xticks(
            range(points.height), labels, rotation=25 if long else 0, ha="right" if long else "center",
            rotation_mode="anchor",
        )  # fmt: skip
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(style.label(_title(metric), unit))
        _foot(axes, interval, rows["n"].to_list())
        if len(wanted) > 1:
            axes.legend()
        return made


_QUANTITY = re.compile(r"\s*([-+0-9.eE]+)\s*(\S*)")


def number_of(text: str) -> tuple[float, str] | None:
    """A swept value as (SI number, unit kind): ("28.8 kbit/s") gives (28800, "rate"); None for what is no quantity."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    for kind in ("number",) if not found[2] else ("rate", "time", "bytes", "packets", "segments", "fraction"):
        try:
            return float(units.parse(text, kind)), kind
        except ValueError:
            continue
    return None


def sweep(
    table: pl.DataFrame, metric: str, axis: str = "", subjects: Sequence[str] = (), interval: str = "t",
    logarithmic: bool | None = None,
) -> Figure:  # fmt: skip
    """A metric over a swept field: a line for each combination of the other fields and each subject, with error bars.

    Args:
        table: of `analysis.means`.
        metric: its name.
        axis: the field, or its last words; the only one whose values are quantities without it.
        subjects: flows, groups or lines; all without any.
        interval: a key of INTERVALS.
        logarithmic: the axis; without it, when its values span more than a factor of 30.
    """
    rows, wanted = _chosen(table, metric, subjects)
    axis = _axis(table, axis)
    others = [name for name in fields(table) if name != axis]
    spelled = {text: found for text in rows[axis].unique() if (found := number_of(text)) is not None}
    if len(spelled) < rows[axis].n_unique():
        odd = next(text for text in rows[axis] if text not in spelled)
        raise AnalysisError(f"{axis} cannot be an axis: its value '{odd}' is no quantity; a bar chart shows it")
    kind = next(iter(spelled.values()))[1]
    size, unit = style.scale([value for value, _ in spelled.values()], kind)
    y_size, y_unit = style.scale([value or 0.0 for value in rows["mean"]], rows["unit"][0])
    positive = [value for value, _ in spelled.values() if value > 0]
    if logarithmic is None:
        logarithmic = len(positive) == len(spelled) and max(positive) / min(positive) > 30
    with style.figure() as (made, axes):
        keys = [(*(str(row[name]) for name in others), row["subject"]) for row in rows.to_dicts()]
        for number, key in enumerate(dict.fromkeys(keys)):
            own = [row for row, its in zip(rows.to_dicts(), keys, strict=True) if its == key]
            own.sort(key=lambda row: spelled[row[axis]][0])
            reach = [_reach(row, interval) for row in own]
            name = _point_name(dict(zip(others, key[:-1], strict=True)), others) if others else ""
            axes.errorbar(
                [spelled[row[axis]][0] / size for row in own], [row["mean"] / y_size for row in own],
                yerr=[[low / y_size for low, _ in reach], [high / y_size for _, high in reach]], capsize=2.5, ms=4,
                elinewidth=0.8, marker=style.MARKERS[number % len(style.MARKERS)],
                color=style.COLOURS[number % len(style.COLOURS)],
                ls=("-", "--", ":", "-.")[wanted.index(key[-1]) % 4],
                label=", ".join(part for part in (name, key[-1] if len(wanted) > 1 else "") if part),
            )  # fmt: skip
        if logarithmic:
            axes.set_xscale("log")
        ticks = sorted({value / size for value, _ in spelled.values()})
        if len(ticks) <= MOST_TICKS:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
        if axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(style.label(axis, unit))
        axes.set_ylabel(style.label(_title(metric), y_unit))
        _foot(axes, interval, rows["n"].to_list())
        if len(set(keys)) > 1:
            axes.legend()
        return made


def _axis(table: pl.DataFrame, asked: str) -> str:
    names = fields(table)
    if asked:
        found = [name for name in names if name == asked or name.endswith("." + asked)]
        if len(found) != 1:
            raise unknown("swept field", asked, names)
        return found[0]
    quantities = [name for name in names if all(number_of(str(text)) is not None for text in table[name].unique())]
    if len(quantities) != 1:
        listed = ", ".join(quantities or names) or "none"
        raise AnalysisError(f"--axis must say which swept field is the axis; there are: {listed}")
    return quantities[0]


def cdf(samples: Mapping[str, Sequence[float]], title: str, unit: str) -> Figure:
    """The empirical distribution of samples, P(X <= x): a step of 1/n at every value.

    Args:
        samples: name of a curve to its samples, in the SI unit; a curve without samples is told in the legend.
        title: of the quantity.
        unit: a metric's unit.
    """
    everything = [value for values in samples.values() for value in values]
    if not everything:
        raise AnalysisError(f"there is no sample of {title} to draw")
    size, unit_name = style.scale(everything, unit)
    with style.figure() as (made, axes):
        for number, (name, values) in enumerate(samples.items()):
            ordered = sorted(values)
            shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
            axes.step(
                [*(value / size for value in ordered[:1]), *(value / size for value in ordered)],
                [*([0.0] if ordered else []), *shares], where="post",
                color=style.COLOURS[number % len(style.COLOURS)],
                ls=("-", "--", ":", "-.")[number // len(style.COLOURS) % 4],
                label=f"{name} ({len(ordered)})" if name else f"{len(ordered)} samples",
                rasterized=len(ordered) > style.MOST_VECTORS,
            )  # fmt: skip
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(style.label(title, unit_name))
        axes.set_ylabel("share of samples")
        axes.legend(loc="lower right")
        return made


def cdf_of_runs(table: pl.DataFrame, metric: str, subjects: Sequence[str] = (), *, pooled: bool = False) -> Figure:
    """The distribution of a metric over runs: a curve for each point and subject.

    Args:
        table: of `analysis.values`.
        metric: its name.
        subjects: flows, groups or lines; all without any.
        pooled: the subjects' values together, a curve for each point.
    """
    rows, wanted = _chosen(table, metric, subjects)
    names = fields(table)
    curves: dict[str, list[float]] = {}
    for row in rows.to_dicts():
        apart = [row["subject"]] if len(wanted) > 1 and not pooled else []
        curves.setdefault(", ".join([_point_name(row, names), *apart]), []).append(row["value"])
    return cdf(curves, _title(metric), rows["unit"][0])
