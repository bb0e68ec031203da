"""A network on the hosts of a lab, reached over SSH or as namespaces of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agents.client import AgentClient
from agents.errors import AgentError
from agents.messages import Health, InterfaceAddress, Neighbour
from testbed import addressing
from testbed.clock import HostClocks
from testbed.errors import TestbedError
from testbed.host_agents import HostAgents
from testbed.link_boxes import LinkBoxes
from testbed.local_folders import ScratchFolder
from testbed.placement import Placement, has_planned_address
from testbed.report import DriverReport
from testbed.scenario import LinkSpec


class HostNetwork:
    """Nodes on hosts, links in link boxes or real (testbed.network.Network).

    Args:
        placement: the host of each node and the place of each link.
        agents: of these hosts; the caller closes them.
        clocks: of these hosts.
    """

    def __init__(self, placement: Placement, agents: HostAgents, clocks: HostClocks) -> None:
        self.plan = _with_hardware_addresses(placement, agents.healths)
        self._scratch = ScratchFolder()
        self.folder = self._scratch.path
        self.hosts: Mapping[str, str] | None = dict(placement.host_of)
        self.agents: Mapping[str, AgentClient] = {
            node: agents.clients[host] for node, host in placement.host_of.items()
        }
        self.real_links: Mapping[str, str] | None = {
            name: place.real for name, place in placement.links.items() if place.real is not None
        }
        self._placement = placement
        self._host_agents = agents
        self._boxes = LinkBoxes(placement, agents, clocks)

    def reset(self) -> None:
        """Resets the agents of nodes and link boxes."""
        self._host_agents.map_concurrently(lambda host: self._host_agents.clients[host].reset())

    def configure_links(self, links: Sequence[LinkSpec], seed: int) -> None:
        """Configures each on the host that emulates it."""
        self._boxes.configure(links, seed)

    def start_links(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Starts all emulators at one instant."""
        return self._boxes.start(telemetry, lead_s)

    def stop_links(self) -> DriverReport:
        """Stops all emulators; their reports as one."""
        return self._boxes.stop()

    def set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        """Through the node's agent, which restores the addresses when the host is released.

        Raises:
            TestbedError: with IPv6, which the roles have not set up on the host.
        """
        plan = self.plan.nodes[node]
        interfaces = [InterfaceAddress(end.name, f"{end.address}/{end.prefix}") for end in plan.interfaces]
        lines = addressing.ip_batch(plan)
        if with_ipv6:
            interfaces += [
                InterfaceAddress(end.name, f"{addressing.ipv6_of(end.address)}/{addressing.PREFIX_LENGTH_V6}")
                for end in plan.interfaces
            ]
            lines += addressing.ipv6_batch(plan)
        batch = [line for line in lines if line.startswith(("neighbour", "route"))]
        try:
            self.agents[node].network(interfaces, batch, give=present)
        except AgentError as error:
            if with_ipv6:
                raise TestbedError(
                    f"{error}; hosts get IPv6 by 'testbed site' with an inventory whose campaign has 'ip: 6' or 'both'"
                ) from None
            raise
        for other, neighbour in () if present else self._as_neighbour(node):
            # No kernel answers ARP for an address of the research stack.
            self.agents[other].neighbours([neighbour])

    def _as_neighbour(self, node: str) -> Iterator[tuple[str, Neighbour]]:
        """A node as its neighbours over modems and radios see it, with their names; PPP and SLIP have no addresses."""
        for end in self.plan.nodes[node].interfaces:
            if has_planned_address(self._placement.links[end.link]):
                continue
            for other in self.plan.links[end.link]:
                macs = self._host_agents.healths[self._placement.host_of[other.node]].macs
                if other.node != node and other.name in macs:
                    yield other.node, Neighbour(end.address, end.mac, other.name)

    def check(self) -> None:
        """Raises TestbedError if a host was lost or the connections were cut."""
        self._host_agents.check()

    def explain(self, error: Exception) -> TestbedError:
        """A lost host, if there is one."""
        return self._host_agents.explain(error)

    def close(self) -> None:
        """Removes the scratch folder. Hosts get their addresses back when their agents are closed."""
        self._scratch.close()


def _with_hardware_addresses(placement: Placement, healths: Mapping[str, Health]) -> addressing.Plan:
    """The network with the hardware addresses of modems and radios.

    A radio sends and receives with its own address only. The research stack uses it too: it has the IP address, which
    the kernel has given up, so the kernel answers none of its segments.
    """

    def own(end: addressing.Interface) -> addressing.Interface:
        if has_planned_address(placement.links[end.link]):
            return end
        return replace(end, mac=healths[placement.host_of[end.node]].macs.get(end.name, end.mac))

    plan = placement.plan
    return addressing.Plan(
        {
            name: replace(node, interfaces=tuple(own(end) for end in node.interfaces))
            for name, node in plan.nodes.items()
        },
        {link: tuple(own(end) for end in ends) for link, ends in plan.links.items()},
    )
