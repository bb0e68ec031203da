"""Real PPP, SLIP and radios: their roles in virtual machines, and campaigns of both TCPs over them.

`./backchannel test --vm` runs this. Interpreted processors wake late, so the limits of runs are wide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.support.ansible_lab import write_yaml
from tests.vm.test_machines import runs, told

pytestmark = [
    pytest.mark.vm,
    pytest.mark.usefixtures("emulation"),
]

FIDELITY = "fidelity: {rate: 10 %, delay: 60 ms, lateness: 250 ms, stall: 1 s, stalled: 50 %}"
#: After asym, section 9: a modem of 28.8 kbit/s with PPP, and compressed headers. Here PPP is the way of data too, so
#: the packets are small.
DIALUP = f"""
name: dialup
title: Dial-up PPP with header compression
backend: physical
network:
  nodes: [{{name: server}}, {{name: client}}]
  links:
    - {{name: dial, ends: [server, client], forward: {{rate: 28.8 kbit/s}}, reverse: {{rate: 28.8 kbit/s}}}}
workload:
  - {{name: download, from: server, to: client}}
duration: 20 s
{FIDELITY}
sweep:
  # Headers with timestamps are never compressed.
  stack: [{{name: newreno, packet_bytes: 552 bytes, timestamps: false}}, {{name: cubic, timestamps: false}}]
"""
MTU = 552
#: Of the ad hoc network. Radios that start together would each begin a cell of its own.
CELL = "02:ca:fe:00:00:01"
#: After ton, figure 2: WaveLAN of 2 Mbit/s, packets of 1440 bytes, a buffer of 32 KiB. The air of simulated radios
#: takes no time, and a sender without an end would leave the captures in this machine no processor.
WAVELAN = f"""
name: wavelan
title: A download over a radio
backend: physical
network:
  nodes: [{{name: base}}, {{name: mobile}}]
  links:
    - {{name: air, kind: wavelan, ends: [base, mobile], forward: {{rate: 2 Mbit/s, delay: 0.5 ms}}}}
workload:
  - {{name: download, from: base, to: mobile, size: 1 MB}}
duration: 8 s
{FIDELITY}
sweep:
  stack:
    - {{name: reno-bsd, packet_bytes: 1440 B, receive_buffer: 32 KiB}}
    - {{name: cubic, mss: 1400 B, receive_buffer: 32 KiB}}
"""
#: What teardown must restore. Packages stay, with their units and folders. A radio has no power before it was up once.
STATE = """
state() { for address in 10 11; do echo "$address"; on $address '
    ip -o address show scope global | grep -v mgmt0; ip -o link show | sed "s/^[0-9]*: //; s/qdisc .*//" | grep -v hwsim
    ip route; iw dev 2>&1 | grep -v txpower
    ls /etc/ppp/peers /etc/hostapd /etc/wpa_supplicant /usr/local/sbin 2>&1 | grep backchannel
    ls -d /var/lib/backchannel* /etc/backchannel*; ip neighbour show nud permanent
    systemctl list-unit-files "backchannel*" --no-legend
    systemctl list-units --failed --no-legend "backchannel*"'; done; true; }
"""
SHELL = (
    """
cd "$LAB"
exec 2>&1
backchannel() { "$PYTHON" -m experiments "$@"; }
login="ssh -n -i key -o BatchMode=yes -o ConnectTimeout=60 -o UserKnownHostsFile=known_hosts -l root"
on() { ip=192.168.50.$1; shift; $login "$ip" "$@"; }
both() { for address in 10 11; do on $address "$@"; done; }
say() { echo "== $1"; date +"%T $1" >>times; }
# A role's own test, which applies the role again.
verify() { (cd "$ROOT/ansible" && BACKCHANNEL_CAMPAIGN="$LAB/$3" BACKCHANNEL_ROOT="$ROOT" ANSIBLE_CONFIG=ansible.cfg \\
    "$(dirname "$PYTHON")/ansible-playbook" -i "$LAB/$2" -e role_hosts="$1_hosts" "roles/$1/tests/main.yml"); }
"""
    + STATE
)
LINES = """
say "dry"; backchannel testbed site -i hosts.yml --check; echo "status $?"
say "packages"; both 'apt-get install -q -y --no-install-recommends ppp net-tools iputils-ping | tail -n 1'
state >before
say "site"; backchannel testbed site -i hosts.yml; echo "status $?"
say "second"; backchannel testbed site -i hosts.yml --diff; echo "status $?"
say "ping"; on 10 'ping -c 5 10.1.0.2; ip -o link show dev ppp0'
say "campaign"; backchannel run dialup.yaml -i hosts.yml --results results --attempts 10; echo "status $?"
say "compressed"; on 11 'pppstats -c 1 -w 1 ppp0; cat /etc/ppp/peers/backchannel-ppp0'
say "reboot"; both 'cat /proc/sys/kernel/random/boot_id; shutdown -r now'; sleep 20
for address in 10 11; do
    for i in $(seq 60); do on $address true && break; sleep 5; done
    on $address 'cat /proc/sys/kernel/random/boot_id
        for i in $(seq 120); do ip -4 -o address show dev ppp0 | grep inet && break; sleep 2; done'
done
on 10 'ping -c 5 192.0.2.2'
backchannel testbed site -i hosts.yml; echo "status $?"
say "teardown"; backchannel testbed teardown -i hosts.yml; echo "status $?"
state >after; diff before after && echo same
say "ppp alone"; verify ppp hosts.yml dialup.yaml; echo "status $?"
backchannel testbed teardown -i hosts.yml >/dev/null; echo "status $?"
say "slip"; verify slip slip.yml dialup.yaml; echo "status $?"
on 11 'ip -d -o link show dev sl0'
backchannel testbed site -i slip.yml >site.log; echo "site $?"
backchannel run dialup.yaml -i slip.yml --results slip --attempts 10 >run.log; echo "run $?"
backchannel testbed teardown -i slip.yml >/dev/null; echo "teardown $?"
state >after; diff before after && echo same
say "end"
"""
RADIOS = """
say "packages"; both 'apt-get install -q -y --no-install-recommends iw hostapd wpasupplicant iputils-ping | tail -n 1'
state >before
say "ad hoc"; backchannel testbed site -i hosts.yml; echo "status $?"
on 10 'ping -c 5 10.1.0.2; iw dev wlan0 info; iw dev wlan0 station dump'
say "second"; backchannel testbed site -i hosts.yml --diff; echo "status $?"
say "campaign"; backchannel run wavelan.yaml -i hosts.yml --results results --attempts 10; echo "status $?"
say "teardown"; backchannel testbed teardown -i hosts.yml; echo "status $?"
state >after; diff before after && echo same
say "access point"; verify wifi access.yml wavelan.yaml; echo "status $?"
backchannel testbed site -i access.yml >site.log; echo "site $?"
say "second access point"; backchannel testbed site -i access.yml --diff; echo "status $?"
say "station"
on 11 'ping -c 5 10.1.0.1; iw dev wlan0 link'
backchannel run wavelan.yaml -i access.yml --results access --attempts 10 >run.log; echo "run $?"
backchannel testbed teardown -i access.yml >/dev/null; echo "teardown $?"
state >after; diff before after && echo same
say "end"
"""


def inventory_of(campaign: str, plays: tuple[str, str], own: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Two hosts with variables of their own; the other fields of hosts and file by name."""
    return {
        "plugin": "backchannel",
        "campaign": campaign,
        "connection": "ssh",
        "machine_kernel": "linux-image-amd64",
        "ssh": {"key": "key", "known_hosts": "known_hosts", "connect_timeout": "2 min", "silence": "20 s"},
        "hosts": {
            f"pc{number}": {"plays": node, "address": f"192.168.50.{10 + number}", **entry}
            for number, (node, entry) in enumerate(zip(plays, own, strict=True))
        },
        "vars": {"common_clock": "none"},
        **more,
    }


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "dialup.yaml").write_text(DIALUP)
    for file, role, name in (("hosts.yml", "ppp", "ppp0"), ("slip.yml", "slip", "sl0")):
        line = {"interface": name, "device": "/dev/ttyS1", "speed": 28_800, "mtu": MTU}
        own = [
            {"interfaces": {"dial": name}, "vars": {f"{role}_lines": [{**line, "local": local, "peer": peer}]}}
            for local, peer in (("192.0.2.1", "192.0.2.2"), ("192.0.2.2", "192.0.2.1"))
        ]
        links = {"dial": {"real": "modem"}}
        write_yaml(folder / file, inventory_of("dialup.yaml", ("server", "client"), own, links=links))
    return folder, told(folder, SHELL + LINES, ROOT=str(node_binary.ROOT))


@pytest.fixture(scope="module")
def radios(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("radios")
    (folder / "wavelan.yaml").write_text(WAVELAN)
    for file, modes, passphrase in (
        ("hosts.yml", ("adhoc", "adhoc"), ""),
        ("access.yml", ("access_point", "station"), "of the lab 0123"),
    ):
        radio = {"interface": "wlan0", "ssid": "lab", "rate": "2", "passphrase": passphrase, "bssid": CELL}
        own = [
            {"machine": "ether", "interfaces": {"air": "wlan0"}, "vars": {"wifi_interfaces": [{**radio, "mode": mode}]}}
            for mode in modes
        ]
        links = {"air": {"real": "radio"}}
        write_yaml(folder / file, inventory_of("wavelan.yaml", ("base", "mobile"), own, links=links))
    return folder, told(folder, SHELL + RADIOS, ROOT=str(node_binary.ROOT))


def both_delivered(folder: Path, name: str, stacks: set[str], bounds: tuple[float, float]) -> None:
    """Asserts that both TCPs delivered over the link, with more and less bytes than these."""
    result = runs(folder / name)
    assert {entry["scenario"]["nodes"][0]["stack"]["name"] for entry in result} == stacks
    for entry in result:
        received = entry["report"]["flows"]["download"]["receive"]
        assert received["payload_ok"]
        assert bounds[0] < received["bytes"] < bounds[1]


def is_unchanged(report: str) -> None:
    """Asserts that a playbook succeeded on two hosts and changed neither."""
    assert "status 0" in report, report
    rows = [line for line in report.splitlines() if "unreachable=" in line]
    assert len(rows) == 2
    assert all("changed=0" in row for row in rows), report


#: Part and all of what 20 s at 28.8 kbit/s carry, with ten bits a byte.
DIALUP_BYTES = 0.3 * 20 * 28_800 / 10, 20 * 28_800 / 10
#: The whole transfer.
AIR_BYTES = 999_999, 1_000_001


def test_ppp_comes_up_once_and_stays(lines: tuple[Path, dict[str, str]]) -> None:
    story = lines[1]
    assert "status 0" in story["dry"], story["dry"]
    assert "status 0" in story["site"], story["site"]
    is_unchanged(story["second"])
    assert " 0% packet loss" in story["ping"], story["ping"]
    assert f"mtu {MTU}" in story["ping"]
    assert "status 0" in story["ppp alone"], story["ppp alone"]


def test_both_tcps_deliver_over_ppp_with_compressed_headers(lines: tuple[Path, dict[str, str]]) -> None:
    folder, story = lines
    assert "status 0" in story["campaign"], story["campaign"]
    both_delivered(folder, "results", {"newreno", "cubic"}, DIALUP_BYTES)
    # pppstats: IN, PACK, VJCOMP and so on.
    columns = next(
        line.split() for line in story["compressed"].splitlines() if line.split()[:1] and line.split()[0].isdigit()
    )
    assert int(columns[2]) > 20, story["compressed"]
    assert "novj" not in story["compressed"]


def test_ppp_is_up_again_after_a_reboot(lines: tuple[Path, dict[str, str]]) -> None:
    report = lines[1]["reboot"]
    boots = [line for line in report.splitlines() if line.count("-") == 4 and len(line) == 36]
    assert len(set(boots)) == 4, report
    assert report.count("inet 192.0.2.") == 2, report
    assert " 0% packet loss" in report, report
    assert "status 0" in report, report


def test_both_tcps_deliver_over_slip(lines: tuple[Path, dict[str, str]]) -> None:
    folder, story = lines
    assert "status 0" in story["slip"], story["slip"]
    assert {"site 0", "run 0", "teardown 0"} <= set(story["slip"].splitlines()), story["slip"]
    assert f"mtu {MTU}" in story["slip"]
    both_delivered(folder, "slip", {"newreno", "cubic"}, DIALUP_BYTES)


@pytest.mark.parametrize("chapter", ["teardown", "slip"])
def test_teardown_of_lines_restores_the_hosts(lines: tuple[Path, dict[str, str]], chapter: str) -> None:
    assert "same" in lines[1][chapter].split(), lines[1][chapter]


def test_an_ad_hoc_network_carries_both_tcps(radios: tuple[Path, dict[str, str]]) -> None:
    folder, story = radios
    assert "status 0" in story["ad hoc"], story["ad hoc"]
    assert "type IBSS" in story["ad hoc"]
    assert " 0% packet loss" in story["ad hoc"], story["ad hoc"]
    is_unchanged(story["second"])
    assert "status 0" in story["campaign"], story["campaign"]
    both_delivered(folder, "results", {"reno-bsd", "cubic"}, AIR_BYTES)


def test_a_station_joins_an_access_point_with_wpa2(radios: tuple[Path, dict[str, str]]) -> None:
    folder, story = radios
    assert {"status 0", "site 0"} <= set(story["access point"].splitlines()), story["access point"]
    is_unchanged(story["second access point"])
    report = story["station"]
    assert {"run 0", "teardown 0"} <= set(report.splitlines()), report
    assert " 0% packet loss" in report, report
    assert "Connected to" in report
    assert "tx bitrate: 2.0 MBit/s" in report, report
    both_delivered(folder, "access", {"reno-bsd", "cubic"}, AIR_BYTES)


@pytest.mark.parametrize("chapter", ["teardown", "station"])
def test_teardown_of_radios_restores_the_hosts(radios: tuple[Path, dict[str, str]], chapter: str) -> None:
    assert "same" in radios[1][chapter].split(), radios[1][chapter]
