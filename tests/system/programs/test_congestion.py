"""The congestion control of the kernel that a flow asks for is the one that it gets, or the program says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from agents import traffic
from testbed import flows, node_binary
from testbed.addressing import make_plan
from tests.conftest import two_hosts, typed
from tests.support.waiting import wait_until

LIBRARY = Path(__file__).with_name("kept_congestion.c")
#: The kernel's own choice, and another one that it has.
DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
OTHER = "reno" if DEFAULT != "reno" else "cubic"


def said(folder: Path, congestion: str, **environment: str) -> str:
    """What a receiver with a congestion control writes to its standard error until it is ready or has ended."""
    scenario = typed(two_hosts(rate_bps=1_000_000, delay_s=0.01, duration_s=60.0))
    plan = make_plan(scenario.nodes, scenario.links)
    program = flows.receiver(scenario, plan, scenario.workload[0])
    options = {**program.options, "listen": "127.0.0.1:0", "congestion": congestion}
    words = traffic.command(node_binary.path(), program.program, options, folder)
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=log, cwd=folder, env={**os.environ, **environment}
        )
        try:
            wait_until(lambda: process.poll() is not None or "ready on" in (folder / "log").read_text(), "the receiver")
        finally:
            process.kill()
            process.wait()
        return (folder / "log").read_text()


def test_a_name_that_the_kernel_has_is_taken(tmp_path: Path) -> None:
    assert "ready on" in said(tmp_path, OTHER)


def test_a_name_that_the_kernel_lacks_is_refused(tmp_path: Path) -> None:
    assert "the kernel refuses congestion control 'absent' (" in said(tmp_path, "absent")


def test_another_one_that_the_kernel_takes_silently_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "kept.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, LIBRARY], check=True)
    text = said(tmp_path, OTHER, LD_PRELOAD=str(library))
    assert f"the kernel uses congestion control '{DEFAULT}' instead of '{OTHER}'" in text
