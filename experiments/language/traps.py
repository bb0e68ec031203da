"""Known traps of emulation: scenarios that run without a complaint and mean something other than they seem to.

Each trap is one function from a backend and a scenario to what it finds, with the reason and the cure. `./backchannel
validate` warns; nothing is refused, because each may be what somebody wants to study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.language import registry
from experiments.language.campaign import Plan
from experiments.language.routes import PACKET_BYTES, Route, route
from experiments.language.source import Path_, Source
from testbed import fidelity
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import DIRECTIONS, Direction, Flow, LinkSpec, Named, Scenario
from testbed.units import show

#: A timer's wake-up comes so late in one case of a hundred, on an idle machine, in seconds.
TIMER_S = 65e-6
#: Linux begins a connection with so many segments (RFC 6928).
KERNEL_INITIAL_WINDOW = 10
#: Packets a second that an emulator carries through one line on one core, with room to spare.
EMULATOR_PPS = 100_000
#: Full packets that a line should carry in a run, for shares and means to mean something.
FEW_PACKETS = 50
#: Share of a run that a full queue may take to drain.
DRAIN_SHARE = 0.5
#: Lines of the topologies, and where a campaign file describes them.
STUDIED = ("bottleneck", "line", "air")
#: Backends on which packets cross real interfaces.
REAL = ("emulated", "physical")


@dataclass(frozen=True)
class Trap:
    """One finding."""

    name: str
    #: The link and direction it is about; "" for the whole.
    link: str
    direction: str
    message: str
    #: Of the file, where it is about the whole.
    field: str = "backend"


def find(backend: str, scenario: Scenario) -> list[Trap]:
    """Everything that one scenario runs into, each once."""
    return list(dict.fromkeys(trap for look in TRAPS for trap in look(backend, scenario)))


def queue_below_one_burst(_: str, scenario: Scenario) -> Iterator[Trap]:
    """A sender's first window comes back to back; a queue that cannot hold it decides the start of every connection."""
    for flow, hops in _flows(scenario):
        burst = _initial_window(scenario, flow)
        faster_bps = math.inf
        for link, side in hops:
            rate_bps = rate_bps_of(link, side)
            limit = _limit_packets(link.direction(side).queue)
            # What comes no faster than it leaves needs no queue. One packet of the burst is on the line.
            if rate_bps < faster_bps and limit is not None and limit + 1 < burst:
                yield Trap(
                    "queue below one burst", link.name, side,
                    f"flow {flow.name} begins with {burst:g} segments back to back, and this queue holds {limit:g}: "
                    "the first window loses packets whatever is studied; a limit of at least "
                    f"{burst:g} packets, or a stack with a smaller initial window, avoids it",
                )  # fmt: skip
            faster_bps = min(faster_bps, rate_bps)


def timer_coarser_than_a_packet(backend: str, scenario: Scenario) -> Iterator[Trap]:
    """On a fast line several packets are due before a timer has fired once: they leave in clumps."""
    if backend not in REAL:
        return
    for link, side in _directions(scenario):
        rate_bps = link.direction(side).rate_bps
        if rate_bps and PACKET_BYTES * 8 / rate_bps < TIMER_S:
            yield Trap(
                "timer coarser than a packet", link.name, side,
                f"at {show(rate_bps, 'rate')} a full packet takes {show(PACKET_BYTES * 8 / rate_bps, 'time')}, and "
                f"timers come {show(TIMER_S, 'time')} late: packets leave in clumps, rates hold only on average; the "
                "sim backend has no such limit",
            )  # fmt: skip


def more_packets_than_the_emulator_carries(backend: str, scenario: Scenario) -> Iterator[Trap]:
    """What one core cannot copy is late, and the run is invalid every time."""
    if backend != "emulated":
        return
    for flow, hops in _flows(scenario):
        slowest_bps = min((rate_bps_of(link, side) for link, side in hops), default=0.0)
        if slowest_bps / (8 * PACKET_BYTES) > EMULATOR_PPS:
            yield Trap(
                "more packets than the emulator carries", *_first(hops),
                f"nothing on the way of flow {flow.name} is slower than "
                f"{show(EMULATOR_PPS * 8 * PACKET_BYTES, 'rate')}, which is what one core copies: the kernel, not the "
                "line, will be the bottleneck; a rate on the line avoids it",
            )  # fmt: skip


def small_queues_on_the_senders_own_host(backend: str, scenario: Scenario) -> Iterator[Trap]:
    """Linux keeps a socket from filling its own host's queue (TCP small queues): the shaped queue never fills.

    An emulated line takes packets out of the host at once, so that the kernel takes them for sent, and a link box is
    another host; a shaper of the kernel on the host's own interface is neither.
    """
    for flow, hops in _flows(scenario):
        link, side = hops[0]
        slowest_bps = min(rate_bps_of(one, way_) for one, way_ in hops)
        shapes = link.kind == "kernel" and link.direction(side).rate_bps == slowest_bps
        if shapes and is_kernel_stack(_stack(scenario, flow).name):
            yield Trap(
                "small queues on the sender's own host", link.name, side,
                f"{flow.from_} sends flow {flow.name} and shapes it itself: the kernel's TCP holds packets back "
                "(TCP small queues), and the queue under study hardly fills; a router between host and line avoids it",
            )  # fmt: skip


def offloads_may_be_on(backend: str, scenario: Scenario) -> Iterator[Trap]:
    """Segmentation offload shows captures packets of up to 64 kB that never were on a wire.

    Emulated lines end in interfaces that have no offloads; a host's network card has.
    """
    if backend == "physical":
        yield Trap(
            "offloads", "", "",
            "network cards join and split packets behind the capture's back (tso, gso, gro): 'ethtool -k' must say off "
            "on every captured interface, which provisioning sees to and a check before the campaign confirms",
        )  # fmt: skip


def clocks_apart(backend: str, scenario: Scenario) -> Iterator[Trap]:
    """A one-way delay between two hosts is wrong by what their clocks differ."""
    if backend == "physical":
        yield Trap(
            "clocks apart", "", "",
            "one-way delays compare the clocks of two hosts: they mean something only if chrony keeps them closer than "
            "the delays; round trips and rates do not depend on it",
        )  # fmt: skip


def bottleneck_elsewhere(_: str, scenario: Scenario) -> Iterator[Trap]:
    """The wires around the line under study are slower than the line."""
    for flow, hops in _flows(scenario):
        studied = [one for one in hops if one[0].name in STUDIED and one[0].direction(one[1]).rate_bps is not None]
        for link, side in hops if studied else ():
            studied_bps = rate_bps_of(*studied[0])
            rate_bps = rate_bps_of(link, side)
            if link.name not in STUDIED and rate_bps < studied_bps:
                yield Trap(
                    "bottleneck elsewhere", link.name, side,
                    f"this wire carries {show(rate_bps, 'rate')} and the line under study "
                    f"{show(studied_bps, 'rate')}: flow {flow.name} queues here, and the policy of "
                    "the line has nothing to do; a faster 'access' avoids it",
                )  # fmt: skip


def run_shorter_than_a_queue(_: str, scenario: Scenario) -> Iterator[Trap]:
    """A full queue takes a good part of the run to drain: what is measured is its filling."""
    used = {(link.name, side) for _, hops in _flows(scenario) for link, side in hops}
    for link, side in _directions(scenario):
        rate_bps, limit = link.direction(side).rate_bps, _limit_packets(link.direction(side).queue)
        if (link.name, side) not in used or not rate_bps or limit is None:
            continue
        drain_s = limit * PACKET_BYTES * 8 / rate_bps
        if drain_s > DRAIN_SHARE * scenario.duration_s:
            yield Trap(
                "run shorter than a queue", link.name, side,
                f"{limit:g} full packets take {show(drain_s, 'time')} at {show(rate_bps, 'rate')}, and a run lasts "
                f"{show(scenario.duration_s, 'time')}: it ends before the queue has come to rest; a longer run or a "
                "smaller limit avoids it",
            )  # fmt: skip
        elif scenario.duration_s * rate_bps / (8 * PACKET_BYTES) < FEW_PACKETS:
            yield Trap(
                "few packets", link.name, side,
                f"in {show(scenario.duration_s, 'time')} this line carries "
                f"{scenario.duration_s * rate_bps / (8 * PACKET_BYTES):.0f} full packets: means over so few say "
                "little; a longer run avoids it",
            )  # fmt: skip


def wider_than_usual(_: str, scenario: Scenario) -> Iterator[Trap]:
    """Runs that the usual guard would refuse count as valid."""
    wider = fidelity.wider(scenario.fidelity)
    if wider:
        yield Trap(
            "limits wider than usual", "", "",
            f"runs count as valid that deviate by more than elsewhere ({', '.join(wider)}): say so beside the results; "
            "without 'fidelity' the usual limits hold",
            "fidelity",
        )  # fmt: skip


TRAPS: Sequence[Callable[[str, Scenario], Iterator[Trap]]] = (
    queue_below_one_burst,
    timer_coarser_than_a_packet,
    more_packets_than_the_emulator_carries,
    small_queues_on_the_senders_own_host,
    offloads_may_be_on,
    clocks_apart,
    bottleneck_elsewhere,
    run_shorter_than_a_queue,
    wider_than_usual,
)


def warnings(plan: Plan, source: Source) -> list[str]:
    """What a campaign runs into, one line each with file, line and field; how many of its points, where not all."""
    points: dict[Trap, set[int]] = {}
    for run in plan.runs:
        if run.repetition == 0:
            for trap in find(plan.backend, run.scenario):
                points.setdefault(trap, set()).add(run.point)
    # One finding may read differently at each point, having its values in it: the first stands for all.
    groups: dict[tuple[str, Path_], list[Trap]] = {}
    for trap in points:
        groups.setdefault((trap.name, _place(source, trap)), []).append(trap)
    told = []
    for (name, path), traps in groups.items():
        where = set().union(*(points[trap] for trap in traps))
        some = f" (at {len(where)} of {len(plan.points)} points)" if len(where) < len(plan.points) else ""
        message = f"warning: {name}: {traps[0].message}{some}"
        told.append(source.problem(path, ".".join(map(str, path)), message).text(source.name))
    return told


def _place(source: Source, trap: Trap) -> Path_:
    """Where the file says what a trap is about."""
    network = source.values.get("network")
    if not trap.link or not isinstance(network, dict):
        return (trap.field,)
    for number, link in enumerate(network.get("links") or []):
        if isinstance(link, dict) and link.get("name") == trap.link:
            return ("network", "links", number, trap.direction if trap.direction in link else "forward")
    if trap.link in STUDIED:
        return ("network", trap.direction if trap.direction in network else "forward")
    return ("network", "access")


def rate_bps_of(link: LinkSpec, way: Direction) -> float:
    """Rate of a direction; infinite where the line only delays."""
    rate_bps = link.direction(way).rate_bps
    return math.inf if rate_bps is None else rate_bps


def _flows(scenario: Scenario) -> Iterator[tuple[Flow, Route]]:
    for flow in scenario.workload:
        hops = route(scenario, flow.from_, flow.to)
        if hops:
            yield flow, hops


def _directions(scenario: Scenario) -> Iterator[tuple[LinkSpec, Direction]]:
    for link in scenario.links:
        for way in DIRECTIONS:
            yield link, way


def _first(hops: Route) -> tuple[str, str]:
    return hops[0][0].name, hops[0][1]


def _stack(scenario: Scenario, flow: Flow) -> Named:
    """The stack of a flow's sender."""
    stack = scenario.node(flow.from_).stack
    assert stack is not None, "a flow starts at a host, and every host has a stack"
    return stack


def _initial_window(scenario: Scenario, flow: Flow) -> float:
    """Segments that a flow's sender begins with."""
    stack = _stack(scenario, flow)
    name = flow.stack.get("name", stack.name)
    if is_kernel_stack(name):
        return KERNEL_INITIAL_WINDOW
    given = {**stack.options, **flow.stack}
    return float(given.get("initial_window_segments") or _default("stack", name, "initial_window_segments") or 1)


def _limit_packets(queue: Named) -> float | None:
    """Full packets that a queue holds; None where it has no limit that can be told."""
    limit = queue.options.get("limit_packets") or _default("policy", queue.name, "limit_packets")
    buffer = queue.options.get("buffer_bytes")
    found = [float(limit)] if limit else []
    found += [buffer / PACKET_BYTES] if buffer else []
    return min(found, default=None)


def _default(kind: str, name: str, option: str) -> Any:
    return next((param.default for param in registry.find(kind, name).params if param.name == option), None)
