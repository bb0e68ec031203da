"""A paper's artefact on the real PPP of a lab's virtual machines: `papers run --inventory`, as docs/physical.md has it.

`./backchannel test --vm` runs this. Interpreted processors delay each packet by milliseconds, so that the calibration
of the paper's links refuses the run, as it must. What is held is all before that, and the release of the hosts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from testbed import node_binary
from tests.support.ansible_lab import write_yaml
from tests.vm.test_machines import told

pytestmark = [
    pytest.mark.vm,
    pytest.mark.usefixtures("emulation"),
]

ARTEFACT = "asym-fig15"
STORY = f"""
cd "$LAB"
exec 2>&1
backchannel() {{ "$PYTHON" -m experiments "$@"; }}
login="ssh -n -i lab_key -o BatchMode=yes -o ConnectTimeout=60 -o UserKnownHostsFile=lab_known_hosts -l root"
for address in 12 13; do
    $login 192.0.2.$address 'apt-get install -q -y --no-install-recommends ppp net-tools iputils-ping | tail -n 1'
done
echo "== site"; backchannel testbed site -i hosts.yml; echo "status $?"
peer=$($login 192.0.2.13 'ip -4 -o address show dev ppp0' | awk '{{ sub("/.*", "", $4); print $4; exit }}')
echo "== ppp"; $login 192.0.2.12 "ping -c 3 -I ppp0 $peer; ip -o address show dev ppp0"
echo "== run"; backchannel papers run {ARTEFACT} -i hosts.yml --results results --limit 1 --attempts 1; echo "status $?"
echo "== teardown"; backchannel testbed teardown -i hosts.yml; echo "status $?"
echo "== end"
"""


def test_a_figure_of_the_hybrid_network_runs_over_real_ppp(tmp_path: Path) -> None:
    given = YAML().load(node_binary.ROOT / "experiments/labs/hybrid-modem.yml")
    given["campaign"] = str(node_binary.ROOT / f"experiments/asym/{ARTEFACT}.yaml")
    given["ssh"] |= {"connect_timeout": "2 min", "silence": "20 s"}
    given["vars"] = {"common_clock": "none"}
    write_yaml(tmp_path / "hosts.yml", given)
    story = told(tmp_path, STORY)
    assert "status 0" in story["site"], story["site"]
    assert " 0% packet loss" in story["ppp"], story["ppp"]
    assert "status 0" in story["teardown"], story["teardown"]
    assert "calibration failed: " in story["run"], story["run"]
    assert f"{ARTEFACT}  not run" in story["run"], story["run"]
