"""Echoes of ICMP and packets of UDP in imported captures: flows as of our own probes, held against tshark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.store import Store
from experiments import found_datagrams
from experiments.importing import ImportRequest, import_captures
from tests.sim.experiments.test_importing import imported
from tests.sim.testbed.test_simulation import scenario, simulate
from tests.support.traces.readers import tshark_fields

PROBES = {"ping": 4, "ping6": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run over a line that loses and delays: pings of both versions, a call, and a transfer."""
    made = scenario("sack", rate_bps=2_000_000, delay_s=0.02, duration_s=6.0)
    (line,) = made["links"]
    line["forward"] = {**line["forward"], "errors": [{"name": "uniform", "options": {"probability": 0.03}}]}
    ping = {"from": "a", "to": "b", "start_s": 0.2, "options": {"interval_s": 0.02, "protocol": "icmp"}}
    made["workload"] = [
        *({"name": name, "kind": "probe", "port": 5010 + ip, "ip": ip, **ping} for name, ip in PROBES.items()),
        {"name": "call", "kind": "call", "from": "b", "to": "a", "start_s": 0.1, "port": 5030},
        {"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "start_s": 1.0, "port": 5001},
    ]
    out = tmp_path_factory.mktemp("datagrams")
    simulate(made, out)
    return out


def values(found: dict[str, Any], ending: str) -> dict[str, float]:
    return {row["name"]: row["value"] for row in found["metrics"] if row["subject"].endswith(ending)}


def resptimes_s(capture: Path, field: str) -> list[float]:
    """Round trips that tshark finds."""
    return [float(took_ms) / 1000 for (took_ms,) in tshark_fields(capture, [field], "-Y", field)]


def own(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_ndjson(folder / "applications" / f"{name}.jsonl")


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", PROBES)
def test_round_trips_are_those_of_tshark_and_of_the_probe_itself(name: str, folder: Path, tmp_path: Path) -> None:
    found = imported(tmp_path / "results", folder / "captures" / "a-eth0.pcap")
    flow = ":icmp6" if PROBES[name] == 6 else ":icmp"
    result = values(found, flow)
    field = {4: "icmp.resptime", 6: "icmpv6.resptime"}[PROBES[name]]
    theirs_s = pl.Series(resptimes_s(folder / "captures" / "a-eth0.pcap", field))
    assert theirs_s.len() > 200
    for metric, share in (("latency_p50", 0.5), ("latency_p95", 0.95)):
        # tshark prints microseconds.
        assert result[metric] == pytest.approx(theirs_s.quantile(share, "linear"), abs=2e-6)
    probe = own(folder, name)
    answered = probe.drop_nulls("returned_ns")
    assert theirs_s.len() == answered.height < probe.height
    until = probe.filter(pl.col("sent_ns") <= answered["sent_ns"].max())
    assert result["packet_loss"] == pytest.approx(1 - answered.height / until.height)
    assert "throughput" not in result, "the other end was not captured"


def test_captures_of_both_ends_tell_what_each_way_took_and_lost(folder: Path, tmp_path: Path) -> None:
    found = imported(tmp_path / "results", *sorted((folder / "captures").glob("*.pcap")))
    by_name = {flow["name"].rpartition(":")[2]: flow for flow in found["flows"]}
    assert by_name.keys() == {"5001", "5030-udp", "icmp", "icmp6"}
    for ending, name in (("icmp", "ping"), ("icmp6", "ping6")):
        result, probe = values(found, f":{ending}"), own(folder, name)
        median_s = ((probe["arrived_ns"] - probe["sent_ns"]) / 1e9).drop_nulls().median()
        # Clocks of captures are aligned by what they have in common.
        assert result["delay_forward"] == pytest.approx(median_s, abs=1e-3)
    call, result = own(folder, "call"), values(found, ":5030-udp")
    delays_s = ((call["arrived_ns"] - call["sent_ns"]) / 1e9).drop_nulls()
    assert result["packet_loss"] == pytest.approx(0.0, abs=1e-9)
    assert result["delay_forward"] == pytest.approx(delays_s.median(), abs=1e-3)
    assert result["throughput"] == pytest.approx(64_000 * 172 / 160, rel=0.03)


def test_one_capture_of_udp_has_its_throughput_and_claims_no_delay(folder: Path, tmp_path: Path) -> None:
    result = values(imported(tmp_path / "results", folder / "captures" / "a-eth0.pcap"), ":5030-udp")
    assert result["throughput"] > 60_000
    assert not {"delay_forward", "packet_loss", "jitter"} & result.keys()


def packets(*rows: tuple[int, int, str, str, int, int, int, int]) -> pl.DataFrame:
    """Packets of IPv4: file, time in ns, sender, receiver, protocol, both numbers, reply."""
    names = ["file", "time_ns", "src", "dst", "protocol", "first", "second", "reply"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    return table.with_columns(ip_len=pl.lit(100), ip_id=pl.lit(0), checksum=pl.lit(7), ip=pl.lit(4))


def test_a_number_that_comes_again_is_another_request() -> None:
    rows = packets(
        (0, 0, "a", "b", 1, 9, 1, 0), (0, 50, "b", "a", 1, 9, 1, 1), (0, 100, "a", "b", 1, 9, 1, 0),
        (0, 200, "a", "b", 1, 9, 1, 0), (0, 260, "b", "a", 1, 9, 1, 1),
    )  # fmt: skip
    (flow,), left_out = found_datagrams.flows(rows, {"a": [0], "b": [0]})
    assert (flow.name, flow.kind, left_out) == ("a-b:icmp", "probe", 0)
    assert flow.exchanges["returned_ns"].to_list() == [50, None, 260]


def test_a_way_with_a_tenth_of_the_bytes_is_a_flow_too_and_less_is_not() -> None:
    def rows(back: int) -> pl.DataFrame:
        there = [(0, n, "a", "b", 17, 40_000, 443, 0) for n in range(40)]
        return packets(*there, *((0, n, "b", "a", 17, 443, 40_000, 0) for n in range(back)))

    names = [[flow.name for flow in found_datagrams.flows(rows(back), {"a": [0], "b": [0]})[0]] for back in (3, 4)]
    assert names == [["a-b:443-udp"], ["a-b:443-udp", "b-a:443-udp"]]


def test_a_packet_that_was_lost_does_not_shift_those_after_it() -> None:
    table = packets(
        *((0, n, "a", "b", 17, 40_000, 443, 0) for n in range(4)),
        *((1, n + 10, "a", "b", 17, 40_000, 443, 0) for n in (0, 2, 3)),
    ).with_columns(checksum=pl.col("time_ns") % 10)  # fmt: skip
    (flow,), _ = found_datagrams.flows(table, {"a": [0], "b": [1]})
    assert flow.exchanges.select("sent_ns", "arrived_ns").rows() == [(0, 10), (1, None), (2, 12), (3, 13)]


@pytest.mark.parametrize(("most", "flows"), [(2000, 4), (100, 1)])
def test_more_packets_than_are_analysed_are_left_out_and_told(
    most: int, flows: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_datagrams, "MOST_PACKETS", most)
    with Store.open(tmp_path / "results") as store:
        request = ImportRequest(files=(folder / "captures" / "a-eth0.pcap",), label="one", note="", campaign="imports")
        found = import_captures(store, request)
    left_out = found.description.packets_left_out
    assert (len(found.flows), left_out > most) == (flows, most == 100), left_out
