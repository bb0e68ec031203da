"""The state of one node: its captures, traffic, emulated links, kernel settings and lock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents import capture, hardware, kernel, traffic
from agents.clocks import read_together
from agents.errors import AgentError
from agents.lease import Lease
from agents.links import Links
from agents.messages import (
    CaptureCounts,
    CaptureRequest,
    Clocks,
    Health,
    InterfaceAddress,
    Neighbour,
    OptionValue,
    Shaped,
)
from agents.qdiscs import SAMPLES, SampledInterface
from agents.rpc import File, method
from agents.shaping import Shaping, ifb_name

#: Longest time until a program listens, in s.
READY_S = 5.0


class Grants:
    """Interfaces and links that an agent may use: those of a folder's files, or every interface and no link.

    Raises:
        AgentError: a file cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._interfaces: set[str] | None = None if folder is None else set()
        self.links: dict[str, list[str]] = {}
        self.taps: set[str] = set()
        for path in [] if folder is None else sorted(folder.glob("*.json")):
            try:
                granted = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise AgentError(f"{path} cannot be read: {error}") from error
            assert self._interfaces is not None
            self._interfaces.update(granted.get("interfaces", []))
            self.links.update(granted.get("links", {}))
            self.taps.update(granted.get("taps", []))

    def check(self, interface: str) -> None:
        """Raises AgentError for an interface that was not granted."""
        if self._interfaces is not None and interface not in self._interfaces:
            granted = ", ".join(sorted(self._interfaces)) or "none"
            raise AgentError(f"'{interface}' is not the experiment's interface; granted are: {granted} (run site.yml)")


class Agent:
    """What an agent does. The marked methods are its requests (agents.rpc). Methods raise AgentError.

    Args:
        folder: the only folder that is read and written.
        node_binary: path of backchannel-node.
        grants: interfaces and links that may be used.
        lock_file: names the node's holder, for others on the node.
        virtual_time: the node's clock jumps from event to event (testbed.virtual_kernel).
        allow_commands: campaigns may run programs of theirs with this agent's rights.
        settings: folder with the settings of lines and radios (agents.hardware).
    """

    def __init__(
        self,
        folder: Path,
        node_binary: str,
        grants: Grants,
        lock_file: Path,
        virtual_time: bool = False,
        allow_commands: bool = False,
        settings: Path | None = None,
    ) -> None:
        self.folder = folder
        self.virtual_time = virtual_time
        self.allow_commands = allow_commands
        self._settings = settings
        self.node_binary = node_binary
        self.grants = grants
        self.lease = Lease(lock_file, self.release)
        self._links = Links(node_binary, folder, grants.links, grants.taps)
        self._shaping = Shaping()
        self._captures: list[capture.Capture] = []
        self._programs: dict[str, traffic.TrafficProcess] = {}
        #: Lines for `ip -batch` that restore the addresses that the kernel gave up.
        self._restore: list[str] = []
        #: Neighbours that this agent made permanent.
        self._neighbours: set[Neighbour] = set()
        self._lock = threading.Lock()

    @method
    def lock(self, holder: str, lease_s: float) -> str:
        """Locks the node for a holder, until `unlock` or until `lease_s` without a request. Returns its token."""
        return self.lease.take(holder, lease_s)

    @method
    def unlock(self) -> None:
        """Ends everything on the node and unlocks it."""
        self.lease.release()

    @method
    def health(self) -> Health:
        """The agent's process, the node's kernel and its holder."""
        return Health(
            pid=os.getpid(),
            kernel=os.uname().release,
            root=os.geteuid() == 0,
            congestion_controls=tuple(kernel.available_congestion_controls()),
            captures=len(self._captures),
            traffic=tuple(sorted(self._programs)),
            holder=self.lease.holder,
            interfaces=hardware.interfaces(self._settings),
            mtus=hardware.mtus(),
            processors=hardware.processors(),
            macs=hardware.macs(),
        )

    @method
    def crates(self) -> Mapping[str, str]:
        """Digests of the user's crates that the node's program has, by name: what really runs here."""
        words = [self.node_binary, "registry"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AgentError(f"{self.node_binary} does not start: {done.stderr.strip()}")
        return {crate["name"]: crate["sha256"] for crate in json.loads(done.stdout).get("crates", ())}

    @method
    def clock(self) -> Clocks:
        """Both clocks, read together. Renews the lease."""
        return read_together()

    @method
    def network(self, interfaces: Sequence[InterfaceAddress], batch: list[str], give: bool) -> None:
        """Gives the kernel the addresses, neighbours and routes of the experiment's interfaces, or removes them.

        Args:
            interfaces: with their addresses.
            batch: lines for `ip -batch`: neighbours and routes over these interfaces only.
            give: False removes them, until they are given again or the node is released.
        """
        names = [interface.name for interface in interfaces]
        for name in names:
            self.grants.check(name)
        lines = kernel.address_lines(interfaces, give=True) + [kernel.checked_line(line, names) for line in batch]
        if give:
            kernel.ip_batch(lines)
            self._restore = []
        else:
            self._restore = self._restore or lines + kernel.ipv6_address_lines(names)
            kernel.ip_batch(kernel.address_lines(interfaces, give=False))

    @method
    def neighbours(self, neighbours: Sequence[Neighbour]) -> None:
        """Makes neighbours that answer no ARP permanent, on the experiment's interfaces, until the node is released."""
        for neighbour in neighbours:
            self.grants.check(neighbour.interface)
        lines = kernel.neighbour_lines(neighbours, give=True)
        self._neighbours.update(neighbours)
        kernel.ip_batch(lines)

    @method
    def configure_link(self, name: str, spec: object, seed: int, macs: list[str]) -> None:
        """Sets an emulated link's parameters for the next run.

        Args:
            name: of the link.
            spec: the link as in the scenario's JSON.
            seed: of its random streams.
            macs: of the stations at its ends.
        """
        with self._lock:
            self._links.configure(name, spec, seed, macs)

    @method
    def start_links(self, at_monotonic_ns: int) -> None:
        """Starts the links' timeline at an instant of the node's own clock."""
        with self._lock:
            self._links.start(at_monotonic_ns)

    @method
    def stop_links(self) -> object:
        """Ends the timeline; the emulator's report as parsed JSON."""
        with self._lock:
            return self._links.stop()

    @method
    def shape(self, interface: str, lines: list[str]) -> None:
        """Replaces the kernel's queueing disciplines on an interface; `lines` are arguments of tc."""
        self.grants.check(interface)
        with self._lock:
            self._shaping.configure(interface, lines)

    @method
    def sample_shaping(self, lines: Mapping[str, tuple[str, str, str]], at_monotonic_ns: int) -> None:
        """Samples their statistics from the run's start on, into the folder's file SAMPLES.

        Args:
            lines: by interface, the link, the direction of what leaves there, and that of what arrives.
            at_monotonic_ns: the start.
        """
        named = {}
        for interface, (link, leaving, arriving) in lines.items():
            self.grants.check(interface)
            named[interface] = SampledInterface(link, leaving)
            named[ifb_name(interface)] = SampledInterface(link, arriving, is_delayed=True)
        with self._lock:
            self._shaping.sample(traffic.inside(self.folder, SAMPLES), named, at_monotonic_ns)

    @method
    def shaped(self, interface: str) -> Shaped:
        """Their counters. Ends the samples."""
        with self._lock:
            return self._shaping.report(interface)

    @method
    def settings(self, sysctls: dict[str, str]) -> dict[str, str]:
        """Applies sysctls. Returns those in force."""
        return kernel.apply_sysctls(sysctls)

    @method
    def start_captures(self, requests: Sequence[CaptureRequest], snaplen: int) -> None:
        """Starts one tcpdump for each request; afterwards all are capturing, or none."""
        with self._lock:
            if self._captures:
                raise AgentError("captures are running already")
            try:
                for request in requests:
                    self.grants.check(request.interface)
                    path = traffic.inside(self.folder, request.file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    started = capture.Capture(
                        request.interface, path, snaplen, request.rate_bps, virtual_time=self.virtual_time
                    )
                    self._captures.append(started)
            except BaseException:
                self._kill_captures()
                raise

    @method
    def stop_captures(self) -> list[CaptureCounts]:
        """Stops every capture, even when one fails, and raises the first failure."""
        with self._lock:
            counts, failure = [], None
            for running in self._captures:
                try:
                    counts.append(running.stop())
                except AgentError as error:
                    failure = failure or error
            self._captures = []
        if failure:
            raise failure
        return counts

    @method
    def begin(self, at_monotonic_ns: int) -> None:
        """Announces the start of the run to this node's receivers, by a file."""
        path = traffic.inside(self.folder, traffic.BEGIN)
        complete = path.with_suffix(".new")
        complete.write_text(f"{at_monotonic_ns}\n")
        complete.replace(path)

    @method
    def start_traffic(
        self, name: str, program: str, options: Mapping[str, OptionValue], ready_s: float | None = None
    ) -> None:
        """Starts a program under a new name; a receiver listens afterwards, at the latest after `ready_s` (READY_S)."""
        is_of_campaign = program == traffic.OF_CAMPAIGN
        if is_of_campaign:
            self._require_commands()
            options = {**options, "environment": json.dumps(self._environment(options))}
        with self._lock:
            if name in self._programs:
                raise AgentError(f"traffic '{name}' exists already")
            words = traffic.command(self.node_binary, program, options, self.folder)
            started = traffic.TrafficProcess(name, words, self.folder, supervises=is_of_campaign)
            self._programs[name] = started
        if program in traffic.RECEIVERS:
            started.wait_until_ready(READY_S if ready_s is None else ready_s)

    @method
    def put_files(self, files: Mapping[str, str], folder: str) -> None:
        """Writes the files of a campaign's program into its working folder, below this agent's folder."""
        self._require_commands()
        traffic.inside(self.folder, folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            traffic.put(self.folder, f"{folder}/{name}", text)

    def _environment(self, options: Mapping[str, OptionValue]) -> dict[str, str]:
        """The environment of a campaign's program: this node's paths, a home folder, and the campaign's variables."""
        home = str(traffic.inside(self.folder, str(options["cwd"])))
        paths = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", str(Path(self.node_binary).parent)]
        variables = json.loads(str(options["environment"]))
        return {"PATH": ":".join(paths), "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, **variables}

    def _require_commands(self) -> None:
        if not self.allow_commands:
            raise AgentError(
                "this host runs no programs of campaigns, because its administrator has not allowed it "
                "(agent_allow_commands: true, then site.yml)"
            )

    @method
    def wait_traffic(self, name: str, timeout_s: float) -> object:
        """Report, as parsed JSON, of a program that ends by itself."""
        report = self._program(name).wait(timeout_s)
        self._programs.pop(name, None)
        return report

    @method
    def running_traffic(self) -> list[str]:
        """Names of the programs that still run."""
        with self._lock:
            return [name for name, program in self._programs.items() if program.running]

    @method
    def stop_traffic(self, name: str) -> object:
        """Stops a program; its report as parsed JSON."""
        program = self._program(name)
        try:
            return program.stop()
        finally:
            self._programs.pop(name, None)

    @method
    def fetch(self, name: str) -> File:
        """A file of the folder."""
        path = traffic.inside(self.folder, name)
        if not path.is_file():
            raise AgentError(f"unknown file '{path.name}'")
        return File(path)

    @method
    def reset(self) -> None:
        """Ends everything and empties the folder."""
        with self._lock:
            self._links.close()
            self._shaping.clear()
            self._kill_captures()
            for program in self._programs.values():
                program.kill()
            self._programs = {}
            for path in self.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif not path.is_socket():
                    path.unlink()

    def release(self) -> None:
        """Ends everything and returns the addresses to the kernel, so that the next holder finds the node as before."""
        self.reset()
        restore = self._restore + kernel.neighbour_lines(self._neighbours, give=False)
        self._restore, self._neighbours = [], set()
        try:
            if restore:
                kernel.ip_batch(restore)
        except AgentError as error:
            # No request is waiting for an answer; 'testbed site' repairs it.
            print(f"error: {error}", file=sys.stderr)

    def _kill_captures(self) -> None:
        for running in self._captures:
            running.kill()
        self._captures = []

    def _program(self, name: str) -> traffic.TrafficProcess:
        try:
            return self._programs[name]
        except KeyError:
            raise AgentError(f"unknown traffic '{name}'") from None
