"""Checks of a campaign that no single field can make: its network, stacks, flows and captures together."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from experiments.language import registry, topologies
from experiments.language.mechanisms import Stack
from experiments.language.schema import Campaign
from experiments.language.source import Path_
from testbed import kernel_links, kernel_tcp, node_binary
from testbed.addressing import make_plan
from testbed.errors import TestbedError
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import LinkSpec

#: The telemetry of a run's links has this name; a flow's has the flow's.
LINKS = "links"

#: Where something is wrong, and what.
Finding = tuple[Path_, str]
Nodes = Sequence[Mapping[str, Any]]
Links = Sequence[Mapping[str, Any]]


def problems(campaign: Campaign) -> Iterator[Finding]:
    """Everything that is wrong with a campaign whose fields are valid by themselves."""
    network = campaign.network
    if network.rtt is not None and network.rtt[0] < 2 * topologies.near_half_s(network):
        least_ms = 2000 * topologies.near_half_s(network)
        yield ("network", "rtt"), f"the line and the clients' wires alone take {least_ms:g} ms both ways"
        return
    nodes, links = topologies.build(network, campaign.workload, random.Random(0))
    try:
        make_plan(nodes, links)
    except TestbedError as error:
        yield ("network",), str(error)
        return
    yield from _of_links(campaign, links)
    yield from _of_stacks(campaign)
    yield from _of_stack_pairs(campaign)
    if campaign.warm_up >= campaign.duration:
        yield ("warm_up",), "nothing is left to measure: the warm-up ends with the run"
    yield from _of_members(campaign)
    yield from _of_flows(campaign, topologies.host_names(network, nodes))
    yield from _of_capture(campaign, links)


def _of_links(campaign: Campaign, links: Links) -> Iterator[Finding]:
    for link in links:
        late = [
            change["at_s"]
            for way in ("forward", "reverse")
            for change in link[way].get("schedule", [])
            if change["at_s"] >= campaign.duration
        ]
        if late:
            yield ("network",), f"link {link['name']} changes at {late[0]:g} s, when the run is over"
    reason = _kernel_link_refusal(links, campaign.backend)
    others = [link for link in links if link["kind"] != kernel_links.KIND]
    reason = reason or _link_refusal(json.dumps(others, sort_keys=True))
    if reason:
        yield ("network",), reason


def _kernel_link_refusal(links: Links, backend: str) -> str | None:
    kernels = [link for link in links if link["kind"] == kernel_links.KIND]
    if kernels and backend == "sim":
        return f"link '{kernels[0]['name']}': virtual time has no kernel link; emulated and physical have it"
    is_here = backend == "emulated"
    specs = [LinkSpec.model_validate(link) for link in kernels]
    return next((reason for spec in specs if (reason := kernel_links.refusal(spec, is_here))), None)


def _of_stacks(campaign: Campaign) -> Iterator[Finding]:
    for path, stack in _stacks(campaign):
        backends = registry.find("stack", stack.name).backends
        if backends and campaign.backend not in backends:
            available = [
                entry.name
                for entry in registry.of_kind("stack")
                if campaign.backend in (entry.backends or [campaign.backend])
            ]
            names = ", ".join(available)
            yield path, f"stack {stack.name} does not run on the {campaign.backend} backend, which has: {names}"
        elif is_kernel_stack(stack.name):
            lack = kernel_tcp.lack(stack.name) if campaign.backend == "emulated" else None
            if lack:
                yield path, lack
        else:
            reason = _stack_refusal(json.dumps(stack.as_scenario(), sort_keys=True))
            if reason:
                yield path, reason


def _stacks(campaign: Campaign) -> Iterator[tuple[Path_, Stack]]:
    """Every stack that a campaign names, and where."""
    yield ("stack",), campaign.stack
    for number, node in enumerate(campaign.network.nodes):
        if node.stack is not None:
            yield ("network", "nodes", number, "stack"), node.stack
    for number, flow in enumerate(campaign.workload):
        if flow.stack is not None:
            yield ("workload", number, "stack"), flow.stack


def _of_stack_pairs(campaign: Campaign) -> Iterator[Finding]:
    """The kernel and the research stack cannot both own a host's address."""
    node_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for number, flow in enumerate(campaign.workload):
        for end in (flow.from_, flow.to):
            of_host = (node_stacks.get(end) or campaign.stack).name
            if flow.stack is not None and is_kernel_stack(of_host) != is_kernel_stack(flow.stack.name):
                yield (
                    ("workload", number, "stack"),
                    f"stack {flow.stack.name} cannot run beside {of_host} on host {end}: one is the kernel's, "
                    "the other the research stack's",
                )
                break


def _of_members(campaign: Campaign) -> Iterator[Finding]:
    members = topologies.members(campaign.network, campaign.workload)
    names = [member.name for member in members]
    for member in members:
        if names.count(member.name) > 1 and member.group is not None:
            yield ("workload", member.entry, "name"), f"there are two flows called '{member.name}'"
            break


def _of_flows(campaign: Campaign, hosts: Sequence[str]) -> Iterator[Finding]:
    names: set[str] = set()
    for number, flow in enumerate(campaign.workload):
        backends = registry.find("workload", flow.kind).backends
        if backends and campaign.backend not in backends:
            yield (
                ("workload", number, "kind"),
                f"workload {flow.kind} does not run on the {campaign.backend} backend, only on: {backends[0]}",
            )
        for key, name in (("from", flow.from_), ("to", flow.to)):
            if name not in hosts:
                yield ("workload", number, key), registry.unknown("host", name, hosts)
        if flow.from_ == flow.to:
            yield ("workload", number, "to"), f"flow {flow.name} goes from '{flow.from_}' to itself"
        if flow.start[1] >= campaign.duration:
            yield ("workload", number, "start"), f"flow {flow.name} may start after the run has ended"
        if flow.name in names:
            yield ("workload", number, "name"), f"there are two flows called '{flow.name}'"
        if flow.name == LINKS:
            reason = f"no flow can be called '{LINKS}': the telemetry of the links is, in every run"
            yield ("workload", number, "name"), reason
        names.add(flow.name)


def _of_capture(campaign: Campaign, links: Links) -> Iterator[Finding]:
    capture = campaign.capture
    if not capture.telemetry and campaign.backend != "sim":
        yield ("capture", "telemetry"), f"the {campaign.backend} backend always keeps its telemetry"
    if capture.counters is not None:
        if campaign.backend != "sim":
            yield ("capture", "counters"), f"the {campaign.backend} backend has captures and no counters"
        names = [str(link["name"]) for link in links]
        for number, name in enumerate(capture.counters.at):
            if name not in names:
                yield ("capture", "counters", "at", number), registry.unknown("link", name, names)
    interfaces = {f"{end}:{link['name']}" for link in links for end in link["ends"]}
    for number, interface in enumerate(capture.at):
        if interface not in interfaces and interface != "none":
            yield ("capture", "at", number), registry.unknown("interface", interface, sorted(interfaces))


@cache
def _stack_refusal(stack: str) -> str | None:
    """Why the node binary cannot build a research stack (JSON of name and options); None: it can."""
    reason = node_binary.call("check", stdin=f"[{stack}]")[0]
    return None if reason is None else str(reason)


@cache
def _link_refusal(links: str) -> str | None:
    """Why the node binary cannot build the first of these links (JSON) that it rejects; None: it can build all."""
    reasons = node_binary.call("check", stdin=links)
    return next((str(reason) for reason in reasons if reason is not None), None)
