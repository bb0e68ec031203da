"""Quantities: every spelling, round trips, and what is refused."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from testbed import units


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("28.8 kbit/s", "rate", 28_800.0), ("1.5 Mbit/s", "rate", 1_500_000.0), ("10Mbit/s", "rate", 10_000_000.0),
        ("5 ms", "time", 0.005), ("0.1 us", "time", 1e-7), ("2 min", "time", 120.0), ("64 KiB", "bytes", 65_536),
        ("1.5 kB", "bytes", 1_500), ("10 packets", "packets", 10), (10, "packets", 10), ("1 packet", "packets", 1),
        ("50 %", "fraction", 0.5), (0.25, "fraction", 0.25), ("3", "count", 3),
    ],
)  # fmt: skip
def test_spellings(text: object, kind: str, value: float) -> None:
    parsed = units.parse(text, kind)
    assert parsed == value
    assert isinstance(parsed, int) == (kind in units.WHOLE)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("5", "time", "'5' has no unit; write a time like 5 ms"),
        ("10 packets", "rate", "'packets' is a unit of packets, but this is a rate"),
        ("5 mbit/s", "rate", "did you mean 'Mbit/s'?"),
        ("100mbps", "rate", "did you mean 'Mbit/s'?"),
        ("3 KB", "bytes", "did you mean 'kB'?"),
        ("20 \N{MICRO SIGN}s", "time", "did you mean 'us'?"),
        ("3 megabytes", "bytes", "'megabytes' is not a unit of a size; its units are B"),
        ("1.5 packets", "packets", "not a whole number"),
        ("fast", "rate", "'fast' is not a rate; write it like 28.8 kbit/s"),
        (True, "count", "expected a number such as 3"),
        ("nan s", "time", "'nan s' is not a time"),
        ("1e999999999 s", "time", "is not a time"),
        ("1e30 B", "bytes", "out of range"),
        ([5], "time", "expected a time such as 5 ms"),
    ],
)
def test_refusals(text: object, kind: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.parse(text, kind)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.0001, "time", "0.1 ms"),
        (2.8e-05, "time", "28 us"),
        (0.0, "time", "0 s"),
        (1e6, "time", "1000000 s"),
        (1048575, "bytes", "1048575 B"),
        (1, "rate", "1 bit/s"),
        (256, "count", "256"),
        (0.95, "fraction", "0.95"),
    ],
)
def test_bounds_keep_their_digits_and_have_a_unit(value: float, kind: str, text: str) -> None:
    assert units.exact(value, kind) == text
    assert units.parse(text, kind) == pytest.approx(value, rel=1e-15)


def test_less_than_a_microsecond_reads_in_nanoseconds() -> None:
    assert units.show(6.4e-07, "time") == "640 ns"


SPELLED = [(kind, unit) for kind, spellings in units.UNITS.items() for unit in spellings]


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from(SPELLED))
def test_a_quantity_is_its_number_times_its_unit(number: int, spelled: tuple[str, str]) -> None:
    kind, unit = spelled
    if not unit or (kind == "fraction" and unit == "%"):
        return
    expected = number * float(units.UNITS[kind][unit])
    assert math.isclose(units.parse(f"{number} {unit}", kind), expected, rel_tol=1e-15)


@given(st.sampled_from(["rate", "time"]), st.floats(min_value=1e-6, max_value=1e9))
def test_what_is_shown_can_be_read_again(kind: str, value: float) -> None:
    again = units.parse(units.show(value, kind), kind)
    # Three digits are shown.
    assert math.isclose(again, value, rel_tol=0.006)


@given(st.text(max_size=30), st.sampled_from(sorted(units.UNITS)))
def test_any_text_is_a_finite_quantity_or_a_sentence(text: str, kind: str) -> None:
    # Anything but a ValueError is a failure.
    with suppress(ValueError):
        assert math.isfinite(units.parse(text, kind))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(1200, "time", "20 min"), (599, "time", "599 s"), (86_400, "time", "24 h"), (3e13, "rate", "30000 Gbit/s"),
     (123.4, "fraction", "12300 %"), (999.7, "number", "1000"), (0.059, "time", "59 ms")],
)  # fmt: skip
def test_people_read_no_exponents(value: float, kind: str, text: str) -> None:
    assert units.show(value, kind) == text
