"""A plot over time as a drawing, from the same series that the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from web.axes import Axis, x_axis, y_axis
from web.drawing import Dot, Drawing, Line, Text, text_width

WIDTH, HEIGHT = 900.0, 380.0


def draw(title: str, answer: Mapping[str, Any], low: float, high: float) -> Drawing:
    """Draws what web.series answered for a period (s)."""
    drawing = Drawing(WIDTH, HEIGHT, title)
    left, right, top, bottom = 82.0, WIDTH - 16, 40.0, HEIGHT - 48
    drawing.add(Text((left, 12), title, "ink", 12, bold=True))
    series = [one for one in answer["series"] if one["x"]]
    # The window may reach far beyond what is in flight, and then runs out of the picture.
    fitted = [one for one in series if one["name"] != "window"] or series
    inside = [
        y for one in fitted for x, y in zip(one["x"], one["y"], strict=True) if low <= x <= high and y is not None
    ]
    if not inside:
        drawing.add(
            Text(
                ((left + right) / 2, (top + bottom) / 2),
                answer.get("note") or "nothing happened here",
                "soft",
                13,
                "middle",
            )
        )
        return drawing
    # Zoomed in, a sequence number's distance from zero says nothing.
    least, greatest = min(inside), max(inside)
    floor = 0.0 if least < 0.5 * greatest else least - 0.04 * (greatest - least)
    x = Axis(low, high, left, right)
    y = Axis(min(floor, least), greatest + 0.04 * ((greatest - floor) or 1.0), bottom, top)
    y_axis(drawing, y, left, right, answer["y"], lambda value: f"{value:.6g}")
    x_axis(drawing, x, top, bottom, "time (s)", x.ticks(), lambda value: f"{value:.6g}")
    at = left
    for one in series:
        ink = one["ink"]
        if one["style"] in ("dots", "marks"):
            drawing.add(Dot((at + 5, 28), ink, 3))
        else:
            drawing.add(Line([(at, 28), (at + 12, 28)], ink, 1.6))
        drawing.add(Text((at + 17, 28), one["name"], "ink", 11))
        at += text_width(one["name"], 11) + 34
    for one in series:
        if one["style"] == "bars":
            for start in range(0, len(one["x"]), 3):
                if low <= one["x"][start] <= high:
                    at_x = x.at(one["x"][start])
                    drawing.add(
                        Line([(at_x, y.at(one["y"][start])), (at_x, y.at(one["y"][start + 1]))], one["ink"], 1.2)
                    )
            continue
        values = [(px, min(py, y.high)) for px, py in zip(one["x"], one["y"], strict=True) if low <= px <= high]
        if one not in fitted and all(py == y.high for _, py in values):
            continue
        points = [(x.at(px), y.at(py)) for px, py in values]
        if one["style"] in ("dots", "marks"):
            size, shape = (2.6, "cross") if one["style"] == "marks" else (1.1, "circle")
            drawing.add(*(Dot(point, one["ink"], size, shape) for point in points))
        elif one["style"] == "steps":
            drawing.add(Line(_stepped(points), one["ink"], 1.2))
        else:
            drawing.add(Line(points, one["ink"], 1.4))
    return drawing


def _stepped(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for px, py in points:
        if found:
            found.append((px, found[-1][1]))
        found.append((px, py))
    return found
