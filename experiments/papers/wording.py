"""Scores in words: what the terminal, the Markdown page and the site say of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from analysis.estimates import interval_text
from analysis.statistics import MARGIN
from experiments.papers.scorecard import Artefact, OrderingScore, Score, ValueScore
from testbed.units import in_unit, number_of, plain, readable

#: Disagreements of an artefact that are listed.
MOST_LISTED = 6


def headline(artefacts: Sequence[Artefact]) -> str:
    """How many artefacts were run, how many of these pass, and how many follow from formulas and need no run."""
    run = [each for each in artefacts if any(score.campaign for score in each.scores.values())]
    computed = sum(bool(each.scores) for each in artefacts) - len(run)
    what = f"{len(artefacts)} published tables, figures and claims"
    passing = sum(each.passes for each in run)
    text = f"None of the {what} was run here."
    if run:
        were, passes = "was" if len(run) == 1 else "were", "passes" if passing == 1 else "pass"
        text = f"Of {what}, {len(run)} {were} run here, and {passing} of these {passes}."
    return text + (f" {computed} of them follow from formulas and need no run." if computed else "")


def words(name: str) -> str:
    """The name of a measure: "Reverse throughput"."""
    return name.replace("_", " ").capitalize()


def labels(cell: Mapping[str, object]) -> str:
    """The labels of a cell: "policy droptail, rate 9.6"."""
    return ", ".join(f"{axis} {label}" for axis, label in cell.items())


def place(measure: str, cell: Mapping[str, object]) -> str:
    """A measure in a cell: "Reverse throughput at policy droptail"."""
    return f"{words(measure)} at {labels(cell)}" if cell else words(measure)


def published(value: ValueScore) -> str:
    """The published value with its unit; "≤ 5 s" for a bound."""
    sign = {"le": "≤ ", "ge": "≥ "}.get(value.relation, "")
    return f"{sign}{in_unit(value.published, value.unit, value.published)}"


def tolerance(value: ValueScore) -> str:
    """The tolerance around it: "5 %", or "5 % or 0.1 s", whichever is larger."""
    return " or ".join(
        f"{size * 100:.3g} %" if kind == "rel" else in_unit(size, value.unit, value.published)
        for kind, size in value.tolerance.items()
    )


def measured(value: ValueScore) -> str:
    """The measured mean in the published value's unit, with its interval."""
    if value.measured is None or value.interval is None or not value.interval.half:
        return in_unit(value.measured, value.unit, value.published)
    factor, unit = readable(value.unit, value.published)
    return (
        f"{interval_text(value.measured * factor, value.interval.mapped(partial(operator.mul, factor)))} {unit}".strip()
    )


def difference(value: ValueScore) -> str:
    """The published value beside the measured one, and by how much they differ."""
    off = "" if math.isinf(_off(value)) else f" ({100 * _off(value):+.3g} %)".replace("-", "\N{MINUS SIGN}")
    return f"{published(value)} published, {measured(value)} measured{off}"


def _off(value: ValueScore) -> float:
    """The difference as a share of the published value; infinite where there is none."""
    if value.measured is None or not value.published:
        return math.inf
    return (value.measured - value.published) / abs(value.published)


def tie(score: OrderingScore) -> str:
    """What an ordering that holds as a tie is called."""
    return f"a tie: an effect of {100 * MARGIN:g} % is refuted" if score.refuted else "a tie"


def means(ordering: OrderingScore) -> str:
    """The measured means in the published order: "aq 2.1, droptail 1.9"."""
    return ", ".join(f"{label} {plain(mean)}" for label, mean in zip(ordering.order, ordering.measured, strict=True))


def counts(score: Score) -> Iterator[str]:
    """How much agrees: "3 of 4 values", "2 of 2 orderings (1 as ties)"; if incomplete, "9 of 10 runs"."""
    if score.stated:
        yield f"{score.within} of {len(score.stated)} values"
    if score.orderings:
        refuted = f", {score.refuted} of them without an effect of {100 * MARGIN:g} %" if score.refuted else ""
        ties = f" ({score.tied} as ties{refuted})" if score.tied else ""
        yield f"{score.hold} of {len(score.orderings)} orderings{ties}"
    if not score.is_complete:
        yield f"{score.valid} of {score.asked} runs"


def totals(counted: Mapping[str, int]) -> list[str]:
    """Sentences about all artefacts, from `scorecard.count`."""
    sentences = [
        f"{counted['pass']} of {counted['artefacts']} artefacts pass.",
        f"Over all backends, {counted['values_within']} of {counted['values']} stated values lie within tolerance, and "
        f"{counted['orderings_hold']} of {counted['orderings']} orderings hold, {counted['orderings_tied']} of them as "
        "ties.",
    ]
    if inconclusive := counted["inconclusive"]:
        sentences.append(
            f"{number_of(inconclusive, 'verdict')} of a backend {'is' if inconclusive == 1 else 'are'} inconclusive: "
            "other runs of the same campaign could give another."
        )
    return sentences


def totals_with_defaults(counted: Mapping[str, int]) -> str:
    """A sentence about the runs with the defaults of what was chosen."""
    return (
        f"With the defaults of the parameters that we chose, {counted['defaults_pass']} pass and "
        f"{counted['defaults_not_run']} were not run in full."
    )


def disagreements(artefact: Artefact) -> list[str]:
    """What an artefact's scores miss, each as a sentence; the farthest values first."""
    missed: list[tuple[float, str]] = []
    for backend, score in artefact.scores.items():
        for value in score.stated:
            if not value.within:
                where = place(value.measure, value.cell)
                missed.append((abs(_off(value)), f"{where} on {backend}: {difference(value)}."))
        for order in score.orderings:
            if not order.holds:
                where = place(order.measure, order.where)
                text = f"{where} on {backend}: the published order is not measured ({means(order)})."
                missed.append((0.0, text))
    missed.sort(key=lambda pair: -pair[0])
    more = len(missed) - MOST_LISTED
    return [text for _, text in missed[:MOST_LISTED]] + ([f"{more} more are in the tables."] if more > 0 else [])
