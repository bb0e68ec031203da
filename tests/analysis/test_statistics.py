"""Statistics against values of tables, and against their own definitions on random samples."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import (
    bootstrap_difference,
    bootstrap_interval,
    difference,
    half_width,
    holm,
    outliers,
    overlap,
    quantile,
    steady_from,
    summarise,
    t_interval,
    t_p_value,
    t_quantile,
)


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [
        (0.975, 1, 12.7062047362), (0.975, 2, 4.3026527297), (0.975, 9, 2.2621571628), (0.95, 2, 2.9199855804),
        (0.995, 30, 2.7499956536), (0.975, 120, 1.9799304051), (0.9, 4, 1.5332062741), (0.025, 9, -2.2621571628),
    ],
)  # fmt: skip
def test_students_quantiles_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("freedom", "share", "t"),
    # Abramowitz and Stegun, table 26.10, and the tables of textbooks.
    [
        (1, 0.975, 12.706), (1, 0.995, 63.657), (2, 0.975, 4.303), (9, 0.995, 3.250), (10, 0.995, 3.169),
        (29, 0.975, 2.045), (120, 0.975, 1.980),
    ],
)  # fmt: skip
def test_quantiles_of_printed_tables(freedom: int, share: float, t: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(t, abs=6e-4)


@given(st.floats(0, 100), st.sampled_from([1, 2]))
def test_p_values_in_closed_form(t: float, freedom: int) -> None:
    """One degree of freedom is Cauchy's; two have an algebraic form."""
    tail = 0.5 - math.atan(t) / math.pi if freedom == 1 else 0.5 - t / (2 * math.sqrt(2 + t * t))
    assert t_p_value(t, freedom) == pytest.approx(2 * tail, abs=1e-9)
    assert t_p_value(-t, freedom) == t_p_value(t, freedom)


@given(st.floats(0.51, 0.99), st.integers(1, 200))
def test_the_quantile_is_the_inverse_of_the_p_value(share: float, freedom: int) -> None:
    assert t_p_value(t_quantile(share, freedom), freedom) == pytest.approx(2 * (1 - share), abs=1e-9)


def test_the_t_interval_of_ten_values() -> None:
    values = [9.1, 10.3, 9.8, 10.0, 11.2, 9.5, 10.4, 9.9, 10.6, 9.2]
    found = t_interval(values)
    assert found is not None
    half = 2.2621571628 * statistics.stdev(values) / math.sqrt(10)
    assert (found.low, found.high) == pytest.approx((10.0 - half, 10.0 + half))
    assert found.half == pytest.approx(half_width(statistics.stdev(values), 10))
    assert t_interval([1.0]) is None
    assert half_width(None, 1) is None
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


# Differences -------------------------------------------------------------------------------------------------


def test_a_paired_interval_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303.
    found = difference({1: 10.0, 2: 20.0, 3: 30.0}, {1: 11.0, 2: 22.0, 3: 33.0})
    assert (found.value, found.method, found.n_first, found.n_second) == (2, "paired", 3, 3)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert found.interval.high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)
    assert (found.mean_first, found.mean_second, found.relative) == (20, 22, pytest.approx(0.1))


def test_pairs_take_what_the_seed_does_out_of_a_comparison() -> None:
    """The seeds differ by far more than the policies: unpaired, nothing shows."""
    first = {seed: 100.0 * seed for seed in range(8)}
    second = {seed: 100.0 * seed + 5 + (-1) ** seed for seed in range(8)}
    found = difference(first, second)
    assert (found.n_first, found.value, found.clear) == (8, 5, True)
    assert found.sd == pytest.approx(math.sqrt(8 / 7))
    assert found.interval is not None
    assert found.interval.low > 3.9
    assert found.d_z == pytest.approx(5 / math.sqrt(8 / 7))
    assert found.g_z == pytest.approx(5 / math.sqrt(8 / 7) * (1 - 3 / 27))
    # t = 5 / (sd / sqrt 8) = 13.23 with seven degrees of freedom.
    assert found.p == pytest.approx(3.3e-6, rel=0.05)
    assert found.relative == pytest.approx(5 / 350)
    drawn = bootstrap_difference(first, second, 3)
    assert drawn == bootstrap_interval([second[seed] - first[seed] for seed in first], 3)
    apart = difference(first, {seed + 100: value for seed, value in second.items()})
    assert (apart.method, apart.value, apart.clear) == ("welch", pytest.approx(5), False)


def test_runs_without_a_partner_are_left_out_and_listed() -> None:
    found = difference({1: 1.0, 2: 2.0, 9: 0.0}, {1: 2.0, 2: 3.0, 5: 0.0})
    assert (found.method, found.unpaired) == ("paired", (9, 5))
    # All differences are equal: there is no spread to relate the effect to, and the means certainly differ.
    assert (found.value, found.sd, found.d_z, found.p) == (1, 0, None, 0)
    assert found.half == 0
    assert difference({1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0}).p == 1
    with pytest.raises(ValueError, match="at least one run"):
        difference({}, {2: 1.0})


@pytest.mark.parametrize(
    ("first", "second", "method"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], "paired"),
        ([1, 2, 3, 4], [3, 4, 5, 6], "paired"),  # half of the smaller set
        ([1, 2, 3, 4, 5], [4, 5, 6, 7, 8], "welch"),  # less than half
        ([1, 2, 3, 4, 5, 6, 7, 8], [7, 8, 9], "paired"),
        ([1, 2], [2, 3], "welch"),  # one pair
        ([1], [1], "welch"),
    ],
)
def test_the_pairing_rule(first: list[int], second: list[int], method: str) -> None:
    a, b = {key: float(key) for key in first}, {key: key + key % 2 + 1.0 for key in second}
    found = difference(a, b)
    assert found.method == method
    used = set(first) & set(second) if method == "paired" else set(first)
    assert found.n_first == len(used)
    assert found.mean_first == statistics.fmean(used)
    assert bool(found.unpaired) == (method == "paired" and set(first) != set(second))


def test_welch_gives_what_a_textbook_gives() -> None:
    # NIST's handbook has t, freedom and quantile for such data; recomputed by hand here.
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]
    va, vb = statistics.variance(a) / 6, statistics.variance(b) / 8
    freedom = (va + vb) ** 2 / (va**2 / 5 + vb**2 / 7)
    found = difference(dict(enumerate(a)), dict(enumerate(b, 100)))
    assert found.half == pytest.approx(t_quantile(0.975, freedom) * math.sqrt(va + vb))
    assert found.p == pytest.approx(t_p_value(found.value / math.sqrt(va + vb), freedom))
    assert (found.sd, found.d_z, found.unpaired) == (None, None, ())
    drawn = bootstrap_difference(dict(enumerate(a)), dict(enumerate(b, 100)), 1)
    assert drawn is not None
    assert drawn.low < found.value < drawn.high
    assert 0.5 < drawn.half / (found.half or 0) < 1.1


def test_single_runs_have_no_interval() -> None:
    found = difference({1: 1.0}, {1: 2.0})
    assert (found.value, found.interval, found.half, found.p, found.clear) == (1, None, None, None, False)
    assert bootstrap_difference({1: 1.0}, {1: 2.0}, 1) is None


def test_welch_covers_as_often_as_it_says() -> None:
    draws = random.Random(5)
    covered = 0
    for _ in range(2000):
        a = {n: draws.gauss(10, 1) for n in range(4)}
        b = {n: draws.gauss(12, 3) for n in range(10, 17)}
        covered += 2 in difference(a, b, 0.9).interval  # type: ignore[operator]
    # Four standard deviations of a share of 2000.
    assert covered / 2000 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 2000))


def test_overlap_needs_repetitions() -> None:
    assert overlap([9.0, 11.0, 10.0], [9.5, 11.5, 10.5])
    assert not overlap([9.0, 9.1, 9.2], [19.0, 19.1, 19.2])
    assert not overlap([9.0], [9.1])


def test_holm_by_hand() -> None:
    # 0.01 x 4, 0.02 x 3, 0.03 x 2 (not below the one before), 0.5.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


# Series ------------------------------------------------------------------------------------------------------


def test_a_series_becomes_steady_after_its_start() -> None:
    draw = random.Random(2)
    series = [20 * math.exp(-at / 8) + draw.gauss(10, 0.5) for at in range(200)]
    assert 15 <= steady_from(series) <= 60
    assert steady_from([draw.gauss(10, 0.5) for _ in range(200)]) <= 100
    assert steady_from([1.0] * 12) == 0
