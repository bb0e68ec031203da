"""What the tests share: tests that need the emulated backend, and the scenario they run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from testbed.capability import missing_for_emulation


@pytest.fixture(scope="session")
def emulation() -> None:
    """Skips, with the reason, where the emulated backend cannot run; in CI that is a failure."""
    missing = missing_for_emulation()
    if missing and os.environ.get("CI"):
        pytest.fail("emulated tests must run in CI, but " + "; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `emulated` asks for the fixture by itself."""
    for item in items:
        if item.get_closest_marker("emulated"):
            item.fixturenames.append("emulation")  # type: ignore[attr-defined]


def queue(name: str = "droptail", **options: Any) -> dict[str, Any]:
    """A queue policy as scenarios have it."""
    return {"name": name, "options": options}


def two_hosts(
    rate_bps: int = 1_000_000, delay_s: float = 0.01, duration_s: float = 3.0, seed: int = 1
) -> dict[str, Any]:
    """Two hosts on one line, with one bulk flow: the smallest scenario there is."""
    direction = {"rate_bps": rate_bps, "delay_s": delay_s, "queue": queue(limit_packets=50)}
    stack = {"name": "reno", "options": {}}
    return {
        "version": 1,
        "seed": seed,
        "duration_s": duration_s,
        "nodes": [
            {"name": "a", "kind": "host", "stack": stack},
            {"name": "b", "kind": "host", "stack": stack},
        ],
        "links": [
            {
                "name": "line", "kind": "point-to-point", "ends": ["a", "b"],
                "forward": direction, "reverse": direction, "options": {},
            }
        ],
        "workload": [{"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5001}],
        "capture": {"snaplen": 128, "at": []},
    }  # fmt: skip
