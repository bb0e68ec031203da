"""A network on which a conductor runs scenarios: nodes with an agent each, and links between them.

Each kind of network is one class that satisfies this protocol: `LocalNetwork` builds nodes as namespaces of a cell,
`HostNetwork` uses the hosts of a lab. A further kind needs no change to them or to the conductor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agents.client import AgentClient
from testbed.addressing import Plan
from testbed.errors import TestbedError
from testbed.report import DriverReport
from testbed.scenario import LinkSpec


class Network(Protocol):
    """Nodes, links and agents. Methods raise TestbedError or AgentError."""

    @property
    def plan(self) -> Plan:
        """Addresses, interfaces and routes, with the names that the interfaces really have."""

    @property
    def agents(self) -> Mapping[str, AgentClient]:
        """The agent of each node."""

    @property
    def folder(self) -> Path:
        """Local scratch folder; what it holds after a failed run is kept for people."""

    @property
    def hosts(self) -> Mapping[str, str] | None:
        """The host of each node; None where nodes are not on hosts of their own."""

    @property
    def real_links(self) -> Mapping[str, str] | None:
        """Links that this software does not shape, by kind (wire, modem, radio); None where there can be none."""

    def reset(self) -> None:
        """Ends everything that agents run and empties their folders."""

    def configure_links(self, links: Sequence[LinkSpec], seed: int) -> None:
        """Sets the emulated links' parameters for the next start. Links of kind "kernel" are the conductor's."""

    def start_links(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Starts the links' timeline `lead_s` from now; its zero on the controller's CLOCK_MONOTONIC, in ns."""

    def stop_links(self) -> DriverReport:
        """Ends the timeline; the report of the emulated links."""

    def set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        """Gives a node's kernel its addresses, or removes them, for the research stack to use.

        Args:
            node: its name.
            present: whether it has them.
            with_ipv6: whether it has those of IPv6 too; otherwise it sends nothing over IPv6.
        """

    def check(self) -> None:
        """Called about once a second during a run; raises TestbedError if the run cannot finish."""

    def explain(self, error: Exception) -> TestbedError:
        """The error to report for a failure on this network: its cause, if the network knows one."""

    def close(self) -> None:
        """Releases everything that this network made or holds."""
