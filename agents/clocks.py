"""The clocks of this machine, read together."""

from __future__ import annotations

import time
from collections.abc import Callable

from agents.messages import Clocks

READINGS = 5


def read_together(
    realtime_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
) -> Clocks:
    """Both clocks at one instant, with an error of at most half of what the closest of several readings took.

    A program may lose its CPU between the readings of two clocks, and one pair of readings would be wrong by as long.
    """
    best, least_ns = None, 0
    for _ in range(READINGS):
        before, realtime, after = monotonic_ns(), realtime_ns(), monotonic_ns()
        if best is None or after - before < least_ns:
            best, least_ns = Clocks(realtime, (before + after) // 2), after - before
    assert best is not None
    return best
