"""A report card for people: the table of the terminal and the page of HTML say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment
from rich.console import Group
from rich.text import Text

from analysis.estimates import ESTIMATES_NOTE
from analysis.metrics import METRICS
from experiments.cards.card import shown
from experiments.labels import point_label
from experiments.plain_table import plain_table
from testbed import units
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.cards.card import Card, CardCase
    from experiments.cards.verdicts import Judged, Verdict

_TEMPLATE = Path(__file__).with_name("card.html")
_STYLES = {"pass": "green", "fail": "red"}
VERDICTS: Sequence[Verdict] = ("pass", "fail", "cannot tell", "not measured")


@dataclass(frozen=True)
class Row:
    """A criterion at a point."""

    point: str
    #: The metric and its subject.
    quantity: str
    tested: str
    standard: str
    bound: str
    verdict: Verdict


def title(card: Card) -> str:
    """What the card is of."""
    return f"Report card of {card.sender.name}, held against {card.sender.standard} ({card.sender.backend})"


def summary(card: Card) -> str:
    """How many cases have each verdict."""
    counts = {verdict: card.count(verdict) for verdict in VERDICTS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def notes(card: Card) -> list[str]:
    """What a reader has to know of the numbers."""
    found = [
        f"{ESTIMATES_NOTE[0].upper()}{ESTIMATES_NOTE[1:]}.",
        "A case passes if every criterion holds at 95 % at every combination, and fails if one does not, at 95 % "
        "divided by their number. RFC 9743 sets no thresholds: where a source names no number, the bound is this "
        "project's.",
    ]
    if any(row.criterion.reads_the_endpoint for case in card.cases for row in case.judged):
        found.append("Metrics with an asterisk come from the sender's own records: telemetry, qlog, or ss of a kernel.")
    return found


def rows(case: CardCase, standard: str) -> Iterator[Row]:
    """The criteria of a case."""
    for judged in case.judged:
        criterion = judged.criterion
        mark = "*" if criterion.reads_the_endpoint else ""
        yield Row(
            point_label(judged.point),
            f"{METRICS[criterion.metric].title} of {criterion.of}{mark}",
            shown(judged, judged.tested),
            shown(judged, judged.standard),
            _bound(judged, standard),
            judged.verdict,
        )


def _bound(judged: Judged, standard: str) -> str:
    criterion = judged.criterion
    if criterion.factor is not None:
        return f"{criterion.relation} {units.plain(criterion.factor)} x {standard}'s"
    unit = METRICS[criterion.metric].unit
    return f"{criterion.relation} {units.show(criterion.number, unit)}"


def table(card: Card) -> Group:
    """The card for the terminal."""
    of = plain_table("case", "asked of", "value", card.sender.standard, "bound", "verdict")
    for case in card.cases:
        asked = case.planned.case
        of.add_row(Text(asked.name, style="bold"), Text(asked.question, style="dim"), "", "", "", _styled(case.verdict))
        for row in rows(case, card.sender.standard):
            where = f"{row.quantity} ({row.point})" if row.point else row.quantity
            of.add_row("", where, row.tested, row.standard, row.bound, Text(row.verdict, style="dim"))
    return Group(
        Text(title(card), style="bold"), of, Text(summary(card)), *(Text(note, style="dim") for note in notes(card))
    )


def _styled(verdict: Verdict) -> Text:
    return Text(verdict, style=_STYLES.get(verdict, "yellow"))


def page(card: Card, results: str, site: str) -> str:
    """The card as a page of HTML that needs nothing else.

    Args:
        card: what it shows.
        results: folder of the results, as a command has it.
        site: address of the site that has the runs, without a slash at its end.
    """
    template = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    return template.render(
        title=title(card),
        summary=summary(card),
        notes=notes(card),
        results=results,
        site=site,
        standard=card.sender.standard,
        number_of=number_of,
        cases=[(case, case.planned, list(rows(case, card.sender.standard))) for case in card.cases],
    )
