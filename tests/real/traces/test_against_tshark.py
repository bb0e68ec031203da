"""Our classification of segments of the kernel's TCP beside Wireshark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.traces.test_against_tshark import agree

pytestmark = pytest.mark.slow("a corpus in real time")


@pytest.mark.emulated
def test_every_segment_agrees_with_wireshark(captures: list[Path], tmp_path: Path) -> None:
    tally = agree(captures, tmp_path)
    assert tally.captures >= 80
    assert tally.seen["segments"] > 50_000
    assert tally.seen["samples"] > 5_000
