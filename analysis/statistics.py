"""Statistics over repetitions: means with their uncertainty, and comparisons of two policies on the same seeds.

Two rules hold everywhere, and whatever they leave out is named:

- Warm-up: what happens before a scenario's `warm_up` enters no metric. Nothing else is cut off; `steady_from` proposes
  where to cut a series, by a stated rule, and cuts nothing itself.
- Outliers: no value is ever left out of a mean on its own account. `outliers` names the ones beyond Tukey's fences;
  `summarise` tells them beside the mean of all, and leaves them out only when asked to, saying which.

Invalid runs are no outliers: they are out of everything because of how they were made (testbed/fidelity.py), not
because of what they gave.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.student import half_width, t_cdf

Statistic = Callable[[Sequence[float]], float]

#: Resamples of a bootstrap unless told otherwise.
RESAMPLES = 2000
#: Tukey's fences lie this many interquartile ranges beyond the quartiles.
FENCE = 1.5
#: With fewer values, quartiles say nothing.
LEAST_FOR_FENCES = 4


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float
    #: "t" or "bootstrap".
    method: str

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Summary:
    """What repetitions gave."""

    n: int
    mean: float
    #: Sample standard deviation (n - 1); None for one value.
    sd: float | None
    t: Interval | None
    bootstrap: Interval | None
    #: Values beyond Tukey's fences.
    outliers: tuple[float, ...]
    #: Of these, the ones that are in no figure above: all of them where the caller asked for that, otherwise none.
    left_out: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """Two policies on the same seeds: `second` less `first`, pair by pair."""

    n: int
    mean_first: float
    mean_second: float
    #: Of the differences.
    mean: float
    sd: float | None
    t: Interval | None
    bootstrap: Interval | None
    #: Two-sided p of the paired t-test; None for fewer than two pairs, or when all differences are equal.
    p: float | None
    #: Cohen's d of paired samples, d_z = mean / sd of the differences; None where sd is 0 or unknown.
    d_z: float | None
    #: d_z with Hedges' correction for few pairs, 1 - 3 / (4 (n - 1) - 1); None as d_z, and for two pairs.
    g_z: float | None
    #: mean_second / mean_first - 1; None when mean_first is 0.
    relative: float | None
    #: Keys that only one side has: they are in no figure above.
    unpaired: tuple[object, ...]


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values have no mean")
    return statistics.fmean(values)


def sd(values: Sequence[float]) -> float | None:
    """The sample standard deviation, sqrt(sum (x - mean)^2 / (n - 1)); None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def t_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Mean ± t sd / sqrt(n), t the (1 + level) / 2 quantile of Student's distribution with n - 1 degrees of freedom.

    Right for values that are about normal. None for fewer than two.
    """
    _check_level(level)
    deviation = sd(values)
    if deviation is None:
        return None
    half = half_width(deviation, len(values), level)
    return Interval(mean(values) - half, mean(values) + half, level, "t")


def bootstrap_interval(
    values: Sequence[float],
    seed: int,
    level: float = 0.95,
    statistic: Statistic = statistics.fmean,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """The percentile bootstrap's interval (Efron and Tibshirani 1993, chapter 13) of any statistic.

    The (1 - level) / 2 and (1 + level) / 2 quantiles of the statistic over samples drawn with replacement. The same
    seed gives the same interval. None for fewer than two values. With fewer than about ten it is too narrow.

    Args:
        values: the sample.
        seed: of the drawing.
        level: between 0 and 1.
        statistic: the mean unless told otherwise.
        resamples: how many samples to draw.
    """
    _check_level(level)
    if resamples < 1:
        raise ValueError(f"{resamples} resamples give no interval")
    if len(values) < 2:
        return None
    draw = random.Random(f"bootstrap/{seed}")
    found = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(resamples))
    return Interval(quantile(found, (1 - level) / 2), quantile(found, (1 + level) / 2), level, "bootstrap")


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between two of them (type 7 of Hyndman and Fan 1996)."""
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def outliers(values: Sequence[float]) -> tuple[float, ...]:
    """The values beyond Tukey's fences, [Q1 - FENCE (Q3 - Q1), Q3 + FENCE (Q3 - Q1)]; none of fewer than four."""
    if len(values) < LEAST_FOR_FENCES:
        return ()
    ordered = sorted(values)
    first, third = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = FENCE * (third - first)
    return tuple(value for value in values if value < first - reach or value > third + reach)


def summarise(values: Sequence[float], seed: int, level: float = 0.95, *, without_outliers: bool = False) -> Summary:
    """Mean, deviation, both intervals, and the outliers, which stay in unless `without_outliers`.

    Raises:
        ValueError: there are no values.
    """
    beyond = outliers(values)
    kept = [value for value in values if value not in beyond] if without_outliers else list(values)
    return Summary(
        n=len(kept), mean=mean(kept), sd=sd(kept), t=t_interval(kept, level),
        bootstrap=bootstrap_interval(kept, seed, level), outliers=beyond, left_out=beyond if without_outliers else (),
    )  # fmt: skip


def compare(
    first: Mapping[object, float], second: Mapping[object, float], seed: int, level: float = 0.95
) -> Comparison:
    """Compares two policies pair by pair: what a repetition's seed does to both is not in the difference.

    Args:
        first: repetition (or whatever pairs the runs) to value.
        second: the same of the other policy.
        seed: of the bootstrap.
        level: of both intervals.

    Raises:
        ValueError: no key is in both.
    """
    keys = [key for key in first if key in second]
    if not keys:
        raise ValueError("there is nothing to compare: no repetition has a value on both sides")
    differences = [second[key] - first[key] for key in keys]
    deviation, middle, n = sd(differences), mean(differences), len(keys)
    spread = deviation is not None and deviation > 0
    d_z = middle / deviation if deviation is not None and spread else None
    before, after = mean([first[key] for key in keys]), mean([second[key] for key in keys])
    return Comparison(
        n=n, mean_first=before, mean_second=after, mean=middle, sd=deviation, t=t_interval(differences, level),
        bootstrap=bootstrap_interval(differences, seed, level),
        p=None if d_z is None else 2 * t_cdf(-abs(d_z) * math.sqrt(n), n - 1),
        d_z=d_z,
        g_z=None if d_z is None or n < 3 else d_z * (1 - 3 / (4 * (n - 1) - 1)),
        relative=after / before - 1 if before else None,
        unpaired=tuple(key for key in (*first, *second) if key not in keys),
    )  # fmt: skip


def steady_from(values: Sequence[float], batch: int = 5) -> int:
    """Where a series becomes steady, by MSER-5 (White 1997; White, Cobb, Spratt 2000): how many values to leave out.

    Of all truncations by whole batches, in the first half of the series, the one for which the squared standard error
    of the remaining batch means, sum (x - mean)^2 / k^2, is least. 0 for a series of fewer than four batches.
    """
    means = [statistics.fmean(values[at : at + batch]) for at in range(0, len(values) - batch + 1, batch)]
    if len(means) < 4:
        return 0

    def error(cut: int) -> float:
        rest = means[cut:]
        return statistics.pvariance(rest) / len(rest)

    return batch * min(range(len(means) // 2 + 1), key=error)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level is between 0 and 1, such as 0.95, not {level}")


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2 or not (mean := statistics.fmean(values)):
        return None
    return statistics.stdev(values) / mean
