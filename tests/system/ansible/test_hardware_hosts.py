"""Hosts with serial lines and radios get the roles of these in turn, and all are checked before any changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.ansible_lab import write_yaml
from tests.system.ansible.test_plugins import ansible

LINE = {"interface": "ppp0", "device": "/dev/nothing", "local": "192.0.2.1", "peer": "192.0.2.2"}
RADIO = {"interface": "wlan9", "mode": "adhoc", "ssid": "lab"}
OTHER_GROUPS = ("endpoints", "routers", "base_stations", "link_boxes", "workers", "results_sites", "slip_hosts")


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """An inventory of this machine under three names: with a line, with a radio, with both."""
    groups = {
        "ppp_hosts": {"hosts": dict.fromkeys(("line", "both"), {"ppp_lines": [LINE]})},
        "wifi_hosts": {"hosts": dict.fromkeys(("radio", "both"), {"wifi_interfaces": [RADIO]})},
        **{name: {} for name in OTHER_GROUPS},
    }
    local: dict[str, object] = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    # A check of packages that this machine lacks would call its apt.
    local |= {"ppp_packages": [], "wifi_packages": []}
    return write_yaml(tmp_path / "hosts.yml", {"all": {"vars": local, "children": groups}})


def roles(output: str) -> list[tuple[str, set[str]]]:
    """Roles that a playbook included, in order, each with its hosts."""
    found = re.findall(r"included: backchannel\.testbed\.(\w+) for ([\w, ]+) =>", output)
    return [(role, set(names.split(", "))) for role, names in found]


#: One host at a time: the roles of a loop are listed in the order in which hosts answer.
CHECK = ("--check", "--tags", "nodes", "--forks", "1")


def test_every_host_has_the_roles_of_its_interfaces(hosts: Path) -> None:
    done = ansible("ansible-playbook", "-i", hosts, "playbooks/site.yml", *CHECK)
    # The first check fails, so no role is included a second time to set anything up.
    assert done.returncode != 0
    assert roles(done.stdout) == [("ppp", {"line", "both"}), ("wifi", {"radio", "both"})]
    assert "/dev/nothing, the device of PPP line 'ppp0', is no serial device of this host" in done.stdout + done.stderr
    assert "nothing was changed on any host" in done.stderr


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ("both", [("ppp", {"both"}), ("wifi", {"both"})]),
        pytest.param(
            "all", [("ppp", {"line", "both"}), ("wifi", {"radio", "both"})],
            marks=pytest.mark.slow("more hosts; the setup, which includes the roles alike, is tried with them"),
        ),
    ],
)  # fmt: skip
def test_teardown_has_the_same_roles(hosts: Path, limit: str, wanted: list[tuple[str, set[str]]]) -> None:
    done = ansible("ansible-playbook", "-i", hosts, "playbooks/teardown.yml", "--limit", limit, *CHECK)
    assert roles(done.stdout) == wanted, done.stdout
