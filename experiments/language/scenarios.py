"""The scenario of one repetition of a campaign's point."""

from __future__ import annotations

import hashlib
import random
from itertools import cycle
from typing import Any

from experiments.language import topologies
from experiments.language.backends import VIRTUAL_KERNEL
from experiments.language.schema import Campaign, CaptureSpec, Flow
from experiments.language.variation import Variation
from testbed.virtual_kernel import kernels

#: Port of the first flow; the others follow.
FIRST_PORT = 5001


def make_scenario(campaign: Campaign, seed: int, is_varied: bool = True) -> dict[str, Any]:
    """The scenario of one repetition (core::scenario::Scenario).

    Args:
        campaign: a point.
        seed: of the repetition.
        is_varied: whether the repetition differs from others in what campaigns vary by default (variation).
    """
    nodes, links = topologies.build(campaign.network, campaign.workload, random.Random(f"{seed}/network"))
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for node in nodes:
        if node["kind"] == "host":
            node["stack"] = (node_stacks.get(node["name"]) or campaign.stack).as_scenario()
    draws, variation = random.Random(seed), Variation(campaign, seed)
    flows, versions = [], IpVersions(campaign)
    for number, member in enumerate(topologies.members(campaign.network, campaign.workload)):
        flow = campaign.workload[member.entry]
        low, high = flow.start
        start_s = round(low + draws.random() * (high - low), 6)
        if low == high and is_varied:
            start_s = variation.start_s(flow, member.name)
        spec: dict[str, Any] = {
            "name": member.name, "kind": flow.kind, "from": member.from_, "to": member.to, "start_s": start_s,
            "port": FIRST_PORT + number,
        }  # fmt: skip
        if (ip := versions.following(flow)) != 4:
            spec["ip"] = ip
        if member.group is not None:
            spec["group"] = member.group
        if flow.stop is not None:
            spec["stop_s"] = flow.stop
        if flow.size is not None:
            spec["bytes"] = flow.size
        if flow.stack is not None:
            spec["stack"] = {"name": flow.stack.name, **flow.stack.options}
        if flow.options:
            spec["options"] = flow.options
        if flow.command is not None:
            spec["command"] = flow.command.as_scenario()
        flows.append(spec)
    scenario = {
        "version": 1,
        "seed": seed,
        "duration_s": campaign.duration,
        **({"warm_up_s": campaign.warm_up} if campaign.warm_up else {}),
        "nodes": nodes,
        "links": links,
        "workload": flows,
        "capture": _capture(campaign.capture),
        **({"fidelity": limits} if (limits := _fidelity_limits(campaign)) else {}),
        **({"kernel": kernels.name(campaign.kernel)} if campaign.backend == VIRTUAL_KERNEL else {}),
    }
    if is_varied:
        rtt = campaign.network.rtt
        variation.vary(scenario, has_rtt_range=rtt is not None and rtt[0] < rtt[1])
    return scenario


class IpVersions:
    """The version of IP of each flow. Those that have `both` take turns, the first with IPv4."""

    def __init__(self, campaign: Campaign) -> None:
        self._default = campaign.ip
        self._turns = cycle((4, 6))

    def following(self, flow: Flow) -> int:
        """The version of the next flow, which is of this entry of the workload."""
        choice = self._default if flow.ip is None else flow.ip
        return next(self._turns) if choice == "both" else choice


def _fidelity_limits(campaign: Campaign) -> dict[str, float]:
    """The limits that the campaign sets. None in simulation, where they would only change the run's id."""
    return {} if campaign.backend == "sim" else campaign.fidelity.as_scenario()


def _capture(capture: CaptureSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {"snaplen": capture.snaplen, "at": list(capture.at)}
    if capture.counters is not None:
        spec["counters"] = {"every_s": capture.counters.every, "at": list(capture.counters.at)}
    return spec if capture.telemetry else {**spec, "telemetry": False}


def derive_seed(seed: int, repetition: int) -> int:
    """The seed of a repetition. It is equal for all points of a sweep, which pairs their repetitions."""
    digest = hashlib.sha256(f"{seed}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
