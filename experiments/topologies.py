"""Topologies by name: from a campaign's lines and flows to nodes, links, and flows between hosts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.schema import Direction, Flow, Network, Policy

#: The hosts that a topology names; in a dumbbell they stand for a pair of hosts a flow.
SIDES = ("server", "client")


@dataclass(frozen=True)
class Member:
    """One of the flows that an entry of the workload stands for."""

    name: str
    #: The entry's name, where it stands for several.
    group: str | None
    from_: str
    to: str
    #: Which entry it belongs to.
    entry: int


def members(network: Network, workload: Sequence[Flow]) -> list[Member]:
    """The flows of a workload, each with the hosts between which it runs."""
    found = []
    pair = 0
    for number, flow in enumerate(workload):
        for one in range(flow.count):
            pair += 1
            own = f"{pair}" if network.topology == "dumbbell" else ""
            found.append(
                Member(
                    name=flow.name if flow.count == 1 else f"{flow.name}-{one + 1}",
                    group=None if flow.count == 1 else flow.name,
                    from_=flow.from_ + own,
                    to=flow.to + own,
                    entry=number,
                )
            )
    return found


def build(
    network: Network, workload: Sequence[Flow], draws: random.Random
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes (name, kind) and links of a network, as scenarios have them; stacks are not yet on the nodes.

    `draws` is for what a repetition draws: the round-trip times of a dumbbell's pairs.
    """
    match network.topology:
        case "asymmetric-path":
            return _asymmetric_path(network)
        case "dumbbell":
            return _dumbbell(network, sum(flow.count for flow in workload), draws)
        case "line":
            return _line(network)
        case "wireless":
            return _wireless(network)
    nodes = [{"name": node.name, "kind": node.kind} for node in network.nodes]
    return nodes, [link.as_scenario() for link in network.links]


def _asymmetric_path(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Asym 7.1, figure 7: n0 - n1 = n2 - n3. Forward runs from the server to the client."""
    access = _access(network)
    nodes = [
        {"name": "server", "kind": "host"},
        {"name": "router1", "kind": "router"},
        {"name": "router2", "kind": "router"},
        {"name": "client", "kind": "host"},
    ]
    links = [
        _link("server-access", ["server", "router1"], access, access),
        _studied(network, "bottleneck", ["router1", "router2"]),
        _link("client-access", ["router2", "client"], access, access),
    ]
    return nodes, links


def _dumbbell(network: Network, pairs: int, draws: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A pair of hosts for each flow, and the line between the servers' router and the clients' (aq 4, figure 2).

    Where round-trip times are drawn, the clients' wires keep their delay and the servers' take what is left.
    """
    access = _access(network)
    nodes = [{"name": "router1", "kind": "router"}, {"name": "router2", "kind": "router"}]
    links = [_studied(network, "bottleneck", ["router1", "router2"])]
    for number in range(1, pairs + 1):
        far = access
        if network.rtt is not None:
            rtt_s = round(draws.uniform(*network.rtt), 6)
            far = access.model_copy(update={"delay": rtt_s / 2 - near_half_s(network)})
        nodes += [{"name": f"{side}{number}", "kind": "host"} for side in SIDES]
        links += [
            _link(f"server{number}-access", [f"server{number}", "router1"], far, far),
            _link(f"client{number}-access", ["router2", f"client{number}"], access, access),
        ]
    return nodes, links


def near_half_s(network: Network) -> float:
    """Half of the propagation round trip of a dumbbell without its servers' wires, in seconds."""
    assert network.forward is not None
    line_s = network.forward.delay + (network.reverse or network.forward).delay
    return line_s / 2 + _access(network).delay


def _line(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    nodes = [{"name": "left", "kind": "host"}, {"name": "right", "kind": "host"}]
    return nodes, [_studied(network, "line", ["left", "right"])]


def _wireless(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ton IV-A, figure 2: source - base station - mobile host. Forward runs towards the mobile."""
    access = _access(network)
    nodes = [
        {"name": "server", "kind": "host"},
        {"name": "base", "kind": "base-station"},
        {"name": "mobile", "kind": "host"},
    ]
    return nodes, [_link("wire", ["server", "base"], access, access), _studied(network, "air", ["base", "mobile"])]


def _access(network: Network) -> Direction:
    queue = Policy.model_validate({"policy": "droptail", "limit": "30 packets"})
    return network.access or Direction(rate="10 Mbit/s", delay="1 ms", queue=queue)  # type: ignore[arg-type]


def _studied(network: Network, name: str, ends: list[str]) -> dict[str, Any]:
    """The topology's own line."""
    assert network.forward is not None
    link = _link(name, ends, network.forward, network.reverse or network.forward)
    if network.link is not None:
        link |= {"kind": network.link.name, "options": dict(network.link.options)}
    if network.middlebox is not None:
        link["middleboxes"] = [{**network.middlebox.as_scenario(), "end": 0}]
    return link


def _link(name: str, ends: list[str], forward: Direction, reverse: Direction) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "point-to-point",
        "ends": ends,
        "forward": forward.as_scenario(),
        "reverse": reverse.as_scenario(),
        "options": {},
    }
