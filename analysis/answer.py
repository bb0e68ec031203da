"""What a campaign answers: which point is best by a metric, by how much, and what it costs another quantity.

The best point and the next are chosen by their means, so their comparison is corrected for the choice: any of the
k (k - 1) / 2 pairs of k points might have been compared, and they share the error (Bonferroni). Of a metric without a
better direction, such as the utilisation, the highest and the lowest point are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.estimates import Estimate, relative_text
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.results import Quantity, Results, Values
from analysis.statistics import LEVEL, MARGIN, Compared, compare_all
from testbed import units

#: Another quantity is starved at a point where its mean is below this share of its best mean.
STARVED = 0.1


@dataclass(frozen=True)
class Ranked:
    """A point and its mean."""

    #: Index into the points.
    point: int
    estimate: Estimate


@dataclass(frozen=True)
class Cost:
    """Another quantity at the best point, and where it is best itself."""

    quantity: Quantity
    here: Ranked
    most: Ranked

    @property
    def starved(self) -> bool:
        """Whether little of it is left; only of quantities of which more is better."""
        wanted = _better(self.quantity) == "more"
        return wanted and self.most.estimate.mean > 0 and self.here.estimate.mean < STARVED * self.most.estimate.mean


@dataclass(frozen=True)
class Best:
    """The best point by a metric."""

    quantity: Quantity
    #: The highest point of a metric without a better direction.
    best: Ranked
    #: The lowest point of a metric without a better direction. None with a single point.
    next: Ranked | None
    #: Best less next. Interval and verdict have the same level.
    compared: Compared | None
    cost: Cost | None


def best(
    results: Results, quantity: Quantity, other: Quantity | None = None, among: Sequence[int] = (), questions: int = 1
) -> Best | None:
    """The best point by a metric; None if no point has it.

    Args:
        results: of a campaign.
        quantity: by which points are ranked.
        other: whose cost is named, such as the other direction's.
        among: indices of the points; all without any.
        questions: that are answered together and share the error.
    """
    candidates = ranked(results, quantity, among)
    if not candidates:
        return None
    first, rest = candidates[0], candidates[1:]

    def values(ranked: Ranked) -> Values:
        return results.values[ranked.point][quantity]

    pairs = len(candidates) * (len(candidates) - 1) // 2
    level = 1 - (1 - LEVEL) / max(pairs * questions, 1)
    rival = (rest[0] if _better(quantity) else rest[-1]) if rest else None
    judged = compare_all([(values(rival), values(first))], level) if rival else []
    cost = None
    if other is not None and other in results.values[first.point]:
        of_other = ranked(results, other, [candidate.point for candidate in candidates])
        here = next((entry for entry in of_other if entry.point == first.point), None)
        cost = Cost(other, here, of_other[0]) if here is not None else None
    return Best(quantity, first, rival, judged[0] if rival else None, cost)


def ranked(results: Results, quantity: Quantity, among: Sequence[int] = ()) -> list[Ranked]:
    """Points by the means of a metric, the best first; the highest first if it has no better direction."""
    entries = [
        Ranked(point, estimate(quantity.metric, quantity.unit, list(of_point[quantity].values())))
        for point, of_point in results.values.items()
        if quantity in of_point and (not among or point in among)
    ]
    return sorted(entries, key=lambda item: item.estimate.mean, reverse=_better(quantity) != "less")


def sentences(answer: Best, labels: Mapping[int, str], named: bool = True) -> list[str]:
    """The answer in words: the best point, its lead over the next, and the cost.

    Args:
        answer: of `best`.
        labels: of the points.
        named: whether the quantity is named.
    """
    unit, word = answer.quantity.unit, _word(answer.quantity)
    shown = _shown(answer.best.estimate, unit)
    head = f"{_name(answer.quantity)} is {word}" if named else word.capitalize()
    parts = [f"{head} with {labels[answer.best.point]}: {shown}."]
    if answer.next is None:
        parts = [f"{_name(answer.quantity)} is {shown}."]
    if answer.next is not None and answer.compared is not None:
        place = "the next" if _better(answer.quantity) else "the lowest"
        parts.append(_lead(answer.next, answer.compared, unit, labels, place))
    if answer.cost is not None:
        parts.append(_cost(answer.cost, labels, is_only=answer.next is None))
    return parts


def _better(quantity: Quantity) -> str | None:
    """ "more" or "less"; None without a better direction, as of metrics that this version does not have."""
    return METRICS[quantity.metric].better if quantity.metric in METRICS else None


def _word(quantity: Quantity) -> str:
    return "lowest" if _better(quantity) == "less" else "highest"


def _name(quantity: Quantity) -> str:
    title = METRICS[quantity.metric].title if quantity.metric in METRICS else quantity.metric
    return f"{title}, {quantity.subject}," if quantity.subject else title


def _shown(estimate: Estimate, unit: str) -> str:
    return f"{estimate.text(unit)}, {estimate.n} run{'s' if estimate.n > 1 else ''}"


def _lead(second: Ranked, compared: Compared, unit: str, labels: Mapping[int, str], place: str) -> str:
    gap = compared.difference
    ends = (gap.interval.low, gap.interval.high) if gap.interval else ()
    # Shares differ by percentage points.
    scale, name = (0.01, "points") if unit == "fraction" else units.scale_of(max(map(abs, (gap.value, *ends))), unit)
    if gap.value == 0 and not ends and compared.verdict == "same":
        return f"It is equal, run by run, with {labels[second.point]}."
    size = f"{abs(gap.value) / scale:.3g} {name}".strip()
    way = "more" if gap.value >= 0 else "less"
    size += relative_text(gap.relative) if unit != "fraction" else ""
    text = f"That is {size} {way} than with {labels[second.point]}, {place}: {second.estimate.text(unit)}"
    if ends:
        low, high = (f"{end / scale:.3g}".replace("-", "−") for end in ends)
        text += f"; interval of the difference {low} to {high} {name}".rstrip()
    match compared.verdict:
        case "different":
            return f"{text}. The difference is conclusive."
        case "same":
            return f"{text}. The two are equal within {MARGIN * 100:.0f} %."
    if gap.error is None:
        return f"{text}. Nothing can be concluded, because neither side has runs that differ."
    return f"{text}. The difference is not conclusive."


def _cost(cost: Cost, labels: Mapping[int, str], is_only: bool) -> str:
    unit, name = cost.quantity.unit, cost.quantity.subject or _name(cost.quantity)
    here = f"{name} has {cost.here.estimate.text(unit)}"
    if is_only:
        return f"{here[0].upper()}{here[1:]}."
    text, word = f"With {labels[cost.here.point]}, {here}", "best" if _better(cost.quantity) else "highest"
    if cost.here.point == cost.most.point:
        return f"{text}, which is its {word}, too."
    best_of_it = f"{cost.most.estimate.text(unit)} with {labels[cost.most.point]}"
    return f"{text} and starves: it has up to {best_of_it}." if cost.starved else f"{text}; its {word} is {best_of_it}."
