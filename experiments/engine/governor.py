"""How many cells a machine runs at once: as many as the fidelity guard allows, found by measuring while they run.

Three measurements decide. The share of the CPUs that is busy says, within a second, whether there is room for another
cell. The share that a virtual machine's host took away says whether the machine was given less than it asked for:
packets wait then, however few cells there are, and while it is much no run begins. The strain of every finished run,
the worst of its deviations over what a valid run may deviate, as far as other programs caused it
(testbed.fidelity.strain), says whether the cells beside it took too much. A governor of that kind finds a different
number for dialup lines than for 10 Mbit/s, and another one when the machine has other work to do.

One such run proves little. A run of 28.8 kbit/s has sixty packets, so that a single late one makes it invalid. What
counts is the share of recent runs that were: fewer cells cost more than a repetition now and then, until about one run
in four has to be repeated.

Pure: time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """What a governor goes by."""

    #: Cells for each CPU to begin with: few enough for any rate that one cell can carry.
    start_per_cpu: float = 1.5
    #: Room for one more cell: a smaller share of the CPUs is busy.
    room: float = 0.78
    #: No room, and one cell less: a greater share is busy, for as long as `patience_s`.
    full: float = 0.9
    patience_s: float = 6.0
    #: Stolen time over the time that was asked for: more leaves no room, and takes a cell as a full machine does. Most
    #: of what is stolen comes in pieces too short to make a packet late; from about here on many are not.
    stolen: float = 0.05
    #: Stolen time over that of all CPUs, below which it is no more than the clock's grain.
    stolen_grain: float = 0.01
    #: Stolen time over what was asked for, from which on no run begins: none would be valid.
    hold: float = 0.3
    #: Seconds that are waited for the host at most before one is tried nevertheless, and that this try has then.
    hold_s: float = 60.0
    #: How much of a new reading enters the smoothed share.
    smoothing: float = 0.5
    #: How much of a finished run enters the smoothed share of ones that others made invalid.
    memory: float = 0.15
    #: A greater share of invalid runs says that there are too many cells, half of it that there are enough.
    tolerated: float = 0.3
    #: A run that came so near to being invalid counts as half of one.
    strained: float = 0.8
    #: What is left of the cells when too many runs are invalid.
    back_off: float = 0.85
    #: Seconds without growth after that; one more cell may then be tried.
    rest_s: float = 15.0
    #: Memory that a cell takes, in bytes: an agent for each node, Mininet, captures in memory.
    cell_bytes: int = 150_000_000


RULES = Rules()


class Governor:
    """The allowance of one machine.

    Args:
        cpus: of the machine.
        most: cells that it may have whatever the measurements say.
        fixed: a number somebody asked for; measurements can only lower it.
    """

    def __init__(self, cpus: int, most: int, fixed: int | None = None, rules: Rules = RULES) -> None:
        self._rules = rules
        self._most = max(1, most if fixed is None else fixed)
        self._grows = fixed is None
        self._floor = float(cpus)
        self._allowed = float(min(self._most, fixed or max(1, round(cpus * rules.start_per_cpu))))
        self._busy: float | None = None
        self._niced = 0.0
        self._stolen = 0.0
        self._invalid = 0.0
        self._full_since_s: float | None = None
        self._rests_until_s = 0.0
        self._held_since_s: float | None = None
        self._tries_until_s = 0.0

    @property
    def allowed(self) -> int:
        """Cells that may run now; 0 while the machine's host takes so much that no run would be valid."""
        return 0 if self._held_since_s is not None else max(1, int(self._allowed))

    def on_reading(self, now_s: float, busy: float, running: int, stolen: float = 0.0, niced: float = 0.0) -> None:
        """A reading of the machine.

        Args:
            now_s: seconds on any steady clock.
            busy: share of all CPUs that was at work since the last reading, 0 to 1.
            running: cells that are at work and have their testbed.
            stolen: share of all CPUs that the machine's host took away since the last reading, 0 to 1.
            niced: share of all CPUs, beside `busy`, that was at work which gives way to cells.
        """
        rules = self._rules
        self._niced += rules.smoothing * (niced - self._niced)
        self._busy = busy if self._busy is None else self._busy + rules.smoothing * (busy - self._busy)
        # Stolen time comes in pieces of a hundredth of a second, a few in ten seconds: it takes as long to tell.
        self._stolen += rules.smoothing / 5 * (stolen - self._stolen)
        withheld = self._withheld()
        self._hold(now_s, withheld)
        if self._held_since_s is not None:
            return  # nothing runs that could prove anything
        if self._busy + self._stolen < rules.full and withheld < rules.stolen:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        elif self._grows and now_s - self._full_since_s >= rules.patience_s:
            self._full_since_s = now_s
            # Not below what the machine has CPUs: from there on only invalid runs prove that it is too much.
            self._allowed = max(min(self._allowed, self._floor), min(self._allowed, running) - 1)
        # Only what is in use proves anything about one more.
        if self._grows and running >= self.allowed and now_s >= self._rests_until_s and self._has_room():
            # As many as would fit if the new ones took what the present ones take, but half of them at first: cells
            # that have just begun have not shown what they take.
            fit = running * (rules.room / max(self._busy, 0.02) - 1) / 2
            self._allowed = min(float(self._most), self._allowed + min(max(0.5, fit), max(2.0, self._allowed / 4)))

    def _has_room(self) -> bool:
        assert self._busy is not None
        return self._busy < self._rules.room and self._withheld() < self._rules.stolen / 2

    def _withheld(self) -> float:
        """Stolen time over all that was asked for."""
        assert self._busy is not None
        asked = self._busy + self._niced + self._stolen
        return self._stolen / asked if self._stolen > self._rules.stolen_grain else 0.0

    def _hold(self, now_s: float, withheld: float) -> None:
        rules = self._rules
        if withheld < rules.hold:
            self._held_since_s = None
        elif self._held_since_s is None and now_s >= self._tries_until_s:
            self._held_since_s = now_s
        elif self._held_since_s is not None and now_s - self._held_since_s >= rules.hold_s:
            self._held_since_s = None
            self._tries_until_s = now_s + rules.hold_s

    def on_run(self, now_s: float, strain: float, beside: int) -> None:
        """A finished run.

        Args:
            now_s: as in `on_reading`.
            strain: what other programs did to it, over the limit; above 1 that made it invalid.
            beside: cells that were at work on the machine while it ran, its own among them.
        """
        rules = self._rules
        if self._busy is not None and self._withheld() >= rules.stolen:
            return  # a calibration that the host spoils has no measure of who did it; `on_reading` sees to it
        cost = 1.0 if strain > 1 else 0.5 if strain > rules.strained else 0.0
        self._invalid += rules.memory * (cost - self._invalid)
        if strain > 1 and self._invalid > rules.tolerated:
            self._allowed = max(1.0, min(self._allowed, beside * rules.back_off))
        if cost and self._invalid > rules.tolerated / 2:
            self._rests_until_s = now_s + rules.rest_s


def most_cells(memory_bytes: int, rules: Rules = RULES) -> int:
    """Cells that a machine's free memory holds, with a quarter of it left alone."""
    return max(1, int(memory_bytes * 0.75 / rules.cell_bytes))
