"""Runs scenarios on a network: calibrates links, applies settings, starts, watches, stops and collects.

A `Conductor` is given a `Network` (where nodes and links are) and a `Clock` (how nodes' clocks relate to the
controller's). It works through the nodes' agents only.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from agents.clocks import read_together
from agents.errors import AgentError
from agents.kernel import ROUTER_BASE, TCP_BASE
from agents.messages import CaptureRequest, InterfaceAddress
from agents.qdiscs import SAMPLES
from testbed import addressing, commands, exchanges, flows, kernel_links, kernel_tcp, load, probing, telemetry
from testbed.addressing import Interface
from testbed.clock import Clock
from testbed.concurrency import on_each
from testbed.errors import TestbedError
from testbed.fidelity import LIMITS
from testbed.kernel_links import KernelLink
from testbed.network import Network
from testbed.report import (
    CaptureReport,
    CommandReport,
    DirectionReport,
    DriverReport,
    FlowReport,
    Measurement,
    Phase,
    ProbeReceiveReport,
    ProbeSendReport,
    ProgramReport,
    Progress,
    ReceiveReport,
    Report,
    SendReport,
)
from testbed.scenario import Direction, Flow, Limits, LinkSpec, Scenario

#: Time between the start of all receivers and the run's zero, by which every sender must have started: at least, at
#: most, and in multiples of the time that starting the receivers took, which shows how busy the machine is.
LEAST_LEAD_S, MOST_LEAD_S, LEAD_OF_RECEIVERS = 0.3, 3.0, 4.0
#: Time for packets under way when the last transfer has ended.
AFTER_THE_LAST_S = 1.0
#: Time of a server that does not serve in time to say so and end, in s.
SERVER_ENDS_S = 5.0
#: Most that is kept of a failed run's files.
SALVAGE_BYTES = 200_000_000

OnProgress = Callable[[Progress], None]
T = TypeVar("T")
#: A direction with the interfaces of its sender and its receiver.
Leg = tuple[Direction, Interface, Interface]


@dataclass(frozen=True)
class Opened:
    """A run whose links carry packets."""

    #: The run's zero on CLOCK_MONOTONIC and on CLOCK_REALTIME.
    zero_ns: int
    zero_epoch_ns: int
    #: What each node's kernel answered to its settings.
    settings: Mapping[str, Mapping[str, str]]

    @property
    def passed_s(self) -> float:
        """Seconds since the run's zero."""
        return (time.monotonic_ns() - self.zero_ns) / 1e9


class Conductor:
    """Runs one scenario after another.

    Args:
        network: nodes and links; the caller closes it.
        clock: of the same nodes.
    """

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network = network
        self._clock = clock
        self._kernel_links: dict[str, KernelLink] = {}
        #: What the kernel of each node has: its addresses, which the research stack uses otherwise, and those of IPv6.
        self._addresses: dict[str, tuple[bool, bool]] = {}
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="agents")

    def close(self) -> None:
        """Ends the conductor's threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # Calibration -----------------------------------------------------------------------------------------------------

    def calibrate(self, links: Sequence[LinkSpec], seed: int, limits: Limits = LIMITS) -> list[Measurement]:
        """Measures every direction of every link of a kind in probing.media() by probe trains, all at the same time.

        A link with problems is measured up to probing.ROUNDS times. Deep droptail queues replace the links' own,
        because runs study the policies and calibration measures the lines.

        Raises:
            TestbedError: an agent failed or a host was lost.
        """
        try:
            return probing.in_rounds(
                {link.name for link in links}, lambda names: self._calibration_round(links, names, seed, limits)
            )
        except (AgentError, TestbedError) as error:
            raise self._network.explain(error) from error

    def _calibration_round(
        self, links: Sequence[LinkSpec], names: set[str], seed: int, limits: Limits
    ) -> list[Measurement]:
        self._clock.start()
        self._network.reset()
        # The kernel sends the probes; the previous run may have used the research stack.
        for node in self._network.plan.nodes:
            self._set_addresses(node, present=True)
        probed = [probing.for_probing(link) for link in links]
        self._configure(probed, seed)
        self._network.start_links()
        jobs = []
        for link in probed:
            medium = probing.media().get(link.kind)
            if medium is None or link.name not in names:
                continue
            near, far = self._network.plan.links[link.name]
            legs: list[Leg] = [("forward", near, far), ("reverse", far, near)]
            if link.one_way:
                legs.pop()
            for sequence in [legs] if medium.shared else [[leg] for leg in legs]:
                jobs.append(self._pool.submit(self._probe_in_sequence, link, sequence))
        probes = [probe for job in jobs for probe in job.result()]
        report = self._stop_links(probed)
        return [self._measurement(probe, report, limits) for probe in probes]

    def _measurement(self, probe: probing.Probe, report: DriverReport, limits: Limits) -> Measurement:
        kind = self._real_links().get(probe.link.name)
        if kind is not None:
            # A real link has no declared values, so its measurement is recorded and not checked.
            return probing.measurement(probe, DirectionReport(), limits).replace(problems=(), real=kind)
        return probing.measurement(probe, report.links[probe.link.name][probe.direction], limits)

    def _probe_in_sequence(self, link: LinkSpec, sequence: Sequence[Leg]) -> list[probing.Probe]:
        return [self._probe(link, *leg) for leg in sequence]

    def _probe(self, link: LinkSpec, direction: Direction, source: Interface, target: Interface) -> probing.Probe:
        name = f"probe-{link.name}-{direction}"
        train = probing.train_for(link, direction, self._mtu_bytes(source, target))
        address = f"{target.address}:{probing.PORT + source.end}"
        sender, receiver = self._network.agents[source.node], self._network.agents[target.node]
        receiver.start_traffic(
            name, "probe-receive", {"listen": address, "count": train.total, "timeout-s": train.patience_s}
        )
        sender.start_traffic(
            f"{name}-send",
            "probe-send",
            {
                "to": address, "size": train.size_bytes, "burst": train.burst, "pause-s": train.pause_s,
                "spaced": train.spaced, "interval-s": train.interval_s,
            },
        )  # fmt: skip
        sender.wait_traffic(f"{name}-send", train.patience_s, ProbeSendReport.read)
        received = receiver.wait_traffic(name, train.patience_s + 5, ProbeReceiveReport.read)
        apart_ns = self._clock.realtime_offset_ns(target.node) - self._clock.realtime_offset_ns(source.node)
        return probing.Probe(
            link,
            direction,
            train,
            [arrival.replace(received_ns=arrival.received_ns - apart_ns) for arrival in received.packets],
        )

    def _mtu_bytes(self, *ends: Interface) -> int | None:
        """The shortest MTU of the interfaces; None where no node has /sys."""
        mtus = [self._network.agents[end.node].health().mtus.get(end.name) for end in ends]
        return min((mtu for mtu in mtus if mtu is not None), default=None)

    # Links -----------------------------------------------------------------------------------------------------------

    def _configure(self, links: Sequence[LinkSpec], seed: int) -> None:
        self._kernel_links = {}
        for link in links:
            if link.kind == kernel_links.KIND:
                near, far = self._network.plan.links[link.name]
                agents = self._network.agents[near.node], self._network.agents[far.node]
                self._kernel_links[link.name] = KernelLink((near, far), agents)
                self._kernel_links[link.name].configure(link)
        self._network.configure_links([link for link in links if link.name not in self._kernel_links], seed)

    def _stop_links(self, links: Sequence[LinkSpec]) -> DriverReport:
        report = self._network.stop_links()
        shaped = {
            link.name: self._kernel_links[link.name].report(link) for link in links if link.name in self._kernel_links
        }
        return report.with_links(shaped)

    def _sampled(self, links: Sequence[LinkSpec]) -> dict[str, dict[str, tuple[str, str, str]]]:
        """What each node's agent samples of the links that kernels shape (KernelLink.samples)."""
        lines: dict[str, dict[str, tuple[str, str, str]]] = {}
        for link in links:
            if link.name in self._kernel_links:
                for node, of_node in self._kernel_links[link.name].samples(link).items():
                    lines.setdefault(node, {}).update(of_node)
        return lines

    def _real_links(self) -> dict[str, str]:
        """Links that neither an emulator nor the kernels at their ends shape."""
        return {name: kind for name, kind in (self._network.real_links or {}).items() if name not in self._kernel_links}

    # Runs ------------------------------------------------------------------------------------------------------------

    def run(self, scenario: Scenario, out: Path, on_progress: OnProgress) -> Report:
        """Runs one scenario.

        Args:
            scenario: for the network's topology.
            out: folder that receives captures/NODE-INTERFACE.pcap and telemetry/*.jsonl; and in `left`, after a
                failure, what nodes and links had written.
            on_progress: called about once a second.

        Raises:
            TestbedError: something failed during the run.
        """
        try:
            return self._run(scenario, out, on_progress)
        except (AgentError, TestbedError) as error:
            self._salvage(out / "left")
            raise self._network.explain(error) from error

    def _run(self, scenario: Scenario, out: Path, on_progress: OnProgress) -> Report:
        on_progress(Progress(Phase.PREPARING))
        opened = self.open(scenario, out)
        self._start_senders(scenario, opened.zero_ns)
        armed_ns = time.monotonic_ns()
        self._wait(scenario, opened.zero_ns, on_progress)

        ended_s = opened.passed_s
        on_progress(Progress(Phase.COLLECTING))
        flow_reports = {flow.name: self._stop_flow(flow, opened.zero_ns) for flow in scenario.workload}
        report = self.collect(scenario, out, opened, self._stop_links(scenario.links))
        self._collect_outputs(scenario, flow_reports, out / commands.FOLDER)
        return report.replace(
            duration_s=min(ended_s, scenario.duration_s),
            armed_late_s=max(0.0, (armed_ns - opened.zero_ns) / 1e9),
            flows=flow_reports,
        )

    def open(self, scenario: Scenario, out: Path, least_lead_s: float = LEAST_LEAD_S) -> Opened:
        """Prepares a run and starts its links; nothing sends yet. Arguments and errors are those of `run`.

        `least_lead_s`: least time until the run's zero.
        """
        self._clock.start()
        self._network.reset()
        (out / "captures").mkdir(parents=True, exist_ok=True)
        (out / "telemetry").mkdir(exist_ok=True)
        settings, receivers_s = self._prepare(scenario)
        lead_s = min(least_lead_s + LEAD_OF_RECEIVERS * receivers_s, MOST_LEAD_S)
        zero_ns = self._network.start_links(self._telemetry, lead_s)
        for node, lines in self._sampled(scenario.links).items():
            self._network.agents[node].sample_shaping(lines, zero_ns + self._clock.monotonic_offset_ns(node))
        # Stamps of packets count on one clock, links and programs on the other.
        return Opened(zero_ns, read_together().lead_ns + zero_ns, settings)

    def collect(self, scenario: Scenario, out: Path, opened: Opened, driver: DriverReport) -> Report:
        """Ends captures and copies all files. The report has no flows yet, and no duration.

        Args:
            scenario: as it was opened.
            out: the same.
            opened: what `open` returned.
            driver: report of the links, whose timeline has ended.
        """
        captures = self._collect(scenario, out)
        to = out / "telemetry" / "links.jsonl"
        shutil.move(self._telemetry, to)
        parts = []
        for node in self._sampled(scenario.links):
            parts.append(to.with_name(f"{node}.{SAMPLES}"))
            self._network.agents[node].fetch(SAMPLES, parts[-1])
        if parts:
            telemetry.merge([to, *parts], to)
        self._clock.stop()
        for capture in captures:
            self._clock.correct(capture.node, out / "captures" / capture.path)
        return Report(
            t0_epoch_ns=opened.zero_epoch_ns,
            driver=driver,
            captures=tuple(captures),
            settings=opened.settings,
            interfaces=addressing.interfaces(self._network.plan),
            **self._optional_parts(),
        )

    @property
    def _telemetry(self) -> Path:
        return self._network.folder / "links.jsonl"

    def _optional_parts(self) -> dict[str, Any]:
        parts = {
            "clocks": self._clock.report(),
            "real_links": None if self._network.real_links is None else self._real_links(),
            "hosts": self._network.hosts,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _prepare(self, scenario: Scenario) -> tuple[dict[str, dict[str, str]], float]:
        """Links, settings, captures, receivers. Returns the settings in force and how long receivers took, in s."""
        self._configure(scenario.links, scenario.seed)
        for node in scenario.nodes:
            present = kernel_tcp.kernel_owns(node.stack)
            self._set_addresses(node.name, present, with_ipv6=present and scenario.uses_ipv6)
        settings = self._each(lambda name: self._apply_settings(scenario, name))
        loads_bps = load.greatest_load_bps(scenario, self._network.plan, self._real_links())
        self._each(lambda name: self._start_captures(scenario, name, loads_bps))
        began_s = time.monotonic()
        for flow in scenario.workload:
            if flows.is_command(flow):
                self._start_server(scenario, flow)
            else:
                self._start(flows.receiver(scenario, self._network.plan, flow))
        return settings, time.monotonic() - began_s

    def _start_server(self, scenario: Scenario, flow: Flow) -> None:
        """Prepares the hosts of a flow's programs, and starts its server."""
        plan, spec = self._network.plan, commands.spec_of(flow)
        for role, node in commands.roles(flow):
            agent = self._network.agents[node]
            agent.put_files(spec.files, commands.program_name(flow, role))
            # Programs that choose no congestion controller have that of the host's stack.
            ends = [InterfaceAddress(end.name, f"{end.address}/{end.prefix}") for end in plan.nodes[node].interfaces]
            controller = flows.stack_of(scenario, node).name
            agent.network(ends, addressing.controller_routes(plan.nodes[node], controller, flow.ip), give=True)
        found = commands.server(scenario, plan, flow)
        if found is not None:
            self._start(found[0], found[1])

    def _start_senders(self, scenario: Scenario, zero_ns: int) -> None:
        """Announces the run's zero to receivers and starts all senders, on each node's own clock."""

        def node_zero_ns(node: str) -> int:
            return zero_ns + self._clock.monotonic_offset_ns(node)

        receivers = {flow.to for flow in scenario.workload if not flows.is_command(flow)}
        on_each(self._pool, sorted(receivers), lambda name: self._network.agents[name].begin(node_zero_ns(name)))
        for flow in scenario.workload:
            if flows.is_command(flow):
                at = node_zero_ns(commands.hosts(flow)[0])
                self._start(commands.client(scenario, self._network.plan, flow, at))
            else:
                self._start(flows.sender(scenario, self._network.plan, flow, node_zero_ns(flow.from_)))

    def _start(self, program: flows.Program, ready_s: float | None = None) -> None:
        """Starts a program; one that listens does so afterwards. `ready_s`: its own limit of time for that."""
        patience_s = None if ready_s is None else ready_s + SERVER_ENDS_S
        self._network.agents[program.node].start_traffic(program.name, program.program, program.options, patience_s)

    def _wait(self, scenario: Scenario, zero_ns: int, on_progress: OnProgress) -> None:
        """Until the run's end; earlier when every flow ends by itself and the last one has ended."""
        duration_s = scenario.duration_s
        sized = all(map(_ends, scenario.workload))
        while (passed_s := (time.monotonic_ns() - zero_ns) / 1e9) < duration_s:
            self._network.check()
            on_progress(Progress(Phase.RUNNING, max(passed_s, 0.0), duration_s))
            time.sleep(min(1.0, max(duration_s - passed_s, 0.001)))
            if sized and passed_s > 0 and not any(map(self._receives, scenario.workload)):
                # The last acks are captured too.
                time.sleep(AFTER_THE_LAST_S)
                return

    def _receives(self, flow: Flow) -> bool:
        node, name = flow.to, flows.receiver_name(flow)
        if flows.is_command(flow):
            node, name = commands.hosts(flow)[0], commands.program_name(flow, "client")
        return name in self._network.agents[node].running_traffic()

    def _stop_flow(self, flow: Flow, zero_ns: int) -> FlowReport:
        if flows.is_command(flow):
            return self._stop_programs(flow, zero_ns)
        sender, receiver = self._network.agents[flow.from_], self._network.agents[flow.to]
        return FlowReport(
            send=sender.stop_traffic(flows.sender_name(flow), SendReport.read),
            receive=receiver.stop_traffic(flows.receiver_name(flow), ReceiveReport.read),
        )

    def _stop_programs(self, flow: Flow, zero_ns: int) -> FlowReport:
        """Ends the client, if it still runs, and then its server."""
        found = {}
        for role, node in commands.roles(flow):
            name = commands.program_name(flow, role)
            found[role] = self._network.agents[node].stop_traffic(name, ProgramReport.read)
        client, node_zero_ns = found["client"], zero_ns + self._clock.monotonic_offset_ns(commands.hosts(flow)[0])
        started = client.started_monotonic_ns
        report = CommandReport(
            client=client, server=found.get("server"),
            started_s=None if started is None else (started - node_zero_ns) / 1e9,
            ended_s=(client.ended_monotonic_ns - node_zero_ns) / 1e9,
        )  # fmt: skip
        return FlowReport(send=SendReport(started_late_s=client.started_late_s), command=report)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _each(self, action: Callable[[str], T]) -> dict[str, T]:
        """The action on every node at once."""
        return on_each(self._pool, self._network.plan.nodes, action)

    def _set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        wanted = (present, with_ipv6)
        if self._addresses.get(node, (True, False)) != wanted:
            self._network.set_addresses(node, present, with_ipv6)
            self._addresses[node] = wanted

    def _apply_settings(self, scenario: Scenario, name: str) -> dict[str, str]:
        node = scenario.node(name)
        sysctls = {**TCP_BASE, **(ROUTER_BASE if node.kind != "host" else {})} | kernel_tcp.sysctls(node.stack)
        return self._network.agents[name].settings(sysctls, [])

    def _start_captures(self, scenario: Scenario, name: str, loads_bps: Mapping[str, float | None]) -> None:
        ends = captured(scenario.capture.at, self._network.plan.nodes[name].interfaces)
        if ends:
            requests = [CaptureRequest(end.name, f"captures/{end.name}.pcap", loads_bps[end.link]) for end in ends]
            self._network.agents[name].start_captures(requests, scenario.capture.snaplen)

    def _collect(self, scenario: Scenario, out: Path) -> list[CaptureReport]:
        """Stops captures and copies files from the nodes."""
        captures = [
            CaptureReport(node=name, **asdict(counters))
            for name, of_node in self._each(lambda name: self._network.agents[name].stop_captures()).items()
            for counters in of_node
        ]
        self._each(lambda name: self._fetch(scenario, name, captures, out))
        for flow in scenario.workload:
            if flows.has_records(flow):
                self._collect_exchanges(flow, scenario.duration_s, out / exchanges.FOLDER)
        return captures

    def _collect_exchanges(self, flow: Flow, duration_s: float, to: Path) -> None:
        """Fetches what both programs of a flow recorded, and joins it."""
        to.mkdir(exist_ok=True)
        sent, arrived = to / flows.sent_file(flow), to / flows.arrived_file(flow)
        self._network.agents[flow.from_].fetch(sent.name, sent)
        self._network.agents[flow.to].fetch(arrived.name, arrived)
        exchanges.join(sent, arrived, duration_s, to / f"{flow.name}.jsonl")
        sent.unlink()
        arrived.unlink()

    def _collect_outputs(self, scenario: Scenario, reports: Mapping[str, FlowReport], to: Path) -> None:
        """Fetches the outputs of programs, and writes what is known of each flow's programs beside them."""
        for flow in scenario.workload:
            report = reports[flow.name].command
            if report is None:
                continue
            to.mkdir(exist_ok=True)
            (to / f"{flow.name}.json").write_text(json.dumps(report.as_json(), indent=1) + "\n")
            for role, node in commands.roles(flow):
                for ending in (commands.OUTPUT, commands.ERRORS):
                    name = commands.output_file(flow.name, role, ending)
                    self._network.agents[node].fetch(name, to / name)

    def _fetch(self, scenario: Scenario, name: str, captures: Iterable[CaptureReport], out: Path) -> None:
        agent = self._network.agents[name]
        for capture in captures:
            if capture.node == name:
                agent.fetch(f"captures/{capture.path}", out / "captures" / capture.path)
        for flow in scenario.workload:
            if flow.from_ == name and not flows.is_command(flow):
                agent.fetch(f"{flow.name}.jsonl", out / "telemetry" / f"{flow.name}.jsonl")

    def _salvage(self, to: Path) -> None:
        """Copies logs, reports and captures of a failed run, smallest first, because logs explain most."""
        for agent in self._network.agents.values():
            try:
                agent.stop_captures()
            except AgentError:
                continue  # Its captures are there as far as they got.
        room = SALVAGE_BYTES
        files = [path for path in self._network.folder.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: path.stat().st_size):
            room -= path.stat().st_size
            if room < 0:
                break
            kept = to / path.relative_to(self._network.folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)


def _ends(flow: Flow) -> bool:
    """Whether a flow ends by itself."""
    return commands.ends_by_itself(flow) if flows.is_command(flow) else bool(flow.bytes)


def captured(at: Sequence[str], interfaces: Iterable[Interface]) -> list[Interface]:
    """Those of a node's interfaces that a scenario's `capture.at` names as `node:link`; all when it is empty."""
    return [end for end in interfaces if not at or f"{end.node}:{end.link}" in at]
