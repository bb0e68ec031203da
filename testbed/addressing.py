"""Addresses, interfaces and routes of a scenario: a pure function of its nodes and links.

Every link is a subnet of its own, every interface has a fixed MAC address, and neighbours are entered by hand: no ARP
or router discovery shares a 28.8 kbit/s line with the traffic under study.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import TestbedError

#: Linux interface names hold 15 characters; "-eth" and two digits leave nine for the node.
MAX_NODE_NAME = 9
MAX_INTERFACE_NAME = 15
#: Links whose subnets share a third byte.
_BLOCK = 250
MAX_LINKS = 200 * _BLOCK
DEFAULT_ROUTE = "0.0.0.0/0"


@dataclass(frozen=True)
class Interface:
    """One end of one link."""

    node: str
    link: str
    #: Which end of the link: 0, 1, ...
    end: int
    name: str
    address: str
    prefix: int
    mac: str


@dataclass(frozen=True)
class Route:
    """To reach `subnet` (CIDR) from a node, go to `via`."""

    subnet: str
    via: str
    interface: str


@dataclass(frozen=True)
class NodePlan:
    """Everything a node must be told."""

    name: str
    kind: str
    interfaces: tuple[Interface, ...]
    routes: tuple[Route, ...]
    #: (address, mac, interface) of everyone on its links.
    neighbours: tuple[tuple[str, str, str], ...]

    @property
    def address(self) -> str:
        """The address by which others reach it: that of its first interface."""
        return self.interfaces[0].address


@dataclass(frozen=True)
class Plan:
    """The whole network."""

    nodes: Mapping[str, NodePlan]
    #: Interfaces of each link, in the order of its ends.
    links: Mapping[str, tuple[Interface, ...]] = field(default_factory=dict)


def make_plan(nodes: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> Plan:
    """Addresses a scenario's network. Node and link dicts are the scenario's own (`name`, `kind`, `ends`).

    Raises:
        TestbedError: a name too long or twice used, a link end that is no node, a node without a link, or a network in
            two parts.
    """
    names = [node["name"] for node in nodes]
    for name in names:
        if len(name) > MAX_NODE_NAME:
            raise TestbedError(f"node '{name}': an emulated node's name has at most {MAX_NODE_NAME} characters")
    if len(links) > MAX_LINKS:
        raise TestbedError(f"{len(links)} links: one testbed takes at most {MAX_LINKS}")
    for kind, all_names in (("node", names), ("link", [link["name"] for link in links])):
        twice = sorted(name for name, times in Counter(all_names).items() if times > 1)
        if twice:
            raise TestbedError(f"{kind} '{twice[0]}' is defined twice")

    of_node: dict[str, list[Interface]] = {name: [] for name in names}
    of_link: dict[str, tuple[Interface, ...]] = {}
    for number, link in enumerate(links):
        ends = []
        block, place = divmod(number, _BLOCK)
        for end, node in enumerate(link["ends"]):
            if node not in of_node:
                raise TestbedError(f"link '{link['name']}' ends at '{node}', which is no node")
            interface = Interface(
                node=node,
                link=link["name"],
                end=end,
                name=f"{node}-eth{len(of_node[node])}",
                address=f"10.{place + 1}.{block}.{end + 1}",
                prefix=24,
                mac=f"02:bc:{block:02x}:{place + 1:02x}:00:{end + 1:02x}",
            )
            if len(interface.name) > MAX_INTERFACE_NAME:
                raise TestbedError(f"node '{node}' has too many links for its name: '{interface.name}' is too long")
            of_node[node].append(interface)
            ends.append(interface)
        of_link[link["name"]] = tuple(ends)

    kinds = {node["name"]: node["kind"] for node in nodes}
    linkless = [name for name in names if not of_node[name]]
    if linkless:
        raise TestbedError(f"node '{linkless[0]}' has no link: name it among the 'ends' of one, or take it out")
    one_way = frozenset(link["name"] for link in links if link.get("options", {}).get("one_way"))
    _check_connected(of_node, of_link, kinds)
    plans = {}
    for name in names:
        plans[name] = NodePlan(
            name=name,
            kind=kinds[name],
            interfaces=tuple(of_node[name]),
            routes=_routes(name, of_node, of_link, kinds, one_way),
            neighbours=tuple(
                (peer.address, peer.mac, own.name)
                for own in of_node[name]
                for peer in of_link[own.link]
                if peer is not own
            ),
        )
    return Plan(plans, of_link)


def subnet(interface: Interface) -> str:
    """The subnet an interface stands in, as CIDR."""
    return f"{interface.address.rsplit('.', 1)[0]}.0/{interface.prefix}"


def _routes(
    start: str,
    of_node: Mapping[str, Sequence[Interface]],
    of_link: Mapping[str, Sequence[Interface]],
    kinds: Mapping[str, str],
    one_way: frozenset[str],
) -> tuple[Route, ...]:
    """Shortest paths from `start`, in hops; hosts do not forward, and a one-way link leads from its first end alone.

    A host with one router needs no map of the network.
    """
    if kinds[start] == "host" and len(of_node[start]) == 1:
        (own,) = of_node[start]
        if own.link in one_way and own.end != 0:
            return ()
        routers = [peer for peer in of_link[own.link] if kinds[peer.node] != "host"]
        if len(routers) == 1 and len(of_link[own.link]) == 2:
            return (Route(DEFAULT_ROUTE, routers[0].address, own.name),)
    first_hop: dict[str, Interface] = {}
    own_interface: dict[str, str] = {}
    routes: dict[str, Route] = {}
    seen, queue = {start}, deque([start])
    while queue:
        node = queue.popleft()
        if node != start and kinds[node] == "host":
            continue
        for interface in of_node[node]:
            if interface.link in one_way and interface.end != 0:
                continue
            if node != start:
                routes.setdefault(
                    subnet(interface), Route(subnet(interface), first_hop[node].address, own_interface[node])
                )
            for peer in of_link[interface.link]:
                if peer.node in seen:
                    continue
                seen.add(peer.node)
                first_hop[peer.node] = peer if node == start else first_hop[node]
                own_interface[peer.node] = interface.name if node == start else own_interface[node]
                queue.append(peer.node)
    on_link = {subnet(interface) for interface in of_node[start]}
    return tuple(route for key, route in routes.items() if key not in on_link)


def _check_connected(
    of_node: Mapping[str, Sequence[Interface]],
    of_link: Mapping[str, Sequence[Interface]],
    kinds: Mapping[str, str],
) -> None:
    """Raises TestbedError for a network in two parts. Hosts do not forward; one-way links join both ways here."""
    start = next((node for node in of_node if kinds[node] != "host"), next(iter(of_node)))
    seen, queue = {start}, deque([start])
    while queue:
        node = queue.popleft()
        if node != start and kinds[node] == "host":
            continue
        for interface in of_node[node]:
            new = [peer.node for peer in of_link[interface.link] if peer.node not in seen]
            seen.update(new)
            queue.extend(new)
    lost = sorted(set(of_node) - seen)
    if lost:
        raise TestbedError(f"'{start}' and '{lost[0]}' are not connected: a link between their two parts is missing")


def way(plan: Plan, node: str, address: str) -> tuple[Interface, Interface]:
    """By which interface a node reaches an address, and the next hop's.

    Raises:
        TestbedError: it does not.
    """
    own = plan.nodes[node]
    to = ipaddress.ip_address(address)
    ends = {end.address: end for ends in plan.links.values() for end in ends}
    for interface in own.interfaces:
        if to in ipaddress.ip_network(subnet(interface)):
            return interface, ends[address]
    for route in own.routes:
        if to in ipaddress.ip_network(route.subnet):
            return next(one for one in own.interfaces if one.name == route.interface), ends[route.via]
    raise TestbedError(f"'{node}' has no way to {address}")


def ip_batch(node: NodePlan) -> list[str]:
    """Lines for `ip -batch` that make a node what the plan says."""
    lines = ["link set lo up"]
    for interface in node.interfaces:
        lines += [
            f"address replace {interface.address}/{interface.prefix} dev {interface.name}",
            f"link set {interface.name} up",
        ]
    for address, mac, name in node.neighbours:
        lines.append(f"neighbour replace {address} lladdr {mac} dev {name} nud permanent")
    for route in node.routes:
        lines.append(f"route replace {route.subnet} via {route.via} dev {route.interface}")
    return lines


def interfaces(plan: Plan) -> list[dict[str, Any]]:
    """Every interface of a network, for reports: node, interface, link, end, address."""
    return [
        {"node": end.node, "interface": end.name, "link": end.link, "end": end.end, "address": end.address}
        for ends in plan.links.values()
        for end in ends
    ]


def as_json(plan: Plan) -> dict[str, Any]:
    """A network as the simulator takes it: per node its interfaces and routes."""
    return {
        name: {
            "interfaces": [
                {"name": end.name, "link": end.link, "end": end.end, "address": end.address} for end in node.interfaces
            ],
            "routes": [
                {"subnet": route.subnet, "via": route.via, "interface": route.interface} for route in node.routes
            ],
        }
        for name, node in plan.nodes.items()
    }
