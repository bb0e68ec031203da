"""A running session on a terminal."""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table

from experiments.sessions.state import SessionState
from testbed import units

_COLUMNS = ("direction", "rate", "delay", "policy", "now", "queue", "dropped", "lost")


def show(to: Console, state: SessionState, before: SessionState | None, *more: str) -> None:
    """Prints the panel.

    Args:
        to: where it is printed.
        state: of the session now.
        before: an earlier state, since which the throughput is counted; None: the mean since the start is shown.
        more: lines below it.
    """
    record = "recording" if state.recorded_bytes is not None else "the record has ended"
    head = (
        f"session {state.name}: host {state.host} behind {state.label}, {state.passed_s:.0f} s, "
        f"{record}, {len(state.changes)} changes"
    )
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    elapsed_s = state.passed_s - before.passed_s if before else state.passed_s
    for link, directions in state.links.items():
        for way, now in directions.items():
            sent = now.transmitted_bytes - (before.links[link][way].transmitted_bytes if before else 0)
            rate_bps = sent * 8 / elapsed_s if elapsed_s > 0 else 0.0
            declared = state.declared[link][way]
            rate = declared.rate_bps
            table.add_row(
                f"{link} {way}",
                "unlimited" if rate is None else units.show(rate, "rate"),
                units.show_delay(declared.delay_s, declared.jitter_s),
                declared.policy,
                units.show(rate_bps, "rate"),
                f"{now.queue_packets} packets",
                str(now.dropped_packets),
                str(now.events.get("lost", 0)),
            )
    to.print(Group(head, table, *more), highlight=False, markup=False)
