"""The traffic programs of a flow: which program each end runs, with which options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from agents.messages import OptionValue
from agents.traffic import BEGIN
from testbed import kernel_tcp
from testbed.addressing import Plan, next_hop, with_port
from testbed.errors import TestbedError
from testbed.scenario import Flow, Named, Scenario

#: Added to a flow's port for the port of a research-stack sender.
FIRST_EPHEMERAL = 30_000


@dataclass(frozen=True)
class Program:
    """One program on one node."""

    node: str
    #: Under which the agent knows it.
    name: str
    #: One of agents.traffic.PROGRAMS.
    program: str
    options: Mapping[str, OptionValue]


def sender_name(flow: Flow) -> str:
    """Name of a flow's sending program."""
    return f"{flow.name}-send"


def receiver_name(flow: Flow) -> str:
    """Name of a flow's receiving program."""
    return f"{flow.name}-receive"


def stack_of(scenario: Scenario, node: str) -> Named:
    """The stack of a flow's end.

    Raises:
        TestbedError: the node has none.
    """
    stack = scenario.node(node).stack
    if stack is None:
        raise TestbedError(f"node '{node}' has no stack, but is the end of a flow")
    return stack


def is_bulk(flow: Flow) -> bool:
    """Whether the flow is one transfer of checked bytes. Every other kind is an application (agents/workloads)."""
    return flow.kind == "bulk"


def is_command(flow: Flow) -> bool:
    """Whether the flow consists of programs of the campaign (testbed.commands)."""
    return flow.kind == "command"


def hears_the_start(scenario: Scenario, flow: Flow) -> bool:
    """Whether the flow's receiver is told when the run begins."""
    if is_command(flow):
        return False
    return not is_bulk(flow) or not kernel_tcp.is_kernel_stack(stack_of(scenario, flow.to).name)


def payload_seed(scenario: Scenario, flow: Flow) -> int:
    """Seed of a flow's payload: equal at both ends, different for each flow."""
    number = [other.name for other in scenario.workload].index(flow.name)
    return (scenario.seed * 1000 + number) % 2**63


def receiver(scenario: Scenario, plan: Plan, flow: Flow) -> Program:
    """The receiving program."""
    stack = stack_of(scenario, flow.to)
    options: dict[str, OptionValue] = {"listen": _end(plan, flow.to, flow, flow.port)}
    if not is_bulk(flow):
        options |= _load(scenario, flow, stack) | {
            "records": arrived_file(flow),
            "sender": _end(plan, flow.from_, flow, flow.port),
            "run-begins-file": BEGIN,
        }
        return Program(flow.to, receiver_name(flow), "load-receive", options)
    options["seed"] = payload_seed(scenario, flow)
    if kernel_tcp.is_kernel_stack(stack.name):
        options |= kernel_tcp.socket_options(stack, flow.stack)
        return Program(flow.to, receiver_name(flow), "receive", options)
    options |= _endpoint(plan, flow, flow.to, flow.from_, stack) | {"run-begins-file": BEGIN}
    return Program(flow.to, receiver_name(flow), "endpoint-receive", options)


def sender(scenario: Scenario, plan: Plan, flow: Flow, zero_ns: int) -> Program:
    """The sending program; `zero_ns` is the start of the run on the node's CLOCK_MONOTONIC."""
    stack = stack_of(scenario, flow.from_)
    stop_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
    options: dict[str, OptionValue] = {
        "to": _end(plan, flow.to, flow, flow.port),
        "stop-at-ns": zero_ns + round(stop_s * 1e9),
        "telemetry": f"{flow.name}.jsonl",
    }
    if not is_bulk(flow):
        options |= _load(scenario, flow, stack) | {
            "records": sent_file(flow),
            "listen": _end(plan, flow.from_, flow, flow.port),
            "run-begins-ns": zero_ns,
        }
        return Program(flow.from_, sender_name(flow), "load-send", options)
    options |= {
        "seed": payload_seed(scenario, flow),
        "bytes": flow.bytes,
        "start-at-ns": zero_ns + round(flow.start_s * 1e9),
    }
    if kernel_tcp.is_kernel_stack(stack.name):
        options |= kernel_tcp.socket_options(stack, flow.stack)
        return Program(flow.from_, sender_name(flow), "send", options)
    source = _end(plan, flow.from_, flow, FIRST_EPHEMERAL + flow.port)
    options |= {**_endpoint(plan, flow, flow.from_, flow.to, stack), "from": source, "run-begins-ns": zero_ns}
    return Program(flow.from_, sender_name(flow), "endpoint-send", options)


def sent_file(flow: Flow) -> str:
    """Name of the file in which the sending program of an application records what it sent."""
    return f"{flow.name}.sent.jsonl"


def arrived_file(flow: Flow) -> str:
    """Name of the file in which the receiving program records what arrived."""
    return f"{flow.name}.arrived.jsonl"


def _end(plan: Plan, node: str, flow: Flow, port: int) -> str:
    """ADDRESS:PORT of a flow at a node."""
    return with_port(plan.nodes[node].address_over(flow.ip), port)


def _load(scenario: Scenario, flow: Flow, stack: Named) -> dict[str, OptionValue]:
    """The application and its sockets.

    Raises:
        TestbedError: the stack is not the kernel's.
    """
    if not kernel_tcp.is_kernel_stack(stack.name):
        raise TestbedError(
            f"flow '{flow.name}': on real packets {stack.name} carries bulk flows only, not {flow.kind}; "
            "use a stack of the kernel"
        )
    described = json.dumps(flow.as_json(), sort_keys=True)
    return {"flow": described, "seed": scenario.seed, **kernel_tcp.socket_options(stack, flow.stack)}


def _endpoint(plan: Plan, flow: Flow, node: str, peer: str, stack: Named) -> dict[str, OptionValue]:
    """Interface, addresses and stack of a research endpoint."""
    interface, next_interface = next_hop(plan, node, plan.nodes[peer].address)
    others = [end.name for end in plan.nodes[node].interfaces if end is not interface]
    options = {**stack.options, **flow.stack}
    name = options.pop("name", stack.name)
    return {
        "interface": interface.name,
        "mac": interface.mac,
        "next-hop-mac": next_interface.mac,
        "also-hear": ",".join(others) or None,
        "stack": name,
        "stack-options": json.dumps(options),
    }
