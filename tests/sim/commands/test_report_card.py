"""`report-card`: the card of a sender, as table, JSON and page."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from testbed.node_binary import ROOT
from tests.conftest import backchannel

#: Two quick cases, one of which reads the sender's own records.
CASES = ("--case", "low-rate", "--case", "half-duplex")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("card") / "results"


def test_a_card_has_questions_values_bounds_verdicts_and_runs(results: Path, tmp_path: Path) -> None:
    done = backchannel("report-card", "modern-bbr", *CASES, "--results", results, "--json", status=0)
    card = json.loads(done.stdout)
    assert (card["sender"], card["standard"], card["backend"]) == ({"name": "modern-bbr"}, "CUBIC", "sim")
    low, half = card["cases"]
    assert (low["case"], low["verdict"], half["verdict"]) == ("low-rate", "pass", "pass")
    assert "BBR A.14: Correctly Managing Sub-Packet BDPs" in low["source"]
    assert len(low["runs"]) == 5
    throughput, window = low["criteria"]
    assert 60e3 < throughput["tested"]["low"] < throughput["tested"]["mean"] < throughput["tested"]["high"] < 67e3
    assert throughput["slack"]["low"] > 0
    assert (throughput["from"], window["from"]) == ("captures", "the sender's records")
    # Everything is there: the page is of the same runs.
    page = tmp_path / "card.html"
    done = backchannel("report-card", "modern-bbr", *CASES, "--results", results, "--out", page)
    assert done.stdout.splitlines() == [
        "Report card of modern-bbr, held against CUBIC (sim): 2 pass", str(page),
    ]  # fmt: skip
    text = page.read_text()
    assert '<h2><span class="pass">pass</span>: low-rate</h2>' in text
    for run in low["runs"]:
        assert f'href="http://127.0.0.1:8321/runs/{run}"' in text
    table = backchannel("report-card", "modern-bbr", *CASES, "--results", results, COLUMNS="200").stdout
    assert "Congestion window of tested*" in table
    assert "at least 0.9 x CUBIC's" in table
    # The case by itself, as the docs have it, is the same campaign.
    file = ROOT / "experiments/report_card/low-rate.yaml"
    alone = backchannel("run", file, "--set", "workload.tested.stack.name=modern-bbr", "--results", results)
    assert "0 runs made, 5 taken" in alone.stdout


def test_errors_name_what_is_allowed(results: Path) -> None:
    done = backchannel("report-card", "modern-brb", "--results", results)
    assert (done.returncode, "did you mean 'modern-bbr'" in done.stderr) == (2, True)
    done = backchannel("report-card", "modern", "--case", "los", "--results", results)
    assert (done.returncode, "unknown case 'los'" in done.stderr) == (2, True)
    done = backchannel("report-card", "{name: modern, ecnn: data}", "--case", "loss", "--results", results)
    assert (done.returncode, "unknown option" in done.stderr) == (2, True)


@pytest.mark.slow(reason="builds a node with a controller from outside the repository")
def test_a_controller_that_never_reduces_fails(results: Path) -> None:
    subprocess.run(["cargo", "build", "--quiet", "-p", "backchannel-outside"], cwd=ROOT, check=True)
    words = ["--case", "collapse", "--case", "mixed-short", "--case", "real-time", "--json"]
    done = subprocess.run(
        [ROOT / "backchannel", "report-card", "{name: modern, congestion: stubborn}", *words, "--results", results],
        env={**os.environ, "BACKCHANNEL_NODE": str(ROOT / "target/debug/outside-node")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    verdicts = {case["case"]: case["verdict"] for case in json.loads(done.stdout)["cases"]}
    assert verdicts == {"collapse": "fail", "mixed-short": "fail", "real-time": "fail"}
