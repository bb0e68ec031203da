"""Routes of a scenario's network: which lines the packets between two addresses, or the data of a flow, cross."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.addressing import Plan, both, make_plan, next_hop
from testbed.errors import TestbedError
from testbed.scenario import DirectionSpec, Flow, LinkSpec, Scenario


def direction_name(port: int) -> str:
    """The name of the direction that begins at an end of a link, as in reports and telemetry."""
    return {0: "forward", 1: "reverse"}.get(port, f"port-{port}")


class Routes:
    """The routes of the run's network.

    Args:
        plan: the network.
        nodes: node of each address that packets have, where that is not the plan's: of devices behind a node, or of
            networks that others addressed.
    """

    def __init__(self, plan: Plan, nodes: Mapping[str, str] | None = None) -> None:
        self._plan = plan
        self._owner = {address: end for ends in plan.links.values() for end in ends for address in both(end.address)}
        planned = {name: end for name, node in plan.nodes.items() for end in node.interfaces[:1]}
        for address, name in (nodes or {}).items():
            if name in planned and (address not in self._owner or self._owner[address].node != name):
                self._owner[address] = planned[name]
        self._paths: dict[tuple[str, str], list[tuple[str, str, str]]] = {}

    def path(self, source: str, target: str) -> list[tuple[str, str, str]]:
        """(node, link, next node) for every hop of a packet between two addresses; empty for unknown addresses."""
        key = (source, target)
        if key not in self._paths:
            known = source in self._owner and target in self._owner
            # Routes of both versions of IP take the same ways.
            self._paths[key] = list(self._hops(self._owner[source].node, self._owner[target].address)) if known else []
        return self._paths[key]

    def between(self, source: str, target: str) -> list[tuple[str, str, str]]:
        """The same between two nodes, by their first addresses."""
        return self.path(self._plan.nodes[source].address, self._plan.nodes[target].address)

    def _hops(self, node: str, target: str) -> Iterator[tuple[str, str, str]]:
        goal = next(
            name for name, entry in self._plan.nodes.items() if target in [end.address for end in entry.interfaces]
        )
        for _ in range(len(self._plan.nodes)):
            if node == goal:
                return
            try:
                near, following = next_hop(self._plan, node, target)
            except TestbedError:  # no route
                return
            yield node, near.link, following.node
            node = following.node


def data_paths(scenario: Scenario) -> dict[str, list[tuple[str, float | None]]]:
    """The lines that each flow's data cross, each with its declared rate at the start in bit/s; None without one."""
    if not scenario.links:
        return {}
    routes = Routes(make_plan(scenario.nodes, scenario.links))
    links = {link.name: link for link in scenario.links}
    paths: dict[str, list[tuple[str, float | None]]] = {}
    for flow in scenario.workload:
        path = paths.setdefault(flow.name, [])
        for node, name, _ in routes.between(flow.from_, flow.to):
            line, direction = _line(links[name], node)
            path.append((line, direction.rate_bps))
    return paths


def bottlenecks(scenario: Scenario) -> dict[str, list[str]]:
    """Lines that several flows share in one direction, each with the names of these flows.

    Of the lines that the same flows cross, only that with the least declared rate at the start; of equal ones the first
    on the path. Lines at a host count only where there are no others.
    """
    hosts = {node.name for node in scenario.nodes if node.kind == "host"}
    links = [link.name for link in scenario.links]
    inner = [link.name for link in scenario.links if not hosts & set(link.ends)] or links
    flows: dict[str, list[str]] = {}
    rates: dict[str, float] = {}
    for name, path in data_paths(scenario).items():
        for line, rate in path:
            if line.rpartition("/")[0] in inner:
                flows.setdefault(line, []).append(name)
                rates[line] = math.inf if rate is None else rate
    by_path: dict[tuple[str, ...], str] = {}
    for line in sorted(flows, key=lambda line: rates[line]):
        if len(flows[line]) > 1:
            by_path.setdefault(tuple(flows[line]), line)
    return {line: list(names) for names, line in by_path.items()}


@dataclass(frozen=True)
class LimitingLine:
    """The slowest line on a flow's path."""

    #: LINK/DIRECTION.
    name: str
    #: From when (s since the run's start) it has which rate (bit/s), in order of time; at least the rate at the start.
    rates: tuple[tuple[float, float], ...]


def limiting_line(scenario: Scenario, flow: Flow) -> LimitingLine | None:
    """The line with the least declared rate at the start that a flow's data crosses; None if no line has one.

    Of equal ones, one between routers.
    """
    hosts = {node.name for node in scenario.nodes if node.kind == "host"}
    if not scenario.links or not {flow.from_, flow.to} <= {node.name for node in scenario.nodes}:
        return None
    links = {link.name: link for link in scenario.links}
    hops = Routes(make_plan(scenario.nodes, scenario.links)).between(flow.from_, flow.to)
    limited = [
        (direction.rate_bps, bool(hosts & {node, after}), name, direction)
        for node, link, after in hops
        for name, direction in [_line(links[link], node)]
        if direction.rate_bps
    ]
    if not limited:
        return None
    rate_bps, _, name, direction = min(limited, key=lambda line: line[:2])
    changes = [(change.at_s, float(change.rate_bps)) for change in direction.schedule if change.rate_bps]
    return LimitingLine(name, ((0.0, float(rate_bps)), *changes))


def _line(link: LinkSpec, node: str) -> tuple[str, DirectionSpec]:
    """Name and declaration of the direction of a link that begins at a node."""
    port = link.ends.index(node)
    return f"{link.name}/{direction_name(port)}", link.reverse if port else link.forward
