"""Metrics of subjects beside each other, with differences from the first and what they amount to in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from analysis.comparison import verdict
from analysis.estimates import Estimate, plus_minus, relative_text
from analysis.metrics.registry import estimate
from analysis.statistics import LEVEL, MARGIN, Compared, Difference, RunKey, compare_all
from experiments.api import comparisons_note, quantity_scale
from web.campaign_data import is_detail, order, title_of

#: Metrics that a verdict names, and its words in their order.
MOST_NAMED, VERDICTS = 4, ("better", "worse", "different", "same", "cannot tell")


@dataclass(frozen=True)
class Subject:
    """A run or a point that is compared."""

    #: "run:ID" or "point:CAMPAIGN:NUMBER", as the address names it.
    key: str
    label: str
    #: Name and title of its campaign; empty for a run without one.
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
class Cell:
    """A metric of one subject."""

    estimate: Estimate
    #: Against the first subject; all differences of the page are judged together.
    compared: Compared | None
    #: "better", "worse", "different", "same" or "cannot tell"; empty of the first subject.
    verdict: str = ""

    def change(self, unit: str) -> str:
        """The difference from the first subject: "+1.2 ± 0.3 Mbit/s (+27 %)"; of shares in percentage points.

        Args:
            unit: of the metric.
        """
        if self.compared is None:
            return ""
        gap = self.compared.difference
        scale, name = quantity_scale(max(abs(gap.value), gap.half or 0.0), unit)
        if unit == "fraction":
            scale, name = 0.01, "points"
        sign = "−" if gap.value < 0 else "+"
        share = gap.relative if unit != "fraction" else None
        relative = relative_text(share)
        size = abs(gap.value) / scale
        shown = plus_minus(size, gap.half / scale) if gap.half else f"{size:.3g}"
        return f"{sign}{shown} {name}".strip() + relative


@dataclass(frozen=True)
class Row:
    """A metric of all subjects, in their order; None where one has no value."""

    name: str
    subject: str
    unit: str
    cells: list[Cell | None]

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
    p_holm: float | None
    verdict: str
    method: str


@dataclass(frozen=True)
class Bar:
    """A difference and its confidence interval, as shares of the farthest end in the row; 0 is no difference."""

    low: float
    high: float
    value: float
    #: Confidence level; None without an interval.
    level: float | None


def _ends(gap: Difference) -> tuple[float, float]:
    """Of the interval; the difference twice where there is none."""
    return (gap.interval.low, gap.interval.high) if gap.interval else (gap.value, gap.value)


def rows_of(subjects: Sequence[Subject], details: bool = True) -> list[Row]:
    """Every metric and flow with the subjects' means and their differences from the first."""
    kinds_present = dict.fromkeys(
        kind for subject in subjects for kind in subject.values if details or not is_detail(kind[0])
    )
    kinds = sorted(kinds_present, key=lambda kind: (order(kind[0]), kind[1]))
    first = subjects[0].values if subjects else {}
    others = [(kind, subject) for kind in kinds for subject in subjects[1:] if kind in first and kind in subject.values]
    judged = compare_all([(first[kind], other.values[kind]) for kind, other in others])
    against = {(kind, other.key): compared for (kind, other), compared in zip(others, judged, strict=True)}
    rows = []
    for name, subject in kinds:
        unit = next(subject.units[name] for subject in subjects if name in subject.units)
        cells: list[Cell | None] = []
        for subject_ in subjects:
            values, compared = subject_.values.get((name, subject)), against.get(((name, subject), subject_.key))
            word = verdict(name, compared) if compared is not None else ""
            cells.append(Cell(estimate(name, unit, list(values.values())), compared, word) if values else None)
        rows.append(Row(name, subject, unit, cells))
    return rows


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
            texts.append(f"{subject.label} against {subjects[0].label}, of {count} metrics: {verdicts}{rest}.")
    return texts


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{'; '.join(names[:MOST_NAMED])}{more}"


def note_on(rows: Sequence[Row]) -> str:
    """How many differences were judged together, and how; that nothing was, where none has an interval."""
    judged = [cell.compared for row in rows for cell in row.cells if cell is not None and cell.compared is not None]
    if not judged:
        return ""
    if not any(compared.difference.interval for compared in judged):
        return "These runs are too few for intervals, so no difference is called better or worse."
    method = "Differences are taken by pairs of repetitions with the same seed, or by Welch's interval if fewer than "
    method += "half have a partner. "
    return method + comparisons_note(len(judged), LEVEL, judged[0].difference.level, MARGIN)


def difference_json(compared: Compared | None) -> DifferenceState:
    """A difference for scripts."""
    if compared is None:
        return {}
    difference = compared.difference
    low, high = (None, None) if difference.interval is None else (difference.interval.low, difference.interval.high)
    return {
        "difference": difference.value, "difference_low": low, "difference_high": high,
        "difference_level": difference.level, "p_holm": compared.p_adjusted,
        "verdict": compared.verdict, "method": difference.method,
    }  # fmt: skip
