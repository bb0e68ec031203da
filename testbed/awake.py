"""Keeps the CPUs of this machine with us while packets are on their way.

A virtual machine's CPU that halts is given back to the host, and one packet in a hundred then waits milliseconds for it
(docs/fidelity.md has the measurement). While a hold lasts, threads that give way to everything else keep every CPU from
halting. Nothing is done on a machine of which nobody ever took a CPU.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from testbed import node_binary


class Hold:
    """To be taken and let go by one thread that lives as long: the kernel ends the holder with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def take(self) -> None:
        """Keeps the CPUs from now on. A kernel that refuses leaves them as they are."""
        if self._process is None:
            self._process = subprocess.Popen(
                [node_binary.path(), "awake", "--parent", str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def let_go(self) -> None:
        """Lets them halt again."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def held(wanted: bool) -> Iterator[None]:
    """A hold for the length of a block, if it is wanted."""
    hold = Hold()
    if wanted:
        hold.take()
    try:
        yield
    finally:
        hold.let_go()
