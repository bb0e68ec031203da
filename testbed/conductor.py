"""Runs scenarios on a network: calibrates links, applies settings, starts, watches, stops and collects.

A `Conductor` is given a `Network` (where nodes and links are) and a `Clock` (how nodes' clocks relate to the
controller's). It works through the nodes' agents only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from agents.client import AgentClient
from agents.clocks import read_together
from agents.errors import AgentError
from agents.kernel import ROUTER_BASE, TCP_BASE
from agents.messages import CaptureRequest
from agents.qdiscs import SAMPLES
from testbed import addressing, flow_drivers, kernel_links, kernel_tcp, load, probing, telemetry
from testbed.addressing import Interface
from testbed.clock import Clock
from testbed.concurrency import map_concurrently
from testbed.errors import TestbedError
from testbed.fidelity import LIMITS
from testbed.flow_drivers import FlowDriver
from testbed.kernel_links import KernelLink
from testbed.network import Network
from testbed.report import (
    CaptureReport,
    DirectionReport,
    DriverReport,
    Measurement,
    Phase,
    ProbeReceiveReport,
    ProbeSendReport,
    Progress,
    Report,
)
from testbed.scenario import Direction, Limits, LinkSpec, Scenario, lacking

#: Time between the start of all receivers and the run's zero, by which every sender must have started: at least, at
#: most, and in multiples of the time that starting the receivers took, which shows how busy the machine is.
LEAST_LEAD_S, MOST_LEAD_S, LEAD_OF_RECEIVERS = 0.3, 3.0, 4.0
#: Time for packets under way when the last transfer has ended.
AFTER_THE_LAST_S = 1.0
#: Most that is kept of a failed run's files.
SALVAGE_BYTES = 200_000_000

OnProgress = Callable[[Progress], None]
T = TypeVar("T")
#: A direction with the interfaces of its sender and its receiver.
Leg = tuple[Direction, Interface, Interface]


def require_crates(scenario: Scenario, agents: Mapping[str, AgentClient]) -> None:
    """Checks that the program of each node has the user's crates.

    The runner's own node proves nothing: a host has the one that `site` copied, a cell that of its start.

    Raises:
        TestbedError: a node has another version of a crate, or none.
    """
    for name, agent in agents.items() if scenario.crates else ():
        if reason := lacking(scenario.crates, agent.crates()):
            raise TestbedError(
                f"{name}: {reason}. './backchannel testbed site --campaign FILE' copies the current program to the "
                "hosts of a lab"
            )


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
                "to": address,
                "size": train.size_bytes,
                "burst": train.burst,
                "pause-s": train.pause_s,
                "spaced": train.spaced,
                "interval-s": train.interval_s,
            },
        )
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
        opened, flows = self.open(scenario, out), self._flows(scenario)
        self._start_senders(flows.values(), opened.zero_ns)
        armed_ns = time.monotonic_ns()
        self._wait(flows.values(), scenario.duration_s, opened.zero_ns, on_progress)

        ended_s = opened.passed_s
        on_progress(Progress(Phase.COLLECTING))
        flow_reports = {name: flow.stop(opened.zero_ns) for name, flow in flows.items()}
        report = self.collect(scenario, out, opened, self._stop_links(scenario.links))
        map_concurrently(self._pool, flows, lambda name: flows[name].collect(out, flow_reports[name]))
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
        return Report.make(
            t0_epoch_ns=opened.zero_epoch_ns,
            driver=driver,
            captures=tuple(captures),
            settings=opened.settings,
            interfaces=addressing.interfaces(self._network.plan),
            clocks=self._clock.report(),
            real_links=None if self._network.real_links is None else self._real_links(),
            hosts=self._network.hosts,
        )

    @property
    def _telemetry(self) -> Path:
        return self._network.folder / "links.jsonl"

    def _flows(self, scenario: Scenario) -> dict[str, FlowDriver]:
        return flow_drivers.of(scenario, self._network, self._clock)

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
        for flow in self._flows(scenario).values():
            flow.prepare()
        return settings, time.monotonic() - began_s

    def _start_senders(self, flows: Collection[FlowDriver], zero_ns: int) -> None:
        """Announces the run's zero to receivers and starts all senders, on each node's own clock."""
        receivers = sorted({flow.announced_at for flow in flows} - {""})
        offset_ns = self._clock.monotonic_offset_ns
        map_concurrently(
            self._pool, receivers, lambda name: self._network.agents[name].begin(zero_ns + offset_ns(name))
        )
        for flow in flows:
            flow.start(zero_ns)

    def _wait(self, flows: Collection[FlowDriver], duration_s: float, zero_ns: int, on_progress: OnProgress) -> None:
        """Until the run's end; earlier when every flow ends by itself and the last one has ended."""
        sized = all(flow.ends for flow in flows)
        while (passed_s := (time.monotonic_ns() - zero_ns) / 1e9) < duration_s:
            self._network.check()
            on_progress(Progress(Phase.RUNNING, max(passed_s, 0.0), duration_s))
            time.sleep(min(1.0, max(duration_s - passed_s, 0.001)))
            if sized and passed_s > 0 and not any(flow.runs() for flow in flows):
                # The last acks are captured too.
                time.sleep(AFTER_THE_LAST_S)
                return

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _each(self, action: Callable[[str], T]) -> dict[str, T]:
        """The action on every node at once."""
        return map_concurrently(self._pool, self._network.plan.nodes, action)

    def _set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        required = (present, with_ipv6)
        if self._addresses.get(node, (True, False)) != required:
            self._network.set_addresses(node, present, with_ipv6)
            self._addresses[node] = required

    def _apply_settings(self, scenario: Scenario, name: str) -> dict[str, str]:
        node = scenario.node(name)
        sysctls = {**TCP_BASE, **(ROUTER_BASE if node.kind != "host" else {})} | kernel_tcp.sysctls(node.stack)
        return self._network.agents[name].settings(sysctls)

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
        self._each(lambda name: self._fetch(name, captures, out))
        return captures

    def _fetch(self, name: str, captures: Iterable[CaptureReport], out: Path) -> None:
        for capture in captures:
            if capture.node == name:
                self._network.agents[name].fetch(f"captures/{capture.path}", out / "captures" / capture.path)

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


def captured(at: Sequence[str], interfaces: Iterable[Interface]) -> list[Interface]:
    """Those of a node's interfaces that a scenario's `capture.at` names as `node:link`; all when it is empty."""
    return [end for end in interfaces if not at or f"{end.node}:{end.link}" in at]
