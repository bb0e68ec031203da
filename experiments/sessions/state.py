"""What a running session answers to `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.store.documents import SessionChange
from experiments.sessions import control
from testbed.documents import Part
from testbed.report import SessionStatus
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


def read_state(name: str) -> SessionState:
    """The state of a running session.

    Raises:
        TestbedError: there is no such session, or it has ended.
    """
    answer = control.ask(control.only(name), {"op": "status"})
    return SessionState.read({key: value for key, value in answer.items() if key != "ok"})


def change(name: str, link: str | None, words: Sequence[str]) -> list[SessionChange]:
    """Changes a line of a running session.

    Args:
        name: of the session.
        link: name of the link; None: the one under study.
        words: changes such as "forward.rate=2 Mbit/s".

    Raises:
        TestbedError: there is no such session, it has ended, or a change is invalid.
    """
    answer = control.ask(control.only(name), {"op": "set", "link": link, "words": list(words)})
    return [SessionChange.read(made) for made in answer["changes"]]
