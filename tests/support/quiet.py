"""Waits until the machine's CPU is not taken away, for tests that hold real packets against numbers.

A run is invalid while the machine's host, or another program, takes the CPU. Repeating it at once only fails again, so
the tests wait between repetitions, as a campaign does (experiments.engine.governor).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

#: Time that a test waits in all. A busy phase of a shared machine lasts minutes.
PATIENCE_S = 600.0
#: Shorter gaps between two readings of the clock are the interpreter's own.
GRAIN_S = 0.0005
#: Share of the probe above which no run is tried: the guard allows 1 % to the emulator.
TAKEN = 0.01


def taken(probe_s: float = 1.0) -> float:
    """Share of `probe_s` during which this thread wanted the CPU and did not have it, 0 to 1."""
    begin = last = time.perf_counter()
    lost = 0.0
    while last - begin < probe_s:
        now = time.perf_counter()
        if now - last > GRAIN_S:
            lost += now - last
        last = now
    return lost / probe_s


def attempts(most: int) -> Iterator[int]:
    """Numbers from 1 to `most`; between two, waits until the CPU is free, PATIENCE_S in all."""
    deadline = time.monotonic() + PATIENCE_S
    for number in range(1, most + 1):
        if number > 1:
            wait(deadline)
        yield number


def wait(deadline: float) -> None:
    """Returns once the CPU is free, and at `deadline` (of time.monotonic) at the latest."""
    while taken() > TAKEN and time.monotonic() < deadline:
        time.sleep(1.0)
