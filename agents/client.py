"""The controller's side of the agent protocol (agents.service lists the routes)."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from agents.errors import AgentError, AgentUnreachable
from agents.messages import (
    CaptureCounts,
    CaptureRequest,
    Clocks,
    Health,
    InterfaceAddress,
    Neighbour,
    OptionValue,
    Shaped,
    ShapingCounters,
)

R = TypeVar("R")

#: Proves that a request comes from the node's holder.
TOKEN_HEADER = "X-Backchannel-Token"
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 20


class _UnixConnection(HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("agent", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def set_timeout(self, timeout_s: float) -> None:
        self.timeout = timeout_s
        if self.sock is not None:
            self.sock.settimeout(timeout_s)


class AgentClient:
    """One agent behind a UNIX socket, which SSH forwards for a remote host. Threads may share a client.

    Every method raises AgentError with the agent's sentence, prefixed with the node's name; AgentUnreachable where
    there is no answer.

    Args:
        node: for messages.
        path: of the socket.
    """

    def __init__(self, node: str, path: Path) -> None:
        self.node = node
        self._path = path
        self._token = ""
        self._lock = threading.Lock()
        #: Connections without a request under way.
        self._idle: list[_UnixConnection] = []

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def health(self) -> Health:
        """The agent's process, its kernel and its holder."""
        return Health(**self._call("GET", "/health"))

    def settings(self, sysctls: dict[str, str], offloads: list[str]) -> dict[str, str]:
        """Applies sysctls and switches offloads off; returns the sysctls that the kernel reports afterwards."""
        return dict(self._call("POST", "/settings", {"sysctls": sysctls, "offloads": offloads})["sysctls"])

    def start_captures(self, requests: Sequence[CaptureRequest], snaplen: int) -> None:
        """Returns when every interface is being captured."""
        self._call("POST", "/captures", {"interfaces": requests, "snaplen": snaplen})

    def stop_captures(self) -> list[CaptureCounts]:
        """Counters of each capture."""
        return [CaptureCounts(**counts) for counts in self._call("DELETE", "/captures")["captures"]]

    def begin(self, at_monotonic_ns: int) -> None:
        """Announces the start of the run, on the node's own clock, to its receivers."""
        self._call("POST", "/begin", {"at_monotonic_ns": at_monotonic_ns})

    def start_traffic(
        self, name: str, program: str, options: Mapping[str, OptionValue], ready_s: float | None = None
    ) -> None:
        """Starts a traffic program; a receiver listens afterwards, at the latest after `ready_s`."""
        body: dict[str, Any] = {"name": name, "program": program, "options": options}
        if ready_s is None:
            self._call("POST", "/traffic", body)
        else:
            self._call("POST", "/traffic", {**body, "ready_s": ready_s}, TIMEOUT_S + ready_s)

    def put_files(self, files: Mapping[str, str], folder: str) -> None:
        """Writes texts by file name into a folder below the agent's, for a campaign's program."""
        self._call("POST", "/files", {"files": dict(files), "folder": folder})

    def wait_traffic(self, name: str, timeout_s: float, read: Callable[[object], R]) -> R:
        """Report of a program that ends by itself within `timeout_s`; `read` types its JSON."""
        return read(self._call("GET", f"/traffic/{name}?timeout_s={timeout_s}", timeout_s=timeout_s + 5))

    def running_traffic(self) -> set[str]:
        """Names of the programs that still run."""
        return set(self._call("GET", "/traffic")["running"])

    def stop_traffic(self, name: str, read: Callable[[object], R]) -> R:
        """Stops a program; its report, whose JSON `read` types."""
        return read(self._call("DELETE", f"/traffic/{name}"))

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file of the agent's folder to `to`."""
        with self._request("GET", f"/files/{name}") as answer:
            self._raise_refusal(answer)
            with to.open("wb") as file:
                self._copy(answer, file)

    def hold(self, holder: str, lease_s: float) -> None:
        """Locks the node for this controller, until `release` or until `lease_s` without a request."""
        self._token = self._call("POST", "/lock", {"holder": holder, "lease_s": lease_s})["token"]

    def release(self, timeout_s: float | None = None) -> None:
        """Ends everything on the node and unlocks it."""
        # The token stays, and is void: requests that other threads still make are rejected.
        self._call("DELETE", "/lock", timeout_s=timeout_s)

    def clock(self) -> Clocks:
        """The node's clocks now. Renews the lease."""
        return Clocks(**self._call("GET", "/clock"))

    def network(self, interfaces: Sequence[InterfaceAddress], batch: list[str], give: bool) -> None:
        """Gives the experiment's interfaces their addresses, neighbours and routes, or removes them until `release`."""
        self._call("POST", "/network", {"interfaces": interfaces, "batch": batch, "give": give})

    def neighbours(self, neighbours: Sequence[Neighbour]) -> None:
        """Makes neighbours permanent that answer no ARP, until `release`."""
        self._call("POST", "/neighbours", {"neighbours": neighbours})

    def configure_link(self, spec: object, seed: int, macs: list[str]) -> None:
        """Sets an emulated link's parameters for the next run.

        Args:
            spec: the link as in the scenario's JSON.
            seed: of its random streams.
            macs: of the stations at its ends.
        """
        self._call("POST", "/links", {"spec": spec, "seed": seed, "macs": macs})

    def start_links(self, at_monotonic_ns: int) -> None:
        """Starts the links' timeline at an instant of the node's own clock."""
        self._call("POST", "/links/start", {"at_monotonic_ns": at_monotonic_ns})

    def stop_links(self, read: Callable[[object], R]) -> R:
        """Ends the timeline; the emulator's report, whose JSON `read` types."""
        return read(self._call("DELETE", "/links")["report"])

    def shape(self, interface: str, lines: list[str]) -> None:
        """Sets up the kernel's queueing disciplines on an interface, by arguments of tc."""
        self._call("POST", "/shaping", {"interface": interface, "lines": lines})

    def sample_shaping(self, lines: Mapping[str, tuple[str, str, str]], at_monotonic_ns: int) -> None:
        """Samples their statistics into the file qdiscs.SAMPLES.

        Args:
            lines: by interface, the link, the direction of what leaves there, and that of what arrives.
            at_monotonic_ns: the run's start on the node's own clock.
        """
        self._call("POST", "/shaping/samples", {"lines": lines, "at_monotonic_ns": at_monotonic_ns})

    def shaped(self, interface: str) -> Shaped:
        """Their counters. Ends the samples."""
        answer = self._call("GET", f"/shaping/{interface}")
        return Shaped(ShapingCounters(**answer["root"]), ShapingCounters(**answer["delayed"]))

    def reset(self) -> None:
        """Ends everything on the node and empties its folder."""
        self._call("DELETE", "/run")

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        with self._request(method, path, body, timeout_s) as answer:
            self._raise_refusal(answer)
            return self._object(answer)

    @contextmanager
    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Iterator[HTTPResponse]:
        """An answer whose head has arrived. The connection is used again if the body is read to its end."""
        headers = {TOKEN_HEADER: self._token} if self._token else {}
        content = None if body is None else json.dumps(body, default=asdict).encode()
        connection = self._connection()
        try:
            connection.set_timeout(TIMEOUT_S if timeout_s is None else timeout_s)
            try:
                connection.request(method, path, content, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # An agent that rejects a long request answers without having read it.
            answer = connection.getresponse()
            if answer.length is None:
                raise HTTPException("its answer was cut off")
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        try:
            yield answer
        except BaseException:
            connection.close()
            raise
        if answer.isclosed() and not answer.will_close:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()

    def _connection(self) -> _UnixConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not select.select([connection.sock], [], [], 0)[0]:
                    return connection
                connection.close()  # Nothing was asked, so it is the agent that closed it.
        return _UnixConnection(self._path, TIMEOUT_S)

    def _read(self, answer: HTTPResponse, length: int | None = None) -> bytes:
        try:
            content = answer.read(length)
            if length and not content:
                raise HTTPException("its answer was cut off")
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        return content

    def _copy(self, answer: HTTPResponse, file: BinaryIO) -> None:
        while answer.length:
            file.write(self._read(answer, min(CHUNK_BYTES, answer.length)))
        self._read(answer)

    def _object(self, answer: HTTPResponse) -> dict[str, Any]:
        content = self._read(answer)
        try:
            return dict(json.loads(content))
        except (TypeError, ValueError) as error:
            shown = content.decode(errors="replace").strip()[:80] or "nothing"
            raise AgentError(f"{self.node}: its agent's answer cannot be read: {shown}") from error

    def _raise_refusal(self, answer: HTTPResponse) -> None:
        if answer.status != 200:
            reason = self._object(answer).get("error", answer.reason)
            raise AgentError(f"{self.node}: {reason}", answer.status)

    def _unreachable(self, error: Exception) -> AgentUnreachable:
        # Some errors have no text.
        return AgentUnreachable(f"{self.node}: its agent does not answer ({str(error) or type(error).__name__})")
