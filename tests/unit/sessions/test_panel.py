"""The panel of a running session."""

from __future__ import annotations

from rich.console import Console

from experiments.sessions import panel
from experiments.sessions.state import DeclaredDirection, SessionState
from testbed.report import DirectionStatus


def state(passed_s: float, sent_bytes: int, queue_packets: int = 0) -> SessionState:
    now = DirectionStatus(
        submitted_packets=9, delivered_packets=5, transmitted_bytes=sent_bytes, queue_packets=queue_packets,
        queue_bytes=0, events={"lost": 2, "dropped_full": 3},
    )  # fmt: skip
    declared = DeclaredDirection(rate_bps=1_000_000, delay_s=0.02, policy="droptail")
    unlimited = DeclaredDirection(rate_bps=None, delay_s=0.0, policy="codel")
    return SessionState(
        name="s1", label="[bold] cable", host="left", started=0.0, changes=(), passed_s=passed_s, recorded_bytes=1,
        links={"line": {"forward": now, "reverse": now}},
        declared={"line": {"forward": declared, "reverse": unlimited}},
    )  # fmt: skip


def printed(now: SessionState, before: SessionState | None, *more: str) -> list[str]:
    """Lines of the panel without the spaces of its columns."""
    console = Console(width=120)
    with console.capture() as capture:
        panel.show(console, now, before, *more)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_the_throughput_is_that_since_the_state_before() -> None:
    head, columns, forward, reverse = printed(state(10.0, 500_000, 7), None)
    assert head == "session s1: host left behind [bold] cable, 10 s, recording, 0 changes"
    assert columns == "direction rate delay policy now queue dropped lost"
    assert forward == "line forward 1 Mbit/s 20 ms droptail 400 kbit/s 7 packets 3 2"
    assert reverse == "line reverse unlimited 0 s codel 400 kbit/s 7 packets 3 2"
    later = printed(state(12.0, 750_000), state(10.0, 500_000), "device [02:bc] 10.0.0.2")
    assert later[2] == "line forward 1 Mbit/s 20 ms droptail 1 Mbit/s 0 packets 3 2"
    assert later[-1] == "device [02:bc] 10.0.0.2"
