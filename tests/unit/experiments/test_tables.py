"""Tables of comparisons in narrow terminals."""

from __future__ import annotations

from experiments.tables import narrowed

COLUMNS = ["difference", "p", "d_z", "over", "verdict", "needs"]


def test_words_are_wrapped_before_the_compared_values_are_folded() -> None:
    widths = [14, 18, 5, 5, 30, 11, 5]
    assert narrowed(widths, COLUMNS, 100) == widths
    assert narrowed(widths, COLUMNS, 88) == [14, 18, 5, 5, 18, 11, 5]
    assert narrowed(widths, COLUMNS, 80) == [12, 18, 5, 5, 12, 11, 5]
    assert narrowed(widths, COLUMNS, 60) == [8, 18, 5, 5, 12, 11, 5]


def test_without_words_the_values_are_folded() -> None:
    assert narrowed([14, 18, 5, 5, 11, 5], [name for name in COLUMNS if name != "over"], 60) == [8, 18, 5, 5, 11, 5]
