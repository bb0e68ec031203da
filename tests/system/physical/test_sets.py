"""Two sets of hosts, over SSH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ansible_lab import in_lab
from tests.support.labs import INSIDE, output_of
from tests.unit.physical.test_sets import pair

pytestmark = pytest.mark.slow("a lab of two sets over SSH")

#: A campaign over both sets, and one during which a host of one set is away.
STORY = (
    INSIDE
    + """
cd "$LAB"
run() { backchannel run pair.yaml --backend physical -i hosts.yml --attempts 9 "$@"; }
backchannel testbed site -i hosts.yml; echo "site $?"
backchannel testbed check -i hosts.yml; echo "check $?"
run --results both --limit 4; echo "both $?"
(tries=0; until inside red_r pgrep tcpdump >/dev/null || [ $tries -gt 300 ]; do sleep 0.2; tries=$((tries + 1)); done
 inside red_r ip link set mgmt0 down) &
run --results one --limit 4; echo "one $?"
wait
inside red_r ip link set mgmt0 up
backchannel testbed teardown -i hosts.yml --limit set_blue; echo "teardown $?"
"""
)


@pytest.mark.emulated
def test_two_sets_over_ssh(tmp_path: Path, sshd: None) -> None:
    done = in_lab(pair(tmp_path), STORY, timeout_s=600, LAB=str(tmp_path))
    lines = set(done.stdout.splitlines())
    assert {"site 0", "check 0", "both 0", "one 0", "teardown 0"} <= lines, output_of(done)
    periods: list[tuple[float, float, str]] = []
    for path in tmp_path.glob("both/**/manifest.json"):
        manifest = json.loads(path.read_text())
        periods.append((manifest["started"], manifest["took_s"], manifest["report"]["installation"]["set"]))
    assert {name for *_, name in periods} == {"red", "blue"}
    assert any(one[0] < other[0] < one[0] + one[1] for one in periods for other in periods if one[2] != other[2]), (
        periods
    )
    lost = [line for line in done.stdout.splitlines() if "host red-r was lost" in line]
    assert any("set red waits for the host, other sets make its runs" in line for line in lost), output_of(done)
