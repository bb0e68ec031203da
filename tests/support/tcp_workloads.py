"""Every workload of TCP on one line, and what its applications experienced on two backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import exchanges
from testbed.report import Report
from tests.conftest import two_hosts, typed

#: Those that record exchanges, and those that do not.
RECORDED: dict[str, dict[str, Any]] = {
    "web": {"options": {"mean_bytes": 10_000}},
    "transfers": {"options": {"sizes": "exponential", "mean_bytes": 20_000}},
    "fetch": {"bytes": 40_001},
    "transactions": {"options": {"response_bytes": 3000}},
}
OTHERS: dict[str, dict[str, Any]] = {"bulk": {"bytes": 200_000}, "established": {"bytes": 100_000}, "on-off": {}}
#: The research stack with the first window of Linux.
RESEARCH = {"name": "sack", "options": {"initial_window_segments": 10}}


def scenario(*stacks: dict[str, Any]) -> dict[str, Any]:
    """All of them, between hosts with these stacks. Packets of one instant would be sent in the order of programs."""
    made = two_hosts(rate_bps=8_000_000, delay_s=0.02, duration_s=6.0, seed=3)
    for node, stack in zip(made["nodes"], stacks, strict=True):
        node["stack"] = stack
    made["workload"] = [
        {"name": kind, "kind": kind, "from": "a", "to": "b", "start_s": 0.5 + number / 4, "port": 5001 + number, **rest}
        for number, (kind, rest) in enumerate({**RECORDED, **OTHERS}.items())
    ]
    return made


def check_same(real: tuple[Path, Report], simulated: tuple[Path, Report], late_s: float) -> None:
    """The same exchanges with the same bytes, begun and arrived as late as in simulation or `late_s` later."""
    made = typed(scenario(RESEARCH, RESEARCH))
    for kind in RECORDED:
        tables = [exchanges.read(folder, made.flow(kind)) for folder, _ in (real, simulated)]
        ours, sim = (table for table in tables if table is not None)
        # What is due at the very end of the run is sent in simulation only, and transactions follow from each other.
        assert abs(ours.height - sim.height) <= (2 if kind == "transactions" else 1), kind
        count = min(ours.height, sim.height)
        assert count == (4 if kind == "fetch" else count) > 2, kind
        ours, sim = ours.head(count), sim.head(count)
        assert ours["bytes"].to_list() == sim["bytes"].to_list(), kind
        # A transaction begins when all before it are over.
        late = (ours["sent_s"] - sim["sent_s"]).abs().max()
        assert isinstance(late, float)
        assert late < late_s * (count if kind == "transactions" else 1), kind
        early = pl.col("sent_s") < 5.0
        assert ours.filter(early)["arrived_s"].null_count() == sim.filter(early)["arrived_s"].null_count() == 0, kind
        took, expected = ((table["arrived_s"] - table["sent_s"]).median() for table in (ours, sim))
        assert took == pytest.approx(expected, abs=late_s), kind
    reports = [report.flows for _, report in (real, simulated)]
    for kind in RECORDED | OTHERS:
        assert all(report[kind].receive.payload_ok for report in reports), kind
        received = [report[kind].receive.bytes for report in reports]
        assert received[0] == pytest.approx(received[1], rel=0.05) if kind in RECORDED else received[0] == received[1]
