"""Workloads of packets on real packets and in simulation: the same packets, and what applications experience agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import exchanges
from experiments.engine.execution import analyse
from testbed.cell import Cell
from testbed.report import Report
from tests.conftest import two_hosts, typed
from tests.testbed.test_simulation import simulate

pytestmark = pytest.mark.emulated

#: Neither fills the line alone. Key frames of the video wait in its queue and are lost there when they are long.
WORKLOADS: dict[str, dict[str, Any]] = {
    "video": {"kind": "video", "options": {"rate_bps": 1_000_000, "key_frame_every": 15, "key_frame_ratio": 8}},
}


def scenario() -> dict[str, Any]:
    made = two_hosts(rate_bps=3_000_000, delay_s=0.02, duration_s=6.0, seed=3)
    made["workload"] = [
        {"name": name, "from": "a", "to": "b", "start_s": 0.2, "port": 5001 + number, **rest}
        for number, (name, rest) in enumerate(WORKLOADS.items())
    ]
    return made


@pytest.fixture(scope="module")
def folders(emulation: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report]]:
    base = tmp_path_factory.mktemp("workloads")
    made = typed(scenario())
    simulated = scenario()
    for node in simulated["nodes"]:
        node["stack"] = {"name": "sack", "options": {}}
    with Cell("workloads") as cell:
        cell.build(made)
        report = cell.run(made, base / "emulated")
    return {
        "emulated": (base / "emulated", report),
        "sim": (base / "sim", Report.model_validate(simulate(simulated, base / "sim"))),
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_send_the_same_packets_which_take_as_long(name: str, folders: dict[str, tuple[Path, Report]]) -> None:
    flow = typed(scenario()).flow(name)
    tables = [exchanges.read(folder, flow) for folder, _ in folders.values()]
    # What is due at the very end is sent in simulation only.
    count = min(table.height for table in tables if table is not None)
    assert count > 100
    emulated, sim = (table.head(count - 30) for table in tables if table is not None)
    for column in ("seq", "frame", "bytes"):
        assert emulated[column].to_list() == sim[column].to_list(), column
    # The same ones are lost in the queue, and the others take as long, but for what the machine's timers add.
    assert sim["arrived_s"].null_count() == pytest.approx(emulated["arrived_s"].null_count(), abs=3)
    differences = ((emulated["arrived_s"] - emulated["sent_s"]) - (sim["arrived_s"] - sim["sent_s"])).abs()
    median = differences.median()
    assert isinstance(median, float)
    assert median < 0.002


def test_metrics_agree(folders: dict[str, tuple[Path, Report]]) -> None:
    emulated, sim = (analyse(folder, typed(scenario()), report).values for folder, report in folders.values())
    names = ("video_frames_in_time", "video_frozen", "video_frame_delay_p50", "video_frame_delay_p95", "throughput")
    asked = [(name, "video") for name in names]
    for key in asked:
        assert emulated[key] == pytest.approx(sim[key], rel=0.1, abs=0.003), key
    # Long frames wait for their last packet.
    assert sim["video_frame_delay_p95", "video"] > 1.5 * sim["video_frame_delay_p50", "video"] > 0.03
