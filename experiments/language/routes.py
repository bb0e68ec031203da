"""The route of a flow through a scenario's links."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.addressing import Plan, make_plan, next_hop
from testbed.errors import TestbedError
from testbed.scenario import Direction, LinkSpec, Scenario

#: Size of a data packet, in bytes.
PACKET_BYTES = 1500
#: Links from one host to another, each with the direction in which the route uses it.
Route = Sequence[tuple[LinkSpec, Direction]]


def route(scenario: Scenario, source: str, target: str) -> Route:
    """The route between two hosts: that with the fewest links, unless nodes declare routes. Empty without one.

    A shared medium counts as one hop between any two of its ends.
    """
    if any(node.routes for node in scenario.nodes):
        return planned(make_plan(scenario.nodes, scenario.links), scenario.links, source, target) or ()
    of_node: dict[str, list[LinkSpec]] = {}
    for link in scenario.links:
        for end in link.ends:
            of_node.setdefault(end, []).append(link)
    routes: dict[str, list[tuple[LinkSpec, Direction]]] = {source: []}
    edge = [source]
    while edge and target not in routes:
        following = []
        for node in edge:
            for link in of_node.get(node, ()):
                for neighbour in link.ends:
                    if neighbour not in routes:
                        side: Direction = "forward" if link.ends.index(node) < link.ends.index(neighbour) else "reverse"
                        if side == "reverse" and link.one_way:
                            continue
                        routes[neighbour] = [*routes[node], (link, side)]
                        following.append(neighbour)
        edge = following
    return routes.get(target, [])


def planned(plan: Plan, links: Sequence[LinkSpec], source: str, target: str) -> Route | None:
    """The route that packets take by the nodes' tables; None if they do not arrive, because they go round or end."""
    by_name = {link.name: link for link in links}
    found: list[tuple[LinkSpec, Direction]] = []
    node, address = source, plan.nodes[target].address
    while node != target:
        if len(found) >= len(plan.nodes):
            return None
        try:
            interface, peer = next_hop(plan, node, address)
        except TestbedError:
            return None
        found.append((by_name[interface.link], "forward" if interface.end == 0 else "reverse"))
        node = peer.node
    return found
