"""The programs of a flow, as agents are asked to run them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed import flows
from testbed.addressing import Plan, make_plan
from testbed.errors import TestbedError
from testbed.scenario import Scenario

DIRECTION = {"queue": {"name": "droptail"}}
LINK = {"kind": "point-to-point", "forward": DIRECTION, "reverse": DIRECTION}
KERNEL = {"name": "cubic", "options": {"sack": True, "send_buffer_bytes": 65_536}}
RESEARCH = {"name": "newreno", "options": {"timer": "modern"}}


def scenario(sender: dict[str, Any] | None, receiver: dict[str, Any] | None, **flow: Any) -> tuple[Scenario, Plan]:
    stacks = {"a": sender, "b": receiver}
    nodes = [
        {"name": name, "kind": "host"} | ({"stack": stack} if stack is not None else {})
        for name, stack in stacks.items()
    ]
    made = Scenario.read({
        "version": 1, "seed": 7, "duration_s": 30, "nodes": [*nodes, {"name": "c", "kind": "host"}],
        "links": [{**LINK, "name": "one", "ends": ["a", "b"]}, {**LINK, "name": "two", "ends": ["a", "c"]}],
        "workload": [
            {"name": "first", "kind": "bulk", "from": "a", "to": "b", "port": 5000},
            {"name": "second", "kind": "bulk", "from": "a", "to": "b", "port": 5001, **flow},
        ],
    })  # fmt: skip
    return made, make_plan(made.nodes, made.links)


def test_the_kernels_ends_of_a_flow() -> None:
    made, plan = scenario(KERNEL, KERNEL, start_s=2, stop_s=40, bytes=1000, stack={"send_buffer_bytes": 9000})
    flow = made.flow("second")
    sender = flows.sender(made, plan, flow, zero_ns=10**9)
    assert (sender.node, sender.name, sender.program) == ("a", "second-send", "load-send")
    common = {
        "flow": json.dumps(flow.as_json(), sort_keys=True), "seed": 7, "congestion": "cubic",
        "send-buffer-bytes": 9000, "records": None,
    }  # fmt: skip
    assert sender.options == common | {
        "listen": "10.1.0.1:5001", "to": "10.1.0.2:5001", "run-begins-ns": 10**9, "stop-at-ns": 31 * 10**9,
        "telemetry": "second.jsonl",
    }  # fmt: skip
    receiver = flows.receiver(made, plan, flow)
    assert (receiver.node, receiver.name, receiver.program) == ("b", "second-receive", "load-receive")
    assert receiver.options == common | {
        "listen": "10.1.0.2:5001", "sender": "10.1.0.1:5001", "run-begins-file": "begin",
    }  # fmt: skip


def test_the_ends_of_a_flow_over_ipv6() -> None:
    made, plan = scenario(KERNEL, KERNEL, ip=6)
    assert flows.sender(made, plan, made.flow("second"), 0).options["to"] == "[2001:db8:a01::2]:5001"
    assert flows.receiver(made, plan, made.flow("second")).options["listen"] == "[2001:db8:a01::2]:5001"
    assert flows.receiver(made, plan, made.flow("first")).options["listen"] == "10.1.0.2:5000"
    made, plan = scenario(RESEARCH, RESEARCH, ip=6)
    assert flows.sender(made, plan, made.flow("second"), 0).options["listen"] == "[2001:db8:a01::1]:5001"


@pytest.mark.parametrize("kind", ["bulk", "web"])
def test_the_research_stacks_ends_of_a_flow(kind: str) -> None:
    made, plan = scenario(RESEARCH, RESEARCH, kind=kind, stack={"name": "sack", "ack_every": 2})
    flow = made.flow("second")
    sender, receiver = flows.sender(made, plan, flow, zero_ns=10**9), flows.receiver(made, plan, flow)
    assert (sender.program, receiver.program) == ("load-send", "load-receive")
    assert (sender.options["interface"], sender.options["also-hear"]) == ("a-eth0", "a-eth1")
    assert (receiver.options["interface"], receiver.options["also-hear"]) == ("b-eth0", None)
    assert sender.options["next-hop-mac"] == receiver.options["mac"]
    assert (sender.options["stack"], json.loads(str(sender.options["stack-options"]))) == (
        "sack", {"ack_every": 2},
    )  # fmt: skip
    made, plan = scenario(RESEARCH, RESEARCH, stack={"ack_every": 2})
    of_host = flows.sender(made, plan, made.flow("second"), zero_ns=0).options["stack-options"]
    assert json.loads(str(of_host)) == {"timer": "modern", "ack_every": 2}
    files = ("second.sent.jsonl", "second.arrived.jsonl") if kind == "web" else (None, None)
    assert (sender.options["records"], receiver.options["records"]) == files


def test_each_end_follows_its_own_hosts_stack() -> None:
    made, plan = scenario(KERNEL, RESEARCH)
    assert "stack" not in flows.sender(made, plan, made.flow("first"), 0).options
    assert flows.receiver(made, plan, made.flow("first")).options["stack"] == "newreno"


def test_a_flow_that_ends_at_a_node_without_a_stack_is_rejected() -> None:
    made, plan = scenario(KERNEL, None)
    with pytest.raises(TestbedError, match="node 'b' has no stack"):
        flows.receiver(made, plan, made.flow("first"))
