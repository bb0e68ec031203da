"""Student's t distribution: what every interval and test here rests on."""

from __future__ import annotations

import math
from functools import lru_cache


def t_cdf(t: float, freedom: float) -> float:
    """Student's distribution function, through the incomplete beta function (DLMF 8.17, 26.7 of Abramowitz, Stegun)."""
    tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return tail if t < 0 else 1 - tail


def t_tail(t: float, freedom: float) -> float:
    """Probability of more than `t` (t >= 0): exact where 1 - t_cdf would cancel."""
    return 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def half_width(sd: float, n: int, confidence: float) -> float:
    """Half of the interval of a mean of `n` values, two at least: t sd / sqrt(n), with n - 1 degrees of freedom."""
    return t_quantile(0.5 + confidence / 2, n - 1) * sd / math.sqrt(n)


@lru_cache(maxsize=1024)
def t_quantile(share: float, freedom: float) -> float:
    """Its inverse, by bisection to the precision of a float."""
    if not 0 < share < 1:
        raise ValueError(f"a quantile is between 0 and 1, not {share}")
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < share:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, freedom) < share else (low, middle)
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b): DLMF 8.17.22, its continued fraction evaluated from the back.

    The fraction converges fast for x < (a + 1) / (a + b + 2); beyond that by symmetry, 8.17.4.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    fraction = 1.0
    for j in range(100 + 4 * math.isqrt(int(a + b)), 0, -1):
        m = j // 2
        if j % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + d / fraction
    return front / fraction
