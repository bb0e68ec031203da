"""What other programs ask of a running session, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agents.rpc import method
from analysis.store.documents import SessionChange
from testbed.documents import Model, Part
from testbed.report import SessionHost, SessionStatus
from testbed.scenario import Named


class DeclaredDirection(Part):
    """What a direction of a line is declared to be now, after all changes."""

    #: None: no limit.
    rate_bps: float | None
    delay_s: float
    jitter_s: float = 0.0
    policy: str
    #: Error models with their options, as in a scenario.
    errors: tuple[Named, ...] = ()

    @property
    def loss(self) -> float | None:
        """Probability that a packet is lost; None where other errors than uniform losses are declared."""
        match self.errors:
            case ():
                return 0.0
            case (Named(name="uniform", options=options),) if options.keys() == {"probability"}:
                return float(options["probability"])
        return None


class SessionState(SessionStatus):
    """A running session: its lines as they are declared now, their counters and queues."""

    name: str
    #: Profile or campaign.
    label: str
    #: Host of the command.
    host: str
    #: Seconds since 1970.
    started: float
    changes: tuple[SessionChange, ...]
    #: By link and direction.
    declared: Mapping[str, Mapping[str, DeclaredDirection]]


class EnteredNode(Model):
    """A node of a session, for a program that enters it."""

    name: str
    #: Of the session: profile or campaign.
    label: str
    #: Process of the session's cell.
    cell_pid: int
    host: SessionHost


class SessionControl(Protocol):
    """The requests to a running session (experiments.sessions.control). Methods raise TestbedError or CampaignError."""

    @method
    def status(self) -> SessionState:
        """Its lines as they are declared now, their counters and queues."""

    @method
    def change(self, link: str | None, words: Sequence[str]) -> tuple[SessionChange, ...]:
        """Changes a line.

        Args:
            link: its name; None: the one under study.
            words: changes such as "forward.rate=2 Mbit/s".
        """

    @method
    def node(self, name: str | None) -> EnteredNode:
        """A node; None: the host of the session's command."""
