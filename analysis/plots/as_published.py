"""A campaign's figure as its file says it is drawn, beside the published values (analysis/drawn.py)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.drawn import Drawn
from analysis.errors import AnalysisError
from analysis.plots import style

#: Marks of published values: equal or about, at most, at least.
PUBLISHED = {"eq": "D", "approx": "D", "le": "v", "ge": "^"}


def as_published(drawn: Drawn) -> Figure:
    """The figure.

    Raises:
        AnalysisError: there is nothing to draw yet.
    """
    if not any(curve.points for curve in drawn.curves):
        raise AnalysisError(f"there is no value yet for the figure '{drawn.title}'")
    spec = drawn.spec
    places = {point.x for curve in drawn.curves for point in curve.points}
    wide = max(style.WIDTH_IN, 1.4 + 0.22 * len(places) * len(drawn.curves)) if spec.kind == "bars" else style.WIDTH_IN
    with style.figure(width_in=min(wide, 2 * style.WIDTH_IN), height_in=3.6) as (made, axes):
        # Room for the note between the title and the axes.
        axes.set_title(drawn.title, loc="left", pad=14)
        (_bars if spec.kind == "bars" else _lines)(axes, drawn)
        _frame(axes, drawn)
        return made


def _bars(axes: Axes, drawn: Drawn) -> None:
    width = 0.8 / max(len(drawn.curves), 1)
    for number, curve in enumerate(drawn.curves):
        offset = (number - (len(drawn.curves) - 1) / 2) * width
        there = [(point, point.mean) for point in curve.points if point.mean is not None]
        axes.bar(
            [point.x + offset for point, _ in there], [mean for _, mean in there], width * 0.92,
            color=style.COLOURS[number % len(style.COLOURS)], label=curve.name,
        )  # fmt: skip
        for point, mean in there:
            if point.low is not None and point.high is not None:
                reach = [[mean - point.low], [point.high - mean]]
                axes.errorbar(
                    [point.x + offset], [mean], yerr=reach, capsize=2, color="#222222", elinewidth=0.8, fmt="none"
                )
        for point in curve.points:
            for value, relation in point.published:
                _published(axes, point.x + offset, value, relation, "#000000")
    # One bar or two are no wider than three would be.
    least = max(len(drawn.ticks), 3) / 2
    middle = (len(drawn.ticks) - 1) / 2
    axes.set_xlim(middle - least, middle + least)
    axes.grid(visible=False, axis="x")


def _lines(axes: Axes, drawn: Drawn) -> None:
    spec, count = drawn.spec, len(drawn.curves)
    for number, curve in enumerate(drawn.curves):
        colour = style.COLOURS[number % len(style.COLOURS)]
        dash = ("-", "--", ":", "-.")[number // len(style.COLOURS) % 4]
        there = [(point, point.mean) for point in curve.points if point.mean is not None]
        xs, ys = [point.x for point, _ in there], [mean for _, mean in there]
        if spec.kind == "time":
            axes.plot(xs, ys, color=colour, ls=dash, lw=1.0 if count < 3 else 0.8, label=curve.name)
        elif spec.kind == "cdf":
            axes.step(xs[:1] + xs, [0.0, *ys], where="post", color=colour, ls=dash, label=curve.name)
        else:
            axes.plot(
                xs, ys, color=colour, ls="none" if spec.kind == "scatter" else dash, ms=4, label=curve.name,
                marker=style.MARKERS[number % len(style.MARKERS)],
            )  # fmt: skip
        for point, mean in there:
            if point.low is not None and point.high is not None:
                axes.errorbar(
                    [point.x], [mean], yerr=[[mean - point.low], [point.high - mean]], capsize=2, color=colour,
                    elinewidth=0.8, fmt="none",
                )  # fmt: skip
        for point in curve.points:
            for value, relation in point.published:
                _published(axes, point.x, value, relation, colour)


def _published(axes: Axes, x: float, value: float, relation: str, colour: str) -> None:
    axes.plot([x], [value], marker=PUBLISHED[relation], ms=6.5, mfc="white", mec=colour, mew=1.2, ls="none", zorder=5)


def _frame(axes: Axes, drawn: Drawn) -> None:
    spec = drawn.spec
    if drawn.ticks:
        labels = [label for _, label in drawn.ticks]
        long = max(map(len, labels)) > 62 / len(labels)
        axes.set_xticks(
            [place for place, _ in drawn.ticks], labels, rotation=25 if long else 0, ha="right" if long else "center",
            rotation_mode="anchor",
        )  # fmt: skip
    if spec.x.scale == "log":
        axes.set_xscale("log")
        ticks = sorted({point.x for curve in drawn.curves for point in curve.points})
        if len(ticks) <= 8:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
    if spec.y.scale == "log":
        axes.set_yscale("log")
    if spec.x.range is not None:
        axes.set_xlim(*spec.x.range)
    elif not drawn.ticks and spec.x.scale == "linear" and spec.kind != "cdf" and axes.get_xlim()[0] > 0:
        axes.set_xlim(left=0)
    if spec.y.range is not None:
        axes.set_ylim(*spec.y.range)
    elif spec.y.scale == "linear" and axes.get_ylim()[0] > 0:
        axes.set_ylim(bottom=0)
    if not drawn.ticks and not spec.x.unit and spec.kind != "cdf" and spec.x.scale == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(style.label(spec.x.title, spec.x.unit))
    axes.set_ylabel(style.label(spec.y.title, spec.y.unit))
    if drawn.has_published:
        axes.plot([], [], marker="D", ms=6, mfc="white", mec="#444444", mew=1.2, ls="none", label="published")
    if drawn.has_published or any(curve.name for curve in drawn.curves[1:]):
        handles, names = axes.get_legend_handles_labels()
        pairs = sorted(zip(names, handles, strict=True), key=lambda pair: pair[0] == "published")
        # Below the axes: inside, it would lie on what is compared.
        axes.figure.legend(
            [handle for _, handle in pairs],
            [name for name, _ in pairs],
            loc="outside lower center",
            ncols=3 if max(map(len, names)) < 22 else 2,
        )
    axes.annotate(drawn.note, (1, 1), xycoords="axes fraction", ha="right", va="bottom", fontsize=6.5, color="#666666")
