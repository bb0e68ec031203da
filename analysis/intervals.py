"""Confidence intervals of differences, and whether many of them at once still mean something.

Student's t distribution is computed from the regularised incomplete beta function (Abramowitz and Stegun 26.5.8,
26.7.1), because nothing else here needs a statistics library.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.student import t_quantile, t_tail


@dataclass(frozen=True)
class Difference:
    """A mean of B less a mean of A, in the metric's unit."""

    difference: float
    #: Bounds of the confidence interval; None where there are too few values to tell.
    low: float | None
    high: float | None
    #: Two-sided: how likely a difference of this size is where there is none. None as above.
    p: float | None
    #: "paired" by repetition, or "welch".
    method: str


def paired(a: Sequence[float], b: Sequence[float], confidence: float) -> Difference:
    """Of values that belong together one by one: the t interval of their differences.

    Args:
        a: values of A.
        b: as many of B.
        confidence: such as 0.95.
    """
    gaps = [there - here for here, there in zip(a, b, strict=True)]
    mean = statistics.fmean(gaps)
    if len(gaps) < 2:
        return Difference(mean, None, None, None, "paired")
    error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    return _interval(mean, error, len(gaps) - 1, confidence, "paired")


def welch(a: Sequence[float], b: Sequence[float], confidence: float) -> Difference:
    """Of two samples with variances of their own (Welch 1947, with Satterthwaite's degrees of freedom)."""
    mean = statistics.fmean(b) - statistics.fmean(a)
    if len(a) < 2 or len(b) < 2:
        return Difference(mean, None, None, None, "welch")
    shares = [statistics.variance(one) / len(one) for one in (a, b)]
    error = math.sqrt(sum(shares))
    if error == 0:
        return _interval(mean, 0.0, 1.0, confidence, "welch")
    freedom = sum(shares) ** 2 / sum(
        share**2 / (len(one) - 1) for share, one in zip(shares, (a, b), strict=True) if share
    )
    return _interval(mean, error, freedom, confidence, "welch")


def _interval(mean: float, error: float, freedom: float, confidence: float, method: str) -> Difference:
    # Rounding alone leaves a deviation of about 1e-16 of the values, which proves nothing.
    if error <= abs(mean) * 1e-12:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, method)
    half = t_quantile(0.5 + confidence / 2, freedom) * error
    return Difference(mean, mean - half, mean + half, 2 * t_tail(abs(mean) / error, freedom), method)


def holm(p_values: Sequence[float]) -> list[float]:
    """The values adjusted for being many (Holm 1979): all that are below a level err with at most that probability."""
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = least
    return adjusted
