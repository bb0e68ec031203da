"""A figure as one interactive page: a file that needs nothing else, neither the site nor a network.

What is drawn is taken from the figure itself, so that every kind of figure has its page. Long series are thinned
(analysis/thinning.py), except those that `keep_all` names.
"""

from __future__ import annotations

import html
import json
import math
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colors
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator

from analysis.errors import AnalysisError
from analysis.thinning import View, thin

#: A series of more points than this is thinned to about so many.
MOST_POINTS = 20_000

_SCRIPT = Path(__file__).with_name("page.js")
_LOOK = _SCRIPT.with_suffix(".css")
#: Nothing is loaded from anywhere.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
_DASHES = {"--": [6, 3], ":": [2, 3], "-.": [6, 3, 2, 3]}
_USE = (
    "Drag to zoom, drag with Shift to move, turn the wheel to zoom around the pointer, double-click to see all. "
    "Keys: + and -, 0 for all, arrows to move. A click on a name hides or shows its series."
)


_KEPT: weakref.WeakSet[Artist] = weakref.WeakSet()
_BEYOND: weakref.WeakSet[Artist] = weakref.WeakSet()


def keep_all(*drawn: Artist) -> None:
    """These are what people look for (losses, retransmissions): a page thins them never, however many there are."""
    _KEPT.update(drawn)


def keeps_all(drawn: Artist) -> bool:
    """Whether `keep_all` was said of it."""
    return drawn in _KEPT


def beyond(*drawn: Artist) -> None:
    """These may lie far from the rest (a window): what is in view does not make room for them."""
    _BEYOND.update(drawn)


def is_beyond(drawn: Artist) -> bool:
    """Whether `beyond` was said of it."""
    return drawn in _BEYOND


def page(figure: Figure) -> str:
    """The page of a figure.

    Raises:
        AnalysisError: the figure has something that no page can show.
    """
    panels = [_panel(axes) for axes in figure.axes]
    titles = [panel["title"] for panel in panels if panel["title"]] or ["Figure"]
    # Within a script element nothing may look like its end.
    data = json.dumps(panels, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(titles[0])}</title>
<style>
{_LOOK.read_text(encoding="utf-8")}</style>
</head>
<body>
<main></main>
<footer>{html.escape(_USE)}</footer>
<noscript><p>This figure needs JavaScript.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>
{_SCRIPT.read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _panel(axes: Axes) -> dict[str, Any]:
    series = [_fewer(one) for one in _series(axes)]
    return {
        "title": axes.get_title(loc="left") or axes.get_title(),
        "x": _axis(axes.xaxis, axes.get_xlim(), axes.get_xscale()),
        "y": _axis(axes.yaxis, axes.get_ylim(), axes.get_yscale()),
        "series": series,
        "notes": [text.get_text() for text in axes.texts if text.get_text()],
    }


def _axis(axis: Axis, limits: tuple[float, float], kind: str) -> dict[str, Any]:
    if kind not in ("linear", "log"):
        raise AnalysisError(f"a page has linear and logarithmic axes, and this figure has a '{kind}' one")
    fixed = isinstance(axis.get_major_locator(), FixedLocator)
    ticks = [
        [float(place), label.get_text()]
        for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
    ]
    return {
        "label": axis.get_label().get_text(), "limits": [float(end) for end in limits], "log": kind == "log",
        "ticks": ticks if fixed else None,
    }  # fmt: skip


def _series(axes: Axes) -> Iterator[dict[str, Any]]:
    """What the axes show, what is painted last at the end."""
    found: list[tuple[float, dict[str, Any]]] = []
    done: set[int] = set()
    # Error bars of bars go by the bars' name.
    of_bars = {id(held.errorbar): held.get_label() for held in axes.containers if isinstance(held, BarContainer)}
    for held in axes.containers:
        if isinstance(held, ErrorbarContainer):
            name = _name(of_bars.get(id(held), held.get_label()))
            data, caps, bars = held.lines
            done |= {id(one) for one in (data, *caps, *bars)}
            if data is not None:
                found.append((data.get_zorder(), _line(data, name)))
            found += [(one.get_zorder() + 0.1, _bars(one, name)) for one in bars]
        elif isinstance(held, BarContainer):
            done |= {id(one) for one in held.patches}
            if held.patches:
                found.append((held.patches[0].get_zorder(), _boxes(held.patches, _name(held.get_label()))))
    lines = [one for one in axes.lines if id(one) not in done]
    found += [(one.get_zorder(), _line(one, _name(one.get_label()), axes)) for one in lines]
    for one in axes.collections:
        if id(one) in done:
            continue
        name = _name(one.get_label())
        if isinstance(one, LineCollection):
            found.append((one.get_zorder(), _bars(one, name)))
        elif isinstance(one, PathCollection):
            x, y = np.asarray(one.get_offsets(), dtype=float).reshape(-1, 2).T
            colour = _colour(one.get_facecolor())
            found.append((one.get_zorder(), {**_look("dots", name, colour, 3.0), "x": x, "y": y, "all": True}))
        else:
            raise AnalysisError(f"a page cannot show a {type(one).__name__}, which this figure has; SVG and PDF can")
    for patch in axes.patches:
        if id(patch) in done:
            continue
        if not isinstance(patch, Rectangle):
            raise AnalysisError(f"a page cannot show a {type(patch).__name__}, which this figure has; SVG and PDF can")
        found.append((patch.get_zorder(), _boxes([patch], _name(patch.get_label()))))
    yield from (one for _, one in sorted(found, key=lambda pair: pair[0]))


def _name(label: object) -> str:
    # matplotlib's own names for what has none begin with an underscore.
    return "" if str(label).startswith("_") else str(label)


def _look(kind: str, name: str, colour: str, width: float) -> dict[str, Any]:
    return {"kind": kind, "name": name, "colour": colour, "width": width}


def _colour(of: Any) -> str:
    rgba = np.atleast_2d(colors.to_rgba_array(of))
    return colors.to_hex(rgba[0], keep_alpha=True) if len(rgba) else "#000000ff"


def _line(line: Line2D, name: str, axes: Axes | None = None) -> dict[str, Any]:
    x, y = (np.asarray(values, dtype=float) for values in (line.get_xdata(), line.get_ydata()))
    marked = line.get_marker() not in ("None", "", " ", None)
    lined = line.get_linestyle() not in ("None", "", " ")
    kind = "dots"
    if lined:
        kind = {"steps-post": "after", "steps-pre": "before", "steps": "before"}.get(line.get_drawstyle(), "line")
    made = _look(kind, name, _colour(line.get_color() if lined else _ink(line)), float(line.get_linewidth()))
    if axes is not None and line.get_transform() == axes.get_xaxis_transform(which="grid"):
        # A vertical line from edge to edge.
        return {**made, "kind": "vertical", "x": x[:1], "y": np.zeros(min(x.size, 1)), "all": True}
    if lined and marked:
        made["marks"] = float(line.get_markersize())
    if not lined:
        made["width"] = float(line.get_markersize())
    dash = _DASHES.get(str(line.get_linestyle()))
    if dash is not None:
        made["dash"] = dash
    return {**made, "x": x, "y": y, "all": keeps_all(line), "beyond": is_beyond(line)}


def _ink(line: Line2D) -> Any:
    face = line.get_markerfacecolor()
    return line.get_markeredgecolor() if str(face).lower() in ("none", "auto") else face


def _bars(lines: LineCollection, name: str) -> dict[str, Any]:
    """Upright bars: from `low` to `y`."""
    segments = [np.asarray(one, dtype=float) for one in lines.get_segments()]
    if any(one.shape != (2, 2) or one[0, 0] != one[1, 0] for one in segments):
        raise AnalysisError("a page shows upright bars, and this figure has others; SVG and PDF can show them")
    ends = np.asarray(segments).reshape(-1, 2, 2)
    width = float(np.atleast_1d(lines.get_linewidth())[0])
    return {
        **_look("bars", name, _colour(lines.get_colors()), width), "x": ends[:, 0, 0], "low": ends[:, 0, 1],
        "y": ends[:, 1, 1], "all": keeps_all(lines),
    }  # fmt: skip


def _boxes(patches: Sequence[Any], name: str) -> dict[str, Any]:
    """Boxes around `x`, `half` wide to either side, from `low` to `y`."""
    boxes = [one for one in patches if isinstance(one, Rectangle)]
    return {
        **_look("boxes", name, _colour(boxes[0].get_facecolor()) if boxes else "#000000ff", 1.0),
        "x": np.array([one.get_x() + one.get_width() / 2 for one in boxes]),
        "half": np.array([abs(one.get_width()) / 2 for one in boxes]),
        "low": np.array([one.get_y() for one in boxes]),
        "y": np.array([one.get_y() + one.get_height() for one in boxes]), "all": True,
    }  # fmt: skip


def _fewer(one: dict[str, Any]) -> dict[str, Any]:
    """A series ready to be written: thinned, rounded, and with how many points there were."""
    columns: dict[str, Any] = {key: one[key] for key in ("x", "y", "low", "half") if key in one}
    frame = pl.DataFrame({key: pl.Series(key, values, dtype=pl.Float64) for key, values in columns.items()})
    frame = frame.filter(pl.all_horizontal(pl.all().is_finite()))
    total = frame.height
    if total > MOST_POINTS and not one["all"] and frame["x"].is_sorted():
        frame = thin(frame, View(float(frame["x"][0]), float(frame["x"][-1]), MOST_POINTS))
    written: dict[str, Any] = {key: [_rounded(value) for value in frame[key]] for key in columns}
    return {**{key: value for key, value in one.items() if key != "all"}, **written, "total": total}


def _rounded(value: float) -> float | int:
    """To ten digits: a microsecond of an hour, and no more than anybody reads."""
    short = float(f"{value:.10g}")
    return int(short) if math.isfinite(short) and short == int(short) and abs(short) < 2**53 else short
