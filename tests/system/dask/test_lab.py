"""Campaigns on a Dask cluster with a PostgreSQL store: two workers in separate namespaces, killed and not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.support.waiting import HANGS_S

pytestmark = [
    pytest.mark.slow("labs of several machines, each built anew"),
    pytest.mark.emulated,
    pytest.mark.usefixtures("postgresql"),
]


@pytest.fixture(scope="session")
def postgresql() -> None:
    """Fails where the distribution's PostgreSQL is not installed."""
    if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        pytest.fail("there is no PostgreSQL: ./backchannel test installs it")


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
        [node_binary.path(), "cell", "--", sys.executable, "-m", "tests.support.dask_lab", str(tmp_path), mode],
        capture_output=True, text=True, check=False, timeout=HANGS_S,
    )  # fmt: skip
    logs = "\n".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    return dict(json.loads(done.stdout.splitlines()[-1]))


def complete(outcome: dict[str, Any]) -> list[str]:
    """Ids of the runs of a campaign in which every one is valid."""
    assert outcome["status"] == 0, outcome["messages"]
    campaign = json.loads(outcome["campaign"])
    runs = [run for point in campaign["points"] for run in point["runs"]]
    assert campaign["state"] == "complete"
    assert {run["state"] for run in runs} == {"valid"}
    assert all(row["n"] == 4 for point in campaign["points"] for row in point["metrics"] if row["name"] == "throughput")
    return [run["run_id"] for run in runs]


def test_two_workers_fill_one_store(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "plain")
    ids = complete(outcome)
    assert "0 runs made, 8 taken" in outcome["again"]
    for run_id in ids:
        folder = tmp_path / "artefacts/runs" / run_id[:2] / run_id
        (folder,) = folder.iterdir()
        assert folder.name.startswith("version-")
        names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert {"manifest.json", "segments.parquet", "captures/left-eth0.pcap.gz"} <= names
    assert not list((tmp_path / "local").glob("*/incoming/*"))


def test_a_failed_attempt_leaves_its_files_at_the_reported_place(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "failed", CAMPAIGN + "fidelity: {delay: 1 us}\n")
    assert outcome["status"] == 1, outcome["messages"]
    (folder,) = (tmp_path / "artefacts/failed").iterdir()
    assert f"files: file://{folder}" in " ".join(outcome["messages"].split())
    assert (folder / "reason.txt").read_text().startswith("attempt 1: calibration failed")
    assert {"calibration.json", "cell.log"} <= {path.name for path in folder.iterdir()}


def test_a_killed_worker_costs_only_its_current_runs(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "kill", CAMPAIGN.replace("duration: 4 s", "duration: 6 s"))
    ids = complete(outcome)
    assert len(set(ids)) == 8
    assert "is gone; this run is repeated" in outcome["messages"]
    # Stored runs were not repeated.
    again = outcome["messages"].count("is gone; this run is repeated")
    assert 1 <= again <= 8 - outcome["landed_before"]


def test_a_killed_runner_loses_no_finished_run(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "runner")
    complete(outcome)
    taken = int(outcome["messages"].rpartition(" runs made")[2].split(" taken")[0].split(",")[-1])
    assert taken >= outcome["landed_before"] >= 1


def test_a_runner_without_its_scheduler_ends_with_a_message(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "scheduler")
    assert outcome["status"] == 1
    assert "the Dask scheduler tcp://10.77.0.1:8786 does not answer; finished runs are stored" in outcome["messages"]
    assert "Traceback" not in outcome["messages"], outcome["messages"]


def test_workers_with_certificates_reject_clients_without(tmp_path: Path) -> None:
    # The link does not matter here.
    outcome = lab(tmp_path, "tls", CAMPAIGN.replace("name: lab", "name: lab\nbackend: sim\nstack: newreno"))
    complete(outcome)
    for kind in ("worker", "runner"):
        strangers = {
            "with no certificate": "without a certificate: $DASK_DISTRIBUTED__COMM__TLS__CA_FILE is not set",
            "of another authority": "certificate verify failed",
        }
        for stranger, why in strangers.items():
            status, _, messages = outcome[f"{kind} {stranger}"]
            assert (status, "Traceback" in messages) == (3, False), messages
            assert "no Dask scheduler answers at tls://10.77.0.1:8786" in messages
            assert why in messages
    status, _, messages = outcome["runner in clear"]
    assert (status, "Traceback" in messages) == (3, False), messages
    assert "the scheduler's address must begin with tls://; it is tcp://10.77.0.1:8786" in messages


def test_the_store_is_the_same_on_postgresql(tmp_path: Path) -> None:
    outcome = lab(tmp_path, "store")
    assert outcome["status"] == 0, outcome["messages"]
    # Seven are about SQLite's own files and tables.
    assert "7 deselected" in outcome["messages"]


def test_an_interrupted_runner_ends_with_a_message(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the cells as well as the runner."""
    (tmp_path / "own.yaml").write_text(CAMPAIGN.replace("4 s", "60 s"))
    words = ["run", str(tmp_path / "own.yaml"), "--results", str(tmp_path / "results")]
    runner = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert runner.stdout is not None
    # The first line of progress comes after some 20 s, when its cells are at work.
    first = runner.stdout.readline()
    os.killpg(runner.pid, signal.SIGINT)
    outcome = first + runner.communicate(timeout=HANGS_S)[0]
    assert runner.returncode == 130, outcome
    assert "the same command continues" in outcome
    assert "Traceback" not in outcome


NOWHERE = "postgresql://nobody@127.0.0.1:9/none"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--scheduler", "tcp://127.0.0.1:9"], 3, "--results must be a PostgreSQL URL"),
        (["--results", NOWHERE], 2, "needs a place for captures and tables: --artefacts"),
        (["--results", NOWHERE, "--artefacts", "nonsense://x"], 2, "cannot be stored at nons"),
        (["--results", NOWHERE, "--artefacts", "file:///tmp"], 1, "cannot be opened: conn"),
        (["--results", "mysql://nobody@127.0.0.1:9/none", "--artefacts", "file:///tmp"], 2, "is not a store"),
        (["--artefacts", "file:///tmp"], 2, "an artefact URL belongs to a PostgreSQL store"),
    ],
)  # fmt: skip
def test_an_unreachable_service_is_reported(tmp_path: Path, words: list[str], status: int, message: str) -> None:
    (tmp_path / "sim.yaml").write_text(CAMPAIGN.replace("name: lab", "name: lab\nbackend: sim\nstack: newreno"))
    own = [] if "--results" in words else ["--results", str(tmp_path / "results")]
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "run", str(tmp_path / "sim.yaml"), *words, *own],
        capture_output=True, text=True, timeout=HANGS_S, check=False,
        env={**os.environ, "BACKCHANNEL_LOCAL": str(tmp_path / "local")},
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert message in done.stderr
