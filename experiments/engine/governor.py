"""Finds the number of cells that a machine can run at once without invalid runs, from measurements during the runs.

Three measurements decide:

- The busy share of the CPUs shows within a second whether there is room for another cell.
- Time stolen by a virtual machine's host delays packets with any number of cells. Above a limit no run starts.
- `testbed.fidelity.worst_limit_ratio` of a finished run is its worst deviation that other programs caused, relative to
  the limit of a valid run. It shows whether the machine had too many cells.

The result depends on the campaign and on the other load: dialup lines need less CPU time than 10 Mbit/s.

A single invalid run has little weight, because a run at 28.8 kbit/s has sixty packets and a single late packet makes it
invalid. The governor uses the share of recent runs that were invalid. Repetitions cost less than running fewer cells
until about one run in four is invalid.

Pure: time is an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Parameters of a governor."""

    #: Initial number of cells per CPU: few enough for any rate that a cell can carry.
    start_per_cpu: float = 1.5
    #: Busy share of the CPUs below which there is room for another cell.
    room: float = 0.78
    #: Busy share above which, after `patience_s`, the governor removes a cell.
    full: float = 0.9
    patience_s: float = 6.0
    #: Stolen share of the requested CPU time above which the machine counts as full. Most stolen intervals are too
    #: short to delay a packet. Above this share many are not.
    stolen: float = 0.05
    #: Stolen share of all CPU time below which the clock's resolution hides it.
    stolen_grain: float = 0.01
    #: Stolen share of the requested CPU time above which no run starts, because none would be valid.
    hold: float = 0.3
    #: Maximum waiting time for the host, in s. Then runs may start again for the same time.
    hold_s: float = 60.0
    #: Weight of a new reading in the smoothed shares.
    smoothing: float = 0.5
    #: Weight of a finished run in the smoothed share of invalid runs.
    memory: float = 0.15
    #: Share of invalid runs above which there are too many cells. Above half of it the number no longer grows.
    tolerated: float = 0.3
    #: Strain above which a valid run counts as half an invalid run.
    strained: float = 0.8
    #: When too many runs are invalid, this times their share is the share of cells that goes: 15 % at what is
    #: tolerated, half when all are invalid.
    back_off: float = 0.5
    #: Least time without growth after that, in s. It is at least the length of the invalid run, because what fewer
    #: cells do shows no sooner.
    rest_s: float = 15.0
    #: After so many such times the number that was too many is tried again. Until then half of what went may come back.
    rests_before_retrial: float = 5.0
    #: Factor on that number when a run among so many cells was valid.
    retrial_growth: float = 1.25
    #: Memory of a cell, in bytes: an agent for each node, Mininet, captures in memory.
    cell_bytes: int = 150_000_000


RULES = Rules()


class Governor:
    """The governor of one machine.

    Args:
        cpus: number of CPUs.
        most: maximum number of cells.
        fixed: the number of cells that the user set; measurements can only lower it.
    """

    def __init__(self, cpus: int, most: int, fixed: int | None = None) -> None:
        self._most = max(1, most if fixed is None else fixed)
        self._grows = fixed is None
        self._floor = float(cpus)
        self._allowed = float(min(self._most, fixed or max(1, round(cpus * RULES.start_per_cpu))))
        self._busy: float | None = None
        self._niced = 0.0
        self._stolen = 0.0
        self._invalid = 0.0
        self._full_since_s: float | None = None
        self._growth_paused_until_s = 0.0
        #: Least number of cells that was too many, the maximum until it may be tried again, and when that is.
        self._too_many = self._until_retrial = math.inf
        self._retrial_s = 0.0
        self._held_since_s: float | None = None
        self._starts_until_s = 0.0

    @property
    def allowed(self) -> int:
        """Number of cells that may run now; 0 while the host steals so much time that no run would be valid."""
        return 0 if self._held_since_s is not None else max(1, int(self._allowed))

    def on_reading(self, now_s: float, busy: float, running: int, stolen: float = 0.0, niced: float = 0.0) -> None:
        """Handles a reading of the machine.

        Args:
            now_s: time of a monotonic clock, in s.
            busy: busy share of all CPUs since the last reading, without niced work, 0 to 1.
            running: number of busy cells that have their testbed.
            stolen: share of all CPUs that the host stole since the last reading, 0 to 1.
            niced: share of all CPUs that niced work used since the last reading, 0 to 1.
        """
        self._niced += RULES.smoothing * (niced - self._niced)
        self._busy = busy if self._busy is None else self._busy + RULES.smoothing * (busy - self._busy)
        # Stolen time has a resolution of 10 ms, so its average needs more readings.
        self._stolen += RULES.smoothing / 5 * (stolen - self._stolen)
        withheld = self._withheld()
        self._hold(now_s, withheld)
        if self._held_since_s is not None:
            return  # without runs the readings do not count
        if self._busy + self._stolen < RULES.full and withheld < RULES.stolen:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        elif self._grows and now_s - self._full_since_s >= RULES.patience_s:
            self._full_since_s = now_s
            # Only invalid runs reduce the number of cells below that of CPUs.
            self._allowed = max(min(self._allowed, self._floor), min(self._allowed, running) - 1)
        # Growth needs readings while all allowed cells are busy.
        if self._grows and running >= self.allowed and now_s >= self._growth_paused_until_s and self._has_room():
            # The number that fits if new cells use as much as the present ones. Half of it first, because cells that
            # have just started use less than later.
            fit = running * (RULES.room / max(self._busy, 0.02) - 1) / 2
            more = min(max(0.5, fit), max(2.0, self._allowed / 4))
            limit = self._too_many if now_s >= self._retrial_s else self._until_retrial
            self._allowed = max(self._allowed, min(float(self._most), self._allowed + more, limit))

    def _has_room(self) -> bool:
        assert self._busy is not None
        return self._busy < RULES.room and self._withheld() < RULES.stolen / 2

    def _withheld(self) -> float:
        """Stolen share of the requested CPU time."""
        assert self._busy is not None
        requested = self._busy + self._niced + self._stolen
        return self._stolen / requested if self._stolen > RULES.stolen_grain else 0.0

    def _hold(self, now_s: float, withheld: float) -> None:
        if withheld < RULES.hold:
            self._held_since_s = None
        elif self._held_since_s is None and now_s >= self._starts_until_s:
            self._held_since_s = now_s
        elif self._held_since_s is not None and now_s - self._held_since_s >= RULES.hold_s:
            self._held_since_s = None
            self._starts_until_s = now_s + RULES.hold_s

    def on_run(self, now_s: float, worst_limit_ratio: float, cells: int, length_s: float) -> None:
        """Handles a finished run.

        Args:
            now_s: as in `on_reading`.
            worst_limit_ratio: testbed.fidelity.worst_limit_ratio; above 1 the run is invalid.
            cells: number of busy cells on the machine during the run, including its cell.
            length_s: how long the run took, in s.
        """
        if self._busy is not None and self._withheld() >= RULES.stolen:
            return  # the host is the cause, which `on_reading` handles
        rest_s = max(RULES.rest_s, length_s)
        cost = 1.0 if worst_limit_ratio > 1 else 0.5 if worst_limit_ratio > RULES.strained else 0.0
        self._invalid += RULES.memory * (cost - self._invalid)
        if worst_limit_ratio > 1 and self._invalid > RULES.tolerated:
            self._allowed = max(1.0, min(self._allowed, cells * (1 - RULES.back_off * self._invalid)))
            self._too_many = min(self._too_many, cells)
            self._until_retrial = (self._allowed + self._too_many) / 2
            self._retrial_s = now_s + RULES.rests_before_retrial * rest_s
        elif worst_limit_ratio <= 1 and cells >= self._too_many:
            self._too_many = math.ceil(cells * RULES.retrial_growth)
        if cost and self._invalid > RULES.tolerated / 2:
            self._growth_paused_until_s = now_s + rest_s


def most_cells(memory_bytes: int) -> int:
    """Number of cells that fit into three quarters of a machine's free memory."""
    return max(1, int(memory_bytes * 0.75 / RULES.cell_bytes))
