"""What became of a transmission: its loss on a link of its path, its retransmission, and the acks before it."""

from __future__ import annotations

import pytest

from analysis.captures.fate import Lost, Sent, fate, matched

PATH = [("server", "wire", "router"), ("router", "air", "client")]


@pytest.mark.parametrize(
    ("entries", "exits", "arrivals"),
    [
        ([1.0], [1.1], [1.1]),
        ([1.0], [], [None]),
        # The only arrival belongs to the latest transmission before it.
        ([1.0, 2.0], [2.1], [None, 2.1]),
        ([1.0, 2.0], [1.5], [1.5, None]),
        ([1.0, 2.0, 3.0], [1.2, 3.2], [1.2, None, 3.2]),
        ([1.0, 1.1], [1.5, 1.6], [1.5, 1.6]),
    ],
)
def test_arrivals_are_matched_backwards(entries: list[float], exits: list[float], arrivals: list[float | None]) -> None:
    assert matched(entries, exits) == arrivals


def test_a_loss_is_found_on_its_link_with_what_followed() -> None:
    seen = {
        ("server", "wire"): [1.0, 2.0], ("router", "wire"): [1.1, 2.1], ("router", "air"): [1.1, 2.1],
        ("client", "air"): [2.4],
    }  # fmt: skip
    sent = [Sent(1.0, ""), Sent(2.0, "fast retransmission")]
    first = fate(sent, 1.0, seen, PATH, [1.6, 1.7, 1.8, 1.9, 2.5])
    assert first is not None
    assert first.lost == Lost("air", "router", 1.1)
    assert first.arrived_s is None
    assert (first.again, first.duplicate_acks) == (sent[1], 3)
    second = fate(sent, 2.0, seen, PATH, [])
    assert second is not None
    assert (second.arrived_s, second.lost, second.again) == (2.4, None, None)
    assert fate(sent, 1.5, seen, PATH, []) is None


def test_what_was_not_captured_is_not_claimed() -> None:
    seen = {("server", "wire"): [1.0], ("client", "air"): []}
    result = fate([Sent(1.0, "")], 1.0, seen, PATH, [])
    assert result is not None
    assert (result.lost, result.arrived_s) == (None, None)
