"""Links of the kernel's own queueing disciplines, on hosts of a lab."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.ansible_lab import in_lab
from tests.support.command_line import backchannel
from tests.support.labs import output_of
from tests.unit.physical.test_kernel_link import CAMPAIGN, lab

pytestmark = pytest.mark.slow("labs whose hosts shape their links")

#: Limits for a busy machine. Without the wait, events are handled seconds late.
LOOSE = "fidelity: {rate: 3 %, delay: 20 ms, lateness: 50 ms, stall: 500 ms, stalled: 20 %}"


SCRIPT = """
cd "$LAB"
inside() { nsenter --target "$(python3 -c "import json,sys
print(json.load(open('$BACKCHANNEL_LAB'))['$1'])")" --net -- "${@:2}"; }
backchannel testbed site -i hosts.yml >site.log; echo "site $?"
inside pc0 cat /sys/class/net/left-eth0/tx_queue_len
backchannel run shaped.yaml -i hosts.yml --results results --json >table.json
for name in pc0 pc1; do inside $name tc qdisc show; inside $name ip -br link show type ifb; done
inside pc0 cat /sys/class/net/left-eth0/tx_queue_len
echo "over"
"""


def need_htb() -> None:
    """Fails where the kernel has no HTB."""
    has_htb = "unshare -n sh -c 'ip link set lo up; tc qdisc add dev lo root htb'"
    if subprocess.run(has_htb, shell=True, capture_output=True, check=False).returncode != 0:
        pytest.fail("this kernel has no HTB")


@pytest.mark.emulated
@pytest.mark.usefixtures("emulation")
def test_a_slow_line_is_measured_behind_its_bucket(tmp_path: Path) -> None:
    need_htb()
    (tmp_path / "slow.yaml").write_text(CAMPAIGN.replace("backend: physical", "backend: emulated"))
    slow = ("--set", "network.forward.rate=28.8 kbit/s", "--set", "network.reverse.rate=9600 bit/s")
    done = backchannel("calibrate", tmp_path / "slow.yaml", "--json", *slow, status=0)
    measured = {load["direction"]: load for load in json.loads(done.stdout)}
    assert measured["forward"]["measured_rate_bps"] == pytest.approx(28_800, rel=0.005)
    assert measured["reverse"]["measured_rate_bps"] == pytest.approx(9_600, rel=0.005)


@pytest.mark.emulated
@pytest.mark.usefixtures("emulation")
def test_the_research_stack_waits_for_its_own_line(tmp_path: Path) -> None:
    """tc counts each attempt at a full queue as a drop, and a stack that does nothing else handles its acks late."""
    need_htb()
    text = CAMPAIGN.replace("backend: physical", "backend: emulated\nstack: newreno\n" + LOOSE)
    (tmp_path / "own.yaml").write_text(text)
    backchannel("run", tmp_path / "own.yaml", "--results", tmp_path / "store", status=0)
    (path,) = tmp_path.glob("store/runs/**/manifest.json")
    report = json.loads(path.read_text())["report"]
    counters = report["driver"]["links"]["line"]["forward"]
    assert counters["events"].get("dropped_full", 0) < 10
    assert report["flows"]["download"]["receive"]["bytes"] > 0.6 * 5 * 1e6 / 8


@pytest.mark.emulated
@pytest.mark.usefixtures("emulation")
def test_hosts_shape_their_wire_during_a_run_only(tmp_path: Path) -> None:
    need_htb()
    done = in_lab(lab(tmp_path, {"real": "wire"}), SCRIPT, timeout_s=600, LAB=str(tmp_path))
    assert "over" in done.stdout, output_of(done)
    (path,) = tmp_path.glob("results/**/manifest.json")
    manifest = json.loads(path.read_text())
    assert manifest["report"]["real_links"] == {}
    counters = manifest["report"]["driver"]["links"]["line"]
    received = manifest["report"]["flows"]["download"]["receive"]["bytes"]
    # All of the line's rate but slow start, and not more.
    assert 0.6 * 5 * 1e6 / 8 < received < 5.2 * 1e6 / 8
    assert counters["forward"]["transmitted_bytes"] > received
    assert counters["reverse"]["transmitted_packets"] > received / 1500 / 3
    # Calibration measured what the file says, on the shaped wire.
    rates = {entry["direction"]: entry for entry in manifest["calibration"]}
    assert rates["forward"]["measured_rate_bps"] == pytest.approx(1_000_000, rel=0.02)
    assert rates["reverse"]["measured_rate_bps"] == pytest.approx(256_000, rel=0.02)
    before, *shown, after, _ = done.stdout.partition("site 0\n")[2].split("\n")[:-1]
    assert "htb" not in "".join(shown)
    assert "ifb" not in "".join(shown)
    assert "d-left" not in "".join(shown)
    assert before == after
