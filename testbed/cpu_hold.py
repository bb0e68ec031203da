"""Keeps this machine's CPUs from halting while packets are under way.

A virtual machine whose CPU halts gives it back to its host, and one packet in a hundred then waits milliseconds for it
(`./backchannel bench wakeups` measures this). During a hold, idle-priority threads keep every CPU running. A machine
from which no CPU time is stolen needs no hold.

Some hosts allot a guest less than all of its CPUs' time, and stop a guest that never halts for tens of milliseconds
again and again. A hold ends when the host steals much time during it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from testbed import node_binary
from testbed.errors import Unavailable

#: Name of the slot of the process that holds this machine's CPUs. Two would compete for them.
SLOT = "awake"
#: Greatest mean share of all CPUs that the host may steal during a hold. An allotment of nine tenths shows as 0.1.
GREATEST_STOLEN = 0.05
#: Seconds over which the mean is taken.
MEAN_S = 8.0
#: Seconds without a hold after one that was ended for stolen time.
PAUSE_S = 120.0


class HoldPolicy:
    """Whether to hold the CPUs, from the time that the host steals meanwhile. Pure: time is passed in."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._stolen_s = 0.0
        self._pause_until_s = float("-inf")

    def update(self, now_s: float, period_s: float, stolen: float, held: bool) -> bool:
        """Takes a reading of the machine. Whether to hold from now on.

        Args:
            now_s: seconds on any steady clock.
            period_s: seconds since the last reading.
            stolen: share of all CPUs that the host stole in this period, 0 to 1.
            held: whether the CPUs were held in this period.
        """
        if not held:
            self._since_s = None
            return now_s >= self._pause_until_s
        if self._since_s is None:
            self._since_s, self._stolen_s = now_s - period_s, 0.0
        self._stolen_s += stolen * period_s
        length_s = now_s - self._since_s
        if length_s < MEAN_S:
            return True
        self._since_s = None
        if self._stolen_s / length_s <= GREATEST_STOLEN:
            return True
        self._pause_until_s = now_s + PAUSE_S
        return False


class CpuHold:
    """One thread takes and releases it and must outlive it, because the kernel ends the process with that thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def active(self) -> bool:
        """Whether the CPUs are held now."""
        return self._process is not None

    def take(self) -> None:
        """Holds the CPUs from now on. Where that fails they halt as usual, and runs are late more often."""
        if self._process is not None:
            return
        try:
            command = [node_binary.path(), "awake", "--parent", str(os.getpid())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, Unavailable):
            return

    def release(self) -> None:
        """Lets them halt again."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def held(wanted: bool) -> Iterator[None]:
    """A hold for the length of a block, if it is wanted."""
    hold = CpuHold()
    if wanted:
        hold.take()
    try:
        yield
    finally:
        hold.release()
