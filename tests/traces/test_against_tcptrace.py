"""Our counts of every connection beside tcptrace's. They are equal, but for what a named rule explains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.traces.agreement import Tally, beside_tcptrace


def test_connections_of_the_research_stack_agree_with_tcptrace(simulated: list[Path], tmp_path: Path) -> None:
    if shutil.which("tcptrace") is None:
        pytest.fail("there is no tcptrace: ./backchannel test installs it")
    agree(simulated, tmp_path, at_least=40)


@pytest.mark.emulated
def test_connections_of_the_kernel_agree_with_tcptrace(captures: list[Path], tmp_path: Path) -> None:
    tally = agree(captures, tmp_path, at_least=80)
    assert tally.explained["resets"] > 0, tally


def agree(captures: list[Path], out: Path, at_least: int) -> Tally:
    """Compares them; what came of it."""
    tally = Tally()
    for number, capture in enumerate(captures):
        beside_tcptrace(capture, out / str(number), tally)
    assert tally.unexplained == []
    # The captures must hold what the test is about.
    assert tally.captures >= at_least
    assert tally.seen["sides"] >= 2 * at_least
    assert min(tally.seen["again"], tally.seen["duplicates"], tally.seen["samples"]) > 500, tally
    # A rule that nothing needs explains nothing.
    assert tally.explained["overtaken acks"] > 0, tally
    assert tally.explained["first seen"] > 0, tally
    return tally
