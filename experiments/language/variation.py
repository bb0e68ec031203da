"""What differs between repetitions by nature: starts, processing times, round trips, phases of traces.

Without these a simulation of identical repetitions can be locked in one phase, and its interval states how narrow that
phase is. Each draw has a stream of its own, seeded by the run and named after what it changes, so a flow more or less
changes no other draw and equal repetitions of two points have equal draws. docs/campaigns.md has the reasons.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from experiments.language import registry
from experiments.language.routes import PACKET_BYTES, route
from experiments.language.schema import Campaign, Flow
from testbed.scenario import Direction, DirectionSpec, LinkSpec, Named, Options, Scenario, Variation as VariationRecord

#: Default bounds: of a flow's delay in seconds and as a share of the flow's time, and of a round trip's growth.
START_S = 0.1
START_SHARE = 0.01
ROUND_TRIP_SHARE = 0.01


class Variation:
    """The draws of one repetition."""

    def __init__(self, campaign: Campaign, seed: int) -> None:
        self._spec = campaign.variation
        self._is_simulated = not campaign.backend.has_real_packets
        self._is_exact = campaign.backend.in_virtual_time
        self._duration_s = campaign.duration
        self._seed = seed
        self._record = VariationRecord()
        self._drawn: dict[str, float] = {}

    def start_s(self, flow: Flow, name: str) -> float:
        """The start of a flow that has no range of its own."""
        left_s = min(self._duration_s, flow.stop or self._duration_s) - flow.start[0]
        spec = self._spec.start
        bound_s = min(START_S, left_s * START_SHARE) if spec is None else spec
        if bound_s <= 0:
            return flow.start[0]
        self._record = self._record.replace(start_s=max(bound_s, self._record.start_s or 0.0))
        delay_s = self._draw(f"workload.{name}.start_s", f"start/{name}", bound_s, 6)
        return round(flow.start[0] + delay_s, 6)

    def vary(self, scenario: Scenario, has_rtt_range: bool) -> Scenario:
        """The scenario, whose flows have their starts, with what else varies and the record of it."""
        scenario = self._with_processing(scenario)
        links = list(scenario.links) if has_rtt_range else self._with_round_trips(scenario)
        if self._spec.phase:
            links = [self._with_phases(link) for link in links]
        scenario = scenario.replace(links=tuple(links))
        if not self._record.as_json():
            return scenario
        return scenario.replace(variation=self._record.replace(drawn=self._drawn))

    def _with_processing(self, scenario: Scenario) -> Scenario:
        spec = self._spec.processing
        if spec is None:
            rates_bps = list(_rates_bps(scenario.links)) if self._is_simulated else []
            spec = round(PACKET_BYTES * 8 / max(rates_bps), 9) if rates_bps else 0.0
        if spec <= 0:
            return scenario
        self._record = self._record.replace(processing_s=spec)
        return scenario.replace(
            nodes=tuple(node.replace(processing_s=spec) if node.kind == "host" else node for node in scenario.nodes)
        )

    def _with_round_trips(self, scenario: Scenario) -> list[LinkSpec]:
        """Lengthens, for each flow, the wire of an end that has no other."""
        spec = self._spec.round_trip
        bound = (ROUND_TRIP_SHARE if self._is_exact else 0.0) if spec is None else spec
        if bound <= 0:
            return list(scenario.links)
        self._record = self._record.replace(round_trip=bound)
        longer: dict[str, LinkSpec] = {}
        for flow in scenario.workload:
            link = _wire(scenario.links, (flow.from_, flow.to))
            if link is None or link.name in longer:
                continue
            ways = (route(scenario, flow.from_, flow.to), route(scenario, flow.to, flow.from_))
            rtt_s = sum(hop.direction(side).delay_s for hops in ways for hop, side in hops)
            growth_s = self._draw(f"links.{link.name}.delay_s", f"round_trip/{link.name}", bound * rtt_s / 2, 9)
            forward, reverse = (
                direction.replace(delay_s=round(direction.delay_s + growth_s, 9))
                for direction in (link.forward, link.reverse)
            )
            longer[link.name] = link.replace(forward=forward, reverse=reverse)
        return [longer.get(link.name, link) for link in scenario.links]

    def _with_phases(self, link: LinkSpec) -> LinkSpec:
        directions = {way: self._with_phase(link.name, way, direction) for way, direction in link.directions()}
        is_changed = any(directions[way] is not direction for way, direction in link.directions())
        return link.replace(**directions) if is_changed else link

    def _with_phase(self, link: str, way: Direction, direction: DirectionSpec) -> DirectionSpec:
        place = f"links.{link}.{way}"
        if "trace" in direction.options:
            # Both directions start at the same share of their traces, which may have been recorded together.
            period_s = int(direction.options["trace"].split()[-1]) / 1000
            offset_s = self._draw(f"{place}.offset_s", f"phase/{link}", period_s, 3)
            direction = direction.replace(options={**direction.options, "offset_s": offset_s})
            self._record = self._record.replace(phase=True)
        offsets: dict[int, Named] = {}
        for number, model in enumerate(direction.errors):
            if _is_loop(model):
                field, packets = f"{place}.errors.{number}.offset_packets", _digits(model.options["trace"])
                offset_packets = int(self._draw(field, f"phase/{place}/{number}", packets - 0.5, 0))
                offsets[number] = model.replace(options={**model.options, "offset_packets": offset_packets})
                self._record = self._record.replace(phase=True)
        if not offsets:
            return direction
        errors = tuple(offsets.get(number, model) for number, model in enumerate(direction.errors))
        return direction.replace(errors=errors)

    def _draw(self, field: str, stream: str, bound: float, decimals: int) -> float:
        value = random.Random(f"{self._seed}/variation/{stream}").random() * bound
        self._drawn[field] = round(value, decimals)
        return self._drawn[field]


def draws(scenario: Scenario) -> Iterator[str]:
    """What a simulation of this scenario draws from its seed, such as "policy red"."""
    for node in scenario.nodes:
        if node.processing_s:
            yield "processing time"
        if node.stack is not None:
            yield from _draws_of("stack", node.stack.name, node.stack.options)
    for link in scenario.links:
        yield from _draws_of("link", link.kind, link.options)
        for box in link.middleboxes:
            yield from _draws_of("middlebox", box.name, box.options)
        for _, direction in link.directions():
            yield from _draws_of("direction", link.kind, direction.options)
            if direction.jitter_s or any(change.jitter_s for change in direction.schedule):
                yield "jitter"
            yield from _draws_of("policy", direction.queue.name, direction.queue.options)
            for model in _error_models(direction):
                yield from _draws_of("error-model", model.name, model.options)
    for flow in scenario.workload:
        yield from _draws_of("workload", flow.kind, flow.options)


def _draws_of(kind: str, name: str, options: Options) -> Iterator[str]:
    if registry.draws(kind, name, options):
        yield f"{kind} {name}"


def _error_models(direction: DirectionSpec) -> Iterator[Named]:
    yield from direction.errors
    for change in direction.schedule:
        yield from change.errors or ()


def _rates_bps(links: Sequence[LinkSpec]) -> Iterator[int]:
    for link in links:
        for _, direction in link.directions():
            rates_bps = (direction.rate_bps, *(change.rate_bps for change in direction.schedule))
            yield from (rate_bps for rate_bps in rates_bps if rate_bps is not None)


def _wire(links: Sequence[LinkSpec], hosts: Sequence[str]) -> LinkSpec | None:
    """The only link of the first of these hosts that has just one, if it is point to point."""
    for host in hosts:
        wires = [link for link in links if host in link.ends]
        if len(wires) == 1 and wires[0].kind == "point-to-point":
            return wires[0]
    return None


def _is_loop(model: Named) -> bool:
    """Whether an error model repeats a trace and has no offset of its own."""
    options = model.options
    return model.name == "recorded" and options.get("repeat", True) and "offset_packets" not in options


def _digits(trace: str) -> int:
    """Packets of a trace of the error model `recorded`."""
    return sum(character in "01" for line in trace.splitlines() for character in line.split("#")[0])
