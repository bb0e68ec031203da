"""A campaign on jobs of a real Slurm of one node, in a cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.campaign_texts import one_line

pytestmark = [
    pytest.mark.slow("starts PostgreSQL, Slurm and a Dask cluster"),
    pytest.mark.emulated,
]


def test_a_campaign_runs_on_a_job_of_slurm_which_is_cancelled_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(one_line("lab", "repetitions: 3\n"))
    words = [node_binary.path(), "cell", "--", sys.executable, "-m", "tests.support.slurm_lab", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    logs = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["status"] == 0, outcome["messages"] + logs
    runs = [run for point in json.loads(outcome["campaign"])["points"] for run in point["runs"]]
    assert [run["state"] for run in runs] == ["valid"] * len(runs)
    assert runs
    assert (outcome["ended"], outcome["left"]) == (0, "")
