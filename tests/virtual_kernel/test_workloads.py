"""Workloads on Linux in virtual time and in simulation: the same draws, and what applications experience agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import exchanges
from experiments.engine.execution import analyse
from testbed.report import Report
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import two_hosts, typed
from tests.sim.testbed.test_simulation import simulate
from tests.support import tcp_workloads
from tests.support.traces.readers import tshark_fields

#: One of each, on a line that none of them fills, so that what differs is the driver's doing.
WORKLOADS: dict[str, dict[str, Any]] = {
    "probe": {"options": {"interval_s": 0.02}},
    "icmp": {"kind": "probe", "options": {"interval_s": 0.02, "protocol": "icmp"}},
    "icmp-6": {"kind": "probe", "ip": 6, "options": {"interval_s": 0.02, "protocol": "icmp"}},
    "cbr": {"options": {"rate_bps": 50_000, "packet_bytes": 500}},
    "call": {"options": {"codec": "g729"}},
    "video": {"options": {"rate_bps": 300_000, "key_frame_every": 30}},
    **tcp_workloads.RECORDED,
}
METRICS = (
    "throughput", "latency_p50", "latency_p95", "responsiveness", "delay_forward", "delay_reverse", "packet_loss",
    "call_rating", "call_delay", "flow_completion_p50", "video_frames_in_time", "video_frozen", "video_frame_delay_p50",
    "video_frame_delay_p95",
)  # fmt: skip


def scenario() -> dict[str, Any]:
    made = two_hosts(rate_bps=8_000_000, delay_s=0.02, duration_s=6.0, seed=3)
    made["workload"] = [
        {"name": kind, "kind": kind, "from": "a", "to": "b", "start_s": 0.5, "port": 5001 + number, **rest}
        for number, (kind, rest) in enumerate(WORKLOADS.items())
    ]
    return made


@pytest.fixture(scope="module")
def folders(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report]]:
    base = tmp_path_factory.mktemp("workloads")
    simulated = scenario()
    for node in simulated["nodes"]:
        node["stack"] = tcp_workloads.RESEARCH
    return {
        "linux": (base / "linux", VirtualMachine(kernel).run(typed(scenario()), base / "linux", lambda progress: None)),
        "sim": (base / "sim", Report.read(simulate(simulated, base / "sim"))),
    }


def recorded(folders: dict[str, tuple[Path, Report]], kind: str) -> list[pl.DataFrame]:
    flow = typed(scenario()).flow(kind)
    tables = [exchanges.read(folder, flow) for folder, _ in folders.values()]
    assert all(table is not None for table in tables)
    return [table for table in tables if table is not None]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_both_begin_the_same_exchanges(kind: str, folders: dict[str, tuple[Path, Report]]) -> None:
    linux, sim = recorded(folders, kind)
    # What is due at the very end of the run is sent in simulation only, and transactions follow from each other.
    assert abs(linux.height - sim.height) <= 1
    count = min(linux.height, sim.height)
    linux, sim = linux.head(count), sim.head(count)
    assert sim.height == (4 if kind == "fetch" else sim.height) > 2
    assert linux["bytes"].to_list() == sim["bytes"].to_list()
    assert linux["frame"].to_list() == sim["frame"].to_list()
    # Kernel work takes no virtual time but what clocks take; a fetch waits for a request over another handshake.
    late = (linux["sent_s"] - sim["sent_s"]).abs().max()
    assert isinstance(late, float)
    assert late < (0.02 if kind == "fetch" else 0.1 if kind == "transactions" else 0.001)


@pytest.mark.parametrize("kind", ["probe", "icmp", "icmp-6", "cbr", "call", "video"])
def test_packets_take_as_long(kind: str, folders: dict[str, tuple[Path, Report]]) -> None:
    linux, sim = (table.filter(pl.col("sent_s") < 5.9) for table in recorded(folders, kind))
    # A packet of about that time may be sent before it in one of them only.
    count = min(linux.height, sim.height)
    linux, sim = linux.head(count), sim.head(count)
    assert linux["arrived_s"].null_count() == sim["arrived_s"].null_count() == 0
    # Other flows' packets, whose number the stacks choose, wait in the same queue.
    differences = ((linux["arrived_s"] - linux["sent_s"]) - (sim["arrived_s"] - sim["sent_s"])).abs()
    median = differences.median()
    assert isinstance(median, float)
    assert median < 0.0005
    assert linux["returned_s"].null_count() == (0 if kind in ("probe", "icmp", "icmp-6") else linux.height)


@pytest.mark.parametrize(("name", "protocol", "request_type"), [("icmp", "icmp", 8), ("icmp-6", "icmpv6", 128)])
@pytest.mark.parametrize("backend", ["linux", "sim"])
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
    capture = next((folder / "captures").glob("a-eth0.pcap*"))
    columns = ("frame.time_epoch", f"{protocol}.type", sequence)
    times: dict[bool, dict[int, float]] = {False: {}, True: {}}
    for at, type_, number in tshark_fields(capture, columns, "-Y", f"{identifier} == {flow.port}"):
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


def test_a_line_counts_the_packets_of_udp(kernel: Kernel, tmp_path: Path) -> None:
    """100 packets of 500 bytes a second for 4 s, on a line of 8 Mbit/s."""
    made = two_hosts(rate_bps=8_000_000, delay_s=0.02, duration_s=5.0, seed=3)
    made["workload"] = [
        {"name": "cbr", "kind": "cbr", "from": "a", "to": "b", "start_s": 0.5, "stop_s": 4.5, "port": 5001,
         "options": {"rate_bps": 400_000, "packet_bytes": 500}}
    ]  # fmt: skip
    report = VirtualMachine(kernel).run(typed(made), tmp_path, lambda progress: None)
    values = analyse(tmp_path, typed(made), report, others=True).values
    line = f"{made['links'][0]['name']}/forward"
    assert values["carried_other", line] == pytest.approx(400 * 500 * 8 / 5, rel=0.01)
    assert values["carried_data", line] == 0


def test_metrics_agree(folders: dict[str, tuple[Path, Report]]) -> None:
    linux, sim = (analyse(folder, typed(scenario()), report).values for folder, report in folders.values())
    asked = [key for key in sim if key[0] in METRICS and key[1] in WORKLOADS]
    assert {name for name, _ in asked} == set(METRICS)
    # Linux acknowledges otherwise than a BSD receiver, so completion times may differ by a round trip.
    apart = {
        key: (linux[key], sim[key])
        for key in asked
        if linux[key] != pytest.approx(sim[key], rel=0.25 if "completion" in key[0] else 0.05, abs=1e-3)
        and not (key[0] == "throughput" and key[1] in ("web", "transfers", "fetch"))
        # One exchange in twenty meets a burst of another flow, whose length the stacks choose.
        and key != ("latency_p95", "transactions")
    }
    assert not apart


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain", marks=pytest.mark.slow("as with TLS, and less of it")),
        pytest.param({"session": "tls"}, id="tls"),
    ],
)
def test_quic_carries_every_workload_as_in_simulation(options: dict[str, Any], kernel: Kernel, tmp_path: Path) -> None:
    stack = {"name": "quic", "options": options}
    made = tcp_workloads.scenario(stack, stack)
    real = VirtualMachine(kernel).run(typed(made), tmp_path / "real", lambda progress: None)
    sim = Report.read(simulate(made, tmp_path / "sim"))
    tcp_workloads.check_same((tmp_path / "real", real), (tmp_path / "sim", sim), late_s=0.0005)


LINUX = {"name": "cubic", "options": {}}


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param((tcp_workloads.RESEARCH, tcp_workloads.RESEARCH), id="research"),
        pytest.param((tcp_workloads.RESEARCH, LINUX), id="to-linux"),
        pytest.param(
            (LINUX, tcp_workloads.RESEARCH), id="from-linux", marks=pytest.mark.slow("as to Linux, the other way round")
        ),
    ],
)
def test_the_research_stack_carries_every_workload_as_in_simulation(
    stacks: tuple[dict[str, Any], dict[str, Any]], kernel: Kernel, tmp_path: Path
) -> None:
    simulated = tcp_workloads.scenario(tcp_workloads.RESEARCH, tcp_workloads.RESEARCH)
    made = typed(tcp_workloads.scenario(*stacks))
    real = VirtualMachine(kernel).run(made, tmp_path / "real", lambda progress: None)
    sim = Report.read(simulate(simulated, tmp_path / "sim"))
    # Linux acknowledges and sends otherwise than BSD.
    late_s = 0.05 if LINUX in stacks else 0.0005
    tcp_workloads.check_same((tmp_path / "real", real), (tmp_path / "sim", sim), late_s)
