"""Serial lines and radios of a lab of virtual machines: what an inventory may say, and what a serial cable carries."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments import inventory, lab
from experiments.language.problems import CampaignError
from testbed import serial_cables
from testbed.errors import TestbedError
from testbed.serial_cables import SerialEnd
from tests.support.ansible_lab import write_yaml
from tests.system.ansible.test_plugins import listed

CAMPAIGN = """
name: pair
title: Two hosts
network:
  nodes: [{name: left}, {name: right}]
  links: [{name: line, ends: [left, right], forward: {rate: 28.8 kbit/s}}]
workload: [{name: bulk, from: left, to: right}]
duration: 5 s
"""
LINE = {"interface": "ppp0", "device": "/dev/ttyS1", "local": "192.0.2.1", "peer": "192.0.2.2"}


def lab_of(folder: Path, *variables: dict[str, Any], **more: Any) -> Path:
    """The inventory of two hosts with these variables."""
    (folder / "pair.yaml").write_text(CAMPAIGN)
    hosts = {
        f"pc{number}": {"plays": node, "address": f"192.168.50.{10 + number}", "vars": own}
        for number, (node, own) in enumerate(zip(("left", "right"), variables, strict=True))
    }
    file = {"plugin": "backchannel", "campaign": "pair.yaml", "hosts": hosts, "links": {"line": {"real": "modem"}}}
    return write_yaml(folder / "hosts.yml", {**file, "ssh": {"key": "key", "known_hosts": "known"}, **more})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**LINE, "devise": "/dev/ttyS1"}, "unknown field 'devise'; did you mean 'device'?"),
        ({"interface": "ppp0", "device": "/dev/ttyS1", "local": "192.0.2.1"}, "field 'peer' is missing"),
        ({**LINE, "speed": "fast"}, "field 'speed': 'fast' is not a whole number"),
        ({**LINE, "flow_control": "xonxoff"}, "field 'flow_control': 'xonxoff' is not one of rtscts, none"),
        ({**LINE, "options": [3.5, {}]}, "field 'options': '{}' in it is not a text"),
    ],
)
def test_a_mistake_in_a_line_is_reported_with_its_field(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    with pytest.raises(CampaignError) as caught:
        inventory.read(lab_of(tmp_path, {"ppp_lines": [line]}, {}))
    assert message in str(caught.value)
    assert "hosts.pc0.vars.ppp_lines" in str(caught.value)


def test_the_devices_and_speeds_of_lines_are_those_of_the_roles(tmp_path: Path) -> None:
    slip = {**LINE, "interface": "sl0", "device": "/dev/ttyS2", "speed": 9600}
    result = inventory.read(lab_of(tmp_path, {"ppp_lines": [LINE]}, {"slip_lines": [slip]}))
    assert inventory.serial_lines(result, ["pc0", "pc1"]) == {
        ("pc0", "ppp0"): SerialEnd("/dev/ttyS1", 115200),
        ("pc1", "sl0"): SerialEnd("/dev/ttyS2", 9600),
    }


def test_hosts_with_lines_and_radios_are_in_groups(tmp_path: Path) -> None:
    radio = {"interface": "wlan0", "mode": "adhoc", "ssid": "lab"}
    groups = listed(lab_of(tmp_path, {"ppp_lines": [LINE]}, {"wifi_interfaces": [radio]}))
    assert groups["ppp_hosts"]["hosts"] == ["pc0"]
    assert groups["wifi_hosts"]["hosts"] == ["pc1"]
    assert "hosts" not in groups.get("slip_hosts", {})


def test_a_lab_of_machines_needs_the_kernel_of_its_lines(tmp_path: Path) -> None:
    path = lab_of(tmp_path, {"ppp_lines": [LINE]}, {"ppp_lines": [LINE]})
    with pytest.raises(CampaignError, match="set 'machine_kernel: linux-image-amd64'"):
        lab.rehearse(path, None, ["true"], machines=True)


@pytest.mark.parametrize("device", ["/dev/ttyS0", "/dev/ttyS4", "/dev/ttyUSB0"])
def test_machines_have_three_serial_devices(device: str) -> None:
    assert SerialEnd("/dev/ttyS3", 9600).index == 3
    with pytest.raises(TestbedError, match="/dev/ttyS1, /dev/ttyS2, /dev/ttyS3"):
        _ = SerialEnd(device, 9600).index


def test_both_ends_of_a_serial_cable_have_one_speed(tmp_path: Path) -> None:
    ends = [SerialEnd("/dev/ttyS1", 9600), SerialEnd("/dev/ttyS1", 19200)]
    with pytest.raises(TestbedError, match="one speed, and these have 9600 and 19200"):
        serial_cables.SerialCable(tmp_path / "cable", ends)


def test_a_serial_cable_carries_every_byte_both_ways_and_ends_with_its_ends(tmp_path: Path) -> None:
    cable = serial_cables.SerialCable(tmp_path / "cable", [SerialEnd("/dev/ttyS1", 4_000_000)] * 2)
    ends = []
    for path in cable.paths:
        end = socket.socket(socket.AF_UNIX)
        end.connect(str(path))
        ends.append(end)
    sent = [os.urandom(50_000), os.urandom(30_000)]
    for end, data in zip(ends, sent, strict=True):
        threading.Thread(target=end.sendall, args=(data,), daemon=True).start()
    for end, data in zip(ends[::-1], sent, strict=True):
        received = b""
        while len(received) < len(data):
            received += end.recv(4096)
        assert received == data
    ends[0].close()
    assert ends[1].recv(1) == b""
    cable.close()


def test_a_byte_takes_ten_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 28.8 kbit/s a second carries 2880 bytes, however late the process wakes."""
    now_s = 100.0

    def sleep(duration_s: float) -> None:
        nonlocal now_s
        # Each time 3 ms late.
        now_s += duration_s + 0.003

    # The name in this module alone: a thread that another test left may sleep too.
    monkeypatch.setattr(serial_cables, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    source, near = socket.socketpair()
    far, sink = socket.socketpair()
    received = bytearray()

    def drain() -> None:
        while portion := sink.recv(65_536):
            received.extend(portion)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    source.sendall(bytes(28_800))
    source.close()
    serial_cables.carry(near, far, 28_800)
    assert 109.99 < now_s < 110.02
    reader.join()
    assert len(received) == 28_800
