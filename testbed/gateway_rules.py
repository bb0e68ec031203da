"""What a gateway may take on a machine, and the addresses and firewall rules that it needs: pure functions.

Entries are those of `ip -json`, as the collection's `KernelState` reads them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.addressing import subnet_over_ipv6
from testbed.errors import TestbedError

#: The machine's end of the pair of interfaces between the machine and the line, and its table of nftables.
LINK, TABLE = "bc-gateway", "backchannel-gateway"
#: The gateway's interface towards the devices, in the near node, and towards the machine, in the far one.
DEVICES, UPLINK = "devices", "uplink"
#: Networks for the devices, in order of preference.
DEVICE_NETWORKS = ("192.168.77.0/24", "10.77.77.0/24", "172.27.77.0/24")
#: Range for the pair of interfaces (RFC 2544).
LINK_RANGE = ipaddress.IPv4Network("198.18.0.0/24")
#: Prefix lengths that a network for devices may have: room for some, and no more than a site's network.
SHORTEST, LONGEST = 16, 29
#: systemd-resolved's own file, where /etc/resolv.conf names its local address only.
RESOLV_CONF = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")

Links = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Networks:
    """Addresses of a gateway."""

    #: Of the devices; the gateway has its first address.
    devices: ipaddress.IPv4Network
    #: Between machine and line: the machine has the first address, the line's far node the second.
    link: ipaddress.IPv4Network

    def over_ipv6(self) -> tuple[str, str]:
        """Both under IPv6, as CIDR: as the line's own networks (testbed.addressing)."""
        return network_v6(self.devices), network_v6(self.link)


def network_v6(network: ipaddress.IPv4Network) -> str:
    """The network of 64 bits that has the addresses of one of IPv4, as CIDR."""
    return subnet_over_ipv6(str(ipaddress.ip_network(f"{network[0]}/24", strict=False)))


def without_ipv6(routes_v6: Sequence[Mapping[str, Any]], devices: ipaddress.IPv4Network, dhcp: bool) -> str | None:
    """Why devices get no IPv6, as the end of a sentence; None if they do.

    Args:
        routes_v6: of IPv6, of all tables.
        devices: their network.
        dhcp: whether the gateway gives addresses to the devices.
    """
    if not dhcp:
        return "because of --no-dhcp nothing advertises a router to them"
    if not uplinks(routes_v6):
        return "this machine has no default route of IPv6"
    # The way of a device's own address is told by its network's first 24 bits (analysis/audit).
    return None if devices.prefixlen <= 24 else f"{devices} is smaller than a network of IPv6"


def uplinks(routes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Interfaces with a default route, in the kernel's order.

    Args:
        routes: of one version of IP, of all tables.
    """
    addresses: dict[str, None] = {}
    for route in routes:
        if route["dst"] == "default" and route.get("type", "unicast") == "unicast":
            hops = [route.get("dev"), *(hop.get("dev") for hop in route.get("nexthops", []))]
            addresses |= dict.fromkeys(hop for hop in hops if hop)
    return list(addresses)


def rejection_reason(
    name: str, links: Links, routes: Sequence[Mapping[str, Any]], ssh: Iterable[str], manager: str | None, dhcp: bool
) -> str | None:
    """Why a gateway must not take an interface, as a sentence with the remedy; None if it can.

    Args:
        name: of the interface.
        links: of the machine.
        routes: of IPv4, of all tables.
        ssh: interfaces that carry the SSH connection of this terminal.
        manager: why the interface belongs to another program; None: it does not.
        dhcp: whether the gateway gives addresses to the devices.
    """
    link = links.get(name)
    if link is None:
        known = ", ".join(sorted(set(links) - {"lo"})) or "none"
        return f"this machine has no interface '{name}'; its interfaces: {known}"
    if name == LINK:
        return f"{LINK} belongs to a gateway itself; name the interface that the device is connected to"
    if name in ssh:
        return f"{name} carries the SSH connection of this terminal; name the interface that the device is connected to"
    if name in uplinks(routes):
        return f"{name} carries the default route, by which devices reach the internet; name the interface behind it"
    if link.get("link_type") != "ether":
        return f"{name} is not an Ethernet interface ({link.get('link_type')}), so no device can be connected to it"
    if link.get("master"):
        return f"{name} is a port of {link['master']}; name {link['master']}, or take it out first"
    if manager is not None:
        return manager
    own = [entry["local"] for entry in link.get("addr_info", []) if entry["family"] == "inet"]
    if dhcp and own:
        return (
            f"{name} has the address {own[0]}, so there is a network on it already, and a second DHCP server would "
            f"disturb that: remove the address ('ip address flush dev {name}'), or use --no-dhcp and set the device's "
            "address by hand"
        )
    return None


def choose_networks(routes: Iterable[Mapping[str, Any]], wanted: str | None) -> Networks:
    """Networks that no route of the machine leads to.

    Args:
        routes: of IPv4, of all tables.
        wanted: network for the devices, as CIDR; None: any.

    Raises:
        TestbedError: the wanted one is invalid or in use, or none is free.
    """
    taken = {
        route["dst"]: ipaddress.IPv4Network(route["dst"], strict=False)
        for route in routes
        if route["dst"] not in ("default", "0.0.0.0/0")
    }

    def user(network: ipaddress.IPv4Network) -> str | None:
        return next((text for text, other in taken.items() if network.overlaps(other)), None)

    link = next((network for network in LINK_RANGE.subnets(new_prefix=30) if user(network) is None), None)
    if link is None:
        raise TestbedError(f"the machine has routes to all of {LINK_RANGE}, of which a gateway needs four addresses")
    if wanted is not None:
        devices = _network(wanted)
        if (other := user(devices)) is not None:
            raise TestbedError(f"--subnet {wanted}: the machine has a route to {other} already; choose another network")
        return Networks(devices, link)
    for text in DEVICE_NETWORKS:
        if user(network := ipaddress.IPv4Network(text)) is None:
            return Networks(network, link)
    raise TestbedError(
        f"the machine has routes to {', '.join(DEVICE_NETWORKS)}; choose a network for the devices with --subnet"
    )


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        raise TestbedError(f"--subnet {text} is not an IPv4 network; write one like 192.168.77.0/24") from None
    if not SHORTEST <= network.prefixlen <= LONGEST or not network.is_private:
        raise TestbedError(
            f"--subnet {text}: use a private network with a prefix from /{SHORTEST} to /{LONGEST}, like 192.168.77.0/24"
        )
    return network


def name_servers(texts: Iterable[str]) -> list[str]:
    """IPv4 name servers that other hosts can use, of the first file that has some.

    Args:
        texts: of files like /etc/resolv.conf.
    """
    for text in texts:
        servers = []
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == "nameserver" and _is_usable(words[1]):
                servers.append(words[1])
        if servers:
            return servers
    return []


def _is_usable(text: str) -> bool:
    try:
        return not ipaddress.IPv4Address(text).is_loopback
    except ValueError:
        return False


def table(networks: Networks, turned_on: Iterable[str]) -> str:
    """Rules of nftables: the devices have the machine's address outside, and only their connections are forwarded.

    The table belongs to the program that adds it, and the kernel removes it with that program.

    Args:
        networks: of the gateway.
        turned_on: interfaces for which the gateway turned forwarding on. Nothing else may profit from that.
    """
    forward = []
    for name in turned_on:
        forward.append(f'iifname "{name}" oifname != "{LINK}" drop')
        forward.append(f'iifname "{name}" ct state new,invalid drop')
    chains = [
        "chain postrouting { type nat hook postrouting priority srcnat;"
        f' ip saddr {{ {networks.devices}, {networks.link} }} oifname != "{LINK}" masquerade; }};',
        f"chain forward {{ type filter hook forward priority filter; {' '.join(f'{rule};' for rule in forward)} }};",
    ]
    return f"add table ip {TABLE} {{ flags owner; {' '.join(chains)} }}\n"


def table_v6(networks: Networks, turned_on: bool) -> str:
    """The same for IPv6.

    Args:
        networks: of the gateway.
        turned_on: the gateway turned forwarding on, which the kernel has for all interfaces only. Nothing else may
            profit from that.
    """
    devices, link = networks.over_ipv6()
    forward = (
        f'iifname != "{LINK}" oifname != "{LINK}" drop; iifname != "{LINK}" ct state new,invalid drop;'
        if turned_on
        else ""
    )
    return (
        f"add table ip6 {TABLE} {{ flags owner; chain postrouting {{ type nat hook postrouting priority srcnat;"
        f' ip6 saddr {{ {devices}, {link} }} oifname != "{LINK}" masquerade; }}; '
        f"chain forward {{ type filter hook forward priority filter; {forward} }}; }}\n"
    )


def dropping_chains(ruleset: Mapping[str, Any], with_ipv6: bool) -> list[str]:
    """Chains of the machine's own firewall that drop what no rule of theirs accepts, among forwarded packets.

    Args:
        ruleset: of `nft -json list chains`.
        with_ipv6: those for IPv6 alone count too.
    """
    families = ("ip", "inet", "ip6") if with_ipv6 else ("ip", "inet")
    chains = []
    for entry in ruleset.get("nftables", []):
        chain = entry.get("chain", {})
        if chain.get("hook") == "forward" and chain.get("policy") == "drop" and chain.get("family") in families:
            chains.append(f"{chain['family']} {chain['table']} {chain['name']}")
    return chains
