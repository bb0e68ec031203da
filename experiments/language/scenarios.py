"""The scenario of one repetition of a campaign's point."""

from __future__ import annotations

import hashlib
import random
from itertools import cycle

from experiments.language import registry, topologies
from experiments.language.mechanisms import Stack
from experiments.language.schema import Campaign, CaptureSpec
from experiments.language.variation import Variation
from testbed import scenario
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import Capture, Counters, Limits, Scenario
from testbed.virtual_kernel import kernels

#: Port of the first flow; the others follow.
FIRST_PORT = 5001


def _of_pairs(campaign: Campaign) -> dict[str, Stack]:
    """Stacks of the hosts of a dumbbell whose flow has a stack of the kernel beside research stacks, or the reverse."""
    if campaign.network.topology != "dumbbell":
        return {}
    flows = [(member, campaign.workload[member.entry].stack) for member in topologies.members(campaign)]
    of_kernel = is_kernel_stack(campaign.stack.name)
    return {
        host: stack
        for member, stack in flows
        if stack is not None and is_kernel_stack(stack.name) != of_kernel
        for host in (member.from_, member.to)
    }


def make_scenario(campaign: Campaign, seed: int, is_varied: bool = True) -> Scenario:
    """The scenario of one repetition.

    Args:
        campaign: a point.
        seed: of the repetition.
        is_varied: whether the repetition differs from others in what campaigns vary by default (variation).
    """
    nodes, links = topologies.build(campaign.network, campaign.workload, random.Random(f"{seed}/network"))
    node_stacks = {node.name: node.stack for node in campaign.network.nodes} | _of_pairs(campaign)
    nodes = [
        node.replace(stack=(node_stacks.get(node.name) or campaign.stack).as_scenario())
        if node.kind == "host"
        else node
        for node in nodes
    ]
    draws, variation = random.Random(seed), Variation(campaign, seed)
    # Flows that have both versions of IP take turns, the first with IPv4.
    flows, versions = [], cycle((4, 6))
    for number, member in enumerate(topologies.members(campaign)):
        flow = campaign.workload[member.entry]
        low, high = flow.start
        start_s = round(low + draws.random() * (high - low), 6)
        if low == high and is_varied:
            start_s = variation.start_s(flow, member.name)
        choice = campaign.ip if flow.ip is None else flow.ip
        ip = next(versions) if choice == "both" else choice
        flows.append(
            scenario.Flow.make(
                name=member.name,
                kind=flow.kind,
                from_=member.from_,
                to=member.to,
                start_s=start_s,
                port=FIRST_PORT + number,
                ip=None if ip == 4 else ip,
                group=member.group,
                stop_s=flow.stop,
                bytes=flow.size,
                stack=None if flow.stack is None else {"name": flow.stack.name, **flow.stack.options},
                options=flow.options or None,
                command=None if flow.command is None else flow.command.as_scenario(),
            )
        )
    made = Scenario.make(
        version=1,
        seed=seed,
        duration_s=campaign.duration,
        warm_up_s=campaign.warm_up or None,
        nodes=nodes,
        links=links,
        workload=flows,
        capture=_capture(campaign.capture),
        fidelity=_fidelity_limits(campaign),
        kernel=kernels.full_name(campaign.kernel) if campaign.backend.has_own_kernel else None,
    )
    if crates := registry.crates_of(made.as_json()):
        made = made.replace(crates=crates)
    if not is_varied:
        return made
    rtt = campaign.network.rtt
    return variation.vary(made, has_rtt_range=rtt is not None and rtt[0] < rtt[1])


def _fidelity_limits(campaign: Campaign) -> Limits | None:
    """The limits that the campaign sets. None in simulation, where they would only change the run's id."""
    limits = campaign.fidelity.as_scenario() if campaign.backend.has_real_packets else None
    return limits if limits is not None and limits.as_json() else None


def _capture(capture: CaptureSpec) -> Capture:
    counters = capture.counters
    return Capture.make(
        snaplen=capture.snaplen,
        at=tuple(capture.at),
        counters=None if counters is None else Counters(every_s=counters.every, at=tuple(counters.at)),
        telemetry=None if capture.telemetry else False,
    )


def derive_seed(seed: int, repetition: int) -> int:
    """The seed of a repetition. It is equal for all points of a sweep, which pairs their repetitions."""
    digest = hashlib.sha256(f"{seed}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
