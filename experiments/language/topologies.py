"""Named topologies: nodes and links from a campaign's lines, and the hosts of its flows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.language.mechanisms import LinkKind, Policy
from experiments.language.network import Direction, Network
from experiments.language.schema import Campaign, Flow
from testbed.scenario import DirectionSpec, LinkSpec, Node, NodeKind, Options

#: Hosts in a dumbbell's workload. Each flow has a pair of them: server1 and client1, server2 and client2, ...
SIDES = ("server", "client")

#: Nodes and links of a scenario.
NodesAndLinks = tuple[list[Node], list[LinkSpec]]


@dataclass(frozen=True)
class Member:
    """One flow. An entry of the workload with a `count` has several."""

    name: str
    #: Name of the entry, if it has several flows.
    group: str | None
    from_: str
    to: str
    #: Index of the entry.
    entry: int


def members(campaign: Campaign) -> list[Member]:
    """The flows of a campaign's workload with their hosts."""
    members_ = []
    pair = 0
    for number, flow in enumerate(campaign.workload):
        for index in range(1, flow.count + 1):
            pair += 1
            name, group = (flow.name, None) if flow.count == 1 else (f"{flow.name}-{index}", flow.name)
            hosts = [_host_of(campaign.network, host, pair) for host in (flow.from_, flow.to)]
            members_.append(Member(name, group, hosts[0], hosts[1], number))
    return members_


def _host_of(network: Network, host: str, pair: int) -> str:
    """The host of a flow. In a dumbbell every flow has a pair of hosts; flows to several mobiles take turns."""
    if network.topology == "dumbbell":
        return f"{host}{pair}"
    if network.mobiles > 1 and host == _MOBILES.get(network.topology or ""):
        return f"{host}{(pair - 1) % network.mobiles + 1}"
    return host


def host_names(network: Network, nodes: Sequence[Node]) -> list[str]:
    """Names that a flow may use as its hosts."""
    if network.topology == "dumbbell":
        return list(SIDES)
    hosts = [node.name for node in nodes if node.kind == "host"]
    return [_MOBILES[str(network.topology)], *hosts] if network.mobiles > 1 else hosts


#: The host of which a topology may have several.
_MOBILES = {"packet-radio": "mobile", "hybrid": "client"}


def build(network: Network, workload: Sequence[Flow], draws: random.Random) -> NodesAndLinks:
    """Nodes and links of a network. Nodes have no stack yet.

    `draws` is the random stream of the repetition, for the round-trip times of a dumbbell's pairs.
    """
    match network.topology:
        case "asymmetric-path":
            return _asymmetric_path(network)
        case "dumbbell":
            return _dumbbell(network, sum(flow.count for flow in workload), draws)
        case "hybrid":
            return _hybrid(network)
        case "line":
            return _line(network)
        case "packet-radio":
            return _packet_radio(network)
        case "wireless":
            return _wireless(network)
    return [node.as_scenario() for node in network.nodes], [link.as_scenario() for link in network.links]


def _asymmetric_path(network: Network) -> NodesAndLinks:
    """Asym 7.1, figure 7: n0 - n1 = n2 - n3. Forward runs from the server to the client."""
    nodes = _nodes(server="host", router1="router", router2="router", client="host")
    links = [
        _access_link(network, "server-access", ["server", "router1"]),
        _studied(network, "bottleneck", ["router1", "router2"]),
        _access_link(network, "client-access", ["router2", "client"]),
    ]
    return nodes, links


def _dumbbell(network: Network, pairs: int, draws: random.Random) -> NodesAndLinks:
    """A pair of hosts for each flow, and a line between the routers of servers and clients (aq 4, figure 2).

    Where round-trip times are drawn, the servers' wires get the delay that the line and the clients' wires lack.
    """
    nodes = _nodes(router1="router", router2="router")
    links = [_studied(network, "bottleneck", ["router1", "router2"])]
    for number in range(1, pairs + 1):
        far_s = None
        if network.rtt is not None:
            far_s = round(draws.uniform(*network.rtt), 6) / 2 - near_half_s(network)
        nodes += _hosts(*(f"{side}{number}" for side in SIDES))
        links += [
            _access_link(network, f"server{number}-access", [f"server{number}", "router1"], far_s),
            _access_link(network, f"client{number}-access", ["router2", f"client{number}"]),
        ]
    return nodes, links


def near_half_s(network: Network) -> float:
    """Half of the propagation round trip of a dumbbell without its servers' wires, in s."""
    assert network.forward is not None
    line_s = network.forward.delay + (network.reverse or network.forward).delay
    return line_s / 2 + _access(network).delay_s


def _line(network: Network) -> NodesAndLinks:
    return _nodes(left="host", right="host"), [_studied(network, "line", ["left", "right"])]


def _wireless(network: Network) -> NodesAndLinks:
    """Ton IV-A, figure 2: source - base station - mobile host. Forward runs towards the mobile."""
    nodes = _nodes(server="host", base="base-station", mobile="host")
    return nodes, [_access_link(network, "wire", ["server", "base"]), _studied(network, "air", ["base", "mobile"])]


def _packet_radio(network: Network) -> NodesAndLinks:
    """Asym 5.1, figure 5: a fixed host, the gateway of the radio network, and mobiles. Forward runs towards mobiles."""
    mobiles = _several("mobile", network.mobiles)
    nodes = _nodes(server="host", gateway="router") + _hosts(*mobiles)
    air = _studied(network, "air", ["gateway", *mobiles])
    if network.link is None:
        air = air.replace(kind="ricochet")
    return nodes, [_access_link(network, "wire", ["server", "gateway"]), air]


def _hybrid(network: Network) -> NodesAndLinks:
    """Asym 3.1 and 7.3: forward is a one-way cable. Reverse is a second link, and both of its directions are like
    `reverse`. Several clients share the cable up to a hub.
    """
    assert network.forward is not None
    cable, back = network.forward.as_scenario(), (network.reverse or network.forward).as_scenario()
    clients = _several("client", network.mobiles)
    nodes = _nodes(server="host", router="router")
    links = [_access_link(network, "server-access", ["server", "router"])]
    far = clients[0]
    if len(clients) > 1:
        far = "hub"
        nodes += _nodes(hub="router")
    links.append(_link("cable", ["router", far], cable, cable, options={"one_way": True}))
    if len(clients) > 1:
        drop = Direction.model_validate({}).as_scenario()
        links += [_link(f"{name}-drop", [far, name], drop, drop, options={"one_way": True}) for name in clients]
    nodes += _hosts(*clients)
    if network.link is not None and network.link.name != "point-to-point":
        links.append(_link("return", ["router", *clients], back, back, network.link))
    else:
        names = ["return"] if len(clients) == 1 else [f"{name}-return" for name in clients]
        links += [
            _link(name, ["router", client], back, back, network.link)
            for name, client in zip(names, clients, strict=True)
        ]
    return nodes, links


def _nodes(**kinds: NodeKind) -> list[Node]:
    """Nodes from names and kinds."""
    return [Node(name=name, kind=kind) for name, kind in kinds.items()]


def _hosts(*names: str) -> list[Node]:
    return [Node(name=name, kind="host") for name in names]


def _several(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}{number}" for number in range(1, count + 1)]


def _access_link(network: Network, name: str, ends: Sequence[str], delay_s: float | None = None) -> LinkSpec:
    """A link between a host and a router; `delay_s` in place of its own delay."""
    access = _access(network)
    if delay_s is not None:
        access = access.replace(delay_s=delay_s)
    return _link(name, ends, access, access, None if network.access is None else network.access.kind)


def _access(network: Network) -> DirectionSpec:
    """The links between hosts and routers."""
    queue = Policy.model_validate({"policy": "droptail", "limit": "30 packets"})
    default = Direction(rate="10 Mbit/s", delay="1 ms", queue=queue)  # type: ignore[arg-type]
    return (network.access or default).as_scenario()


def _studied(network: Network, name: str, ends: Sequence[str]) -> LinkSpec:
    """The line under study."""
    assert network.forward is not None
    forward, reverse = network.forward.as_scenario(), (network.reverse or network.forward).as_scenario()
    link = _link(name, ends, forward, reverse, network.link)
    return link if network.middlebox is None else link.replace(middleboxes=(network.middlebox.at_first_end(),))


def _link(
    name: str,
    ends: Sequence[str],
    forward: DirectionSpec,
    reverse: DirectionSpec,
    kind: LinkKind | None = None,
    options: Options | None = None,
) -> LinkSpec:
    """A link of this kind, or a point-to-point link with these options."""
    return LinkSpec(
        name=name,
        kind="point-to-point" if kind is None else kind.name,
        ends=tuple(ends),
        forward=forward,
        reverse=reverse,
        options=(options or {}) if kind is None else kind.options,
    )
