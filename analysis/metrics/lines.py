"""The directions of links: which packets crossed them, where they were captured, and what a line could carry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import polars as pl

from analysis.metrics.data import Flow, MissingCapture, RunData
from testbed.addressing import Plan, make_plan, next_hop
from testbed.errors import TestbedError


class Line:
    """One direction of a link, of a run."""

    def __init__(self, run: RunData, spec: Mapping[str, Any], port: int, network: _Network) -> None:
        self.run = run
        self.link = str(spec["name"])
        self.kind = str(spec["kind"])
        #: "forward" from the first end, "reverse" from the second, "port-N" from further ones.
        self.direction = direction_name(port)
        self.name = f"{self.link}/{self.direction}"
        self.spec: Mapping[str, Any] = spec["forward" if port == 0 else "reverse"]
        self.policy = str(self.spec["queue"]["name"])
        self.ends = [str(end) for end in spec["ends"]]
        #: The node at its sending end.
        self.sender = self.ends[port]
        self._port = port
        self._network = network

    @property
    def rate_bps(self) -> int | None:
        """The declared rate at the start, in bit/s; None: not limited."""
        rate = self.spec.get("rate_bps")
        return None if rate is None else int(rate)

    def rate_at(self, t_s: float) -> float:
        """The declared rate at an instant, schedule and all, in bit/s; infinite where it is not limited."""
        rate = math.inf if self.rate_bps is None else float(self.rate_bps)
        for one in self.spec.get("schedule", ()):
            if one.get("rate_bps") and float(one["at_s"]) <= t_s:
                rate = float(one["rate_bps"])
        return rate

    @property
    def counters(self) -> Mapping[str, Any]:
        """What the driver counted of it over the whole run, warm-up included; empty without a report."""
        return self.run.counters.get(self.link, {}).get(self.direction, {})

    def path(self, flow: Flow) -> list[tuple[str, str, str]]:
        """(node, link, next node) for every hop of a flow's data."""
        return self._network.of_flow(flow)

    def path_back(self, flow: Flow) -> list[tuple[str, str, str]]:
        """The same for its acks."""
        return self._network.of_flow(flow, back=True)

    def capacity_bits(self, from_s: float, to_s: float) -> float | None:
        """Bits that the line can carry in a period, by its declared rate and schedule; None: not limited."""
        if self.rate_bps is None:
            return None
        changed = [one for one in self.spec.get("schedule", ()) if one.get("rate_bps")]
        changes = sorted((float(one["at_s"]), int(one["rate_bps"])) for one in changed)
        steps = [(float("-inf"), self.rate_bps), *changes, (float("inf"), 0)]
        bits = 0.0
        for (begin_s, rate), (end_s, _) in pairwise(steps):
            bits += rate * max(min(end_s, to_s) - max(begin_s, from_s), 0.0)
        return bits

    @cached_property
    def at_entry(self) -> pl.DataFrame:
        """TCP segments that were given to it: those captured on the interface at its sending end, with `t_s`.

        They are seen there before the queue, and before a middlebox of that end.
        """
        return self._crossing([self._port])

    @cached_property
    def at_exit(self) -> pl.DataFrame:
        """TCP segments that came out of it: those captured on the interfaces at its receiving ends, with `t_s`."""
        return self._crossing([port for port in range(len(self.ends)) if port != self._port])

    def _crossing(self, ports: list[int]) -> pl.DataFrame:
        captured = {
            self.run.files[one["interface"]]: one["node"]
            for one in self.run.interfaces
            if one["link"] == self.link and one["end"] in ports and one["interface"] in self.run.files
        }
        if not captured:
            where = " or ".join(f"{self.ends[port]}:{self.link}" for port in ports)
            raise MissingCapture(f"{self.name} was not captured at {where}: let capture.at name it")
        parts = []
        own = self.run.connections.filter(pl.col("file").is_in(list(captured)))
        for row in own.select("file", "conn", "client", "server").iter_rows(named=True):
            segments = self.run.of_connection.get((row["file"], row["conn"]))
            for direction, (source, target) in enumerate(
                ((row["client"], row["server"]), (row["server"], row["client"]))
            ):
                path = self._network.path(source, target)
                # A medium with more than two ends shows a packet only to whom it is for.
                receivers = {after for before, link, after in path if link == self.link and before == self.sender}
                here = captured[row["file"]]
                if segments is not None and receivers and (here == self.sender or here in receivers):
                    parts.append(segments.filter(pl.col("dir") == direction))
        if not parts:
            return self.run.segments.clear().with_columns(pl.lit(None, pl.Float64).alias("t_s")).clear()
        return pl.concat(parts).sort("time_ns", maintain_order=True)

    def events(self, kind: str) -> pl.DataFrame:
        """What happened to packets here (`t_s`, `bytes`, `pure_ack`), from the links' telemetry.

        Raises:
            MissingCapture: the run kept no telemetry.
        """
        return self._telemetry.filter(pl.col("event") == kind).select("t_s", "bytes", "pure_ack")

    @cached_property
    def _telemetry(self) -> pl.DataFrame:
        rows = self.run.telemetry
        return rows.filter((pl.col("link") == self.link) & (pl.col("direction") == self.direction))

    def queue_steps(self) -> pl.DataFrame:
        """Packets that wait in its queue: `t_s`, `y`, `most`; from the links' telemetry.

        A row for every change of the length, at most one in 10 ms; `most` is the greatest since the row before.

        Raises:
            MissingCapture: the run kept no telemetry.
        """
        rows = self._telemetry.filter(pl.col("packets").is_not_null())
        return rows.select("t_s", pl.col("packets").cast(pl.Float64).alias("y"), pl.col("max").alias("most"))


def direction_name(port: int) -> str:
    """The name of the direction that begins at an end of a link, as reports and telemetry have it."""
    return {0: "forward", 1: "reverse"}.get(port, f"port-{port}")


class _Network:
    """Who reaches whom over which links: the routes of the run's network."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._owner = {one.address: one for ends in plan.links.values() for one in ends}
        self._paths: dict[tuple[str, str], list[tuple[str, str, str]]] = {}

    def path(self, source: str, target: str) -> list[tuple[str, str, str]]:
        """(node, link, next node) for every hop of a packet between two addresses; empty for unknown ones."""
        key = (source, target)
        if key not in self._paths:
            known = source in self._owner and target in self._owner
            self._paths[key] = list(self._hops(self._owner[source].node, target)) if known else []
        return self._paths[key]

    def of_flow(self, flow: Flow, *, back: bool = False) -> list[tuple[str, str, str]]:
        """The same for a flow's data, or its acks, between the addresses that it uses."""
        known = flow.connections
        if known.is_empty():
            source, target = self._plan.nodes[flow.sender].address, self._plan.nodes[flow.receiver].address
        else:
            source, target = known["client"][0], known["server"][0]
        return self.path(target, source) if back else self.path(source, target)

    def _hops(self, node: str, target: str) -> Iterator[tuple[str, str, str]]:
        goal = self._owner[target].node
        for _ in range(len(self._plan.nodes)):
            if node == goal:
                return
            try:
                own, following = next_hop(self._plan, node, target)
            except TestbedError:  # nobody gets there from here
                return
            yield node, own.link, following.node
            node = following.node


def lines_of(run: RunData) -> list[Line]:
    """Both directions of every link; every end's of a shared medium, the one of a one-way link. `RunData.all_lines`."""
    if not run.scenario.get("links"):
        return []
    network = _Network(make_plan(run.scenario["nodes"], run.scenario["links"]))
    return [Line(run, link, port, network) for link in run.scenario["links"] for port in range(_directions(link))]


def _directions(link: Mapping[str, Any]) -> int:
    return 1 if link.get("options", {}).get("one_way") else len(link["ends"])


def measured(run: RunData) -> list[Line]:
    """The directions that metrics are computed of: those of links between nodes that are no hosts.

    These are what a scenario is about; a network without any (two hosts, a mobile host and its base station) has all
    its links measured.
    """
    hosts = {node["name"] for node in run.scenario.get("nodes", ()) if node["kind"] == "host"}
    found = run.all_lines
    inner = [line for line in found if not hosts & set(line.ends)]
    return inner or found
