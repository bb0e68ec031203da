"""Our classification beside Wireshark's, on captures of real campaigns and of the kernel's TCP under loss.

Every difference is explained by a rule of docs/traces.md, or is a bug.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.traces.agreement import Tally, beside_wireshark


@pytest.mark.parametrize("step", [4, pytest.param(2, marks=pytest.mark.slow(reason="each stack with each damage"))])
def test_every_segment_of_the_research_stack_agrees_with_wireshark(
    step: int, simulated: list[Path], tmp_path: Path
) -> None:
    if shutil.which("tshark") is None:
        pytest.fail("there is no tshark: ./backchannel test installs it")
    # At one end, and by default of every other run, which have each stack and each damage: tshark takes its time.
    agree(simulated[::step], tmp_path, least=600 // step)


def agree(captures: list[Path], out: Path, least: int = 300) -> Tally:
    """Compares them; what came of it."""
    tally = Tally()
    for number, capture in enumerate(captures):
        beside_wireshark(capture, out / str(number), tally)
    assert tally.unexplained == []
    # The captures must hold what the test is about.
    assert tally.damaged_frames > 0
    assert min(tally.seen["again"], tally.seen["duplicates"]) > least, tally
    # Few acks are overtaken: what is not compared must not be much.
    assert tally.explained["overtaken acks"] < 0.01 * tally.compared, tally
    return tally
