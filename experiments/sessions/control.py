"""The control socket of a session: other terminals and the site read its state and change its lines.

Each session has a UNIX socket in a folder that only its user can open. A request is one JSON line, and so is the
answer: {"op": "status"} or {"op": "set", "changes": {"forward": {"rate": "2 Mbit/s"}}, "link": null}.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.unix_server import UnixServer, listens
from experiments.language.problems import CampaignError
from testbed.errors import TestbedError, listed
from testbed.local_folders import private_folder, runtime_folder

#: Longest time that a client waits for an answer, in s.
PATIENCE_S = 10.0
#: Longest request in bytes.
MOST_BYTES = 65_536

Handle = Callable[[Mapping[str, Any]], dict[str, Any]]


def folder() -> Path:
    """Folder of this user's control sockets; it is created."""
    return private_folder(runtime_folder() / "sessions")


class ControlServer:
    """Serves a session's socket in a thread until it is closed.

    Args:
        name: of the session, unique among this user's.
        handle: answers a request; TestbedError and CampaignError are answered as sentences. Called in one thread.
    """

    def __init__(self, name: str, handle: Handle) -> None:
        self.path = folder() / f"{name}.sock"
        lock = threading.Lock()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.connection.settimeout(PATIENCE_S)
                with suppress(OSError):
                    line = self.rfile.readline(MOST_BYTES)
                    try:
                        request = json.loads(line)
                        if not isinstance(request, dict):
                            raise TestbedError("a request is a JSON object")
                        with lock:
                            answer = {"ok": True, **handle(request)}
                    except (TestbedError, CampaignError, ValueError) as error:
                        answer = {"ok": False, "error": str(error)}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        self._server = UnixServer(self.path, Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="control", daemon=True).start()

    def close(self) -> None:
        """Ends it and removes the socket."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


def ask(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Sends a request to a session of this user.

    Raises:
        TestbedError: there is no such session, or it refused.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(folder() / f"{name}.sock"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
        except (OSError, ValueError):
            raise TestbedError(f"session {name} does not answer; it may have ended") from None
    if not answer.get("ok"):
        raise TestbedError(str(answer.get("error", f"session {name} refused")))
    return dict(answer)


def running() -> list[str]:
    """Names of this user's sessions. Sockets that a killed session left are removed."""
    found = []
    for path in sorted(folder().glob("*.sock")):
        if listens(path):
            found.append(path.stem)
        else:
            path.unlink(missing_ok=True)
    return found


def free_name() -> str:
    """A name for a new session: this process, and a number if a process of another namespace has that number too."""
    taken = running()
    pid = str(os.getpid())
    names = (pid, *(f"{pid}-{number}" for number in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def only(name: str | None) -> str:
    """The session of that name, or the only one.

    Raises:
        TestbedError: there is none, or there are several and no name was given.
    """
    names = running()
    if name is not None:
        if name not in names:
            raise TestbedError(f"unknown session '{name}'; running: {listed(names)}")
        return name
    if len(names) == 1:
        return names[0]
    if not names:
        raise TestbedError("no session is running; './backchannel shell' starts one")
    raise TestbedError(f"several sessions are running; name one with --session: {listed(names)}")
