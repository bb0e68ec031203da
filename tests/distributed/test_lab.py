"""Campaigns on a Dask cluster with a PostgreSQL store: two workers in separate namespaces, killed and not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary

pytestmark = pytest.mark.emulated

CAMPAIGN = """
name: lab
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}
workload:
  - {name: bulk, from: left, to: right}
duration: 4 s
repetitions: 4
sweep: {network.forward.rate: [256 kbit/s, 1 Mbit/s]}
"""


def lab(tmp_path: Path, mode: str, campaign: str = CAMPAIGN) -> dict[str, Any]:
    (tmp_path / "lab.yaml").write_text(campaign)
    done = subprocess.run(
        [node_binary.path(), "cell", "--", sys.executable, "-m", "tests.distributed.lab", str(tmp_path), mode],
        capture_output=True, text=True, check=False, timeout=420, cwd=node_binary.ROOT,
    )  # fmt: skip
    logs = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return dict(json.loads(done.stdout.splitlines()[-1]))


def complete(said: dict[str, Any]) -> list[str]:
    """Ids of the runs of a campaign in which every one is valid."""
    assert said["status"] == 0, said["told"]
    campaign = json.loads(said["campaign"])
    runs = [run for point in campaign["points"] for run in point["runs"]]
    assert campaign["state"] == "complete"
    assert {run["state"] for run in runs} == {"valid"}
    assert all(row["n"] == 4 for point in campaign["points"] for row in point["metrics"] if row["name"] == "throughput")
    return [run["run_id"] for run in runs]


def test_two_workers_fill_one_store(tmp_path: Path) -> None:
    said = lab(tmp_path, "plain")
    ids = complete(said)
    assert "0 runs made, 8 taken" in said["again"]
    for run_id in ids:
        folder = tmp_path / "artefacts/runs" / run_id[:2] / run_id
        names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert {"manifest.json", "segments.parquet", "captures/left-eth0.pcap.gz"} <= names
    assert not list((tmp_path / "local").glob("*/incoming/*"))


def test_a_killed_worker_costs_what_it_was_running_and_nothing_else(tmp_path: Path) -> None:
    said = lab(tmp_path, "kill", CAMPAIGN.replace("duration: 4 s", "duration: 6 s"))
    ids = complete(said)
    assert len(set(ids)) == 8
    assert "is gone; this run is made again" in said["told"]
    # What had landed was not made again.
    again = said["told"].count("is gone; this run is made again")
    assert 1 <= again <= 8 - said["landed_before"]


def test_a_killed_runner_loses_no_finished_run(tmp_path: Path) -> None:
    said = lab(tmp_path, "runner")
    complete(said)
    taken = int(said["told"].rpartition(" runs made")[2].split(" taken")[0].split(",")[-1])
    assert taken >= said["landed_before"] >= 1
