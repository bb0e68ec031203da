"""A PostgreSQL server of the distribution's packages with an empty database; it refuses to run as root, so root starts
it as the account `postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.support.free_ports import free_ports
from tests.support.waiting import wait_until


class Server:
    """A server that can be stopped and started again.

    Args:
        data: folder of the database, of the account `postgres`.
        log: file for its messages.
        host: address that it listens on.
        port: of TCP.
    """

    def __init__(self, data: Path, log: Path, host: str, port: int) -> None:
        self._data, self._log, self._host, self._port = data, log, host, port
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://backchannel@{host}:{port}/postgres"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        programs = _programs()
        words = [
            str(programs / "postgres"), "-D", str(self._data / "db"), "-h", self._host, "-p", str(self._port),
            "-k", str(self._data), "-c", "fsync=off",
        ]  # fmt: skip
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(as_owner(*words), stdout=out, stderr=out)
        ready = [str(programs / "pg_isready"), "-q", "-h", self._host, "-p", str(self._port)]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL")

    def stop(self) -> None:
        """Ends it at once, with every connection, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None


#: Versions of the server, each with its programs in `bin`.
VERSIONS = Path("/usr/lib/postgresql")


def _programs() -> Path:
    return max(VERSIONS.glob("*/bin"), key=lambda path: float(path.parent.name))


def is_installed() -> bool:
    """Whether this user can start a server."""
    return os.geteuid() == 0 and any(VERSIONS.glob("*/bin/postgres"))


def as_owner(*words: str) -> list[str]:
    """A command as the account of the server."""
    owner = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", *words]


@contextmanager
def postgresql(log: Path, host: str, port: int, trusted: str) -> Iterator[Server]:
    """A running server.

    Args:
        log: file for its messages.
        host: address that it listens on.
        port: of TCP.
        trusted: network whose hosts need no password, such as `127.0.0.1/32`.
    """
    owner = pwd.getpwnam("postgres")
    data = Path(tempfile.mkdtemp(prefix="backchannel-pg-"))
    try:
        os.chown(data, owner.pw_uid, owner.pw_gid)
        initdb = [str(_programs() / "initdb"), "-D", str(data / "db"), "-U", "backchannel", "-A", "trust", "-N"]
        subprocess.run(as_owner(*initdb), check=True, stdout=subprocess.DEVNULL)
        with (data / "db/pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {trusted} trust\n")
        server = Server(data, log, host, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(data, ignore_errors=True)


def on_loopback(log: Path) -> AbstractContextManager[Server]:
    """A running server at a free port of the loopback, for tests of this machine alone."""
    return postgresql(log, "127.0.0.1", free_ports(1)[0], "127.0.0.1/32")
