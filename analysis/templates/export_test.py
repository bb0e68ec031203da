"""The export of a simulated run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from my_crate import my_crate

import analysis
from analysis.exports.registry import Target

CAMPAIGN = Path(__file__).parent / "campaign.yaml"


class ExportTest(unittest.TestCase):
    """A download at 1 Mbit/s."""

    def test_the_table_has_the_flow(self) -> None:
        """Every arrival belongs to the only flow."""
        with tempfile.TemporaryDirectory() as results:
            words = [sys.executable, "-m", "experiments", "run", str(CAMPAIGN), "--results", results]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            with analysis.open(results) as opened:
                run = opened.run(opened["my-crate"].runs()["run_id"][0])
                table = my_crate(run, Target(Path(results) / "table.csv"))
        assert len(table) > 100
        assert table["flow"].unique().to_list() == ["download"]


if __name__ == "__main__":
    unittest.main()
