"""What a campaign answers: which point is best by a metric, by how much, and what it costs another quantity.

Best point and next are compared as analysis/question.py says, whose family allows for choosing them by their means. Of
a metric without a better direction, such as the utilisation, the highest and the lowest point are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.comparison import difference_text
from analysis.estimates import Estimate
from analysis.metrics import title_of
from analysis.metrics.registry import Better, estimate
from analysis.question import Asked, better_of
from analysis.results import Quantity, of_subject
from analysis.routes import data_paths
from analysis.statistics import MARGIN, Compared
from testbed import units
from testbed.scenario import Scenario

#: A flow is starved where it has less than this part of its fair share of the slowest line on its way.
STARVED = 0.1
#: Kinds of flows that take what they can get.
GREEDY = frozenset({"bulk", "established", "fetch"})


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
    #: Its fair share at the best point, in bit/s, where it is starved; otherwise None.
    starved_of_bps: float | None


@dataclass(frozen=True)
class Best:
    """The best point by a metric."""

    quantity: Quantity
    better: Better | None
    #: The highest point of a metric without a better direction.
    best: Ranked
    #: The lowest point of a metric without a better direction. None with a single point.
    next: Ranked | None
    #: Best less next. Interval and verdict have the same level.
    compared: Compared | None
    cost: Cost | None
    #: Whether the campaign does not ask about it.
    exploratory: bool


def best(
    results: Asked,
    quantity: Quantity,
    other: Quantity | None = None,
    among: Sequence[int] = (),
    scenario_of: Callable[[int], Scenario | None] = lambda point: None,
) -> Best | None:
    """The best point by a metric; None if no point has it.

    Args:
        results: of a campaign, with its question.
        quantity: by which points are ranked.
        other: whose cost is named, such as the other direction's.
        among: indices of the points; all without any.
        scenario_of: a point's network and flows, from which fair shares follow.
    """
    candidates = ranked(results, quantity, among)
    if not candidates or results.question is None:
        return None
    first, rest = candidates[0], candidates[1:]
    better = results.question.better_of(quantity)
    rival = (rest[0] if better else rest[-1]) if rest else None
    judged = None
    if rival is not None:
        of_rival, of_first = (results.values[at.point][quantity] for at in (rival, first))
        judged = results.question.judged(quantity, of_rival, of_first)
    cost = None
    if other is not None and other in results.values[first.point]:
        of_other = ranked(results, other, [candidate.point for candidate in candidates])
        here = next((entry for entry in of_other if entry.point == first.point), None)
        if here is not None:
            cost = Cost(other, here, of_other[0], starved_of(scenario_of(first.point), other, here.estimate.mean))
    exploratory = results.question.is_exploratory(quantity)
    return Best(quantity, better, first, rival, judged, cost, exploratory)


def starved_of(scenario: Scenario | None, quantity: Quantity, mean: float) -> float | None:
    """The fair share, in bit/s, of flows that have less than a part of STARVED of it; None for others.

    A fair share is the least, over the lines on the way, of a line's rate over the greedy flows whose data cross it.
    Lines without a rate of their own, such as those of a trace, do not count.
    """
    if quantity.unit != "rate" or scenario is None:
        return None
    share_bps = fair_share_bps(scenario, quantity.subject)
    return share_bps if share_bps and mean < STARVED * share_bps else None


def fair_share_bps(scenario: Scenario, subject: str) -> float:
    """The fair share of a flow, or of a group's flows together, as `starved_of` defines it; 0 without one."""
    return sum(fair for name, group, fair in _fair_shares(scenario) if subject in (name, group))


def _fair_shares(scenario: Scenario) -> Iterator[tuple[str, str | None, float]]:
    """Name, group and fair share in bit/s of each greedy flow that crosses a line with a rate."""
    greedy = {flow.name for flow in scenario.workload if flow.kind in GREEDY}
    ways = {name: path for name, path in data_paths(scenario).items() if name in greedy}
    flows_on = Counter(line for lines in ways.values() for line, _ in lines)
    for flow in scenario.workload:
        rates = [rate / flows_on[line] for line, rate in ways.get(flow.name, ()) if rate is not None]
        if rates:
            yield flow.name, flow.group, min(rates)


def ranked(results: Asked, quantity: Quantity, among: Sequence[int] = ()) -> list[Ranked]:
    """Points by the means of a metric, the best first; the highest first if it has no better direction."""
    entries = [
        Ranked(point, estimate(quantity.metric, quantity.unit, list(of_point[quantity].values())))
        for point, of_point in results.values.items()
        if quantity in of_point and (not among or point in among)
    ]
    better = results.question.better_of(quantity) if results.question else None
    return sorted(entries, key=lambda item: item.estimate.mean, reverse=better != "less")


def sentences(answer: Best, labels: Mapping[int, str], named: bool = True) -> list[str]:
    """The answer in words: the best point, its lead over the next, and the cost.

    Args:
        answer: of `best`.
        labels: of the points.
        named: whether the quantity is named.
    """
    unit, word = answer.quantity.unit, "lowest" if answer.better == "less" else "highest"
    shown = _shown(answer.best.estimate, unit)
    head = f"{_name(answer.quantity)} is {word}" if named else word.capitalize()
    parts = [f"{head} with {labels[answer.best.point]}: {shown}."]
    if answer.next is None:
        parts = [f"{_name(answer.quantity)} is {shown}."]
    if answer.next is not None and answer.compared is not None:
        place = "the next" if answer.better else "the lowest"
        parts.append(_lead(answer.next, answer.compared, unit, labels, place))
    if answer.cost is not None:
        parts.append(_cost(answer.cost, labels, is_only=answer.next is None))
    return parts


def _name(quantity: Quantity) -> str:
    return of_subject(title_of(quantity.metric), quantity.subject)


def _shown(estimate: Estimate, unit: str) -> str:
    return f"{estimate.text(unit)}, {estimate.n} run{'s' if estimate.n > 1 else ''}"


def _lead(second: Ranked, compared: Compared, unit: str, labels: Mapping[int, str], place: str) -> str:
    there = f"{labels[second.point]}, {place}: {second.estimate.text(unit)}"
    if compared.difference.value == 0 and compared.difference.interval is None and compared.verdict == "same":
        return f"It is equal, run by run, with {labels[second.point]}."
    text = f"Against {there}, the difference is {difference_text(compared, unit)}"
    match compared.verdict:
        case "different":
            return f"{text}, which is conclusive."
        case "same":
            return f"{text}. The two are equal within {MARGIN * 100:.0f} %."
    return f"{text}."


def _cost(cost: Cost, labels: Mapping[int, str], is_only: bool) -> str:
    unit, name = cost.quantity.unit, _name(cost.quantity)
    here = f"{name[0].lower()}{name[1:]} is {cost.here.estimate.text(unit)}"
    fair = ""
    if cost.starved_of_bps is not None:
        share = units.show(cost.starved_of_bps, "rate")
        fair = f", less than {STARVED * 100:.0f} % of its fair share of the link ({share}): it starves"
    if is_only:
        return f"{here[0].upper()}{here[1:]}{fair}."
    text = f"With {labels[cost.here.point]}, {here}{fair}"
    word = "best" if better_of(cost.quantity.metric) else "highest"
    if cost.here.estimate.mean == cost.most.estimate.mean:
        return f"{text}. That is its {word}, too."
    return f"{text}. Its {word} is {cost.most.estimate.text(unit)} with {labels[cost.most.point]}."
