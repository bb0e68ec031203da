"""What plays nodes and links enters the ids of runs on real hosts, and of no others."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agents import hardware
from agents.errors import AgentError
from agents.messages import Health
from experiments import inventory
from experiments.language.campaign import Plan, load
from testbed import node_binary
from testbed.installation import Installation, installation
from testbed.scenario import Scenario
from tests.support.ansible_lab import rendered
from tests.support.labs import LINKS, lab


def health(kernel: str = "6.1.0", nic: str = "e1000e 8086:15b8") -> Health:
    names = [f"{node}-eth{number}" for node in ("server", "router1", "router2", "client") for number in range(2)]
    return Health(1, kernel, False, (), 0, (), "", dict.fromkeys(names, nic), dict.fromkeys(names, 1500))


def installed(folder: Path, places: dict[str, object], one: Health, **more: Any) -> tuple[Plan, Installation]:
    """A small campaign in a lab whose hosts all give the same answer."""
    folder.mkdir(exist_ok=True)
    found = inventory.read(lab(folder, links=places, **more))
    plan = load(folder / "small.yaml", ["backend=physical"])

    def describe(scenario: Scenario) -> Installation:
        (placed,) = inventory.placements(found, scenario.nodes, scenario.links).values()
        return installation(placed, dict.fromkeys(placed.members(), one))

    return plan.in_lab(describe), describe(plan.runs[0].scenario)


BOXED: dict[str, object] = {link: {"box": "box"} for link in LINKS}
WIRED: dict[str, object] = {**BOXED, "bottleneck": {"real": "wire", "queue_at": "router2"}}


def test_a_lab_with_other_links_kernels_or_interfaces_has_runs_of_its_own(tmp_path: Path) -> None:
    plans = [
        installed(tmp_path / "a", BOXED, health()),
        installed(tmp_path / "b", WIRED, health()),
        installed(tmp_path / "c", BOXED, health(kernel="6.6.0")),
        installed(tmp_path / "d", BOXED, health(nic="igb 8086:1533")),
    ]
    assert len({plan.runs[0].id for plan, _ in plans}) == len(plans)
    # Two labs in one store are two campaigns.
    assert len({plan.id for plan, _ in plans}) == len(plans)
    again, _ = installed(tmp_path / "e", BOXED, health())
    assert again.run_ids == plans[0][0].run_ids
    assert again.runs[1].installation == plans[0][1]


def test_the_description_names_hosts_links_and_interfaces(tmp_path: Path) -> None:
    _, described = installed(tmp_path, WIRED, health())
    found = described.as_json()
    assert found["hosts"]["pc0"] == {"plays": "server", "kernel": "6.1.0"}
    assert found["hosts"]["box"] == {"plays": None, "kernel": "6.1.0"}
    interfaces = ["pc1 router1-eth1: e1000e 8086:15b8", "pc2 router2-eth0: e1000e 8086:15b8"]
    assert found["links"]["bottleneck"] == {"carried_by": "wire", "queue_at": "router2", "interfaces": interfaces}
    assert found["links"]["server-access"]["carried_by"] == "box"
    assert found["links"]["server-access"]["interfaces"][-1].startswith("box l")


def test_hardware_is_described_by_driver_and_identifiers(tmp_path: Path) -> None:
    for name in ("eth0", "usb0", "veth0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "uevent").touch()
    for name, identifiers in (("eth0", {"vendor": "0x8086", "device": "0x15b8"}), ("usb0/x", {})):
        device = tmp_path / "devices" / name
        device.mkdir(parents=True)
        (device / "driver").symlink_to(tmp_path / "drivers" / f"driver-of-{name[:3]}")
        for key, value in identifiers.items():
            (device / key).write_text(value + "\n")
    for name in ("eth", "usb"):
        (tmp_path / "drivers" / f"driver-of-{name}").mkdir(parents=True)
    (tmp_path / "devices/usb0/idVendor").write_text("12d1\n")
    (tmp_path / "devices/usb0/idProduct").write_text("14db\n")
    (tmp_path / "eth0/device").symlink_to(tmp_path / "devices/eth0")
    (tmp_path / "usb0/device").symlink_to(tmp_path / "devices/usb0/x")
    (tmp_path / "bonding_masters").touch()
    assert hardware.interfaces(root=tmp_path) == {
        "eth0": "driver-of-eth 8086:15b8", "usb0": "driver-of-usb 12d1:14db", "veth0": "virtual",
    }  # fmt: skip
    (tmp_path / "cpuinfo").write_text(
        "processor : 0\nmodel name : Example  9\n\nprocessor : 1\nmodel name : Example  9\n"
    )
    assert hardware.processors(tmp_path / "cpuinfo") == "2 x Example 9"
    (tmp_path / "cpuinfo").write_text("processor : 0\nBogoMIPS : 48\n")
    assert hardware.processors(tmp_path / "cpuinfo") == f"1 x {platform.machine()}"
    for name, mtu in (("eth0", 1500), ("usb0", 552), ("veth0", 9000)):
        (tmp_path / name / "mtu").write_text(f"{mtu}\n")
    assert hardware.mtus(tmp_path) == {"eth0": 1500, "usb0": 552, "veth0": 9000}
    for name, kind in (("eth0", 1), ("usb0", 512), ("veth0", 1)):
        (tmp_path / name / "type").write_text(f"{kind}\n")
        (tmp_path / name / "address").write_text("02:00:00:00:00:0a\n")
    assert hardware.macs(tmp_path) == dict.fromkeys(("eth0", "veth0"), "02:00:00:00:00:0a")


def test_settings_of_lines_and_radios_follow_the_description_of_their_interfaces(tmp_path: Path) -> None:
    (tmp_path / "net/ppp0").mkdir(parents=True)
    (tmp_path / "net/ppp0/uevent").touch()
    (tmp_path / "drivers/serial8250").mkdir(parents=True)
    (tmp_path / "devices/ttyS1").mkdir(parents=True)
    (tmp_path / "devices/ttyS1/driver").symlink_to(tmp_path / "drivers/serial8250")
    (tmp_path / "tty/ttyS1").mkdir(parents=True)
    (tmp_path / "tty/ttyS1/device").symlink_to(tmp_path / "devices/ttyS1")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/ppp.json").write_text(
        '{"ppp0": {"speed": 28800, "device": "/dev/ttyS1", "options": []}, "ppp7": {}}'
    )

    def described() -> dict[str, str]:
        return hardware.interfaces(tmp_path / "settings", tmp_path / "net", tmp_path / "tty")

    assert described() == {"ppp0": 'virtual; ppp: device "serial8250", options [], speed 28800'}
    (tmp_path / "settings/ppp.json").write_text("[]")
    with pytest.raises(AgentError, match=r"ppp\.json cannot be read.*; run site.yml again"):
        described()


LINE: dict[str, object] = {"interface": "x0", "device": "/dev/ttyS1", "local": "192.0.2.1", "peer": "192.0.2.2"}
RADIO: dict[str, object] = {"interface": "x0", "mode": "access_point", "ssid": "lab"}
#: Settings of a line or radio that change its results, those that do not, and default values. Each by role.
CHANGES: dict[str, tuple[dict[str, object], list[dict[str, object]], list[dict[str, object]]]] = {
    "ppp": (
        LINE,
        [
            {"speed": 9600}, {"mtu": 552}, {"header_compression": False}, {"flow_control": "none"},
            {"options": ["novjccomp"]}, {"device": "/dev/ttyUSB0"},
        ],
        [{"speed": 115200, "header_compression": True, "mtu": 1500}, {"local": "192.0.2.9"}],
    ),
    "slip": (
        LINE,
        [{"speed": 9600}, {"mtu": 552}, {"header_compression": False}, {"flow_control": "none"}],
        [{"speed": 115200, "header_compression": True, "mtu": 296}, {"peer": "192.0.2.9"}],
    ),
    "wifi": (
        RADIO,
        [{"mode": "adhoc"}, {"channel": 1}, {"rate": "2"}, {"passphrase": "of the lab"}],
        [{"channel": 6, "rate": "", "passphrase": ""}, {"ssid": "other"}],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def settings() -> dict[tuple[str, str], str]:
    """What the roles record of a line or radio, by role and changed settings."""
    secrets: dict[str, list[dict[str, object]]] = {
        "ppp": [{"options": ["connect 'chat of secret'"]}, {"options": ["connect 'chat of another'"]}],
        "wifi": [{"passphrase": "another one"}],
    }
    recorded = {}
    for role, (entry, changes, same) in CHANGES.items():
        folder = node_binary.ROOT / "ansible/roles" / role
        variables = YAML(typ="safe").load((folder / "vars/main.yml").read_text())
        variable = "wifi_interfaces" if role == "wifi" else f"{role}_lines"
        for change in ({}, *changes, *same, *secrets.get(role, [])):
            recorded[role, str(change)] = rendered(
                (folder / "templates/settings.json.j2").read_text(),
                {**variables, "role_path": str(folder), variable: [{**entry, **change}]},
            )
    return recorded


@pytest.mark.parametrize("role", list(CHANGES))
def test_other_settings_of_a_line_or_radio_have_runs_of_their_own(
    tmp_path: Path, settings: dict[tuple[str, str], str], role: str
) -> None:
    (tmp_path / "net/x0").mkdir(parents=True)
    (tmp_path / "net/x0/uevent").touch()
    (tmp_path / "settings").mkdir()
    for name in ("ttyS1", "ttyUSB0"):
        (tmp_path / "tty" / name / "device").mkdir(parents=True)
        (tmp_path / "drivers" / f"driver-of-{name}").mkdir(parents=True)
        (tmp_path / "tty" / name / "device/driver").symlink_to(tmp_path / "drivers" / f"driver-of-{name}")

    def run_id(change: dict[str, object]) -> str:
        (tmp_path / f"settings/{role}.json").write_text(settings[role, str(change)])
        found = hardware.interfaces(tmp_path / "settings", tmp_path / "net", tmp_path / "tty")
        return installed(tmp_path / "lab", BOXED, health(nic=found["x0"]))[0].runs[0].id

    _, changes, same = CHANGES[role]
    ids = [run_id(change) for change in ({}, *changes)]
    assert len(set(ids)) == len(ids)
    for change in same:
        assert run_id(change) == ids[0]


def test_recorded_settings_have_no_secrets(settings: dict[tuple[str, str], str]) -> None:
    """Agents hand them out, and manifests have them."""
    assert not [text for text in settings.values() if "secret" in text or "of the lab" in text]
    assert (
        settings["ppp", str({"options": ["connect 'chat of secret'"]})]
        == settings["ppp", str({"options": ["connect 'chat of another'"]})]
    )
    assert '"connect"' in settings["ppp", str({"options": ["connect 'chat of secret'"]})]
