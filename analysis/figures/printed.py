"""Figures as files: matplotlib draws them as SVG, PDF or PNG. Equal figures give equal files.

matplotlib takes most of a second to load, so import this module only where a file is written.
"""

from __future__ import annotations

import io
import math
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.errors import ending_of, writing
from analysis.figures import page
from analysis.figures.model import DARK_FROM, LEVELS, PALETTE, Axis, Figure, Series, fitted

#: Suffixes of the files that `save` writes.
FORMATS = ("svg", "pdf", "png", "html")
#: Inches: one column of a two-column paper.
WIDTH_IN, HEIGHT_IN = 5.0, 3.2
#: Series of more points are drawn as an image inside the vector file, at RASTER_DPI.
MOST_VECTORS, RASTER_DPI = 20_000, 400
#: Letters of a line of the y axis' title.
MOST_LETTERS = 32
#: Inches of a letter of the notes and of the legend, on average, and of what is beside them on the sheet.
NOTE_LETTER_IN, BESIDE_NOTE_IN = 0.047, 1.1
LEGEND_LETTER_IN, BESIDE_NAME_IN = 0.055, 0.45
#: Inches of a row of the legend. The sheet has room for two; where it has more, it is taller.
LEGEND_ROW_IN = 0.18
#: Inches that a letter of the longest name below the axis adds to the sheet, and letters that have room already.
TICK_LETTER_IN, TICK_LETTERS = 0.03, 20

_MARKERS = {
    "": "",
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "cross": "x",
    "tick": "|",
    "dash": "_",
}
_SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "svg.hashsalt": "backchannel",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}
#: matplotlib's settings are global.
_lock = threading.Lock()


def draw(figure: Figure) -> Sheet:
    """The figure as matplotlib's own object, for scripts that change it further."""
    with _lock, matplotlib.rc_context(_SETTINGS):
        return _draw(figure)


def rendered(figure: Figure, ending: str, text: bool = False) -> bytes:
    """The file of a figure.

    Args:
        figure: the figure.
        ending: svg, pdf or png.
        text: keep the words of an SVG as text instead of outlines.
    """
    # Without these, matplotlib writes the date.
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending, {})
    file = io.BytesIO()
    with _lock, matplotlib.rc_context({**_SETTINGS, "svg.fonttype": "none" if text else "path"}):
        _draw(figure).savefig(file, format=ending, dpi=RASTER_DPI, metadata=metadata)
    return file.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as SVG, PDF, PNG or self-contained HTML page, by the file's suffix.

    Raises:
        AnalysisError: another suffix, or the file cannot be written.
    """
    ending = ending_of(path, "figure", FORMATS)
    with writing(path):
        path.write_bytes(page.page(figure).encode() if ending == "html" else rendered(figure, ending))


def _draw(figure: Figure) -> Sheet:
    bars = sum(line.points.height for line in figure.series if line.kind == "bars")
    wide = max(WIDTH_IN, min(1.4 + 0.22 * bars, 2 * WIDTH_IN), min(1.2 + 0.5 * len(figure.x.ticks), 2.5 * WIDTH_IN))
    handles, columns = _legend(figure, wide)
    rows = sum(str(handle.get_label()).count("\n") + 1 for handle in handles) / columns
    tall = HEIGHT_IN + LEGEND_ROW_IN * max(len(_named(figure)) > 3, math.ceil(rows) - 2)
    # Long names slant below the axis, and the title beside it needs its height.
    tall += TICK_LETTER_IN * max([0, *(len(label) - TICK_LETTERS for _, label in figure.x.ticks)])
    sheet = Sheet(figsize=(wide, tall))
    axes = sheet.add_subplot()
    # A line that is longer than the axes would make them narrower.
    notes = textwrap.wrap("; ".join(figure.notes), int((wide - BESIDE_NOTE_IN) / NOTE_LETTER_IN))
    if figure.title:
        # The notes stand between the title and the axes.
        axes.set_title(figure.title, loc="left", pad=6 + 8 * len(notes) if notes else None)
    for number, line in enumerate(figure.series):
        _series(axes, line, 2 + 0.01 * number + (1 if line.keep_all or line.hollow else 0))
    for place, name in figure.verticals:
        axes.axvline(place, color=PALETTE["soft"], ls=":", lw=0.9, label=name)
    _scale(axes, "x", figure.x, figure)
    _scale(axes, "y", figure.y, figure)
    for line in figure.series:
        _cut_intervals(axes, line)
    if figure.is_empty:
        axes.text(0.5, 0.5, figure.empty or "no data", transform=axes.transAxes, ha="center", color=PALETTE["soft"])
    if notes:
        axes.annotate(
            "\n".join(notes),
            (1, 1),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=6.5,
            color=PALETTE["soft"],
        )
    if handles:
        # Below the axes: inside, it would cover what is compared.
        sheet.legend(handles=handles, loc="outside lower center", ncols=columns)
    return sheet


def _series(axes: Axes, series: Series, order: float) -> None:
    points = series.points.filter(pl.col("x").is_finite() & pl.col("y").is_finite())
    if series.kind == "line":
        # A place without a value interrupts a line, as on the page.
        kept = pl.col("y").is_null() | pl.col("y").is_finite()
        points = series.points.filter(pl.col("x").is_finite() & kept).with_columns(pl.col("y").fill_null(float("nan")))
    colour, rough = PALETTE[series.colour], points.height > MOST_VECTORS
    x, y = points["x"], points["y"]
    look: dict[str, Any] = {"color": colour, "zorder": order, "rasterized": rough}
    if "high" in points.columns:
        known = points.filter(pl.col("low").is_not_null() & pl.col("high").is_not_null())
        reach = [known["y"] - known["low"], known["high"] - known["y"]]
        axes.errorbar(
            known["x"],
            known["y"],
            yerr=reach,
            fmt="none",
            capsize=2.5,
            elinewidth=0.9,
            zorder=order + 0.5,
            ecolor=PALETTE["ink"] if series.kind == "bars" else colour,
        )
    if series.kind == "segments":
        bars = [((t, low), (t, high)) for t, low, high in points.select("x", "low", "y").iter_rows()]
        drawn = LineCollection(
            bars, colors=colour, linewidths=series.size or 0.9, capstyle="butt", rasterized=rough, zorder=order
        )
        axes.add_collection(drawn)
    elif series.kind == "bars":
        axes.bar(x, y, series.width, zorder=order, **_fill(series, colour))
    elif series.kind == "cells":
        fill = _fill(series, colour)
        axes.bar(x, series.width, series.width, bottom=y - series.width / 2, zorder=order, **fill)
        dark = series.colour in LEVELS[DARK_FROM:] and not series.hollow
        for left, top, label in points.select("x", "y", "label").iter_rows():
            axes.text(
                left,
                top,
                label,
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark else PALETTE["ink"],
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8} if series.hollow else None,
            )
    elif series.kind == "points":
        size = series.size * 0.7 or (4.0 if points.height < 200 else 2.0)
        thin = series.marker in ("cross", "tick", "dash")
        axes.plot(
            x,
            y,
            _MARKERS[series.marker or "circle"],
            ms=size,
            ls="none",
            mfc="white" if series.hollow else colour,
            mec=colour,
            mew=1.2 if series.hollow else 0.8 if thin else 0,
            **look,
        )
    else:
        axes.plot(
            x,
            y,
            lw=series.size or 1.4,
            ls=(0, series.dash) if series.dash else "-",
            ms=4,
            marker=_MARKERS[series.marker],
            drawstyle="steps-post" if series.kind == "steps" else "default",
            **look,
        )


def _fill(series: Series, colour: str) -> dict[str, Any]:
    """How a bar or a cell is filled."""
    return (
        {"facecolor": "white", "edgecolor": colour, "hatch": "////", "lw": 0.6} if series.hollow else {"color": colour}
    )


def _cut_intervals(axes: Axes, series: Series) -> None:
    """An arrow head at the edge of the axes for each error interval that goes on beyond it."""
    if "high" not in series.points.columns:
        return
    bottom, top = axes.get_ylim()
    colour = PALETTE["ink" if series.kind == "bars" else series.colour]
    for column, edge, beyond, marker in (
        ("high", top, pl.col("high") > top, "^"),
        ("low", bottom, pl.col("low") < bottom, "v"),
    ):
        cut = series.points.filter(pl.col(column).is_finite() & beyond)
        if cut.height:
            axes.plot(cut["x"], [edge] * cut.height, marker, ms=5, color=colour, clip_on=False, zorder=9)


def _scale(axes: Axes, name: str, axis: Axis, figure: Figure) -> None:
    """Limits, ticks and title of one axis. What lies outside the limits is clipped."""
    of = axes.xaxis if name == "x" else axes.yaxis
    if axis.log:
        axes.set(**{f"{name}scale": "log"})
    if axis.ticks:
        places, labels = [place for place, _ in axis.ticks], [label for _, label in axis.ticks]
        of.set_ticks(places, labels)
        of.set_ticks([], minor=True)
        if name == "x" and max(map(len, labels)) > 60 / len(labels):
            axes.tick_params("x", rotation=25)
            for label in axes.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
        if any(line.kind == "bars" for line in figure.series) and name == "x":
            axes.grid(visible=False, axis="x")
    elif axis.integers:
        of.set_major_locator(MaxNLocator(integer=True))
    low, high = axis.range or fitted(axis, figure, name)
    axes.set(**{f"{name}lim": (low, high)})
    if axis.log and not axis.ticks:
        of.set_major_formatter(_decimals(high / low < 1000))
        of.set_minor_formatter(_decimals(high / low < 1000))
    # A long title beside the axis would leave the sheet.
    axes.set(**{f"{name}label": axis.label if name == "x" else textwrap.fill(axis.label, MOST_LETTERS)})


def _decimals(few: bool) -> Callable[[float, float], str]:
    """Labels of a logarithmic axis: powers of ten as numbers, and if they are few, twice and five times them."""

    def label(value: float, _: float) -> str:
        first = f"{value:e}"[0]
        return f"{value:g}" if first == "1" or (few and first in "25") else ""

    return label


def _named(figure: Figure) -> list[Series]:
    """Series by the names of the legend, each once."""
    shown = [line for line in reversed(figure.series) if line.name and (line.points.height or figure.x.range is None)]
    return list({line.name: line for line in shown}.values())[::-1]


def _legend(figure: Figure, wide: float) -> tuple[list[Artist], int]:
    """The entries of the legend, none where it would tell nothing apart, and its columns on a sheet of this width."""
    named = _named(figure)
    handles: list[Artist] = []
    if len(named) + len(figure.verticals) < 2 and not any(line.hollow for line in named):
        return handles, 1
    for line in named:
        colour = PALETTE[line.colour]
        name = f"{line.name} ({line.points.height})" if line.keep_all else line.name
        name = textwrap.fill(name, int((wide - BESIDE_NAME_IN) / LEGEND_LETTER_IN))
        if line.kind in ("bars", "cells"):
            handles.append(Patch(label=name, **_fill(line, colour)))
            continue
        joined = line.kind in ("line", "steps", "segments")
        handles.append(
            Line2D(
                [],
                [],
                color=colour,
                label=name,
                ls=("-" if not line.dash else (0, line.dash)) if joined else "none",
                marker=_MARKERS[line.marker] or ("" if joined else "o"),
                ms=5,
                mec=colour,
                mfc="white" if line.hollow else colour,
            )
        )
    handles += [Line2D([], [], color=PALETTE["soft"], ls=":", label=name) for _, name in figure.verticals]
    widest = max(len(str(handle.get_label())) for handle in handles)
    two_fit = 2 * (BESIDE_NAME_IN + widest * LEGEND_LETTER_IN) < wide
    return handles, 4 if widest < 16 else 3 if widest < 22 else 2 if two_fit else 1
