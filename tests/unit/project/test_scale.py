"""The line through a benchmark's measurements, and what it says of other numbers."""

from __future__ import annotations

import math

import pytest

from benchmarks.scale import fitted


def test_a_line_predicts_itself_and_knows_how_little_two_measurements_say() -> None:
    exact = fitted([2, 4, 8], [7, 11, 19])
    assert (exact.fixed, exact.each) == pytest.approx((3, 2))
    value, half = exact.at(100)
    assert (value, half) == pytest.approx((203, 0), abs=1e-6)
    assert fitted([2, 4], [7, 11]).at(100) == (pytest.approx(203), math.inf)


def test_the_interval_is_that_of_a_new_measurement_and_widens_with_distance() -> None:
    """By hand: residues of (1, 1), (2, 3), (3, 2) are -0.5, 1, -0.5, so s^2 = 1.5; t(0.975, 1) = 12.706."""
    line = fitted([1, 2, 3], [1, 3, 2])
    assert (line.fixed, line.each) == pytest.approx((1, 0.5))
    value, half = line.at(2)
    assert value == pytest.approx(2)
    assert half == pytest.approx(12.7062 * math.sqrt(1.5 * (1 + 1 / 3)), rel=1e-4)
    assert line.at(100)[1] == pytest.approx(12.7062 * math.sqrt(1.5 * (1 + 1 / 3 + 98**2 / 2)), rel=1e-4)
