"""Workloads of packets on real packets and in simulation: the same packets, and what applications experience agrees."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis import exchanges
from experiments.engine.execution import analyse
from testbed.cell import Cell
from testbed.report import Report
from tests.conftest import two_hosts, typed
from tests.sim.testbed.test_simulation import simulate

pytestmark = [pytest.mark.slow("tests/virtual_kernel has every workload"), pytest.mark.emulated]

#: Neither fills the line alone. Key frames of the video wait in its queue and are lost there when they are long.
WORKLOADS: dict[str, dict[str, Any]] = {
    "video": {"kind": "video", "options": {"rate_bps": 1_000_000, "key_frame_every": 15, "key_frame_ratio": 8}},
    "udp": {"kind": "probe", "options": {"interval_s": 0.02}},
    "icmp": {"kind": "probe", "options": {"interval_s": 0.02, "protocol": "icmp"}},
    "icmp-6": {"kind": "probe", "ip": 6, "options": {"interval_s": 0.02, "protocol": "icmp"}},
}
PROBES = ("udp", "icmp", "icmp-6")


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
        "sim": (base / "sim", Report.read(simulate(simulated, base / "sim"))),
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
    # They take as long, but for what the machine's timers add.
    for end in ("arrived_s", "returned_s") if name in PROBES else ("arrived_s",):
        assert sim[end].null_count() == pytest.approx(emulated[end].null_count(), abs=3)
        differences = ((emulated[end] - emulated["sent_s"]) - (sim[end] - sim["sent_s"])).abs()
        median = differences.median()
        assert isinstance(median, float)
        assert median < 0.002


def test_metrics_agree(folders: dict[str, tuple[Path, Report]]) -> None:
    emulated, sim = (analyse(folder, typed(scenario()), report).values for folder, report in folders.values())
    names = ("video_frames_in_time", "video_frozen", "video_frame_delay_p50", "video_frame_delay_p95", "throughput")
    asked = [(name, "video") for name in names]
    asked += [
        (name, probe)
        for probe in PROBES
        for name in ("latency_p50", "latency_p95", "latency_p99", "delay_forward", "delay_reverse", "packet_loss")
    ]
    for key in asked:
        assert emulated[key] == pytest.approx(sim[key], rel=0.1, abs=0.004), key
    # Long frames wait for their last packet.
    assert sim["video_frame_delay_p95", "video"] > 1.5 * sim["video_frame_delay_p50", "video"] > 0.03


@pytest.mark.parametrize(("name", "protocol", "request_type"), [("icmp", "icmp", 8), ("icmp-6", "icmpv6", 128)])
@pytest.mark.parametrize("backend", ["emulated", "sim"])
def test_captures_show_the_probes_that_are_recorded(
    name: str, protocol: str, request_type: int, backend: str, folders: dict[str, tuple[Path, Report]]
) -> None:
    """By identifier and sequence number, at the interface of the sender."""
    folder, report = folders[backend]
    flow = typed(scenario()).flow(name)
    table = exchanges.read(folder, flow)
    assert table is not None
    identifier = f"{protocol}.{'echo.identifier' if protocol == 'icmpv6' else 'ident'}"
    sequence = f"{protocol}.{'echo.sequence_number' if protocol == 'icmpv6' else 'seq'}"
    words = [
        "tshark", "-r", str(next((folder / "captures").glob("a-eth0.pcap*"))), "-T", "fields", "-e", "frame.time_epoch",
        "-e", f"{protocol}.type", "-e", sequence, "-Y", f"{identifier} == {flow.port}",
    ]  # fmt: skip
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    times: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for at, type_, number in (line.split("\t") for line in lines):
        times[int(type_) != request_type][int(number)] = float(at)
    captured = {number: times[True][number] - at for number, at in times[False].items() if number in times[True]}
    rows = table.drop_nulls("returned_s").to_dicts()
    returned_s = {row["seq"]: row["returned_s"] for row in rows}
    recorded = {row["seq"]: row["returned_s"] - row["sent_s"] for row in rows}
    # Replies are captured after the run's end too; of those within a millisecond of it the two clocks may differ.
    zero_s = report.t0_epoch_ns / 1e9
    last_s = typed(scenario()).duration_s - 0.001
    captured = {number: took for number, took in captured.items() if times[True][number] - zero_s < last_s}
    assert captured.keys() <= recorded.keys()
    assert all(returned_s[number] >= last_s for number in recorded.keys() - captured.keys())
    assert len(captured) > 250
    differences = sorted(abs(captured[number] - recorded[number]) for number in captured)
    assert differences[len(differences) // 2] < 0.001
