"""Which host plays which node, and where each link is: a lab held against a scenario. Pure; files are read elsewhere.

A lab is a set of hosts (machines reached over SSH, or namespaces of a cell). A node of the scenario is played by one
host. A link is either emulated by a link box, a host of its own with an interface for every end of the link, or real: a
wire, a modem or a radio that nobody emulates and runs only measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, ip_address
from typing import Any

from agents.kernel import ROUTER_BASE, TCP_BASE
from testbed import addressing, kernel_links
from testbed.errors import TestbedError

#: What a link can be where nobody emulates it.
REAL = ("wire", "modem", "radio")
#: Address ranges that a testbed can use, and how link number n's subnet begins in each.
RANGES = {"10.0.0.0/8": 50_000, "198.18.0.0/15": 512}
#: Link kinds that stand for a radio; every other is a modem's.
RADIO_KINDS = frozenset({"ricochet", "wavelan"})
GROUP_OF_KIND = {"host": "endpoints", "router": "routers", "base-station": "base_stations"}
#: The TAP behind which our queue stands, in front of a real interface.
QUEUE_PREFIX = "bq-"


@dataclass(frozen=True)
class Host:
    """One machine, or one namespace that stands for one."""

    name: str
    #: Where SSH finds it; unused for namespaces.
    address: str = ""
    port: int = 22
    #: The node it plays; None for a link box.
    plays: str | None = None
    #: Link to interface, where it is not called as in an emulated testbed.
    interfaces: Mapping[str, str] = field(default_factory=dict)
    #: What else it is: worker, results-site.
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spot:
    """Where one link is: `box` with its interfaces in the order of the link's ends, or `real`."""

    link: str
    box: str | None = None
    interfaces: tuple[str, ...] = ()
    real: str | None = None
    #: Node in which our queue policy stands in front of a real link.
    queue_at: str | None = None


@dataclass(frozen=True)
class Placement:
    """A scenario's network on a lab. `plan` has the hosts' own interface names."""

    plan: addressing.Plan
    hosts: Mapping[str, Host]
    spots: Mapping[str, Spot]
    #: Node to host name.
    players: Mapping[str, str]
    kinds: Mapping[str, str]

    def boxes(self) -> list[str]:
        """Hosts that emulate links, in order of the links."""
        return list(dict.fromkeys(spot.box for spot in self.spots.values() if spot.box is not None))

    def members(self) -> list[str]:
        """Every host that takes part in a run: players, then boxes."""
        return [*self.players.values(), *self.boxes()]


def place(
    hosts: Sequence[Host],
    spots: Sequence[Spot],
    nodes: Sequence[Mapping[str, Any]],
    links: Sequence[Mapping[str, Any]],
    addresses: str = "10.0.0.0/8",
) -> Placement:
    """Holds a lab against a scenario's nodes and links.

    Args:
        hosts: the lab's.
        spots: where links are; each of the scenario's must have one.
        nodes: the scenario's.
        links: the scenario's.
        addresses: range of the experiment's own addresses, one of RANGES.

    Raises:
        TestbedError: a node without host, two hosts for one, a link that is nowhere, an interface used twice, addresses
            that overlap with those by which hosts are reached; or what addressing.make_plan refuses.
    """
    plan = addressing.make_plan(nodes, links)
    players = _players(hosts, [node["name"] for node in nodes])
    by_name = {host.name: host for host in hosts}
    by_link = {spot.link: spot for spot in spots}
    unknown = [spot.link for spot in spots if spot.link not in plan.links]
    if unknown:
        raise TestbedError(f"links: there is no link '{unknown[0]}' in this topology; there are: {_list(plan.links)}")
    kernels = [link["name"] for link in links if link["kind"] == kernel_links.KIND]
    for link, ends in plan.links.items():
        spot = by_link.get(link)
        if link in kernels and (spot is None or spot.real != "wire" or spot.queue_at is not None):
            raise TestbedError(
                f"link '{link}' is of kind 'kernel': the hosts at its ends shape it themselves, over a wire between "
                "them; say 'real: wire' of it in 'links', and nothing else"
            )
        _check_spot(link, ends, spot, by_name, players)
    taken = _taken(addresses, len(links))
    plan = _with_own_names(_without_default_routes(_renumbered(plan, addresses), taken), by_name, players, by_link)
    _check_interfaces(plan, by_name, players, by_link)
    _check_reach(hosts, addresses, taken)
    return Placement(plan, by_name, by_link, players, {node["name"]: node["kind"] for node in nodes})


def _players(hosts: Sequence[Host], nodes: Sequence[str]) -> dict[str, str]:
    for key, what in (("name", "are called"), ("address", "have the address")):
        values = Counter(getattr(host, key) if key == "name" else (host.address, host.port) for host in hosts)
        for value, times in values.items():
            if times > 1 and value != ("", 22):
                shown = value if isinstance(value, str) else value[0]
                raise TestbedError(f"hosts: {times} hosts {what} '{shown}'; each machine is one host")
    players: dict[str, str] = {}
    for host in hosts:
        if host.plays is None:
            continue
        if host.plays not in nodes:
            raise TestbedError(f"host {host.name} plays '{host.plays}', which is no node; there are: {_list(nodes)}")
        if host.plays in players:
            raise TestbedError(f"hosts {players[host.plays]} and {host.name} both play '{host.plays}'; one must not")
        players[host.plays] = host.name
    for node in nodes:
        if node not in players:
            raise TestbedError(f"no host plays node '{node}'; add 'plays: {node}' to one under 'hosts'")
    return {node: players[node] for node in nodes}


def _check_spot(
    link: str,
    ends: Sequence[addressing.Interface],
    spot: Spot | None,
    hosts: Mapping[str, Host],
    players: Mapping[str, str],
) -> None:
    if spot is None or (spot.box is None) == (spot.real is None):
        raise TestbedError(
            f"link '{link}' is nowhere: give it a 'box' that emulates it, or 'real' ({_list(REAL)}), in 'links'"
        )
    if spot.real is not None:
        if spot.queue_at is not None and spot.queue_at not in [end.node for end in ends]:
            raise TestbedError(f"link '{link}': 'queue_at' is '{spot.queue_at}', but it ends at {_list_ends(ends)}")
        return
    if spot.box is None or spot.box not in hosts:
        raise TestbedError(f"link '{link}': its box '{spot.box}' is no host; there are: {_list(hosts)}")
    if hosts[spot.box].plays is not None:
        raise TestbedError(f"link '{link}': host {spot.box} plays a node and cannot be its link box as well")
    if spot.queue_at is not None:
        raise TestbedError(f"link '{link}': 'queue_at' is for real links; an emulated one has its queues in its box")
    if spot.interfaces and len(spot.interfaces) != len(ends):
        raise TestbedError(f"link '{link}' has {len(ends)} ends, but box {spot.box} has {len(spot.interfaces)} for it")


def box_interfaces(plan: addressing.Plan, spot: Spot) -> tuple[str, ...]:
    """A box's interfaces for a link: as named, or lNeE for end E of link number N."""
    number = list(plan.links).index(spot.link)
    return spot.interfaces or tuple(f"l{number}e{end.end}" for end in plan.links[spot.link])


def _renumbered(plan: addressing.Plan, addresses: str) -> addressing.Plan:
    if addresses not in RANGES:
        raise TestbedError(f"addresses: '{addresses}' is not possible; there are: {_list(RANGES)}")
    if len(plan.links) > RANGES[addresses]:
        raise TestbedError(
            f"addresses: {addresses} has room for {RANGES[addresses]} links; there are {len(plan.links)}"
        )
    if addresses == "10.0.0.0/8":
        return plan
    begins = {}
    for number, ends in enumerate(plan.links.values()):
        begins[ends[0].address.rsplit(".", 1)[0]] = f"198.{18 + number // 256}.{number % 256}"

    def other(address: str) -> str:
        front, last = address.rsplit(".", 1)
        return f"{begins[front]}.{last}" if front in begins else address

    def moved(end: addressing.Interface) -> addressing.Interface:
        return replace(end, address=other(end.address))

    return addressing.Plan(
        {
            name: replace(
                node,
                interfaces=tuple(moved(end) for end in node.interfaces),
                routes=tuple(replace(one, subnet=other(one.subnet), via=other(one.via)) for one in node.routes),
                neighbours=tuple((other(address), mac, dev) for address, mac, dev in node.neighbours),
            )
            for name, node in plan.nodes.items()
        },
        {link: tuple(moved(end) for end in ends) for link, ends in plan.links.items()},
    )


def _with_own_names(
    plan: addressing.Plan, hosts: Mapping[str, Host], players: Mapping[str, str], spots: Mapping[str, Spot]
) -> addressing.Plan:
    names: dict[str, dict[str, str]] = {}
    for node, planned in plan.nodes.items():
        given = hosts[players[node]].interfaces
        strange = [link for link in given if link not in [end.link for end in planned.interfaces]]
        if strange:
            ends_at = _list([end.link for end in planned.interfaces])
            raise TestbedError(f"host {players[node]}: link '{strange[0]}' does not end there; these do: {ends_at}")
        names[node] = {}
        for end in planned.interfaces:
            own = given.get(end.link, end.name)
            names[node][end.name] = QUEUE_PREFIX + own if spots[end.link].queue_at == node else own
            if len(names[node][end.name]) > addressing.MAX_INTERFACE_NAME:
                raise TestbedError(f"host {players[node]}: interface '{own}' has too long a name for a queue before it")

    def with_own_name(end: addressing.Interface) -> addressing.Interface:
        return replace(end, name=names[end.node][end.name])

    return addressing.Plan(
        {
            name: replace(
                node,
                interfaces=tuple(with_own_name(end) for end in node.interfaces),
                routes=tuple(replace(route, interface=names[name][route.interface]) for route in node.routes),
                # Behind a real modem or radio stand machines whose hardware addresses are their own.
                neighbours=tuple(
                    (address, mac, names[name][dev])
                    for address, mac, dev in node.neighbours
                    if _link_of(node, dev, spots).real in (None, "wire")
                ),
            )
            for name, node in plan.nodes.items()
        },
        {link: tuple(with_own_name(end) for end in ends) for link, ends in plan.links.items()},
    )


def _link_of(node: addressing.NodePlan, interface: str, spots: Mapping[str, Spot]) -> Spot:
    return next(spots[end.link] for end in node.interfaces if end.name == interface)


def _check_interfaces(
    plan: addressing.Plan, hosts: Mapping[str, Host], players: Mapping[str, str], spots: Mapping[str, Spot]
) -> None:
    used = Counter((players[node], end.name) for node, planned in plan.nodes.items() for end in planned.interfaces)
    used.update((spot.box, name) for spot in spots.values() if spot.box for name in box_interfaces(plan, spot))
    for (host, interface), times in used.items():
        if times > 1:
            raise TestbedError(f"host {host}: interface '{interface}' is used by {times} links; each needs its own")


def _taken(addresses: str, links: int) -> list[IPv4Network]:
    """Networks that hold every address of the experiment."""
    if addresses == "10.0.0.0/8":
        return [IPv4Network(f"10.{place + 1}.0.0/16") for place in range(min(links, 250))]
    return [IPv4Network(addresses)]


def _without_default_routes(plan: addressing.Plan, taken: Sequence[IPv4Network]) -> addressing.Plan:
    """A machine has a default route of its own, which must stay."""

    def routes(node: addressing.NodePlan) -> tuple[addressing.Route, ...]:
        found: list[addressing.Route] = []
        for route in node.routes:
            whole = route.subnet == addressing.DEFAULT_ROUTE
            found += [replace(route, subnet=str(one)) for one in taken] if whole else [route]
        return tuple(found)

    return addressing.Plan({name: replace(node, routes=routes(node)) for name, node in plan.nodes.items()}, plan.links)


def _check_reach(hosts: Sequence[Host], addresses: str, taken: Sequence[IPv4Network]) -> None:
    """The experiment's routes must not catch the controller's packets."""
    for host in hosts:
        try:
            address = ip_address(host.address)
        except ValueError:  # a name: what it means is known to the resolver only
            continue
        if any(address in one for one in taken):
            other = next(one for one in RANGES if one != addresses)
            raise TestbedError(
                f"host {host.name} is reached at {host.address}, which overlaps with the experiment's own addresses "
                f"({taken[0]}); set 'addresses: {other}'"
            )


# What Ansible is told ----------------------------------------------------------------------------------------------


def groups(placement: Placement) -> dict[str, list[str]]:
    """Ansible's groups: endpoints, routers, base_stations, link_boxes, queues, workers, results_sites."""
    found: dict[str, list[str]] = {name: [] for name in (*GROUP_OF_KIND.values(), "link_boxes", "queues")}
    for node, host in placement.players.items():
        found[GROUP_OF_KIND[placement.kinds[node]]].append(host)
    found["link_boxes"] = placement.boxes()
    found["queues"] = list(
        dict.fromkeys(placement.players[spot.queue_at] for spot in placement.spots.values() if spot.queue_at)
    )
    for also, group in (("worker", "workers"), ("results-site", "results_sites")):
        found[group] = [host.name for host in placement.hosts.values() if also in host.also]
    return found


def host_vars(placement: Placement, links: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """What Ansible's roles are told of one host; documented in ansible/README.md."""
    host = placement.hosts[name]
    told: dict[str, Any] = {
        "backchannel_plays": host.plays,
        "backchannel_tcp_sysctls": dict(TCP_BASE),
        "backchannel_all_interfaces": [
            interface
            for spot in placement.spots.values()
            if spot.box == name
            for interface in box_interfaces(placement.plan, spot)
        ],
    }
    if host.plays is not None:
        node = placement.plan.nodes[host.plays]
        told["backchannel_router_sysctls"] = dict(ROUTER_BASE)
        told["backchannel_interfaces"] = [
            {
                "name": end.name,
                "address": f"{end.address}/{end.prefix}",
                # A modem or a radio keeps the address that its maker gave it.
                "mac": end.mac if placement.spots[end.link].real in (None, "wire") else None,
                "link": end.link,
                "queue": placement.spots[end.link].queue_at == host.plays,
            }
            for end in node.interfaces
        ]
        told["backchannel_neighbours"] = [
            {"address": address, "mac": mac, "interface": dev} for address, mac, dev in node.neighbours
        ]
        told["backchannel_routes"] = [
            {"subnet": route.subnet, "via": route.via, "interface": route.interface} for route in node.routes
        ]
        told["backchannel_queues"] = [
            {"link": end.link, "tap": end.name, "interface": end.name.removeprefix(QUEUE_PREFIX)}
            for end in node.interfaces
            if placement.spots[end.link].queue_at == host.plays
        ]
        told["backchannel_all_interfaces"] += [end.name.removeprefix(QUEUE_PREFIX) for end in node.interfaces]
        # Over a wire that nobody emulates a neighbour answers whether or not a run is under way.
        told["backchannel_reachable"] = [
            other.address
            for end in node.interfaces
            for other in placement.plan.links[end.link]
            if other.node != end.node and placement.spots[end.link].real and not placement.spots[end.link].queue_at
        ]
    kinds = {link["name"]: link["kind"] for link in links}
    for key, wanted in (("backchannel_modems", False), ("backchannel_radios", True)):
        told[key] = [
            {"link": spot.link, "interfaces": list(box_interfaces(placement.plan, spot))}
            for spot in placement.spots.values()
            if spot.box == name and (kinds[spot.link] in RADIO_KINDS) == wanted
        ]
    return told


def _list(names: Any) -> str:
    return ", ".join(names)


def _list_ends(ends: Sequence[addressing.Interface]) -> str:
    return " and ".join(end.node for end in ends)
