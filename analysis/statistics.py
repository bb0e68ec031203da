"""Statistics over repetitions: means with confidence intervals, differences of two sets of runs, outliers, warm-up.

Every part that shows an interval or a difference calls this module: command line, site, scorecard, figures, exports.

- **Interval of a mean.** Student's t with n - 1 degrees of freedom. None for fewer than two values.
  analysis/estimates.py keeps it within a metric's bounds.
- **Pairing.** Two runs belong together if they have the same key: repetition and seed. The difference of two sets is
  paired if at least two runs, and at least half of the smaller set, have a partner. Runs without a partner are then
  left out and listed (`unpaired`). In every other case all runs count and the interval is Welch's. So they do where
  all pairs have the same difference, as counts and other coarse values have by chance: the runs still have a spread.
- **Many differences.** `judged` adjusts one difference for the number that share the error, by Bonferroni's method;
  analysis/question.py states that number. `compare_all` judges a whole set by Holm's. Means are equivalent only by a
  test.
- **The greatest of several means.** `candidate_maxima` and `greatest_interval` allow for its selection by the runs.
- **Outliers** stay in every mean. `outliers` lists the values beyond Tukey's fences.
- **Warm-up.** Nothing is cut off but the scenario's `warm_up`. `steady_from` proposes where to cut a series.

Invalid runs are not outliers. They are excluded because of how they were made (testbed/fidelity.py).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

#: Default confidence level of every interval.
LEVEL = 0.95
#: Default for the greatest difference of equivalent means, as a share of the first mean.
MARGIN = 0.05
#: Distance of Tukey's fences from the quartiles, in interquartile ranges.
FENCE = 1.5
#: Quartiles of fewer values are not used.
LEAST_FOR_FENCES = 4
#: Bonett's interval trims 1 / (2 sqrt(n - 4)) of n values at both ends.
LEAST_FOR_SD_INTERVAL = 5
#: More runs than these are not asked for.
MOST_RUNS_NEEDED = 1000
#: Rounding alone leaves a standard error of about 1e-16 of the values. A relative one below this counts as zero.
ROUNDING = 1e-12


class RunKey(NamedTuple):
    """What pairs runs: a repetition has the same seed at every point of a campaign."""

    repetition: int
    seed: int


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float
    #: "t", "t, cut at the bounds", "bootstrap", "welch", "bonferroni", "bonett", "clopper-pearson", "possible" or
    #: "exact".
    method: str

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def is_symmetric(self) -> bool:
        """Whether its middle is the estimate, so that it reads as ±."""
        return self.method in ("t", "welch", "exact")

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share a value."""
        return self.low <= other.high and other.low <= self.high

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """The interval of a monotone function of the value."""
        low, high = sorted((function(self.low), function(self.high)))
        return replace(self, low=low, high=high)


def exact_interval(value: float) -> Interval:
    """The interval of a value in which there is no chance."""
    return Interval(value, value, LEVEL, "exact")


@dataclass(frozen=True)
class Difference:
    """Mean of the second set of runs less mean of the first, over the runs that the pairing rule selects."""

    method: Literal["paired", "welch"]
    #: Runs used of each set; equal if paired.
    n_first: int
    n_second: int
    mean_first: float
    mean_second: float
    #: The difference, in the metric's unit.
    value: float
    #: Standard deviation of the pairs' differences; None for Welch and for fewer than two pairs.
    sd: float | None
    #: Standard error and degrees of freedom of `value`; None if a set has fewer than two runs, or if the means differ
    #: and neither set has any spread: repetitions that are all equal say nothing of chance.
    error: float | None
    freedom: float | None
    #: Level of `interval`.
    level: float
    #: Keys that have no partner and are left out; empty for Welch.
    unpaired: tuple[Hashable, ...]

    @property
    def _equal(self) -> bool:
        """Whether the two runs of each pair have the same value."""
        return self.error == 0

    @property
    def interval(self) -> Interval | None:
        """Confidence interval of `value`; None as `error`, and if all pairs are equal."""
        if self.error is None or self.freedom is None or self._equal:
            return None
        half = t_quantile(0.5 + self.level / 2, self.freedom) * self.error
        method = "t" if self.method == "paired" else "welch"
        return Interval(self.value - half, self.value + half, self.level, method)

    @property
    def p(self) -> float | None:
        """Two-sided p of the hypothesis that the means are equal; None as `error`. Of equal pairs it is 1."""
        if self.error is None or self.freedom is None:
            return None
        return 1.0 if self._equal else t_p_value(self.value / self.error, self.freedom)

    def equivalence_p(self, margin: float) -> float | None:
        """P of the hypothesis that the means differ by `margin` or more: two one-sided t tests (Schuirmann 1987).

        None as `error`. Of equal pairs it is 0.

        Args:
            margin: in the metric's unit.
        """
        if self.error is None or self.freedom is None:
            return None
        if self._equal:
            return 0.0
        slack = margin - abs(self.value)
        return t_p_value(slack / self.error, self.freedom) / 2 if slack > 0 else 1.0

    @property
    def half(self) -> float | None:
        """Half of the interval's width; None without an interval."""
        return None if self.interval is None else self.interval.half

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """Both ends of the interval; None without an interval."""
        interval = self.interval
        return (None, None) if interval is None else (interval.low, interval.high)

    @property
    def relative(self) -> float | None:
        """The difference over the first mean's absolute value; None if that is 0."""
        return self.value / abs(self.mean_first) if self.mean_first else None

    @property
    def d_z(self) -> float | None:
        """Cohen's d of paired samples: mean over standard deviation of the differences; None without spread."""
        return None if self.sd is None or self.sd <= abs(self.value) * ROUNDING else self.value / self.sd

    @property
    def g_z(self) -> float | None:
        """`d_z` with Hedges' correction for few pairs, 1 - 3 / (4 (n - 1) - 1); None for fewer than three pairs."""
        d_z = self.d_z
        return None if d_z is None or self.n_first < 3 else d_z * (1 - 3 / (4 * (self.n_first - 1) - 1))


# One sample --------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("mean of an empty sample")
    return statistics.fmean(values)


def sd(values: Sequence[float]) -> float | None:
    """The sample standard deviation, sqrt(sum (x - mean)^2 / (n - 1)); None for fewer than two values.

    `statistics.stdev` computes with fractions, which takes ten times as long.
    """
    if len(values) < 2:
        return None
    if min(values) == max(values):
        # The mean of equal values need not be their value, by rounding.
        return 0.0
    middle = statistics.fmean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation, sample standard deviation over mean; None for fewer than two values or mean 0."""
    if len(values) < 2 or not (middle := statistics.fmean(values)):
        return None
    return statistics.stdev(values) / middle


@lru_cache(maxsize=1024)
def t_quantile(share: float, freedom: float) -> float:
    """Quantile of Student's t distribution.

    Args:
        share: probability below the quantile, between 0 and 1.
        freedom: degrees of freedom, need not be whole.
    """
    from scipy.special import stdtrit

    if not 0 < share < 1:
        raise ValueError(f"a quantile is between 0 and 1, not {share}")
    return float(stdtrit(freedom, share))


def t_p_value(t: float, freedom: float) -> float:
    """Two-sided p of a value of Student's t distribution."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(t)))


def half_width(deviation: float | None, n: int, level: float = LEVEL) -> float | None:
    """Half of the mean's interval, t sd / sqrt(n), from a stored deviation; None for fewer than two values."""
    _check_level(level)
    if deviation is None or n < 2:
        return None
    return t_quantile(0.5 + level / 2, n - 1) * deviation / math.sqrt(n)


def t_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Mean ± t sd / sqrt(n), t the (1 + level) / 2 quantile of Student's distribution with n - 1 degrees of freedom.

    Correct for values that are about normal. None for fewer than two.
    """
    half = half_width(sd(values), len(values), level)
    return None if half is None else Interval(mean(values) - half, mean(values) + half, level, "t")


def sd_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Interval of the standard deviation, as wide as the values' kurtosis makes it (Bonett 2006).

    Of 95 % intervals of ten normal values 96 % cover it, of ten exponential ones 88 %. None for fewer than
    LEAST_FOR_SD_INTERVAL values.
    """
    _check_level(level)
    n, deviation = len(values), sd(values)
    if deviation is None or n < LEAST_FOR_SD_INTERVAL:
        return None
    if not deviation:
        return Interval(0.0, 0.0, level, "bonett")
    normal = statistics.NormalDist().inv_cdf(0.5 + level / 2)
    cut = math.floor(n / (2 * math.sqrt(n - 4)))
    ordered, middle = sorted(values), statistics.fmean(values)
    trimmed = statistics.fmean(ordered[cut : n - cut])
    squares = math.fsum((value - middle) ** 2 for value in values)
    kurtosis = n * math.fsum((value - trimmed) ** 4 for value in values) / squares**2
    small = n / (n - normal)
    half = normal * small * math.sqrt((kurtosis - (n - 3) / n) / (n - 1))
    low, high = (math.sqrt(small * math.exp(end)) * deviation for end in (-half, half))
    return Interval(low, high, level, "bonett")


def share_interval(hits: int, n: int, level: float = LEVEL) -> Interval:
    """Interval of a probability of which `hits` of `n` runs are a sample (Clopper and Pearson 1934).

    It holds at least as often as its level. No hit in 20 runs leaves 0 to 17 % open, where the runs have no spread.
    """
    from scipy.special import betaincinv

    _check_level(level)
    tail = (1 - level) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Interval(low, high, level, "clopper-pearson")


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


# Two samples -------------------------------------------------------------------------------------------------


def pairs_of(first: Mapping[Key, float], second: Mapping[Key, float]) -> list[Key] | None:
    """The keys of a paired difference, in the first set's order; None if the difference is Welch's."""
    shared = [key for key in first if key in second]
    enough = len(shared) >= 2 and 2 * len(shared) >= min(len(first), len(second))
    return shared if enough else None


def difference(first: Mapping[Key, float], second: Mapping[Key, float], level: float = LEVEL) -> Difference:
    """Difference of the means of two sets of runs, `second` less `first`, with its t interval.

    Paired: the t interval of the pairs' differences. Otherwise, and where all pairs have the same difference other than
    0, Welch's (1947), with Satterthwaite's degrees of freedom.

    Args:
        first: run to value; the key, such as `RunKey`, pairs the runs.
        second: the same of the other set.
        level: of the interval.

    Raises:
        ValueError: a set has no run.
    """
    _check_level(level)
    if not first or not second:
        raise ValueError("a difference needs at least one run on both sides")
    pairs = pairs_of(first, second)
    if pairs is not None:
        gaps = [second[key] - first[key] for key in pairs]
        pairs = pairs if max(gaps) - min(gaps) > ROUNDING * abs(gaps[0]) or not gaps[0] else None
    a, b = ([side[key] for key in pairs or side] for side in (first, second))
    error, freedom, deviation, method = _welch(a, b) if pairs is None else _paired(a, b)
    if len(set(a)) == len(set(b)) == 1 and a[0] != b[0]:
        error = freedom = deviation = None
    # The mean of the differences where there are pairs: for exact values it is exact.
    value = mean([second - here for here, second in zip(a, b, strict=True)]) if pairs else mean(b) - mean(a)
    used = set(pairs) if pairs else {*first, *second}
    return Difference(
        method,
        len(a),
        len(b),
        mean(a),
        mean(b),
        value,
        deviation,
        error,
        freedom,
        level,
        tuple(key for key in (*first, *second) if key not in used),
    )


_Error = tuple[float | None, float | None, float | None, Literal["paired", "welch"]]


def _paired(a: Sequence[float], b: Sequence[float]) -> _Error:
    """Standard error, degrees of freedom, deviation of the differences."""
    deviation = statistics.stdev(second - here for here, second in zip(a, b, strict=True))
    return deviation / math.sqrt(len(a)), len(a) - 1, deviation, "paired"


def _welch(a: Sequence[float], b: Sequence[float]) -> _Error:
    if len(a) < 2 or len(b) < 2:
        return None, None, None, "welch"
    shares = [statistics.variance(side) / len(side) for side in (a, b)]
    total = sum(shares)
    below = sum(share**2 / (len(side) - 1) for share, side in zip(shares, (a, b), strict=True))
    return math.sqrt(total), total**2 / below if below else 1.0, None, "welch"


@dataclass(frozen=True)
class Compared:
    """One of several differences that are judged together."""

    #: Its interval has Bonferroni's level: all intervals hold together at the level asked for.
    difference: Difference
    #: p of equal means and p of a difference of the margin or more, each adjusted for all comparisons; None without.
    p_adjusted: float | None
    equivalence_p_adjusted: float | None
    verdict: Literal["same", "different", "cannot tell"]

    @property
    def runs(self) -> int:
        """Pairs, or runs of the smaller side."""
        return min(self.difference.n_first, self.difference.n_second)

    @property
    def runs_needed(self) -> int | None:
        """Runs of each side from which on this difference, with this spread, would be shown; None if no number of them
        up to MOST_RUNS_NEEDED would, or nothing is known of the spread.
        """
        gap = self.difference
        if not gap.value or not gap.error or gap.freedom is None:
            return None
        n = min(gap.n_first, gap.n_second)
        sides = 1 if gap.method == "paired" else 2

        def shows(runs: int) -> bool:
            half = t_quantile(0.5 + gap.level / 2, sides * (runs - 1)) * error * math.sqrt(n / runs)
            return half < abs(gap.value)

        error = gap.error
        counts = range(2, MOST_RUNS_NEEDED + 1)
        at = bisect_left(counts, True, key=shows)
        return counts[at] if at < len(counts) else None


def compare_all(
    sets: Sequence[tuple[Mapping[Key, float], Mapping[Key, float]]], level: float = LEVEL, margin: float = MARGIN
) -> list[Compared]:
    """Judges many differences at once: "same" by an equivalence test, "different" by a test of equality.

    The chance that any "same" is wrong, and that any "different" is wrong, is at most 1 - level each.

    Args:
        sets: pairs of sets of runs, as `difference` takes them.
        level: of all verdicts, and of all intervals, together.
        margin: greatest difference of equivalent means, as a share of the first mean.
    """
    each = 1 - (1 - level) / max(len(sets), 1)
    differences = [difference(first, second, each) for first, second in sets]
    unequal = holm([difference.p for difference in differences])
    equal = holm([difference.equivalence_p(margin * abs(difference.mean_first)) for difference in differences])
    return [
        Compared(difference, p, same_p, _verdict(p, same_p, 1 - level))
        for difference, p, same_p in zip(differences, unequal, equal, strict=True)
    ]


def judged(
    first: Mapping[Key, float],
    second: Mapping[Key, float],
    level: float = LEVEL,
    margin: float = MARGIN,
    family: int = 1,
) -> Compared:
    """Judges one of several differences that share the error, by Bonferroni. Unlike `compare_all`, the result does not
    depend on the others.

    Args:
        first: run to value, as `difference` takes it.
        second: the same of the other set.
        level: of all verdicts, and of all intervals, together.
        margin: greatest difference of equivalent means, as a share of the first mean.
        family: number of the differences that share the error.
    """
    gap = difference(first, second, 1 - (1 - level) / family)
    p, same_p = (
        None if each is None else min(1.0, family * each)
        for each in (gap.p, gap.equivalence_p(margin * abs(gap.mean_first)))
    )
    return Compared(gap, p, same_p, _verdict(p, same_p, 1 - level))


def _verdict(p: float | None, same_p: float | None, least: float) -> Literal["same", "different", "cannot tell"]:
    if same_p is not None and same_p < least:
        return "same"
    return "different" if p is not None and p < least else "cannot tell"


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for their number (Holm 1979). A comparison without a p counts, and has none.

    Rejecting all below a level makes any false rejection at most that probable.
    """
    known = [(p, number) for number, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, number) in enumerate(sorted(known)):
        least = max(least, min(1.0, (len(p_values) - rank) * p))
        adjusted[number] = least
    return adjusted


# The greatest of several ---------------------------------------------------------------------------------------


def candidate_maxima(sets: Sequence[Mapping[Key, float]], level: float = LEVEL) -> list[int]:
    """Positions of the sets of runs whose expectation may be the greatest: their means are not significantly below the
    greatest mean.

    The set whose expectation is the greatest is left out with a chance of 1 - level at most: one-sided tests against
    the greatest mean by Bonferroni, as in multiple comparisons with the best (Hsu 1984). A set of one run can always
    be the greatest.
    """
    best = max(range(len(sets)), key=lambda at: mean(list(sets[at].values())))
    least = (1 - level) / max(len(sets) - 1, 1)
    return [at for at, each in enumerate(sets) if at == best or not _is_below(each, sets[best], least)]


def _is_below(lesser: Mapping[Key, float], greater: Mapping[Key, float], least: float) -> bool:
    gap = difference(lesser, greater)
    if gap.p is None:
        # Values that are all equal on both sides, or a single run.
        return min(len(lesser), len(greater)) > 1
    return gap.value > 0 and gap.p / 2 <= least


def greatest_interval(sets: Sequence[Sequence[float]], level: float = LEVEL) -> Interval | None:
    """Interval of the greatest of several expectations, of which the greatest mean is an estimate that is too high.

    From the greatest lower to the greatest upper end of the means' t intervals, which hold together (Bonferroni). None
    if a set has fewer than two values.
    """
    intervals = [t_interval(values, 1 - (1 - level) / len(sets)) for values in sets]
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(sets):
        return None
    return Interval(max(each.low for each in known), max(each.high for each in known), level, "bonferroni")


# Series ------------------------------------------------------------------------------------------------------


def steady_from(values: Sequence[float], batch: int = 5) -> int:
    """Number of values to cut from the start of a series, by MSER-5 (White 1997; White, Cobb, Spratt 2000).

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
