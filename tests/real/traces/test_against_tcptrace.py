"""Our counts of connections of the kernel's TCP beside tcptrace's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.traces.test_against_tcptrace import agree

pytestmark = pytest.mark.slow("a corpus in real time")


@pytest.mark.emulated
def test_connections_of_the_kernel_agree_with_tcptrace(captures: list[Path], tmp_path: Path) -> None:
    tally = agree(captures, tmp_path, at_least=80)
    assert tally.explained["resets"] > 0, tally
