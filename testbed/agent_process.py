"""Agents of a local network's nodes, as forks of the process that builds it.

A new program for each node would import again what the parent has imported, which is half of the time that building a
network takes. A fork runs the same `agents.service.main` with the same arguments.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from agents import service
from testbed import node_binary

#: Namespaces that each Mininet node has. Mounts come last, because /proc is another one afterwards.
NAMESPACES = ("net", "mnt")


class AgentProcess:
    """An agent: a fork that waits until it is started.

    Other threads of the calling process must be waiting: a lock that one of them holds stays locked in the fork.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        orders, self._orders = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders)
            status = 1
            try:
                status = _serve(orders)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            except BaseException:  # noqa: BLE001 (no code of the parent may run here)
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(orders)

    def start(self, node_pid: int, arguments: Sequence[str], log: Path) -> None:
        """Starts the agent's service.

        Args:
            node_pid: a process in the node's namespaces.
            arguments: of `agents.service.main`.
            log: file for its output.
        """
        with os.fdopen(self._orders, "w") as orders:
            json.dump({"node_pid": node_pid, "arguments": list(arguments), "log": str(log)}, orders)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        os.kill(self._pid, signal.SIGTERM)

    def wait(self) -> None:
        """Waits until it has ended."""
        os.waitpid(self._pid, 0)


def _serve(orders: int) -> int:
    """Waits for `start`, and serves. A parent that ends or never starts it ends it."""
    with os.fdopen(orders) as file:
        text = file.read()
    if not text:
        return 0
    order = json.loads(text)
    _enter(order["node_pid"], Path(order["log"]))
    return service.main(order["arguments"])


def _enter(node_pid: int, log: Path) -> None:
    """Enters the node's namespaces and closes the parent's files."""
    os.setsid()
    spaces = [os.open(f"/proc/{node_pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    libc = ctypes.CDLL(None, use_errno=True)
    for name, space in zip(NAMESPACES, spaces, strict=True):
        if libc.setns(space, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the node's {name} namespace")
    os.closerange(3, max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 1)
    os.chdir(node_binary.ROOT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
