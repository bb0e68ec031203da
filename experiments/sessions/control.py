"""The control socket of a session: other terminals and the site read its state and change its lines.

Each session has a UNIX socket in a folder that only its user can open. Its requests are those of
experiments.sessions.state.SessionControl.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from agents.rpc import Dispatcher, Server, SocketClient, listens
from experiments.language.problems import CampaignError
from testbed.errors import TestbedError, listed
from testbed.local_folders import private_folder, runtime_folder

R = TypeVar("R")
P = ParamSpec("P")

#: Longest time that a client waits for an answer, in s.
PATIENCE_S = 10.0


def folder() -> Path:
    """Folder of this user's control sockets; it is created."""
    return private_folder(runtime_folder() / "sessions")


class ControlServer:
    """Serves a session's socket in threads until it is closed.

    Args:
        name: of the session, unique among this user's.
        protocol: its requests, experiments.sessions.state.SessionControl.
        session: what is controlled.
    """

    def __init__(self, name: str, protocol: type, session: object) -> None:
        self.path = folder() / f"{name}.sock"
        dispatcher = Dispatcher("the session", protocol, session, (TestbedError, CampaignError))
        self._server = Server(self.path, dispatcher)
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="control", daemon=True).start()

    def close(self) -> None:
        """Ends it and removes the socket."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


def ask(name: str | None, function: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a request of SessionControl to a session of this user; None: the only one.

    Raises:
        TestbedError: unknown session, or it rejected the request.
    """
    name = only(name)
    silent = TestbedError(f"session {name} does not answer; it may have ended")
    with closing(SocketClient(folder() / f"{name}.sock", TestbedError, lambda _: silent)) as client:
        return client.call(PATIENCE_S, function, *args, **kwargs)


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
