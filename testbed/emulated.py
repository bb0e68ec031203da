"""The emulated backend, inside a cell: Mininet nodes, emulated links, an agent on every node, one run after another.

A testbed is built once for a topology and reused by every run that shares it: between runs the links are configured
anew and the agents are reset. Only `testbed.cellmain` and people's own scripts call this; it needs the namespaces of a
cell around it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mininet.log
import mininet.net
import mininet.node

from agents.client import AgentClient
from agents.errors import AgentError
from agents.kernel import ROUTER_BASE, TCP_BASE
from agents.traffic import BEGIN
from testbed import addressing, kernel_links, kernel_tcp, node_binary, probing, traffic
from testbed.errors import TestbedError
from testbed.fidelity import LIMITS, Limits
from testbed.forked import ForkedAgent
from testbed.mininet_links import EmulatedLink, Emulator, TapIntf
from testbed.together import on_each

#: Seconds between "everything is armed" and the run's zero: the last sender has started by then. So much at least, at
#: most, and in multiples of what starting the receivers took, which tells how busy the machine is.
LEAST_LEAD_S, MOST_LEAD_S, LEAD_OF_RECEIVERS = 0.3, 3.0, 4.0
#: Seconds for what is under way when the last transfer has ended.
AFTER_THE_LAST_S = 1.0
#: Seconds that a node's agent may take to answer its first request.
AGENT_START_S = 15.0

#: Most that is kept of what a failed run wrote, in bytes.
SALVAGE_BYTES = 200_000_000
#: Added to a flow's port for the sending end of a research flow.
FIRST_EPHEMERAL = 30_000

Progress = Callable[[str], None]


class EmulatedTestbed:
    """Nodes, wires, agents.

    Args:
        nodes: the scenario's nodes.
        links: the scenario's links, as they stand first.
        folder: short path for sockets and agents' folders; in memory, so that captures wait for no disk.

    Raises:
        TestbedError: it could not be built; nothing of it is left then but what dies with the cell.
    """

    def __init__(self, nodes: list[dict[str, Any]], links: list[dict[str, Any]], folder: Path) -> None:
        self.plan = addressing.make_plan(nodes, links)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mininet.log.setLogLevel("error")
        # Mininet would raise machine-wide limits (files, ptys, neighbour tables) here; a cell needs none of them.
        mininet.net.Mininet.inited = True
        self._net = mininet.net.Mininet(topo=None, controller=None, build=False)
        self.emulator = Emulator(folder / "emulator.log")
        self._kernel_links: dict[str, kernel_links.KernelLink] = {}
        self._agents: dict[str, AgentClient] = {}
        self._nodes: dict[str, Any] = {}
        #: Hosts whose addresses the research stack owns, not the kernel.
        self._without_kernel: set[str] = set()
        self._processes: list[ForkedAgent] = []
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="agents")
        try:
            self._build(links)
        except BaseException:
            self.close()
            raise

    def _build(self, links: list[dict[str, Any]]) -> None:
        self._nodes = net_nodes = {
            name: self._net.addHost(name, cls=mininet.node.Node, ip=None, inNamespace=True) for name in self.plan.nodes
        }
        for name, node in net_nodes.items():
            # Before any interface exists, so that none ever sends a router solicitation.
            _in_node(node, name, ["sh", "-c", "cd /proc/sys/net/ipv6/conf 2>/dev/null || exit 0\n"
                                  "for one in all default; do echo 1 >$one/disable_ipv6; done"])  # fmt: skip
        for link in links:
            self._add_link(link, net_nodes)
        for name, node in net_nodes.items():
            batch = "\n".join(addressing.ip_batch(self.plan.nodes[name])) + "\n"
            _in_node(node, name, ["ip", "-batch", "-"], batch)
        for name, node in net_nodes.items():
            self._start_agent(name, node)
        for name in self.plan.nodes:
            self._await_agent(name)
        self._know_kernel_links(links)

    def _know_kernel_links(self, links: list[dict[str, Any]]) -> None:
        for link in links:
            if link["kind"] == kernel_links.KIND:
                near, far = self.plan.links[link["name"]]
                agents = self._agents[near.node], self._agents[far.node]
                self._kernel_links[link["name"]] = kernel_links.KernelLink(link["name"], (near, far), agents)

    def _add_link(self, link: dict[str, Any], net_nodes: Mapping[str, Any]) -> None:
        ends = self.plan.links[link["name"]]
        if link["kind"] == kernel_links.KIND:
            a, b = ends
            kernel_links.make_wire(link["name"], (a, b), (net_nodes[a.node].pid, net_nodes[b.node].pid))
            for end in ends:
                TapIntf(end.name, node=net_nodes[end.node], mac=end.mac, moveIntfFn=_stays)
            return
        if len(ends) == 2:
            a, b = ends
            self._net.addLink(
                net_nodes[a.node], net_nodes[b.node], cls=EmulatedLink, spec=link, emulator=self.emulator,
                intfName1=a.name, intfName2=b.name, addr1=a.mac, addr2=b.mac,
            )  # fmt: skip
            return
        # A shared medium has more ends than Mininet's Link knows.
        self.emulator.add_link(
            link, [{"pid": net_nodes[end.node].pid, "ifname": end.name, "mac": end.mac} for end in ends]
        )
        for end in ends:
            TapIntf(end.name, node=net_nodes[end.node], mac=end.mac, moveIntfFn=_stays)

    def _start_agent(self, name: str, node: Any) -> None:
        words = [
            "--socket", str(self._socket(name)), "--folder", str(self._folder / name),
            "--node-binary", node_binary.path(),
        ]  # fmt: skip
        self._processes.append(ForkedAgent(node.pid, words, self._folder / f"{name}.agent.log"))

    def _await_agent(self, name: str) -> None:
        deadline = time.monotonic() + AGENT_START_S
        client = AgentClient(name, self._socket(name))
        self._agents[name] = client
        while True:
            try:
                client.health()
                return
            except AgentError as error:
                if time.monotonic() > deadline:
                    said = (self._folder / f"{name}.agent.log").read_text(errors="replace").strip().splitlines()
                    reason = said[-1] if said else str(error)
                    raise TestbedError(f"the agent of {name} did not start: {reason}") from None
                time.sleep(0.02)

    def _socket(self, name: str) -> Path:
        return self._folder / f"{name}.sock"

    def close(self) -> None:
        """Ends agents, links and nodes."""
        for client in self._agents.values():
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
        shutil.rmtree(self._folder, ignore_errors=True)

    # Calibration ---------------------------------------------------------------------------------------------

    def calibrate(self, links: list[dict[str, Any]], seed: int, limits: Limits = LIMITS) -> list[dict[str, Any]]:
        """Measures every direction of every link of a kind in probing.MEDIA by probe trains, all at once.

        A link that seems to be off is measured again, probing.ROUNDS times in all.

        Queues are replaced by a deep droptail one for the while: the policies are what runs study, the line is what is
        measured here.

        Returns: per direction what was declared and what was measured (see testbed.probing.Measurement).
        """
        try:
            return probing.in_rounds(
                {link["name"] for link in links}, lambda doubtful: self._calibrate(links, doubtful, seed, limits)
            )
        except AgentError as error:
            raise TestbedError(str(error)) from error

    def _calibrate(
        self, links: list[dict[str, Any]], doubtful: set[str], seed: int, limits: Limits
    ) -> list[dict[str, Any]]:
        self._reset()
        # The kernel sends the probes; the run before this may have been the research stack's.
        for name in self.plan.nodes:
            self._give_addresses(name, to_kernel=True)
        probed = [probing.for_probing(link) for link in links]
        self._configure(probed, seed)
        self.emulator.start()
        jobs = []
        for link in probed:
            medium = probing.MEDIA.get(link["kind"])
            if medium is None or link["name"] not in doubtful:
                continue
            near, far = self.plan.links[link["name"]]
            both = [("forward", near, far), ("reverse", far, near)]
            if link["options"].get("one_way"):
                both.pop()
            for turn in [both] if medium.shared else [[one] for one in both]:
                jobs.append(self._pool.submit(self._probe_in_turn, link, turn))
        results = [probed for job in jobs for probed in job.result()]
        report = self._stop_links(probed)
        return [probing.hold_against(result, report, limits).as_dict() for result in results]

    def _configure(self, links: list[dict[str, Any]], seed: int) -> None:
        for link in links:
            if link["name"] in self._kernel_links:
                self._kernel_links[link["name"]].configure(link)
            else:
                self.emulator.configure(link, seed)

    def _stop_links(self, links: list[dict[str, Any]]) -> dict[str, Any]:
        """Ends the links' timeline; the report of every link."""
        report = self.emulator.stop()
        for link in links:
            if link["name"] in self._kernel_links:
                report["links"][link["name"]] = self._kernel_links[link["name"]].report(link)
        return report

    def _probe_in_turn(
        self, link: dict[str, Any], turn: list[tuple[str, addressing.Interface, addressing.Interface]]
    ) -> list[probing.Probed]:
        return [self._probe(link, direction, source, target) for direction, source, target in turn]

    def _probe(
        self, link: dict[str, Any], direction: str, source: addressing.Interface, target: addressing.Interface
    ) -> probing.Probed:
        name = f"probe-{link['name']}-{direction}"
        train = probing.train_for(link, direction)
        port = probing.PORT + source.end
        sender, receiver = self._agents[source.node], self._agents[target.node]
        receiver.start_traffic(
            name,
            "probe-receive",
            {"listen": f"{target.address}:{port}", "count": train.total, "timeout-s": train.patience_s},
        )
        sender.start_traffic(
            f"{name}-send",
            "probe-send",
            {
                "to": f"{target.address}:{port}", "size": train.size_bytes, "burst": train.burst,
                "pause-s": train.pause_s, "spaced": train.spaced, "interval-s": train.interval_s,
            },
        )  # fmt: skip
        sender.wait_traffic(f"{name}-send", train.patience_s)
        received = receiver.wait_traffic(name, train.patience_s + 5)
        return probing.Probed(link, direction, train, received)

    # Runs ----------------------------------------------------------------------------------------------------

    def run(self, scenario: dict[str, Any], out: Path, progress: Progress) -> dict[str, Any]:
        """Runs one scenario on the built topology and leaves its files in `out`.

        `out` receives captures/NODE-INTERFACE.pcap and telemetry/*.jsonl. Returns the run's report: `t0_epoch_ns`,
        `driver` (the links, as the emulator reports them), `captures` (tcpdump's counters),
        `flows` (the programs' reports), `settings`
        (what the kernel said to each), `kernel`.

        Raises:
            TestbedError: something failed during the run.
        """
        try:
            return self._run(scenario, out, progress)
        except (AgentError, TestbedError) as error:
            self._salvage(out / "left")
            raise TestbedError(str(error)) from error

    def _run(self, scenario: dict[str, Any], out: Path, progress: Progress) -> dict[str, Any]:
        progress("preparing")
        self._reset()
        (out / "captures").mkdir(parents=True, exist_ok=True)
        (out / "telemetry").mkdir(exist_ok=True)
        self._configure(scenario["links"], scenario["seed"])
        for node in scenario["nodes"]:
            self._give_addresses(node["name"], to_kernel=kernel_tcp.is_kernels(node.get("stack")))
        settings = self._each(lambda name: self._apply_settings(scenario, name))
        passing_bps = traffic.passing_bps(scenario, self.plan)
        self._each(lambda name: self._start_captures(scenario, name, passing_bps))
        began_s = time.monotonic()
        for flow in scenario["workload"]:
            self._start_receiver(scenario, flow)
        lead_s = LEAST_LEAD_S + LEAD_OF_RECEIVERS * (time.monotonic() - began_s)

        telemetry = self._folder / "links.jsonl"
        t0_ns = self.emulator.start(telemetry, min(lead_s, MOST_LEAD_S))
        # Both clocks are read together; packets carry the epoch's, links and programs count on the other.
        t0_epoch_ns = time.time_ns() - time.monotonic_ns() + t0_ns
        receivers = {flow["to"] for flow in scenario["workload"] if not self._kernel_receives(scenario, flow)}
        on_each(self._pool, sorted(receivers), lambda name: self._begin(name, t0_ns))
        for flow in scenario["workload"]:
            self._start_sender(scenario, flow, t0_ns)
        armed_ns = time.monotonic_ns()
        self._sleep_until(t0_ns, scenario, progress)

        ended_s = (time.monotonic_ns() - t0_ns) / 1e9
        progress("collecting")
        flows = {flow["name"]: self._stop_flow(flow) for flow in scenario["workload"]}
        report = self._stop_links(scenario["links"])
        captures = [
            {"node": name, **counts}
            for name, all_counts in self._each(self._stop_captures).items()
            for counts in all_counts
        ]
        self._each(lambda name: self._fetch(scenario, name, captures, out))
        shutil.move(telemetry, out / "telemetry" / "links.jsonl")
        return {
            "t0_epoch_ns": t0_epoch_ns,
            "duration_s": min(ended_s, scenario["duration_s"]),
            "armed_late_s": max(0.0, (armed_ns - t0_ns) / 1e9),
            "driver": report,
            "captures": captures,
            "flows": flows,
            "settings": settings,
            "interfaces": addressing.interfaces(self.plan),
        }

    def _salvage(self, to: Path) -> None:
        """Copies what nodes and links have written so far: logs, reports, captures. For people who ask why."""
        for agent in self._agents.values():
            try:
                agent.stop_captures()
            except AgentError:
                continue  # what it captured is there all the same, as far as it got
        room = SALVAGE_BYTES
        # Small ones first: logs matter most.
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: path.stat().st_size):
            room -= path.stat().st_size
            if room < 0:
                break
            kept = to / path.relative_to(self._folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)

    def _each(self, action: Callable[[str], Any]) -> dict[str, Any]:
        """The action on every node at once; the first failure is raised when all have ended."""
        return on_each(self._pool, self.plan.nodes, action)

    def _reset(self) -> None:
        self._each(lambda name: self._agents[name].reset())

    def _give_addresses(self, name: str, to_kernel: bool) -> None:
        """The kernel holds a host's addresses, or lets go of them for the research stack."""
        if to_kernel == (name not in self._without_kernel):
            return
        plan = self.plan.nodes[name]
        if to_kernel:
            self._without_kernel.discard(name)
            lines = addressing.ip_batch(plan)
        else:
            self._without_kernel.add(name)
            lines = [f"address flush dev {end.name}" for end in plan.interfaces]
        _in_node(self._nodes[name], name, ["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def _apply_settings(self, scenario: dict[str, Any], name: str) -> dict[str, Any]:
        node = next(node for node in scenario["nodes"] if node["name"] == name)
        wanted = {**TCP_BASE, **(ROUTER_BASE if node["kind"] != "host" else {})}
        wanted |= kernel_tcp.sysctls(node.get("stack"))
        return dict(self._agents[name].settings(wanted, [])["sysctls"])

    def _start_captures(self, scenario: dict[str, Any], name: str, passing_bps: Mapping[str, float | None]) -> None:
        capture = scenario.get("capture") or {}
        wanted = captured(capture.get("at") or [], self.plan.nodes[name].interfaces)
        if wanted:
            interfaces = [
                {"interface": end.name, "file": f"captures/{end.name}.pcap", "rate_bps": passing_bps[end.link]}
                for end in wanted
            ]
            self._agents[name].start_captures(interfaces, int(capture.get("snaplen", 128)))

    def _stop_captures(self, name: str) -> list[dict[str, Any]]:
        return self._agents[name].stop_captures()

    def _start_receiver(self, scenario: dict[str, Any], flow: dict[str, Any]) -> None:
        stack = self._host(scenario, flow["to"]).get("stack")
        own = {"listen": f"{self.plan.nodes[flow['to']].address}:{flow['port']}", "seed": payload_seed(scenario, flow)}
        if self._kernel_receives(scenario, flow):
            program, more = "receive", kernel_tcp.socket_options(stack, flow.get("stack") or {})
        else:
            place = self._place(flow["to"], flow["from"], stack, flow)
            program, more = "endpoint-receive", {**place, "run-begins-file": BEGIN}
        self._agents[flow["to"]].start_traffic(f"{flow['name']}-receive", program, {**own, **more})

    def _kernel_receives(self, scenario: dict[str, Any], flow: dict[str, Any]) -> bool:
        return kernel_tcp.is_kernels(self._host(scenario, flow["to"]).get("stack"))

    def _begin(self, name: str, t0_ns: int) -> None:
        self._agents[name].begin(t0_ns)

    def _start_sender(self, scenario: dict[str, Any], flow: dict[str, Any], t0_ns: int) -> None:
        stack = self._host(scenario, flow["from"]).get("stack")
        stop_s = min(flow.get("stop_s") or scenario["duration_s"], scenario["duration_s"])
        own = {
            "to": f"{self.plan.nodes[flow['to']].address}:{flow['port']}",
            "seed": payload_seed(scenario, flow),
            "bytes": flow.get("bytes"),
            "start-at-ns": t0_ns + round(flow.get("start_s", 0.0) * 1e9),
            "stop-at-ns": t0_ns + round(stop_s * 1e9),
            "telemetry": f"{flow['name']}.jsonl",
        }
        if kernel_tcp.is_kernels(stack):
            program, more = "send", kernel_tcp.socket_options(stack, flow.get("stack") or {})
        else:
            source = f"{self.plan.nodes[flow['from']].address}:{FIRST_EPHEMERAL + flow['port']}"
            place = self._place(flow["from"], flow["to"], stack, flow)
            program, more = "endpoint-send", {"from": source, "run-begins-ns": t0_ns, **place}
        self._agents[flow["from"]].start_traffic(f"{flow['name']}-send", program, {**own, **more})

    def _place(self, name: str, peer: str, stack: Mapping[str, Any] | None, flow: Mapping[str, Any]) -> dict[str, Any]:
        """Where a research endpoint of a host stands, and what stack it is."""
        assert stack is not None
        plan = self.plan.nodes[name]
        interface, next_hop = addressing.way(self.plan, name, self.plan.nodes[peer].address)
        others = [one.name for one in plan.interfaces if one is not interface]
        options = {**(stack.get("options") or {}), **(flow.get("stack") or {})}
        chosen = options.pop("name", stack["name"])
        return {
            "interface": interface.name,
            "mac": interface.mac,
            "next-hop-mac": next_hop.mac,
            "also-hear": ",".join(others) or None,
            "stack": chosen,
            "stack-options": json.dumps(options),
        }

    def _host(self, scenario: dict[str, Any], name: str) -> dict[str, Any]:
        return next(node for node in scenario["nodes"] if node["name"] == name)

    def _stop_flow(self, flow: dict[str, Any]) -> dict[str, Any]:
        sent = self._agents[flow["from"]].stop_traffic(f"{flow['name']}-send")
        received = self._agents[flow["to"]].stop_traffic(f"{flow['name']}-receive")
        return {"send": sent, "receive": received}

    def _fetch(self, scenario: dict[str, Any], name: str, captures: Iterable[dict[str, Any]], out: Path) -> None:
        agent = self._agents[name]
        for capture in captures:
            if capture["node"] == name:
                agent.fetch(f"captures/{capture['path']}", out / "captures" / capture["path"])
        for flow in scenario["workload"]:
            if flow["from"] == name:
                agent.fetch(f"{flow['name']}.jsonl", out / "telemetry" / f"{flow['name']}.jsonl")

    def _sleep_until(self, t0_ns: int, scenario: Mapping[str, Any], progress: Progress) -> None:
        """Until the run's end; where every flow has a size, until the last receiver has ended of itself."""
        duration_s, flows = scenario["duration_s"], scenario["workload"]
        sized = all(flow.get("bytes") for flow in flows)
        while (passed_s := (time.monotonic_ns() - t0_ns) / 1e9) < duration_s:
            progress(f"running {max(passed_s, 0.0):.1f}")
            time.sleep(min(1.0, max(duration_s - passed_s, 0.001)))
            if sized and passed_s > 0 and not any(map(self._receives, flows)):
                # What is still under way, the last acks, is captured too.
                time.sleep(AFTER_THE_LAST_S)
                return

    def _receives(self, flow: Mapping[str, Any]) -> bool:
        return f"{flow['name']}-receive" in self._agents[flow["to"]].running_traffic()


def captured(at: list[str], interfaces: Iterable[addressing.Interface]) -> list[addressing.Interface]:
    """Which of a node's interfaces a scenario's `capture.at` names: `node:link`; all when empty; none for `none`."""
    return [end for end in interfaces if not at or f"{end.node}:{end.link}" in at]


def payload_seed(scenario: Mapping[str, Any], flow: Mapping[str, Any]) -> int:
    """Seed of a flow's payload: sender and receiver must agree, and flows must differ."""
    number = [other["name"] for other in scenario["workload"]].index(flow["name"])
    return (int(scenario["seed"]) * 1000 + number) % 2**63


def _in_node(node: Any, name: str, words: list[str], stdin: str = "") -> None:
    process = node.popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = process.communicate(stdin.encode())
    if process.returncode != 0:
        reason = said.decode(errors="replace").strip() or f"status {process.returncode}"
        raise TestbedError(f"node {name} could not be set up: '{' '.join(words)}' said: {reason}")


def _stays(*_: Any) -> None:
    """An emulated interface is born in its node; there is nothing to move."""
