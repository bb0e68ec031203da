"""Servers on UNIX sockets, for agents and sessions."""

from __future__ import annotations

import socket
import socketserver
from pathlib import Path


class UnixServer(socketserver.ThreadingUnixStreamServer):
    """A server on a UNIX socket that only its owner can open. An older socket at this path is replaced.

    The socket is made under another name and gets its own when it listens, because a socket that is bound refuses
    connections until then: a client that waits for the file would be refused, and one that looks for sockets without
    a server would remove it.
    """

    daemon_threads = True

    def __init__(self, path: Path, handler: type[socketserver.BaseRequestHandler]) -> None:
        early = path.with_name(f"{path.name}~")
        early.unlink(missing_ok=True)
        super().__init__(str(early), handler, bind_and_activate=False)
        try:
            self.server_bind()
            early.chmod(0o600)
            self.server_activate()
            early.replace(path)
        except BaseException:
            self.server_close()
            early.unlink(missing_ok=True)
            raise


def listens(path: Path) -> bool:
    """Whether a server takes connections at a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
