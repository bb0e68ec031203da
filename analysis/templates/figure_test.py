"""The figure of a simulated run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from my_crate import my_crate

import analysis
from analysis.figures.registry import Asked

CAMPAIGN = Path(__file__).parent / "campaign.yaml"


class FigureTest(unittest.TestCase):
    """A download at 1 Mbit/s."""

    def test_it_has_steps_within_the_period(self) -> None:
        """Bytes only add up, and no step lies outside."""
        with tempfile.TemporaryDirectory() as results:
            words = [sys.executable, "-m", "experiments", "run", str(CAMPAIGN), "--results", results]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            with analysis.open(results) as opened:
                run = opened.run(opened["my-crate"].runs()["run_id"][0])
                points = my_crate(run.data.flow("download"), Asked(1.0, 3.0, 0.1)).series[0].points
        assert len(points) > 10
        assert points["y"].is_sorted()
        assert points["x"].min() >= 1.0
        assert points["x"].max() <= 3.0


if __name__ == "__main__":
    unittest.main()
