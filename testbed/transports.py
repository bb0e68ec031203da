"""Which transport a stack of the node binary has."""

from __future__ import annotations

from testbed import node_binary


@node_binary.cached
def quic_stacks() -> frozenset[str]:
    """Names of the stacks whose connections are QUIC."""
    return frozenset(stack["name"] for stack in node_binary.registry()["stacks"] if stack["transport"] == "quic")
