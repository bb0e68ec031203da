"""What it took to get a point's valid runs, and whether the attempts thrown away make them a selection.

A run with real packets is repeated until it is valid. Attempts become invalid under load, and load may go with what is
measured, so that the kept runs need not be like the others.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sqlalchemy as sa

from analysis.store.schema import attempt, membership
from testbed.units import number_of

if TYPE_CHECKING:
    from analysis.store import Store

#: A point is marked when a greater share of its attempts was thrown away.
MOST_THROWN = 0.1
#: And when a permutation test finds the throughput of both kinds unequal at this level.
LEVEL = 0.05
#: Regroupings that the permutation test counts one by one; of more, it draws this many.
MOST_COUNTED = 20_000
#: The metric by which kept and thrown attempts are compared.
METRIC = "aggregate_throughput"


@dataclass
class PointAttempts:
    """The attempts at a point's runs."""

    #: Throughput of the valid runs that have it, in bit/s; not read where no attempt was thrown away.
    kept_bps: list[float] = field(default_factory=list)
    #: The same of attempts thrown away.
    thrown_bps: list[float] = field(default_factory=list)
    valid: int = 0
    #: Invalid and failed attempts.
    thrown: int = 0

    @property
    def total(self) -> int:
        """All attempts."""
        return self.valid + self.thrown

    @property
    def discarded(self) -> str:
        """How many were thrown away: "2 of 5 attempts were discarded"."""
        return f"{self.thrown} of {number_of(self.total, 'attempt')} {'was' if self.thrown == 1 else 'were'} discarded"

    @property
    def reasons(self) -> list[str]:
        """Why the valid runs may be a selection; empty if nothing suggests it."""
        texts = []
        if self.thrown > MOST_THROWN * self.total:
            texts.append(self.discarded)
        p = permutation_p(self.kept_bps, self.thrown_bps)
        if p is not None and p < LEVEL:
            change = statistics.fmean(self.thrown_bps) / statistics.fmean(self.kept_bps) - 1
            texts.append(f"the discarded attempts had {change:+.1%} throughput (permutation test, p = {p:.2g})")
        return texts


def permutation_p(kept: Sequence[float], thrown: Sequence[float]) -> float | None:
    """P of the hypothesis that both come from one distribution, by the difference of their means.

    The share of regroupings whose means differ at least as much (two-sided; Pitman 1937). None if either is empty, or
    the first has no mean to compare with.
    """
    if not kept or not thrown or not statistics.fmean(kept):
        return None
    everything, size = [*kept, *thrown], len(thrown)
    middle = statistics.fmean(everything)
    seen = abs(math.fsum(thrown) - size * middle) * (1 - 1e-12)
    if (ways := math.comb(len(everything), size)) <= MOST_COUNTED:
        groups = itertools.combinations(everything, size)
        return sum(abs(math.fsum(group) - size * middle) >= seen for group in groups) / ways
    draw = random.Random("permutation")
    extreme = sum(abs(math.fsum(draw.sample(everything, size)) - size * middle) >= seen for _ in range(MOST_COUNTED))
    return (extreme + 1) / (MOST_COUNTED + 1)


def attempts_of(store: Store, campaign_id: str) -> dict[int, PointAttempts]:
    """The attempts at every point of a campaign that has runs."""
    by_point: dict[int, PointAttempts] = {}
    for head in store.heads(campaign_id):
        if head.state == "valid":
            by_point.setdefault(head.point, PointAttempts()).valid += 1
    thrown = (
        sa.select(membership.c.point, attempt.c.throughput_bps)
        .select_from(membership.join(attempt, attempt.c.run_id == membership.c.run_id))
        .where(membership.c.campaign_id == campaign_id)
    )
    for number, value in store.tuples(thrown):
        point = by_point.setdefault(number, PointAttempts())
        point.thrown += 1
        if value is not None:
            point.thrown_bps.append(value)
    compared = [number for number, point in by_point.items() if point.thrown_bps]
    for row in store.values(campaign_id, compared, only=[(METRIC, "")]) if compared else ():
        by_point[row.point].kept_bps.append(row.value)
    return by_point
