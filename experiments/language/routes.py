"""The route of a flow through a scenario's links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Size of a data packet, in bytes.
PACKET_BYTES = 1500
#: Links from one host to another, each with the direction in which the route uses it.
Route = Sequence[tuple[Mapping[str, Any], str]]


def route(scenario: Mapping[str, Any], source: str, target: str) -> Route:
    """The route between two hosts with the fewest links; empty if there is none.

    A shared medium counts as one hop between any two of its ends.
    """
    routes: dict[str, list[tuple[Mapping[str, Any], str]]] = {source: []}
    edge = [source]
    while edge and target not in routes:
        following = []
        for node in edge:
            for link in scenario["links"]:
                if node not in link["ends"]:
                    continue
                for neighbour in link["ends"]:
                    if neighbour not in routes:
                        side = "forward" if link["ends"].index(node) < link["ends"].index(neighbour) else "reverse"
                        if side == "reverse" and link["options"].get("one_way"):
                            continue
                        routes[neighbour] = [*routes[node], (link, side)]
                        following.append(neighbour)
        edge = following
    return routes.get(target, [])
