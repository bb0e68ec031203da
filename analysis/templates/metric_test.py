"""The metric on a simulated run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from my_crate import my_crate

import analysis

CAMPAIGN = Path(__file__).parent / "campaign.yaml"


class MetricTest(unittest.TestCase):
    """A download at 1 Mbit/s."""

    def test_the_start_has_at_most_what_the_line_carries(self) -> None:
        """At 1 Mbit/s 2 s are at most 250 kB."""
        with tempfile.TemporaryDirectory() as results:
            words = [sys.executable, "-m", "experiments", "run", str(CAMPAIGN), "--results", results]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            with analysis.open(results) as opened:
                run = opened.run(opened["my-crate"].runs()["run_id"][0])
                start = my_crate(run.data.flow("download"))
        assert start > 100000
        assert start < 250000


if __name__ == "__main__":
    unittest.main()
