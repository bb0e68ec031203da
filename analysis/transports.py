"""Which transport a flow's stack has, and so what captures show of it."""

from __future__ import annotations

from analysis.exchange_kinds import datagrams
from testbed.scenario import Flow, Scenario
from testbed.transports import quic_stacks


def is_quic(scenario: Scenario, flow: Flow) -> bool:
    """Whether a flow's connections are QUIC, which its sender's stack decides unless the flow has its own."""
    if flow.command is not None or flow.kind in datagrams():
        return False
    stack = next((node.stack for node in scenario.nodes if node.name == flow.from_), None)
    return flow.stack.get("name", stack.name if stack else None) in quic_stacks()


def has_segments(scenario: Scenario, flow: Flow) -> bool:
    """Whether captures show segments of TCP of a flow."""
    return flow.kind not in datagrams() and not is_quic(scenario, flow)
