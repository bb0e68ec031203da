"""Clocks of a run's nodes against the controller's.

A host is asked for its clocks several times; the fastest answer is the most exact. With c0 and c1 the controller's
clock before and after, and h the host's in between, the offset is h - (c0 + c1) / 2, with an error of at most
(c1 - c0) / 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agents.clocks import read_together
from agents.messages import Clocks
from testbed import pcap
from testbed.errors import TestbedError
from testbed.report import HostClock

QUESTIONS = 15
#: A host whose clock is off by more is rejected.
GREATEST_OFFSET_S = 5.0
#: One-way delays are unusable where a stamp may be wrong by more.
PRECISE_S = 0.001


class Clock(Protocol):
    """What a conductor must know of nodes' clocks. All times are nanoseconds."""

    def start(self) -> None:
        """Measures offsets before a run or calibration."""

    def stop(self) -> None:
        """Measures offsets after a run, so that its captures can be corrected."""

    def monotonic_offset_ns(self, node: str) -> int:
        """CLOCK_MONOTONIC of a node less the controller's."""

    def realtime_offset_ns(self, node: str) -> int:
        """CLOCK_REALTIME of a node less the controller's."""

    def correct(self, node: str, capture: Path) -> None:
        """Gives the packets of a node's capture the controller's time."""

    def report(self) -> Mapping[str, HostClock | str] | None:
        """For the run's report; None where all nodes share the controller's clock."""


class SharedClock:
    """The clock of nodes that are namespaces of this machine."""

    def start(self) -> None:
        """Nothing to measure."""

    def stop(self) -> None:
        """Nothing to measure."""

    def monotonic_offset_ns(self, node: str) -> int:
        """0."""
        return 0

    def realtime_offset_ns(self, node: str) -> int:
        """0."""
        return 0

    def correct(self, node: str, capture: Path) -> None:
        """Stamps are right already."""

    def report(self) -> None:
        """Nothing to report."""


@dataclass(frozen=True)
class Reading:
    """One host's clocks less the controller's, in nanoseconds."""

    realtime_ns: int
    monotonic_ns: int
    #: Greatest error of both.
    uncertainty_ns: int
    #: The controller's CLOCK_REALTIME at the reading.
    at_ns: int


def read(
    ask: Callable[[], Clocks],
    realtime_ns: Callable[[], int] = time.time_ns,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> Reading:
    """Measures one host; `ask` reads its clocks."""
    best: Reading | None = None
    for _ in range(QUESTIONS):
        lead_ns = read_together(realtime_ns, monotonic_ns).lead_ns
        before = monotonic_ns()
        answer = ask()
        half = (monotonic_ns() - before) // 2
        if best is None or half < best.uncertainty_ns:
            best = Reading(
                answer.realtime_ns - before - lead_ns - half,
                answer.monotonic_ns - before - half,
                half,
                before + lead_ns + half,
            )
    assert best is not None
    return best


def check_offset(host: str, reading: Reading) -> None:
    """Raises TestbedError for a clock that is not set."""
    if abs(reading.realtime_ns) > GREATEST_OFFSET_S * 1e9:
        raise TestbedError(
            f"host {host}: its clock is {reading.realtime_ns / 1e9:+.1f} s off the controller's (set it "
            "with 'chronyc makestep' there, or with 'date', then run './backchannel testbed check')"
        )


@dataclass(frozen=True)
class Drift:
    """One host's clock over a run, from a reading before and one after it."""

    before: Reading
    after: Reading

    def offset_ns(self, at_ns: int) -> int:
        """Offset at an instant of the host's own CLOCK_REALTIME, interpolated between the readings."""
        span = self.after.at_ns - self.before.at_ns
        if span <= 0:
            return self.before.realtime_ns
        passed = at_ns - self.before.realtime_ns - self.before.at_ns
        return self.before.realtime_ns + (self.after.realtime_ns - self.before.realtime_ns) * passed // span

    @property
    def uncertainty_ns(self) -> int:
        """Greatest error of a corrected stamp."""
        return max(self.before.uncertainty_ns, self.after.uncertainty_ns)

    @property
    def steady(self) -> bool:
        """Whether the clock was not set during the run. No oscillator is off by a thousandth."""
        jitter_ns = self.before.uncertainty_ns + self.after.uncertainty_ns
        span = self.after.at_ns - self.before.at_ns
        return abs(self.after.realtime_ns - self.before.realtime_ns) <= max(span // 1000, 0) + jitter_ns

    def report(self) -> HostClock:
        """For the manifest."""
        span = self.after.at_ns - self.before.at_ns
        return HostClock(
            offset_before_s=self.before.realtime_ns / 1e9,
            offset_after_s=self.after.realtime_ns / 1e9,
            uncertainty_s=self.uncertainty_ns / 1e9,
            drift=(self.after.realtime_ns - self.before.realtime_ns) / span if span > 0 else 0.0,
            steady=self.steady,
        )


def one_way_delays(clocks: Mapping[str, Drift]) -> dict[str, str]:
    """Whether a run's one-way delays are "corrected" or "unusable", and why."""
    for host, clock in clocks.items():
        if not clock.steady:
            return {"one_way_delays": "unusable", "why": f"the clock of {host} was set during the run"}
        if clock.uncertainty_ns > PRECISE_S * 1e9:
            why = f"the error of {host}'s clock may be {clock.uncertainty_ns / 1e6:.1f} ms"
            return {"one_way_delays": "unusable", "why": why}
    return {"one_way_delays": "corrected", "why": "captures have the controller's time, from measured offsets"}


class HostClocks:
    """The clocks of several hosts.

    Args:
        read_all: measures every host.
        host_of: the host of each node.
    """

    def __init__(self, read_all: Callable[[], Mapping[str, Reading]], host_of: Mapping[str, str]) -> None:
        self._read_all = read_all
        self._host_of = host_of
        self._before: Mapping[str, Reading] = {}
        self._drifts: dict[str, Drift] = {}

    def start(self) -> None:
        """Reads every host's clocks."""
        self._before = self._read_all()

    def stop(self) -> None:
        """Reads them again."""
        after = self._read_all()
        self._drifts = {host: Drift(before, after[host]) for host, before in self._before.items()}

    def host_monotonic_offset_ns(self, host: str) -> int:
        """CLOCK_MONOTONIC of a host less the controller's."""
        return self._before[host].monotonic_ns

    def monotonic_offset_ns(self, node: str) -> int:
        """That of its host."""
        return self.host_monotonic_offset_ns(self._host_of[node])

    def realtime_offset_ns(self, node: str) -> int:
        """That of its host."""
        return self._before[self._host_of[node]].realtime_ns

    def correct(self, node: str, capture: Path) -> None:
        """Subtracts the host's offset from every stamp."""
        drift = self._drifts[self._host_of[node]]
        data = bytearray(capture.read_bytes())
        try:
            pcap.change_times(data, lambda stamp_ns: stamp_ns - drift.offset_ns(stamp_ns))
        except ValueError as error:
            raise TestbedError(f"{capture.name}: {error}") from None
        capture.write_bytes(data)

    def report(self) -> Mapping[str, HostClock | str]:
        """Every host's clock, and whether one-way delays are usable."""
        clocks: dict[str, HostClock | str] = {host: drift.report() for host, drift in self._drifts.items()}
        return clocks | one_way_delays(self._drifts)
