"""The shared medium and split connections with real packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.cell import Cell
from tests.conftest import ATTEMPTS, queue, typed
from tests.real.test_research import LOSSY
from tests.support import quiet
from tests.support.split_connections import both_ways, check_whole, splitting

pytestmark = pytest.mark.emulated


def test_the_shared_medium_calibrates() -> None:
    """Times on the shared medium include its overhead, and so does what the calibration holds them against."""
    air = {"rate_bps": 2_000_000, "delay_s": 0.0005, "queue": queue(limit_packets=100)}
    wire = {"rate_bps": 10_000_000, "delay_s": 0.001, "queue": queue(limit_packets=100)}
    made = splitting(air, wire, {"name": "split", "options": {}}, duration_s=1.0, workload=both_ways(1000, 1000))
    made["links"][1]["kind"] = "wavelan"
    problems: list[Any] = []
    with Cell("medium") as cell:
        cell.build(typed(made))
        for _ in quiet.attempts(ATTEMPTS):
            measured = cell.calibrate(typed(made))
            assert {(entry.link, entry.direction) for entry in measured} >= {("air", "forward"), ("air", "reverse")}
            problems = [problem for entry in measured for problem in entry.problems]
            if not problems:
                break
    assert problems == []


def test_split_connections_are_whole_whatever_a_fast_line_does(tmp_path: Path) -> None:
    line = {"rate_bps": 100_000_000, "delay_s": 0.0003, "queue": queue(limit_packets=200), **LOSSY}
    box = {"name": "split", "options": {"buffer_bytes": 262_144, "wired": "modern", "wireless": "sack"}}
    sizes = {"down": 10_000_000, "up": 10_000_000}
    made = splitting(line, line, box, duration_s=60.0, workload=both_ways(*sizes.values()))
    with Cell("split-fast") as cell:
        cell.build(typed(made))
        report = cell.run(typed(made), tmp_path).as_json()
    check_whole(report, sizes)
    for link in report["driver"]["links"].values():
        for direction in ("forward", "reverse"):
            events = link[direction]["events"]
            assert all(events[kind] > 3 for kind in ("lost", "damaged", "reordered", "duplicated")), events
