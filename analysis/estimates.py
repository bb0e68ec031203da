"""What repetitions say about a mean: its 95 % confidence interval, or why there is none.

Every place that shows a mean shows an `Estimate`: command line, site, figures, exports. docs/metrics.md has the rules.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from analysis.statistics import LEVEL, Interval, t_interval, t_quantile
from testbed import units

if TYPE_CHECKING:
    import numpy as np

#: Fewer values are listed, because their interval would rest on one or no difference.
LEAST_FOR_INTERVAL = 3
#: Values that differ by no more than this share are equal: sums of floating-point numbers in different orders.
ROUNDING = 1e-12
#: A sample of fewer values is not searched for two groups.
LEAST_FOR_GROUPS = 5
#: The gap between two groups exceeds the span of either this many times, and this share of the mean.
GAP_SPANS, GAP_SHARE = 4.0, 0.05
#: Up to this number of values, the bootstrap's distribution is enumerated; beyond, it is drawn.
MOST_ENUMERATED = 8
#: A bootstrap of fewer values cannot reach beyond them far enough to hold its level.
LEAST_FOR_BOOTSTRAP = 5
#: Values drawn for a bootstrap in all.
DRAWN_VALUES = 2_000_000
#: Note below every table of estimates.
ESTIMATES_NOTE = (
    "mean ± half-width of its 95 % confidence interval over the valid runs, or [low, high] where it is not symmetric; "
    "fewer than three runs: their values"
)

#: "values": too few for an interval. "equal": all values are the same. "groups": two groups. "interval": an interval.
Form = Literal["values", "equal", "groups", "interval"]


class Bounds(NamedTuple):
    """The values that a quantity can take, in its SI unit."""

    least: float = -math.inf
    most: float = math.inf


AT_LEAST_0 = Bounds(0.0)
SHARE = Bounds(0.0, 1.0)


@dataclass(frozen=True)
class Estimate:
    """A sample's mean and what is known of its precision."""

    values: tuple[float, ...]
    bounds: Bounds = Bounds()
    #: Smallest difference between two values; 1 for counts.
    resolution: float = 0.0
    level: float = LEVEL
    #: Interval of the mean, where it does not follow from the values.
    other_interval: Interval | None = None

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        """The arithmetic mean; of equal values exactly their value."""
        return self.values[0] if len(set(self.values)) == 1 else statistics.fmean(self.values)

    @cached_property
    def groups(self) -> tuple[tuple[float, ...], ...]:
        """The two groups of the values, the lower first; empty if they form one."""
        return two_groups(self.values, self.resolution)

    @cached_property
    def form(self) -> Form:
        """How the estimate is shown."""
        if self.other_interval is not None:
            return "interval" if self.other_interval.half else "values"
        if self.n < LEAST_FOR_INTERVAL:
            return "values"
        if max(self.values) - min(self.values) <= ROUNDING * max(map(abs, self.values)):
            return "equal"
        return "groups" if self.groups else "interval"

    @cached_property
    def interval(self) -> Interval | None:
        """Confidence interval of the mean, within the bounds; None in every other form than "interval"."""
        if self.form != "interval":
            return None
        return self.other_interval or bounded_interval(self.values, self.bounds, self.level)

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """Both ends of the interval."""
        return (None, None) if self.interval is None else (self.interval.low, self.interval.high)

    def text(self, unit: str) -> str:
        """For people, in the unit in which the greatest value reads best.

        "2.10 ± 0.31 Mbit/s": the mean and the half-width of its interval. "0.96 [0.88, 0.99]": the same where the
        interval is not symmetric. "1.40, 1.62 Mbit/s": the values of fewer than three runs. "134 (5 equal)": the value
        of every run. "two groups: 1.2 (3 runs), 7.9 Mbit/s (2 runs)".

        Args:
            unit: the metric's unit kind.
        """
        scale, name = units.scale_of(max(map(abs, self.values)), unit)
        suffix = f" {name}" if name else ""
        if self.interval is not None:
            return interval_text(self.mean / scale, self.interval.mapped(lambda end: end / scale), most=3) + suffix
        match self.form:
            case "groups":
                low, high = (_three_digits(statistics.fmean(group) / scale) for group in self.groups)
                many, more = map(len, self.groups)
                return f"two groups: {low} ({many} runs), {high}{suffix} ({more} runs)"
            case "equal":
                return f"{units.show(self.mean, unit)} ({self.n} equal)"
        return ", ".join(_three_digits(value / scale) for value in self.values) + suffix


def _three_digits(value: float) -> str:
    return units.plain(float(f"{value:.3g}"))


def relative_text(change: float | None) -> str:
    """A relative change after a difference, " (+12 %)"; empty from ten times on, where it says little."""
    if change is None or abs(change) >= 10:
        return ""
    percent = change * 100
    shown = f"{percent:+.1g}" if 0 < abs(percent) < 1 else f"{percent:+.0f}"
    return f" ({shown} %)".replace("-", "−")


def decimals(half: float) -> int:
    """Decimals with which two digits of an interval's half-width are written, and the value it belongs to."""
    return max(1 - math.floor(math.log10(half)), 0) if half > 0 else 0


def plus_minus(mean: float, half: float, sign: Literal["", "+"] = "", most: int = 6) -> str:
    """ "12.3 ± 1.1": two digits of the half-width, at most `most` decimals; "+" writes the sign of a positive mean."""
    digits = min(decimals(half), most)
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


def interval_text(mean: float, interval: Interval, most: int = 6) -> str:
    """ "12.3 ± 1.1", or "12.3 [11.9, 14.1]" where it is not symmetric: two digits of the half-width, at most `most`
    decimals.
    """
    if interval.is_symmetric:
        return plus_minus(mean, interval.half, most=most)
    digits = min(decimals(interval.half), most)
    return f"{mean:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def bounded_interval(values: Sequence[float], bounds: Bounds, level: float = LEVEL) -> Interval | None:
    """Confidence interval of a mean that does not leave the bounds; None for fewer than two values.

    Student's where it lies within the bounds. Otherwise the bootstrap's, or for fewer than LEAST_FOR_BOOTSTRAP values
    Student's cut at the bounds: the mean lies within them, so that the cut loses no coverage.
    """
    interval = t_interval(values, level)
    # Values that rounding puts beyond a bound are values all the same: the interval has their mean.
    bounds = Bounds(min(bounds.least, *values), max(bounds.most, *values)) if values else bounds
    if interval is None or (bounds.least <= interval.low and interval.high <= bounds.most):
        return interval
    if len(values) >= LEAST_FOR_BOOTSTRAP:
        return bootstrap_interval(values, level)
    return Interval(max(interval.low, bounds.least), min(interval.high, bounds.most), level, "t, cut at the bounds")


def bootstrap_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """The expanded percentile bootstrap's interval of the mean (Hesterberg 2015, section 4.2).

    The quantiles a and 1 - a of the means of samples drawn with replacement, where a = Phi(-sqrt(n / (n - 1)) t) and t
    is Student's quantile with n - 1 degrees of freedom. For normal values it is as wide as Student's interval. It never
    leaves the range of the values. The same values give the same interval. None for fewer than two values.
    """
    return _bootstrap_interval(tuple(values), level) if len(values) > 1 else None


@lru_cache(4096)
def _bootstrap_interval(values: tuple[float, ...], level: float) -> Interval:
    """The same, kept: views of a campaign share most of their cells."""
    n = len(values)
    import numpy as np
    from scipy.special import ndtr

    tail = float(ndtr(-math.sqrt(n / (n - 1)) * t_quantile(0.5 + level / 2, n - 1)))
    if n > MOST_ENUMERATED:
        low, high = np.quantile(_drawn_means(values), (tail, 1 - tail)).tolist()
        # A product is rounded, so that it may lie beyond equal values.
        return Interval(max(low, min(values)), min(high, max(values)), level, "bootstrap")
    counts, chances = _resamples(n)
    means = counts @ np.asarray(values) / n
    order = np.argsort(means)
    below = np.cumsum(chances[order])
    low, high = np.searchsorted(below, [tail, 1 - tail])
    return Interval(float(means[order[low]]), float(means[order[min(high, len(order) - 1)]]), level, "bootstrap")


def _drawn_means(values: Sequence[float]) -> np.ndarray:
    """Means of resamples, drawn with a fixed seed."""
    import numpy as np

    means: np.ndarray = _drawn_counts(len(values)) @ np.asarray(values, np.float64) / len(values)
    return means


@lru_cache(4)
def _drawn_counts(n: int) -> np.ndarray:
    """How often each resample has each of n values; 16 MB. Drawing takes longer than everything else.

    A product with this matrix costs a fifth of gathering the drawn values.
    """
    import numpy as np

    samples = max(DRAWN_VALUES // n, 2000)
    draws = np.random.default_rng(1).integers(0, n, (samples, n)) + np.arange(samples)[:, None] * n
    return np.bincount(draws.ravel(), minlength=samples * n).reshape(samples, n).astype(np.float64)


@lru_cache
def _resamples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every way to draw n of n values with replacement: how often each value is drawn, and the way's probability."""
    import numpy as np

    # n draws over n values: where n - 1 bars stand among n + n - 1 places.
    counts = np.array([np.diff([-1, *bars, 2 * n - 1]) - 1 for bars in itertools.combinations(range(2 * n - 1), n - 1)])
    factorials = np.array([math.factorial(count) for count in range(n + 1)])
    return counts, math.factorial(n) / factorials[counts].prod(axis=1) / float(n) ** n


def two_groups(values: Sequence[float], resolution: float = 0.0) -> tuple[tuple[float, ...], ...]:
    """Two groups of two values or more, on either side of the widest gap; empty without such a gap.

    The gap exceeds GAP_SPANS times the span of either group (at least the resolution) and GAP_SHARE of the mean. Of
    five normal values 1.7 % are called two groups, of six or more 0.6 % or less.
    """
    if len(values) < LEAST_FOR_GROUPS:
        return ()
    ordered = sorted(values)
    cut = max(range(2, len(ordered) - 1), key=lambda at: ordered[at] - ordered[at - 1])
    low, high = tuple(ordered[:cut]), tuple(ordered[cut:])
    span = max(low[-1] - low[0], high[-1] - high[0], resolution)
    gap = high[0] - low[-1]
    apart = gap > GAP_SPANS * span and gap > GAP_SHARE * abs(statistics.fmean(values))
    return (low, high) if apart else ()
