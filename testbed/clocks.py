"""Clocks of hosts against the controller's: measured by question and answer, and what follows for captures.

A host's clock is asked some times; the answer that came back soonest tells most. With c0 and c1 the controller's clock
before and after, and h the host's in between, the offset is h - (c0 + c1) / 2, and wrong by at most (c1 - c0) / 2.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError

QUESTIONS = 15
#: A host whose clock is further off than this is refused.
GREATEST_S = 5.0
#: One-way delays are unusable where a stamp may be wrong by more.
PRECISE_S = 0.001


@dataclass(frozen=True)
class Reading:
    """One host's clocks less the controller's, in nanoseconds, and by how much that may be wrong."""

    realtime_ns: int
    monotonic_ns: int
    uncertainty_ns: int
    #: When, on the controller's CLOCK_REALTIME.
    at_ns: int


def read(
    ask: Callable[[], Mapping[str, int]],
    realtime_ns: Callable[[], int] = time.time_ns,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> Reading:
    """Measures one host; `ask` returns its "realtime_ns" and "monotonic_ns"."""
    best: Reading | None = None
    for _ in range(QUESTIONS):
        before_real, before = realtime_ns(), monotonic_ns()
        told = ask()
        after = monotonic_ns()
        half = (after - before) // 2
        if best is None or half < best.uncertainty_ns:
            best = Reading(
                told["realtime_ns"] - before_real - half, told["monotonic_ns"] - before - half, half, before_real + half
            )
    assert best is not None
    return best


def refuse_far(host: str, reading: Reading) -> None:
    """Raises TestbedError for a clock that is not set at all."""
    if abs(reading.realtime_ns) > GREATEST_S * 1e9:
        raise TestbedError(
            f"host {host}: its clock is {reading.realtime_ns / 1e9:+.1f} s off the controller's (set it "
            "with 'chronyc makestep' there, or with 'date', then run './backchannel testbed check')"
        )


@dataclass(frozen=True)
class Clock:
    """One host's clock over a run, from a reading before and one after it."""

    before: Reading
    after: Reading

    def offset_ns(self, at_ns: int) -> int:
        """How far the host's clock was ahead at an instant of its own, between the readings and beyond."""
        span = self.after.at_ns - self.before.at_ns
        if span <= 0:
            return self.before.realtime_ns
        passed = at_ns - self.before.realtime_ns - self.before.at_ns
        return self.before.realtime_ns + (self.after.realtime_ns - self.before.realtime_ns) * passed // span

    @property
    def error_ns(self) -> int:
        """By how much a corrected stamp may be wrong: the readings' own uncertainty, the worse of the two."""
        return max(self.before.uncertainty_ns, self.after.uncertainty_ns)

    @property
    def drift(self) -> float:
        """Gain of the host's clock over the controller's, as a ratio."""
        span = self.after.at_ns - self.before.at_ns
        return (self.after.realtime_ns - self.before.realtime_ns) / span if span > 0 else 0.0

    def steady(self) -> bool:
        """Whether it ran evenly: no oscillator is off by a thousandth, so then it was set in mid-run."""
        jitter_ns = self.before.uncertainty_ns + self.after.uncertainty_ns
        span = self.after.at_ns - self.before.at_ns
        return abs(self.after.realtime_ns - self.before.realtime_ns) <= max(span // 1000, 0) + jitter_ns

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "offset_before_s": self.before.realtime_ns / 1e9,
            "offset_after_s": self.after.realtime_ns / 1e9,
            "uncertainty_s": self.error_ns / 1e9,
            "drift": self.drift,
            "steady": self.steady(),
        }


def verdict(clocks: Mapping[str, Clock]) -> dict[str, Any]:
    """Whether one-way delays of a run may be used: "corrected", or "unusable" with the reason."""
    for host, clock in clocks.items():
        if not clock.steady():
            return {"one_way_delays": "unusable", "why": f"the clock of {host} was set during the run"}
        if clock.error_ns > PRECISE_S * 1e9:
            text = f"the clock of {host} is known within {clock.error_ns / 1e6:.1f} ms only"
            return {"one_way_delays": "unusable", "why": text}
    return {"one_way_delays": "corrected", "why": "captures have the controller's time, by the offsets measured"}


#: pcap's magic numbers with nanoseconds and with microseconds, as this machine writes them.
_UNITS = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}


def correct_capture(path: Path, clock: Clock) -> None:
    """Gives every packet of a pcap the controller's time.

    Raises:
        TestbedError: the file is no pcap of ours.
    """
    data = bytearray(path.read_bytes())
    unit = _UNITS.get(struct.unpack_from("=I", data)[0]) if len(data) >= 24 else None
    if unit is None:
        raise TestbedError(f"{path.name} is no capture that tcpdump wrote here")
    at = 24
    while at + 16 <= len(data):
        seconds, part, captured = struct.unpack_from("=III", data, at)
        stamp = seconds * 1_000_000_000 + part * unit
        stamp -= clock.offset_ns(stamp)
        struct.pack_into("=II", data, at, stamp // 1_000_000_000, stamp % 1_000_000_000 // unit)
        at += 16 + captured
    path.write_bytes(data)
