"""A campaign's own figure on its page: drawn as its file says, so that it can be laid beside the published one, with
the published values as open marks (analysis/drawn.py has the points).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from analysis.drawn import Curve, Drawn, Point
from web.axes import Axis, x_axis, y_axis
from web.drawing import DASHES, MARKERS, SERIES, Dot, Drawing, Line, Rect, Text, fitted, text_width

WIDTH, HEIGHT = 860.0, 440.0
#: A published value that is a bound points to where ours should lie.
BOUNDS = {"le": "at most ", "ge": "at least "}


def draw(drawn: Drawn) -> Drawing:
    """Draws it."""
    spec = drawn.spec
    drawing = Drawing(WIDTH, HEIGHT, f"{drawn.title}: {spec.y.title} by {spec.x.title or spec.x.axis}")
    left, right, bottom = 76.0, WIDTH - 16, HEIGHT - 52
    top = _legend(drawing, drawn, left, right)
    y = _axis([value for point in _points(drawn) for value in _reach(point)], spec.y.range, spec.y.scale, bottom, top)
    y_axis(drawing, y, left, right, _label(spec.y.title, spec.y.unit), lambda value: f"{value:.4g}")
    if drawn.ticks:
        few = max(len(drawn.ticks), 3)
        middle = (len(drawn.ticks) - 1) / 2
        x = Axis(middle - few / 2, middle + few / 2, left, right)
        drawing.add(Line([(left, bottom), (right, bottom)], "soft", 1))
        room = (right - left) / few
        for place, label in drawn.ticks:
            drawing.add(Text((x.at(place), bottom + 14), fitted(label, 11, room - 4), "soft", 11, "middle"))
        title = _label(spec.x.title, spec.x.unit)
        drawing.add(Text(((left + right) / 2, bottom + 34), title, "soft", 11, "middle"))
    else:
        places = sorted({point.x for point in _points(drawn)})
        x = _axis(places, spec.x.range, spec.x.scale, left, right)
        values = places if spec.kind in ("lines", "scatter") and len(places) <= 12 else x.ticks()
        x_axis(drawing, x, top, bottom, _label(spec.x.title, spec.x.unit), values, lambda value: f"{value:.4g}")
    for number, curve in enumerate(drawn.curves):
        if spec.kind == "bars":
            _bars(drawing, drawn, curve, number, x, y)
        else:
            _line(drawing, drawn, curve, number, x, y)
    if not any(True for _ in _points(drawn)):
        drawing.add(Text(((left + right) / 2, (top + bottom) / 2), "no valid run yet", "soft", 13, "middle"))
    return drawing


def as_csv(drawn: Drawn) -> str:
    """Its points, in the axes' units."""
    text = io.StringIO()
    writer = csv.writer(text)
    spec = drawn.spec
    writer.writerow(
        [spec.x.title or spec.x.axis or "x", "label", "series", spec.y.title, "low", "high", "runs", "published"]
    )
    for curve in drawn.curves:
        for point in curve.points:
            published = " ".join(f"{value:g}" for value, _ in point.published)
            low, high = ("" if one is None else one for one in (point.low, point.high))
            writer.writerow([point.x, point.label, curve.name, point.mean, low, high, point.runs, published])
    return text.getvalue()


def _points(drawn: Drawn) -> list[Point]:
    return [point for curve in drawn.curves for point in curve.points]


def _reach(point: Point) -> list[float]:
    return [
        one for one in (point.mean, point.low, point.high, *(value for value, _ in point.published)) if one is not None
    ]


def _label(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def _axis(values: Sequence[float], asked: tuple[float, float] | None, scale: str, start: float, end: float) -> Axis:
    log = scale == "log"
    if asked is not None:
        return Axis(asked[0], asked[1], start, end, log)
    kept = [value for value in values if value > 0] if log else [*values, 0.0]
    low, high = min(kept, default=1.0), max(kept, default=1.0)
    if log:
        return Axis(low / 1.15, high * 1.15, start, end, True)
    return Axis(low, high + 0.06 * ((high - low) or 1.0), start, end)


def _legend(drawing: Drawing, drawn: Drawn, left: float, right: float) -> float:
    entries = [(number, fitted(curve.name, 11, 260)) for number, curve in enumerate(drawn.curves) if curve.name]
    if drawn.has_published:
        entries.append((-1, "published"))
    x, y = left, 18.0
    for number, label in entries:
        wide = text_width(label, 11) + 40
        if x + wide > right and x > left:
            x, y = left, y + 18
        if number < 0:
            drawing.add(Dot((x + 10, y), "ink", 3.4, "diamond", filled=False))
        elif drawn.spec.kind == "bars":
            drawing.add(Rect(x + 6, y - 5, 10, 10, f"s{number % SERIES}", radius=1.5))
        else:
            drawing.add(Line([(x, y), (x + 20, y)], f"s{number % SERIES}", 1.8, _dash(number)))
        drawing.add(Text((x + 25, y), label, "ink", 11))
        x += wide
    return y + 18 if entries else 14.0


def _dash(number: int) -> Sequence[float]:
    return DASHES[number // SERIES % len(DASHES)]


def _within(axis: Axis, value: float) -> float:
    """Where a value stands; what lies outside of the range stands at its end."""
    return axis.at(min(max(value, axis.low), axis.high))


def _told(drawn: Drawn, curve: Curve, point: Point) -> str:
    name = ", ".join(part for part in (point.label or f"{point.x:.4g}", curve.name) if part)
    if point.mean is None:
        return name
    half = "" if point.high is None else f" ± {point.high - point.mean:.3g}"
    return f"{name}: {point.mean:.4g}{half} {drawn.spec.y.unit}, {point.runs} run{'' if point.runs == 1 else 's'}"


def _published(drawing: Drawing, point: Point, at: float, ink: str, y: Axis, unit: str) -> None:
    for value, relation in point.published:
        told = f"published: {BOUNDS.get(relation, '')}{value:.4g} {unit}"
        drawing.add(Dot((at, _within(y, value)), ink, 4.2, "diamond", filled=False, title=told))


def _whisker(drawing: Drawing, point: Point, at: float, ink: str, y: Axis) -> None:
    if point.low is None or point.high is None:
        return
    low, high = _within(y, point.low), _within(y, point.high)
    drawing.add(Line([(at, low), (at, high)], ink, 1.2))
    drawing.add(*(Line([(at - 4, end), (at + 4, end)], ink, 1.2) for end in (low, high)))


def _bars(drawing: Drawing, drawn: Drawn, curve: Curve, number: int, x: Axis, y: Axis) -> None:
    group = abs(x.at(1.0) - x.at(0.0)) * 0.8
    bar, ink, zero = group / len(drawn.curves), f"s{number % SERIES}", y.at(y.low)
    for point in curve.points:
        begin = x.at(point.x) - group / 2 + number * bar
        middle = begin + bar / 2
        if point.mean is not None:
            top = _within(y, point.mean)
            told = _told(drawn, curve, point)
            drawing.add(Rect(begin + bar * 0.06, top, bar * 0.88, abs(zero - top), ink, radius=1.5, title=told))
            _whisker(drawing, point, middle, "ink", y)
        _published(drawing, point, middle, "ink", y, drawn.spec.y.unit)


def _line(drawing: Drawing, drawn: Drawn, curve: Curve, number: int, x: Axis, y: Axis) -> None:
    ink, kind = f"s{number % SERIES}", drawn.spec.kind
    there = [point for point in curve.points if point.mean is not None and x.low <= point.x <= x.high]
    path = [(x.at(point.x), _within(y, point.mean or 0.0)) for point in there]
    if kind == "cdf":
        steps = [(now[0], before[1]) for before, now in zip(path, path[1:], strict=False)]
        path = [one for pair in zip(path, [*steps, path[-1]] if path else [], strict=True) for one in pair]
    if kind != "scatter":
        drawing.add(Line(path, ink, 1.2 if kind == "time" else 1.8, _dash(number)))
    for point in there if kind in ("lines", "scatter") else ():
        at = x.at(point.x)
        _whisker(drawing, point, at, ink, y)
        mark = MARKERS[number % len(MARKERS)]
        drawing.add(Dot((at, _within(y, point.mean or 0.0)), ink, 3.4, mark, title=_told(drawn, curve, point)))
    for point in curve.points:
        _published(drawing, point, x.at(point.x), ink, y, drawn.spec.y.unit)
