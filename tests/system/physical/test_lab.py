"""From empty hosts to a finished campaign and back to clean hosts, over SSH."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.support.ansible_lab import in_lab, recorded
from tests.support.campaign_texts import asymmetric_path
from tests.support.labs import CAMPAIGN, INSIDE, lab, output_of
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow("provisions labs over SSH for five minutes"),
    pytest.mark.emulated,
    pytest.mark.usefixtures("sshd", "faketime"),
]

#: Python on a host whose clock is three hours late.
OTHER_CLOCK = """#!/bin/sh
LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1) FAKETIME=-3h exec "$(readlink -f "$0.real")" "$@"
"""

#: Programs on hosts: a download by curl, which reports its rate, and a file of the campaign's.
PROGRAMS = f"""
name: programs
{asymmetric_path(reverse="128 kbit/s, delay: 20 ms")}workload:
  - name: page
    kind: command
    from: server
    to: client
    command:
      client: [curl, --silent, --fail, --output, page, --write-out, "%{{json}}", "http://{{server}}:{{port}}/page.txt"]
      server: {{run: [sh, -c, "exec python3 -m http.server $BACKCHANNEL_PORT --bind $BACKCHANNEL_SERVER"]}}
      files: [page.txt]
      metrics:
        took: {{json: time_total, unit: s}}
        fetched: {{json: size_download, unit: count}}
duration: 20 s
"""
PAGE = "a line of sixteen\n" * 20_000

#: All tests share one lab, because provisioning is slow.
STORY = (
    INSIDE
    + """
cd "$LAB"
say() { echo "== $1"; date "+%s $1" >>"$LAB/times"; }
# Bounded, so that a failed story ends and can be read.
till() { tries=0; until "$@"; do
    tries=$((tries + 1)); [ $tries -lt 300 ] || { echo "waited in vain: $*"; return 1; }; sleep 0.2; done; }
run() { backchannel run small.yaml --backend physical -i hosts.yml --results results "$@"; }
snapshot() { { state; find results -type f | sort; } >was 2>&1; }
# A chapter with a fault, which must leave hosts and results unchanged.
trouble() { say "$1"; shift; mv was expected; "$@"; echo "status $?"
    snapshot; diff expected was >>"$LAB/touched" && echo "untouched"; }
without_agent() { inside "$1" sh -c '
    pid=$(cat /run/backchannel-agent.pid); kill "$pid"; while [ -e "/proc/$pid" ]; do sleep 0.1; done'; }
state() { for name in pc0 pc1 pc2 pc3 box; do { echo "$name"; inside "$name" sh -c '
    ip -o -4 address show scope global | grep -v mgmt0; ip route | grep -v mgmt0; ip neighbour show nud permanent
    getent passwd backchannel; ls -A /etc/backchannel /var/lib/backchannel /opt/backchannel /run/backchannel 2>&1
    cat /etc/fstab; ls /etc/sysctl.d; sysctl net.ipv4.ip_forward net.ipv4.conf.all.arp_ignore; mount | grep backchannel
    for one in /sys/class/net/*; do ethtool -k "${one##*/}"; done | grep -E "(offload|checksumming): "
    grep -l BACKCHANNEL_SERVICE /proc/[0-9]*/environ 2>/dev/null'; } >"state-$name" 2>&1 & done; wait; cat state-*; }

state >before; snapshot
trouble "no agent yet" run; ls
trouble "no package" backchannel testbed site -i hosts.yml --limit pc0,pc1 -e '{"common_packages": ["no-such-package"]}'
inside pc1 mount -t tmpfs -o size=1m small /opt
trouble "full disk" backchannel testbed site -i hosts.yml
inside pc1 umount /opt
inside pc2 ip link set mgmt0 down
trouble "no host" backchannel testbed site -i hosts.yml
inside pc2 ip link set mgmt0 up
say "first"; backchannel testbed site -i hosts.yml; echo "status $?"
say "second"; backchannel testbed site -i hosts.yml --diff; echo "status $?"
say "check"; backchannel testbed check -i hosts.yml; echo "status $?"
say "campaign"; run --json >table.json; echo "status $?"
say "again"; run; echo "status $?"

programs() { backchannel run programs.yaml --backend physical -i hosts.yml --results results "$@"; }
say "programs refused"; programs; echo "status $?"
backchannel testbed site -i hosts.yml -e agent_allow_commands=true --limit pc0,pc3 >/dev/null
say "programs"; programs --json >programs.json; echo "status $?"
backchannel testbed site -i hosts.yml --limit pc0,pc3 >/dev/null
say "programs no more"; programs --force; echo "status $?"

snapshot
cp known_hosts right; sed -i '/192.168.50.12 /s/......$/AAAAAA/' known_hosts
trouble "wrong host key" run --force
mv right known_hosts; mv key right; ssh-keygen -q -t ed25519 -N '' -f other_key; mv other_key key
trouble "wrong key" run --force
mv right key
inside pc3 ip link set mgmt0 down
trouble "unreachable" run --force
inside pc3 ip link set mgmt0 up
without_agent box; snapshot
trouble "no box" run --force

# Another clock for the agent and for Ansible's modules.
inside pc1 sh -c 'cd /usr/bin; mv python3 python3.real; cat >python3; chmod 755 python3' <other-clock
without_agent pc1
backchannel testbed site -i hosts.yml --limit box,pc1 >/dev/null; snapshot
trouble "hours off" run --force
trouble "hours off, checked" backchannel testbed check -i hosts.yml --limit pc1
inside pc1 mv /usr/bin/python3.real /usr/bin/python3
without_agent pc1
backchannel testbed site -i hosts.yml --limit pc1 >/dev/null

say "lost"
(till inside pc2 pgrep tcpdump >/dev/null; sleep 1
 inside pc2 ip link set mgmt0 down; sleep 6; inside pc2 ip link set mgmt0 up) &
watcher=$!
backchannel run small.yaml --backend physical -i hosts.yml --results results --set duration=8s --limit 1
echo "status $?"
wait $watcher; inside pc2 ip link set mgmt0 up
for name in pc0 pc1 pc2 pc3 box; do inside "$name" pgrep -l 'tcpdump'; done; echo "nothing left"

other="--results other --set duration=120s --limit 1"
say "stopped"
addresses() { inside pc0 sh -c 'ip -o -4 address show scope global; ip route'; }
addresses >own
research="run small.yaml --backend physical -i hosts.yml --set stack=newreno $other"
(exec "$PYTHON" -m experiments $research) >stopped.log 2>&1 &
runner=$!
till inside pc0 pgrep -f 'load send' >/dev/null
addresses >taken; kill -INT $runner; wait $runner; echo "status $?"
for name in pc0 pc1 pc2 pc3 box; do inside "$name" sh -c 'ls /run/backchannel; pgrep -l tcpdump'; done
addresses | diff own - && echo "as they were"; cmp -s own taken && echo "never taken"

say "held"
(exec "$PYTHON" -m experiments run small.yaml --backend physical -i hosts.yml $other) >held.log 2>&1 &
holder=$!
till inside pc0 test -e /run/backchannel/agent.held
run --force --limit 1; echo "status $?"
backchannel testbed teardown -i hosts.yml; echo "status $?"
backchannel testbed site -i hosts.yml --limit pc1,pc2; echo "status $?"
say "killed"
cat held.log; kill -9 $holder; wait $holder
inside pc0 sh -c 'ls /run/backchannel; pgrep -c tcpdump'
backchannel testbed collect -i hosts.yml -e collect_to="$LAB/collected" >collected.log & collector=$!
seconds=0; while inside pc0 test -e /run/backchannel/agent.held && [ $seconds -lt 60 ]; do
    sleep 1; seconds=$((seconds + 1)); done
sleep 1
for name in pc0 pc1 pc2 pc3 box; do inside "$name" pgrep -l tcpdump; done
wait $collector
echo "free after $seconds s"

say "teardown"; backchannel testbed teardown -i hosts.yml; echo "status $?"
state >after
"""
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Output by chapter."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "other-clock").write_text(OTHER_CLOCK)
    (folder / "programs.yaml").write_text(PROGRAMS)
    (folder / "page.txt").write_text(PAGE)
    done = in_lab(
        lab(folder, ssh={"connect_timeout": "5 s"}), STORY, timeout_s=1500, LAB=str(folder), PYTHON=sys.executable
    )
    chapters: dict[str, Any] = {"folder": folder, "done": done}
    for part in done.stdout.split("== ")[1:]:
        name, _, text = part.partition("\n")
        chapters[name] = text
    (folder / "output").write_text(done.stdout)
    assert "teardown" in chapters, output_of(done)
    return chapters


#: The sentence with host and remedy, by fault.
TROUBLES = {
    "no agent yet": "host pc0: it refuses the key",
    "wrong host key": "host pc2: its key is",
    "wrong key": "host pc0: it refuses the key",
    "unreachable": "host pc3: it does not answer at 192.168.50.13 (is it on, is the network there?)",
    "no box": "host box: no agent answers there, run './backchannel testbed site",
    "hours off": "host pc1: its clock is -10",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_fault_of_a_host_is_one_sentence_with_the_remedy(story: dict[str, Any], trouble: str) -> None:
    assert "status 1" in story[trouble]
    lines = [line for line in story[trouble].splitlines() if TROUBLES[trouble] in line]
    assert len(lines) == 1, story[trouble]


def test_a_campaign_that_cannot_start_creates_nothing(story: dict[str, Any]) -> None:
    assert "results" not in story["no agent yet"].splitlines()


#: Host and remedy, by fault of provisioning.
UNFIT = {
    "no package": ("pc0", "packages are missing (no-such-package) and cannot be installed"),
    "full disk": ("pc1", "the disk of /opt/backchannel has 1 MB free, of 50 needed; free some space"),
    "no host": ("pc2", "it does not answer at 192.168.50.12 (is it on, is the network there?)"),
    "hours off, checked": ("pc1", "s off the controller's; set it ('chronyc makestep')"),
}


@pytest.mark.parametrize("trouble", UNFIT)
def test_hosts_that_cannot_be_provisioned_are_reported_with_the_reason(story: dict[str, Any], trouble: str) -> None:
    assert "status 0" not in story[trouble]
    host, reason = UNFIT[trouble]
    (line,) = [line for line in story[trouble].splitlines() if line.startswith(f"backchannel: host {host}: ")]
    assert reason in line
    assert "backchannel: nothing was changed on any host" in story[trouble].splitlines()


@pytest.mark.parametrize("trouble", sorted({**TROUBLES, **UNFIT}))
def test_a_fault_changes_nothing_on_any_host(story: dict[str, Any], trouble: str) -> None:
    assert "untouched" in story[trouble].splitlines(), (story["folder"] / "touched").read_text()


def test_a_host_that_is_lost_fails_its_run_and_no_other(story: dict[str, Any]) -> None:
    assert "host pc2 was lost: it does not answer at 192.168.50.12 any more" in story["lost"]
    assert "status 0" in story["lost"]
    assert story["lost"].splitlines()[-1] == "nothing left"
    assert not [line for line in story["lost"].splitlines() if line.endswith(" tcpdump")]


def test_a_second_site_changes_nothing(story: dict[str, Any]) -> None:
    assert "status 0" in story["first"]
    assert "status 0" in story["second"]
    assert "changed=0" in story["second"]
    assert not [line for line in story["second"].splitlines() if "changed=" in line and "changed=0" not in line]


def test_the_testbed_is_fit(story: dict[str, Any]) -> None:
    assert "status 0" in story["check"]


def test_the_campaign_is_measured_and_is_reused(story: dict[str, Any]) -> None:
    assert "status 0" in story["campaign"], output_of(story["done"])
    table = json.loads((story["folder"] / "table.json").read_text())
    assert table["state"] == "complete"
    for point in table["points"]:
        assert [run["state"] for run in point["runs"]] == ["valid"]
        (measured,) = [row for row in point["metrics"] if row["name"] == "throughput"]
        # The transfer nearly fills the line of 10 Mbit/s within 4 s.
        assert 1e6 < measured["mean"] < 10e6
    assert "2 taken from results" in story["again"]


def test_programs_run_where_the_administrator_allows_them(story: dict[str, Any]) -> None:
    for chapter in ("programs refused", "programs no more"):
        text = story[chapter] + story["done"].stderr
        assert "this host runs no programs of campaigns, because its administrator has not allowed it" in text
        assert "status 0" not in story[chapter]
    assert "status 0" in story["programs"], output_of(story["done"])
    (point,) = json.loads((story["folder"] / "programs.json").read_text())["points"]
    assert [run["state"] for run in point["runs"]] == ["valid"]
    means = {row["name"]: row["mean"] for row in point["metrics"]}
    assert means["output.fetched"] == len(PAGE)
    # A line of 10 Mbit/s carries it in 0.29 s.
    assert 0.29 < means["output.took"] < 5
    (run,) = {path.parent.parent for path in story["folder"].glob("results/**/programs/page.json")}
    assert json.loads((run / "programs/page.client.out").read_text())["http_code"] == 200


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Manifests of the campaign's runs."""
    result = [json.loads(path.read_text()) for path in sorted(folder.glob("results/**/manifest.json"))]
    return [entry for entry in result if entry["report"]["duration_s"] == 4]


def test_a_run_keeps_every_hosts_clock_before_and_after(story: dict[str, Any]) -> None:
    result = manifests(story["folder"])
    assert len(result) == 2
    for entry in result:
        clocks = entry["report"]["clocks"]
        assert sorted(set(clocks) - {"one_way_delays", "why"}) == ["box", "pc0", "pc1", "pc2", "pc3"]
        assert clocks["one_way_delays"] in ("corrected", "unusable")
        # Namespaces share one clock, so the offset is measurement error.
        for host in ("pc0", "pc3"):
            assert abs(clocks[host]["offset_before_s"]) <= clocks[host]["uncertainty_s"]
        assert entry["report"]["real_links"] == {}
        assert sorted(entry["report"]["driver"]["links"]) == ["bottleneck", "client-access", "server-access"]


def test_a_link_box_emulates_the_declared_lines(story: dict[str, Any]) -> None:
    for manifest in manifests(story["folder"]):
        measured = {(line["link"], line["direction"]): line for line in manifest["calibration"]}
        assert measured["bottleneck", "reverse"]["measured_rate_bps"] == pytest.approx(128_000, rel=0.005)
        assert measured["bottleneck", "forward"]["measured_delay_s"] == pytest.approx(0.005, abs=0.001)
        assert not any(line["problems"] for line in measured.values())


def test_captures_hold_packets_of_true_size(story: dict[str, Any]) -> None:
    """No offload made one packet of many, and no padding was added to an ack."""
    path = sorted(story["folder"].glob("results/**/captures/client-eth0.pcap.gz"))[0]
    plain = story["folder"] / "client.pcap"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    words = ["tcpdump", "-n", "-v", "-r", str(plain), "tcp"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lengths = [int(part.split(")")[0]) for part in text.split(", length ")[1:] if ")" in part.split("\n")[0]]
    assert lengths
    assert max(lengths) == 1500
    assert "incorrect" not in text


def test_a_stopped_campaign_releases_the_hosts_at_once(story: dict[str, Any]) -> None:
    """The research stack returns their addresses, before any lease ends."""
    assert story["stopped"].split() == ["status", "130", *["agent.sock"] * 5, "as", "they", "were"]


def test_a_second_campaign_reports_the_holder(story: dict[str, Any]) -> None:
    text = story["held"] + story["done"].stderr
    assert text.count("status") >= 2
    assert "status 0" not in story["held"]
    assert "is held by campaign small, of" in text
    assert "a campaign holds this host (campaign small, of" in text


def test_hosts_of_a_killed_controller_clean_up_by_themselves(story: dict[str, Any]) -> None:
    assert "agent.held" in story["killed"]
    lines = story["killed"].splitlines()
    assert lines[-1].startswith("free after ")
    assert 0 < int(lines[-1].split()[2]) <= 40
    assert not [line for line in lines[:-1] if "tcpdump" in line]


def test_logs_of_every_host_are_collected(story: dict[str, Any]) -> None:
    result = {path.name for path in (story["folder"] / "collected").iterdir()}
    assert result == {"pc0.tar.gz", "pc1.tar.gz", "pc2.tar.gz", "pc3.tar.gz", "box.tar.gz"}


def test_a_rehearsal_removes_its_keys(story: dict[str, Any]) -> None:
    assert not [path for name in ("key", "key.pub", "known_hosts") if (path := story["folder"] / name).exists()]


def test_teardown_restores_the_hosts(story: dict[str, Any]) -> None:
    assert "status 0" in story["teardown"]
    assert (story["folder"] / "after").read_text() == (story["folder"] / "before").read_text()
    assert recorded(story["folder"] / "hosts.yml")


def test_the_documented_inventory_can_be_rehearsed(tmp_path: Path, sshd: None) -> None:
    text = (node_binary.ROOT / "docs/physical.md").read_text()
    block = text.partition("read the same file:\n\n")[2].partition("\n\n|")[0]
    (tmp_path / "hosts.yml").write_text("\n".join(line[4:] for line in block.splitlines()) + "\n")
    (tmp_path / "twoway.yaml").write_text(CAMPAIGN.replace("name: small", "name: twoway"))
    script = (
        'for playbook in site check; do backchannel testbed $playbook -i "$LAB/hosts.yml"; echo "$playbook $?"; done'
    )
    done = in_lab(tmp_path / "hosts.yml", script, timeout_s=600, LAB=str(tmp_path))
    assert {"site 0", "check 0"} <= set(done.stdout.splitlines()), output_of(done)
    # Its keys are gone.
    assert not list(tmp_path.glob("lab_*"))


def test_a_rehearsal_that_is_ended_from_outside_removes_its_keys(tmp_path: Path, sshd: None) -> None:
    """Its cell ends at once, and the keys would stop the next rehearsal."""
    path = lab(tmp_path)
    words = [sys.executable, "-m", "experiments", "testbed", "rehearse", "-i", str(path), "--", "sleep", "300"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as rehearsal:
        wait_until((tmp_path / "known_hosts").exists, "the lab")
        rehearsal.terminate()
        assert rehearsal.wait(30) == 128 + signal.SIGTERM
    assert not [name for name in ("key", "key.pub", "known_hosts") if (tmp_path / name).exists()]
