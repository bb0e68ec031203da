"""Writes the delivery traces of the LTE-like link: `python experiments/beyond/delivery_trace.py`.

The traces are of our own making, not a recording: capacity follows a mean-reverting walk of its logarithm, as a user's
share of a cell does that moves and competes, with outages in between. One opportunity of 1504 bytes a line, at a
millisecond (mm-link(1)); the same seed gives the same files.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

OPPORTUNITY_BITS = 1504 * 8
LENGTH_MS = 20_000


def opportunities(mean_bps: float, seed: int) -> list[int]:
    """Milliseconds of delivery opportunities.

    Args:
        mean_bps: about how much the link carries.
        seed: of the walk.
    """
    draw = random.Random(seed)
    # A factor of about 1.6 either way, forgotten over half a second.
    deviation, memory_ms = 0.5, 500.0
    kept = math.exp(-1 / memory_ms)
    level, credit, outage_ms = 0.0, 0.0, 0
    times_ms = []
    for now_ms in range(1, LENGTH_MS + 1):
        level = kept * level + deviation * math.sqrt(1 - kept * kept) * draw.gauss(0.0, 1.0)
        # A handover now and then: 40 to 120 ms in which nothing is delivered, about every seven seconds.
        if outage_ms == 0 and draw.random() < 1 / 7000:
            outage_ms = draw.randint(40, 120)
        if outage_ms > 0:
            outage_ms -= 1
            continue
        credit += mean_bps * math.exp(level - deviation * deviation / 2) / 1000 / OPPORTUNITY_BITS
        packets = int(credit)
        credit -= packets
        times_ms += [now_ms] * packets
    # The trace's length is its last line.
    return times_ms if times_ms[-1] == LENGTH_MS else [*times_ms, LENGTH_MS]


def main() -> None:
    """Writes both directions beside this file."""
    for name, mean_bps, seed in (("lte-like.down", 30e6, 1), ("lte-like.up", 8e6, 2)):
        lines = opportunities(mean_bps, seed)
        Path(__file__).with_name(name).write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
