"""Whole campaigns by the command line: results, resumption, interruption, neighbours."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import node_binary
from tests.conftest import CAMPAIGN, Finished, backchannel
from tests.support.faults.leftovers import Watch
from tests.support.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.emulated

#: For tests that hold no numbers.
SHORT = CAMPAIGN.replace("duration: 6 s", "duration: 3 s")


def test_every_point_has_its_runs_and_metrics(finished: Finished) -> None:
    assert finished.campaign["state"] == "complete"
    points = finished.campaign["points"]
    assert [point["parameters"]["network.reverse.queue.policy"] for point in points] == ["droptail", "acks-first"]
    for point in points:
        assert [run["state"] for run in point["runs"]] == ["valid", "valid"]
        names = {(row["name"], row["subject"]): row for row in point["metrics"]}
        forward, reverse = names["throughput", "forward"], names["throughput", "reverse"]
        assert forward["unit"] == "rate"
        # Twelve runs had 3.9 Mbit/s with a standard deviation of 1.1; these are two.
        assert 1_000_000 < forward["mean"] < 8_000_000
        assert 0 <= reverse["mean"] < 28_800
        assert 0.5 < names["goodput", "forward"]["mean"] < 1
    # Acks first (asym 6.5): forward's fill the line, so that no data of reverse gets a turn. What forward gains by it
    # is, in two runs as short as these, a matter of luck.
    names = {(row["name"], row["subject"]): row["values"] for row in points[1]["metrics"]}
    assert names["throughput", "reverse"] == [0.0, 0.0]
    assert names["fairness_index", ""] == [0.5, 0.5], "one of two flows has everything"
    assert min(names["throughput", "forward"]) > 3_000_000


def test_each_run_left_captures_tables_and_a_manifest(finished: Finished) -> None:
    for point in finished.campaign["points"]:
        for run in point["runs"]:
            folder = finished.results / "runs" / run["run_id"][:2] / run["run_id"]
            names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
            assert {
                "manifest.json",
                "scenario.json",
                "segments.parquet",
                "connections.parquet",
                "summary.json",
            } <= names
            assert sum(name.startswith("captures/") for name in names) == 6
            manifest = json.loads((folder / "manifest.json").read_text())
            assert len(manifest["calibration"]) == 6
            assert not any(entry["problems"] for entry in manifest["calibration"])
            assert manifest["report"]["settings"]["server"]["net.ipv4.tcp_sack"] == "1"
    assert not list((finished.results / "incoming").iterdir())


def test_the_same_command_again_takes_everything_from_the_store(finished: Finished) -> None:
    again = backchannel("run", finished.file, "--results", finished.results, status=0)
    assert "0 runs made, 4 taken" in again.stdout


def test_a_killed_campaign_leaves_nothing_running_and_goes_on(tmp_path: Path) -> None:
    """`kill -9` twice at random moments, which the seed draws."""
    file = tmp_path / "small.yaml"
    file.write_text(SHORT)
    moments = random.Random(3)
    results = tmp_path / "results"
    words = [sys.executable, "-m", "experiments", "run", str(file), "--results", str(results)]
    for number in range(2):
        watch = Watch(tmp_path / f"watched{number}")
        runner = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=watch.environment)
        time.sleep(moments.uniform(1.5, 6.0))
        watch.processes()
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        assert watch.left() == []
    done = backchannel("run", file, "--results", results, "--json", status=0)
    assert json.loads(done.stdout)["state"] == "complete"
    assert not list((results / "incoming").iterdir())


def test_an_interrupted_campaign_says_so_and_keeps_what_landed(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN.replace("duration: 6 s", "duration: 60 s"))
    runner = subprocess.Popen(
        [sys.executable, "-m", "experiments", "run", str(file), "--results", str(tmp_path / "results")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: list(tmp_path.glob("results/incoming/*")), "a started run")
    runner.send_signal(signal.SIGINT)
    said, _ = runner.communicate(timeout=HANGS_S)
    assert runner.returncode == 130
    assert "the same command continues" in said


def test_two_campaigns_run_side_by_side(tmp_path: Path) -> None:
    """Equal node names, interface names and addresses, at the same time, in one results folder."""
    runners = []
    for name in ("left", "right"):
        file = tmp_path / f"{name}.yaml"
        seed = {"left": 1, "right": 2}[name]
        file.write_text(SHORT.replace("name: small", f"name: {name}").replace("seed: 7", f"seed: {seed}"))
        words = [
            sys.executable,
            "-m",
            "experiments",
            "run",
            str(file),
            "--results",
            str(tmp_path / "results"),
            "--json",
        ]
        runners.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    for runner in runners:
        said, _ = runner.communicate(timeout=HANGS_S)
        assert runner.returncode == 0
        assert json.loads(said)["state"] == "complete"


def test_the_documented_mininet_script_pings_across_its_modem_line() -> None:
    done = subprocess.run(
        [node_binary.path(), "cell", "--", sys.executable, node_binary.ROOT / "docs/examples/mininet_modem.py"],
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert "3 received" in done.stdout, done.stderr
    least_ms = float(done.stdout.rsplit("= ", 1)[1].split("/")[0])
    # 56-byte packets at 28.8 kbit/s take 15.6 ms each way, and the line is 50 ms long; a busy machine only adds.
    assert 129 < least_ms < 200


def test_calibration_passes_at_the_promised_rates() -> None:
    done = backchannel("calibrate", "--json", status=0)
    measured = json.loads(done.stdout)
    assert sorted({entry["declared_rate_bps"] for entry in measured}) == [28_800, 1_000_000, 10_000_000]
    for entry in measured:
        assert abs(entry["measured_rate_bps"] / entry["declared_rate_bps"] - 1) < 0.005
