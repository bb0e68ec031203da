"""Metrics of subjects beside each other, with differences from the first and what they amount to in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from analysis.comparison import VERDICTS, difference_text, verdict
from analysis.estimates import Estimate
from analysis.metrics import title_of
from analysis.metrics.registry import estimate
from analysis.question import Question, is_detail
from analysis.results import Quantity
from analysis.statistics import MARGIN, Compared, Difference, RunKey
from experiments.api import comparisons_note
from testbed.units import number_of
from web.campaign_data import order

#: Metrics that a verdict names.
MOST_NAMED = 4


@dataclass(frozen=True)
class Subject:
    """A run or a point that is compared."""

    #: "run:ID" or "point:CAMPAIGN:NUMBER", as the address names it.
    key: str
    label: str
    #: Id, name and title of its campaign; empty for a run without one.
    campaign_id: str
    campaign: str
    title: str
    address: str
    #: The run whose figures represent it.
    run_id: str
    colour: str
    #: (metric, flow) to the values of its runs.
    values: dict[tuple[str, str], dict[RunKey, float]]
    units: dict[str, str]


@dataclass(frozen=True)
class ComparedValue:
    """A metric of one subject."""

    estimate: Estimate
    #: Against the first subject, judged as analysis/question.py says.
    compared: Compared | None
    #: "better", "worse", "different", "same" or "cannot tell"; empty of the first subject.
    verdict: str = ""

    def change(self, unit: str) -> str:
        """The difference from the first subject: "+1.2 ± 0.3 Mbit/s (+27 %)"; of shares in percentage points."""
        return "" if self.compared is None else difference_text(self.compared, unit)


@dataclass(frozen=True)
class Row:
    """A metric of all subjects, in their order; None where one has no value."""

    name: str
    subject: str
    unit: str
    cells: list[ComparedValue | None]
    #: Whether no campaign asks about it; and how many comparisons share the error.
    exploratory: bool
    family: int

    def bars(self) -> list[Bar | None]:
        """How each cell's difference from the first subject is drawn; None without a difference, and if all are 0."""
        gaps = [cell.compared.difference if cell and cell.compared else None for cell in self.cells]
        ends = [_ends(gap) if gap else None for gap in gaps]
        reach = max((abs(end) for both in ends if both for end in both), default=0.0)
        return [
            Bar(both[0] / reach, both[1] / reach, gap.value / reach, gap.level if gap.interval else None)
            if gap and both and reach
            else None
            for gap, both in zip(gaps, ends, strict=True)
        ]


class DifferenceState(TypedDict, total=False):
    """A difference from the first subject, for scripts; empty of the first."""

    difference: float
    difference_low: float | None
    difference_high: float | None
    difference_level: float
    p_adjusted: float | None
    verdict: str
    method: str


@dataclass(frozen=True)
class Bar:
    """A difference and its confidence interval, as shares of the farthest end in the row; 0 means no difference."""

    low: float
    high: float
    value: float
    #: Confidence level; None without an interval.
    level: float | None


def _ends(gap: Difference) -> tuple[float, float]:
    """Of the interval; the difference twice where there is none."""
    return (gap.interval.low, gap.interval.high) if gap.interval else (gap.value, gap.value)


#: What a subject's comparison with the first asks; None: nothing is judged.
Asked = Callable[[Subject, Subject], Question | None]


def rows_of(subjects: Sequence[Subject], asked: Asked, details: bool = True) -> list[Row]:
    """Every metric and flow with the subjects' means and their differences from the first."""
    question_to = {subject.key: asked(subjects[0], subject) for subject in subjects[1:]}
    asked_about = {question.quantity[:2] for question in question_to.values() if question is not None}
    kinds_present = dict.fromkeys(
        kind
        for subject in subjects
        for kind in subject.values
        if details or not is_detail(kind[0]) or kind in asked_about
    )
    kinds = sorted(kinds_present, key=lambda kind: (order(kind[0]), kind[1]))
    first = subjects[0].values if subjects else {}
    rows = []
    for name, subject in kinds:
        unit = next(subject.units[name] for subject in subjects if name in subject.units)
        cells: list[ComparedValue | None] = []
        for subject_ in subjects:
            values, question = subject_.values.get((name, subject)), question_to.get(subject_.key)
            quantity, word, compared = Quantity(name, subject, unit), "", None
            if question is not None and values and quantity[:2] in first:
                compared = question.judged(quantity, first[quantity[:2]], values)
                word = verdict(question.better_of(quantity), compared)
            cells.append(ComparedValue(estimate(name, unit, list(values.values())), compared, word) if values else None)
        exploratory = all(question is None or question.is_exploratory(quantity) for question in question_to.values())
        families = {question.comparisons(quantity) for question in question_to.values() if question is not None}
        rows.append(Row(name, subject, unit, cells, exploratory, max(families, default=1)))
    return sorted(rows, key=lambda row: row.exploratory)


def verdicts(subjects: Sequence[Subject], rows: Sequence[Row]) -> list[str]:
    """A sentence for each subject but the first: in how many metrics it is better or worse, and which."""
    texts = []
    for at, subject in enumerate(subjects[1:], start=1):
        of_word: dict[str, list[str]] = {word: [] for word in VERDICTS}
        for row in rows:
            cell = row.cells[at]
            if cell is not None and cell.verdict:
                of_word[cell.verdict].append(", ".join(filter(None, (title_of(row.name).lower(), row.subject))))
        parts = [
            f"{word} in {len(names)}{f' ({_listed(names)})' if word != 'cannot tell' else ''}"
            for word, names in of_word.items()
            if names and word != "cannot tell"
        ]
        count, unclear = sum(map(len, of_word.values())), len(of_word["cannot tell"])
        verdicts = "; ".join(parts) or "none is shown to differ"
        if count:
            rest = f"; {unclear} cannot be told apart" if unclear else ""
            texts.append(
                f"{subject.label} against {subjects[0].label}, of {number_of(count, 'metric')}: {verdicts}{rest}."
            )
    return texts


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{'; '.join(names[:MOST_NAMED])}{more}"


def note_on(rows: Sequence[Row]) -> str:
    """How many differences were judged together, and how; that nothing was, where no runs have any spread."""
    judged = [
        (row.family, cell.compared.difference)
        for row in rows
        for cell in row.cells
        if cell is not None and cell.compared is not None
    ]
    if not judged:
        return ""
    if all(difference.error is None for _, difference in judged):
        return "These runs are single or have no spread, so no difference is called better or worse."
    method = "Differences are taken by pairs of repetitions with the same seed, or by Welch's interval if fewer than "
    method += "half have a partner or all pairs have the same difference. "
    return method + comparisons_note(MARGIN, {family: difference.level for family, difference in judged})


def difference_json(compared: Compared | None) -> DifferenceState:
    """A difference for scripts."""
    if compared is None:
        return {}
    difference = compared.difference
    low, high = difference.ends
    return {
        "difference": difference.value,
        "difference_low": low,
        "difference_high": high,
        "difference_level": difference.level,
        "p_adjusted": compared.p_adjusted,
        "verdict": compared.verdict,
        "method": difference.method,
    }
