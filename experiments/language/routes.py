"""The route of a flow through a scenario's links."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.scenario import Direction, LinkSpec, Scenario

#: Size of a data packet, in bytes.
PACKET_BYTES = 1500
#: Links from one host to another, each with the direction in which the route uses it.
Route = Sequence[tuple[LinkSpec, Direction]]


def route(scenario: Scenario, source: str, target: str) -> Route:
    """The route between two hosts with the fewest links; empty if there is none.

    A shared medium counts as one hop between any two of its ends.
    """
    routes: dict[str, list[tuple[LinkSpec, Direction]]] = {source: []}
    edge = [source]
    while edge and target not in routes:
        following = []
        for node in edge:
            for link in scenario.links:
                if node not in link.ends:
                    continue
                for neighbour in link.ends:
                    if neighbour not in routes:
                        side: Direction = "forward" if link.ends.index(node) < link.ends.index(neighbour) else "reverse"
                        if side == "reverse" and link.one_way:
                            continue
                        routes[neighbour] = [*routes[node], (link, side)]
                        following.append(neighbour)
        edge = following
    return routes.get(target, [])
