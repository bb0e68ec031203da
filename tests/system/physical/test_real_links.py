"""Real links, a queue policy before one of them, and radios, in a lab of namespaces without SSH."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from testbed import pcap
from tests.support.ansible_lab import in_lab, write_yaml
from tests.support.labs import INSIDE, lab, output_of
from tests.vm.test_machines import runs

pytestmark = [pytest.mark.slow("a campaign on real links"), pytest.mark.emulated]

CAMPAIGN = """
name: upload
title: An upload through a real modem
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 5 ms}
  reverse: {rate: 256 kbit/s, delay: 20 ms, queue: {policy: red, limit: 20 packets}}
workload:
  - {name: upload, from: client, to: server}
duration: 6 s
"""
#: router2's queue stands before the modem; the wires around it are wires, or a link box.
LINKS = {
    "server-access": {"real": "wire"},
    "bottleneck": {"real": "modem", "queue_at": "router2"},
    "client-access": {"box": "box"},
}
SCRIPT = """
cd "$LAB"
backchannel testbed site -i hosts.yml >site.log; echo "site $?"
backchannel testbed check -i hosts.yml >check.log; echo "check $?"
backchannel run small.yaml --backend physical -i hosts.yml --results results --json >table.json; echo "run $?"
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, emulation: None) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("real")
    inventory = lab(folder, CAMPAIGN, LINKS, connection="namespace")
    done = in_lab(inventory, SCRIPT, timeout_s=600, LAB=str(folder))
    logs = "".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
    assert [line for line in done.stdout.splitlines() if line in ("site 0", "check 0", "run 0")] == [
        "site 0", "check 0", "run 0",
    ], output_of(done) + logs  # fmt: skip
    (path,) = folder.glob("results/**/manifest.json")
    return dict(json.loads(path.read_text()))


def test_real_links_are_declared_and_only_measured(finished: dict[str, Any]) -> None:
    assert finished["report"]["real_links"] == {"server-access": "wire", "bottleneck": "modem"}
    measured = {(entry["link"], entry["direction"]): entry for entry in finished["calibration"]}
    wire = measured["server-access", "forward"]
    # It is a cable between two namespaces: nothing near the 10 Mbit/s and 1 ms that the file has for it.
    assert wire["real"] == "wire"
    assert wire["problems"] == []
    assert wire["measured_delay_s"] < 0.0009
    assert "real" not in measured["client-access", "forward"]


def test_the_queue_policy_holds_packets_instead_of_the_modem(finished: dict[str, Any]) -> None:
    """The policy and the rate of the direction that leaves the node act; the other direction passes as it came."""
    counters = finished["report"]["driver"]["links"]["bottleneck"]
    assert counters["reverse"]["rate_bps"] == 256_000
    assert abs(counters["reverse"]["rate_error"]) < 0.005
    assert counters["reverse"]["busy_s"] > 4
    assert counters["forward"]["rate_bps"] is None
    assert counters["forward"]["submitted_packets"] > 20
    received = finished["report"]["flows"]["upload"]["receive"]["bytes"]
    assert 0.6 * 6 * 256_000 / 8 < received < 6 * 256_000 / 8


def test_captures_at_the_queue_are_those_of_the_node(finished: dict[str, Any]) -> None:
    interfaces = {entry["interface"] for entry in finished["report"]["captures"]}
    assert "bq-router2-eth0" in interfaces
    assert not [entry for entry in finished["report"]["captures"] if entry["dropped"]]


#: The kernel only receives, so that no answer of its peer confirms the hardware address that it has learnt before.
RADIO = """
name: air
title: An upload over a radio
backend: physical
network:
  nodes: [{name: base, stack: cubic}, {name: mobile, stack: newreno}]
  links:
    - {name: air, ends: [base, mobile], forward: {rate: 2 Mbit/s}, reverse: {rate: 2 Mbit/s}}
workload:
  - {name: upload, from: mobile, to: base}
duration: 12 s
fidelity: {lateness: 50 ms, stall: 1 s, stalled: 20 %}
"""
#: Longer than the kernel uses an address that nobody confirms: 1.5 s as reachable, 1 s as stale, 3 probes (arp(7)).
UNCONFIRMED_S = 9
RADIO_SCRIPT = f"""{INSIDE}
cd "$LAB"
permanent() {{ for host in pc0 pc1; do inside $host ip neighbour show nud permanent; done; }}
backchannel testbed site -i hosts.yml >site.log; echo "site $?"
inside pc0 sh -c 'cd /proc/sys/net/ipv4/neigh/base-eth0
    echo 1000 >base_reachable_time_ms; echo 1 >delay_first_probe_time'
backchannel run air.yaml -i hosts.yml --results results --json >table.json; echo "run $?"
permanent >left.txt
for node in base mobile; do
    host=$([ $node = base ] && echo pc0 || echo pc1)
    echo "mac $(inside $host cat /sys/class/net/$node-eth0/address)"
done
backchannel testbed site -i hosts.yml >again.log; echo "again $?"; grep -c changed=0 again.log
"""


@pytest.fixture(scope="module")
def radio_run(tmp_path_factory: pytest.TempPathFactory, emulation: None) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("air")
    (folder / "air.yaml").write_text(RADIO)
    inventory = write_yaml(
        folder / "hosts.yml",
        {
            "plugin": "backchannel",
            "campaign": "air.yaml",
            "connection": "namespace",
            "hosts": {"pc0": {"plays": "base"}, "pc1": {"plays": "mobile"}},
            "links": {"air": {"real": "radio", "queue_at": "mobile"}},
        },
    )
    done = in_lab(inventory, RADIO_SCRIPT, timeout_s=600, LAB=str(folder))
    logs = "".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
    lines = done.stdout.splitlines()
    assert {"site 0", "run 0", "again 0"} <= set(lines), output_of(done) + logs
    return folder, lines


def test_frames_over_a_radio_have_the_addresses_of_its_interfaces(radio_run: tuple[Path, list[str]]) -> None:
    folder, lines = radio_run
    own = {line.removeprefix("mac ") for line in lines if line.startswith("mac ")}
    assert len(own) == 2
    paths = list(folder.glob("results/**/captures/*.pcap.gz"))
    assert len(paths) == 2
    for path in paths:
        segments = segments_of(path)
        assert len(segments) > 100
        assert {record.data[at : at + 6].hex(":") for record in segments for at in (0, 6)} == own


def test_a_kernel_reaches_the_research_stack_without_arp_during_the_campaign(
    radio_run: tuple[Path, list[str]],
) -> None:
    """Nobody would answer it."""
    folder, lines = radio_run
    (finished,) = runs(folder / "results")
    received = finished["report"]["flows"]["upload"]["receive"]
    assert received["payload_ok"]
    assert received["bytes"] > 0.7 * 12 * 2e6 / 8
    (path,) = folder.glob("results/**/captures/base-eth0.pcap.gz")
    segments = segments_of(path)
    acks_ns = [record.time_ns for record in segments if record.data[0:6] != segments[0].data[0:6]]
    assert max(acks_ns) - min(acks_ns) > UNCONFIRMED_S * 1e9
    assert (folder / "left.txt").read_text() == ""
    assert "2" in lines[lines.index("again 0") :]


def segments_of(path: Path) -> list[pcap.Record]:
    """The packets of IPv4 in a capture."""
    records = pcap.records(gzip.decompress(path.read_bytes()))
    return [record for record in records if record.data[12:14] == b"\x08\x00"]
