"""Parallel lines with real packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import backchannel
from tests.sim.language.test_routes import TEXT, throughputs


@pytest.mark.emulated
def test_parallel_lines_carry_a_flow_each_with_real_packets(tmp_path: Path) -> None:
    late = "fidelity={rate: 50 %, delay: 1 s, lateness: 1 s, stall: 10 s, stalled: 100 %}"
    (tmp_path / "c.yaml").write_text(TEXT)
    options = ("--backend", "emulated", "--set", late, "--set", "duration=5 s", "--results", tmp_path / "results")
    backchannel("run", tmp_path / "c.yaml", *options, status=0)
    found = throughputs(tmp_path / "results")
    # Each has a line of its own: more than the slow one carries, and less. How much more, a busy machine says.
    assert 1e6 < found["first"] < 10e6
    assert 0.1e6 < found["second"] < 1e6
