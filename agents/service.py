"""The agent: one process on each node that applies a run, over HTTP on a UNIX socket.

    python -m agents.service --socket PATH --folder PATH --node-binary PATH

Standard library only, so that a bare host needs nothing but Python. It opens no network port; the socket has mode 0600.
It starts nothing but tcpdump, ethtool, ip, tc and the node binary, and touches no file outside its folder.

    GET    /health                             who and what this is
    POST   /settings   {sysctls, offloads}      applies and reads back
    POST   /captures   {interfaces, snaplen}    starts tcpdump on each; answers when all are capturing
    DELETE /captures                            stops them; answers with their counters
    POST   /traffic    {name, program, options} starts a program
    POST   /begin      {at_monotonic_ns}        tells its receivers when the run begins
    GET    /traffic/NAME?timeout_s=5            its report, once it has ended of itself
    DELETE /traffic/NAME                        stops it; answers with its report
    GET    /files/NAME                          a file of the folder
    DELETE /run                                 ends everything and empties the folder
    POST   /lock       {holder, lease_s}        makes the node the holder's alone; answers with a token
    DELETE /lock                                ends everything and lets go of it
    GET    /clock                               both clocks, in nanoseconds
    POST   /network    {addresses, ...}         gives the experiment's interfaces their addresses, or takes them
    POST   /links      {spec, seed, macs}       configures an emulated link
    POST   /links/start {at_monotonic_ns}       begins their timeline
    DELETE /links                               ends it; answers with the emulator's report
    POST   /shaping    {interface, lines}       the kernel's own disciplines on an interface (arguments of tc)
    GET    /shaping/INTERFACE                   what they counted

A node that is held answers whoever lacks the token (header X-Backchannel-Token) with the holder's name. A lease that is
not renewed by requests ends of itself, and with it everything that was started: a controller that is gone holds
nothing.

Answers are JSON; an error is {"error": sentence} with a status that fits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from agents import capture, kernel, traffic
from agents.errors import AgentError
from agents.hold import Hold
from agents.links import Links
from agents.shaping import Shaping

#: Longest request body taken, in bytes: a link may carry recorded traces, for which the emulator takes lines as long.
MAX_BODY = 64 << 20

#: Shows that a request comes from the holder.
TOKEN_HEADER = "X-Backchannel-Token"


class Grants:
    """Which interfaces and links are the agent's to use: every interface and no link, or what a folder's files say.

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
        """Raises AgentError for an interface that is not the experiment's."""
        if self._interfaces is not None and interface not in self._interfaces:
            known = ", ".join(sorted(self._interfaces)) or "none"
            raise AgentError(
                f"'{interface}' is not the experiment's interface; granted are: {known} (run site.yml)", 403
            )


class Agent:
    """The state of one node: its captures and its traffic. Methods raise AgentError."""

    def __init__(self, folder: Path, node_binary: str, grants: Grants, held: Path) -> None:
        self.folder = folder
        self.node_binary = node_binary
        self.grants = grants
        self.hold = Hold(held, self.let_go)
        self._links = Links(node_binary, folder, grants.links)
        self._shaping = Shaping()
        self._captures: list[capture.Capture] = []
        self._programs: dict[str, traffic.Program] = {}
        #: What gives the kernel back the addresses that were taken from it, for `ip -batch`.
        self._taken: list[str] = []
        self._lock = threading.Lock()

    def health(self) -> dict[str, Any]:
        """What a controller checks before it trusts this node."""
        return {
            "pid": os.getpid(),
            "kernel": os.uname().release,
            "root": os.geteuid() == 0,
            "congestion_controls": list(kernel.available_congestion_controls()),
            "captures": len(self._captures),
            "traffic": sorted(self._programs),
            "holder": self.hold.holder,
        }

    def clock(self) -> dict[str, Any]:
        """Both clocks, read together."""
        return {"realtime_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}

    def network(self, interfaces: list[dict[str, str]], batch: list[str], give: bool) -> dict[str, Any]:
        """Gives the kernel the addresses, neighbours and routes of the experiment's interfaces, or takes them away.

        Args:
            interfaces: each "name" with its "address" (CIDR).
            batch: lines for `ip -batch`: neighbours and routes over these interfaces, no others.
            give: or take, until they are given again or the holder is gone.
        """
        for one in interfaces:
            self.grants.check(one["name"])
        names = [one["name"] for one in interfaces]
        given = kernel.address_lines(interfaces, give=True) + [kernel.checked_line(line, names) for line in batch]
        if give:
            kernel.ip_batch(given)
            self._taken = []
        else:
            self._taken = given
            kernel.ip_batch(kernel.address_lines(interfaces, give=False))
        return {"interfaces": names}

    def configure_link(self, spec: dict[str, Any], seed: int, macs: list[str]) -> dict[str, Any]:
        """An emulated link's parameters for the next run."""
        with self._lock:
            return self._links.configure(spec, seed, macs)

    def start_links(self, at_monotonic_ns: int) -> dict[str, Any]:
        """Begins the links' timeline."""
        with self._lock:
            return self._links.start(at_monotonic_ns)

    def stop_links(self) -> dict[str, Any]:
        """Ends it; the emulator's report."""
        with self._lock:
            return self._links.stop()

    def shape(self, interface: str, lines: list[str]) -> dict[str, Any]:
        """The kernel's disciplines on an interface, afresh."""
        self.grants.check(interface)
        with self._lock:
            self._shaping.configure(interface, lines)
        return {"shaped": interface}

    def shaped(self, interface: str) -> dict[str, Any]:
        """What they counted."""
        with self._lock:
            return dict(self._shaping.report(interface))

    def settings(self, sysctls: dict[str, str], offloads: list[str]) -> dict[str, Any]:
        """Applies kernel settings; `offloads` names the interfaces whose offloads go off."""
        for interface in offloads:
            self.grants.check(interface)
            kernel.offloads_off(interface)
        return {"sysctls": kernel.apply_sysctls(sysctls)}

    def start_captures(self, interfaces: list[dict[str, Any]], snaplen: int) -> dict[str, Any]:
        """One tcpdump per {"interface", "file"}; either all are capturing afterwards or none.

        An interface's optional `rate_bps` says how much can pass there at most (agents.capture.ring_bytes).
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
        """Stops every capture, even when one fails, and tells the first failure."""
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
        """Tells this node's receivers, by a file, when the run begins."""
        path = traffic.inside(self.folder, traffic.BEGIN)
        whole = path.with_suffix(".new")
        whole.write_text(f"{at_monotonic_ns}\n")
        whole.replace(path)
        return {"begins": at_monotonic_ns}

    def start_traffic(self, name: str, program: str, options: dict[str, Any]) -> dict[str, Any]:
        """Starts a program under a name of its own; a receiver answers only when it listens."""
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
        """Report of a program that ends of itself."""
        report = self._program(name).wait(timeout_s)
        self._programs.pop(name, None)
        return report

    def running_traffic(self) -> dict[str, Any]:
        """Which programs are still running."""
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

    def let_go(self) -> None:
        """Ends everything, and the kernel has its addresses again: the next holder finds the node as this one did."""
        self.reset()
        taken, self._taken = self._taken, []
        try:
            if taken:
                kernel.ip_batch(taken)
        except AgentError as error:
            # Nobody is there to be told; 'testbed site' sets it right.
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


class Handler(BaseHTTPRequestHandler):
    """Routes a request to the agent."""

    protocol_version = "HTTP/1.1"
    server: Server

    def address_string(self) -> str:
        """A UNIX peer has no address."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """The controller logs; the agent keeps quiet."""

    def do_GET(self) -> None:
        """GET."""
        self._answer("GET")

    def do_POST(self) -> None:
        """POST."""
        self._answer("POST")

    def do_DELETE(self) -> None:
        """DELETE."""
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        try:
            # Before anything is refused: what stayed unread would be taken for the next request.
            sent = self._read()
            url = urlsplit(self.path)
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            self.server.agent.hold.check(self.headers.get(TOKEN_HEADER, ""), self._needs_hold(method, parts))
            if method == "GET" and parts[0] == "files" and len(parts) > 1:
                self._send_file(traffic.inside(self.server.agent.folder, "/".join(parts[1:])))
                return
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            answer = self._route(method, parts, query)(_object(sent))
            self._send(200, answer)
        except AgentError as error:
            self._send(error.status, {"error": str(error)})
        except (KeyError, TypeError, ValueError) as error:
            self._send(400, {"error": f"the request does not fit: {error}"})
        except OSError as error:
            self._send(500, {"error": f"{error.strerror}: {error.filename}" if error.filename else str(error)})

    def _needs_hold(self, method: str, parts: list[str]) -> bool:
        """Reading is free, and so is asking for the lock."""
        return not (parts[0] == "lock" and method == "POST") and parts[0] not in ("health", "clock")

    def _route(
        self, method: str, parts: list[str], query: dict[str, str]
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        agent = self.server.agent
        match method, parts:
            case "GET", ["health"]:
                return lambda body: agent.health()
            case "POST", ["settings"]:
                return lambda body: agent.settings(body.get("sysctls", {}), body.get("offloads", []))
            case "POST", ["captures"]:
                return lambda body: agent.start_captures(body["interfaces"], int(body["snaplen"]))
            case "DELETE", ["captures"]:
                return lambda body: agent.stop_captures()
            case "POST", ["traffic"]:
                return lambda body: agent.start_traffic(body["name"], body["program"], body.get("options", {}))
            case "POST", ["begin"]:
                return lambda body: agent.begin(int(body["at_monotonic_ns"]))
            case "GET", ["traffic"]:
                return lambda body: agent.running_traffic()
            case "GET", ["traffic", name]:
                return lambda body: agent.wait_traffic(name, float(query.get("timeout_s", "5")))
            case "DELETE", ["traffic", name]:
                return lambda body: agent.stop_traffic(name)
            case "POST", ["lock"]:
                return lambda body: agent.hold.take(str(body["holder"]), float(body["lease_s"]))
            case "DELETE", ["lock"]:
                return lambda body: agent.hold.release()
            case "GET", ["clock"]:
                return lambda body: agent.clock()
            case "POST", ["network"]:
                return lambda body: agent.network(body["interfaces"], body.get("batch", []), bool(body["give"]))
            case "POST", ["links"]:
                return lambda body: agent.configure_link(body["spec"], int(body["seed"]), body.get("macs", []))
            case "POST", ["links", "start"]:
                return lambda body: agent.start_links(int(body["at_monotonic_ns"]))
            case "DELETE", ["links"]:
                return lambda body: agent.stop_links()
            case "POST", ["shaping"]:
                return lambda body: agent.shape(str(body["interface"]), [str(line) for line in body["lines"]])
            case "GET", ["shaping", interface]:
                return lambda body: agent.shaped(interface)
            case "DELETE", ["run"]:
                return lambda body: agent.reset()
        raise AgentError(f"this agent does not know {method} /{'/'.join(parts)}", 404)

    def _read(self) -> bytes:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            raise AgentError(f"a request of {length} bytes is not taken; at most {MAX_BODY} are", 400)
        return self.rfile.read(int(length))

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, path: Path) -> None:
        if not path.is_file():
            raise AgentError(f"there is no file '{path.name}' here", 404)
        with path.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)


def _object(sent: bytes) -> dict[str, Any]:
    """A request's body; an empty one says nothing."""
    body = json.loads(sent or b"{}")
    if not isinstance(body, dict):
        raise AgentError("the request is no JSON object", 400)
    return body


class Server(socketserver.ThreadingUnixStreamServer):
    """HTTP on a UNIX socket that only its owner can open."""

    daemon_threads = True

    def __init__(self, path: Path, agent: Agent) -> None:
        self.agent = agent
        path.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            super().__init__(str(path), Handler)
        finally:
            os.umask(old)


def main(words: Sequence[str] | None = None) -> int:
    """Serves until told to stop; `words` stand for the command line."""
    parser = argparse.ArgumentParser(prog="agents.service", description="The Backchannel agent of one node.")
    parser.add_argument("--socket", type=Path, required=True, help="UNIX socket to serve on (made with mode 0600)")
    parser.add_argument("--folder", type=Path, required=True, help="the only folder this agent reads and writes")
    parser.add_argument("--node-binary", required=True, help="path of backchannel-node")
    parser.add_argument(
        "--grants", type=Path, help="folder of JSON files that say which interfaces and links are the agent's to use"
    )
    arguments = parser.parse_args(words)
    os.umask(0o077)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    try:
        grants = Grants(arguments.grants)
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    held = arguments.socket.parent / f"{arguments.socket.stem}.held"
    agent = Agent(arguments.folder.resolve(), arguments.node_binary, grants, held)
    # What it has started must not outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Server(arguments.socket, agent) as server:
            server.serve_forever()
    finally:
        agent.hold.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
