"""The agent: one process on each node that applies a run, over HTTP on a UNIX socket.

    python -m agents.service --socket PATH --folder PATH --node-binary PATH

It uses the standard library only, so a bare host needs nothing but Python. It opens no network port; the socket has
mode 0600. It starts nothing but tcpdump, ethtool, ip, tc and the node binary, and touches no file outside its folder.
With --allow-commands it also runs the programs of campaigns (`kind: command`), which can do whatever its account can.

    GET    /health                             the agent's process, kernel and holder
    POST   /settings   {sysctls, offloads}      applies settings and reads them back
    POST   /captures   {interfaces, snaplen}    starts tcpdump on each; answers when all are capturing
    DELETE /captures                            stops them; answers with their counters
    POST   /traffic    {name, program, options, ready_s}
                                                starts a program
    POST   /files      {folder, files}          writes files for a campaign's program
    POST   /begin      {at_monotonic_ns}        announces the start of the run to receivers
    GET    /traffic                             names of the programs that still run
    GET    /traffic/NAME?timeout_s=5            a program's report, once it has ended by itself
    DELETE /traffic/NAME                        stops it; answers with its report
    GET    /files/NAME                          a file of the folder
    DELETE /run                                 ends everything and empties the folder
    POST   /lock       {holder, lease_s}        locks the node for the holder; answers with a token
    DELETE /lock                                ends everything and unlocks the node
    GET    /clock                               both clocks, in nanoseconds
    POST   /network    {interfaces, batch, give} gives the interfaces their addresses, or removes them
    POST   /neighbours {neighbours}             makes neighbours permanent until the node is unlocked
    POST   /links      {spec, seed, macs}       configures an emulated link
    POST   /links/start {at_monotonic_ns}       starts the links' timeline
    DELETE /links                               ends it; answers with the emulator's report
    POST   /shaping    {interface, lines}       sets up the kernel's disciplines on an interface (arguments of tc)
    POST   /shaping/samples {lines, at_monotonic_ns}
                                                samples their statistics from the run's start on
    GET    /shaping/INTERFACE                   their counters; ends the samples

While a node is locked, a request without the token (header X-Backchannel-Token) is rejected with the holder's name. A
lease ends when no request renews it, and everything that was started ends with it.

Answers are JSON. An error is {"error": sentence} with a fitting status. An error while a file is being sent closes the
connection, because the status has been sent by then.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from agents import traffic
from agents.agent import READY_S, Agent, Grants
from agents.client import TOKEN_HEADER
from agents.errors import AgentError
from agents.messages import CaptureRequest, InterfaceAddress, Neighbour
from agents.unix_server import UnixServer

#: Longest request body, in bytes: a link may carry recorded traces. The emulator accepts lines of the same length.
MAX_BODY = 64 << 20
CHUNK_BYTES = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """Routes a request to the agent."""

    protocol_version = "HTTP/1.1"
    server: Server

    def address_string(self) -> str:
        """A UNIX peer has no address."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """The controller logs; the agent does not."""

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
            # First, because a body that stays unread would be parsed as the next request.
            body = self._read()
            url = urlsplit(self.path)
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            self.server.agent.lease.check(self.headers.get(TOKEN_HEADER, ""), self._needs_lease(method, parts))
            if method == "GET" and parts[0] == "files" and len(parts) > 1:
                self._send_file(traffic.inside(self.server.agent.folder, "/".join(parts[1:])))
                return
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            answer = self._route(method, parts, query)(_object(body))
            self._send(200, answer)
        except AgentError as error:
            self._send(error.status, {"error": str(error)})
        # A body of any kind: numbers without end, lists in place of objects, nesting without end.
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            self._send(400, {"error": f"the request is malformed: {error}"})
        except OSError as error:
            self._send(500, {"error": f"{error.strerror}: {error.filename}" if error.filename else str(error)})

    def _needs_lease(self, method: str, parts: list[str]) -> bool:
        """Health, clocks and taking the lock are free."""
        return not (parts[0] == "lock" and method == "POST") and parts[0] not in ("health", "clock")

    def _route(self, method: str, parts: list[str], query: dict[str, str]) -> Callable[[dict[str, Any]], object]:
        agent = self.server.agent
        match method, parts:
            case "GET", ["health"]:
                return lambda body: agent.health()
            case "POST", ["settings"]:
                return lambda body: {"sysctls": agent.settings(body.get("sysctls", {}), body.get("offloads", []))}
            case "POST", ["captures"]:
                return lambda body: agent.start_captures(
                    [CaptureRequest(**request) for request in body["interfaces"]], int(body["snaplen"])
                )
            case "DELETE", ["captures"]:
                return lambda body: {"captures": agent.stop_captures()}
            case "POST", ["traffic"]:
                return lambda body: agent.start_traffic(
                    body["name"], body["program"], body.get("options", {}), float(body.get("ready_s", READY_S))
                )
            case "POST", ["files"]:
                return lambda body: agent.put_files(
                    {str(name): str(text) for name, text in body["files"].items()}, str(body["folder"])
                )
            case "POST", ["begin"]:
                return lambda body: agent.begin(int(body["at_monotonic_ns"]))
            case "GET", ["traffic"]:
                return lambda body: {"running": agent.running_traffic()}
            case "GET", ["traffic", name]:
                return lambda body: agent.wait_traffic(name, float(query.get("timeout_s", "5")))
            case "DELETE", ["traffic", name]:
                return lambda body: agent.stop_traffic(name)
            case "POST", ["lock"]:
                return lambda body: {"token": agent.lease.take(str(body["holder"]), float(body["lease_s"]))}
            case "DELETE", ["lock"]:
                return lambda body: agent.lease.release()
            case "GET", ["clock"]:
                return lambda body: agent.clock()
            case "POST", ["network"]:
                return lambda body: agent.network(
                    [InterfaceAddress(**interface) for interface in body["interfaces"]], body.get("batch", []),
                    bool(body["give"]),
                )  # fmt: skip
            case "POST", ["neighbours"]:
                return lambda body: agent.neighbours([Neighbour(**neighbour) for neighbour in body["neighbours"]])
            case "POST", ["links"]:
                return lambda body: agent.configure_link(
                    str(body["spec"]["name"]), body["spec"], int(body["seed"]), body.get("macs", [])
                )
            case "POST", ["links", "start"]:
                return lambda body: agent.start_links(int(body["at_monotonic_ns"]))
            case "DELETE", ["links"]:
                return lambda body: {"report": agent.stop_links()}
            case "POST", ["shaping"]:
                return lambda body: agent.shape(str(body["interface"]), [str(line) for line in body["lines"]])
            case "POST", ["shaping", "samples"]:
                return lambda body: agent.sample_shaping(
                    {str(name): (str(link), str(leaving), str(arriving))
                     for name, (link, leaving, arriving) in body["lines"].items()},
                    int(body["at_monotonic_ns"]),
                )  # fmt: skip
            case "GET", ["shaping", interface]:
                return lambda body: agent.shaped(interface)
            case "DELETE", ["run"]:
                return lambda body: agent.reset()
        raise AgentError(f"this agent has no {method} /{'/'.join(parts)}", 404)

    def _read(self) -> bytes:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            raise AgentError(f"a request of {length} bytes is too long; at most {MAX_BODY} are allowed", 400)
        return self.rfile.read(int(length))

    def _send(self, status: int, answer: object) -> None:
        data = json.dumps({} if answer is None else answer, default=asdict).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, path: Path) -> None:
        if not path.is_file():
            raise AgentError(f"unknown file '{path.name}'", 404)
        with path.open("rb") as file:
            length = path.stat().st_size
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(length))
            self.end_headers()
            try:
                while length and (chunk := file.read(min(CHUNK_BYTES, length))):
                    self.wfile.write(chunk)
                    length -= len(chunk)
            except OSError:
                pass
            if length:
                # The head promised more bytes, and a second head would be read as a part of them.
                self.close_connection = True


def _object(content: bytes) -> dict[str, Any]:
    """A request's body; an empty one is an empty object."""
    body = json.loads(content or b"{}")
    if not isinstance(body, dict):
        raise AgentError("the request is not a JSON object", 400)
    return body


class Server(UnixServer):
    """HTTP on a UNIX socket that only its owner can open."""

    def __init__(self, path: Path, agent: Agent) -> None:
        self.agent = agent
        super().__init__(path, Handler)


@contextmanager
def opened(words: Sequence[str] | None = None) -> Iterator[Server]:
    """The server that a command line describes; it serves with `serve_forever`.

    Args:
        words: the command line; None: this process's.

    Raises:
        AgentError: the grants are not valid.
    """
    parser = argparse.ArgumentParser(prog="agents.service", description="The Backchannel agent of one node.")
    add = parser.add_argument
    add("--socket", type=Path, required=True, help="UNIX socket to serve on; created with mode 0600")
    add("--folder", type=Path, required=True, help="folder for captures and reports; the agent uses no other")
    add("--node-binary", required=True, help="path of the program backchannel-node")
    add(
        "--grants",
        type=Path,
        help="folder of JSON files with the interfaces and links that the agent may use; without it, every interface "
        "and no link",
    )
    add("--virtual-time", action="store_true", help="the node's clock jumps from event to event")
    add("--allow-commands", action="store_true", help="run the programs of campaigns, with the rights of this account")
    add("--settings", type=Path, help="folder of JSON files with the settings of lines and radios, for the ids of runs")
    arguments = parser.parse_args(words)
    os.umask(0o077)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    grants = Grants(arguments.grants)
    lock_file = arguments.socket.parent / f"{arguments.socket.stem}.held"
    agent = Agent(
        arguments.folder.resolve(), arguments.node_binary, grants, lock_file, arguments.virtual_time,
        arguments.allow_commands, arguments.settings,
    )  # fmt: skip
    try:
        with Server(arguments.socket, agent) as server:
            yield server
    finally:
        agent.lease.release()


def main(words: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM; `words` replace the command line."""
    # Its children must not outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with opened(words) as server:
            server.serve_forever()
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
