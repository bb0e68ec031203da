"""Runs in virtual time: the same bytes twice, nothing late, no capability, nothing left behind."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import fidelity, kernel_tcp, node_binary, pcap
from testbed.errors import TestbedError
from testbed.report import Report
from testbed.scenario import Scenario
from testbed.virtual_kernel import bytecode, kernels
from testbed.virtual_kernel.machine import Interception, VirtualMachine
from tests.sim.testbed import test_simulation
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S, wait_until

STACKS = (*sorted(kernel_tcp.NAMES - kernels.SERIES[0].lacks), "newreno")


def scenario(stack: str = "cubic", **values: Any) -> Scenario:
    return Scenario.read(test_simulation.scenario(stack, duration_s=2.0, **values))


def made(
    kernel: kernels.Kernel, of: Scenario, out: Path, interception: Interception | None = None
) -> tuple[Report, dict[str, str]]:
    """The report, and the digest of each file."""
    report = VirtualMachine(kernel, interception).run(of, out, lambda progress: None)
    files = sorted(path for kind in ("captures", "telemetry") for path in (out / kind).iterdir())
    return report, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_stack_gives_the_same_bytes_twice(kernel: kernels.Kernel, tmp_path: Path) -> None:
    """Between hosts of its own in one machine, because a start takes longer than two seconds of a stack."""
    document: dict[str, Any] = {
        **scenario().as_json(),
        "nodes": [{"name": "r", "kind": "router"}],
        "links": [],
        "workload": [],
    }
    for number, stack in enumerate(STACKS):
        hosts, alone = (f"a{number}", f"b{number}"), scenario(stack).as_json()
        (line,), (bulk,) = alone["links"], alone["workload"]
        for node, host in zip(alone["nodes"], hosts, strict=True):
            document["nodes"].append({**node, "name": host})
            document["links"].append({**line, "name": f"to-{host}", "ends": [host, "r"]})
        document["workload"].append({**bulk, "name": stack, "from": hosts[0], "to": hosts[1]})
    of = Scenario.read(document)
    report, first = made(kernel, of, tmp_path / "first")
    _, second = made(kernel, of, tmp_path / "in another folder")
    assert first == second
    # Of each stack the captures of its hosts and of the router, and what the sender's TCP says.
    assert {f"{stack}.jsonl" for stack in STACKS} < first.keys()
    assert len(first) == 5 * len(STACKS) + 1
    assert {stack for stack in STACKS if report.flows[stack].receive.bytes <= 100_000} == set()


#: A flow of the kernel's TCP, and one of the research stack beside the kernel.
ALIKE = pytest.mark.slow("differs from the other in what test_every_stack_gives_the_same_bytes_twice has")


@pytest.mark.parametrize("stack", [pytest.param("cubic", marks=ALIKE), "newreno"])
def test_a_traced_kernel_gives_the_same_bytes(stack: str, kernel: kernels.Kernel, tmp_path: Path) -> None:
    _, first = made(kernel, scenario(stack), tmp_path / "first")
    assert made(kernel, scenario(stack), tmp_path / "traced", "ptrace")[1] == first


@pytest.mark.parametrize("stack", ["cubic", pytest.param("newreno", marks=ALIKE)])
def test_ipv6_gives_the_same_bytes_twice(stack: str, kernel: kernels.Kernel, tmp_path: Path) -> None:
    document = scenario(stack).as_json()
    document["workload"][0]["ip"] = 6
    of = Scenario.read(document)
    report, first = made(kernel, of, tmp_path / "first")
    assert made(kernel, of, tmp_path / "second")[1] == first
    assert fidelity.problems(report) == []
    assert report.flows["bulk"].receive.bytes > 100_000
    for capture in (tmp_path / "first/captures").iterdir():
        # The version of IP follows the Ethernet header, and nothing else is sent.
        assert {record.data[14] >> 4 for record in pcap.records(capture.read_bytes())} == {6}


def test_what_others_compile_or_remove_changes_no_byte(kernel: kernels.Kernel, tmp_path: Path) -> None:
    packages = [node_binary.ROOT / package for package in bytecode.PACKAGES]
    for package in packages:
        compileall.compile_dir(package, quiet=1, force=True)
    _, first = made(kernel, scenario(), tmp_path / "first")
    for cached in (path for package in packages for path in package.rglob("__pycache__/*.pyc")):
        cached.unlink(missing_ok=True)
    assert made(kernel, scenario(), tmp_path / "second")[1] == first


def test_another_seed_gives_other_sequence_numbers(kernel: kernels.Kernel, tmp_path: Path) -> None:
    _, first = made(kernel, scenario(seed=1), tmp_path / "first")
    _, second = made(kernel, scenario(seed=2), tmp_path / "second")
    assert all(first[name] != second[name] for name in first if name.endswith(".pcap"))


def test_nothing_is_late(kernel: kernels.Kernel, tmp_path: Path) -> None:
    report, _ = made(kernel, scenario(rate_bps=10_000_000), tmp_path)
    assert fidelity.problems(report) == []
    late = report.driver.links["line"]["forward"].lateness_s
    # Reading a clock takes 256 ns of virtual time.
    assert late.max is not None
    assert late.max < 50e-6
    assert report.driver.stalls is not None
    assert report.driver.stalls.count == 0


def test_a_failure_inside_is_a_sentence(kernel: kernels.Kernel, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="lp"):
        made(kernel, scenario("hybla-lp"), tmp_path)
    with pytest.raises(TestbedError, match="virtual kernel"):
        VirtualMachine(replace(kernel, folder=tmp_path)).run(scenario(), tmp_path / "out", lambda progress: None)


CAMPAIGN = one_line("virtual", "", duration="4 s", backend="virtual-kernel", stack="reno")


def command(folder: Path, *prefix: str) -> list[str]:
    (folder / "virtual.yaml").write_text(CAMPAIGN)
    return [*prefix, sys.executable, "-m", "experiments", "run", str(folder / "virtual.yaml"),
            "--results", str(folder / "results")]  # fmt: skip


@pytest.mark.slow("test_ordinary_user.py has a user without privileges, who is not root either")
def test_a_campaign_needs_no_capability(kernel: kernels.Kernel, tmp_path: Path) -> None:
    without = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    done = subprocess.run(command(tmp_path, *without), capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.returncode == 0, done.stdout + done.stderr
    manifests = [json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json")]
    assert [manifest["virtual_kernel"] for manifest in manifests] == [kernel.release]
    assert not manifests[0]["report"].get("stalls")


def test_nothing_survives_a_killed_runner(kernel: kernels.Kernel, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as runner:
        wait_until(lambda: len(_machines(tmp_path)) > 1)
        # No disk writes the memory of a machine back.
        maps = [Path(f"/proc/{process}/maps").read_text() for process in _machines(tmp_path)]
        assert any("/memfd:memory " in text for text in maps)
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not _machines(tmp_path))


def _machines(folder: Path) -> list[int]:
    """Processes of virtual machines, the kernel and its address spaces, whose working directory is below a folder."""
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_machine = (process / "comm").read_text().strip() in ("linux", "uml-userspace")
            if is_machine and (process / "cwd").readlink().is_relative_to(folder):
                result.append(int(process.name))
        except OSError:
            continue
    return result
