"""Whether a campaign's conclusions survive small changes of its links: the same simulations with slightly other rates,
delays and buffers.

A conclusion that holds at 10 ms and not at 10.01 ms is about the simulation and not about the protocol. The report is
explained in docs/doubt.md.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from analysis.estimates import Estimate
from analysis.metrics.registry import estimate
from analysis.results import Parameters, Quantity, Results
from analysis.statistics import LEVEL, difference, mean
from experiments.language import registry
from experiments.language.campaign import Plan, Run
from testbed.scenario import Document

#: Greatest relative change of rates, delays and buffers, unless another is asked for.
BY = 0.001
#: Options of policies that bound a buffer.
_BUFFERS = ("limit_packets", "buffer_bytes")


@dataclass(frozen=True)
class PointMean:
    """Mean of one flow at one point, in the metric's unit."""

    subject: str
    point: Parameters
    original: Estimate
    #: Means of the perturbed repetitions.
    perturbed: tuple[float, ...]

    @property
    def inside(self) -> int | None:
        """Perturbed means that the interval contains; None without an interval."""
        interval = self.original.interval
        return None if interval is None else sum(value in interval for value in self.perturbed)


@dataclass(frozen=True)
class Ordering:
    """Two points in the order of their original means, the greater first."""

    subject: str
    greater: Parameters
    less: Parameters
    #: Whether one of them is the campaign's first point.
    with_first: bool
    #: Whether the interval of the original difference excludes 0.
    is_clear: bool
    #: Perturbations that keep the order.
    kept: int


@dataclass(frozen=True)
class Sensitivity:
    """What the perturbations change."""

    campaign: str
    metric: str
    unit: str
    #: Greatest relative change.
    by: float
    perturbations: int
    means: tuple[PointMean, ...]
    orderings: tuple[Ordering, ...]

    def count(self, *, clear: bool, with_first: bool = False) -> tuple[int, int]:
        """Orderings that every perturbation keeps, and all."""
        orderings = [
            ordering
            for ordering in self.orderings
            if ordering.is_clear == clear and (ordering.with_first or not with_first)
        ]
        return sum(ordering.kept == self.perturbations for ordering in orderings), len(orderings)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        means = [
            {
                "subject": row.subject,
                "point": row.point,
                "mean": row.original.mean,
                "n": row.original.n,
                "interval": row.original.ends,
                "perturbed": row.perturbed,
                "inside": row.inside,
            }
            for row in self.means
        ]
        return {**asdict(self), "means": means}


def perturbed_plan(plan: Plan, number: int, by: float) -> Plan:
    """The plan with every link changed by a factor from 1 - by to 1 + by for each rate, delay and buffer.

    Equal links of all points and repetitions change equally. Buffers are whole packets or bytes, so that a change
    of less than half a packet is none.
    """
    runs = [_perturbed_run(run, f"{plan.seed}/sensitivity/{number}", by) for run in plan.runs]
    return replace(plan, name=f"{plan.name}-perturbed-{number}", runs=runs)


def _perturbed_run(run: Run, stream: str, by: float) -> Run:
    document = run.document.document
    links = [_perturbed_link(link, f"{stream}/{link['name']}", by) for link in document["links"]]
    return run.with_scenario({**document, "links": links})


def _perturbed_link(link: Document, stream: str, by: float) -> dict[str, Any]:
    def factor(name: str) -> float:
        return random.Random(f"{stream}/{name}").uniform(1 - by, 1 + by)

    # A shared medium has one rate and one latency.
    shared = link["kind"] != "point-to-point"
    directions = {}
    for way in ("forward", "reverse"):
        rate, delay = (factor(name if shared else f"{way}/{name}") for name in ("rate", "delay"))
        directions[way] = _perturbed_direction(link[way], rate, delay, factor(f"{way}/buffer"))
    return {**link, **directions}


def _perturbed_direction(direction: Document, rate: float, delay: float, buffer: float) -> dict[str, Any]:
    perturbed = _perturbed_line(direction, rate, delay) | {"queue": _perturbed_queue(direction["queue"], buffer)}
    if "schedule" in direction:
        perturbed["schedule"] = [_perturbed_line(change, rate, delay) for change in direction["schedule"]]
    return perturbed


def _perturbed_queue(queue: Document, buffer: float) -> dict[str, Any]:
    """A policy with another buffer, and so those that it holds. The default of a limit is none over a child."""
    given: Document = queue.get("options", {})
    params = registry.find("policy", queue["name"]).params
    children = {param.name: given[param.name] for param in params if param.unit == "policy" and param.name in given}
    defaults = {} if children else {param.name: param.default for param in params}
    sizes = {name: given.get(name, defaults.get(name)) for name in _BUFFERS}
    changed = {name: round(size * buffer) for name, size in sizes.items() if size}
    held = {name: _perturbed_queue(child, buffer) for name, child in children.items()}
    return {**queue, "options": {**given, **changed, **held}}


def _perturbed_line(part: Document, rate: float, delay: float) -> dict[str, Any]:
    perturbed = dict(part)
    if "rate_bps" in part:
        perturbed["rate_bps"] = max(1, round(part["rate_bps"] * rate))
    # Jitter grows with the delay, which it must not exceed.
    for name in ("delay_s", "jitter_s"):
        if name in part:
            perturbed[name] = round(part[name] * delay, 9)
    return perturbed


def assess(original: Results, perturbed: Sequence[Results], metric: str, by: float) -> Sensitivity:
    """Compares the original results with the perturbed ones.

    Args:
        original: of the campaign.
        perturbed: of the campaign under each perturbation; the points are in the same order.
        metric: the metric to compare, per subject.
        by: greatest relative change.

    Raises:
        ValueError: no point has the metric.
    """
    quantities = dict.fromkeys(
        quantity for of_point in original.values.values() for quantity in of_point if quantity.metric == metric
    )
    if not quantities:
        raise ValueError(f"no combination has the metric '{metric}'")
    means: list[PointMean] = []
    orderings: list[Ordering] = []
    for quantity in quantities:
        points = [
            number
            for number in range(len(original.points))
            if all(quantity in results.values.get(number, {}) for results in (original, *perturbed))
        ]
        means += [_point_mean(original, perturbed, quantity, number) for number in points]
        orderings += [_ordering(original, perturbed, quantity, *pair) for pair in itertools.combinations(points, 2)]
    unit = next(iter(quantities)).unit
    return Sensitivity(original.name, metric, unit, by, len(perturbed), tuple(means), tuple(orderings))


def _mean(results: Results, quantity: Quantity, number: int) -> float:
    return mean(list(results.values[number][quantity].values()))


def _point_mean(original: Results, perturbed: Sequence[Results], quantity: Quantity, number: int) -> PointMean:
    values = list(original.values[number][quantity].values())
    return PointMean(
        quantity.subject,
        original.points[number],
        estimate(quantity.metric, quantity.unit, values),
        tuple(_mean(results, quantity, number) for results in perturbed),
    )


def _ordering(original: Results, perturbed: Sequence[Results], quantity: Quantity, a: int, b: int) -> Ordering:
    if _mean(original, quantity, a) < _mean(original, quantity, b):
        greater, less = b, a
    else:
        greater, less = a, b
    is_tie = _mean(original, quantity, a) == _mean(original, quantity, b)
    changes = [_mean(results, quantity, greater) - _mean(results, quantity, less) for results in perturbed]
    interval = difference(original.values[less][quantity], original.values[greater][quantity], LEVEL).interval
    return Ordering(
        quantity.subject,
        original.points[greater],
        original.points[less],
        with_first=0 in (a, b),
        is_clear=interval is not None and 0 not in interval,
        kept=sum(change == 0 if is_tie else change > 0 for change in changes),
    )
