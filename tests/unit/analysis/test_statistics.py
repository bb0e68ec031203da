"""Statistics against values of tables, and against their own definitions on random samples."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, strategies as st

from analysis.statistics import (
    Interval,
    RunKey,
    candidate_maxima,
    compare_all,
    difference,
    exact_interval,
    greatest_interval,
    half_width,
    holm,
    judged,
    outliers,
    quantile,
    sd_interval,
    share_interval,
    steady_from,
    t_interval,
    t_p_value,
    t_quantile,
    variation,
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


@given(st.floats(0, 100), st.sampled_from([1, 2]))
def test_p_values_in_closed_form(t: float, freedom: int) -> None:
    """One degree of freedom is Cauchy's; two have an algebraic form. SciPy is off by up to 5e-9 near 0."""
    tail = 0.5 - math.atan(t) / math.pi if freedom == 1 else 0.5 - t / (2 * math.sqrt(2 + t * t))
    assert t_p_value(t, freedom) == pytest.approx(2 * tail, abs=1e-8)
    assert t_p_value(-t, freedom) == t_p_value(t, freedom)


@given(st.floats(0.51, 0.99), st.integers(1, 200))
def test_the_quantile_is_the_inverse_of_the_p_value(share: float, freedom: int) -> None:
    assert t_p_value(t_quantile(share, freedom), freedom) == pytest.approx(2 * (1 - share), abs=1e-9)


def test_the_t_interval_of_ten_values() -> None:
    values = [9.1, 10.3, 9.8, 10.0, 11.2, 9.5, 10.4, 9.9, 10.6, 9.2]
    result = t_interval(values)
    assert result is not None
    half = 2.2621571628 * statistics.stdev(values) / math.sqrt(10)
    assert (result.low, result.high) == pytest.approx((10.0 - half, 10.0 + half))
    assert result.half == pytest.approx(half_width(statistics.stdev(values), 10))
    assert t_interval([1.0]) is None
    assert half_width(None, 2) is None
    assert half_width(1.0, 1) is None
    assert half_width(1.0, 2) == pytest.approx(12.7062047362 / math.sqrt(2))


@pytest.mark.parametrize("level", [0, 1, 1.5, 95, -0.1])
def test_a_level_is_above_0_and_below_1(level: float) -> None:
    for use in (lambda: half_width(1.0, 5, level), lambda: difference({1: 1.0}, {1: 2.0}, level)):
        with pytest.raises(ValueError, match="confidence level"):
            use()
    with pytest.raises(ValueError, match="quantile is between 0 and 1"):
        t_quantile(level, 3)


def test_variation_is_the_deviation_over_the_mean_of_two_or_more_values() -> None:
    assert variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert variation([9.0]) is None
    assert variation([-1.0, 1.0]) is None


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    """600 samples of ten normal values: a 95 % interval misses about one in twenty."""
    draw = random.Random(5)
    hits = sum(3.0 in t_interval([draw.gauss(3.0, 2.0) for _ in range(10)]) for _ in range(600))  # type: ignore[operator]
    assert 0.925 < hits / 600 < 0.975


def test_outliers_lie_beyond_one_and_a_half_quartile_ranges() -> None:
    # Quartiles 9.925 and 10.175: the fences are 9.55 and 10.55.
    assert outliers([10.0, 10.1, 9.9, 10.2, 9.8, 30.0]) == (30.0,)
    assert outliers([10.0, 10.1, 9.9, 10.2, 9.8, 10.7]) == (10.7,)
    assert outliers([10.0, 10.1, 9.9, 10.2, 9.8, 10.5]) == ()
    # Quartiles 1 and 3: values on the fences, -2 and 6, are not outliers.
    assert outliers([0.0, 1.0, 2.0, 3.0, 6.0]) == outliers([-2.0, 1.0, 2.0, 3.0, 4.0]) == ()
    assert outliers([0.0, 1.0, 2.0, 3.0, 6.1]) == (6.1,)
    assert outliers([-2.1, 1.0, 2.0, 3.0, 4.0]) == (-2.1,)
    assert outliers([1.0, 2.0, 100.0]) == ()
    assert outliers([0.0, 0.0, 0.0, 100.0]) == (100.0,)


def test_quantiles_lie_linearly_between_values() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert quantile([1, 2, 3, 4], 0.0) == 1
    assert quantile([1, 2, 3, 4], 1.0) == 4
    assert quantile([7], 0.3) == 7


# Differences -------------------------------------------------------------------------------------------------


def test_a_paired_interval_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303.
    result = difference({1: 10.0, 2: 20.0, 3: 30.0}, {1: 11.0, 2: 22.0, 3: 33.0})
    assert (result.value, result.method, result.n_first, result.n_second) == (2, "paired", 3, 3)
    assert result.interval is not None
    assert result.interval.low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert result.interval.high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)
    assert (result.mean_first, result.mean_second, result.relative) == (20, 22, pytest.approx(0.1))


def test_pairs_take_what_the_seed_does_out_of_a_comparison() -> None:
    """The seeds differ by far more than the policies: unpaired, nothing shows."""
    first = {seed: 100.0 * seed for seed in range(8)}
    second = {seed: 100.0 * seed + 5 + (-1) ** seed for seed in range(8)}
    result = difference(first, second)
    assert (result.n_first, result.value) == (8, 5)
    assert result.sd == pytest.approx(math.sqrt(8 / 7))
    assert result.interval is not None
    assert result.interval.low > 3.9
    assert result.d_z == pytest.approx(5 / math.sqrt(8 / 7))
    assert result.g_z == pytest.approx(5 / math.sqrt(8 / 7) * (1 - 3 / 27))
    # t = 5 / (sd / sqrt 8) = 13.23 with seven degrees of freedom.
    assert result.p == pytest.approx(3.3e-6, rel=0.05)
    assert result.relative == pytest.approx(5 / 350)
    apart = difference(first, {seed + 100: value for seed, value in second.items()})
    assert (apart.method, apart.value) == ("welch", pytest.approx(5))
    assert 0 in apart.interval  # type: ignore[operator]


def test_runs_without_a_partner_are_left_out_and_listed() -> None:
    result = difference({1: 1.0, 2: 2.0, 9: 0.0}, {1: 2.0, 2: 5.0, 5: 0.0})
    assert (result.method, result.unpaired, result.value) == ("paired", (9, 5), 2)
    equal = difference({1: 1.0, 2: 2.0, 9: 0.0}, {1: 1.0, 2: 2.0})
    assert (equal.method, equal.value, equal.p, equal.interval, equal.d_z) == ("paired", 0, 1, None, None)
    assert equal.equivalence_p(0.0) == 0
    for first, second in (({}, {2: 1.0}), ({2: 1.0}, {}), ({}, {})):
        with pytest.raises(ValueError, match="at least one run"):
            difference(first, second)


def test_counts_that_differ_by_as_much_in_each_pair_may_do_so_by_chance() -> None:
    draws = random.Random(1)
    for pairs in (2, 3, 5):
        sides = [[{at: float(draws.randint(0, 2)) for at in range(pairs)} for _ in range(2)] for _ in range(2000)]
        false = sum(judged(first, second, family=10).verdict == "different" for first, second in sides)
        # Three values are far from normal, so that t errs more often than its level.
        assert false <= 2000 * 0.01
    # The runs' own spread decides: 1 and 2 against 4 and 5, error 1/2 sqrt 2, t = 3 sqrt 2 with two degrees of freedom.
    result = difference({1: 1.0, 2: 2.0}, {1: 4.0, 2: 5.0})
    assert (result.method, result.value, result.freedom) == ("welch", 3, pytest.approx(2))
    assert result.p == pytest.approx(1 - 3 * math.sqrt(2) / math.sqrt(18 + 2))
    apart = difference({at: 90 + at / 100 for at in range(4)}, {at: 20 + at / 100 for at in range(4)})
    assert apart.p is not None
    assert apart.p < 1e-9


def test_hedges_correction_needs_three_pairs() -> None:
    two, three = difference({1: 1.0, 2: 2.0}, {1: 2.0, 2: 5.0}), difference({1: 1, 2: 2, 3: 3}, {1: 2, 2: 4, 3: 6})
    assert (two.d_z, two.g_z) == (pytest.approx(math.sqrt(2)), None)
    # Differences 1, 2, 3: d is 2, and 1 - 3 / (4 x 2 - 1) = 4/7 of it is left.
    assert (three.d_z, three.g_z) == (2, pytest.approx(8 / 7))
    assert difference({1: 1, 2: 2, 3: 3}, {1: 2, 2: 3, 3: 4}).g_z is None, "no spread"


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
    result = difference(a, b)
    assert result.method == method
    used = set(first) & set(second) if method == "paired" else set(first)
    assert result.n_first == len(used)
    assert result.mean_first == statistics.fmean(used)
    assert bool(result.unpaired) == (method == "paired" and set(first) != set(second))


def test_welch_gives_what_a_textbook_gives() -> None:
    # NIST's handbook has t, freedom and quantile for such data; recomputed by hand here.
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]
    va, vb = statistics.variance(a) / 6, statistics.variance(b) / 8
    freedom = (va + vb) ** 2 / (va**2 / 5 + vb**2 / 7)
    result = difference(dict(enumerate(a)), dict(enumerate(b, 100)))
    assert result.half == pytest.approx(t_quantile(0.975, freedom) * math.sqrt(va + vb))
    assert result.p == pytest.approx(t_p_value(result.value / math.sqrt(va + vb), freedom))
    assert (result.sd, result.d_z, result.unpaired) == (None, None, ())


def test_welch_needs_two_runs_of_each_set() -> None:
    # Variances 2 and 0.5 of two runs each: error sqrt(1 + 0.25), freedom 1.25^2 / (1 + 0.0625).
    two = difference({1: 0.0, 2: 2.0}, {3: 4.0, 4: 5.0})
    assert (two.error, two.freedom) == (pytest.approx(math.sqrt(1.25)), pytest.approx(1.5625 / 1.0625))
    for first, second in (({1: 0.0}, {3: 4.0, 4: 5.0}), ({3: 4.0, 4: 5.0}, {1: 0.0})):
        assert difference(first, second).error is None
    single = difference({1: 1.0}, {1: 2.0})
    assert (single.value, single.interval, single.half, single.p) == (1, None, None, None)


def test_repetitions_without_spread_claim_nothing() -> None:
    same, other = dict.fromkeys(range(5), 3.6), dict.fromkeys(range(5), 1.4)
    result = difference(same, other)
    assert result.value == pytest.approx(-2.2)
    assert result.interval is result.p is result.equivalence_p(9.0) is None
    zero = dict.fromkeys(range(5), 0.0)
    verdicts = [entry.verdict for entry in compare_all([(same, other), (same, same), (zero, zero)])]
    assert verdicts == ["cannot tell", "same", "same"]


def test_welch_covers_as_often_as_it_says() -> None:
    draws = random.Random(5)
    covered = 0
    for _ in range(2000):
        a = {n: draws.gauss(10, 1) for n in range(4)}
        b = {n: draws.gauss(12, 3) for n in range(10, 17)}
        covered += 2 in difference(a, b, 0.9).interval  # type: ignore[operator]
    # Four standard deviations of a share of 2000.
    assert covered / 2000 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 2000))


def test_intervals_contain_their_ends_overlap_where_they_touch_and_follow_a_function() -> None:
    first = Interval(1.0, 2.0, 0.95, "t")
    assert first.overlaps(Interval(2.0, 3.0, 0.95, "t"))
    assert first.overlaps(exact_interval(1.5))
    assert not first.overlaps(Interval(2.1, 3.0, 0.95, "t"))
    assert not first.overlaps(Interval(0.0, 0.9, 0.95, "t"))
    assert [value in first for value in (0.99, 1.0, 1.5, 2.0, 2.01, 2)] == [False, True, True, True, False, True]
    assert "1.5" not in first
    assert None not in first
    assert Interval(1.0, 2.0, 0.95, "t").mapped(lambda value: -3 * value) == Interval(-6.0, -3.0, 0.95, "t")


@pytest.mark.parametrize(("draw", "least"), [("gauss", 0.95), ("expovariate", 0.86)])
def test_an_interval_of_the_deviation_covers_it(draw: str, least: float) -> None:
    draws = random.Random(3)
    arguments = (0.0, 1.0) if draw == "gauss" else (1.0,)
    covered = sum(
        1.0 in sd_interval([getattr(draws, draw)(*arguments) for _ in range(10)])  # type: ignore[operator]
        for _ in range(4000)
    )
    assert least <= covered / 4000 <= 0.98


def test_an_interval_of_the_deviation_needs_five_values_and_a_spread() -> None:
    assert sd_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert sd_interval([2.0] * 5) == Interval(0.0, 0.0, 0.95, "bonett")
    values = [1.0, 2.0, 4.0, 3.0, 9.0, 2.0]
    interval, ten_times = sd_interval(values), sd_interval([10 * value for value in values])
    assert interval is not None
    assert ten_times is not None
    assert interval.low < statistics.stdev(values) < interval.high
    assert (ten_times.low, ten_times.high) == pytest.approx((10 * interval.low, 10 * interval.high))


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    # Of no hit, 1 - 0.025^(1/n); the others from tables of Clopper and Pearson.
    [(0, 20, 0.0, 0.1684), (20, 20, 0.8316, 1.0), (1, 10, 0.0025, 0.4450), (5, 10, 0.1871, 0.8129), (0, 1, 0.0, 0.975)],
)
def test_an_interval_of_a_share(hits: int, n: int, low: float, high: float) -> None:
    interval = share_interval(hits, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0])
def test_what_may_be_the_greatest_contains_the_greatest(apart: float) -> None:
    """With all expectations equal any set may be left out by chance; the nearer they are, the more are kept."""
    draws, kept, covered, sizes = random.Random(7), 0, 0, 0
    for _ in range(1000):
        sets = [{RunKey(n, n): draws.gauss(apart * at, 1) for n in range(5)} for at in range(4)]
        possible = candidate_maxima(sets)
        kept += 3 in possible
        sizes += len(possible)
        interval = greatest_interval([list(each.values()) for each in sets])
        assert interval is not None
        covered += 3 * apart in interval
    # Four standard deviations of a share of 1000 below 95 %.
    assert min(kept, covered) / 1000 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 1000)
    assert (sizes / 1000 > 3.5) if apart == 0 else (sizes / 1000 < 2) if apart == 2 else True


def test_single_runs_and_runs_without_spread_decide_as_far_as_they_can() -> None:
    assert candidate_maxima([{1: 1.0}, {1: 2.0}]) == [0, 1], "a single run shows no chance"
    assert candidate_maxima([{1: 1.0, 2: 1.0}, {1: 2.0, 2: 2.0}]) == [1]
    assert candidate_maxima([{1: 1.0, 2: 5.0}, {1: 2.0, 2: 6.0}]) == [0, 1], "pairs may differ by the same by chance"
    assert candidate_maxima([{1: 2.0, 2: 2.0}, {1: 2.0, 2: 2.0}]) == [0, 1]
    assert candidate_maxima([{1: 2.0}]) == [0]
    assert greatest_interval([[1.0, 2.0], [3.0]]) is None


def test_the_greatest_expectation_is_at_least_every_lower_end() -> None:
    low, wide = [1.0, 1.1, 1.2], [3.0, 5.0, 4.0]
    found = greatest_interval([low, wide])
    alone = t_interval(wide, 0.975)
    assert found is not None
    assert alone is not None
    assert (found.low, found.high) == pytest.approx((max(alone.low, 1.1 - alone.half / 10), alone.high))


def test_holm_by_hand() -> None:
    # 0.01 x 4, 0.02 x 3, 0.03 x 2 (not below the one before), 0.5.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    # One that has no p counts.
    assert holm([0.03, None, 0.01]) == [pytest.approx(0.06), None, pytest.approx(0.03)]


def test_equivalence_by_hand() -> None:
    # Differences 0, 1, 2: value 1, error 1 / sqrt 3, margin 5: t = 4 sqrt 3 = 6.928 with two degrees of freedom.
    result = difference({1: 10.0, 2: 20.0, 3: 30.0}, {1: 10.0, 2: 21.0, 3: 32.0})
    tail = 0.5 - 6.928203 / (2 * math.sqrt(2 + 6.928203**2))
    assert result.equivalence_p(5.0) == pytest.approx(tail, abs=1e-6)
    assert result.equivalence_p(1.0) == 1.0  # the margin is not exceeded by the difference itself
    assert result.equivalence_p(0.5) == 1.0
    # A margin 0.5 above the difference: t = sqrt 3 / 2.
    assert result.equivalence_p(1.5) == pytest.approx(0.5 - math.sqrt(3) / 2 / (2 * math.sqrt(2.75)), abs=1e-6)


def test_a_p_value_equal_to_the_level_shows_nothing() -> None:
    sets = ({1: 10.0, 2: 10.0}, {1: 10.0, 2: 12.0})
    result = difference(*sets)
    margins = [0.1 + number / 100 for number in range(1, 40)]
    # The test needs p-values that subtraction from 1 leaves exact.
    equal = {margin: result.equivalence_p(10 * margin) for margin in margins}
    margin, same_p = next((margin, p) for margin, p in equal.items() if p and p == 1 - (1 - p))
    for p, at, verdict in ((same_p, margin, "same"), (result.p, 0.0, "different")):
        assert p is not None
        levels = (1 - p, math.nextafter(1 - p, 0))
        assert [compare_all([sets], level, at)[0].verdict for level in levels] == ["cannot tell", verdict]


def sample(mean: float, sd: float, n: int = 8, seed: int = 1) -> dict[int, float]:
    draw = random.Random(f"{mean}/{sd}/{seed}")
    return {number: draw.gauss(mean, sd) for number in range(n)}


def test_no_difference_needs_a_test_that_shows_it() -> None:
    first = sample(100, 1)
    sets = [(first, sample(100.5, 1)), (first, sample(110, 1)), (first, sample(101, 40)), (first, {1: 100.0})]
    assert [entry.verdict for entry in compare_all(sets)] == ["same", "different", "cannot tell", "cannot tell"]
    # Half a per cent is not shown to be within a tenth of a per cent.
    assert compare_all(sets[:1], margin=0.001)[0].verdict == "cannot tell"


def test_many_comparisons_widen_every_interval() -> None:
    first, second = sample(100, 5), sample(104, 5, seed=2)
    (alone,) = compare_all([(first, second)])
    many = compare_all([(first, second)] * 10)
    assert alone.difference == difference(first, second)
    assert many[0].difference.level == pytest.approx(0.995)
    assert alone.difference.half is not None
    wider = t_quantile(0.9975, 7) / t_quantile(0.975, 7)
    assert many[0].difference.half == pytest.approx(wider * alone.difference.half)
    assert many[0].p_adjusted == pytest.approx(min(10 * alone.p_adjusted, 1))  # type: ignore[operator]


def test_equal_means_are_rarely_called_different_or_unequal_ones_the_same() -> None:
    draw = random.Random(4)
    wrong = {"different": 0, "same": 0}
    for _ in range(300):
        sets = [
            ({n: draw.gauss(100, 5) for n in range(6)}, {n: draw.gauss(100, 5) for n in range(6)}) for _ in range(5)
        ]
        wrong["different"] += any(entry.verdict == "different" for entry in compare_all(sets))
        # The means differ by just the margin.
        apart = [
            ({n: draw.gauss(100, 2) for n in range(6)}, {n: draw.gauss(105, 2) for n in range(6)}) for _ in range(5)
        ]
        wrong["same"] += any(entry.verdict == "same" for entry in compare_all(apart))
    # At most one family in twenty errs; three standard deviations on top.
    most = 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)
    assert max(wrong.values()) <= most


# Series ------------------------------------------------------------------------------------------------------


def test_a_series_becomes_steady_after_its_start() -> None:
    draw = random.Random(2)
    series = [20 * math.exp(-at / 8) + draw.gauss(10, 0.5) for at in range(200)]
    assert 15 <= steady_from(series) <= 60
    assert steady_from([1.0] * 12) == 0


def test_a_start_is_cut_by_whole_batches_and_up_to_half_of_the_series() -> None:
    steady = [9.0, 11.0] * 50
    assert steady_from(steady) == 0
    assert steady_from([20.0] * 20 + steady) == 20
    assert steady_from([20.0] * 18 + steady) == 20
    assert steady_from([20.0] * 100 + steady) == 100
    assert steady_from([20.0] * 110 + steady[:90]) == 100
    assert steady_from([20.0] * 15 + [9.0, 11.0]) == 0, "three batches are too few"
    assert steady_from([20.0] * 5 + [9.0] * 15) == 5, "four are enough"
    assert steady_from([20.0] * 5 + [9.0] * 10) == 0
