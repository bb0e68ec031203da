"""Keeps the CPUs of this machine with us while packets are on their way.

A virtual machine's CPU that halts is given back to the host, and one packet in a hundred then waits milliseconds for it
(`./backchannel bench wakeups` measures it). While a hold lasts, threads that give way to everything else keep every
CPU from halting. Nothing is done on a machine of which nobody ever took a CPU.

Not every host lets its guests: one that allots them less than all of their CPUs' time stops a guest that never halts
for whole hundredths of a second, again and again. So the hold is given up where the host takes much while it lasts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from testbed import node_binary
from testbed.errors import Unavailable

#: Share of all CPUs that a host may take during a hold; an allotment of nine tenths is felt as 0.1.
MOST_STOLEN = 0.05
#: Seconds of which the mean counts.
PATIENCE_S = 8.0
#: Seconds without a hold after one that was not worth it.
REST_S = 120.0


class Worth:
    """Whether a hold is worth it, from what the host takes meanwhile. Pure: time is passed in."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._taken_s = 0.0
        self._rests_until_s = float("-inf")

    def beat(self, now_s: float, period_s: float, stolen: float, held: bool) -> bool:
        """A reading of the machine. Whether to hold on, or to begin.

        Args:
            now_s: seconds on any steady clock.
            period_s: seconds since the last reading.
            stolen: share of all CPUs that the host took in them, 0 to 1.
            held: whether the hold lasted in them.
        """
        if not held:
            self._since_s = None
            return now_s >= self._rests_until_s
        if self._since_s is None:
            self._since_s, self._taken_s = now_s - period_s, 0.0
        self._taken_s += stolen * period_s
        length_s = now_s - self._since_s
        if length_s < PATIENCE_S:
            return True
        self._since_s = None
        if self._taken_s / length_s <= MOST_STOLEN:
            return True
        self._rests_until_s = now_s + REST_S
        return False


class Hold:
    """To be taken and let go by one thread that lives as long: the kernel ends the holder with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def lasts(self) -> bool:
        """Whether the CPUs are kept now."""
        return self._process is not None

    def take(self) -> None:
        """Keeps the CPUs from now on. Where that cannot be they stay as they are: runs are only late more often."""
        if self._process is not None:
            return
        try:
            words = [node_binary.path(), "awake", "--parent", str(os.getpid())]
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, Unavailable):
            return

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
