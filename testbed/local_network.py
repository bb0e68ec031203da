"""A network inside a cell: Mininet nodes, emulated links, and an agent on every node.

It is built once for a topology and used by every run that shares it. It needs the namespaces of a cell around it, so
only `testbed.cellmain` and people's own scripts use it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mininet.log
import mininet.net
import mininet.node

from agents.client import AgentClient
from agents.errors import AgentError
from testbed import addressing, kernel_links, node_binary
from testbed.agent_process import AgentProcess, AgentThread
from testbed.concurrency import map_concurrently
from testbed.emulator_process import Emulator, LinkEnd
from testbed.errors import TestbedError
from testbed.mininet_links import EmulatedLink, TapIntf
from testbed.report import DriverReport
from testbed.scenario import LinkSpec, Node

#: Longest time until a node's agent answers its first request.
AGENT_START_S = 15.0

DISABLE_IPV6 = """cd /proc/sys/net/ipv6/conf 2>/dev/null || exit 0
for interface in all default; do echo 1 >$interface/disable_ipv6; done"""
#: Enables IPv6 on the interfaces that the arguments name; the first argument is whether the node forwards. The kernel
#: makes no link-local address (addr_gen_mode 1), looks for no router and takes no time to test addresses. It reports
#: group memberships at once and not later, when captures run.
ENABLE_IPV6 = """cd /proc/sys/net/ipv6/conf 2>/dev/null || { echo the kernel has no IPv6; exit 1; }
set -e; forwards=$1; shift
for interface in "$@"; do
    for setting in addr_gen_mode=1 accept_ra=0 router_solicitations=0 accept_dad=0 mldv1_unsolicited_report_interval=1 \
        mldv2_unsolicited_report_interval=1
    do echo ${setting#*=} >$interface/${setting%=*}; done
done
echo 0 >all/disable_ipv6
for interface in "$@"; do echo 0 >$interface/disable_ipv6; done
echo $forwards >all/forwarding"""
#: Waits until each interface that the arguments name has reported its groups and reports no more, at most 6 s: on a
#: busy machine the kernel is late, and captures must have nothing but flows.
REPORTED = """reports() { for interface in "$@"; do
    sed -n 's/^Icmp6OutMLDv2Reports[[:space:]]*//p' /proc/net/dev_snmp6/$interface; done; }
tries=0; old=; new=$(reports "$@")
while [ $tries -lt 20 ] && { [ "$old" != "$new" ] || echo "$new" | grep -qx 0; }; do
    sleep 0.3; old=$new; new=$(reports "$@"); tries=$((tries + 1)); done"""


class _Node(mininet.node.Node):  # type: ignore[misc]
    """A node whose shell inherits no descriptor because none is inheritable, instead of closing all that could be: a
    thousand calls for each node, a million where the limit is high.
    """

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 (Mininet's name)
        super().startShell("-d" if mnopts is None else mnopts)


class LocalNetwork:
    """Nodes, links and agents as namespaces and processes of this cell (testbed.network.Network).

    Args:
        nodes: the scenario's nodes.
        links: the scenario's links, with their first parameters.
        folder: short path for sockets and agents' folders; in memory, so that captures do not wait for a disk.
        virtual_time: the machine's clock jumps from event to event (testbed.virtual_kernel).

    Raises:
        TestbedError: it could not be built. What remains of it ends with the cell.
    """

    #: Nodes are not on hosts of their own, and every link is emulated or the kernel's.
    hosts: Mapping[str, str] | None = None
    real_links: Mapping[str, str] | None = None

    def __init__(
        self, nodes: Sequence[Node], links: Sequence[LinkSpec], folder: Path, virtual_time: bool = False
    ) -> None:
        self.plan = addressing.make_plan(nodes, links)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mininet.log.setLogLevel("error")
        # Otherwise Mininet raises machine-wide limits (files, ptys, neighbour tables), which a cell does not need.
        mininet.net.Mininet.inited = True
        self._net = mininet.net.Mininet(topo=None, controller=None, build=False)
        self._virtual_time = virtual_time
        self.emulator = Emulator(folder / "emulator.log", virtual_time)
        self.agents: dict[str, AgentClient] = {}
        self._nodes: dict[str, Any] = {}
        #: Nodes whose kernels have IPv6 enabled.
        self._with_ipv6: set[str] = set()
        self._processes: list[AgentProcess | AgentThread] = []
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="nodes")
        try:
            self._build(links)
        except BaseException:
            self.close()
            raise

    def _build(self, links: Sequence[LinkSpec]) -> None:
        for name in self.plan.nodes:
            self._nodes[name] = self._net.addHost(name, cls=_Node, ip=None, inNamespace=True)
            # Before any interface exists, so that none sends a router solicitation.
            self.run_on(name, ["sh", "-c", DISABLE_IPV6])
        for link in links:
            self._add_link(link)
        for name, node in self.plan.nodes.items():
            self._ip_batch(name, addressing.ip_batch(node))
        for name in self.plan.nodes:
            self._start_agent(name)
        for name in self.plan.nodes:
            self._await_agent(name)

    def _add_link(self, link: LinkSpec) -> None:
        ends = self.plan.links[link.name]
        if link.kind == kernel_links.KIND:
            near, far = ends
            pids = self._nodes[near.node].pid, self._nodes[far.node].pid
            kernel_links.make_wire(link.name, (near, far), pids)
        elif len(ends) == 2:
            near, far = ends
            self._net.addLink(
                self._nodes[near.node],
                self._nodes[far.node],
                cls=EmulatedLink,
                spec=link,
                emulator=self.emulator,
                intfName1=near.name,
                intfName2=far.name,
                addr1=near.mac,
                addr2=far.mac,
            )
            return
        else:
            # A shared medium has more ends than Mininet's Link.
            self.emulator.add_link(link, [LinkEnd(self._nodes[end.node].pid, end.name, end.mac) for end in ends])
        for end in ends:
            TapIntf(end.name, node=self._nodes[end.node], mac=end.mac, moveIntfFn=_stay)

    def _start_agent(self, name: str) -> None:
        arguments = [
            "--socket",
            str(self._socket(name)),
            "--folder",
            str(self.folder / name),
            "--node-binary",
            node_binary.path(),
            *(["--virtual-time"] if self._virtual_time else []),
            # Who starts a run decides on its programs; the agent has no rights that its starter lacks.
            "--allow-commands",
        ]
        agent = AgentThread if self._virtual_time else AgentProcess
        self._processes.append(agent(self._nodes[name].pid, arguments, self.folder / f"{name}.agent.log"))

    def _await_agent(self, name: str) -> None:
        deadline = time.monotonic() + AGENT_START_S
        client = self.agents[name] = AgentClient(name, self._socket(name))
        while True:
            try:
                client.health()
                return
            except AgentError as error:
                if time.monotonic() > deadline:
                    log = (self.folder / f"{name}.agent.log").read_text(errors="replace").strip().splitlines()
                    reason = log[-1] if log else str(error)
                    raise TestbedError(f"the agent of {name} did not start: {reason}") from None
                time.sleep(0.02)

    def _socket(self, name: str) -> Path:
        return self.folder / f"{name}.sock"

    def reset(self) -> None:
        """Resets every node's agent."""
        map_concurrently(self._pool, self.agents, lambda name: self.agents[name].reset())

    def configure_links(self, links: Sequence[LinkSpec], seed: int) -> None:
        """Configures each in the emulator."""
        for link in links:
            self.emulator.configure(link, seed)

    def start_links(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Starts the emulator's timeline."""
        return self.emulator.start(telemetry, lead_s)

    def stop_links(self) -> DriverReport:
        """Ends it; the emulator's report."""
        return self.emulator.stop()

    def run_on(self, node: str, command: list[str], stdin: str = "") -> None:
        """Runs a command in a node's namespaces until it ends.

        Raises:
            TestbedError: it failed.
        """
        process = self._nodes[node].popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = process.communicate(stdin.encode())
        if process.returncode != 0:
            reason = output.decode(errors="replace").strip() or f"status {process.returncode}"
            raise TestbedError(f"node {node} could not be set up: '{' '.join(command)}' failed: {reason}")

    def node_pid(self, node: str) -> int:
        """A process in a node's namespaces, as this cell numbers it."""
        return int(self._nodes[node].pid)

    def set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        """Runs `ip` in the node's namespace.

        Raises:
            TestbedError: the kernel refuses an address, or has no IPv6.
        """
        plan = self.plan.nodes[node]
        names = [end.name for end in plan.interfaces]
        lines = addressing.ip_batch(plan) if present else [f"address flush dev {name}" for name in names]
        if with_ipv6:
            forwards = "0" if plan.kind == "host" else "1"
            self.run_on(node, ["sh", "-c", ENABLE_IPV6, "sh", forwards, *names])
            lines += addressing.ipv6_batch(plan)
            self._with_ipv6.add(node)
        elif node in self._with_ipv6:
            self.run_on(node, ["sh", "-c", DISABLE_IPV6])
            self._with_ipv6.remove(node)
        self._ip_batch(node, lines)
        if with_ipv6:
            self.run_on(node, ["sh", "-c", REPORTED, "sh", *names])

    def check(self) -> None:
        """Nothing can be lost without this process."""

    def explain(self, error: Exception) -> TestbedError:
        """The error itself."""
        return TestbedError(str(error))

    def close(self) -> None:
        """Ends agents, links and nodes."""
        for client in self.agents.values():
            client.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.emulator.close()
        for node in self._net.hosts:
            node.terminate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ip_batch(self, name: str, lines: Sequence[str]) -> None:
        self.run_on(name, ["ip", "-batch", "-"], "\n".join(lines) + "\n")


def _stay(*_: Any) -> None:
    """In place of Mininet's move: an emulated interface is created in its node."""
