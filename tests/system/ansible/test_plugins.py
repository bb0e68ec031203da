"""Plugins for inventory and connection; the folder `ansible` does not hide the package."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from testbed.collection import link_collection
from tests.support.ansible_lab import ANSIBLE, HOSTS, write_yaml
from tests.support.command_line import backchannel
from tests.support.labs import changed
from tests.unit.physical.test_sets import pair

BIN = Path(sys.executable).parent


def ansible(*words: str | Path) -> subprocess.CompletedProcess[str]:
    link_collection()
    return subprocess.run(
        [str(BIN / words[0]), *map(str, words[1:])], capture_output=True, text=True, check=False, cwd=ANSIBLE,
        env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg", "PATH": f"{BIN}:{os.environ['PATH']}"},
    )  # fmt: skip


def listed(path: Path) -> dict[str, Any]:
    """Output of ansible-inventory, without its marks for texts of plugins."""
    done = ansible("ansible-inventory", "-i", path, "--list")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout, object_hook=lambda value: value.get("__ansible_unsafe", value)))


def test_this_repositorys_folder_does_not_hide_the_package() -> None:
    for folder in (node_binary.ROOT, ANSIBLE):
        code = "import importlib.util as u; print(u.find_spec('ansible.errors').origin)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(node_binary.ROOT)},
        )  # fmt: skip
        assert not Path(done.stdout.strip()).is_relative_to(ANSIBLE)
    python = [path.name for path in ANSIBLE.rglob("*.py")]
    assert "__init__.py" not in python
    assert "conftest.py" not in python


def test_the_inventory_plugin_reads_a_campaigns_topology(lab_files: Path) -> None:
    everything = listed(lab_files)
    groups = {name: group.get("hosts", []) for name, group in everything.items() if name != "_meta"}
    assert groups["endpoints"] == ["a", "m"]
    assert groups["routers"] == groups["queues"] == ["r"]
    assert groups["base_stations"] == ["b"]
    assert groups["link_boxes"] == ["box1", "box2"]
    assert groups["workers"] == groups["results_sites"] == ["m"]
    hostvars = everything["_meta"]["hostvars"]
    assert hostvars["r"]["backchannel_queues"] == [{"link": "dial", "tap": "bq-r-eth0", "interface": "r-eth0"}]
    assert hostvars["box1"]["backchannel_links"] == {
        "emulated_modem": [{"link": "line", "interfaces": ["l1e0", "l1e1"]}]
    }
    assert hostvars["box2"]["backchannel_links"] == {
        "emulated_radio": [{"link": "air", "interfaces": ["l2e0", "l2e1"]}]
    }
    assert hostvars["a"]["ansible_connection"] == "backchannel.testbed.namespace"
    assert {name: hostvars[name]["backchannel_kinds"] for name in hostvars} == {
        "a": ["endpoint"], "r": ["queue_policy", "router"], "b": ["base_station"], "m": ["endpoint"],
        "box1": ["emulated_modem"], "box2": ["emulated_radio"],
    }  # fmt: skip
    assert hostvars["m"]["backchannel_interfaces"][0]["address"] == "10.3.0.2/24"


def test_ssh_hosts_are_reached_as_the_file_says(lab_files: Path) -> None:
    hosts = {
        name: {**host, "address": f"192.0.2.{number}"} for number, (name, host) in enumerate(HOSTS["hosts"].items())
    }
    ssh = {"key": "lab_key", "known_hosts": "lab known", "user": "ann", "agent_user": "bob"}
    path = write_yaml(lab_files.with_name("ssh.yml"), {**HOSTS, "connection": "ssh", "ssh": ssh, "hosts": hosts})
    hostvars = listed(path)["_meta"]["hostvars"]["r"]
    assert (hostvars["ansible_host"], hostvars["ansible_user"], hostvars["ansible_become"]) == (
        "192.0.2.1",
        "ann",
        True,
    )
    assert hostvars["ansible_ssh_private_key_file"] == str(path.with_name("lab_key"))
    known = path.with_name("lab known")
    assert shlex.split(hostvars["ansible_ssh_common_args"]) == ["-o", f'UserKnownHostsFile="{known}"']
    # Every role with a variable for the agent's account.
    assert {hostvars[name] for name in ("agent_user", "capture_user", "interfaces_user")} == {"bob"}


@pytest.mark.parametrize(
    "locale", [pytest.param("C", marks=pytest.mark.slow("a locale that Python replaces by itself")), "xx_YY.UTF-8"]
)
def test_playbooks_run_in_any_locale(lab_files: Path, locale: str) -> None:
    backchannel("testbed", "site", "--inventory", lab_files, "--list-hosts", LC_ALL=locale, status=0)


def test_sets_of_hosts_a_hosts_variables_and_a_host_in_between(tmp_path: Path) -> None:
    path = pair(tmp_path, vars={"common_mtu": 1400}, hosts={"desk": {"also": ["worker"], "address": "192.168.50.99"}})

    def change(file: Any) -> None:
        file["sets"]["red"]["hosts"]["red-l"]["vars"] = {"common_mtu": 0}
        file["ssh"]["proxy_jump"] = "ann@192.0.2.7"

    everything = listed(changed(path, change))
    assert sorted(everything["set_red"]["hosts"]) == ["red-box", "red-l", "red-r"]
    assert sorted(everything["endpoints"]["hosts"]) == ["blue-l", "blue-r", "red-l", "red-r"]
    assert everything["workers"]["hosts"] == ["desk"]
    hostvars = everything["_meta"]["hostvars"]
    assert {name: hostvars[name]["common_mtu"] for name in ("red-l", "red-r", "desk")} == {
        "red-l": 0, "red-r": 1400, "desk": 1400,
    }  # fmt: skip
    # Both sets play one topology, with one plan of addresses.
    assert hostvars["red-l"]["backchannel_interfaces"] == hostvars["blue-l"]["backchannel_interfaces"]
    arguments = shlex.split(hostvars["blue-box"]["ansible_ssh_common_args"])
    assert arguments[0::2] == ["-o", "-o"]
    assert arguments[3].startswith("ProxyCommand=ssh -W '[%h]:%p' ")
    assert arguments[3].endswith(" -p 22 ann@192.0.2.7")


def test_an_error_in_the_inventory_stops_ansible_with_its_line(lab_files: Path) -> None:
    path = write_yaml(lab_files.with_name("bad.yml"), {**HOSTS, "links": {**HOSTS["links"], "line": {"bix": "box1"}}})
    done = ansible("ansible-inventory", "-i", path, "--list")
    assert done.returncode != 0
    assert "unknown field 'bix'; did you mean 'box'?" in done.stderr
    assert "Traceback" not in done.stderr


#: An inventory of one named namespace.
FIRST = {"all": {"hosts": {"first": {"ansible_connection": "backchannel.testbed.namespace"}}}}


def in_cell(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in Ansible's folder, in a cell whose own /run leaves no trace in the machine's."""
    prepared = f"mount -t tmpfs run /run && mkdir /run/netns; cd {shlex.quote(str(ANSIBLE))}\n{script}"
    return subprocess.run(
        [node_binary.path(), "cell", "--", "sh", "-c", prepared], capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg"},
    )  # fmt: skip


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_the_connection_plugin_enters_a_named_namespace(tmp_path: Path) -> None:
    inventory = write_yaml(tmp_path / "plain.yml", FIRST)
    words = f"{shlex.quote(str(BIN))}/ansible -i {inventory} first -m ansible.builtin.command -a"
    script = f"""
    ip netns add first && ip -n first link add probe type veth peer name b
    {words} 'sh -c "ip -o link; cat /nowhere"'
    ip netns delete first
    {words} 'ip -o link'
    """
    done = in_cell(script)
    text = done.stdout + done.stderr
    assert "probe@b" in text
    assert "No such file or directory" in text
    assert (
        "namespace 'first' does not exist; './backchannel testbed rehearse' makes those of a lab, 'ip netns add'"
        in text
    )
    assert not Path("/run/netns/first").exists()


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_modules_validate_arguments_and_report_why_they_cannot_run(tmp_path: Path) -> None:
    inventory = write_yaml(tmp_path / "plain.yml", FIRST)
    network, fitness = "backchannel.testbed.network", "backchannel.testbed.fitness"
    tasks: list[dict[str, Any]] = [
        {network: {"role": "x", "state": "gone"}},
        {network: {"role": "x", "stat": "absent"}},
        {fitness: {"kernel": "99.0"}},
        {fitness: {}, "vars": {"ansible_python_interpreter": "/nowhere/python"}},
        {fitness: {}, "check_mode": True, "ignore_errors": False},
    ]
    playbook = write_yaml(
        tmp_path / "tasks.yml", [{"hosts": "first", "gather_facts": False, "ignore_errors": True, "tasks": tasks}]
    )
    done = in_cell(f"ip netns add first; {shlex.quote(str(BIN))}/ansible-playbook -i {inventory} {playbook}")
    text = done.stdout + done.stderr
    assert "value of state must be one of: present, absent, got: gone" in text
    assert "Unsupported parameters for (backchannel.testbed.network) module: stat" in text
    assert f"not fit: kernel {os.uname().release} is older than 99.0" in text
    assert re.search(r"/nowhere/python\W.*not found", text)
    assert "ok: [first]" in text
    assert re.search(r"first +: ok=5 .* failed=0 .* ignored=4", text)


#: Python of a host with another clock. It reads its program from standard input.
OTHER_CLOCK = """#!/bin/sh
exec /usr/bin/python3 -c 'import sys, time
right = time.time
time.time = lambda: right() + SECONDS
exec(sys.stdin.read())'
"""


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_a_clock_that_runs_would_reject_is_reported_in_any_time_zone(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, str]] = {}
    for name, seconds in {"right": 0, "near": -3, "late": -15, "early": 15}.items():
        python = tmp_path / name
        python.write_text(OTHER_CLOCK.replace("SECONDS", str(seconds)))
        python.chmod(0o755)
        hosts[name] = {
            "ansible_connection": "backchannel.testbed.namespace", "ansible_namespace": "only",
            "ansible_python_interpreter": str(python),
        }  # fmt: skip
    inventory = write_yaml(tmp_path / "plain.yml", {"endpoints": {"hosts": hosts}})
    check = f"{shlex.quote(str(BIN))}/ansible-playbook -i {inventory} playbooks/check.yml"
    done = in_cell(f"ip netns add only; export TZ=Europe/Berlin; {check}")
    # The missing agents are reported too.
    prefix = "backchannel: host "
    failures = [
        line.removeprefix(prefix).partition(": ") for line in done.stderr.splitlines() if line.startswith(prefix)
    ]
    assert sorted(name for name, _, _ in failures) == ["early", "late", "near", "right"], done.stdout + done.stderr
    off = {name: message.partition("the clock is ")[2].partition(" s off")[0] for name, _, message in failures}
    assert (off["right"], off["near"]) == ("", "")
    # The measured offset is a lower bound, because the connection takes time.
    assert -15.1 < float(off["late"]) < -5
    assert 5 < float(off["early"]) < 15.1
