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
from testbed.scenario import Flow, Named, Scenario, of_flow
from testbed.transports import quic_stacks


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


def has_records(flow: Flow) -> bool:
    """Whether both programs of the flow record what its application experienced."""
    return flow.kind != "bulk"


def receiver(scenario: Scenario, plan: Plan, flow: Flow) -> Program:
    """The receiving program."""
    options = {
        **_load(scenario, plan, flow, flow.to, flow.from_),
        "listen": _end(plan, flow.to, flow),
        "sender": _end(plan, flow.from_, flow),
        "records": arrived_file(flow) if has_records(flow) else None,
        "run-begins-file": BEGIN,
    }
    return Program(flow.to, receiver_name(flow), "load-receive", options)


def sender(scenario: Scenario, plan: Plan, flow: Flow, zero_ns: int) -> Program:
    """The sending program; `zero_ns` is the start of the run on the node's CLOCK_MONOTONIC."""
    stop_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
    options = {
        **_load(scenario, plan, flow, flow.from_, flow.to),
        "listen": _end(plan, flow.from_, flow),
        "to": _end(plan, flow.to, flow),
        "records": sent_file(flow) if has_records(flow) else None,
        "run-begins-ns": zero_ns,
        "stop-at-ns": zero_ns + round(stop_s * 1e9),
        "telemetry": f"{flow.name}.jsonl",
    }
    return Program(flow.from_, sender_name(flow), "load-send", options)


def sent_file(flow: Flow) -> str:
    """Name of the file in which the sending program of an application records what it sent."""
    return f"{flow.name}.sent.jsonl"


def arrived_file(flow: Flow) -> str:
    """Name of the file in which the receiving program records what arrived."""
    return f"{flow.name}.arrived.jsonl"


def _end(plan: Plan, node: str, flow: Flow) -> str:
    """ADDRESS:PORT of a flow at a node."""
    return with_port(plan.nodes[node].address_over(flow.ip), flow.port)


def _load(scenario: Scenario, plan: Plan, flow: Flow, node: str, peer: str) -> dict[str, OptionValue]:
    """The application, and the TCP of this end: options of its sockets, or the research stack and its interface."""
    stack = stack_of(scenario, node)
    described = json.dumps(flow.as_json(), sort_keys=True)
    application: dict[str, OptionValue] = {"flow": described, "seed": scenario.seed}
    if kernel_tcp.is_kernel_stack(stack.name):
        return application | kernel_tcp.socket_options(stack, flow.stack)
    interface, next_interface = next_hop(plan, node, plan.nodes[peer].address)
    others = [end.name for end in plan.nodes[node].interfaces if end is not interface]
    stack = of_flow(stack, flow)
    end = "sender" if node == flow.from_ else "receiver"
    has_log = stack.name in quic_stacks() and "none" not in scenario.capture.at
    return application | {
        "qlog": f"{flow.name}-{end}" if has_log else None,
        "interface": interface.name,
        "mac": interface.mac,
        "next-hop-mac": next_interface.mac,
        "also-hear": ",".join(others) or None,
        "stack": stack.name,
        "stack-options": json.dumps(stack.options),
    }
