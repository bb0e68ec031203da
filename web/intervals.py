"""Confidence intervals from Student's t distribution: of a mean, and of the difference between two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
    return t_quantile(n - 1, confidence) * sd / math.sqrt(n)


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
    return Difference(mean, t_quantile(freedom, CONFIDENCE) * math.sqrt(a + b), n, "Welch")


@lru_cache(maxsize=1024)
def t_quantile(freedom: float, confidence: float) -> float:
    """The value that |t| stays below with a probability: the two-sided quantile of Student's distribution."""
    low, high = 0.0, 1.0
    while _inside(high, freedom) < confidence:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _inside(t: float, freedom: float) -> float:
    """P(|T| < t) = 1 - I_x(v/2, 1/2) with x = v / (v + t^2)."""
    return 1.0 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1 - (a + b) * x / (a + 1)) or tiny)
    fraction = d
    for m in range(1, 400):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction / a
