"""Metrics of simulated runs under loss beside what tshark's fields of the same captures give by the same formula."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import polars as pl
import pytest

from analysis import captures, metrics
from analysis.captures import RunData
from analysis.metrics import measure
from testbed import node_binary
from testbed.report import Report
from tests.conftest import typed
from tests.sim.testbed.test_simulation import simulate
from tests.support.made_traces import path_scenario
from tests.support.traces.readers import tshark_fields

FIELDS = (
    "frame.time_epoch", "ip.src", "ipv6.src", "ip.len", "ipv6.plen", "tcp.len", "tcp.seq", "tcp.ack", "tcp.flags",
    "tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order", "tcp.analysis.ack_rtt", "tcp.analysis.bytes_in_flight",
)  # fmt: skip
RETRANSMISSION_FIELDS = FIELDS[9:13]
END_S = 10.0


@pytest.fixture(scope="module", params=["newreno", "sack", "modern", "tahoe", "modern over IPv6"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunData:
    stack, over_ipv6, _ = request.param.partition(" over IPv6")
    folder = tmp_path_factory.mktemp(stack)
    scenario = path_scenario(forward_bps=2_000_000)
    if over_ipv6:
        scenario["workload"][0]["ip"] = 6
    for node in scenario["nodes"]:
        if node["kind"] == "host":
            node["stack"] = {"name": stack, "options": {}}
    scenario["links"][1]["forward"]["errors"] = [{"name": "uniform", "options": {"probability": 0.02}}]
    report = Report.read(simulate(scenario, folder))
    labelled = [f"{path.stem}={path}" for path in sorted((folder / "captures").glob("*.pcap"))]
    node_binary.call("trace", "--out", str(folder), *labelled)
    return RunData.load(folder, typed(scenario), report)


def tshark(run: RunData, interface: str) -> pl.DataFrame:
    assert run.folder is not None
    return _tshark(run.folder, interface, run.t0_epoch_ns)


@functools.cache
def _tshark(folder: Path, interface: str, t0_epoch_ns: int) -> pl.DataFrame:
    rows = tshark_fields(folder / f"captures/{interface}.pcap", FIELDS, "-Y", "tcp")
    frame = pl.DataFrame(rows, schema=list(FIELDS), orient="row")
    numbers = ("ip.len", "ipv6.plen", "tcp.len", "tcp.seq", "tcp.ack", "tcp.analysis.bytes_in_flight")
    return frame.with_columns(
        *(pl.col(name).cast(pl.Int64, strict=False) for name in numbers),
        pl.col("tcp.analysis.ack_rtt").cast(pl.Float64, strict=False),
        (pl.col("frame.time_epoch").cast(pl.Decimal(20, 9)) - t0_epoch_ns // 10**9).cast(pl.Float64).alias("t_s"),
        pl.any_horizontal(pl.col("ip.src") == "10.1.0.1", pl.col("ipv6.src") == "2001:db8:a01::1").alias("data"),
    ).with_columns(pl.col("ip.len").fill_null(pl.col("ipv6.plen") + 40))


def found(run: RunData) -> dict[tuple[str, str], float]:
    return measure(run).values


def test_throughput_and_goodput(run: RunData) -> None:
    """By tshark: what the receiver acknowledged last is what was delivered in order."""
    present, here = tshark(run, "b-eth0"), tshark(run, "a-eth0")
    data = present.filter("data")
    covered, top = [], 0
    for seq, size in sorted(zip(data["tcp.seq"], data["tcp.len"], strict=True)):
        if size and seq <= top + 1:
            top = max(top, seq + size - 1)
        covered.append(top)
    assert top > 100_000
    mine = found(run)
    assert mine["throughput", "bulk"] == pytest.approx(top * 8 / (END_S - 1.0), rel=1e-12)
    sent = here.filter("data")["ip.len"].sum()
    assert mine["goodput", "bulk"] == pytest.approx(top / sent, rel=1e-12)
    full = data.filter(pl.col("tcp.len") > 0)
    ratio = float(full["ip.len"].sum()) / float(full["tcp.len"].sum())
    assert mine["packet_throughput", "bulk"] == pytest.approx(mine["throughput", "bulk"] * ratio)


def test_retransmissions_and_round_trips(run: RunData) -> None:
    here, mine = tshark(run, "a-eth0"), found(run)
    again = here.filter(
        pl.col("data")
        & (pl.col("tcp.len") > 0)
        & pl.any_horizontal(pl.col(name) != "" for name in RETRANSMISSION_FIELDS)
    )
    # At the sender nothing is out of order: Wireshark calls some so by its 3 ms rule (docs/traces.md).
    assert again.height > 5
    assert mine["retransmissions", "bulk"] == again.height
    fast = again.filter(pl.col("tcp.analysis.fast_retransmission") != "")
    # Wireshark calls a timeout amid duplicate acks fast as well.
    by_timer = set(metrics.timeouts(run.flows[0])["t_s"].round(9))
    others = fast.filter(~pl.col("t_s").round(9).is_in(by_timer))
    sender = run.flows[0].at_sender
    classed = sender.filter(captures.is_a(captures.RETRANSMISSION) & captures.is_a(captures.FAST_RETRANSMISSION))
    classed = classed.join(metrics.timeouts(run.flows[0]), on=["t_s", "stream", "seq"], how="anti")
    ours_fast = set(classed["t_s"].round(9))
    assert mine["fast_retransmits", "bulk"] == classed.height > 0
    # Wireshark marks what duplicate acks asked for; ours has the other holes of the same recovery too (docs/traces.md):
    # each comes after one that Wireshark marks. Where a retransmission is lost too, a timer comes in between.
    theirs_fast = set(others["t_s"].round(9))
    assert theirs_fast <= ours_fast
    assert all(min(theirs_fast) <= t_s for t_s in ours_fast)
    # Karn's rule: Wireshark's samples, less those of what was sent again.
    resent = set(zip(again["tcp.seq"] + again["tcp.len"], again["tcp.seq"], strict=True))
    samples = here.filter(~pl.col("data") & pl.col("tcp.analysis.ack_rtt").is_not_null() & (pl.col("t_s") >= 1.0))
    kept = samples.filter(~pl.col("tcp.ack").is_in([end for end, _ in resent]))
    ours = metrics.rtt_samples(run.flows[0])
    theirs = dict(zip(kept["t_s"].round(9), kept["tcp.analysis.ack_rtt"], strict=True))
    assert ours.height > 50
    for t_s, rtt_s in ours.iter_rows():
        assert theirs[round(t_s, 9)] == pytest.approx(rtt_s, abs=2e-9)
    assert mine["rtt_mean", "bulk"] == pytest.approx(sum(ours["rtt_s"]) / ours.height)


def test_outstanding_bytes(run: RunData) -> None:
    """Wireshark tells bytes in flight with every data segment; we count to the highest number sent, as it does.

    It takes off what selective acks have told to be there; RFC 5681's FlightSize does not, and neither do we.
    """
    here = tshark(run, "a-eth0").filter(pl.col("data") & (pl.col("tcp.len") > 0))
    steps = metrics.outstanding(run.flows[0])
    mine = {round(t_s, 9): y for t_s, y in steps.iter_rows()}
    # Instants at which the last ack had selective blocks.
    last_ack = pl.when(pl.col("dir") == 1).then(captures.is_a(captures.SACK)).forward_fill().alias("sack")
    selective = set(run.flows[0].at_sender.with_columns(last_ack).filter("sack")["t_s"].round(9))
    last_of_instant = here.group_by(pl.col("t_s").round(9), maintain_order=True).last()
    compared = 0
    for t_s, flight in last_of_instant.select("t_s", "tcp.analysis.bytes_in_flight").iter_rows():
        if flight is not None and t_s not in selective:
            assert mine[t_s] == flight
            compared += 1
        elif flight is not None:
            assert mine[t_s] >= flight
    assert compared > 50


def test_acks_and_use_of_the_line(run: RunData) -> None:
    here, present, out, mine = tshark(run, "a-eth0"), tshark(run, "b-eth0"), tshark(run, "r2-eth0"), found(run)

    def pure(frame: pl.DataFrame) -> int:
        return frame.filter(~pl.col("data") & (pl.col("tcp.len") == 0) & (pl.col("tcp.flags") == "0x0010")).height

    assert mine["acks_delivered", "bulk"] == pure(here) > 100
    assert mine["acks_sent", "bulk"] == pure(present)
    came_out = float(out.filter(pl.col("data") & (pl.col("t_s") < END_S))["ip.len"].sum())
    assert mine["utilisation", "line/forward"] == pytest.approx(came_out * 8 / (2_000_000 * END_S))
    # The driver counts what it sent, lost packets as well: at least this, at most the losses more.
    assert mine["utilisation", "line/forward"] <= mine["line_busy", "line/forward"] < 1.1 * came_out * 8 / 2e7


def test_timeouts_are_those_that_the_stack_tells(run: RunData) -> None:
    """The captures alone against the stack's own events."""
    assert run.folder is not None
    said = [json.loads(line) for line in (run.folder / "telemetry/bulk.jsonl").read_text().splitlines()]
    told = [entry["t_ns"] / 1e9 + 1.0 for entry in said if entry.get("event") == "coarse_timeout"]
    seen = metrics.timeouts(run.flows[0])["t_s"].to_list()
    assert seen == pytest.approx(told, abs=1e-6)
