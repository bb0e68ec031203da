"""Known traps of emulation: scenarios that run without an error but do not measure what they seem to.

Each trap is a function that yields findings for a backend and a scenario, with the reason and the remedy. Traps cause
warnings of `./backchannel validate` and reject nothing, because each may be the subject of a study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments.language import registry
from experiments.language.backends import Backend
from experiments.language.campaign import Plan
from experiments.language.located import Source
from experiments.language.routes import PACKET_BYTES, Route, route
from experiments.language.yaml_text import FieldPath
from testbed import fidelity, node_binary
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import DIRECTIONS, Direction, Flow, Limits, LinkSpec, Named, Scenario, of_flow
from testbed.units import show

#: 99th percentile of a timer's lateness on an idle machine, in s.
TIMER_S = 65e-6
#: Initial window of Linux, in segments (RFC 6928).
KERNEL_INITIAL_WINDOW = 10
#: Packet rate that the emulator carries through one line on one core, with a margin.
EMULATOR_PPS = 100_000
#: Minimum number of full packets on a line for meaningful shares and means.
MIN_PACKETS = 50
#: Share of a run that a full queue may take to drain.
DRAIN_SHARE = 0.5
#: Header of a captured frame.
ETHERNET_BYTES = 14
#: Shortest ack over IPv6: two headers.
ACK_BYTES_V6 = 60
#: Names of the lines under study in named topologies.
STUDIED = ("bottleneck", "line", "air")

#: Link, direction and message. Link and direction are empty for a finding about the whole scenario.
Finding = tuple[str, str, str]


@dataclass(frozen=True)
class Trap:
    """One finding of a trap."""

    name: str
    link: str
    direction: str
    message: str


@dataclass(frozen=True)
class TrapContext:
    """A scenario on a backend, with what several traps look at."""

    backend: Backend
    scenario: Scenario

    @cached_property
    def flows(self) -> Sequence[tuple[Flow, Route]]:
        """Flows with their routes. Flows without a route are left out."""
        routes = ((flow, route(self.scenario, flow.from_, flow.to)) for flow in self.scenario.workload)
        return [(flow, hops) for flow, hops in routes if hops]

    @cached_property
    def used_directions(self) -> Sequence[tuple[LinkSpec, Direction]]:
        """Directions with a rate and a queue limit that data cross."""
        used = {(link.name, side) for _, hops in self.flows for link, side in hops}
        return [
            (link, side)
            for link in self.scenario.links
            for side in DIRECTIONS
            if (link.name, side) in used
            and link.direction(side).rate_bps
            and _limit_packets(link.direction(side).queue)
        ]


def find(backend: Backend, scenario: Scenario) -> list[Trap]:
    """All findings for one scenario."""
    context = TrapContext(backend, scenario)
    traps = (Trap(name, *finding) for name, look in TRAPS.items() for finding in look(context))
    return list(dict.fromkeys(traps))


def queue_below_one_burst(context: TrapContext) -> Iterator[Finding]:
    """A queue that is smaller than the initial window loses packets at the start of every connection."""
    for flow, hops in context.flows:
        burst = _initial_window(context.scenario, flow)
        faster_bps = math.inf
        for link, side in hops:
            rate_bps = _rate_bps(link, side)
            limit = _limit_packets(link.direction(side).queue)
            # Packets that arrive no faster than they leave need no queue. One packet of the burst is on the line.
            if rate_bps < faster_bps and limit is not None and limit + 1 < burst:
                yield (
                    link.name,
                    side,
                    f"flow {flow.name} begins with {burst:g} segments back to back, and this queue holds {limit:g}, "
                    f"so the first window always loses packets; set a limit of at least {burst:g} packets, or use a "
                    "stack with a smaller initial window",
                )
            faster_bps = min(faster_bps, rate_bps)


def timer_coarser_than_a_packet(context: TrapContext) -> Iterator[Finding]:
    """On a fast line several packets are due before a timer has fired once, so they leave in bursts."""
    if context.backend.in_virtual_time:
        return
    for link, side in _directions(context.scenario):
        packet_s = PACKET_BYTES * 8 / _rate_bps(link, side)
        if 0 < packet_s < TIMER_S:
            yield (
                link.name,
                side,
                f"at {show(_rate_bps(link, side), 'rate')} a full packet takes {show(packet_s, 'time')}, and timers "
                f"are up to {show(TIMER_S, 'time')} late, so packets leave in bursts and rates hold only on average; "
                "use the sim backend, which has no such limit",
            )


def more_packets_than_the_emulator_carries(context: TrapContext) -> Iterator[Finding]:
    """Packets beyond the capacity of one core are late, and every run is invalid."""
    if not context.backend.in_cell:
        return
    for flow, hops in context.flows:
        slowest_bps = min(_rate_bps(link, side) for link, side in hops)
        if slowest_bps / (8 * PACKET_BYTES) > EMULATOR_PPS:
            yield (
                hops[0][0].name,
                hops[0][1],
                f"every link of flow {flow.name} is faster than {show(EMULATOR_PPS * 8 * PACKET_BYTES, 'rate')}, "
                "which one core can copy, so the kernel is the bottleneck; set a lower rate on a link",
            )


def small_queues_on_the_senders_host(context: TrapContext) -> Iterator[Finding]:
    """Linux limits a socket's packets in the queues of its host (TCP small queues), so the shaped queue never fills.

    Emulated lines take packets out of the host at once, and a link box is another host. Only a kernel shaper on the
    sender's interface is affected.
    """
    for flow, hops in context.flows:
        link, side = hops[0]
        slowest_bps = min(_rate_bps(*hop) for hop in hops)
        shapes = link.kind == "kernel" and link.direction(side).rate_bps == slowest_bps
        if shapes and is_kernel_stack(_stack(context.scenario, flow).name):
            yield (
                link.name,
                side,
                f"{flow.from_} sends flow {flow.name} and shapes it too: its kernel holds packets back (TCP "
                "small queues), so the queue under study hardly fills; put a router between the host and the link",
            )


def offloads_may_be_on(context: TrapContext) -> Iterator[Finding]:
    """With segmentation offload, captures show packets of up to 64 kB that were never on a wire.

    Emulated lines end in interfaces without offloads. Network cards have them.
    """
    if context.backend.in_lab:
        yield (
            "",
            "",
            "network cards join and split packets where captures do not see it (tso, gso, gro), so 'ethtool -k' must "
            "report off on every captured interface; provisioning turns them off and the check before a campaign "
            "verifies it",
        )


def clocks_apart(context: TrapContext) -> Iterator[Finding]:
    """The error of a one-way delay between two hosts is the difference of their clocks."""
    if context.backend.in_lab:
        yield (
            "",
            "",
            "one-way delays compare the clocks of two hosts, so they are meaningful only if chrony keeps the clocks "
            "closer than the delays; round trips and rates do not depend on it",
        )


def bottleneck_elsewhere(context: TrapContext) -> Iterator[Finding]:
    """A wire around the line under study is slower than the line."""
    for flow, hops in context.flows:
        studied = [hop for hop in hops if hop[0].name in STUDIED and hop[0].direction(hop[1]).rate_bps is not None]
        for link, side in hops if studied else ():
            line_bps, rate_bps = _rate_bps(*studied[0]), _rate_bps(link, side)
            if link.name not in STUDIED and rate_bps < line_bps:
                yield (
                    link.name,
                    side,
                    f"the rate of this link is {show(rate_bps, 'rate')} and that of the link under study "
                    f"{show(line_bps, 'rate')}, so flow {flow.name} queues here and not at the link's policy; set "
                    "a faster 'access'",
                )


def run_shorter_than_a_queue(context: TrapContext) -> Iterator[Finding]:
    """A full queue takes a large part of the run to drain, so the run measures how the queue fills."""
    for link, side in context.used_directions:
        limit, duration_s = _limit_packets(link.direction(side).queue), context.scenario.duration_s
        if _drain_s(link, side) > DRAIN_SHARE * duration_s:
            yield (
                link.name,
                side,
                f"{limit:g} full packets take {show(_drain_s(link, side), 'time')} at "
                f"{show(_rate_bps(link, side), 'rate')}, and a run takes {show(duration_s, 'time')}, so it ends before "
                "the queue is stable; set a longer duration or a smaller limit",
            )


def ipv6_headers_are_not_compressed(context: TrapContext) -> Iterator[Finding]:
    """RFC 1144 compresses TCP over IPv4 only, so every packet of IPv6 crosses the line whole."""
    for flow, link, side in _directions_of_ipv6(context):
        compression = link.direction(side).options.get("header_compression", "none")
        if compression != "none":
            yield (
                link.name,
                side,
                f"flow {flow.name} uses IPv6, and {compression} compresses headers of IPv4 only (RFC 1144), so its "
                "headers of 60 bytes cross this link whole; use 'ip: 4', or leave 'header_compression' out",
            )


def ipv6_acks_longer_than_aqs(context: TrapContext) -> Iterator[Finding]:
    """AQ serves packets up to a size as acks, by default that of an ack over IPv4 without options."""
    for flow, link, side in _directions_of_ipv6(context):
        queue = link.direction(side).queue
        if queue.name != "aq" or _option(queue, "classify") != "size":
            continue
        ack_bytes = float(_option(queue, "ack_bytes"))
        if ack_bytes < ACK_BYTES_V6:
            yield (
                link.name,
                side,
                f"an ack over IPv6 has at least {ACK_BYTES_V6} B, and this queue serves packets of at most "
                f"{ack_bytes:g} B as acks, so none of flow {flow.name}; set 'ack', or 'classify: pure-ack'",
            )


def few_packets(context: TrapContext) -> Iterator[Finding]:
    """Shares and means over few packets have little meaning."""
    for link, side in context.used_directions:
        duration_s = context.scenario.duration_s
        packets = duration_s * _rate_bps(link, side) / (8 * PACKET_BYTES)
        if packets < MIN_PACKETS and _drain_s(link, side) <= DRAIN_SHARE * duration_s:
            yield (
                link.name,
                side,
                f"this link carries {packets:.0f} full packets in {show(duration_s, 'time')}, too few for meaningful "
                "means; set a longer duration",
            )


def wider_limits(context: TrapContext) -> Iterator[Finding]:
    """Runs count as valid that the default limits would reject."""
    if context.scenario.fidelity == Limits():
        return
    wider = fidelity.wider(context.scenario.fidelity)
    if wider:
        yield (
            "",
            "",
            f"'fidelity' accepts deviations beyond the default limits ({', '.join(wider)}); state that beside the "
            "results, or remove 'fidelity' to use the default limits",
        )


def captures_cut_off(context: TrapContext) -> Iterator[Finding]:
    """A packet can be decrypted only if all of it was captured."""
    snaplen = context.scenario.capture.snaplen
    for flow in context.scenario.workload:
        stack = _stack(context.scenario, flow)
        options = {**stack.options, **flow.stack}
        whole = (options.get("packet_bytes") or PACKET_BYTES) + ETHERNET_BYTES
        if options.get("session") == "tls" and snaplen < whole and "none" not in context.scenario.capture.at:
            yield (
                "",
                "",
                f"flow {flow.name} is encrypted and captures have the first {snaplen} B of a packet, so the run's key "
                f"log cannot decrypt them; set 'snaplen: {whole} B', or take the frames from the qlog files",
            )


def _directions_of_ipv6(context: TrapContext) -> Iterator[tuple[Flow, LinkSpec, Direction]]:
    """Each flow over IPv6 with the directions that its data and its acks cross."""
    for flow, hops in context.flows:
        if flow.ip == 6:
            for link, side in [*hops, *route_back(context, flow)]:
                yield flow, link, side


def route_back(context: TrapContext, flow: Flow) -> Route:
    """The way of a flow's acks."""
    return route(context.scenario, flow.to, flow.from_)


TRAPS: Mapping[str, Callable[[TrapContext], Iterator[Finding]]] = {
    "queue below one burst": queue_below_one_burst,
    "timer coarser than a packet": timer_coarser_than_a_packet,
    "more packets than the emulator carries": more_packets_than_the_emulator_carries,
    "small queues on the sender's host": small_queues_on_the_senders_host,
    "offloads": offloads_may_be_on,
    "clocks apart": clocks_apart,
    "bottleneck elsewhere": bottleneck_elsewhere,
    "run shorter than a queue": run_shorter_than_a_queue,
    "few packets": few_packets,
    "headers of IPv6 are not compressed": ipv6_headers_are_not_compressed,
    "acks of IPv6 are longer": ipv6_acks_longer_than_aqs,
    "wider limits": wider_limits,
    "captures cut off": captures_cut_off,
}


def warnings(plan: Plan, source: Source) -> list[str]:
    """One line for each old name, and one for each trap with file, line, field, and the points if not all have it."""
    points: dict[Trap, set[int]] = {}
    for number, scenario in plan.first_scenarios():
        for trap in find(plan.backend, scenario):
            points.setdefault(trap, set()).add(number)
    # Messages contain values, which differ between points. The first message of a group is printed.
    groups: dict[tuple[str, FieldPath], list[Trap]] = {}
    for trap in points:
        groups.setdefault((trap.name, _place(source, trap)), []).append(trap)
    lines = list(source.notes)
    for (name, path), traps in groups.items():
        affected = set().union(*(points[trap] for trap in traps))
        some = f" (at {len(affected)} of {len(plan.points)} combinations)" if len(affected) < len(plan.points) else ""
        message = f"warning: {name}: {traps[0].message}{some}"
        lines.append(source.problem(path, message).text(source.name))
    return lines


def _place(source: Source, trap: Trap) -> FieldPath:
    """The field that causes a trap."""
    network = source.values.get("network")
    if not trap.link or not isinstance(network, dict):
        return ({"wider limits": "fidelity", "captures cut off": "capture"}.get(trap.name, "backend"),)
    for number, link in enumerate(network.get("links") or []):
        if isinstance(link, dict) and link.get("name") == trap.link:
            return ("network", "links", number, trap.direction if trap.direction in link else "forward")
    if trap.link in STUDIED:
        return ("network", trap.direction if trap.direction in network else "forward")
    return ("network", "access")


def _directions(scenario: Scenario) -> Iterator[tuple[LinkSpec, Direction]]:
    return ((link, side) for link in scenario.links for side in DIRECTIONS)


def _rate_bps(link: LinkSpec, side: Direction) -> float:
    """Rate of a direction; infinite without a limit."""
    rate_bps = link.direction(side).rate_bps
    return math.inf if rate_bps is None else rate_bps


def _drain_s(link: LinkSpec, side: Direction) -> float:
    """Time in which a full queue drains."""
    return (_limit_packets(link.direction(side).queue) or 0.0) * PACKET_BYTES * 8 / _rate_bps(link, side)


def _stack(scenario: Scenario, flow: Flow) -> Named:
    """The stack of a flow's sender."""
    stack = scenario.node(flow.from_).stack
    assert stack is not None, "a flow starts at a host, and every host has a stack"
    return stack


def _initial_window(scenario: Scenario, flow: Flow) -> float:
    """Initial window of a flow's sender, in segments."""
    stack = of_flow(_stack(scenario, flow), flow)
    if is_kernel_stack(stack.name):
        return KERNEL_INITIAL_WINDOW
    window = stack.options.get("initial_window_segments") or _default("stack", stack.name, "initial_window_segments")
    return float(window or 1)


def _limit_packets(queue: Named) -> float | None:
    """Number of full packets that a queue holds; None without a known limit."""
    limit = queue.options.get("limit_packets")
    if limit is None and registry.children("policy", queue.name, queue.options):
        return None
    limit = limit or _default("policy", queue.name, "limit_packets")
    buffer = queue.options.get("buffer_bytes")
    limits = [float(limit)] if limit else []
    limits += [buffer / PACKET_BYTES] if buffer else []
    return min(limits, default=None)


def _option(policy: Named, name: str) -> Any:
    """An option of a queue, or its default."""
    return policy.options.get(name, _default("policy", policy.name, name))


@node_binary.cached
def _default(kind: str, name: str, option: str) -> Any:
    return next((param.default for param in registry.find(kind, name).params if param.name == option), None)
