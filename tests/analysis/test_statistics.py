"""Statistics against values of tables, and against their own definitions on random samples."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import (
    bootstrap_interval,
    compare,
    outliers,
    quantile,
    steady_from,
    summarise,
    t_interval,
)
from analysis.student import t_cdf, t_quantile


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [
        (0.975, 1, 12.7062047362), (0.975, 2, 4.3026527297), (0.975, 9, 2.2621571628), (0.95, 2, 2.9199855804),
        (0.995, 30, 2.7499956536), (0.975, 120, 1.9799304051), (0.9, 4, 1.5332062741), (0.025, 9, -2.2621571628),
    ],
)  # fmt: skip
def test_students_quantiles_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(value, abs=1e-9)


def test_students_distribution_in_closed_form() -> None:
    """One degree of freedom is Cauchy's; two have an algebraic form; many are almost normal."""
    for t in (-7.0, -1.0, -0.1, 0.0, 0.5, 3.0):
        assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
        assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)
        assert t_cdf(t, 1e7) == pytest.approx(statistics.NormalDist().cdf(t), abs=1e-6)


@given(st.floats(0.01, 0.99), st.integers(1, 200))
def test_the_quantile_is_the_inverse(share: float, freedom: int) -> None:
    assert t_cdf(t_quantile(share, freedom), freedom) == pytest.approx(share, abs=1e-9)


def test_the_t_interval_of_ten_values() -> None:
    values = [9.1, 10.3, 9.8, 10.0, 11.2, 9.5, 10.4, 9.9, 10.6, 9.2]
    found = t_interval(values)
    assert found is not None
    half = 2.2621571628 * statistics.stdev(values) / math.sqrt(10)
    assert (found.low, found.high) == pytest.approx((10.0 - half, 10.0 + half))
    assert t_interval([1.0]) is None
    with pytest.raises(ValueError, match="confidence level"):
        t_interval(values, 95)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    """2000 samples of ten normal values: a 95 % interval misses about one in twenty, the bootstrap's some more."""
    draw = random.Random(5)
    hits = {"t": 0, "bootstrap": 0}
    for number in range(600):
        values = [draw.gauss(3.0, 2.0) for _ in range(10)]
        hits["t"] += 3.0 in t_interval(values)  # type: ignore[operator]
        hits["bootstrap"] += 3.0 in bootstrap_interval(values, number, resamples=300)  # type: ignore[operator]
    assert 0.925 < hits["t"] / 600 < 0.975
    assert 0.85 < hits["bootstrap"] / 600 < hits["t"] / 600


def test_the_bootstrap_repeats_itself_with_its_seed_and_takes_any_statistic() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 50.0]
    assert bootstrap_interval(values, 1) == bootstrap_interval(values, 1)
    assert bootstrap_interval(values, 1) != bootstrap_interval(values, 2)
    of_median = bootstrap_interval(values, 1, statistic=statistics.median)
    assert of_median is not None
    assert (of_median.low, of_median.high) == (1.0, 50.0)
    assert bootstrap_interval([1.0], 1) is None


def test_no_outlier_leaves_a_mean_in_silence() -> None:
    values = [10.0, 10.1, 9.9, 10.2, 9.8, 30.0]
    assert outliers(values) == (30.0,)
    with_it, without = summarise(values, 1), summarise(values, 1, without_outliers=True)
    assert (with_it.n, with_it.mean, with_it.outliers, with_it.left_out) == (6, pytest.approx(80 / 6), (30.0,), ())
    assert (without.n, without.mean, without.left_out) == (5, pytest.approx(10.0), (30.0,))
    assert outliers([1.0, 2.0, 100.0]) == ()
    with pytest.raises(ValueError, match="no mean"):
        summarise([], 1)


def test_quantiles_lie_linearly_between_values() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert quantile([1, 2, 3, 4], 0.0) == 1
    assert quantile([1, 2, 3, 4], 1.0) == 4
    assert quantile([7], 0.3) == 7


def test_pairs_take_what_the_seed_does_out_of_a_comparison() -> None:
    """The seeds differ by far more than the policies: unpaired, nothing shows."""
    first = {seed: 100.0 * seed for seed in range(8)}
    second = {seed: 100.0 * seed + 5 + (-1) ** seed for seed in range(8)}
    found = compare(first, second, seed=3)
    assert (found.n, found.mean) == (8, 5)
    assert found.sd == pytest.approx(math.sqrt(8 / 7))
    assert found.t is not None
    assert found.t.low > 3.9
    assert found.d_z == pytest.approx(5 / math.sqrt(8 / 7))
    assert found.g_z == pytest.approx(5 / math.sqrt(8 / 7) * (1 - 3 / 27))
    # t = 5 / (sd / sqrt 8) = 13.23 with seven degrees of freedom.
    assert found.p == pytest.approx(3.3e-6, rel=0.05)
    assert found.relative == pytest.approx(5 / 350)


def test_what_has_no_partner_is_told() -> None:
    found = compare({1: 1.0, 2: 2.0, 9: 0.0}, {1: 2.0, 2: 3.0, 5: 0.0}, seed=1)
    assert found.unpaired == (9, 5)
    # All differences are equal: there is no spread to hold the effect against.
    assert (found.mean, found.sd, found.d_z, found.p) == (1, 0, None, None)
    with pytest.raises(ValueError, match="nothing to compare"):
        compare({1: 1.0}, {2: 1.0}, seed=1)


def test_a_series_becomes_steady_after_its_start() -> None:
    draw = random.Random(2)
    series = [20 * math.exp(-at / 8) + draw.gauss(10, 0.5) for at in range(200)]
    assert 15 <= steady_from(series) <= 60
    assert steady_from([draw.gauss(10, 0.5) for _ in range(200)]) <= 100
    assert steady_from([1.0] * 12) == 0
