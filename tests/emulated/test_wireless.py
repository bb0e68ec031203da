"""The shared medium and the base station's recovery with real packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.cell import Cell
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import queue, typed

pytestmark = pytest.mark.emulated


def test_snoop_hides_the_losses_of_the_air_from_a_kernels_sender(kernel: Kernel, tmp_path: Path) -> None:
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
    report = VirtualMachine(kernel).run(typed(scenario), tmp_path, lambda progress: None).as_json()
    events = report["driver"]["links"]["air"]["forward"]["events"]
    assert events["damaged"] > 10
    assert events["link_retransmit"] >= events["damaged"] - 3
    assert events["purged"] > events["link_retransmit"]
    flow = report["flows"]["bulk"]
    assert flow["receive"]["payload_ok"]
    # 12 s at close to 1.4 Mbit/s; without the base station's help it is half of that.
    assert flow["receive"]["bytes"] * 8 / 12 > 1_150_000


def splitting(air: dict[str, Any], wire: dict[str, Any], box: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Kernels on both hosts; at the base station between them, two connections of the research stack for each flow."""
    stack = {"name": "reno", "options": {}}
    return {
        "version": 1,
        "seed": 5,
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
                "name": "air", "kind": "point-to-point", "ends": ["base", "mobile"], "forward": air, "reverse": air,
                "options": {}, "middleboxes": [{**box, "end": 0}],
            },
        ],
        "capture": {"snaplen": 64, "at": ["none"]},
        **changes,
    }  # fmt: skip


def both_ways(down_bytes: int, up_bytes: int) -> list[dict[str, Any]]:
    """Downloads that the server opens, and uploads that the mobile host opens, at once."""
    flow = {"kind": "bulk", "start_s": 0.0}
    return [
        {**flow, "name": "down", "from": "server", "to": "mobile", "port": 5001, "bytes": down_bytes},
        {**flow, "name": "up", "from": "mobile", "to": "server", "port": 5002, "bytes": up_bytes},
    ]


def check_whole(report: dict[str, Any], sizes: dict[str, int]) -> None:
    """The receiver read what the sender wrote, byte for byte, and both ends closed in order."""
    for name, size in sizes.items():
        flow = report["flows"][name]
        assert flow["receive"]["payload_ok"], name
        assert flow["receive"]["blake3"] == flow["send"]["blake3"], name
        assert (flow["receive"]["bytes"], flow["send"]["bytes"]) == (size, size), name
        assert (flow["receive"]["end"], flow["send"]["outcome"]) == ("finished", "completed"), name


@pytest.mark.parametrize("box", ["split", "split-smart"])
def test_split_connections_on_a_lossy_wavelan_are_whole_and_hide_the_losses(
    kernel: Kernel, tmp_path: Path, box: str
) -> None:
    air = {
        "rate_bps": 2_000_000,
        "delay_s": 0.0005,
        "queue": queue(limit_packets=100),
        "errors": [{"name": "exponential", "options": {"mean_bytes": 65_536}}],
    }
    wire = {"rate_bps": 10_000_000, "delay_s": 0.001, "queue": queue(limit_packets=100)}
    sizes = {"down": 800_000, "up": 100_000}
    made = splitting(air, wire, {"name": box, "options": {}}, duration_s=20.0, workload=both_ways(*sizes.values()))
    made["links"][1]["kind"] = "wavelan"
    report = VirtualMachine(kernel).run(typed(made), tmp_path, lambda progress: None).as_json()
    check_whole(report, sizes)
    events = report["driver"]["links"]["air"]["forward"]["events"]
    assert events["damaged"] > 5
    assert events["link_retransmit"] >= events["damaged"] - 5
    # The wired part loses nothing.
    assert report["flows"]["down"]["send"]["tcp_info"]["retransmitted_segments"] == 0


def test_split_connections_are_whole_whatever_a_fast_line_does(tmp_path: Path) -> None:
    named = [
        {"name": "uniform", "options": {"probability": 0.001}},
        {"name": "uniform", "options": {"probability": 0.001, "effect": "damage"}},
        {"name": "reorder", "options": {"probability": 0.002, "delay_s": 0.002}},
        {"name": "duplicate", "options": {"probability": 0.002}},
    ]
    air = {"rate_bps": 100_000_000, "delay_s": 0.0003, "queue": queue(limit_packets=200), "errors": named}
    wire = {"rate_bps": 100_000_000, "delay_s": 0.0003, "queue": queue(limit_packets=200), "errors": named}
    box = {"name": "split", "options": {"buffer_bytes": 262_144, "wired": "modern", "wireless": "sack"}}
    sizes = {"down": 10_000_000, "up": 10_000_000}
    made = splitting(air, wire, box, duration_s=60.0, workload=both_ways(*sizes.values()))
    with Cell("split-fast") as cell:
        cell.build(typed(made))
        report = cell.run(typed(made), tmp_path).as_json()
    check_whole(report, sizes)
    for link in report["driver"]["links"].values():
        for direction in ("forward", "reverse"):
            events = link[direction]["events"]
            assert all(events[kind] > 3 for kind in ("lost", "damaged", "reordered", "duplicated")), events
