"""Topologies by name: from a campaign's lines to nodes and links."""

from __future__ import annotations

from typing import Any

from experiments.schema import Direction, Network, Policy


def build(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes (name, kind) and links of a network, as scenarios have them; stacks are not yet on the nodes."""
    match network.topology:
        case "asymmetric-path":
            return _asymmetric_path(network)
        case "line":
            return _line(network)
    nodes = [{"name": node.name, "kind": node.kind} for node in network.nodes]
    return nodes, [link.as_scenario() for link in network.links]


def _asymmetric_path(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Asym 7.1, figure 7: n0 - n1 = n2 - n3. Forward runs from the server to the client."""
    queue = Policy.model_validate({"policy": "droptail", "limit": "30 packets"})
    access = network.access or Direction(rate="10 Mbit/s", delay="1 ms", queue=queue)  # type: ignore[arg-type]
    nodes = [
        {"name": "server", "kind": "host"},
        {"name": "router1", "kind": "router"},
        {"name": "router2", "kind": "router"},
        {"name": "client", "kind": "host"},
    ]
    assert network.forward is not None
    links = [
        _link("server-access", ["server", "router1"], access, access),
        _link("bottleneck", ["router1", "router2"], network.forward, network.reverse or network.forward),
        _link("client-access", ["router2", "client"], access, access),
    ]
    return nodes, links


def _line(network: Network) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    assert network.forward is not None
    nodes = [{"name": "left", "kind": "host"}, {"name": "right", "kind": "host"}]
    return nodes, [_link("line", ["left", "right"], network.forward, network.reverse or network.forward)]


def _link(name: str, ends: list[str], forward: Direction, reverse: Direction) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "point-to-point",
        "ends": ends,
        "forward": forward.as_scenario(),
        "reverse": reverse.as_scenario(),
        "options": {},
    }
