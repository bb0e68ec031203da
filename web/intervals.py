"""Confidence intervals from Student's t distribution: of a mean, and of the difference between two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.student import t_quantile

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of the second less mean of the first; half of its interval (None: too few values); how it was made."""

    mean: float
    half: float | None
    n: int
    #: "paired" or "Welch".
    kind: str

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.half is not None and abs(self.mean) > self.half


def half_width(sd: float | None, n: int, confidence: float = CONFIDENCE) -> float | None:
    """Half of the interval of a mean: t sd / sqrt(n), with n - 1 degrees of freedom; None for fewer than two values."""
    if sd is None or n < 2:
        return None
    return t_quantile(0.5 + confidence / 2, n - 1) * sd / math.sqrt(n)


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Difference | None:
    """Between two sets of values, by their pairs where they have the same keys (seeds), else after Welch.

    Args:
        first: key to value; equal keys belong together.
        second: the same of the other set.
    """
    if not first or not second:
        return None
    shared = [key for key in first if key in second]
    if len(shared) == len(first) == len(second):
        offs = [second[key] - first[key] for key in shared]
        sd = statistics.stdev(offs) if len(offs) > 1 else None
        return Difference(statistics.fmean(offs), half_width(sd, len(offs)), len(offs), "paired")
    return _welch(list(first.values()), list(second.values()))


def _welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    mean = statistics.fmean(second) - statistics.fmean(first)
    n = min(len(first), len(second))
    if n < 2:
        return Difference(mean, None, n, "Welch")
    a, b = statistics.variance(first) / len(first), statistics.variance(second) / len(second)
    if a + b == 0:
        return Difference(mean, 0.0, n, "Welch")
    # Welch and Satterthwaite's degrees of freedom.
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return Difference(mean, t_quantile(0.5 + CONFIDENCE / 2, freedom) * math.sqrt(a + b), n, "Welch")
