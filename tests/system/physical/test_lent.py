"""Hosts behind another host, over SSH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import inventory
from tests.support.ansible_lab import in_lab
from tests.support.labs import INSIDE, output_of
from tests.unit.physical.test_lent import lent

pytestmark = pytest.mark.slow("a lab over SSH behind another host")

#: What OpenStack says of hosts, whose interfaces only they know.
SERVERS = [
    {"Name": name, "Status": "ACTIVE", "Networks": {"mgmt": [f"192.168.50.{number}"], "wire": [f"172.20.0.{number}"]}}
    for number, name in ((11, "left"), (12, "right"))
]
STORY = (
    INSIDE
    + """
cd "$LAB"
lease() { sed -i '/^lease_ends/d' hosts.yml
    echo "lease_ends: '$(date -u -d "$1" +%Y-%m-%dT%H:%M:%S+00:00)'" >>hosts.yml; }
ssh -n -o BatchMode=yes -o ConnectTimeout=3 -o StrictHostKeyChecking=no -i key root@192.168.50.11 true; echo "direct $?"
inside left ip address add 172.20.0.11/24 dev left-eth0
inside right ip address add 172.20.0.12/24 dev right-eth0
backchannel testbed import --from chameleon --campaign pair.yaml -i asked.yml --ask --user root --key key \\
    --known-hosts known_hosts --proxy-jump root@192.0.2.7:2222 servers.json; echo "import $?"
inside left ip address flush dev left-eth0; inside right ip address flush dev right-eth0
lease "+1 hour"
backchannel testbed site -i hosts.yml; echo "site $?"
backchannel testbed check -i hosts.yml; echo "check $?"
backchannel run pair.yaml --backend physical -i hosts.yml --results results --attempts 9 --limit 1; echo "run $?"
lease "+4 minutes"
backchannel run pair.yaml --backend physical -i hosts.yml --results results --set duration=5min; echo "short $?"
lease "-1 second"
backchannel testbed check -i hosts.yml; echo "late $?"
lease "+1 hour"; inside jump_host ip link set mgmt0 down
backchannel run pair.yaml --backend physical -i hosts.yml --results results; echo "cut $?"
"""
)


@pytest.mark.emulated
def test_hosts_behind_another_over_ssh(tmp_path: Path, sshd: None) -> None:
    path = lent(tmp_path)
    (tmp_path / "servers.json").write_text(json.dumps(SERVERS))
    done = in_lab(path, STORY, timeout_s=600, LAB=str(tmp_path))
    lines = done.stdout.splitlines()
    assert {"direct 255", "import 0", "site 0", "check 0", "run 0", "short 1", "late 1"} <= set(lines), output_of(done)
    asked = inventory.read(tmp_path / "asked.yml").file
    assert {name: host.interfaces["line"] for name, host in asked.hosts.items()} == {
        "left": "left-eth0", "right": "right-eth0",
    }  # fmt: skip
    assert any(line.startswith("backchannel: the lease of the hosts ends in 0 h 5") for line in lines)
    short = done.stdout.partition("run 0")[2].partition("short 1")[0]
    assert "8 runs were not started: the lease of the hosts ends in" in short
    late = done.stdout.partition("short 1")[2].partition("late 1")[0]
    assert "backchannel: the lease of the hosts has ended" in late
    assert "cut 0" not in lines
    assert (
        "UNREACHABLE" in done.stdout.partition("late 1")[2] or "does not answer" in done.stdout.partition("late 1")[2]
    )
