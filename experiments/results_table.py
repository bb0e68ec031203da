"""The table of a campaign's results in a terminal of any width: swept fields, the question's metric, then others."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from analysis.attempts import attempts_of
from analysis.errors import AnalysisError, unknown
from analysis.estimates import ESTIMATES_NOTE
from analysis.figures.means import ordered, short
from analysis.handle import lacks_metric
from analysis.metrics import METRICS
from analysis.question import in_file_order, is_detail
from analysis.results import NOTHING_MEASURED, is_output
from analysis.swept import matching
from experiments.labels import cell_text, point_label
from testbed import units

if TYPE_CHECKING:
    from analysis.attempts import PointAttempts
    from analysis.handle import StoredCampaign
    from analysis.store.rows import PointRow

#: Blanks between two columns.
GAP = 2
#: Headings of swept fields are not folded to less than this.
LEAST_HEADING = 16

#: Metric and subject.
Column = tuple[str, str]


@dataclass(frozen=True)
class Asked:
    """What a table is to show."""

    #: Names of metrics and of their flows, groups or lines; empty: what the campaign asks about, and what has room.
    metrics: Sequence[str] = ()
    flows: Sequence[str] = ()
    #: A swept field or a metric by which points are sorted, the best first; "": as the file has them.
    sort: str = ""
    page: int = 1
    per_page: int = 40


def results_table(campaign: StoredCampaign, asked: Asked, width: int) -> Group:
    """A row for each point of a page: the swept fields, valid runs, and each metric's estimate over the valid runs.
    Notes below list points that may be a selection, metrics without room and the other pages.

    Args:
        campaign: of the store.
        asked: what is shown.
        width: of the terminal, in characters.

    Raises:
        AnalysisError: a metric, flow or field does not exist.
    """
    columns = columns_of(campaign, asked)
    if not columns and (asked.metrics or asked.flows):
        raise AnalysisError(f"no run has {' or '.join(asked.metrics) or 'a metric'} of {' or '.join(asked.flows)}")
    attempts = attempts_of(campaign.store, campaign.row.id)
    # Of a campaign that has begun, combinations that wait are rows without a value.
    begun = [point for point in campaign.row.points if point.number in attempts]
    points = _sorted(campaign, begun or list(campaign.row.points), columns, asked.sort)
    waiting, shown_points = len(campaign.row.points) - len(points), len(points)
    pages = max(math.ceil(len(points) / asked.per_page), 1)
    if asked.page > pages:
        raise AnalysisError(f"unknown page {asked.page}: {len(points)} combinations take {pages} pages")
    points = points[(asked.page - 1) * asked.per_page : asked.page * asked.per_page]
    numbers = [point.number for point in points]
    rows = campaign.store.table(campaign.row.id, numbers, columns) if columns else []
    cells = {(row.point, row.name, row.subject): row for row in rows}
    shown, notes = _leading(campaign, points, attempts)
    for name, subject in columns:
        heads = (METRICS[name].column or name if name in METRICS else name, f"of {subject}" if subject else "")
        texts = [cell_text(cells.get((point.number, name, subject)), _valid(point)) for point in points]
        shown.append(("\n".join(filter(None, heads)), texts))
    kept, left_out = _that_fit(shown, len(shown) - len(columns), width)
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, GAP, 0, 0))
    swept = len(campaign.axes)
    for number, (head, _) in enumerate(kept):
        table.add_column(head, header_style="dim", overflow="fold", justify="right" if number >= swept else "left")
    for number in range(len(points)):
        table.add_row(*(Text(texts[number]) for _, texts in kept))
    if not columns and campaign.row.valid:
        notes.append(Text(f"The campaign has {NOTHING_MEASURED}", "dim"))
    if left_out and not asked.metrics:
        more = units.number_of(left_out, "more column")
        notes.append(Text(f"No room for {more}: results --metric NAME and --flow NAME choose others", "dim"))
    if waiting:
        notes.append(Text(f"Without a run so far: {units.number_of(waiting, 'combination')}", "dim"))
    if pages > 1:
        place = f"Page {asked.page} of {pages}, of {units.number_of(shown_points, 'combination')}"
        notes.append(Text(f"{place}: results --page N shows another", "dim"))
    return Group(table, *notes, Text(ESTIMATES_NOTE, "dim"))


def columns_of(campaign: StoredCampaign, asked: Asked) -> list[Column]:
    """What a table shows, as far as there is room: what the campaign asks about first, then metrics in their order.

    Raises:
        AnalysisError: a metric or flow does not exist.
    """
    kinds = [kind[:2] for kind in campaign.store.kinds(campaign.row.id)]
    scenario = campaign.store.first_scenario(campaign.row.id)
    places = in_file_order(scenario, {subject for _, subject in kinds})
    measured = sorted({name for name, _ in kinds})
    for name in asked.metrics:
        if name not in measured:
            raise lacks_metric(campaign, name, measured)
    for name in asked.flows:
        if name not in places:
            raise unknown("flow or link", name, sorted({place for place in places if place}))
    order = {name: place for place, name in enumerate(METRICS)}
    question = campaign.question
    first = [quantity[:2] for quantity in (question.quantity, question.beside) if quantity] if question else []

    def place(column: Column) -> tuple[object, ...]:
        name, subject = column
        chosen = asked.metrics.index(name) if name in asked.metrics else 0
        return (
            chosen,
            first.index(column) if column in first else len(first),
            not is_output(name),
            order.get(name, len(order)),
            places.index(subject),
        )

    def is_shown(column: Column) -> bool:
        name, subject = column
        if asked.flows and subject not in asked.flows:
            return False
        if asked.metrics:
            return name in asked.metrics
        usual = is_output(name) or (name in METRICS and bool(METRICS[name].column) and not is_detail(name))
        return usual or column in first

    return sorted(filter(is_shown, kinds), key=place)


def _sorted(campaign: StoredCampaign, points: list[PointRow], columns: Sequence[Column], by: str) -> list[PointRow]:
    """Points by the values of a field, or by the means of a metric, the best first; those without one are last."""
    if not by:
        return points
    fields = matching(by, campaign.axes)
    if len(fields) == 1:
        places = ordered(campaign.axes[fields[0]])
        return sorted(points, key=lambda point: places.index(dict(point.parameters)[fields[0]]))
    column = next((column for column in columns if column[0] == by), None)
    if column is None:
        raise unknown("field or shown metric", by, [*campaign.axes, *dict(columns)])
    is_least_first = campaign.question is not None and METRICS.get(by) is not None and METRICS[by].better == "less"
    sign = 1 if is_least_first else -1
    means = {row.point: row.mean for row in campaign.store.table(campaign.row.id, only=[column])}

    def key(point: PointRow) -> float:
        return sign * means[point.number] if point.number in means else math.inf

    return sorted(points, key=key)


def _leading(
    campaign: StoredCampaign, points: Sequence[PointRow], attempts: Mapping[int, PointAttempts]
) -> tuple[list[tuple[str, list[str]]], list[Text]]:
    """The columns of swept fields and valid runs, and a note for each point that may be a selection."""
    last = [name.rpartition(".")[2] for name in campaign.axes]
    fields = []
    for name, word in zip(campaign.axes, last, strict=True):
        values = [dict(point.parameters).get(name, "–") for point in points]
        fields.append((folded(word if last.count(word) == 1 else short(name), values), values))
    fields = fields or [("", ["all runs"] * len(points))]
    runs, notes = [], []
    for point in points:
        took = attempts.get(point.number)
        text = str(_valid(point))
        if took is not None and took.thrown:
            text += f" of {took.total} tried{' !' if took.reasons else ''}"
            label = point_label(dict(point.parameters)) or "all runs"
            notes += [Text(f"! {label}: {'; '.join(took.reasons)}", style="yellow")] if took.reasons else []
        runs.append(text)
    return [*fields, ("runs", runs)], notes


def folded(name: str, values: Sequence[str]) -> str:
    """The heading of a swept field, not wider than its values where words allow it: metrics have the room."""
    return textwrap.fill(name, max(LEAST_HEADING, *map(len, values)), break_long_words=False)


def _valid(point: PointRow) -> int:
    return sum(member.state == "valid" for member in point.members)


def _that_fit(
    columns: Sequence[tuple[str, list[str]]], least: int, width: int
) -> tuple[list[tuple[str, list[str]]], int]:
    """The columns that have room beside each other, and how many have none. The first metric is always kept."""
    used = 0
    for number, (head, texts) in enumerate(columns):
        used += max(map(len, [*head.splitlines(), *texts]), default=0) + GAP
        if used - GAP > width and number > least:
            return list(columns[:number]), len(columns) - number
    return list(columns), 0
