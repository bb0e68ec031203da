"""What differs between repetitions by nature: starts, processing times, round trips, phases of traces.

Without these a simulation of identical repetitions can be locked in one phase, and its interval states how narrow that
phase is. Each draw has a stream of its own, seeded by the run and named after what it changes, so a flow more or less
changes no other draw and equal repetitions of two points have equal draws. docs/campaigns.md has the reasons.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.language import registry
from experiments.language.backends import SIM, in_virtual_time
from experiments.language.routes import PACKET_BYTES, route
from experiments.language.schema import Campaign, Flow
from testbed.scenario import Scenario

#: Default bounds: of a flow's delay in seconds and as a share of the flow's time, and of a round trip's growth.
START_S = 0.1
START_SHARE = 0.01
ROUND_TRIP_SHARE = 0.01

Links = Sequence[dict[str, Any]]


class Variation:
    """The draws of one repetition.

    Args:
        campaign: says what varies.
        seed: of the repetition.
    """

    def __init__(self, campaign: Campaign, seed: int) -> None:
        self._spec = campaign.variation
        self._is_simulated = campaign.backend == SIM
        self._is_exact = in_virtual_time(campaign.backend)
        self._duration_s = campaign.duration
        self._seed = seed
        self._bounds: dict[str, Any] = {}
        self._drawn: dict[str, float] = {}

    def start_s(self, flow: Flow, name: str) -> float:
        """The start of a flow that has no range of its own."""
        left_s = min(self._duration_s, flow.stop or self._duration_s) - flow.start[0]
        spec = self._spec.start
        bound_s = min(START_S, left_s * START_SHARE) if spec is None else spec
        if bound_s <= 0:
            return flow.start[0]
        self._bounds["start_s"] = max(bound_s, self._bounds.get("start_s", 0.0))
        delay_s = self._draw(f"workload.{name}.start_s", f"start/{name}", bound_s, 6)
        return round(flow.start[0] + delay_s, 6)

    def vary(self, scenario: dict[str, Any], has_rtt_range: bool) -> None:
        """Varies a scenario whose flows have their starts, and adds the record of it."""
        self._vary_processing(scenario)
        if not has_rtt_range:
            self._vary_round_trips(scenario)
        self._vary_phases(scenario["links"])
        if self._bounds:
            scenario["variation"] = {**self._bounds, "drawn": self._drawn}

    def _vary_processing(self, scenario: Mapping[str, Any]) -> None:
        spec = self._spec.processing
        if spec is None:
            rates_bps = list(_rates_bps(scenario["links"])) if self._is_simulated else []
            spec = round(PACKET_BYTES * 8 / max(rates_bps), 9) if rates_bps else 0.0
        if spec <= 0:
            return
        self._bounds["processing_s"] = spec
        for node in scenario["nodes"]:
            if node["kind"] == "host":
                node["processing_s"] = spec

    def _vary_round_trips(self, scenario: Mapping[str, Any]) -> None:
        """Lengthens, for each flow, the wire of an end that has no other."""
        spec = self._spec.round_trip
        bound = (ROUND_TRIP_SHARE if self._is_exact else 0.0) if spec is None else spec
        if bound <= 0:
            return
        self._bounds["round_trip"] = bound
        exact = Scenario.model_validate(scenario)
        for flow in scenario["workload"]:
            link = _wire(scenario["links"], (flow["from"], flow["to"]))
            if link is None or f"links.{link['name']}.delay_s" in self._drawn:
                continue
            ways = (route(exact, flow["from"], flow["to"]), route(exact, flow["to"], flow["from"]))
            rtt_s = sum(hop.direction(side).delay_s for hops in ways for hop, side in hops)
            name = link["name"]
            growth_s = self._draw(f"links.{name}.delay_s", f"round_trip/{name}", bound * rtt_s / 2, 9)
            for way in ("forward", "reverse"):
                link[way]["delay_s"] = round(link[way]["delay_s"] + growth_s, 9)

    def _vary_phases(self, links: Links) -> None:
        if not self._spec.phase:
            return
        for link in links:
            for way in ("forward", "reverse"):
                place, direction = f"links.{link['name']}.{way}", link[way]
                options = direction.get("options", {})
                if "trace" in options:
                    # Both directions start at the same share of their traces, which may have been recorded together.
                    period_s = int(options["trace"].split()[-1]) / 1000
                    offset_s = self._draw(f"{place}.offset_s", f"phase/{link['name']}", period_s, 3)
                    direction["options"] = {**options, "offset_s": offset_s}
                    self._bounds["phase"] = True
                for number, model in enumerate(direction.get("errors", [])):
                    if _is_loop(model):
                        field, packets = f"{place}.errors.{number}.offset_packets", _digits(model["options"]["trace"])
                        offset_packets = int(self._draw(field, f"phase/{place}/{number}", packets - 0.5, 0))
                        model["options"] = {**model["options"], "offset_packets": offset_packets}
                        self._bounds["phase"] = True

    def _draw(self, field: str, stream: str, bound: float, decimals: int) -> float:
        value = random.Random(f"{self._seed}/variation/{stream}").random() * bound
        self._drawn[field] = round(value, decimals)
        return self._drawn[field]


def draws(scenario: Mapping[str, Any]) -> Iterator[str]:
    """What a simulation of this scenario draws from its seed, such as "policy red"."""
    for node in scenario["nodes"]:
        if node.get("processing_s"):
            yield "processing time"
        yield from _draws_of("stack", node.get("stack"))
    for link in scenario["links"]:
        yield from _draws_of("link", {"name": link["kind"], "options": link["options"]})
        for box in link.get("middleboxes", []):
            yield from _draws_of("middlebox", box)
        for direction in (link["forward"], link["reverse"]):
            yield from _draws_of("direction", {"name": link["kind"], "options": direction.get("options", {})})
            yield from _draws_of("policy", direction["queue"])
            for model in _error_models(direction):
                yield from _draws_of("error-model", model)
    for flow in scenario["workload"]:
        yield from _draws_of("workload", {"name": flow["kind"], "options": flow.get("options", {})})


def _draws_of(kind: str, named: Mapping[str, Any] | None) -> Iterator[str]:
    if named is not None and registry.draws(kind, named["name"], named["options"]):
        yield f"{kind} {named['name']}"


def _error_models(direction: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in (direction, *direction.get("schedule", [])):
        yield from part.get("errors", [])


def _rates_bps(links: Links) -> Iterator[int]:
    for link in links:
        for direction in (link["forward"], link["reverse"]):
            for part in (direction, *direction.get("schedule", [])):
                if "rate_bps" in part:
                    yield part["rate_bps"]


def _wire(links: Links, hosts: Sequence[str]) -> dict[str, Any] | None:
    """The only link of the first of these hosts that has just one, if it is point to point."""
    for host in hosts:
        wires = [link for link in links if host in link["ends"]]
        if len(wires) == 1 and wires[0]["kind"] == "point-to-point":
            return wires[0]
    return None


def _is_loop(model: Mapping[str, Any]) -> bool:
    """Whether an error model repeats a trace and has no offset of its own."""
    options = model["options"]
    return model["name"] == "recorded" and options.get("repeat", True) and "offset_packets" not in options


def _digits(trace: str) -> int:
    """Packets of a trace of the error model `recorded`."""
    return sum(character in "01" for line in trace.splitlines() for character in line.split("#")[0])
