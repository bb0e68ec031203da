"""Which interfaces a gateway takes, its networks and its rules."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from testbed import gateway_rules as rules
from testbed.errors import TestbedError

DEFAULT = {"dst": "default", "dev": "eth0", "type": "unicast"}


def link(**more: Any) -> dict[str, Any]:
    return {"link_type": "ether", "addr_info": [], **more}


LINKS = {
    "eth0": link(),
    "eth1": link(),
    "ppp0": link(link_type="ppp"),
    "port": link(master="br0"),
    "lan": link(addr_info=[{"family": "inet", "local": "192.168.1.1"}]),
}


def rejection_reason(name: str, dhcp: bool = True, manager: str | None = None) -> str | None:
    return rules.rejection_reason(name, LINKS, [DEFAULT], {"eth2"} if name != "eth1" else (), manager, dhcp)


def test_a_free_interface_is_taken() -> None:
    assert rejection_reason("eth1") is None
    assert rejection_reason("lan", dhcp=False) is None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("eth0", "eth0 carries the default route"),
        ("eth9", "this machine has no interface 'eth9'; its interfaces: eth0, eth1, lan, port, ppp0"),
        ("ppp0", "ppp0 is not an Ethernet interface"),
        ("port", "port is a port of br0; name br0"),
        ("lan", "lan has the address 192.168.1.1"),
    ],
)
def test_other_interfaces_are_refused(name: str, sentence: str) -> None:
    assert sentence in (rejection_reason(name) or "")


def test_a_manager_and_the_ssh_connection_refuse_an_interface() -> None:
    assert rejection_reason("eth1", manager="another manages it") == "another manages it"
    assert "SSH connection" in str(rules.rejection_reason("eth1", LINKS, [DEFAULT], {"eth1"}, None, True))


def test_default_routes_of_several_hops_count() -> None:
    several: dict[str, Any] = {"dst": "default", "nexthops": [{"dev": "eth0"}, {"dev": "eth1"}]}
    assert rules.uplinks([several, {**DEFAULT, "type": "unreachable"}]) == ["eth0", "eth1"]


def test_networks_are_those_that_the_machine_does_not_use() -> None:
    found = rules.choose_networks([DEFAULT, {"dst": "192.168.0.0/16"}, {"dst": "198.18.0.1"}], None)
    assert (str(found.devices), str(found.link)) == ("10.77.77.0/24", "198.18.0.4/30")
    assert str(rules.choose_networks([], "10.1.0.0/24").devices) == "10.1.0.0/24"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("10.0.0.0/24", "the machine has a route to 10.0.0.0/8 already"),
        ("10.0.0.1/24", "is not an IPv4 network"),
        ("8.8.8.0/24", "use a private network"),
        ("192.168.0.0/30", "a prefix from /16 to /29"),
    ],
)
def test_a_bad_network_is_explained(wanted: str, sentence: str) -> None:
    with pytest.raises(TestbedError, match=sentence):
        rules.choose_networks([{"dst": "10.0.0.0/8"}], wanted)


def test_name_servers_of_the_first_file_with_one_that_others_can_use() -> None:
    local = "# systemd-resolved\nnameserver 127.0.0.53\nnameserver ::1\n"
    lan = "search lan\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"
    assert rules.name_servers([local, lan]) == ["192.0.2.1", "192.0.2.2"]
    assert rules.name_servers([local]) == []


def test_nothing_else_profits_from_forwarding_that_the_gateway_turned_on() -> None:
    networks = rules.choose_networks([], None)
    drops = 'iifname "eth0" oifname != "bc-gateway" drop; iifname "eth0" ct state new,invalid drop;'
    assert drops in rules.table(networks, ["eth0"])
    assert "iifname" not in rules.table(networks, [])


def test_chains_that_drop_forwarded_packets_are_found() -> None:
    chain = {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}
    others = [{**chain, "policy": "accept"}, {**chain, "hook": "input"}, {**chain, "family": "ip6"}]
    ruleset = {"nftables": [{"metainfo": {}}, *({"chain": entry} for entry in (chain, *others))]}
    assert rules.dropping_chains(ruleset, with_ipv6=False) == ["ip filter FORWARD"]
    assert rules.dropping_chains(ruleset, with_ipv6=True) == ["ip filter FORWARD", "ip6 filter FORWARD"]


def test_devices_get_ipv6_by_the_machines_default_route_and_their_network() -> None:
    network, small = ipaddress.IPv4Network("192.168.77.0/24"), ipaddress.IPv4Network("192.168.77.0/26")
    default = [{"dst": "default", "gateway": "fe80::1", "dev": "eth0"}]
    assert rules.without_ipv6(default, network, dhcp=True) is None
    assert rules.network_v6(network) == "2001:db8:c0a8:4d::/64"
    assert rules.without_ipv6([], network, dhcp=True) == "this machine has no default route of IPv6"
    assert "--no-dhcp" in str(rules.without_ipv6(default, network, dhcp=False))
    assert "192.168.77.0/26 is smaller" in str(rules.without_ipv6(default, small, dhcp=True))
