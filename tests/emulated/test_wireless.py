"""The shared medium and the base station's recovery with real packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cell import Cell
from tests.conftest import queue

pytestmark = pytest.mark.emulated


def test_snoop_hides_the_losses_of_the_air_from_a_kernels_sender(tmp_path: Path) -> None:
    lossy = {
        "rate_bps": 2_000_000,
        "delay_s": 0.0005,
        "queue": queue(limit_packets=100),
        "errors": [{"name": "exponential", "options": {"mean_bytes": 65_536}}],
    }
    wire = {"rate_bps": 10_000_000, "delay_s": 0.001, "queue": queue(limit_packets=100)}
    stack = {"name": "reno", "options": {"sack": False, "receive_buffer_bytes": 65_536}}
    scenario = {
        "version": 1,
        "seed": 3,
        "duration_s": 12.0,
        "nodes": [
            {"name": "server", "kind": "host", "stack": stack},
            {"name": "base", "kind": "base-station"},
            {"name": "mobile", "kind": "host", "stack": stack},
        ],
        "links": [
            {
                "name": "wire", "kind": "point-to-point", "ends": ["server", "base"],
                "forward": wire, "reverse": wire, "options": {},
            },
            {
                "name": "air", "kind": "wavelan", "ends": ["base", "mobile"],
                "forward": lossy, "reverse": lossy, "options": {},
                "middleboxes": [{"name": "ll-tcp-aware", "options": {}, "end": 0}],
            },
        ],
        "workload": [{"name": "bulk", "kind": "bulk", "from": "server", "to": "mobile", "start_s": 0.0, "port": 5001}],
        "capture": {"snaplen": 128, "at": []},
    }  # fmt: skip
    with Cell("wireless") as cell:
        cell.build(scenario)
        calibration = cell.calibrate(scenario)
        report = cell.run(scenario, tmp_path)
    # Times on the shared medium include its overhead, and so does what the calibration holds them against.
    assert not [problem for one in calibration for problem in one["problems"]]
    events = report["driver"]["links"]["air"]["forward"]["events"]
    assert events["damaged"] > 10
    assert events["link_retransmit"] >= events["damaged"] - 3
    assert events["purged"] > events["link_retransmit"]
    flow = report["flows"]["bulk"]
    assert flow["receive"]["payload_ok"]
    # 12 s at close to 1.4 Mbit/s; without the base station's help it is half of that.
    assert flow["receive"]["bytes"] * 8 / 12 > 1_150_000
