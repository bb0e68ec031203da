"""A figure as a self-contained interactive page: one HTML file that loads nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from analysis.figures.model import MOST_POINTS, Figure

#: Scripts and styles that draw a figure in a browser; the site serves the same files.
STATIC = Path(__file__).with_name("static")

#: Scripts that draw a figure, in order.
SCRIPTS = ("uplot/uPlot.iife.min.js", "figure-series.js", "figure.js")

_TEMPLATE = Path(__file__).with_name("page.html")


def page(figure: Figure) -> str:
    """The page of a figure; series of more than MOST_POINTS points are thinned."""
    thinned = [
        line
        for line in figure.series
        if line.points.height > MOST_POINTS and not line.keep_all and line.points["x"].is_sorted()
    ]
    if thinned:
        xs = [
            value
            for line in figure.series
            for value in (line.points["x"].min(), line.points["x"].max())
            if value is not None
        ]
        low, high = figure.x.range or (float(min(xs)), float(max(xs)))  # type: ignore[arg-type]
        figure = figure.within(low, high)
    # A script element ends at the first "</script", even inside a string.
    data = json.dumps(figure.as_json(), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        Environment(autoescape=True)
        .from_string(_TEMPLATE.read_text(encoding="utf-8"))
        .render(
            title=figure.title or figure.y.title or "Figure",
            styles=Markup(_read("uplot/uPlot.min.css") + _read("figure.css")),
            scripts=Markup("".join(_read(name) for name in SCRIPTS)),
            data=Markup(data),
            thinned=bool(thinned),
        )
    )


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
