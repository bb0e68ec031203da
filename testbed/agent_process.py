"""Agents of a local network's nodes, in the process that builds it or as forks of it.

A new program for each node would import again what the parent has imported, which is half of the time that building a
network takes. Both run the same service with the same arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from agents import service
from agents.rpc import Server
from testbed import node_binary

#: Namespaces that each Mininet node has. Mounts come last, because /proc is another one afterwards.
NAMESPACES = ("net", "mnt")
#: For unshare(2).
CLONE_FS = 0x200


class AgentProcess:
    """A running agent with a process of its own, so that it is as prompt as other programs of its node.

    Args:
        node_pid: a process in the node's namespaces.
        arguments: of `agents.service.main`.
        log: file for its output.

    Other threads of the calling process must be waiting: a lock that one of them holds stays locked in the fork.
    """

    def __init__(self, node_pid: int, arguments: Sequence[str], log: Path) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                _enter(node_pid, log)
                status = service.main(arguments)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            except BaseException:  # noqa: BLE001 (no code of the parent may run here)
                traceback.print_exc()
            finally:
                os._exit(status)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        os.kill(self._pid, signal.SIGTERM)

    def wait(self) -> None:
        """Waits until it has ended."""
        os.waitpid(self._pid, 0)


class AgentThread:
    """A running agent in a thread that is in the node's namespaces, as are the threads and programs that it starts.

    For virtual time, where no thread keeps another from its work: a fork would cost two page faults, its own and its
    parent's, for each page that either writes to, half of what starting a machine costs.

    Args:
        node_pid: a process in the node's namespaces.
        arguments: of `agents.service.opened`.
        log: file that has the reason if it could not be started.
    """

    def __init__(self, node_pid: int, arguments: Sequence[str], log: Path) -> None:
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._serve, args=(node_pid, arguments, log), daemon=True)
        self._thread.start()

    def _serve(self, node_pid: int, arguments: Sequence[str], log: Path) -> None:
        try:
            # The mount namespace, working directory and mask of new files are this thread's, and not the process's.
            _call("unshare", CLONE_FS)
            _set_namespaces(node_pid)
            os.chdir(node_binary.ROOT)
            with service.opened(arguments) as self._server:
                self._server.serve_forever()
        except Exception as error:  # noqa: BLE001 (whoever waits for the agent reports it)
            log.write_text(f"{error}\n")
            traceback.print_exc()

    def terminate(self) -> None:
        """Stops it when it has answered what it was asked."""
        if self._server is not None:
            self._server.shutdown()

    def wait(self) -> None:
        """Waits until it has ended."""
        self._thread.join()


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _set_namespaces(node_pid: int) -> None:
    spaces = [os.open(f"/proc/{node_pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    for space in spaces:
        _call("setns", space, 0)
        os.close(space)


def _enter(node_pid: int, log: Path) -> None:
    """Enters the node's namespaces and closes the parent's files."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _set_namespaces(node_pid)
    os.closerange(3, max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 1)
    os.chdir(node_binary.ROOT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
