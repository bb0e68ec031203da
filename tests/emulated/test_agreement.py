"""Real time agrees with virtual time where nothing is left to chance; `./backchannel bench agreement` has the rest."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.benchmarks.agreement import throughputs

pytestmark = pytest.mark.emulated


@pytest.mark.parametrize(
    "name",
    [
        "ack filtering, 28.8 kbit/s",
        "header compression, 9.6 kbit/s",
        "packet radio, one hop",
    ],
)
def test_the_same_seed_gives_the_same_throughput(name: str, tmp_path: Path, emulation: None) -> None:
    """Within 5 %. The first needs a sender that keeps to bursts of four, by the clock and not by the call."""
    options = argparse.Namespace(repetitions=1, jobs=1)
    (sim,), _ = throughputs(name, "sim", options, tmp_path)
    (emulated,), _ = throughputs(name, "emulated", options, tmp_path)
    assert emulated == pytest.approx(sim, rel=0.05)
