"""Estimates of means: how they are stated, their bounds, and how often their intervals hold."""

from __future__ import annotations

import itertools
import math
import random
from typing import Literal

import numpy as np
import pytest

from analysis import estimates
from analysis.estimates import AT_LEAST_0, SHARE, Bounds, Estimate, bootstrap_interval, bounded_interval, two_groups
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.statistics import Interval, exact_interval


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ([1.4e6], "rate", "1.4 Mbit/s"),
        ([1.4e6, 1.62e6], "rate", "1.4, 1.62 Mbit/s"),
        ([0.0] * 3, "count", "0 (3 equal)"),
        ([134.0] * 5, "count", "134 (5 equal)"),
        ([8269333.333333332, 8269333.333333333, 8269333.333333332], "rate", "8.27 Mbit/s (3 equal)"),
        # Mean 2, deviation 1, n = 3: t = 4.3027, half = 4.3027 / sqrt 3.
        ([1e6, 2e6, 3e6], "number", "2000000 ± 2484138"),
        ([2e6, 2.5e6, 3e6], "rate", "2.5 ± 1.2 Mbit/s"),
        ([2e6, 2.1e6, 2.2e6], "rate", "2.10 ± 0.25 Mbit/s"),
        ([0.9, 0.999, 0.999, 0.99, 0.98], "fraction", "97.4 [91.6, 99.9] %"),
        ([1.19e6, 1.2e6, 1.21e6, 7.9e6, 7.9e6], "rate", "two groups: 1.2 (3 runs), 7.9 Mbit/s (2 runs)"),
        ([2700, 2731.2, 2762.4, 3200, 3200], "number", "two groups: 2730 (3 runs), 3200 (2 runs)"),
        ([1234, 12345], "number", "1230, 12300"),
    ],
)
def test_an_estimate_is_stated_in_one_way(values: list[float], unit: str, text: str) -> None:
    bounds = SHARE if unit == "fraction" else Bounds()
    assert Estimate(tuple(values), bounds).text(unit) == text


@pytest.mark.parametrize(
    ("mean", "half", "sign", "text"),
    [
        (12.34, 1.06, "", "12.3 ± 1.1"), (698321.4, 130.0, "", "698321 ± 130"), (-7.0, 3.0, "+", "-7.0 ± 3.0"),
        (15.1234, 0.756, "+", "+15.12 ± 0.76"), (0.00012345, 0.000031, "", "0.000123 ± 0.000031"),
        (1.0, 1e-9, "", "1.000000 ± 0.000000"),
    ],
)  # fmt: skip
def test_a_mean_has_the_digits_that_its_half_width_leaves(
    mean: float, half: float, sign: Literal["", "+"], text: str
) -> None:
    assert estimates.plus_minus(mean, half, sign) == text


def test_intervals_stay_within_the_bounds_of_the_metric() -> None:
    draw = random.Random(3)
    cut = 0
    for n in (3, 4, 5, 8, 12):
        for _ in range(40):
            shares = [draw.betavariate(5, 0.5) for _ in range(n)]
            result = bounded_interval(shares, SHARE)
            counts = [float(draw.random() < 0.3) for _ in range(n)]
            other = bounded_interval(counts, AT_LEAST_0)
            assert result is not None
            assert other is not None
            assert result.high <= 1
            assert other.low >= 0
            assert result.low < sum(shares) / n < result.high
            cut += result.method != "t"
    assert cut > 50


def test_an_interval_has_the_mean_of_values_that_lie_beyond_a_bound() -> None:
    """By rounding, say: cut at 1, the interval would end below the mean."""
    values = [1.001, 1.002, 1.001, 1.003]
    result = bounded_interval(values, SHARE)
    assert result is not None
    assert result.low < sum(values) / 4 < result.high == 1.003
    share = Estimate((0.2, 0.5, 0.9), SHARE)
    assert share.interval is not None
    assert (share.interval.low, share.interval.high) == (0.0, 1.0)


def test_up_to_the_bounds_the_interval_is_students() -> None:
    values = [9.1, 10.3, 9.8, 10.0, 11.2]
    result = bounded_interval(values, AT_LEAST_0)
    assert result is not None
    assert result == bounded_interval(values, Bounds()) == bounded_interval(values, Bounds(result.low, result.high))
    assert (result.method, result.half) == ("t", pytest.approx(2.7764451 * 0.7661593 / math.sqrt(5), rel=1e-6))


def test_the_bootstrap_enumerates_what_it_would_draw() -> None:
    """Of five values all 3125 samples, counted one by one."""
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    means = sorted(sum(sample) / 5 for sample in itertools.product(values, repeat=5))
    # a = Phi(-sqrt(5/4) 2.7764) = 0.000954: three of 3125 from either end.
    tail = 0.000954 * len(means)
    result = bootstrap_interval(values)
    assert result is not None
    assert result.low == pytest.approx(means[math.ceil(tail) - 1])
    assert result.high == pytest.approx(means[-math.floor(tail) - 1])
    many = [float(value) for value in range(12)]
    drawn = bootstrap_interval(many)
    assert drawn == bootstrap_interval(many)
    assert drawn is not None
    # Normal theory: 5.5 +- 2.2010 * 3.6056 / sqrt 12.
    assert (drawn.low, drawn.high) == pytest.approx((3.21, 7.79), abs=0.12)


def test_the_bootstrap_of_up_to_eight_values_does_not_depend_on_their_order() -> None:
    values = [1.0, 1.9, 3.7, 7.3, 14.1, 27.7, 54.1, 99.0]
    result, reverse = bootstrap_interval(values), bootstrap_interval(values[::-1])
    assert result is not None
    assert reverse is not None
    assert (result.low, result.high) == pytest.approx((reverse.low, reverse.high), rel=1e-12)


def test_a_bootstrap_needs_two_values() -> None:
    assert bootstrap_interval([1.0]) is None
    assert bootstrap_interval([1.0, 2.0]) == Interval(1.0, 2.0, 0.95, "bootstrap")


@pytest.mark.parametrize("n", range(3, 8))
def test_the_bootstrap_reaches_up_to_the_extreme_values(n: int) -> None:
    values = [float(2**number) for number in range(n)]
    result = bootstrap_interval(values, level=1 - 1e-15)
    assert result is not None
    assert (result.low, result.high) == pytest.approx((1, values[-1]))


def test_intervals_of_skewed_shares_hold_as_often_as_students_would() -> None:
    """Shares near 1, of mean 5/5.5: the interval that stays within the bounds misses as rarely as Student's."""
    draw = random.Random(7)
    held = {"bounded": 0, "t": 0}
    for _ in range(600):
        values = [draw.betavariate(5, 0.5) for _ in range(5)]
        for name, bounds in (("bounded", SHARE), ("t", Bounds())):
            held[name] += 5 / 5.5 in bounded_interval(values, bounds)  # type: ignore[operator]
    assert held["bounded"] > 0.97 * held["t"] > 0.8 * 600


def test_two_groups_need_a_gap_and_two_values_each() -> None:
    assert two_groups([1.0, 1.1, 9.0, 9.2, 1.05]) == ((1.0, 1.05, 1.1), (9.0, 9.2))
    assert two_groups([1.0, 1.1, 9.0, 9.2, 9.1]) == ((1.0, 1.1), (9.0, 9.1, 9.2))
    assert two_groups([1.0, 1.1, 1.05, 1.02, 9.0]) == two_groups([1.0, 9.1, 9.05, 9.02, 9.0]) == ()  # outliers
    assert two_groups([1.0, 1.1, 9.0, 9.2]) == ()  # too few
    assert two_groups([1.0, 2.0, 3.0, 9.0, 9.2]) == ()  # a gap of three spans
    assert two_groups([0.0, 0.0, 1.0, 5.0, 5.0]) == two_groups([0.0, 0.0, 4.0, 4.0, 5.0, 5.0]) == ()  # of four
    assert two_groups([19.5, 19.5, 19.5, 20.5, 20.5, 20.5]) == ()  # five per cent of the mean
    assert two_groups([100.0, 100.1, 100.0, 101.0, 101.1]) == ()  # one per cent apart
    assert two_groups([0.0, 0.0, 0.0, 1.0, 1.0]) == ((0, 0, 0), (1, 1))
    assert two_groups([0.0, 0.0, 0.0, 1.0, 1.0], resolution=1.0) == ()  # neighbouring counts


def test_one_sample_of_normal_values_is_rarely_called_two_groups() -> None:
    draw = random.Random(2)
    called = sum(bool(two_groups([draw.gauss(10, 1) for _ in range(5)])) for _ in range(4000))
    # 1.7 % as documented, three standard deviations either way.
    assert 0.011 < called / 4000 < 0.024


def test_every_metric_has_the_bounds_of_its_unit_or_its_own() -> None:
    assert METRICS["goodput"].bounds == METRICS["fairness_index"].bounds == SHARE
    assert METRICS["throughput"].bounds == METRICS["coarse_timeouts"].bounds == AT_LEAST_0
    # A window can shrink.
    assert METRICS["utilisation"].bounds == SHARE
    assert METRICS["cwnd_growth"].bounds == Bounds()
    assert estimate("unknown", "fraction", [0.1]).bounds == SHARE
    assert estimate("coarse_timeouts", "count", [0, 0, 0, 1, 1]).form == "interval"


def test_more_is_never_better_for_losses_and_times() -> None:
    worse = ("timeouts", "retransmi", "completion_time", "rtt_")
    named = {name: entry.better for name, entry in METRICS.items() if any(word in name for word in worse)}
    named.pop("rtt_samples", None)
    assert set(named.values()) == {"less"}
    assert len(named) >= 9


def test_resamples_of_many_values_are_those_of_numpy() -> None:
    values = [float(value) for value in range(1, 12)]
    drawn = np.random.default_rng(1).choice(np.asarray(values), (estimates.DRAWN_VALUES // 11, 11))
    assert estimates._drawn_means(values) == pytest.approx(drawn.mean(axis=1), rel=1e-12)


@pytest.mark.parametrize(
    ("half", "text"),
    [(0.0, "0"), (3.14e-8, "0.000000031"), (0.0011, "0.0011"), (2.0, "2.0"), (31.4, "31"), (163.0, "163")],
)
def test_a_half_width_is_written_without_an_exponent_and_never_as_zero(half: float, text: str) -> None:
    assert f"{half:.{estimates.decimals(half)}f}" == text


def test_an_interval_that_does_not_follow_from_the_values_is_shown_in_its_place() -> None:
    possible = Estimate((150.0,), other_interval=Interval(100.0, 400.0, 0.95, "possible"))
    assert (possible.form, possible.ends, possible.text("number")) == ("interval", (100.0, 400.0), "150 [100, 400]")
    several = Estimate((2.0, 2.1, 2.2), other_interval=Interval(1.0, 3.2, 0.95, "bonferroni"))
    assert several.ends == (1.0, 3.2)
    certain = Estimate((150.0,), other_interval=exact_interval(150.0))
    assert (certain.form, certain.ends, certain.text("number")) == ("values", (None, None), "150")
