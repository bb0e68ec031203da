"""Results that a test makes by hand, with what their campaign asks."""

from __future__ import annotations

from analysis.question import Asked, Question, better_of
from analysis.results import Quantity, Results
from analysis.statistics import LEVEL


def asking(results: Results, quantity: Quantity, beside: Quantity | None = None) -> Asked:
    """The results with a question to all of their points."""
    known = {of[:2] for values in results.values.values() for of in values}
    question = Question(
        quantity, better_of(quantity.metric), beside, is_stated=True, instead="", level=LEVEL,
        family=max(len(results.points) - 1, 1), is_each=False,
        others=frozenset(known - {quantity[:2]}), points=results.points,
    )  # fmt: skip
    return Asked.of(results, question)
