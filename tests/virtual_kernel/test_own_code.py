"""C files of the user's in Linux in virtual time: those of `new`, compiled, chosen and used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import backchannel


def run(*words: str | Path) -> str:
    # The first build on a machine compiles Linux.
    done = backchannel(*words, timeout_s=3000, status=0)
    return done.stdout


@pytest.mark.slow(reason="compiles Linux with the files, and on a new machine the whole of it")
def test_a_congestion_control_and_a_qdisc_of_new_are_compiled_and_used(tmp_path: Path) -> None:
    control, queue = tmp_path / "suite-cc", tmp_path / "suite-q"
    run("new", "kernel-controller", control)
    run("new", "qdisc", queue)
    files = ("--with", control / "tcp_suite_cc.c", "--with", queue / "sch_suite_q.c")
    assert "suite-own" in run("kernel", "build", *files, "--name", "suite-own")
    results = tmp_path / "results"
    for folder in (control, queue):
        campaign = folder / "campaign.yaml"
        campaign.write_text(campaign.read_text().replace(f"kernel: {folder.name}", "kernel: suite-own"))
        run("run", campaign, "--results", results)
    retransmissions: dict[str, float] = {}
    for name in ("suite-cc", "suite-q"):
        for point in json.loads(run("results", name, "--results", results, "--json"))["points"]:
            values = {metric["name"]: metric["mean"] for metric in point["metrics"] if metric["subject"] == "download"}
            (label,) = point["parameters"].values()
            retransmissions[label] = values["retransmissions"]
    # It keeps seven eighths at a loss and so loses more. A queue of ten packets is not one of sixty.
    assert retransmissions["suite_cc"] > retransmissions["reno"]
    assert retransmissions["suite_q"] != retransmissions["pfifo"]


EXCHANGED = """
name: exchanged
backend: virtual-kernel
network:
  nodes:
    - {name: left, kind: host, stack: dctcp}
    - {name: right, kind: host, stack: PEER}
  links:
    - {name: line, ends: [left, right], forward: {rate: 4 Mbit/s, delay: 10 ms}}
workload:
  - {name: bulk, from: left, to: right}
duration: 2 s
"""


@pytest.mark.parametrize(
    "peer", [pytest.param("dctcp", marks=pytest.mark.slow("test_l4s.py has good runs of DCTCP")), "reno"]
)
def test_a_control_that_the_kernel_exchanges_during_the_connection_fails_the_run(tmp_path: Path, peer: str) -> None:
    """A host with Reno refuses ECN, and DCTCP is Reno from the handshake on."""
    campaign = tmp_path / "exchanged.yaml"
    campaign.write_text(EXCHANGED.replace("PEER", peer))
    done = backchannel("run", campaign, "--results", tmp_path / "results", "--attempts", "1", timeout_s=3000)
    if peer == "dctcp":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert "the kernel uses congestion control 'dctcp-reno' instead of 'dctcp'" in done.stdout + done.stderr
