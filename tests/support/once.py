"""What all processes of a session need: the first that asks for it does it, the others read the result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from testbed import build_cache


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON has it. If it raises, the next process that asks calls it again."""
    base = folders.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with build_cache.locked(shared, f"lock-{name}"):
        file = shared / f"{name}.json"
        if not file.exists():
            file.write_text(json.dumps(make()))
    return json.loads(file.read_text())
