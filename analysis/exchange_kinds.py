"""Kinds of workloads by what their applications record."""

from __future__ import annotations

from testbed import node_binary

#: Kind of a flow of UDP packets that captures show and no scenario declared. No campaign can have it.
FOUND_DATAGRAMS = "datagrams"
#: Headers of IP and UDP in bytes, by the version of IP.
UDP_HEADERS = {4: 28, 6: 48}


@node_binary.cached
def _recorded_as(*exchanges: str) -> frozenset[str]:
    """Workloads whose exchanges are of these kinds."""
    workloads = node_binary.registry()["workloads"]
    return frozenset(workload["name"] for workload in workloads if workload["exchanges"] in exchanges)


def datagrams() -> frozenset[str]:
    """Workloads of packets without a connection."""
    return _recorded_as("packets", "echoes") | {FOUND_DATAGRAMS}


def answered() -> frozenset[str]:
    """Workloads whose packets the receiver returns, or whose requests it answers."""
    return _recorded_as("echoes", "transactions")


def transfers() -> frozenset[str]:
    """Workloads of finite transfers, a connection each."""
    return _recorded_as("transfers")
