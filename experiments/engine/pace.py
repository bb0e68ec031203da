"""How fast this machine makes runs: what forecasts in a new results folder start from.

The file has, for each backend, what the latest runs took and stored, over what the model of forecast.py says of them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed import build_cache

_FILE = "runs.json"
#: Runs that what was known before counts for at most: the machine may have changed.
MOST_BEFORE = 30


@dataclass(frozen=True)
class Pace:
    """Measured over modelled."""

    time: float = 1.0
    bytes: float = 1.0
    #: Runs that it was measured over; 0: none were.
    runs: int = 0


#: Nothing is known of this machine.
UNMEASURED = Pace()


def of(backend: str) -> Pace:
    """The pace of a backend on this machine."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = _read()[backend]
        return Pace(float(known["time"]), float(known["bytes"]), int(known["runs"]))
    return UNMEASURED


def keep(backend: str, pace: Pace) -> None:
    """Keeps the pace of a backend, as a mean with what was known, by runs. A cache that cannot be written changes
    nothing.
    """
    before, known = of(backend), {}
    weight = min(before.runs, MOST_BEFORE)
    total = weight + pace.runs
    if total:
        pace = Pace(
            (before.time * weight + pace.time * pace.runs) / total,
            (before.bytes * weight + pace.bytes * pace.runs) / total,
            total,
        )
    with suppress(OSError, ValueError):
        known = _read()
    with suppress(OSError):
        file = _place()
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(known | {backend: asdict(pace)}))
        new.replace(file)


def _place() -> Path:
    return build_cache.place("pace") / _FILE


def _read() -> dict[str, dict[str, Any]]:
    return dict(json.loads(_place().read_text()))
