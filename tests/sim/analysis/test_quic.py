"""Flows over QUIC in virtual time: the same bytes in every run, every workload, and what analysis makes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analysis import exchanges, qlog
from analysis.captures import RunData
from analysis.errors import AnalysisError
from analysis.figures.registry import FIGURES, Asked
from analysis.runs import Unmeasured
from experiments.engine.execution import analyse
from testbed.report import Report
from tests.conftest import typed
from tests.sim.testbed import test_simulation
from tests.sim.testbed.test_simulation import digests, simulate
from tests.support import tcp_workloads
from tests.support.traces.readers import tshark_fields

QUIC = {"name": "quic", "options": {}}
BYTES = 1_000_000


def scenario(**options: Any) -> dict[str, Any]:
    """A transfer over QUIC with these options."""
    made = test_simulation.scenario("quic", rate_bps=8_000_000, delay_s=0.01, duration_s=20.0, options=options)
    made["workload"] = [
        {"name": "down", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.5, "port": 5001, "bytes": BYTES}
    ]
    made["capture"] = {"snaplen": 96}
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunData]:
    folder = tmp_path_factory.mktemp("quic")
    made = typed(scenario())
    report = Report.read(simulate(scenario(), folder))
    analyse(folder, made, report)
    return folder, RunData.load(folder, made, report)


@pytest.mark.parametrize("options", [{}, {"session": "tls"}], ids=["plain", "tls"])
def test_the_same_scenario_gives_the_same_bytes_and_another_seed_others(
    options: dict[str, Any], tmp_path: Path
) -> None:
    lossy = scenario(**options)
    lossy["links"][0]["forward"] |= {"errors": [{"name": "uniform", "options": {"probability": 0.02}}]}
    assert simulate(lossy, tmp_path / "1") == simulate(lossy, tmp_path / "2")
    first = digests(tmp_path / "1")
    assert first == digests(tmp_path / "2")
    assert {"qlog/down-sender-40000-client.sqlog", "qlog/down-receiver-40000-server.sqlog"} < set(first)
    assert ("qlog/down-sender-40000-client.keys" in first) == bool(options)
    simulate({**lossy, "seed": 2}, tmp_path / "3")
    other = digests(tmp_path / "3")
    assert all(other[name] != digest for name, digest in first.items() if name.endswith(("pcap", "sqlog", "keys")))


def test_every_workload_of_tcp_is_carried(tmp_path: Path) -> None:
    made = tcp_workloads.scenario(QUIC, QUIC)
    report = Report.read(simulate(made, tmp_path))
    for kind in tcp_workloads.RECORDED:
        table = exchanges.read(tmp_path, typed(made).flow(kind))
        assert table is not None
        assert table.height > 2, kind
        assert table.filter(table["sent_s"] < 5.0)["arrived_s"].null_count() == 0, kind
    for kind in tcp_workloads.OTHERS:
        assert report.flows[kind].receive.payload_ok
    assert (report.flows["bulk"].receive.bytes, report.flows["established"].receive.bytes) == (200_000, 100_000)
    assert report.flows["on-off"].receive.bytes > 0


def test_the_receivers_packets_of_udp_are_the_throughput(run: tuple[Path, RunData]) -> None:
    flow = run[1].flow("down")
    assert set(flow.received["packet_bytes"].unique()) <= set(range(50, 1501))
    assert int((flow.received["packet_bytes"] - flow.received["bytes"]).unique().item()) == 28
    # Stream data, and what QUIC adds: at most 32 bytes of 1472, and the handshake.
    assert BYTES < flow.arrivals["total"][-1] < 1.04 * BYTES
    done_s = flow.completed_s()
    assert done_s is not None
    # The line carries 8 Mbit/s: 1 MB takes a second.
    assert 1.5 < done_s < 2.5
    assert flow.sent_bytes() >= int(flow.received["packet_bytes"].sum())
    acks = flow.ack_times(receiver=False)
    assert 0.4 < acks.len() / flow.received.height < 0.6, "an ack stands for two packets"
    assert (flow.retransmissions(), flow.coarse_timeouts()) == (None, None)


def test_the_log_has_what_the_sender_reports(run: tuple[Path, RunData]) -> None:
    folder, data = run
    flow = data.flow("down")
    assert flow.log is not None
    sent, acked, lost = flow.log.sent.height, int(flow.log.acks["packets"].sum()), flow.log.lost.height
    assert acked >= BYTES / 1440
    assert 0 < lost < 0.2 * sent, "slow start overflows the queue"
    # The last packet closes the connection, and acks are not acknowledged.
    assert 0 <= sent - acked - lost < 10
    rtt_s = flow.rtt_mean_s()
    assert rtt_s is not None
    assert 0.02 < rtt_s < 0.2
    windows = flow.log.metrics["cwnd_bytes"].drop_nulls()
    assert windows[0] == 10 * 1472
    cwnd = flow.cwnd_mean_segments()
    assert cwnd is not None
    assert 10 < cwnd < 60
    # Stored logs are compressed.
    assert sorted(path.suffix for path in (folder / "qlog").iterdir()) == [".gz", ".gz"]
    assert flow.log.data["bytes"].sum() == 0, "the receiver only closes its direction"


def test_logs_of_other_programs_are_read_and_damaged_ones_are_named(tmp_path: Path) -> None:
    """The names and the relative times of newer drafts."""
    lines = [
        '{"file_schema": "urn:ietf:params:qlog:file:sequential", "trace": {"common_fields": {"time_format": '
        '"relative_to_previous_event"}}}',
        '{"time": 5, "name": "quic:packet_sent", "data": {"header": {"packet_type": "1RTT"}, "raw": {"length": 1200}}}',
        '{"time": 10, "name": "quic:packet_received", "data": {"header": {"packet_type": "1RTT"}, "frames": '
        '[{"frame_type": "ack", "ack_delay": 2, "acked_ranges": [[0, 3], [7, 8]]}]}}',
        '{"time": 1, "name": "quic:packet_received", "data": {"header": {"packet_type": "1RTT"}, "frames": '
        '[{"frame_type": "ack", "acked_ranges": [[2, 9]]}, '
        '{"frame_type": "stream", "stream_id": 0, "offset": 5, "length": 5}]}}',
        '{"time": 1, "name": "quic:packet_received", "data": {"header": {}, "frames": '
        '[{"frame_type": "stream", "stream_id": 0, "offset": 0, "length": 7}]}}',
        '{"time": 0, "name": "quic:recovery_metrics_updated", "data": {"smoothed_rtt": 25, "congestion_window": 9}}',
    ]
    path = tmp_path / "other.sqlog.gz"
    path.write_bytes(gzip.compress("".join(f"\x1e{line}\n" for line in lines).encode()))
    log = qlog.read([path])
    assert log.sent.rows() == [(0.005, 1200)]
    assert log.acks.rows() == [(0.015, 0.002, 6, 0), (0.016, None, 4, 0)]
    assert qlog.in_order(log.data).rows() == [(0.017, 10)]
    assert log.metrics.select("srtt_s", "cwnd_bytes", "rtt_s").rows() == [(0.025, 9.0, None)]
    path.write_bytes(gzip.compress("\n".join([*lines[:2], "{"]).encode()))
    with pytest.raises(AnalysisError, match=r"other.sqlog.gz, line 3: not JSON"):
        qlog.read([path])


#: Frames as tshark numbers them (RFC 9000 19), and as qlog names them.
FRAMES = {
    0x00: "padding", 0x01: "ping", 0x02: "ack", 0x03: "ack", 0x06: "crypto", **dict.fromkeys(range(8, 16), "stream"),
    0x10: "max_data", 0x11: "max_stream_data", 0x14: "data_blocked", 0x15: "stream_data_blocked",
    0x18: "new_connection_id", 0x19: "retire_connection_id", 0x1C: "connection_close", 0x1D: "connection_close",
    0x1E: "handshake_done", 0x1F: "immediate_ack",
}  # fmt: skip


def test_tshark_decrypts_the_captures_of_a_tls_session_and_agrees_with_the_logs(tmp_path: Path) -> None:
    made = scenario(session="tls")
    # Long enough for an update of the keys.
    made["workload"][0]["bytes"] = 2 * BYTES
    made["capture"] = {"snaplen": 65_535}
    report = Report.read(simulate(made, tmp_path))
    assert report.flows["down"].receive.bytes == 2 * BYTES
    analyse(tmp_path, typed(made), report)
    # Keys of one connection: four secrets and that of exporters.
    keys = (tmp_path / qlog.ALL_KEYS).read_text().splitlines()
    assert len({line.split()[1] for line in keys}) == 1 < len(keys)
    columns = ("ip.src", "quic.packet_number", "quic.frame_type", "quic.key_phase", "quic.decryption_failed",
               "_ws.malformed")  # fmt: skip
    capture = tmp_path / "captures" / "a-eth0.pcap.gz"
    rows = tshark_fields(capture, columns, "-o", f"tls.keylog_file:{tmp_path / qlog.ALL_KEYS}")
    assert all(row[4:] == ["", ""] for row in rows), "all are decrypted"
    assert {phase for row in rows for phase in row[3].split(",") if phase} == {"0", "1"}, "keys were updated"
    (log,) = (tmp_path / "qlog").glob("down-sender-*.sqlog.gz")
    records = [json.loads(line[1:]) for line in gzip.decompress(log.read_bytes()).splitlines()]
    for event, source in (("packet_sent", "10.1.0.1"), ("packet_received", "10.1.0.2")):
        of_tshark = [row for row in rows if row[0] == source]
        numbers = [int(number) for row in of_tshark for number in row[1].split(",")]
        frames = [FRAMES[int(kind)] for row in of_tshark for kind in row[2].split(",")]
        of_log = [record["data"] for record in records if record.get("name") == f"transport:{event}"]
        assert numbers == [data["header"]["packet_number"] for data in of_log], event
        assert len(numbers) > 500
        assert frames == [frame["frame_type"] for data in of_log for frame in data["frames"]], event


def test_figures_are_drawn_and_those_of_segments_refused(run: tuple[Path, RunData]) -> None:
    asked = Asked.of(run[1], None, None, None)
    flow = run[1].flow("down")
    for name in ("cwnd", "sequence", "received"):
        assert not FIGURES[name].function(flow, asked).is_empty, name
    for name in ("rtt", "throughput"):
        assert not FIGURES[name].function([flow], asked).is_empty, name
    # The streams' data, as far as the log of each end shows them.
    sent, received = (FIGURES[name].function(flow, asked) for name in ("sequence", "received"))
    assert [series.name for series in sent.series] == ["acknowledged", "data", "sent again"]
    assert [series.name for series in received.series] == ["data", "late"]
    assert {sent.series[0].points["y"].max(), received.series[0].points["y"].max()} == {BYTES / 1e3}
    assert sent.series[2].points.height >= flow.log.lost.height > 0  # type: ignore[union-attr]
    assert (sent.notes, received.notes) == (("by the sender's log",), ("by the receiver's log",))
    with pytest.raises(Unmeasured, match="QUIC"):
        FIGURES["outstanding"].function([flow], asked)
