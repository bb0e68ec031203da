"""Links over interfaces without a link-layer header: endpoint, link box, queue and captures, with both TCPs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import pcap
from tests.support.ansible_lab import in_lab, write_yaml
from tests.support.labs import output_of

pytestmark = [pytest.mark.slow("a campaign on real interfaces"), pytest.mark.emulated]

CAMPAIGN = """
name: dialled
title: A download over two lines without link-layer headers
network:
  nodes:
    - {name: a, kind: host}
    - {name: r, kind: router}
    - {name: m, kind: host}
  links:
    - name: dial
      ends: [a, r]
      forward: {rate: 256 kbit/s}
      reverse: {rate: 256 kbit/s, queue: {policy: droptail, limit: 12 packets}}
    - {name: line, ends: [r, m], forward: {rate: 1 Mbit/s, delay: 5 ms}, reverse: {rate: 1 Mbit/s, delay: 5 ms}}
workload:
  - {name: download, from: m, to: a}
duration: 5 s
# The pairs are carried by a Python program.
fidelity: {rate: 3 %, delay: 20 ms, lateness: 50 ms, stall: 1 s, stalled: 20 %}
sweep:
  stack: [{name: newreno, packet_bytes: 552 bytes}, cubic]
"""
#: MTU of the lines, as of a slow PPP link.
MTU = 552
HOSTS: dict[str, Any] = {
    "plugin": "backchannel",
    "campaign": "dialled.yaml",
    "connection": "namespace",
    "hosts": {"a": {}, "r": {}, "m": {}, "box": {}},
    "links": {"dial": {"real": "modem", "queue_at": "r"}, "line": {"box": "box"}},
}
SCRIPT = f"""
cd "$LAB"
pairs="a:a-eth0=r:r-eth0 r:r-eth1=box:l1e0 box:l1e1=m:m-eth0"
(cd "$ROOT" && exec "{sys.executable}" -m tests.support.tun_pairs {MTU} $pairs) >pairs.log 2>&1 & relay=$!
for i in $(seq 100); do grep -q ready pairs.log && break; sleep 0.1; done
inside() {{ nsenter --target "$(python3 -c "import json
print(json.load(open('$BACKCHANNEL_LAB'))['$1'])")" --net -- "${{@:2}}"; }}
shown() {{ for name in a r m box; do inside $name ip -4 -o address show; inside $name ip -4 route show; done; }}
shown >before.txt
backchannel testbed site -i hosts.yml >site.log; echo "site $?"
backchannel testbed site -i hosts.yml >again.log; echo "again $?"; grep -c changed=0 again.log
inside r ip -o link show bq-r-eth0
backchannel testbed check -i hosts.yml >check.log; echo "check $?"
backchannel run dialled.yaml --backend physical -i hosts.yml --results results --json >table.json; echo "run $?"
backchannel testbed teardown -i hosts.yml >teardown.log; echo "teardown $?"
shown >after.txt; diff before.txt after.txt && echo same
kill $relay
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, emulation: None) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "dialled.yaml").write_text(CAMPAIGN)
    inventory = write_yaml(folder / "hosts.yml", HOSTS)
    done = in_lab(inventory, SCRIPT, timeout_s=600, LAB=str(folder), ROOT=str(Path(__file__).parents[3]))
    logs = "".join(path.read_text()[-1500:] for path in folder.glob("*.log"))
    lines = done.stdout.splitlines()
    assert {"site 0", "again 0", "check 0", "run 0", "teardown 0", "same"} <= set(lines), output_of(done) + logs
    return folder, lines


def manifests(folder: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder.glob("results/**/manifest.json")]
    return {"kernel" if "tcp_info" in manifest["report"]["flows"]["download"]["send"] else "research": manifest
            for manifest in found}  # fmt: skip


@pytest.mark.parametrize("stack", ["research", "kernel"])
def test_both_tcps_deliver_through_box_and_queue(finished: tuple[Path, list[str]], stack: str) -> None:
    manifest = manifests(finished[0])[stack]
    counters = manifest["report"]["driver"]["links"]
    received = manifest["report"]["flows"]["download"]["receive"]
    assert received["payload_ok"]
    assert 0.6 * 5 * 256_000 / 8 < received["bytes"] < 5 * 256_000 / 8
    # The queue before the modem is the bottleneck, and the box has its declared rate.
    assert counters["dial"]["reverse"]["rate_bps"] == 256_000
    assert counters["dial"]["reverse"]["busy_s"] > 3.5
    assert counters["line"]["reverse"]["transmitted_packets"] > 200
    assert all(entry["problems"] == [] for entry in manifest["calibration"])


def test_captures_hold_bare_packets(finished: tuple[Path, list[str]]) -> None:
    files = sorted(finished[0].glob("results/**/captures/*.pcap*"))
    assert files
    manifest = manifests(finished[0])["research"]
    assert not [entry for entry in manifest["report"]["captures"] if entry["dropped"]]
    plain = [path for path in files if path.suffix == ".pcap"]
    assert {pcap.header(path.read_bytes()).link_type for path in plain} <= {pcap.RAW}


def test_the_queue_stands_behind_a_tun_with_the_lines_mtu(finished: tuple[Path, list[str]]) -> None:
    (shown,) = [line for line in finished[1] if "bq-r-eth0" in line]
    assert f"mtu {MTU}" in shown
    assert "link/none" in shown
    # The second 'site' changed nothing.
    assert "4" in finished[1]
