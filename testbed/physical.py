"""The physical backend: the hosts of a lab, each with its agent, reached over SSH (or as namespaces of this machine).

A run goes as on the emulated backend, whose code this is; what differs is here: every host has clocks of its own, links
are emulated in link boxes or are real, and a host can be lost.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.client import AgentClient
from agents.errors import AgentError
from testbed import addressing, clocks, probing
from testbed.emulated import EmulatedTestbed, Progress
from testbed.errors import TestbedError
from testbed.fidelity import LIMITS, Limits, limits_of
from testbed.placement import Placement, Spot
from testbed.together import on_each
from testbed.tunnels import SILENCE_S, NamespaceWay, SshOptions, SshWay, Way

#: A controller that is silent for so long holds its testbed no more.
LEASE_S = 30.0
RENEW_S = 5.0
#: What every link's telemetry is called on a box.
TELEMETRY = "links.jsonl"


@dataclass(frozen=True)
class Reach:
    """How hosts are reached: over SSH, or in the namespaces of these processes."""

    ssh: SshOptions | None = None
    namespaces: Mapping[str, int] | None = None


class Crew:
    """The agents of a lab: ways to them, their locks, their clocks.

    Raises:
        TestbedError: a host cannot be reached, has no agent, is held by another, or has a clock that is not set; with
            the host's name and the remedy. Nothing is held then.
    """

    def __init__(self, placement: Placement, reach: Reach, holder: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bc-"))
        self._silence_s = 0.0 if reach.ssh is None else reach.ssh.silence_s
        #: What a host may take to let go when there is no time.
        self._parting_s = self._silence_s or SILENCE_S
        self._ways: dict[str, Way] = {}
        self.agents: dict[str, AgentClient] = {}
        self._held: list[AgentClient] = []
        self._stop = threading.Event()
        self._parting = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="crew")
        names = list(dict.fromkeys(placement.members()))
        try:
            for name in names:
                self._ways[name] = self._open(placement, reach, name)
            for way in self._ways.values():
                if isinstance(way, SshWay):
                    way.wait()
            for name, way in self._ways.items():
                self.agents[name] = AgentClient(name, way.socket)
            self.each(self._greet)
            for name, client in self.agents.items():
                self._take(name, client, holder)
            self._learn_clocks()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def _open(self, placement: Placement, reach: Reach, name: str) -> Way:
        if reach.ssh is not None:
            host = placement.hosts[name]
            return SshWay(name, host.address, host.port, reach.ssh, self._folder)
        pids = reach.namespaces or {}
        if name not in pids:
            raise TestbedError(
                f"host {name} is a namespace of a lab that is not there ('./backchannel lab -i FILE -- COMMAND' "
                "makes it for as long as a command runs)"
            )
        return NamespaceWay(name, pids[name])

    def _greet(self, name: str) -> None:
        try:
            self.agents[name].health()
        except AgentError as error:
            raise TestbedError(
                f"host {name}: no agent answers there, run './backchannel testbed site --inventory FILE' ({error})"
            ) from None

    def _take(self, name: str, client: AgentClient, holder: str) -> None:
        try:
            client.hold(holder, LEASE_S)
        except AgentError as error:
            raise TestbedError(f"host {error}") from None
        self._held.append(client)

    def _learn_clocks(self) -> None:
        try:
            self.read_clocks()
        except AgentError as error:
            raise TestbedError(self.why(f"host {error}")) from None

    def each(self, action: Callable[[str], Any]) -> dict[str, Any]:
        """An action on every host at once; the first failure is raised when all have ended."""
        return on_each(self._pool, self._ways, action)

    def read_clocks(self) -> dict[str, clocks.Reading]:
        """Every host's clocks, measured.

        Raises:
            TestbedError: one is not set at all.
        """
        readings = {}
        for name, client in self.agents.items():
            readings[name] = clocks.read(client.clock)
            clocks.refuse_far(name, readings[name])
        return readings

    def lost(self) -> str | None:
        """Which host cannot be reached any more, and why; None while all can."""
        return next((trouble for way in self._ways.values() if (trouble := way.trouble())), None)

    def check(self) -> None:
        """Whether there is anything to wait for.

        Raises:
            TestbedError: a host was lost, or the connections were cut.
        """
        if self._stop.is_set():
            raise TestbedError("the connections to the hosts were cut")
        trouble = self.lost()
        if trouble:
            raise TestbedError(trouble)

    def said(self) -> str:
        """What every ssh wrote."""
        logs = sorted(self._folder.glob("*.ssh.log"))
        return "".join(f"{path.name.removesuffix('.ssh.log')}: {path.read_text(errors='replace')}\n" for path in logs)

    def why(self, error: str) -> str:
        """The reason behind an error: a host that was lost, if there is one. SSH takes a while to notice."""
        if self._stop.is_set():
            return error
        deadline = time.monotonic() + (self._silence_s + 2 if "does not answer" in error else 0)
        while True:
            trouble = self.lost()
            if trouble or time.monotonic() > deadline:
                return trouble or error
            time.sleep(0.1)

    def close(self) -> None:
        """Ends what runs on the hosts and lets go of them; from any thread."""
        self._let_go()
        for client in self.agents.values():
            client.close()
        for way in self._ways.values():
            way.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def cut(self) -> None:
        """Lets go of hosts that answer soon, and cuts the connections; what is under way fails. From any thread."""
        self._let_go(self._parting_s)
        for way in self._ways.values():
            way.close()

    def _let_go(self, timeout_s: float | None = None) -> None:
        self._stop.set()
        # Whoever closes the connections waits until hosts that are being let go have heard of it.
        with self._parting:
            held, self._held = self._held, []
            if not held:
                return
            # Not the crew's own pool: that one may be full of questions that nobody answers.
            with ThreadPoolExecutor(max_workers=len(held), thread_name_prefix="parting") as pool:
                for client in held:
                    pool.submit(_release, client, timeout_s)

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_S):
            for client in list(self._held):
                try:
                    client.clock()
                except AgentError:
                    continue  # The run itself tells of a host that is lost.


def _release(client: AgentClient, timeout_s: float | None) -> None:
    try:
        client.release(timeout_s)
    except AgentError:
        pass  # A host that is lost cleans up by itself when its lease ends.


class Boxes:
    """The emulators of a lab's link boxes, as if they were one (testbed.mininet_links.Emulator)."""

    def __init__(self, placement: Placement, crew: Crew) -> None:
        self._placement = placement
        self._crew = crew
        self._readings: dict[str, clocks.Reading] = {}
        self._configured: dict[str, list[str]] = {}
        self._telemetry: Path | None = None

    def know(self, readings: dict[str, clocks.Reading]) -> None:
        """The clocks of hosts, for the next start."""
        self._readings = readings
        self._configured = {}

    def configure(self, spec: dict[str, Any], seed: int) -> None:
        """On the host that emulates the link; a real one without a queue of ours is left alone."""
        spot = self._placement.spots[spec["name"]]
        host = self._host(spot)
        if host is None:
            return
        here = spec if spot.box is not None else queue_alone(spec, spot)
        ends = self._placement.plan.links[spec["name"]]
        # On a medium with two ends every frame goes to the other.
        macs = [end.mac for end in ends] if len(ends) > 2 else []
        self._crew.agents[host].configure_link(here, seed, macs)
        self._configured.setdefault(host, []).append(spec["name"])

    def start(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Begins every box's timeline at one instant; the controller's CLOCK_MONOTONIC there."""
        zero_ns = time.monotonic_ns() + round(lead_s * 1e9)
        self._telemetry = telemetry
        for host in self._configured:
            self._crew.agents[host].start_links(zero_ns + self._readings[host].monotonic_ns)
        return zero_ns

    def stop(self) -> dict[str, Any]:
        """Ends it everywhere; one report, and the telemetry of all in order of time."""
        reports = {host: self._crew.agents[host].stop_links() for host in self._configured}
        for host, names in self._configured.items():
            gone = [name for name in names if name not in reports[host]["links"]]
            if gone:
                raise TestbedError(f"host {host}: its emulator lost link '{gone[0]}' during the run")
        if self._telemetry is not None:
            self._gather(self._telemetry)
        return merged(list(reports.values()))

    def _gather(self, telemetry: Path) -> None:
        lines: list[str] = []
        for host in self._configured:
            part = telemetry.with_name(f"{host}.jsonl")
            self._crew.agents[host].fetch(TELEMETRY, part)
            lines += part.read_text().splitlines()
            part.unlink()
        lines.sort(key=lambda line: int(json.loads(line)["t_ns"]))
        telemetry.write_text("".join(f"{line}\n" for line in lines))

    def _host(self, spot: Spot) -> str | None:
        if spot.box is not None:
            return spot.box
        return None if spot.queue_at is None else self._placement.players[spot.queue_at]


def queue_alone(spec: Mapping[str, Any], spot: Spot) -> dict[str, Any]:
    """What of a link is ours where the link is real and only the queue before it is not: rate and policy towards it.

    The real line delays and damages by itself; what comes from it passes as it came.
    """
    ours = "forward" if spec["ends"][0] == spot.queue_at else "reverse"
    towards = {key: spec[ours][key] for key in ("rate_bps", "queue") if key in spec[ours]}
    through: dict[str, Any] = {"queue": {"name": "droptail", "options": {}}}
    end = 0 if ours == "forward" else 1
    boxes = [{**box, "end": 0} for box in spec.get("middleboxes", []) if box["end"] == end]
    # The agent's first interface is the node's side, whichever end of the link the node is.
    alone = {
        "name": spec["name"], "kind": "point-to-point", "ends": [spot.queue_at, "line"],
        "forward": towards, "reverse": through, "options": {},
    }  # fmt: skip
    return {**alone, "middleboxes": boxes} if boxes else alone


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One report of several emulators; where there is none, nothing stalled."""
    whole: dict[str, Any] = {"links": {}, "realtime": all(one["realtime"] for one in reports)}
    for one in reports:
        whole["links"] |= one["links"]
    if reports:
        stalls = [one["stalls"] for one in reports]
        whole["stalls"] = {
            "count": sum(one["count"] for one in stalls),
            "total_s": max(one["total_s"] for one in stalls),
            "longest_s": max(one["longest_s"] for one in stalls),
            # Of the one that stalled most; null where its kernel does not tell.
            "queued_s": max(stalls, key=lambda one: one["total_s"])["queued_s"],
        }
    return whole


class PhysicalTestbed(EmulatedTestbed):
    """Nodes played by hosts.

    Args:
        placement: who plays what, where links are.
        crew: their agents.
    """

    def __init__(self, placement: Placement, crew: Crew) -> None:
        # Not the parent's: that one builds a network, and this one is there.
        self.plan = placement.plan
        self._placement = placement
        self._crew = crew
        self._folder = Path(tempfile.mkdtemp(prefix="backchannel-physical-"))
        self._agents = {node: crew.agents[host] for node, host in placement.players.items()}
        self._boxes = Boxes(placement, crew)
        self.emulator = self._boxes  # type: ignore[assignment]
        self._without_kernel = set()
        self._kernel_links = {}
        self._calibrating = False
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="agents")
        self._readings: dict[str, clocks.Reading] = {}

    def close(self) -> None:
        """Lets go of its own; the crew, with whose end hosts get their addresses back, is closed by whoever made it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _told_why(self) -> Iterator[None]:
        """What fails is a TestbedError with the reason behind it."""
        try:
            yield
        except (AgentError, TestbedError) as error:
            raise TestbedError(self._crew.why(str(error))) from error

    def calibrate(self, links: list[dict[str, Any]], seed: int, limits: Limits = LIMITS) -> list[dict[str, Any]]:
        """As on the emulated backend; a real link is only measured.

        Raises:
            TestbedError: something failed, or a host was lost.
        """
        with self._told_why():
            return super().calibrate(links, seed, limits)

    def run(self, scenario: dict[str, Any], out: Path, progress: Progress) -> dict[str, Any]:
        """As on the emulated backend; captures have the controller's time; the report also has `clocks`, `real_links`.

        Raises:
            TestbedError: something failed, or a host was lost.
        """
        with self._told_why():
            before = self._know_clocks()
            report = super().run(scenario, out, progress)
            after = self._crew.read_clocks()
        over = {host: clocks.Clock(before[host], after[host]) for host in before}
        for node, host in self._placement.players.items():
            for end in self.plan.nodes[node].interfaces:
                path = out / "captures" / f"{end.name}.pcap"
                if path.exists():
                    clocks.correct_capture(path, over[host])
        for name, spot in self._placement.spots.items():
            counters = report["driver"]["links"].get(name)
            if spot.queue_at is not None and counters is not None:
                report["driver"]["links"][name] = _as_declared(counters, scenario, name, spot)
        report["clocks"] = {host: clock.as_json() for host, clock in over.items()} | clocks.verdict(over)
        report["real_links"] = {name: real for name in self._placement.spots if (real := self._real(name))}
        report["hosts"] = dict(self._placement.players)
        return report

    def _know_clocks(self) -> dict[str, clocks.Reading]:
        self._readings = self._crew.read_clocks()
        self._boxes.know(self._readings)
        return self._readings

    def _configure(self, links: list[dict[str, Any]], seed: int) -> None:
        self._kernel_links = {}
        self._know_kernel_links(links)
        super()._configure(links, seed)

    def _real(self, link: str) -> str | None:
        """What a link is that nobody shapes: neither a box nor the kernels at its ends."""
        return None if link in self._kernel_links else self._placement.spots[link].real

    def _calibrate(
        self, links: list[dict[str, Any]], doubtful: set[str], seed: int, limits: Limits
    ) -> list[dict[str, Any]]:
        self._know_clocks()
        self._calibrating = True
        try:
            measured = super()._calibrate(links, doubtful, seed, limits)
        finally:
            self._calibrating = False
        for one in measured:
            real = self._real(one["link"])
            if real is not None:
                # Nobody emulates it: it is what it is, and that is kept.
                one.update(problems=(), real=real)
        return measured

    def _stop_links(self, links: list[dict[str, Any]]) -> dict[str, Any]:
        report = super()._stop_links(links)
        if self._calibrating:
            unknown = {"error_losses": 0, "transmitted_packets": 0, "transmitted_wire_bytes": 0}
            for name in self._placement.spots:
                if self._real(name) is not None:
                    report["links"][name] = {"forward": unknown, "reverse": unknown}
        return report

    def _probe(
        self, link: dict[str, Any], direction: str, source: addressing.Interface, target: addressing.Interface
    ) -> probing.Probed:
        probed = super()._probe(link, direction, source, target)
        # Probes are stamped by CLOCK_REALTIME, at both ends.
        apart = self._reading(target.node).realtime_ns - self._reading(source.node).realtime_ns
        packets = [{**one, "received_ns": one["received_ns"] - apart} for one in probed.received["packets"]]
        return probing.Probed(probed.link, direction, probed.train, {**probed.received, "packets": packets})

    def _ahead_ns(self, node: str) -> int:
        """How far a node's CLOCK_MONOTONIC is ahead of the controller's."""
        return self._reading(node).monotonic_ns

    def _reading(self, node: str) -> clocks.Reading:
        return self._readings[self._placement.players[node]]

    def _begin(self, name: str, t0_ns: int) -> None:
        super()._begin(name, t0_ns + self._ahead_ns(name))

    def _start_sender(self, scenario: dict[str, Any], flow: dict[str, Any], t0_ns: int) -> None:
        super()._start_sender(scenario, flow, t0_ns + self._ahead_ns(flow["from"]))

    def _reset(self) -> None:
        self._crew.each(lambda host: self._crew.agents[host].reset())

    def _give_addresses(self, name: str, to_kernel: bool) -> None:
        if to_kernel == (name not in self._without_kernel):
            return
        plan = self.plan.nodes[name]
        interfaces = [{"name": end.name, "address": f"{end.address}/{end.prefix}"} for end in plan.interfaces]
        batch = [line for line in addressing.ip_batch(plan) if line.startswith(("neighbour", "route"))]
        self._agents[name].network(interfaces, batch, give=to_kernel)
        (self._without_kernel.discard if to_kernel else self._without_kernel.add)(name)

    def _sleep_until(self, t0_ns: int, scenario: Mapping[str, Any], progress: Progress) -> None:
        def watched(phase: str) -> None:
            # Told about once a second: nobody waits for the end of a run that can have none.
            self._crew.check()
            progress(phase)

        super()._sleep_until(t0_ns, scenario, watched)


def _as_declared(counters: dict[str, Any], scenario: Mapping[str, Any], name: str, spot: Spot) -> dict[str, Any]:
    """A queue's counters under the direction that it has in the scenario."""
    link = next(link for link in scenario["links"] if link["name"] == name)
    if link["ends"][0] == spot.queue_at:
        return counters
    return {"forward": counters["reverse"], "reverse": counters["forward"]}


class PhysicalCell:
    """What testbed.cell.Cell is for the emulated backend: builds (connects), calibrates, runs.

    Args:
        place: holds the lab against a scenario.
        reach: how hosts are reached.
        name: of the campaign, for whoever finds the testbed held.
        on_phase: told what is going on.
    """

    def __init__(
        self,
        place: Callable[[Mapping[str, Any]], Placement],
        reach: Reach,
        name: str,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self._place = place
        self._reach = reach
        self._holder = f"{name}, of {getpass.getuser()} on {os.uname().nodename}, process {os.getpid()}"
        self._on_phase = on_phase or (lambda phase: None)
        self._crew: Crew | None = None
        self._testbed: PhysicalTestbed | None = None
        self._placement: Placement | None = None

    def build(self, scenario: dict[str, Any]) -> bool:
        """Connects to the hosts that a scenario needs, unless that was done. Returns whether it had to be."""
        placement = self._place(scenario)
        if self._testbed is not None and placement == self._placement:
            return False
        self.close()
        self._on_phase("connecting")
        self._crew = Crew(placement, self._reach, self._holder)
        self._testbed = PhysicalTestbed(placement, self._crew)
        self._placement = placement
        return True

    def calibrate(self, scenario: dict[str, Any]) -> list[dict[str, Any]]:
        """Measures the links as the scenario declares them."""
        assert self._testbed is not None
        return self._testbed.calibrate(scenario["links"], scenario["seed"], limits_of(scenario))

    def run(self, scenario: dict[str, Any], out: Path) -> dict[str, Any]:
        """Runs it; files go to `out`."""
        assert self._testbed is not None
        return self._testbed.run(scenario, out.resolve(), self._on_phase)

    def keep_log(self, to: Path) -> None:
        """Copies what ssh said of every host."""
        if self._crew is not None:
            to.write_text(self._crew.said())

    def close(self) -> None:
        """Lets go of the hosts."""
        testbed, self._testbed = self._testbed, None
        crew, self._crew = self._crew, None
        if testbed is not None:
            testbed.close()
        if crew is not None:
            crew.close()

    def kill(self) -> None:
        """Lets go of the hosts and cuts the connections, from any thread; what is under way fails."""
        crew = self._crew
        if crew is not None:
            crew.cut()
