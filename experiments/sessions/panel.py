"""A running session as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.store.documents import SessionChange
from experiments.sessions.state import SessionState
from testbed import units

_HEAD = ("direction", "rate", "delay", "policy", "now", "queue", "dropped", "lost")
_WIDTHS = (18, 14, 15, 14, 14, 16, 9, 9)


def text(state: SessionState, before: SessionState | None) -> str:
    """The panel.

    Args:
        state: of the session now.
        before: an earlier state, since which the throughput is counted; None: the mean since the start is shown.
    """
    record = "recording" if state.recorded_bytes is not None else "the record has ended"
    lines = [
        f"session {state.name}: host {state.host} behind {state.label}, {state.passed_s:.0f} s, "
        f"{record}, {len(state.changes)} changes",
        _row(_HEAD),
    ]
    elapsed_s = state.passed_s - before.passed_s if before else state.passed_s
    for link, directions in state.links.items():
        for way, now in directions.items():
            sent = now.transmitted_bytes - (before.links[link][way].transmitted_bytes if before else 0)
            rate_bps = sent * 8 / elapsed_s if elapsed_s > 0 else 0.0
            declared = state.declared[link][way]
            rate = declared.rate_bps
            lines.append(
                _row((
                    f"{link} {way}", "unlimited" if rate is None else units.show(rate, "rate"),
                    units.show_delay(declared.delay_s, declared.jitter_s), declared.policy,
                    units.show(rate_bps, "rate"), f"{now.queue_packets} packets", str(now.dropped_packets),
                    str(now.events.get("lost", 0)),
                ))
            )  # fmt: skip
    return "\n".join(lines)


def change_text(change: SessionChange) -> str:
    """One change as a sentence."""
    fields = ", ".join(f"{name} {_value(value)}" for name, value in change.fields.items())
    return f"at {change.at_s:.3f} s, {change.link} {change.direction}: {fields}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(_value(part) for part in value.values())
    if isinstance(value, list):
        return "; ".join(map(_value, value)) or "none"
    return str(value)


def _row(cells: tuple[str, ...]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
