"""Files of link telemetry: one JSON object a line, in order of time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def merge(parts: Sequence[Path], to: Path) -> None:
    """Merges files in order of time into one, which may be one of them, and removes the others."""
    lines = [line for part in parts for line in part.read_text().splitlines()]
    lines.sort(key=lambda line: int(json.loads(line)["t_ns"]))
    to.write_text("".join(f"{line}\n" for line in lines))
    for part in parts:
        if part != to:
            part.unlink()
