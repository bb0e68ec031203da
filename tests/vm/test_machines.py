"""From machines with a bare Debian to a finished campaign and back: virtual machines with kernels of their own.

`./backchannel test --vm` runs this, and nothing else does: without KVM it takes some fifteen minutes, if not more.
What namespaces cannot show is shown here: systemd, apt, chrony and kernel modules under the roles, and links that the
kernel shapes with disciplines that this machine may not have. Interpreted processors wake tens of milliseconds late, so
that the campaign sets limits as wide for its runs; timing is tested elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible_lab import recorded, recording, write_yaml

pytestmark = [
    pytest.mark.vm,
    pytest.mark.usefixtures("emulation"),
]

#: For one story, on a machine that has other work too.
STORY_S = 7200

#: One link in a box, and one that the kernels at its ends shape; slow ones, for each packet passes through four
#: interpreted processors.
CAMPAIGN = """
name: machines
title: Kernels of their own
backend: physical
network:
  nodes: [{name: left}, {name: mid, kind: router}, {name: right}]
  links:
    - {name: air, ends: [left, mid], forward: {rate: 256 kbit/s, delay: 10 ms}}
    - name: line
      kind: {kind: kernel, shaper: htb}
      ends: [mid, right]
      forward: {rate: 128 kbit/s, delay: 20 ms, queue: {policy: droptail, limit: 20 packets}}
workload:
  - {name: download, from: left, to: right}
duration: 4 s
fidelity: {rate: 10 %, delay: 60 ms, lateness: 100 ms, stall: 1 s, stalled: 50 %}
sweep:
  axes:
    kernel:
      Vegas, RED before HTB:
        stack: vegas
        network.links.line.forward.queue: {policy: red, limit: 40 packets, victim: tail, action: drop}
      BBR, TBF: {stack: bbr, network.links.line.kind.shaper: tbf}
      Westwood, CAKE:
        stack: westwood
        network.links.line.kind.shaper: cake
        # Without the queue, for which CAKE has its own.
        network.links.line.forward: {rate: 128 kbit/s, delay: 20 ms}
      CUBIC, netem: {stack: cubic, network.links.line.kind.shaper: netem}
"""
HOSTS: dict[str, Any] = {
    "plugin": "backchannel",
    "campaign": "machines.yaml",
    "connection": "ssh",
    # Interpreted processors take their time over keys, and share two real ones.
    "ssh": {"key": "key", "known_hosts": "known_hosts", "connect_timeout": "2 min", "silence": "20 s"},
    "hosts": {
        "pc0": {"plays": "left", "address": "192.168.50.10"},
        "pc1": {"plays": "mid", "address": "192.168.50.11"},
        "pc2": {"plays": "right", "address": "192.168.50.12"},
        "box": {"address": "192.168.50.20"},
    },
    "links": {"air": {"box": "box"}, "line": {"real": "wire"}},
    "vars": {"common_time_servers": ["192.168.50.20"]},
}
STORY = """
cd "$LAB"
exec 2>&1
backchannel() { "$PYTHON" -m experiments "$@"; }
on() { ip=192.168.50.$1; shift; ssh -n -i key -o BatchMode=yes -o UserKnownHostsFile=known_hosts "root@$ip" "$@"; }
say() { echo "== $1"; date +"%T $1" >>times; }
state() { for address in 10 11 12 20; do echo "$address"; on $address '
    ip -o -4 address show scope global | grep -v mgmt0; ip route | grep -v mgmt0; ip neighbour show nud permanent
    for one in /sys/class/net/*; do echo "$one" "$(cat "$one/tx_queue_len")"; done | grep -v ifb
    tc qdisc show; getent passwd backchannel; ls -A /etc/backchannel /var/lib/backchannel /opt/backchannel 2>&1
    systemctl list-unit-files "backchannel*" --no-legend; cat /etc/fstab; ls /etc/sysctl.d /etc/chrony/conf.d
    sysctl net.ipv4.ip_forward net.ipv4.conf.all.arp_ignore
    for one in /sys/class/net/*; do ethtool -k "${one##*/}"; done | grep -E "(offload|checksumming): "'; done; true; }

say "machines"; uname -r; for address in 10 11 12 20; do on $address uname -r; done
# The lab's time comes from its box: nothing else is in reach.
on 20 'mkdir -p /etc/chrony/conf.d; printf "local stratum 8\\nallow\\n" >/etc/chrony/conf.d/lab.conf'
say "site"; backchannel testbed site -i hosts.yml; echo "status $?"
say "second"; backchannel testbed site -i hosts.yml --diff; echo "status $?"
say "agent"; on 10 'systemctl is-enabled backchannel-agent; systemctl is-active backchannel-agent
    systemctl show backchannel-agent -p User -p AmbientCapabilities -p NoNewPrivileges; ls -ld /run/backchannel'
say "clock"; on 10 'for i in $(seq 60); do chronyc -n tracking | grep -q 192.168.50.20 && break; sleep 1; done
    systemctl is-active chrony; chronyc -n tracking'
say "check"; backchannel testbed check -i hosts.yml; echo "status $?"
on 11 'date -s "-3 hours" >/dev/null'
say "hours off"
backchannel run machines.yaml -i hosts.yml --results none; echo "status $?"; ls -d none
say "hours off, checked"; backchannel testbed check -i hosts.yml --limit pc1; echo "status $?"
on 11 'systemctl restart chrony; chronyc waitsync 60 0.5 >/dev/null; date'
say "campaign"; backchannel run machines.yaml -i hosts.yml --results results --attempts 10; echo "status $?"
say "nothing is left"; for address in 10 11 12; do on $address 'tc qdisc show; ip -br link show type ifb'; done
say "power"; on 12 'systemctl kill -s KILL backchannel-agent; sleep 3; systemctl is-active backchannel-agent'
say "teardown"; backchannel testbed teardown -i hosts.yml; echo "status $?"
state >after
say "site and back"; backchannel testbed site -i hosts.yml >/dev/null; echo "status $?"
backchannel testbed teardown -i hosts.yml >/dev/null; echo "status $?"
state >again
say "end"
"""


def told(folder: Path, script: str, **variables: str) -> dict[str, str]:
    """Output of a script in a lab of virtual machines, by chapter. The last one is the end."""
    words = ["testbed", "rehearse", "--vm", "-i", str(folder / "hosts.yml"), "--", "bash", "-c", script]
    # A file, so that its progress can be watched.
    with (folder / "output").open("w") as file:
        subprocess.run(
            [sys.executable, "-m", "experiments", *words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=STORY_S, check=False,
            env={**os.environ, "LAB": str(folder), "PYTHON": sys.executable, **variables},
        )  # fmt: skip
    text = (folder / "output").read_text()
    chapters = dict(part.partition("\n")[::2] for part in text.split("== ")[1:])
    assert "end" in chapters, text[-8000:]
    return chapters


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Output by chapter."""
    folder = tmp_path_factory.mktemp("machines")
    (folder / "machines.yaml").write_text(CAMPAIGN)
    inventory = write_yaml(folder / "hosts.yml", HOSTS)
    return {"folder": folder, **told(folder, STORY, **recording(inventory))}


def test_machines_have_kernels_of_their_own(story: dict[str, Any]) -> None:
    own, *theirs = story["machines"].split()
    assert len(theirs) == 4
    assert own not in theirs


def test_a_second_site_with_systemd_changes_nothing(story: dict[str, Any]) -> None:
    assert "status 0" in story["site"], story["site"]
    assert "status 0" in story["second"], story["second"]
    rows = [line for line in story["second"].splitlines() if "unreachable=" in line]
    assert len(rows) == 4
    assert all("changed=0" in row for row in rows), story["second"]
    # The packages came through apt, which the role had to call.
    installed = [
        entry["stdout"].partition("NEW packages will be installed:\n")[2].partition("\n")[0].split()
        for entry in recorded(story["folder"] / "hosts.yml")
        if entry.get("changed") and entry["task"].endswith("Install packages")
    ]
    assert len(installed) == 4
    assert all("chrony" in packages for packages in installed)


def test_the_agent_is_a_unit_with_an_account_and_three_capabilities(story: dict[str, Any]) -> None:
    lines = story["agent"].splitlines()
    assert lines[:2] == ["enabled", "active"]
    assert "User=backchannel" in lines
    assert "AmbientCapabilities=cap_net_admin cap_net_raw cap_sys_nice" in lines
    assert "NoNewPrivileges=yes" in lines
    assert lines[-1].startswith("drwx------")
    assert story["power"].split()[-1] == "active", "systemd starts an agent that died"


def test_chrony_synchronises_with_the_lab(story: dict[str, Any]) -> None:
    assert story["clock"].startswith("active")
    assert "192.168.50.20" in story["clock"]
    assert "status 0" in story["check"], story["check"]


def test_a_clock_that_is_hours_off_is_reported_with_its_host(story: dict[str, Any]) -> None:
    assert "status 1" in story["hours off"]
    (line,) = [line for line in story["hours off"].splitlines() if "its clock is" in line]
    assert "host pc1: its clock is -10" in line
    assert "chronyc makestep" in line
    assert "status 2" not in story["hours off, checked"]
    assert "the clock is -10" in story["hours off, checked"]
    assert "status 0" not in story["hours off, checked"]
    assert "\nnone\n" not in story["hours off"]


def runs(folder: Path) -> list[dict[str, Any]]:
    """The manifest of every run in a folder of results, with its scenario."""
    manifests = (folder / "runs").rglob("manifest.json")
    return [
        {**json.loads(manifest.read_text()), "scenario": json.loads(manifest.with_name("scenario.json").read_text())}
        for manifest in manifests
    ]


def test_every_congestion_control_and_every_discipline_carried_its_run(story: dict[str, Any]) -> None:
    assert "status 0" in story["campaign"], story["campaign"]
    result = runs(story["folder"] / "results")
    assert {entry["scenario"]["nodes"][0]["stack"]["name"] for entry in result} == {"vegas", "bbr", "westwood", "cubic"}
    shapers = {entry["scenario"]["links"][1]["options"].get("shaper", "htb") for entry in result}
    assert shapers == {"htb", "tbf", "cake", "netem"}
    for entry in result:
        received = entry["report"]["flows"]["download"]["receive"]
        # A second of slow start and the delay off; what the line carries is the most there can be.
        assert 10_000 < received["bytes"] < 4.2 * 128e3 / 8, received
        counters = entry["report"]["driver"]["links"]
        assert counters["line"]["forward"]["transmitted_bytes"] > received["bytes"]
        assert counters["air"]["forward"]["delivered_packets"] > received["bytes"] / 1500
        assert set(entry["report"]["clocks"]) >= {"pc0", "pc1", "pc2"}
        assert "line" not in entry["report"]["real_links"]


def test_a_run_leaves_no_discipline_and_teardown_leaves_nothing(story: dict[str, Any]) -> None:
    for word in ("htb", "tbf", "netem", "cake", "d-"):
        assert word not in story["nothing is left"].split(), story["nothing is left"]
    assert "status 0" in story["teardown"], story["teardown"]
    assert story["site and back"].split() == ["status", "0", "status", "0"]
    # Packages stay, so the first state to come back to is the one after the first teardown.
    assert (story["folder"] / "again").read_text() == (story["folder"] / "after").read_text()
    assert "backchannel" not in (story["folder"] / "after").read_text().replace("/backchannel': No such", "")
