"""A Mininet script's run in the store, from another folder and with another Python."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.only_run import only_run
from tests.support.waiting import HANGS_S, wait_until
from web.app import create_app

pytestmark = pytest.mark.emulated
records = pytest.mark.slow("records a Mininet script")

SCRIPT = node_binary.ROOT / "tests/support/mininet_recorded.py"
PAGE_BYTES = 500_000


def script(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs it as docs/mininet-links.md has it."""
    path = f"{node_binary.ROOT}:{sysconfig.get_path('purelib')}"
    return subprocess.run(
        [node_binary.path(), "cell", "--", "/usr/bin/python3", str(SCRIPT), *more],
        capture_output=True, text=True, check=False, timeout=HANGS_S, cwd=folder, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "BACKCHANNEL_NODE": node_binary.path()},
    )  # fmt: skip


@records
def test_a_scripts_lines_are_kept_as_a_run(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(bytes(PAGE_BYTES))
    done = script(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The script's run is" in done.stderr
    run, folder = only_run(tmp_path / "kept")
    assert done.stdout.split() == [str(len(run.problems)), run.id]
    scenario, report = run.documents.scenario, run.documents.manifest.report
    flows = [(flow.kind, flow.from_, flow.to) for flow in scenario.workload]
    assert flows == [("bulk", "h1", "h2"), ("probe", "h2", "h1")]
    assert [link.forward.jitter_s for link in scenario.links] == [0.0, 0.002]
    assert [(link.name.partition("-")[2], link.forward.rate_bps) for link in scenario.links] == [
        ("h1-s1", 10e6), ("s1-h2", 2e6),
    ]  # fmt: skip
    assert sorted(path.name for path in (folder / "captures").iterdir()) == [
        f"{end}.pcap.gz" for end in ("h1-eth0", "h2-eth0", "s1-eth1", "s1-eth2")
    ]
    # The audit knows what leaves by which port of the bridge: every packet is found at both ends.
    assert report is not None
    assert report.audit is not None
    for link in scenario.links:
        audit = report.audit[link.name]["forward"]
        assert audit.left_packets > PAGE_BYTES / 1500
        assert (audit.swallowed_packets, audit.invented_packets, audit.jitter_unexplained_packets) == (0, 0, 0)
    assert create_app(tmp_path / "kept").test_client().get(f"/runs/{run.id}").status_code == 200
    values = {(row.name, row.subject): row.value for row in run.metrics}
    assert 1.5e6 < values["throughput", scenario.workload[0].name] < 2e6
    # Both lines and both ways take 30 ms, and the second one up to 2 ms less or more each way.
    ping = scenario.workload[1].name
    assert 0.03 < values["latency_p50", ping] < 0.033
    assert values["latency_p95", ping] - values["latency_p50", ping] > 0.001


@records
def test_a_network_without_emulated_lines_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"")
    done = script(tmp_path, "plain")
    assert "there is nothing to record: this network has no emulated link; create it with link=Line" in done.stderr
    assert not (tmp_path / "kept").exists()


#: Captures in the namespace of its own process, and waits to be killed.
CAPTURING = """
import os, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from experiments.mininet_run import _Captures
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
end = SimpleNamespace(name="lo", node=SimpleNamespace(name="h1", pid=os.getpid()))
line = SimpleNamespace(spec=SimpleNamespace(directions=lambda: []), intf1=end, intf2=SimpleNamespace(**vars(end)))
line.intf2.name = "lo"
captures = _Captures([line], 96, Path(sys.argv[1]))
print(*(capture._process.pid for _, capture in captures._running), flush=True)
time.sleep(600)
"""


def test_captures_end_with_a_script_that_is_killed(tmp_path: Path) -> None:
    path = f"{node_binary.ROOT}:{sysconfig.get_path('purelib')}:/usr/lib/python3/dist-packages"
    script = subprocess.Popen(
        ["unshare", "--net", "--", sys.executable, "-c", CAPTURING, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path, "BACKCHANNEL_NODE": node_binary.path()},
    )  # fmt: skip
    assert script.stdout is not None
    pids = [int(word) for word in script.stdout.readline().split()]
    assert len(pids) == 2
    try:
        # unshare replaces itself by the script.
        script.kill()
        script.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of the captures")
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
