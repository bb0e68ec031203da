"""IPv6 on hosts of a lab: addresses, both TCPs, captures, and hosts that are as before after teardown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible_lab import in_lab
from tests.support.campaign_texts import asymmetric_path
from tests.support.labs import INSIDE, lab, output_of

pytestmark = [pytest.mark.slow("a campaign over SSH"), pytest.mark.emulated]

CAMPAIGN = f"""
name: two-families
{asymmetric_path(reverse="256 kbit/s, delay: 20 ms")}workload:
  - {{name: bulk, from: server, to: client, count: 2, ip: both}}
duration: 5 s
sweep: {{stack: [cubic, newreno]}}
"""
#: A host with IPv6 of its own before, and what it has over both versions at any time.
STORY = (
    INSIDE
    + """
cd "$LAB"
state() { for name in pc0 pc1 pc2 pc3; do echo "$name"; inside "$name" sh -c '
    # The kernel makes a link-local address when the other end of a cable is up.
    ip -o address show | grep -v -e mgmt0 -e fe80: | sed "s/valid_lft.*//"
    ip route | grep -v mgmt0; ip -6 route | grep -v fe80:
    ip neighbour show nud permanent
    for one in /proc/sys/net/ipv6/conf/*; do echo "$one"; for key in disable_ipv6 addr_gen_mode accept_ra \
        router_solicitations accept_dad forwarding mldv2_unsolicited_report_interval
    do cat "$one/$key"; done; done; ls -A /var/lib/backchannel /etc/backchannel 2>&1'; done; }
inside pc0 sh -c 'ip link set server-eth0 up; ip -6 address add 2001:db8:9::7/64 dev server-eth0 nodad
    ip -6 route add 2001:db8:aaaa::/48 via 2001:db8:9::1 dev server-eth0'
sleep 3; state >before
site() { backchannel testbed site -i hosts.yml >"$1.log"; echo "$1 $?"; }
run() { backchannel run small.yaml --backend physical -i hosts.yml --results results "$@"; echo "run $?"; }
site first; site second
inside pc1 cat /proc/sys/net/ipv6/conf/all/forwarding >forwarding
inside pc0 ip -6 -o address show dev server-eth0 >addresses
run --json >table.json; cat table.json | tail -1
# After a run of the research stack the kernel has its addresses again.
inside pc0 ip -6 -o address show dev server-eth0 | diff addresses - && echo "addresses are back"
# An agent that is killed in the middle gives nothing back; the roles do.
(exec "$PYTHON" -m experiments run small.yaml --backend physical -i hosts.yml --results other \
    --set duration=60s --set stack=newreno --limit 1) >killed.log 2>&1 & runner=$!
tries=0; until inside pc0 pgrep -f 'load send' >/dev/null || [ $tries -gt 300 ]; do
    sleep 0.2; tries=$((tries + 1)); done
inside pc0 sh -c \
    'kill -9 $(cat /run/backchannel-agent.pid) $(pgrep tcpdump) $(pgrep -f "load send")'
kill -INT $runner; wait $runner
# As a reboot, or the restart of the agent's service.
inside pc0 rm /run/backchannel/agent.held
backchannel testbed teardown -i hosts.yml >teardown.log; echo "teardown $?"
sleep 3; state >after; diff before after && echo "as before"
"""
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, emulation: None) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("ipv6")
    inventory = lab(folder, CAMPAIGN, connection="namespace")
    done = in_lab(inventory, STORY, timeout_s=900, LAB=str(folder), PYTHON=sys.executable)
    return folder, output_of(done) + "".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.log")))


def test_every_step_succeeds_and_the_second_site_changes_nothing(finished: tuple[Path, str]) -> None:
    folder, output = finished
    for step in ("first 0", "second 0", "run 0", "addresses are back", "teardown 0", "as before"):
        assert step in output.splitlines(), output
    assert (folder / "forwarding").read_text().strip() == "1", "pc1 plays a router"


def test_both_stacks_carry_flows_over_ipv6_which_the_captures_show(finished: tuple[Path, str]) -> None:
    folder, output = finished
    assert (folder / "table.json").exists(), output
    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("results/**/manifest.json"))]
    scenarios: list[dict[str, Any]] = [
        json.loads(path.with_name("scenario.json").read_text())
        for path in sorted(folder.glob("results/**/manifest.json"))
    ]
    stacks = set()
    for manifest, scenario in zip(manifests, scenarios, strict=True):
        versions = {flow["name"]: flow.get("ip", 4) for flow in scenario["workload"]}
        assert sorted(versions.values()) == [4, 6]
        stacks |= {node["stack"]["name"] for node in scenario["nodes"] if "stack" in node}
        for name in versions:
            assert manifest["report"]["flows"][name]["receive"]["bytes"] > 100_000, output
    assert stacks == {"cubic", "newreno"}
    tables = json.loads(_json_of(folder))
    for point in tables["points"]:
        throughput = {row["subject"]: row["mean"] for row in point["metrics"] if row["name"] == "throughput"}
        assert all(value > 500_000 for subject, value in throughput.items() if subject.startswith("bulk")), throughput


def _json_of(folder: Path) -> str:
    """The table without the line of the exit status."""
    return (folder / "table.json").read_text().rpartition("run ")[0]
