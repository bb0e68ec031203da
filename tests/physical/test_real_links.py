"""Real links, and a queue policy before one of them, in a lab of namespaces without SSH."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ansible.conftest import in_lab
from tests.physical.conftest import lab, output_of

pytestmark = pytest.mark.emulated

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
