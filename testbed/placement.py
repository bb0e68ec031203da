"""Placement: the host of each node and the place of each link of a scenario, in a lab. Pure; files are read elsewhere.

A lab is a set of hosts: machines reached over SSH, or namespaces of a cell. Each node of the scenario runs on one host.
A link is emulated by a link box, a further host with an interface for every end of the link, or it is real: a wire, a
modem or a radio, which runs only measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, ip_address
from typing import Any

from agents.kernel import ROUTER_BASE, ROUTER_BASE_V6, TCP_BASE
from testbed import addressing, kernel_links, node_binary
from testbed.errors import TestbedError, listed
from testbed.scenario import LinkSpec, Node

#: Kinds of real links.
REAL = ("wire", "modem", "radio")
#: Address ranges that a testbed can use, and the number of links in each.
RANGES = {"10.0.0.0/8": 50_000, "198.18.0.0/15": 512}
GROUP_OF_KIND = {"host": "endpoints", "router": "routers", "base-station": "base_stations"}
#: Prefix of the TAP interface that carries an emulated queue in front of a real interface.
QUEUE_PREFIX = "bq-"


@dataclass(frozen=True)
class Host:
    """One machine, or one namespace in place of a machine."""

    name: str
    #: For SSH; unused for namespaces.
    address: str = ""
    port: int = 22
    #: The node that runs on it; None for a link box.
    plays: str | None = None
    #: Interface of each link whose name differs from that in an emulated network.
    interfaces: Mapping[str, str] = field(default_factory=dict)
    #: Further roles: worker, results-site.
    also: tuple[str, ...] = ()
    #: Virtual machine that it shares with other hosts, in a lab of virtual machines; empty: it has its own.
    machine: str = ""


@dataclass(frozen=True)
class LinkPlacement:
    """The place of one link: `box` with its interfaces in the order of the link's ends, or `real`."""

    link: str
    box: str | None = None
    interfaces: tuple[str, ...] = ()
    real: str | None = None
    #: Node with an emulated queue in front of a real link.
    queue_at: str | None = None


@dataclass(frozen=True)
class Placement:
    """A scenario's network in a lab. `plan` has the hosts' interface names."""

    plan: addressing.Plan
    hosts: Mapping[str, Host]
    links: Mapping[str, LinkPlacement]
    #: Name of each node's host.
    host_of: Mapping[str, str]
    #: Kind of each node.
    kinds: Mapping[str, str]
    #: Name of the set of hosts, in a lab with several; empty: the lab has no sets.
    set: str = ""

    def boxes(self) -> list[str]:
        """Hosts that emulate links, in order of the links."""
        return list(dict.fromkeys(place.box for place in self.links.values() if place.box is not None))

    def members(self) -> list[str]:
        """Every host that takes part in a run: those of nodes, then link boxes."""
        return [*self.host_of.values(), *self.boxes()]


def place(
    hosts: Sequence[Host],
    link_placements: Sequence[LinkPlacement],
    nodes: Sequence[Node],
    links: Sequence[LinkSpec],
    addresses: str = "10.0.0.0/8",
    set_name: str = "",
) -> Placement:
    """Places a scenario's nodes and links in a lab.

    Args:
        hosts: of the lab.
        link_placements: of the lab; each of the scenario's links must have one.
        nodes: of the scenario.
        links: of the scenario.
        addresses: range of the experiment's addresses, one of RANGES.
        set_name: of these hosts, in a lab with several sets.

    Raises:
        TestbedError: a node without a host or with two, a link without a place, a real link that is to lose packets or
            to have a policy that no host has, an interface used twice, addresses that overlap with those by which hosts
            are reached, or a network that addressing.make_plan rejects.
    """
    plan = addressing.make_plan(nodes, links)
    host_of = _host_of(hosts, [node.name for node in nodes])
    by_name = {host.name: host for host in hosts}
    by_link = {place.link: place for place in link_placements}
    unknown = [link for link in by_link if link not in plan.links]
    if unknown:
        raise TestbedError(f"links: unknown link '{unknown[0]}'; the topology's links: {listed(plan.links)}")
    kernels = [link.name for link in links if link.kind == kernel_links.KIND]
    for link, ends in plan.links.items():
        link_place = by_link.get(link)
        if link in kernels and (link_place is None or link_place.real != "wire" or link_place.queue_at is not None):
            raise TestbedError(
                f"link '{link}' is of kind 'kernel': the hosts at its ends shape it themselves, over a cable between "
                "them; set 'real: wire' for it in 'links', and nothing else"
            )
        _check_place(link, ends, link_place, by_name)
    for spec in links:
        _check_real(spec, by_link[spec.name])
    networks = _networks(addresses, len(links))
    plan = _without_default_routes(_renumbered(plan, addresses), networks)
    plan = _with_host_names(plan, by_name, host_of, by_link)
    _check_interfaces(plan, host_of, by_link)
    _check_access(hosts, addresses, networks)
    return Placement(plan, by_name, by_link, host_of, {node.name: node.kind for node in nodes}, set_name)


def _host_of(hosts: Sequence[Host], nodes: Sequence[str]) -> dict[str, str]:
    for name, times in Counter(host.name for host in hosts).items():
        if times > 1:
            raise TestbedError(f"hosts: {times} hosts are called '{name}'; each machine is one host")
    for (address, _), times in Counter((host.address, host.port) for host in hosts if host.address).items():
        if times > 1:
            raise TestbedError(f"hosts: {times} hosts have the address '{address}'; each machine is one host")
    host_of: dict[str, str] = {}
    for host in hosts:
        if host.plays is None:
            continue
        if host.plays not in nodes:
            raise TestbedError(
                f"host {host.name} plays '{host.plays}', which is not a node; the topology's nodes: {listed(nodes)}"
            )
        if host.plays in host_of:
            raise TestbedError(f"hosts {host_of[host.plays]} and {host.name} both play '{host.plays}'; one must not")
        host_of[host.plays] = host.name
    for node in nodes:
        if node not in host_of:
            raise TestbedError(f"no host plays node '{node}'; add 'plays: {node}' to one under 'hosts'")
    return {node: host_of[node] for node in nodes}


def _check_place(
    link: str, ends: Sequence[addressing.Interface], place: LinkPlacement | None, hosts: Mapping[str, Host]
) -> None:
    if place is None or (place.box is None) == (place.real is None):
        raise TestbedError(
            f"link '{link}' is nowhere: give it a 'box' that emulates it, or 'real' ({listed(REAL)}), in 'links'"
        )
    if place.real is not None:
        if place.queue_at is not None and place.queue_at not in [end.node for end in ends]:
            raise TestbedError(f"link '{link}': 'queue_at' is '{place.queue_at}', but it ends at {_list_ends(ends)}")
        return
    if place.box is None or place.box not in hosts:
        raise TestbedError(f"link '{link}': its box '{place.box}' is not a host; hosts: {listed(hosts)}")
    if hosts[place.box].plays is not None:
        raise TestbedError(f"link '{link}': host {place.box} plays a node and cannot be its link box as well")
    if place.queue_at is not None:
        raise TestbedError(f"link '{link}': 'queue_at' is for real links; an emulated one has its queues in its box")
    if place.interfaces and len(place.interfaces) != len(ends):
        raise TestbedError(
            f"link '{link}' has {len(ends)} ends, but box {place.box} has {len(place.interfaces)} for it"
        )


def _check_real(link: LinkSpec, place: LinkPlacement) -> None:
    """A real link has its own rate, delay and losses. What else a campaign asks of it would be missing unsaid."""
    if place.real is None:
        return
    missing = ["middleboxes"] if link.middleboxes else []
    for end, (way, direction) in zip(link.ends, link.directions(), strict=False):
        queue = direction.queue.name
        missing += [f"errors ({way})"] if direction.errors else []
        missing += [f"changes ({way})"] if direction.schedule else []
        missing += [f"jitter ({way})"] if direction.jitter_s else []
        missing += [f"the queue policy {queue} ({way})"] if queue != "droptail" and place.queue_at != end else []
    if missing:
        raise TestbedError(
            f"link '{link.name}' is real ({place.real}) and the campaign gives it {listed(missing)}; name a 'box' that "
            "emulates the link, for queue policies alone also 'queue_at'"
        )


def box_interfaces(plan: addressing.Plan, place: LinkPlacement) -> tuple[str, ...]:
    """A box's interfaces for a link: as named, or lNeE for end E of link number N."""
    number = list(plan.links).index(place.link)
    return place.interfaces or tuple(f"l{number}e{end.end}" for end in plan.links[place.link])


def _renumbered(plan: addressing.Plan, addresses: str) -> addressing.Plan:
    if addresses not in RANGES:
        raise TestbedError(f"addresses: '{addresses}' is not allowed; allowed: {listed(RANGES)}")
    if len(plan.links) > RANGES[addresses]:
        raise TestbedError(
            f"addresses: {addresses} has room for {RANGES[addresses]} links; this topology has {len(plan.links)}"
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
                routes=tuple(
                    replace(
                        route,
                        subnet=other(route.subnet),
                        via=other(route.via),
                        source=other(route.source) if route.source else "",
                    )
                    for route in node.routes
                ),
                neighbours=tuple((other(address), mac, dev) for address, mac, dev in node.neighbours),
            )
            for name, node in plan.nodes.items()
        },
        {link: tuple(moved(end) for end in ends) for link, ends in plan.links.items()},
    )


def _with_host_names(
    plan: addressing.Plan, hosts: Mapping[str, Host], host_of: Mapping[str, str], places: Mapping[str, LinkPlacement]
) -> addressing.Plan:
    names: dict[str, dict[str, str]] = {}
    for node, planned in plan.nodes.items():
        interfaces = hosts[host_of[node]].interfaces
        unknown = [link for link in interfaces if link not in [end.link for end in planned.interfaces]]
        if unknown:
            ends_at = listed([end.link for end in planned.interfaces])
            raise TestbedError(f"host {host_of[node]}: link '{unknown[0]}' does not end there; these do: {ends_at}")
        names[node] = {}
        for end in planned.interfaces:
            name = interfaces.get(end.link, end.name)
            names[node][end.name] = QUEUE_PREFIX + name if places[end.link].queue_at == node else name
            if len(names[node][end.name]) > addressing.MAX_INTERFACE_NAME:
                raise TestbedError(
                    f"host {host_of[node]}: the name of interface '{name}' is too long for a queue in front of it"
                )

    def with_own_name(end: addressing.Interface) -> addressing.Interface:
        return replace(end, name=names[end.node][end.name])

    return addressing.Plan(
        {
            name: replace(
                node,
                interfaces=tuple(with_own_name(end) for end in node.interfaces),
                routes=tuple(replace(route, interface=names[name][route.interface]) for route in node.routes),
                # The hardware addresses behind a real modem or radio are not ours to choose.
                neighbours=tuple(
                    (address, mac, names[name][dev])
                    for address, mac, dev in node.neighbours
                    if has_planned_address(_link_of(node, dev, places))
                ),
            )
            for name, node in plan.nodes.items()
        },
        {link: tuple(with_own_name(end) for end in ends) for link, ends in plan.links.items()},
    )


def has_planned_address(place: LinkPlacement) -> bool:
    """Whether the interfaces of a link get the plan's hardware addresses. Modems and radios keep their maker's."""
    return place.real in (None, "wire")


def _link_of(node: addressing.NodePlan, interface: str, places: Mapping[str, LinkPlacement]) -> LinkPlacement:
    return next(places[end.link] for end in node.interfaces if end.name == interface)


def _check_interfaces(plan: addressing.Plan, host_of: Mapping[str, str], places: Mapping[str, LinkPlacement]) -> None:
    used = Counter((host_of[node], end.name) for node, planned in plan.nodes.items() for end in planned.interfaces)
    used.update((place.box, name) for place in places.values() if place.box for name in box_interfaces(plan, place))
    for (host, interface), times in used.items():
        if times > 1:
            raise TestbedError(f"host {host}: interface '{interface}' is used by {times} links; each needs its own")


def _networks(addresses: str, links: int) -> list[IPv4Network]:
    """Networks that hold every address of the experiment."""
    if addresses == "10.0.0.0/8":
        return [IPv4Network(f"10.{place + 1}.0.0/16") for place in range(min(links, 250))]
    return [IPv4Network(addresses)]


def _without_default_routes(plan: addressing.Plan, networks: Sequence[IPv4Network]) -> addressing.Plan:
    """Replaces default routes, because a host's default route must stay."""

    def routes(node: addressing.NodePlan) -> tuple[addressing.Route, ...]:
        result: list[addressing.Route] = []
        for route in node.routes:
            is_default = route.subnet == addressing.DEFAULT_ROUTE
            result += [replace(route, subnet=str(network)) for network in networks] if is_default else [route]
        return tuple(result)

    return addressing.Plan({name: replace(node, routes=routes(node)) for name, node in plan.nodes.items()}, plan.links)


def _check_access(hosts: Sequence[Host], addresses: str, networks: Sequence[IPv4Network]) -> None:
    """The experiment's routes must not catch the controller's packets."""
    for host in hosts:
        try:
            address = ip_address(host.address)
        except ValueError:  # a name, which only the resolver can look up
            continue
        if any(address in network for network in networks):
            other = next(network for network in RANGES if network != addresses)
            raise TestbedError(
                f"host {host.name} is reached at {host.address}, which overlaps with the experiment's own addresses "
                f"({networks[0]}); set 'addresses: {other}'"
            )


# Variables of Ansible's roles --------------------------------------------------------------------------------------


def groups(placement: Placement) -> dict[str, list[str]]:
    """Ansible's groups: endpoints, routers, base_stations, link_boxes, queues, workers, results_sites."""
    members: dict[str, list[str]] = {name: [] for name in (*GROUP_OF_KIND.values(), "link_boxes", "queues")}
    for node, host in placement.host_of.items():
        members[GROUP_OF_KIND[placement.kinds[node]]].append(host)
    members["link_boxes"] = placement.boxes()
    members["queues"] = list(
        dict.fromkeys(placement.host_of[place.queue_at] for place in placement.links.values() if place.queue_at)
    )
    for also, group in (("worker", "workers"), ("results-site", "results_sites")):
        members[group] = [host.name for host in placement.hosts.values() if also in host.also]
    return members


def host_vars(placement: Placement, links: Sequence[LinkSpec], name: str, with_ipv6: bool = False) -> dict[str, Any]:
    """Variables of Ansible's roles for one host; ansible/README.md documents them."""
    host = placement.hosts[name]
    variables: dict[str, Any] = {
        "backchannel_plays": host.plays,
        "backchannel_all_interfaces": [
            interface
            for place in placement.links.values()
            if place.box == name
            for interface in box_interfaces(placement.plan, place)
        ],
    }
    if host.plays is not None:
        node = placement.plan.nodes[host.plays]
        if with_ipv6:
            node = addressing.both_versions(node)
        forwarding = {**ROUTER_BASE, **(ROUTER_BASE_V6 if with_ipv6 else {})}
        variables["backchannel_sysctls"] = dict(TCP_BASE) if placement.kinds[host.plays] == "host" else forwarding
        variables["backchannel_interfaces"] = [
            {
                "name": end.name,
                "address": f"{end.address}/{end.prefix}",
                "address6": f"{addressing.ipv6_of(end.address)}/{addressing.PREFIX_LENGTH_V6}" if with_ipv6 else None,
                # A modem or a radio keeps the address that its maker gave it.
                "mac": end.mac if has_planned_address(placement.links[end.link]) else None,
                "link": end.link,
                "queue": placement.links[end.link].queue_at == host.plays,
            }
            for end in node.interfaces
        ]
        variables["backchannel_neighbours"] = [
            {"address": address, "mac": mac, "interface": dev} for address, mac, dev in node.neighbours
        ]
        variables["backchannel_routes"] = [
            {"subnet": route.subnet, "via": route.via, "interface": route.interface} for route in node.routes
        ]
        variables["backchannel_queues"] = [
            {"link": end.link, "tap": end.name, "interface": end.name.removeprefix(QUEUE_PREFIX)}
            for end in node.interfaces
            if placement.links[end.link].queue_at == host.plays
        ]
        variables["backchannel_all_interfaces"] += [end.name.removeprefix(QUEUE_PREFIX) for end in node.interfaces]
        # Over a real wire a neighbour answers at any time; over an emulated one, during a run only.
        variables["backchannel_reachable"] = [
            other.address
            for end in node.interfaces
            for other in placement.plan.links[end.link]
            if other.node != end.node and placement.links[end.link].real and not placement.links[end.link].queue_at
        ]
    radios = {link["name"] for link in node_binary.registry()["links"] if link["radio"]}
    kinds = {link.name: link.kind for link in links}
    emulated: dict[str, list[dict[str, Any]]] = {}
    for place in placement.links.values():
        if place.box == name:
            part = "emulated_radio" if kinds[place.link] in radios else "emulated_modem"
            interfaces = list(box_interfaces(placement.plan, place))
            emulated.setdefault(part, []).append({"link": place.link, "interfaces": interfaces})
    return {**variables, "backchannel_links": emulated}


def _list_ends(ends: Sequence[addressing.Interface]) -> str:
    return " and ".join(end.node for end in ends)
