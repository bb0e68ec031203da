"""A server's socket is there when it listens, for its owner alone."""

from __future__ import annotations

import socketserver
from pathlib import Path

import pytest

from agents.unix_server import UnixServer


class Watched(UnixServer):
    """Notes what stands at its path just before and just after it listens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.there: list[bool] = []
        super().__init__(path, socketserver.BaseRequestHandler)

    def server_activate(self) -> None:
        self.there.append(self.path.exists())
        super().server_activate()
        self.there.append(self.path.exists())


def test_the_socket_appears_when_it_takes_connections(tmp_path: Path) -> None:
    with Watched(tmp_path / "a.sock") as server:
        assert server.there == [False, False]
        assert [(path.name, oct(path.stat().st_mode & 0o777)) for path in tmp_path.iterdir()] == [("a.sock", "0o600")]


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    Watched(path).server_close()
    old = path.stat().st_ino
    with Watched(path):
        assert path.stat().st_ino != old


def test_a_server_that_cannot_listen_leaves_nothing(tmp_path: Path) -> None:
    class Failing(UnixServer):
        def server_activate(self) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        Failing(tmp_path / "a.sock", socketserver.BaseRequestHandler)
    assert list(tmp_path.iterdir()) == []
