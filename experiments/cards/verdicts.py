"""Whether a sender meets a criterion, by the interval of what lies between its value and the bound.

A case asks each of its criteria at each of its points. It *passes* if all of them hold, each at 95 %: a case that
should fail passes in at most 5 % of cards (an intersection-union test, Berger 1982). It *fails* if one does not hold at
95 % divided by their number (Bonferroni): a case that should pass fails in at most 5 %. Everything else is *cannot
tell*. Values without any spread, such as those of a deterministic run, are their own interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.results import Quantity, Values
from analysis.statistics import LEVEL, Interval, difference, exact_interval
from experiments.cards.criteria import Criterion

Verdict = Literal["pass", "fail", "cannot tell", "not measured"]


@dataclass(frozen=True)
class Judged:
    """A criterion at a point."""

    criterion: Criterion
    #: Swept fields and their values.
    point: Mapping[str, str]
    #: Empty if no valid run has the metric.
    unit: str
    tested: Values
    standard: Values
    #: Mean of what the value has beyond the bound, in the direction that is accepted, with its interval at LEVEL; None
    #: if there are too few runs.
    slack: Interval | None
    verdict: Verdict


def judge(
    criterion: Criterion,
    point: Mapping[str, str],
    tested: Mapping[Quantity, Values],
    standard: Mapping[Quantity, Values],
    family: int,
) -> Judged:
    """Judges a criterion at a point.

    Args:
        criterion: what is asked.
        point: the swept values there.
        tested: what the sender under test reached.
        standard: what the standard sender reached in its place.
        family: number of criteria times points of the case.
    """
    unit, of_tested = _values(criterion, tested)
    _, of_standard = _values(criterion, standard)
    if not of_tested or (criterion.factor is not None and not of_standard):
        return Judged(criterion, point, unit, of_tested, of_standard, None, "not measured")
    if criterion.factor is None:
        bound = dict.fromkeys(of_tested, criterion.number)
    else:
        bound = {key: criterion.factor * value for key, value in of_standard.items()}
    sides = (bound, of_tested) if criterion.relation == "at least" else (of_tested, bound)
    slack = _interval(*sides, LEVEL)
    strict = _interval(*sides, 1 - (1 - LEVEL) / family)
    verdict: Verdict = "cannot tell"
    if slack is not None and slack.low >= 0:
        verdict = "pass"
    elif strict is not None and strict.high < 0:
        verdict = "fail"
    return Judged(criterion, point, unit, of_tested, of_standard, slack, verdict)


def of_case(judged: Sequence[Judged]) -> Verdict:
    """The verdict of a case: all of its criteria hold, or one does not."""
    verdicts = {each.verdict for each in judged}
    if "fail" in verdicts:
        return "fail"
    return verdicts.pop() if len(verdicts) == 1 else "not measured" if "not measured" in verdicts else "cannot tell"


def _values(criterion: Criterion, of_point: Mapping[Quantity, Values]) -> tuple[str, Values]:
    """Unit and values of a criterion's metric; empty without any."""
    return next(
        (
            (quantity.unit, values)
            for quantity, values in of_point.items()
            if (quantity.metric, quantity.subject) == (criterion.metric, criterion.of)
        ),
        ("", {}),
    )


def _interval(first: Values, second: Values, level: float) -> Interval | None:
    """Of the mean of `second` less `first`; None for fewer than two runs on a side."""
    if min(len(first), len(second)) < 2:
        return None
    gap = difference(first, second, level)
    # Without any spread there is no chance that an interval could describe.
    return gap.interval or exact_interval(gap.value)
