"""Both clocks of a machine, read by a program that may lose its CPU at any moment."""

from __future__ import annotations

from hypothesis import given, strategies as st

from agents.clocks import READINGS, read_together

LEAD_NS = 1_700_000_000_000_000_000

pauses = st.lists(st.integers(0, 50_000_000), min_size=3 * READINGS, max_size=3 * READINGS)


@given(pauses)
def test_a_pause_between_two_readings_does_not_count(pauses_ns: list[int]) -> None:
    # At least one reading is quick.
    pauses_ns[7:9] = [20, 10]
    now_ns, left = 0, iter(pauses_ns)

    def monotonic_ns() -> int:
        nonlocal now_ns
        now_ns += next(left)
        return now_ns

    found = read_together(lambda: monotonic_ns() + LEAD_NS, monotonic_ns)
    assert abs(found.lead_ns - LEAD_NS) <= 15


def test_the_clocks_are_the_machines() -> None:
    before = read_together()
    after = read_together()
    assert before.realtime_ns <= after.realtime_ns
    assert abs(after.lead_ns - before.lead_ns) < 10_000_000
