"""An emulated run with exactly the capabilities of the container's manifest, and with each of them missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from testbed import node_binary
from testbed.capability import CAPABILITIES, PROGRAMS, lacking

CONTAINER = node_binary.ROOT / "testbed/container"
CAMPAIGN = """
name: contained
network:
  nodes: [{name: left, kind: host}, {name: right, kind: host}]
  links:
    - {name: line, ends: [left, right], forward: {rate: 1 Mbit/s, delay: 5 ms}, reverse: {rate: 128 kbit/s}}
workload: [{name: bulk, from: left, to: right}]
duration: 1 s
sweep: {stack: [reno, newreno]}
"""


def pod() -> dict[str, Any]:
    """The manifest's pod."""
    manifest = YAML(typ="safe").load((CONTAINER / "job.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    return dict(manifest["spec"]["template"]["spec"])


def added() -> list[str]:
    """The capabilities that the manifest adds to none."""
    (container,) = pod()["containers"]
    capabilities = container["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    return list(capabilities["add"])


def run(folder: Path, capabilities: list[str], tries: int) -> subprocess.CompletedProcess[str]:
    """A campaign as root with these capabilities only."""
    (folder / "contained.yaml").write_text(CAMPAIGN)
    bounding = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    words = ["run", "contained.yaml", "--backend", "emulated", "--attempts", str(tries)]
    return subprocess.run(
        ["setpriv", f"--bounding-set={bounding}", sys.executable, "-m", "experiments", *words],
        capture_output=True, text=True, check=False, cwd=folder, timeout=600,
        env={**os.environ, "PYTHONPATH": str(node_binary.ROOT)},
    )  # fmt: skip


def test_the_manifest_has_the_capabilities_and_the_device() -> None:
    assert sorted(added()) == sorted(CAPABILITIES)
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert volumes["tun"]["hostPath"] == {"path": "/dev/net/tun", "type": "CharDevice"}


def test_the_image_installs_what_cells_need_with_the_launcher() -> None:
    text = (CONTAINER / "Containerfile").read_text()
    launcher = (node_binary.ROOT / "backchannel").read_text()
    assert "./backchannel calibrate --help" in text
    needed = re.search(r"emulation_packages\(\) \{(.*?)\n\}", launcher, re.DOTALL)
    assert needed is not None
    assert not [package for package in PROGRAMS.values() if package not in needed[1]]


def test_capabilities_are_read_from_the_effective_set() -> None:
    whole = sum(1 << bit for bit, _ in CAPABILITIES.values())
    assert lacking(f"Name:\tx\nCapBnd:\t0\nCapEff:\t{whole:016x}\n") == []
    for name, (bit, _) in CAPABILITIES.items():
        assert lacking(f"CapEff:\t{whole & ~(1 << bit):016x}\n") == [name]


@pytest.mark.emulated
def test_a_run_with_these_capabilities_and_no_others(tmp_path: Path) -> None:
    done = run(tmp_path, added(), tries=20)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs made" in done.stdout


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "SYS_ADMIN" else pytest.mark.slow("one function reads them all"))
        for name in sorted(CAPABILITIES)
    ],
)
def test_a_run_without_one_of_them_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, [other for other in CAPABILITIES if other != name], tries=1)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("backchannel: the emulated backend cannot run here: root lacks CAP_")
    assert f"CAP_{name} for {CAPABILITIES[name][1]}" in line
    assert not (tmp_path / "results").exists()
