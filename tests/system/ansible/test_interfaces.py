"""The module `network` on a host with state of its own: it restores what it took and rejects what it must not take."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible_lab import collection_module
from tests.support.waiting import HANGS_S

pytestmark = pytest.mark.shares_cpu

#: Everything that a removal must restore. Counters and times differ.
SNAPSHOT = r"""
state() { for family in -4 -6; do
    ip $family address show dev eth1 | grep -o 'inet.*' | sed 's/ dynamic//; s/ tentative//; s/mtu.*//'
    ip $family -details route show table all | grep -w eth1 | sed 's/expires [0-9]*sec//' | sort
    ip $family neighbour show nud permanent; ip $family neighbour show proxy; done
    ip link show eth1 | grep -Eo 'link/ether [0-9a-f:]*|[<,]UP[,>]'; cat /proc/sys/net/ipv6/conf/eth1/disable_ipv6; }
settled() { for i in $(seq 50); do ip -6 address | grep -q tentative || return 0; sleep 0.1; done; }
"""
#: A host as a DHCP server, a router and its administrator have left it.
HOST = """
ip link set lo up
# Duplicate address detection takes 10 ms. By default it takes up to 2 s.
echo 0 >/proc/sys/net/ipv6/conf/default/router_solicitation_delay
ip link add eth1 type veth peer name far; ip link add eth2 type veth peer name far2
echo 10 | tee /proc/sys/net/ipv6/neigh/*/retrans_time_ms >/dev/null
for name in eth1 far eth2 far2; do ip link set $name up; done
ip address add 192.0.2.5/24 brd 192.0.2.200 dev eth1 valid_lft 3600 preferred_lft 1800
ip address add 192.0.2.6/24 dev eth1 label eth1:x
ip address add 10.9.9.1 peer 10.9.9.2/32 dev eth1 metric 50
ip address add 203.0.113.9/24 dev eth2
ip -6 address add 2001:db8::5/64 dev eth1
ip -6 address add 2001:db8:1::5/64 dev eth1 nodad
ip route add default via 203.0.113.1 dev eth2
ip route append default via 192.0.2.1 dev eth1
ip route add default via 192.0.2.1 dev eth1 proto dhcp metric 100 src 192.0.2.5
ip route add default via 192.0.2.2 dev eth1 metric 200 mtu 1400
ip route add 198.51.100.0/24 via 192.0.2.9 dev eth1 table 77 onlink
ip route add 198.51.101.0/24 nexthop via 192.0.2.9 dev eth1 weight 2 nexthop via 203.0.113.7 dev eth2
ip route add 198.51.102.0/24 dev eth1 scope link; ip route add 198.51.103.0/24 via 198.51.102.1
settled 2>/dev/null || sleep 2
ip -6 route add default via 2001:db8::1 dev eth1 metric 77
ip -6 route add 2001:db8:9::/48 via 2001:db8::2 dev eth1 src 2001:db8::5
ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:09 dev eth1 nud permanent
ip neighbour add 2001:db8::1 lladdr 02:00:00:00:00:09 dev eth1 nud permanent
ip neighbour add proxy 192.0.2.77 dev eth1
"""
PARAMETERS = {
    "state": "present",
    "role": "endpoint",
    "user": "backchannel",
    "interfaces": [{"name": "eth1", "address": "10.1.0.1/24", "mac": "02:00:00:00:01:01"}],
    "neighbours": [{"address": "10.1.0.2", "mac": "02:00:00:00:00:02", "interface": "eth1"}],
    "routes": [{"subnet": "10.2.0.0/24", "via": "10.1.0.2", "interface": "eth1"}],
    "sysctls": {},
    "links": [],
    "queues": [],
    "lines": [],
}
#: Calls the module's function, as Ansible does, and prints its error. Arguments: changes of PARAMETERS, as JSON;
#: with CHECK in the environment in check mode.
MODULE = f"""
import json, os, sys
from testbed.collection import python_module
host, parameters = python_module("module_utils.host"), {json.dumps(PARAMETERS)}
changes = host.Changes("CHECK" in os.environ)
try:
    python_module("modules.network").apply(parameters | json.loads((sys.argv[1:] or ["{{}}"])[0]), changes)
    print("changed" if changes.result()["changed"] else "unchanged")
except host.HostError as error:
    print(f"rejected: {{error}}")
"""


def on_host(script: str) -> str:
    """Output of a script on a host of its own, with HOST's state; `network` calls the module."""
    prelude = f"""
exec 2>&1
mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /run; export TMPDIR=/run ANSIBLE_HOME=/run/ansible
mkdir /run/changed /run/work; mount -t overlay -o lowerdir=/etc,upperdir=/run/changed,workdir=/run/work etc /etc
mount -t tmpfs tmpfs /etc/sysctl.d
# What is left of the machine's tree is the machine's: labs beside this test have it below their hosts.
mount -o remount,bind,ro /
mount -t sysfs sysfs /sys
network() {{ "{sys.executable}" -c '{MODULE}' "$@"; }}
absent='{{"state": "absent"}}'
{SNAPSHOT}
{HOST}
settled
"""
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", prelude + script],
        capture_output=True, text=True, check=False, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.emulated
def test_what_was_on_an_interface_is_there_again() -> None:
    out = on_host(
        """
state >/run/before; network; network; ip -4 -o address show dev eth1; ip route show dev eth1; ip route show default
network "$absent"; settled; state >/run/after; network "$absent"
echo ==; diff /run/before /run/after && echo same; wc -l </run/before; exit 0
"""
    )
    taken, restored = out.split("==\n")
    assert taken.splitlines()[:2] == ["changed", "unchanged"], out
    assert "10.1.0.1/24" in taken
    assert "192.0.2." not in taken
    # The default route over another interface stays.
    assert "default via 203.0.113.1 dev eth2" in taken
    assert restored.splitlines()[0] == "same", out
    assert int(restored.split()[-1]) > 25
    assert taken.splitlines()[-2:] == ["changed", "unchanged"]


@pytest.mark.emulated
@pytest.mark.parametrize("place", ["run_batch", "apply_sysctls", "set_offloads"])
def test_a_module_that_was_killed_midway_is_undone_as_well(place: str) -> None:
    killed = f"""
import os, sys
from testbed.collection import python_module
network = python_module("modules.network")
inner = network.{place}
def killed(*arguments):
    inner(*arguments)
    os._exit(9)
network.{place} = killed
network.apply({json.dumps(PARAMETERS)}, python_module("module_utils.host").Changes(False))
"""
    out = on_host(
        f"""
"{sys.executable}" -c 'x=1'; state >/run/before; "{sys.executable}" - <<'END'
{killed}
END
echo "status $?"; network "$absent"; settled; state >/run/after; diff /run/before /run/after && echo same; exit 0
"""
    )
    assert "status 9" in out
    assert out.splitlines()[-1] == "same", out


QUEUE = '"queues": [{"link": "l", "tap": "bq-tun0", "interface": "tun0"}]'


@pytest.mark.emulated
@pytest.mark.parametrize("mac", ["02:00:00:00:01:01", None])
def test_an_interface_gets_ipv6_of_the_experiment_alone_and_its_own_again(mac: str | None) -> None:
    v6 = {
        "interfaces": [{"name": "eth1", "address": "10.1.0.1/24", "address6": "2001:db8:a01::1/64", "mac": mac}],
        "neighbours": [{"address": "2001:db8:a01::2", "mac": "02:00:00:00:00:02", "interface": "eth1"}],
        "routes": [{"subnet": "2001:db8:a02::/64", "via": "2001:db8:a01::2", "interface": "eth1"}],
        "sysctls": {"net.ipv6.conf.all.forwarding": "1"},
    }
    shown = on_host(f"""
    settings() {{ grep -rs . /proc/sys/net/ipv6/conf/eth1 /proc/sys/net/ipv6/conf/eth2 /proc/sys/net/ipv6/conf/all |
        grep -E 'addr_gen|accept_ra:|accept_dad|router_sol|report_interval|forwarding'; }}
    cd /run; settings >settings; state >before
    cd - >/dev/null; network {shlex.quote(json.dumps(v6))}
    ip -6 address show dev eth1 | grep -o 'inet6 [^ ]*'; ip -6 route show dev eth1 | grep via
    cat /proc/sys/net/ipv6/conf/all/forwarding /proc/sys/net/ipv6/conf/eth2/accept_ra
    network {shlex.quote(json.dumps(v6))}
    network '{{"state": "absent"}}'; settled; cd /run; state >after
    diff before after && settings | diff settings - && echo restored""")
    assert shown.splitlines() == [
        "changed", "inet6 2001:db8:a01::1/64", "2001:db8:a02::/64 via 2001:db8:a01::2 metric 1024 pref medium", "1",
        "2", "unchanged", "changed", "restored",
    ], shown  # fmt: skip


@pytest.mark.emulated
def test_an_interface_without_a_link_layer_header_is_taken_and_restored_with_its_peer() -> None:
    """As pppd leaves it; here a TUN."""
    tun = '"interfaces": [{"name": "tun0", "address": "10.1.0.1/24"MAC}], "neighbours": [], "routes": []'
    out = on_host(
        f"""
ip tuntap add dev tun0 mode tun; ip link set tun0 up; ip address add 192.0.2.41 peer 192.0.2.42/32 dev tun0
show() {{ ip -4 -o address show dev tun0; ip -4 route show dev tun0; ip link show tun0 | grep -o ,UP; }}
show >/run/before
network '{{{tun.replace("MAC", "")}}}'; ip -4 -o address show dev tun0; network "$absent"
show >/run/after; diff /run/before /run/after && echo same
ip link set tun0 mtu 576
network '{{{tun.replace("MAC", ', "mac": "02:00:00:00:00:01"')}}}'; network '{{{tun.replace("MAC", "")}}}'
network "$absent" >/dev/null
network '{{"role": "queue_policy", "interfaces": [], "neighbours": [], "routes": [], {QUEUE}}}'
ip -o link show bq-tun0; network '{{"role": "queue_policy", "state": "absent"}}' >/dev/null; ip link show bq-tun0
exit 0
"""
    )
    taken, address, restored, same, wire, more, queue, shown, gone = out.splitlines()
    assert (taken, restored, same) == ("changed", "changed", "same"), out
    assert "inet 10.1.0.1/24 scope" in address
    # A hardware address for it changes nothing.
    assert (wire, more) == ("changed", "unchanged")
    # The queue stands behind an interface of the same kind, with its MTU.
    assert queue == "changed"
    assert "POINTOPOINT" in shown
    assert "mtu 576" in shown
    assert "does not exist" in gone


@pytest.mark.emulated
def test_an_interface_with_a_dot_in_its_name_is_taken_and_restored() -> None:
    parameters = {
        "interfaces": [{"name": "eth1.7", "address": "10.1.0.1/24"}], "neighbours": [], "routes": [],
        "queues": [{"link": "line", "tap": "bq-line", "interface": "eth1.7"}],
    }  # fmt: skip
    out = on_host(
        f"""
ip link add eth1.7 type veth peer name far7; ip link set eth1.7 up
shown() {{ cat /proc/sys/net/ipv6/conf/eth1.7/disable_ipv6 /proc/sys/net/ipv4/conf/eth1.7/rp_filter; }}
shown; network '{json.dumps(parameters)}'; shown; network "$absent"; shown
"""
    )
    before, taken, restored = out.split("changed\n")
    assert taken.split() == ["1", "1"]
    assert restored == before


@pytest.mark.emulated
def test_an_interface_that_was_down_is_down_again() -> None:
    out = on_host(
        'ip link set eth1 down; state >/run/before; network; network "$absent"; state >/run/after\n'
        "diff /run/before /run/after && echo same; exit 0"
    )
    assert out.splitlines() == ["changed", "changed", "same"], out


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("prepared", "sentence"),
    [
        (
            "export SSH_CONNECTION='192.0.2.77 5000 192.0.2.5 22'",
            "interface eth1 carries the SSH connection to the controller (192.0.2.77)",
        ),
        # The controller is behind a router. sudo drops the variable.
        (
            "ip route add 198.18.7.0/24 via 192.0.2.1 dev eth1\n"
            "export SSH_CONNECTION='198.18.7.1 5000 203.0.113.9 22'\n"
            # A shell that stays, as sshd starts it, with the variable; below it a program without, as sudo starts it.
            'network() { bash -c \'env --ignore-environment PATH="$PATH" PYTHONPATH="$PYTHONPATH" '
            'ANSIBLE_HOME="$ANSIBLE_HOME" "$0" -c "$MODULE"; true\' ' + shlex.quote(sys.executable) + "; }",
            "interface eth1 carries the SSH connection to the controller (198.18.7.1)",
        ),
        (
            "ip link add br0 type bridge; ip link set eth1 master br0; ip address add 192.0.3.5/24 dev br0\n"
            "export SSH_CONNECTION='192.0.3.1 5000 192.0.3.5 22'",
            "interface eth1 carries the SSH connection",
        ),
        ("ip link add br0 type bridge; ip link set eth1 master br0", "interface eth1 is a port of br0"),
        (
            "mkdir -p /run/systemd/netif/links; echo ADMIN_STATE=configured >/run/systemd/netif/links/$(cat "
            "/sys/class/net/eth1/ifindex)",
            "systemd-networkd manages interface eth1; give it a .network file with 'Unmanaged=yes'",
        ),
        (
            "mkdir -p /run/NetworkManager /run/bin; PATH=/run/bin:$PATH\n"
            "echo '#!/bin/sh' >/run/bin/nmcli\n"
            'echo \'[ "$*" = "--get-values GENERAL.NM-MANAGED device show eth1" ] && echo yes\' >>/run/bin/nmcli\n'
            "chmod +x /run/bin/nmcli",
            "NetworkManager manages interface eth1; run 'nmcli device set eth1 managed no'",
        ),
        (
            '(exec -a dhclient sh -c "sleep 60; :" eth1) & sleep 0.3',
            "leases addresses for interface eth1; end it first",
        ),
        ("ip route add 10.2.0.0/24 via 203.0.113.1", "a route to 10.2.0.0/24 exists over eth2"),
        (
            "ip nexthop add id 7 via 192.0.2.1 dev eth1; ip route add 198.51.104.0/24 nhid 7",
            "which teardown could not restore; remove the route first",
        ),
    ],
)
def test_an_interface_that_must_not_be_taken_is_rejected_and_unchanged(prepared: str, sentence: str) -> None:
    out = on_host(
        f"export MODULE='{MODULE}'\n{prepared}\nsettled; state >/run/before; network; state >/run/after\n"
        "diff /run/before /run/after && echo same; ls /var/lib; for job in $(jobs -p); do kill $job; done; exit 0"
    )
    assert "rejected: " in out
    assert sentence in out, out
    assert out.splitlines()[-1] == "same", out


def links(**kinds: Any) -> dict[str, Any]:
    """Links as `ip -json -details address show` has them."""
    return {name: {"addr_info": [], "ifname": name, **more} for name, more in kinds.items()}


def test_management_includes_what_lies_below_its_interface() -> None:
    management = collection_module("module_utils.management")
    known = links(
        bond0={"linkinfo": {"info_kind": "bond"}},
        vlan7={"link": "bond0", "linkinfo": {"info_kind": "vlan"}, "addr_info": [{"local": "192.0.2.5"}]},
        eth0={"master": "bond0"},
        eth1={"link": "eth2", "linkinfo": {"info_kind": "veth"}, "addr_info": [{"local": "192.0.2.6"}]},
        eth2={},
    )

    def found(server: str) -> set[str]:
        return set(management.management_interfaces(known, ("192.0.2.1", server), lambda address: None))

    assert found("192.0.2.5") == {"vlan7", "bond0", "eth0"}
    assert found("192.0.2.6") == {"eth1"}
    assert found("::ffff:192.0.2.6") == {"eth1"}
    assert management.management_interfaces(known, None, lambda address: "eth0") == set()
    assert management.management_interfaces(known, ("fe80::1%eth2", "fe80::2%eth2"), lambda address: None) == {"eth2"}


def test_the_ssh_connection_is_found_above_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    management = collection_module("module_utils.management")
    chain = {
        "30": ("20", ""),
        "20": ("10", "A=b\0SSH_CONNECTION=192.0.2.1 5 192.0.2.2 22"),
        "10": ("1", ""),
        "1": ("0", ""),
    }
    for pid, (parent, environment) in chain.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "environ").write_text(environment)
        (tmp_path / pid / "stat").write_text(f"{pid} (a ) name) S {parent} 1 1")
    monkeypatch.setattr(management.os, "getpid", lambda: 30)
    assert management.ssh_connection(str(tmp_path)) == ("192.0.2.1", "192.0.2.2")
    monkeypatch.setattr(management.os, "getpid", lambda: 10)
    assert management.ssh_connection(str(tmp_path)) is None


def test_a_lease_goes_on_and_gets_a_last_minute() -> None:
    state = collection_module("module_utils.interface_state")
    entry = {
        "family": "inet",
        "local": "192.0.2.5",
        "prefixlen": 24,
        "valid_life_time": 900,
        "preferred_life_time": 300,
    }
    assert state.address_words(entry, "eth1", 100.0)[-4:] == ["valid_lft", "800", "preferred_lft", "200"]
    assert state.address_words(entry, "eth1", 5000.0)[-4:] == ["valid_lft", "60", "preferred_lft", "0"]
    assert state.address_words(entry, "eth1") == ["192.0.2.5/24"]


def test_arguments_of_the_parameters_are_those_of_the_module() -> None:
    assert set(PARAMETERS) == set(collection_module("modules.network").ARGUMENTS)
    json.dumps(PARAMETERS)


LINE = '"interfaces": [{"name": "ppp9", "address": "10.9.0.1/24"}], "neighbours": [], "routes": []'
LINE_QUEUE = '"queues": [{"link": "l", "tap": "bq-ppp9", "interface": "ppp9"}]'


@pytest.mark.emulated
def test_check_mode_knows_the_lines_that_a_role_creates_before() -> None:
    out = on_host(
        f"""
export CHECK=1
network '{{{LINE}, "lines": ["ppp9"]}}'
network '{{"role": "queue_policy", "interfaces": [], "neighbours": [], "routes": [], {LINE_QUEUE}, "lines": ["ppp9"]}}'
network '{{{LINE}}}'
unset CHECK
network '{{{LINE}, "lines": ["ppp9"]}}'
"""
    )
    predicted, queue, unknown, missing = out.splitlines()
    assert (predicted, queue) == ("changed", "changed")
    for answer in (unknown, missing):
        assert answer.startswith("rejected: interface 'ppp9' does not exist")
