"""Cells: what they run, and that nothing of them stays behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from analysis.captures import RunData
from experiments.engine.execution import analyse
from testbed import fidelity, node_binary
from testbed.cell import Cell
from testbed.errors import TestbedError
from testbed.report import ProblemKind, Report
from tests.conftest import LATE_IS_FINE, run_validly, two_hosts, typed
from tests.support.faults.leftovers import Watch
from tests.support.processes import run_with_a_pause
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.emulated

RUNNER = """
import json, sys
from pathlib import Path
from testbed.cell import Cell
from testbed.scenario import Scenario
scenario = Scenario.read(json.loads(sys.argv[1]))
with Cell("victim") as cell:
    print(cell.pid, flush=True)
    cell.build(scenario)
    cell.calibrate(scenario)
    while True:
        cell.run(scenario, Path(sys.argv[2]))
"""

OVERFLOW = """
import json, os, signal, subprocess, sys
from mininet.net import Mininet
from testbed.emulator_process import Emulator
from testbed.mininet_links import ModemLink
net = Mininet(controller=None, build=False)
a, b = net.addHost("a", ip="10.0.0.1/24"), net.addHost("b", ip="10.0.0.2/24")
net.addLink(a, b, cls=ModemLink, profile="dialup-28.8")
net.build()
a.cmd("ip neigh replace 10.0.0.2 lladdr", b.MAC(), "dev a-eth0")
emulator = Emulator.shared()
emulator.start()
pid = emulator.pid
os.kill(pid, signal.SIGSTOP)
# 32 is SO_SNDBUFFORCE: the socket's own limit would hold the sender back before the interface's queue is full.
blast = (
    "import socket; s = socket.socket(2, 2); s.setsockopt(1, 32, 1 << 28)" + chr(10)
    + "for i in range(13000): s.sendto(b'x', ('10.0.0.2', 9))"
)
assert a.popen([sys.executable, "-c", blast]).wait() == 0
os.kill(pid, signal.SIGCONT)
(link,) = emulator.stop().links.values()
net.stop()
print(json.dumps({name: link[name].lost_before_the_link for name in ("forward", "reverse")}))
"""


def test_runs_a_scenario_and_hands_back_its_files(tmp_path: Path) -> None:
    scenario = two_hosts() | {"fidelity": LATE_IS_FINE}
    with Cell("cell") as cell:
        assert cell.build(typed(scenario))
        assert not cell.build(typed(scenario))
        report = run_validly(cell, scenario, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run/captures").iterdir()) == ["a-eth0.pcap", "b-eth0.pcap"]
    assert report["flows"]["bulk"]["receive"]["payload_ok"]
    received = report["flows"]["bulk"]["receive"]["bytes"]
    # Less than 3 s of 1 Mbit/s. How much less, a busy machine says.
    assert 0 < received < 375_000
    assert all(capture["dropped"] == 0 for capture in report["captures"])
    assert all(capture["captured"] == capture["received"] for capture in report["captures"])


def test_a_capture_holds_the_last_packet_of_a_run(tmp_path: Path) -> None:
    """What the receiving program took in is in the receiver's capture to the last byte."""
    scenario = two_hosts(duration_s=3.0) | {"fidelity": LATE_IS_FINE}
    out = tmp_path / "run"
    with Cell("cell") as cell:
        cell.build(typed(scenario))
        report = run_validly(cell, scenario, out)
    analyse(out, typed(scenario), Report.read(report))
    flow = RunData.load(out, typed(scenario), Report.read(report)).flows[0]
    received = report["flows"]["bulk"]["receive"]["bytes"]
    assert flow.delivered_bytes(0, 99) >= received > 0


def test_a_bad_scenario_is_refused_in_a_sentence() -> None:
    scenario = two_hosts()
    scenario["links"][0]["forward"]["queue"]["name"] = "drop-tale"
    with Cell("cell") as cell, pytest.raises(TestbedError, match="drop-tale"):
        cell.build(typed(scenario))


def test_a_run_whose_emulator_was_stopped_is_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets sent meanwhile wait unseen in the kernel: only the emulator's own pulse can tell."""
    mark = f"BACKCHANNEL_TEST_STALL={os.getpid()}"
    monkeypatch.setenv(*mark.split("="))
    scenario = two_hosts(duration_s=4.0)
    report = run_with_a_pause(typed(scenario), tmp_path, mark, lambda words: b"emulate" in words)
    assert report.driver.stalls is not None
    assert 0.29 < report.driver.stalls.longest_s < 30
    assert ProblemKind.STALLED in {problem.kind for problem in fidelity.problems(report)}


def test_frames_that_the_kernel_drops_before_the_link_are_counted() -> None:
    """Thirteen thousand frames to a stopped emulator, whose interface holds ten thousand."""
    done = subprocess.run(
        [node_binary.path(), "cell", "--", sys.executable, "-c", OVERFLOW],
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lost = json.loads(done.stdout)
    # A node's own neighbour discovery may add a few.
    assert 3000 <= lost["forward"] <= 3010
    assert lost["reverse"] == 0


def test_a_run_that_fails_leaves_its_logs_and_captures(tmp_path: Path) -> None:
    """A flow whose receiver's port is taken: the second one cannot listen."""
    scenario = two_hosts(duration_s=1.0)
    scenario["workload"].append({**scenario["workload"][0], "name": "twin"})
    with Cell("broken") as cell:
        cell.build(typed(scenario))
        with pytest.raises(TestbedError, match="twin-receive"):
            cell.run(typed(scenario), tmp_path).as_json()
        assert "in use" in (tmp_path / "left/b/twin-receive.log").read_text()
        assert (tmp_path / "left/a/captures/a-eth0.pcap").stat().st_size >= 24
        # The testbed is as good as before.
        cell.run(typed(two_hosts(duration_s=1.0)), tmp_path).as_json()


@pytest.mark.parametrize("groups", [1, pytest.param(3, marks=pytest.mark.slow("twelve kills in place of four"))])
def test_nothing_survives_a_killed_runner(groups: int, tmp_path: Path) -> None:
    """`kill -9` at random moments, from the cell's first instant to the middle of a run.

    Four runners live side by side, and whichever has the earliest moment is killed next.
    """
    draws = random.Random(20261121)
    scenario = json.dumps(two_hosts(duration_s=5.0))
    for group in range(groups):
        # What others do on this machine meanwhile is not of these runners.
        watch = Watch(tmp_path / f"watched{group}")
        environment = {**watch.environment, "PYTHONPATH": str(node_binary.ROOT)}
        moments = sorted(draws.uniform(0.05, 6.0) for _ in range(4))
        begin = time.monotonic()
        runners = [
            subprocess.Popen(
                [sys.executable, "-c", RUNNER, scenario, str(tmp_path / str(number))],
                stdout=subprocess.DEVNULL, env=environment,
            )
            for number in range(4)
        ]  # fmt: skip
        for moment, runner in zip(moments, runners, strict=True):
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            assert runner.poll() is None, "the runner ended of itself"
            watch.processes()
            runner.send_signal(signal.SIGKILL)
            runner.wait()
        left = watch.left()
        assert not left, f"after the kills of group {group}, still there: {left}"


def test_two_cells_do_not_meet(tmp_path: Path) -> None:
    """The same names, addresses and ports twice at once, with bytes of their own: each sees its own traffic only."""
    together = threading.Barrier(2)

    def run(number: int) -> dict[str, Any]:
        scenario = two_hosts(duration_s=3.0, seed=number)
        with Cell(str(number)) as cell:
            cell.build(typed(scenario))
            together.wait(HANGS_S)
            return cell.run(typed(scenario), tmp_path / str(number)).as_json()

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, (1, 2)))
    begins = [report["t0_epoch_ns"] for report in reports]
    assert abs(begins[0] - begins[1]) < 3e9, "they did not run at the same time"
    for report in reports:
        received = report["flows"]["bulk"]["receive"]
        assert received["payload_ok"]
        assert received["bytes"] > 0
