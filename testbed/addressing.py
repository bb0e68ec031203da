"""Addresses, interfaces and routes of a scenario: a pure function of its nodes and links.

Every link is a subnet, every interface has a fixed MAC address, and neighbour entries are static. No ARP, neighbour or
router discovery shares a 28.8 kbit/s line with the traffic under study.

Plans have IPv4 addresses. The IPv6 address of an interface follows from its IPv4 address (`ipv6_of`), and routes of
both versions take the same ways.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.errors import TestbedError
from testbed.report import InterfaceReport
from testbed.scenario import LinkSpec, Node, RouteSpec

#: Linux interface names hold 15 characters; "-eth" and two digits leave nine for the node.
MAX_NODE_NAME = 9
MAX_INTERFACE_NAME = 15
#: Links whose subnets share a third byte.
_BLOCK = 250
MAX_LINKS = 200 * _BLOCK
DEFAULT_ROUTE = "0.0.0.0/0"
#: First 32 bits of every IPv6 address: the prefix for documentation (RFC 3849).
_PREFIX_V6 = 0x20010DB8
PREFIX_LENGTH_V6 = 64
#: What a declared route leads to if not to a node: every address that the node has no other route for.
DEFAULT = "default"


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
    #: Address that the node's own packets have; empty: the kernel chooses that of the interface.
    source: str = ""


@dataclass(frozen=True)
class NodePlan:
    """A node's interfaces, routes and neighbours."""

    name: str
    kind: str
    interfaces: tuple[Interface, ...]
    routes: tuple[Route, ...]
    #: Address, MAC address and own interface for each neighbour on its links.
    neighbours: tuple[tuple[str, str, str], ...]

    @property
    def address(self) -> str:
        """The address by which other nodes reach it: that of its first interface."""
        return self.interfaces[0].address

    def address_over(self, ip: int) -> str:
        """The same over a version of IP, 4 or 6."""
        return over(self.address, ip)


@dataclass(frozen=True)
class Plan:
    """A network."""

    nodes: Mapping[str, NodePlan]
    #: Interfaces of each link, in the order of its ends.
    links: Mapping[str, tuple[Interface, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Which interfaces of which nodes meet on which links."""

    of_node: Mapping[str, Sequence[Interface]]
    of_link: Mapping[str, Sequence[Interface]]
    #: Kind of each node.
    kinds: Mapping[str, str]
    #: Links that lead from their first end only.
    one_way: frozenset[str]

    def sends(self, own: Interface) -> bool:
        """Whether packets can leave by this interface."""
        return own.link not in self.one_way or own.end == 0


def make_plan(nodes: Sequence[Node], links: Sequence[LinkSpec]) -> Plan:
    """Assigns addresses and routes to a scenario's nodes and links.

    Raises:
        TestbedError: a name is too long or used twice, a link ends at an unknown node, a node has no link, the
            network is not connected, or a route leads nowhere.
    """
    names = [node.name for node in nodes]
    for name in names:
        if len(name) > MAX_NODE_NAME:
            raise TestbedError(f"node '{name}': an emulated node's name has at most {MAX_NODE_NAME} characters")
    if len(links) > MAX_LINKS:
        raise TestbedError(f"{len(links)} links: one testbed takes at most {MAX_LINKS}")
    for kind, all_names in (("node", names), ("link", [link.name for link in links])):
        repeated = sorted(name for name, times in Counter(all_names).items() if times > 1)
        if repeated:
            raise TestbedError(f"{kind} '{repeated[0]}' is defined twice")

    of_node: dict[str, list[Interface]] = {name: [] for name in names}
    of_link: dict[str, tuple[Interface, ...]] = {}
    for number, link in enumerate(links):
        ends = []
        block, place = divmod(number, _BLOCK)
        for end, node in enumerate(link.ends):
            if node not in of_node:
                raise TestbedError(f"link '{link.name}' ends at '{node}', which is not a node")
            interface = Interface(
                node=node,
                link=link.name,
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
        of_link[link.name] = tuple(ends)

    kinds: dict[str, str] = {node.name: node.kind for node in nodes}
    linkless = [name for name in names if not of_node[name]]
    if linkless:
        raise TestbedError(f"node '{linkless[0]}' has no link: name it among the 'ends' of one, or take it out")
    graph = Graph(of_node, of_link, kinds, one_way_links(links))
    _check_connected(graph)
    plans = {}
    declared = {node.name: _declared(node, graph) for node in nodes}
    for name in names:
        plans[name] = NodePlan(
            name=name,
            kind=kinds[name],
            interfaces=tuple(of_node[name]),
            routes=_together(declared[name], _routes(name, graph)),
            neighbours=tuple(
                (peer.address, peer.mac, interface.name)
                for interface in of_node[name]
                for peer in of_link[interface.link]
                if peer is not interface
            ),
        )
    return Plan(plans, of_link)


def one_way_links(links: Sequence[LinkSpec]) -> frozenset[str]:
    """Names of the links that lead from their first end only."""
    return frozenset(link.name for link in links if link.one_way)


def subnet(interface: Interface) -> str:
    """The subnet of an interface, as CIDR."""
    return f"{interface.address.rsplit('.', 1)[0]}.0/{interface.prefix}"


def _routes(start: str, graph: Graph) -> tuple[Route, ...]:
    """Shortest paths in hops. Hosts do not forward, and a one-way link leads from its first end only.

    A host whose one link leads to one router gets a default route.
    """
    of_node, of_link, kinds = graph.of_node, graph.of_link, graph.kinds
    if kinds[start] == "host" and len(of_node[start]) == 1:
        (only,) = of_node[start]
        if not graph.sends(only):
            return ()
        routers = [peer for peer in of_link[only.link] if kinds[peer.node] != "host"]
        if len(routers) == 1 and len(of_link[only.link]) == 2:
            return (Route(DEFAULT_ROUTE, routers[0].address, only.name),)
    first_hop: dict[str, Interface] = {}
    first_interface: dict[str, str] = {}
    routes: dict[str, Route] = {}
    for interface, peers in _breadth_first(start, graph, graph.sends):
        node = interface.node
        if node != start:
            routes.setdefault(
                subnet(interface), Route(subnet(interface), first_hop[node].address, first_interface[node])
            )
        for peer in peers:
            first_hop[peer.node] = peer if node == start else first_hop[node]
            first_interface[peer.node] = interface.name if node == start else first_interface[node]
    on_link = {subnet(interface) for interface in of_node[start]}
    return tuple(route for key, route in routes.items() if key not in on_link)


def _breadth_first(
    start: str, graph: Graph, passes: Callable[[Interface], bool]
) -> Iterator[tuple[Interface, list[Interface]]]:
    """Interfaces through which packets from `start` can leave, each with those of nodes that it is the first to reach.

    The nearest come first. Hosts do not forward.
    """
    seen, queue = {start}, deque([start])
    while queue:
        node = queue.popleft()
        if node != start and graph.kinds[node] == "host":
            continue
        for interface in filter(passes, graph.of_node[node]):
            new = []
            for peer in graph.of_link[interface.link]:
                if peer.node not in seen:
                    seen.add(peer.node)
                    queue.append(peer.node)
                    new.append(peer)
            yield interface, new


def _together(declared: Sequence[Route], shortest: Sequence[Route]) -> tuple[Route, ...]:
    """Declared routes, and the shortest ones to all else."""
    subnets = {route.subnet for route in declared}
    return (*declared, *(route for route in shortest if route.subnet not in subnets))


def _declared(node: Node, graph: Graph) -> list[Route]:
    """The routes that the scenario states for a node: one to each address of the other node, or a default route.

    Raises:
        TestbedError: a route names a node or link that does not exist, or a neighbour that cannot get its packets.
    """
    routes: list[Route] = []
    for number, spec in enumerate(node.routes):
        problem = route_problem(number, node, graph)
        if problem is not None:
            raise TestbedError(f"node '{node.name}': {problem[1]}")
        ((own, peer),) = _ways(spec, node.name, graph)
        targets = [DEFAULT_ROUTE] if spec.to == DEFAULT else [f"{end.address}/32" for end in graph.of_node[spec.to]]
        # A host has one address by which others reach it, whichever link its packets take.
        source = graph.of_node[node.name][0].address if node.kind == "host" else ""
        routes += [Route(target, peer.address, own.name, source) for target in targets]
    return sorted(routes, key=lambda route: route.subnet == DEFAULT_ROUTE)


def route_problem(number: int, node: Node, graph: Graph) -> tuple[str, str] | None:
    """The field of a node's route that is wrong, and why as a sentence; None for a good route."""
    spec, of_node, of_link = node.routes[number], graph.of_node, graph.of_link
    names = ", ".join(of_node)
    if spec.to != DEFAULT and spec.to not in of_node:
        return "to", f"unknown destination '{spec.to}'; allowed: {DEFAULT}, {names}"
    if spec.to == node.name:
        return "to", "a route of a node cannot lead to the node itself"
    if spec.to in [earlier.to for earlier in node.routes[:number]]:
        return "to", f"there are two routes to '{spec.to}'; remove one"
    neighbours = sorted({peer.node for own in of_node[node.name] for peer in of_link[own.link]} - {node.name})
    if spec.via not in neighbours:
        return "via", f"'{spec.via}' is not a neighbour of {node.name}; its neighbours are: {', '.join(neighbours)}"
    if graph.kinds[spec.via] == "host" and spec.via != spec.to:
        return "via", f"'{spec.via}' is a host, and hosts do not forward packets"
    between = [own.link for own in of_node[node.name] if spec.via in [peer.node for peer in of_link[own.link]]]
    if spec.link is None and len(between) > 1:
        return "via", f"several links lead to '{spec.via}': add 'link', one of {', '.join(between)}"
    if spec.link is not None and spec.link not in between:
        return "link", f"'{spec.link}' does not lead to '{spec.via}'; links that do are: {', '.join(between)}"
    if not _ways(spec, node.name, graph):
        return "via", f"the link to '{spec.via}' is one-way, and leads from there to {node.name}"
    return None


def _ways(spec: RouteSpec, node: str, graph: Graph) -> list[tuple[Interface, Interface]]:
    """The node's interface and the neighbour's, for each link that a route may mean."""
    return [
        (own, peer)
        for own in graph.of_node[node]
        for peer in graph.of_link[own.link]
        if peer.node == spec.via and spec.link in (None, own.link) and graph.sends(own)
    ]


def _check_connected(graph: Graph) -> None:
    """Raises TestbedError for a network in two parts. Hosts do not forward; one-way links count in both ways."""
    nodes = graph.of_node
    start = next((node for node in nodes if graph.kinds[node] != "host"), next(iter(nodes)))
    reached = {peer.node for _, peers in _breadth_first(start, graph, lambda _: True) for peer in peers}
    lost = sorted(set(nodes) - reached - {start})
    if lost:
        raise TestbedError(
            f"'{start}' and '{lost[0]}' are not connected: add a link between their parts of the network"
        )


def ipv6_of(address: str) -> str:
    """The IPv6 address of the interface with an IPv4 address (core::ip::ipv6_of): 2001:db8:a01::2 for 10.1.0.2."""
    a, b, c, d = ipaddress.IPv4Address(address).packed
    return str(ipaddress.IPv6Address(_PREFIX_V6 << 96 | (a << 8 | b) << 80 | c << 64 | d))


def over(address: str, ip: int) -> str:
    """An interface's address over a version of IP, 4 or 6, from that over IPv4."""
    return ipv6_of(address) if ip == 6 else address


def both(address: str) -> tuple[str, ...]:
    """An interface's addresses over both versions; one that is not of IPv4, or is empty, has no other."""
    return (address, ipv6_of(address)) if "." in address and ":" not in address else (address,)


def with_port(address: str, port: int) -> str:
    """ADDRESS:PORT, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def addresses_of(interfaces: Iterable[InterfaceReport]) -> dict[str, list[str]]:
    """Node to the addresses of its interfaces in a report, over both versions of IP."""
    by_node: dict[str, list[str]] = {}
    for interface in interfaces:
        by_node.setdefault(interface.node, []).extend(both(interface.address))
    return by_node


def next_hop(plan: Plan, node: str, address: str) -> tuple[Interface, Interface]:
    """The interface through which a node reaches an address, and the interface of the next hop.

    Raises:
        TestbedError: the node has no route to it.
    """
    start = plan.nodes[node]
    target = ipaddress.ip_address(address)
    ends = {end.address: end for ends in plan.links.values() for end in ends}
    for route in start.routes:
        # The longest prefix decides: a declared route to one address, before a link on which the address is.
        if route.subnet == f"{address}/32":
            return next(end for end in start.interfaces if end.name == route.interface), ends[route.via]
    for interface in start.interfaces:
        if target in ipaddress.ip_network(subnet(interface)):
            return interface, ends[address]
    for route in start.routes:
        if target in ipaddress.ip_network(route.subnet):
            return next(end for end in start.interfaces if end.name == route.interface), ends[route.via]
    raise TestbedError(f"node '{node}' has no route to {address}")


def ip_batch(node: NodePlan) -> list[str]:
    """Lines for `ip -batch` that give a node its addresses, neighbours and routes."""
    lines = ["link set lo up"]
    for interface in node.interfaces:
        lines += [
            f"address replace {interface.address}/{interface.prefix} dev {interface.name}",
            f"link set {interface.name} up",
        ]
    for address, mac, name in node.neighbours:
        lines.append(f"neighbour replace {address} lladdr {mac} dev {name} nud permanent")
    for route in node.routes:
        lines.append(route_line(route))
    return lines


def ipv6_batch(node: NodePlan) -> list[str]:
    """The same for IPv6. Addresses are usable at once: no other node can have them."""
    lines = [
        f"address replace {ipv6_of(end.address)}/{PREFIX_LENGTH_V6} dev {end.name} nodad" for end in node.interfaces
    ]
    lines += [
        f"neighbour replace {ipv6_of(address)} lladdr {mac} dev {name} nud permanent"
        for address, mac, name in node.neighbours
    ]
    return [*lines, *(route_line(over_ipv6(route)) for route in node.routes)]


def over_ipv6(route: Route) -> Route:
    """A route over IPv6."""
    source = ipv6_of(route.source) if route.source else ""
    return Route(subnet_over_ipv6(route.subnet), ipv6_of(route.via), route.interface, source)


def subnet_over_ipv6(subnet: str) -> str:
    """The same subnet over IPv6: those of links have /64, a single address /128."""
    network = ipaddress.IPv4Network(subnet)
    length = network.prefixlen
    if length == 0:
        return "::/0"
    address = ipv6_of(str(network.network_address))
    # The first two bytes are one group of the address, the third and the fourth have a group each.
    return f"{address}/{128 if length == 32 else length + 32 if length <= 16 else length + 40}"


def both_versions(node: NodePlan) -> NodePlan:
    """The node with the neighbours and routes of both versions of IP. Its interfaces keep their IPv4 addresses."""
    neighbours = ((ipv6_of(address), mac, name) for address, mac, name in node.neighbours)
    return replace(
        node, routes=(*node.routes, *map(over_ipv6, node.routes)), neighbours=(*node.neighbours, *neighbours)
    )


def controller_routes(node: NodePlan, controller: str, ip: int = 4) -> list[str]:
    """Lines for `ip -batch`: a node's routes with a congestion controller, for programs that choose none.

    A sysctl would need the controller to be allowed on the whole machine; routes need nothing.
    """
    if ip == 6:
        ends = [(ipv6_of(end.address), end.name) for end in node.interfaces]
        to_links = [
            f"route replace {ipaddress.ip_interface(f'{address}/{PREFIX_LENGTH_V6}').network} dev {name} proto kernel "
            f"src {address} congctl {controller}"
            for address, name in ends
        ]
        return [*to_links, *(f"{route_line(over_ipv6(route))} congctl {controller}" for route in node.routes)]
    connected = [
        f"route replace {subnet(end)} dev {end.name} proto kernel scope link src {end.address} congctl {controller}"
        for end in node.interfaces
    ]
    return [*connected, *(f"{route_line(route)} congctl {controller}" for route in node.routes)]


def route_line(route: Route) -> str:
    """A route as a line for `ip -batch`."""
    source = f" src {route.source}" if route.source else ""
    return f"route replace {route.subnet} via {route.via} dev {route.interface}{source}"


def interfaces(plan: Plan) -> tuple[InterfaceReport, ...]:
    """Every interface of a network, for reports."""
    return tuple(
        InterfaceReport(node=end.node, interface=end.name, link=end.link, end=end.end, address=end.address)
        for ends in plan.links.values()
        for end in ends
    )


def as_json(plan: Plan, more: Mapping[str, Sequence[Route]] | None = None) -> dict[str, Any]:
    """A network as `backchannel-node simulate` and `audit` read it: interfaces and routes of each node."""
    return {
        name: {
            "interfaces": [
                {"name": end.name, "link": end.link, "end": end.end, "address": end.address} for end in node.interfaces
            ],
            "routes": [
                {"subnet": route.subnet, "via": route.via, "interface": route.interface}
                for route in (*node.routes, *(more or {}).get(name, ()))
            ],
        }
        for name, node in plan.nodes.items()
    }
