"""Ways from a session's network to others."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from experiments.sessions.plan import SessionPlan
from testbed import addressing
from testbed.addressing import Route
from testbed.errors import TestbedError
from testbed.gateway_rules import DEVICES
from testbed.kernel_tcp import congestion_control, is_kernel_stack
from testbed.local_network import ENABLE_IPV6
from testbed.report import SessionHost


class Uplink(Protocol):
    """What joins a session's nodes to other networks."""

    @property
    def name_server(self) -> str:
        """Address of the name server that the nodes use."""

    def open(self, cell_pid: int, hosts: Mapping[str, SessionHost], plan: SessionPlan) -> None:
        """Joins the nodes of a session that was just opened.

        Raises:
            TestbedError: it failed.
        """

    def problem(self) -> str | None:
        """Why it will not work any more, as a sentence; None while it does."""

    def close(self) -> None:
        """Ends it, opened or not."""


def routes(plan: SessionPlan) -> dict[str, list[Route]]:
    """Routes beyond those of the network: out through the gateway node, and to devices.

    The gateway node's own default route is not among them: it leads out of the network.
    """
    scenario = plan.scenario
    network = addressing.make_plan(scenario.nodes, scenario.links)
    near, far = network.nodes[plan.host], network.nodes[plan.gateway]
    routes_of: dict[str, list[Route]] = {}
    for name, node in network.nodes.items():
        node_routes = routes_of.setdefault(name, [])
        if name != plan.gateway and all(route.subnet != addressing.DEFAULT_ROUTE for route in node.routes):
            end, hop = addressing.next_hop(network, name, far.address)
            node_routes.append(Route(addressing.DEFAULT_ROUTE, hop.address, end.name))
        if plan.devices is not None and name == plan.host:
            node_routes.append(Route(plan.devices, str(ipaddress.ip_network(plan.devices)[1]), DEVICES))
        elif plan.devices is not None:
            end, hop = addressing.next_hop(network, name, near.address)
            node_routes.append(Route(plan.devices, hop.address, end.name))
    return routes_of


def enable_ipv6(hosts: Mapping[str, SessionHost], plan: SessionPlan) -> None:
    """Gives the nodes of a session IPv6, with addresses and routes as over IPv4.

    Raises:
        TestbedError: a node refused.
    """
    network = addressing.make_plan(plan.scenario.nodes, plan.scenario.links)
    for name, node in network.nodes.items():
        pid, ends = process_in(hosts[name]), [end.name for end in node.interfaces]
        forwards = "0" if node.kind == "host" else "1"
        words = ["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-c", ENABLE_IPV6, "sh", forwards, *ends]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TestbedError(f"node {name} could not be given IPv6: {(done.stderr or done.stdout).strip()}")
        run_batch(pid, addressing.ipv6_batch(node))


def add_routes(hosts: Mapping[str, SessionHost], plan: SessionPlan, with_ipv6: bool = False) -> None:
    """Adds them to the nodes of a session.

    Raises:
        TestbedError: a node refused.
    """
    for name, more in routes(plan).items():
        stack = plan.scenario.node(name).stack
        controller = ""
        if stack is not None and is_kernel_stack(stack.name):
            controller = f" congctl {congestion_control(stack.name, stack.options)}"
        # The kernel has added the route to an interface's own network.
        more = [route for route in more if route.interface != DEVICES]
        if with_ipv6:
            more += [addressing.over_ipv6(route) for route in more]
        if lines := [addressing.route_line(route) + controller for route in more]:
            run_batch(process_in(hosts[name]), lines)


def run_batch(pid: int, lines: list[str]) -> None:
    """Runs lines of `ip -batch` in the network namespace of a process.

    Raises:
        TestbedError: one failed.
    """
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"]
    done = subprocess.run(words, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"a node could not be given its routes: {done.stderr.strip()}")


def process_in(host: SessionHost) -> int:
    """A process in a node's network namespace, as this machine numbers it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns/net").stat().st_ino == host.net_inode:
                    return int(entry.name)
            except OSError:
                continue
    raise TestbedError("the node has no process that this machine can see")
