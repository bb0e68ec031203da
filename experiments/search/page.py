"""The map of a search: one HTML file with a picture for each pair of axes, and the points as a table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import Any

from experiments.labels import field_labels
from experiments.search.evaluate import Evaluated
from experiments.search.loop import Search
from experiments.search.space import Axis, Numbers

#: Of a picture, in pixels; pairs of axes that have one; points in the table.
_SIZE, _EDGE, _PICTURES, _ROWS = 320, 48, 6, 50
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
svg { margin: 0 1em 1em 0 } svg text { font-size: 11px; fill: #444 } table { border-collapse: collapse }
td, th { padding: .2em .8em .2em 0; text-align: left; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums } svg { max-width: 100% } li { overflow-wrap: anywhere }
.scroll { overflow-x: auto }
@media (prefers-color-scheme: dark) {
  body { background: #161a1b; color: #ddd } td, th { border-color: #444 }
  /* Its colours say how good a combination is. */
  svg { background: #fff }
}
"""


def page(state: Search, report: Sequence[str]) -> str:
    """The page.

    Args:
        state: a finished search.
        report: what it found, line by line.
    """
    axes, labels = state.file.axes, field_labels([axis.field for axis in state.file.axes])
    pairs = list(itertools.combinations(range(len(axes)), 2))[:_PICTURES] or [(0, 0)]
    pictures = "".join(_picture(state, axes[x], axes[y], labels[x], labels[y]) for x, y in pairs)
    head = "".join(f"<th>{escape(text)}</th>" for text in (*labels, "mean", "interval", "runs", "first run"))
    rows = "".join(_row(state, point) for point in state.ranked[:_ROWS])
    lines = "".join(f"<li>{escape(line)}</li>" for line in report)
    asked = escape(f"{state.file.question.kind}: {state.file.question.text}")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(state.file.name)}</title>'
        f"<style>{_STYLE}</style><h1>{escape(state.file.name)}</h1><p>{asked}</p><ul>{lines}</ul>"
        f'<p>{_legend(state)}</p>{pictures}<div class="scroll" tabindex="0"><table><tr>{head}</tr>{rows}</table></div>'
        "</html>\n"
    )


def _legend(state: Search) -> str:
    if state.file.question.decides:
        return (
            "Filled: the combination shows it. Ring: its runs cannot tell. Small: its runs show that it does not, or "
            "it has none. The table's numbers are above 0 where it holds."
        )
    return "The darker, the better. The table has the best combinations first."


def _row(state: Search, point: Evaluated) -> str:
    values = dict(point.candidate.fields)
    interval = point.interval()
    shown = state.file.question.expression.shown
    ends = "" if interval is None else f"{shown(interval.low)} to {shown(interval.high)}"
    cells = [
        *(values[axis.field] for axis in state.file.axes),
        shown(point.mean),
        ends,
        len(point.runs),
        point.runs[0],
    ]
    return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"


def _picture(state: Search, x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    inner = _SIZE - 2 * _EDGE

    def at(axis: Axis, value: Any) -> float:
        return _EDGE + inner * axis.share(value)

    points = [state.signed(point) for point in state.points.values()]
    known = [point.mean for point in points if point.samples]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    marks = []
    for point in points:
        values = dict(point.candidate.fields)
        left, top = at(x, values[x.field]), _SIZE - at(y, values[y.field])
        title = ", ".join(f"{field}: {value}" for field, value in values.items())
        title += f": {state.file.question.expression.shown(point.mean)}" if point.samples else f": {point.problem}"
        marks.append(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" {_mark(state, point, low, high)}><title>{escape(title)}</title>'
            "</circle>"
        )
    frame = f'<rect x="{_EDGE}" y="{_EDGE}" width="{inner}" height="{inner}" fill="none" stroke="#bbb"/>'
    return (
        f'<svg width="{_SIZE}" height="{_SIZE}" role="img" aria-label="{escape(f"{x_label} and {y_label}")}">{frame}'
        f"{''.join(marks)}{_ends(x, x_label, is_x=True)}{_ends(y, y_label, is_x=False)}</svg>"
    )


def _mark(state: Search, point: Evaluated, low: float, high: float) -> str:
    if not point.samples:
        return 'r="1.5" fill="#bbb"'
    if not state.file.question.decides:
        share = (point.mean - low) / (high - low) if high > low else 1.0
        return f'r="4" fill="hsl(210 70% {90 - 60 * share:.0f}%)" stroke="#345" stroke-width="0.4"'
    if point.shows():
        return 'r="4" fill="#c0392b"'
    return 'r="4" fill="none" stroke="#c0392b"' if point.may_show() else 'r="2" fill="#7f8c8d"'


def _ends(axis: Axis, label: str, *, is_x: bool) -> str:
    """The label of an axis and of its ends, or of its choices."""
    inner = _SIZE - 2 * _EDGE
    shown = [(share, axis.value(share)) for share in (0.0, 1.0)] if isinstance(axis, Numbers) else []
    if not isinstance(axis, Numbers):
        shown = [(axis.share(value), value) for value in axis.values]
    texts = []
    for share, value in shown:
        along = _EDGE + inner * share
        place = f'x="{along:.0f}" y="{_SIZE - _EDGE + 14}"' if is_x else f'x="{_EDGE - 4}" y="{_SIZE - along:.0f}"'
        texts.append(f'<text {place} text-anchor="{"middle" if is_x else "end"}">{escape(str(value))}</text>')
    middle = _SIZE / 2
    place = f'x="{middle}" y="{_SIZE - 12}"' if is_x else f'x="{middle}" y="{_EDGE - 14}"'
    scale = " (log)" if isinstance(axis, Numbers) and axis.is_log else ""
    arrow = "→" if is_x else "↑"
    return "".join(texts) + f'<text {place} text-anchor="middle">{arrow} {escape(label)}{scale}</text>'
