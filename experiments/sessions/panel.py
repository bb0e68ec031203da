"""A running session as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed import units
from testbed.report import DirectionStatus

_HEAD = ("direction", "rate", "delay", "policy", "now", "queue", "dropped", "lost")
_WIDTHS = (18, 14, 10, 14, 14, 16, 9, 9)


def text(status: Mapping[str, Any], before: Mapping[str, Any] | None, period_s: float) -> str:
    """The panel.

    Args:
        status: answer of a session to `status`.
        before: the answer a period ago, from which the throughput follows; None: the mean since the start is shown.
        period_s: length of the period.
    """
    record = "recording" if status["recorded_bytes"] is not None else "the record has ended"
    lines = [
        f"session {status['name']}: host {status['host']} behind {status['label']}, {status['passed_s']:.0f} s, "
        f"{record}, {len(status['changes'])} changes",
        _row(_HEAD),
    ]
    elapsed_s = status["passed_s"] - before["passed_s"] if before else status["passed_s"]
    for link, directions in status["links"].items():
        for way, document in directions.items():
            now = DirectionStatus.model_validate(document)
            sent = now.transmitted_bytes
            if before:
                sent -= int(before["links"][link][way]["transmitted_bytes"])
            rate_bps = sent * 8 / elapsed_s if elapsed_s > 0 else 0.0
            declared = status["declared"].get(link, {}).get(way, {})
            rate, delay = declared.get("rate_bps"), declared.get("delay_s", 0.0)
            lines.append(
                _row((
                    f"{link} {way}", "unlimited" if rate is None else units.show(rate, "rate"),
                    units.show(delay, "time"), str(declared.get("policy", "")), units.show(rate_bps, "rate"),
                    f"{now.queue_packets} packets", str(now.dropped_packets), str(now.events.get("lost", 0)),
                ))
            )  # fmt: skip
    return "\n".join(lines)


def change_text(change: Mapping[str, Any]) -> str:
    """One change as a sentence."""
    fields = ", ".join(f"{name} {_value(value)}" for name, value in change["fields"].items())
    return f"at {change['at_s']:.3f} s, {change['link']} {change['direction']}: {fields}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(_value(part) for part in value.values())
    if isinstance(value, list):
        return "; ".join(map(_value, value)) or "none"
    return str(value)


def _row(cells: tuple[str, ...]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
