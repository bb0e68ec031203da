"""A policy and a controller of the user's on every backend that has more than one process: each runs their program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.store import Store
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import load
from experiments.terminal import TerminalReporter
from testbed import node_binary, own_nodes
from tests.conftest import backchannel
from tests.support.ansible_lab import in_lab, write_yaml
from tests.support.dask_cluster import cluster_of
from tests.support.labs import output_of

#: Limits for a busy machine: what is tested is whose program runs, not when.
LOOSE = "fidelity: {rate: 20 %, delay: 200 ms, lateness: 500 ms, stall: 2 s, stalled: 50 %}"
CAMPAIGN = f"""
name: own
network:
  topology: line
  forward: {{rate: 2 Mbit/s, delay: 10 ms, queue: {{policy: far-policy, from: ./far-policy, threshold: 3 packets}}}}
  reverse: {{rate: 2 Mbit/s, delay: 10 ms}}
stack: {{name: modern, congestion: far-control, from: ./far-control}}
workload:
  - {{name: down, from: left, to: right}}
duration: 4 s
{LOOSE}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A campaign with a crate for its queue and one for its hosts."""
    for kind, name in (("policy", "far-policy"), ("controller", "far-control")):
        backchannel("new", kind, tmp_path / name, status=0)
    (tmp_path / "own.yaml").write_text(CAMPAIGN)
    return tmp_path


def manifests(results: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(results.glob("runs/**/manifest.json"))]


def dropped_early(manifest: dict[str, Any]) -> int:
    """Packets that the policy dropped. No other policy of the campaign has such drops."""
    assert [crate["name"] for crate in manifest["crates"]] == ["far-control", "far-policy"]
    links = manifest["report"]["driver"]["links"]
    return int(links["line"]["forward"]["events"].get("dropped_early", 0))


@pytest.mark.emulated
@pytest.mark.usefixtures("emulation")
def test_real_packets_pass_the_policy_and_hosts_have_the_controller(folder: Path) -> None:
    results = folder / "results"
    backchannel("run", folder / "own.yaml", "--backend", "emulated", "--results", results, timeout_s=1500, status=0)
    (manifest,) = manifests(results)
    assert dropped_early(manifest) > 0


LAB = """
cd "$LAB"
run() { backchannel run own.yaml --backend physical -i hosts.yml --results results; echo "status $?"; }
site() { backchannel testbed site -i hosts.yml >site.log; echo "site $?"; }
echo "== before"; site; run
echo "// Another state." >>far-policy/src/lib.rs
echo "== edited"; run
echo "== after"; site; run
echo "== over"
"""


@pytest.mark.slow("provisions a lab twice")
@pytest.mark.emulated
@pytest.mark.usefixtures("emulation")
def test_hosts_get_the_program_by_site_and_refuse_to_run_that_of_another_state(folder: Path) -> None:
    write_yaml(
        folder / "hosts.yml",
        {
            "plugin": "backchannel", "campaign": "own.yaml", "connection": "namespace",
            "hosts": {"pc0": {"plays": "left"}, "pc1": {"plays": "right"}, "box": {}},
            "links": {"line": {"box": "box"}},
        },
    )  # fmt: skip
    done = in_lab(folder / "hosts.yml", LAB, timeout_s=1500, LAB=str(folder))
    parts = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    assert "over" in parts, output_of(done)
    assert "site 0" in parts["before"], parts["before"]
    assert "status 0" in parts["before"], parts["before"]
    assert "the node binary has another version of the crate 'far-policy'" in parts["edited"]
    assert "./backchannel testbed site --campaign FILE" in parts["edited"]
    assert "status 1" in parts["edited"]
    assert "status 0" in parts["after"], parts["after"]
    before, after = manifests(folder / "results")
    assert dropped_early(before) > 0
    assert dropped_early(after) > 0
    assert before["crates"][0] == after["crates"][0]
    assert before["crates"][1]["sha256"] != after["crates"][1]["sha256"]


@pytest.fixture
def node_of_tests() -> Iterator[None]:
    """This process uses the usual node again afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.engine.dask_executor.is_url", lambda _: True)
        patch.setattr(own_nodes, "_in_use", {})
        patch.setenv(node_binary.VARIABLE, node_binary.path())
        yield


@pytest.mark.usefixtures("node_of_tests")
def test_a_dask_worker_gets_the_sources_and_builds_the_program(folder: Path) -> None:
    results = folder / "results"
    # Workers that were started before the campaign was read have the usual node.
    with cluster_of(1) as address:
        plan = load(folder / "own.yaml", ["backend=sim"])
        options = Options(results, scheduler=address)
        assert run_campaign(plan, options, TerminalReporter(Console(quiet=True))).landed == 1
    with Store.open(results) as store:
        assert store.run(plan.run_ids[0]) is not None
    (manifest,) = manifests(results)
    assert dropped_early(manifest) > 0
