"""Whether a campaign's conclusions are artefacts of the tool: the same contrasts with something changed that should not
matter. docs/doubt.md explains the report.

A conclusion is a contrast of the campaign's question that its runs decide: a difference that excludes 0, or two means
that are equal within the margin. Each change gives another campaign with the same combinations, whose contrasts are
judged by the same test at the same level (analysis/question.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from analysis.answer import best
from analysis.comparison import contrast
from analysis.question import Asked, Question
from analysis.results import Parameters, Quantity, Results, Values
from analysis.statistics import MARGIN, Compared, Difference
from experiments.language.campaign import Plan, Run

#: What a change does to a conclusion.
Outcome = Literal["survives", "flips", "cannot tell"]


@dataclass(frozen=True)
class Conclusion:
    """What the original runs show of two combinations: the difference is `second` less `first`."""

    quantity: Quantity
    first: Parameters
    second: Parameters
    compared: Compared
    #: Whether it is the campaign's answer: its best combination against the next.
    is_answer: bool = False

    @property
    def relation(self) -> Literal["above", "below", "equals"]:
        """Of the second mean to the first."""
        if self.compared.verdict == "same":
            return "equals"
        return "above" if self.compared.difference.value > 0 else "below"


@dataclass(frozen=True)
class ConclusionCheck:
    """A conclusion under one change."""

    outcome: Outcome
    #: None where a combination has no valid run with the quantity.
    compared: Compared | None


@dataclass(frozen=True)
class Column:
    """One change, and the campaign that has it."""

    name: str
    #: What was changed, as a sentence.
    what: str
    #: Id of the campaign in the store; empty: it was left out.
    campaign: str = ""
    backend: str = ""
    #: Of its plan, and those of them with a valid result.
    runs: int = 0
    valid: int = 0
    #: Why it was left out.
    left_out: str = ""
    #: One for each conclusion; none if it was left out.
    cells: tuple[ConclusionCheck, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """Conclusions with this outcome."""
        return sum(cell.outcome == outcome for cell in self.cells)


@dataclass(frozen=True)
class Doubt:
    """Conclusions, and what each change does to them."""

    question: Question
    original: Column
    conclusions: tuple[Conclusion, ...]
    #: Contrasts that the original runs do not decide.
    undecided: int
    columns: tuple[Column, ...]

    @property
    def flips(self) -> bool:
        """Whether any change reverses a conclusion."""
        return any(column.count("flips") for column in self.columns)

    def as_json(self) -> dict[str, Any]:
        """For scripts, in SI units."""
        columns = [_column_document(column) for column in (self.original, *self.columns)]
        rows = [
            {
                "first": conclusion.first,
                "second": conclusion.second,
                "relation": conclusion.relation,
                "is_answer": conclusion.is_answer,
                "original": _difference_document(conclusion.compared),
                "changes": {
                    column.name: {"outcome": column.cells[at].outcome} | _difference_document(column.cells[at].compared)
                    for column in self.columns
                    if column.cells
                },
            }
            for at, conclusion in enumerate(self.conclusions)
        ]
        metric, subject, unit = self.question.quantity
        return {
            "metric": metric,
            "subject": subject,
            "unit": unit,
            "level": self.question.level,
            "comparisons": self.question.family,
            "undecided": self.undecided,
            "flips": self.flips,
            "columns": columns,
            "conclusions": rows,
        }


def _column_document(column: Column) -> dict[str, Any]:
    kept = ("name", "what", "campaign", "backend", "runs", "valid", "left_out")
    return {name: getattr(column, name) for name in kept}


def _difference_document(compared: Compared | None) -> dict[str, Any]:
    if compared is None:
        return {"difference": None, "low": None, "high": None, "verdict": "cannot tell"}
    low, high = _ends(compared.difference)
    return {"difference": compared.difference.value, "low": low, "high": high, "verdict": compared.verdict}


def _ends(difference: Difference) -> tuple[float, float] | tuple[None, None]:
    """Ends of a difference's interval. Equal pairs have none, and their value for both."""
    if difference.interval is not None or difference.error is None:
        return difference.ends
    return difference.value, difference.value


def conclusions(asked: Asked) -> tuple[list[Conclusion], int]:
    """What a campaign's runs decide of its question, the answer first, and the number of contrasts left undecided.

    The contrasts are those of each swept field's values with its first value, and of the best combination with the
    next.
    """
    question = asked.question
    if question is None:
        return [], 0
    quantity, seen = question.quantity, list[Conclusion]()
    answer = best(asked, quantity)
    if answer is not None and answer.next is not None and answer.compared is not None:
        first, second = (asked.points[ranked.point] for ranked in (answer.next, answer.best))
        seen.append(Conclusion(quantity, first, second, answer.compared, is_answer=True))
    for field in dict.fromkeys(name for point in asked.points for name in point):
        if len({point[field] for point in asked.points if field in point}) < 2:
            continue
        rows = (row for row in contrast(asked, field, metrics=[quantity.metric]) if row.quantity == quantity)
        for row in rows:
            first, second = ({**row.point, field: value} for value in (row.baseline, row.value))
            # The answer may be one of them.
            if not any(each.is_answer and _same_pair(each, first, second) for each in seen):
                seen.append(Conclusion(quantity, first, second, row.compared))
    decided = [each for each in seen if each.compared.verdict != "cannot tell"]
    return decided, len(seen) - len(decided)


def _same_pair(conclusion: Conclusion, first: Parameters, second: Parameters) -> bool:
    pair = (conclusion.first, conclusion.second)
    return pair in ((first, second), (second, first))


def examine(conclusion: Conclusion, question: Question, changed: Results) -> ConclusionCheck:
    """A conclusion of the original campaign in the results of a changed one."""
    at = {tuple(sorted(point.items())): number for number, point in enumerate(changed.points)}

    def values_of(point: Parameters) -> Values:
        number = at.get(tuple(sorted(point.items())), -1)
        return changed.values.get(number, {}).get(conclusion.quantity, {})

    first, second = values_of(conclusion.first), values_of(conclusion.second)
    if not first or not second:
        return ConclusionCheck("cannot tell", None)
    compared = question.judged(conclusion.quantity, first, second)
    return ConclusionCheck(outcome(conclusion.compared, compared), compared)


def outcome(original: Compared, changed: Compared) -> Outcome:
    """Whether the changed runs show the same, the contrary, or neither.

    A difference flips if its sign does, or if it is equivalent to none and the original interval lies wholly beyond the
    margin. An equality flips if the changed interval lies wholly beyond the margin. So a smaller effect with the same
    sign is not a flip.
    """
    if original.verdict == changed.verdict == "same":
        return "survives"
    if original.verdict == changed.verdict == "different":
        return "survives" if (original.difference.value > 0) == (changed.difference.value > 0) else "flips"
    if (original.verdict, changed.verdict) == ("different", "same") and _beyond(original.difference):
        return "flips"
    if (original.verdict, changed.verdict) == ("same", "different") and _beyond(changed.difference):
        return "flips"
    return "cannot tell"


def _beyond(difference: Difference) -> bool:
    """Whether an interval lies wholly beyond the margin of equivalence, on one side."""
    low, high = _ends(difference)
    margin = MARGIN * abs(difference.mean_first)
    return low is not None and high is not None and (low > margin or high < -margin)


def halved_plan(plan: Plan) -> Plan:
    """The plan with half of the time that is measured. Warm-ups stay: transients do not shorten.

    Raises:
        ValueError: a flow would not start.
    """
    return replace(plan, name=f"{plan.name}-half", runs=[_halved_run(run) for run in plan.runs])


def _halved_run(run: Run) -> Run:
    document = run.document.document
    warm_up_s = float(document.get("warm_up_s") or 0.0)
    duration_s = warm_up_s + (float(document["duration_s"]) - warm_up_s) / 2
    for flow in document["workload"]:
        if flow["start_s"] >= duration_s:
            raise ValueError(
                f"flow '{flow['name']}' starts at {flow['start_s']:g} s, after the half at {duration_s:g} s"
            )
    flows = [
        {**flow, "stop_s": min(flow["stop_s"], duration_s)} if flow.get("stop_s") else flow
        for flow in document["workload"]
    ]
    return run.with_scenario({**document, "duration_s": duration_s, "workload": flows})


def repetitions_within(repetitions: int, expected_s: float, within_s: float) -> int:
    """Repetitions of a campaign that a time allows for."""
    return repetitions if expected_s <= within_s else int(repetitions * within_s / expected_s)
