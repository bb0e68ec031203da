"""The state of one node: its captures, traffic, emulated links, kernel settings and lock."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agents import capture, kernel, traffic
from agents.errors import AgentError
from agents.lease import Lease
from agents.links import Links
from agents.shaping import Shaping


class Grants:
    """Interfaces and links that an agent may use: those of a folder's files, or every interface and no link.

    Raises:
        AgentError: a file cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._interfaces: set[str] | None = None if folder is None else set()
        self.links: dict[str, list[str]] = {}
        for path in [] if folder is None else sorted(folder.glob("*.json")):
            try:
                granted = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise AgentError(f"{path} cannot be read: {error}") from error
            assert self._interfaces is not None
            self._interfaces.update(granted.get("interfaces", []))
            self.links.update(granted.get("links", {}))

    def check(self, interface: str) -> None:
        """Raises AgentError for an interface that was not granted."""
        if self._interfaces is not None and interface not in self._interfaces:
            granted = ", ".join(sorted(self._interfaces)) or "none"
            raise AgentError(
                f"'{interface}' is not the experiment's interface; granted are: {granted} (run site.yml)", 403
            )


class Agent:
    """What an agent does, one method a route. Methods raise AgentError.

    Args:
        folder: the only folder that is read and written.
        node_binary: path of backchannel-node.
        grants: interfaces and links that may be used.
        lock_file: names the node's holder, for others on the node.
    """

    def __init__(self, folder: Path, node_binary: str, grants: Grants, lock_file: Path) -> None:
        self.folder = folder
        self.node_binary = node_binary
        self.grants = grants
        self.lease = Lease(lock_file, self.release)
        self._links = Links(node_binary, folder, grants.links)
        self._shaping = Shaping()
        self._captures: list[capture.Capture] = []
        self._programs: dict[str, traffic.Program] = {}
        #: Lines for `ip -batch` that restore the addresses that the kernel gave up.
        self._restore: list[str] = []
        self._lock = threading.Lock()

    def health(self) -> dict[str, Any]:
        """The agent's process, the node's kernel and its holder."""
        return {
            "pid": os.getpid(),
            "kernel": os.uname().release,
            "root": os.geteuid() == 0,
            "congestion_controls": list(kernel.available_congestion_controls()),
            "captures": len(self._captures),
            "traffic": sorted(self._programs),
            "holder": self.lease.holder,
        }

    def clock(self) -> dict[str, Any]:
        """Both clocks, read together."""
        return {"realtime_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}

    def network(self, interfaces: list[dict[str, str]], batch: list[str], give: bool) -> dict[str, Any]:
        """Gives the kernel the addresses, neighbours and routes of the experiment's interfaces, or removes them.

        Args:
            interfaces: each "name" with its "address" (CIDR).
            batch: lines for `ip -batch`: neighbours and routes over these interfaces only.
            give: False removes them, until they are given again or the node is released.
        """
        names = [interface["name"] for interface in interfaces]
        for name in names:
            self.grants.check(name)
        lines = kernel.address_lines(interfaces, give=True) + [kernel.checked_line(line, names) for line in batch]
        if give:
            kernel.ip_batch(lines)
            self._restore = []
        else:
            self._restore = lines
            kernel.ip_batch(kernel.address_lines(interfaces, give=False))
        return {"interfaces": names}

    def configure_link(self, spec: dict[str, Any], seed: int, macs: list[str]) -> dict[str, Any]:
        """Sets an emulated link's parameters for the next run."""
        with self._lock:
            return self._links.configure(spec, seed, macs)

    def start_links(self, at_monotonic_ns: int) -> dict[str, Any]:
        """Starts the links' timeline."""
        with self._lock:
            return self._links.start(at_monotonic_ns)

    def stop_links(self) -> dict[str, Any]:
        """Ends the timeline; the emulator's report."""
        with self._lock:
            return self._links.stop()

    def shape(self, interface: str, lines: list[str]) -> dict[str, Any]:
        """Replaces the kernel's queueing disciplines on an interface."""
        self.grants.check(interface)
        with self._lock:
            self._shaping.configure(interface, lines)
        return {"shaped": interface}

    def shaped(self, interface: str) -> dict[str, Any]:
        """Their counters."""
        with self._lock:
            return dict(self._shaping.report(interface))

    def settings(self, sysctls: dict[str, str], offloads: list[str]) -> dict[str, Any]:
        """Applies sysctls, and switches the offloads of the interfaces in `offloads` off."""
        for interface in offloads:
            self.grants.check(interface)
            kernel.offloads_off(interface)
        return {"sysctls": kernel.apply_sysctls(sysctls)}

    def start_captures(self, interfaces: list[dict[str, Any]], snaplen: int) -> dict[str, Any]:
        """Starts one tcpdump for each {"interface", "file"}; afterwards all are capturing, or none.

        An interface's optional `rate_bps` is the most that can pass there (agents.capture.ring_bytes).
        """
        with self._lock:
            if self._captures:
                raise AgentError("captures are running already", 409)
            try:
                for item in interfaces:
                    self.grants.check(item["interface"])
                    path = traffic.inside(self.folder, item["file"])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    rate_bps = None if item.get("rate_bps") is None else float(item["rate_bps"])
                    self._captures.append(capture.Capture(item["interface"], path, snaplen, rate_bps))
            except BaseException:
                self._kill_captures()
                raise
        return {"capturing": [item["interface"] for item in interfaces]}

    def stop_captures(self) -> dict[str, Any]:
        """Stops every capture, even when one fails, and raises the first failure."""
        with self._lock:
            counts, failure = [], None
            for running in self._captures:
                try:
                    counts.append(capture.as_json(running.stop()))
                except AgentError as error:
                    failure = failure or error
            self._captures = []
        if failure:
            raise failure
        return {"captures": counts}

    def begin(self, at_monotonic_ns: int) -> dict[str, Any]:
        """Announces the start of the run to this node's receivers, by a file."""
        path = traffic.inside(self.folder, traffic.BEGIN)
        complete = path.with_suffix(".new")
        complete.write_text(f"{at_monotonic_ns}\n")
        complete.replace(path)
        return {"begins": at_monotonic_ns}

    def start_traffic(self, name: str, program: str, options: dict[str, Any]) -> dict[str, Any]:
        """Starts a program under a new name; for a receiver, returns when it listens."""
        with self._lock:
            if name in self._programs:
                raise AgentError(f"traffic '{name}' exists already", 409)
            words = traffic.command(self.node_binary, program, options, self.folder)
            started = traffic.Program(name, words, self.folder)
            self._programs[name] = started
        if program in ("receive", "endpoint-receive", "probe-receive"):
            started.wait_until_ready()
        return {"started": name}

    def wait_traffic(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Report of a program that ends by itself."""
        report = self._program(name).wait(timeout_s)
        self._programs.pop(name, None)
        return report

    def running_traffic(self) -> dict[str, Any]:
        """Names of the programs that still run."""
        with self._lock:
            return {"running": [name for name, program in self._programs.items() if program.running]}

    def stop_traffic(self, name: str) -> dict[str, Any]:
        """Stops a program; its report."""
        program = self._program(name)
        try:
            return program.stop()
        finally:
            self._programs.pop(name, None)

    def reset(self) -> dict[str, Any]:
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
        return {"reset": True}

    def release(self) -> None:
        """Ends everything and returns the addresses to the kernel, so that the next holder finds the node as before."""
        self.reset()
        restore, self._restore = self._restore, []
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

    def _program(self, name: str) -> traffic.Program:
        try:
            return self._programs[name]
        except KeyError:
            raise AgentError(f"there is no traffic '{name}'", 404) from None
