"""Our classification beside Wireshark's, on captures of real campaigns and of the kernel's TCP under loss.

Every difference is explained by a rule of docs/traces.md, or is a bug.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.traces.agreement import Tally, beside_wireshark


def test_every_segment_of_the_research_stack_agrees_with_wireshark(simulated: list[Path], tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.fail("there is no tshark: ./backchannel test installs it")
    # One of each stack and kind of damage: tshark takes its time.
    agree(simulated[::2], tmp_path)


def agree(captures: list[Path], out: Path) -> Tally:
    """Compares them; what came of it."""
    tally = Tally()
    for number, capture in enumerate(captures):
        beside_wireshark(capture, out / str(number), tally)
    assert tally.unexplained == []
    # The captures must hold what the test is about.
    assert tally.damaged_frames > 0
    assert min(tally.seen["again"], tally.seen["duplicates"]) > 300, tally
    # Few acks are overtaken: what is not compared must not be much.
    assert tally.explained["overtaken acks"] < 0.01 * tally.compared, tally
    return tally
