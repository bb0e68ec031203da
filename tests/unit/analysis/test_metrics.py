"""Every metric on hand-made traces, with the arithmetic in sight."""

from __future__ import annotations

import gc
import json
import math
import re
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

from analysis import captures, metrics
from analysis.captures import MissingCapture, RunData
from analysis.captures.segments import step_means
from analysis.metrics import METRICS, jain, measure
from analysis.metrics.registry import estimate
from analysis.routes import bottlenecks
from analysis.runs import Slices
from testbed.node_binary import ROOT
from testbed.report import DirectionReport
from tests import tables
from tests.conftest import typed
from tests.support.made_traces import HEADER, Trace, path_scenario

A, B = "a-eth0", "b-eth0"
#: Of the line under study: its sending end forward, and its receiving end forward.
IN, OUT = "r1-eth1", "r2-eth0"


def values(run: RunData) -> dict[tuple[str, str], float]:
    return measure(run).values


def transfer(trace: Trace, flow: int = 0, port: int = 40000, at_s: float = 1.0, segments: int = 4) -> None:
    """Segments a tenth of a second apart, each 30 ms on its way, its ack as well."""
    for number in range(segments):
        t_s = at_s + 0.1 * number
        trace.data(A, t_s, 1000 * number, flow=flow, port=port)
        trace.data(B, t_s + 0.03, 1000 * number, flow=flow, port=port)
        trace.ack(B, t_s + 0.03, 1000 * (number + 1), flow=flow, port=port)
        trace.ack(A, t_s + 0.06, 1000 * (number + 1), rtt_s=0.06, flow=flow, port=port)


def test_throughput_is_bytes_in_order_over_the_flows_own_time() -> None:
    trace = Trace(path_scenario())
    transfer(trace)
    run = trace.run()
    result = values(run)
    # 4000 bytes between its start at 1 s and the run's end at 10 s.
    assert result["throughput", "bulk"] == pytest.approx(4000 * 8 / 9)
    assert result["packet_throughput", "bulk"] == pytest.approx(4 * (1000 + HEADER) * 8 / 9)
    assert result["goodput", "bulk"] == pytest.approx(1000 / (1000 + HEADER))
    assert result["aggregate_throughput", ""] == result["throughput", "bulk"]
    assert ("completion_time", "bulk") not in result
    assert ("active_throughput", "bulk") not in result
    assert ("active_total_packet_throughput", "") not in result


def test_a_measured_run_leaves_no_cycle_that_keeps_its_tables() -> None:
    trace = Trace(path_scenario())
    transfer(trace)
    run = trace.run()
    kept = weakref.ref(run)
    gc.disable()
    try:
        measure(run)
        del run
        assert kept() is None
    finally:
        gc.enable()


def test_a_transfer_with_a_size_ends_with_its_last_byte_which_counts() -> None:
    scenario = path_scenario()
    scenario["workload"][0]["bytes"] = 4000
    trace = Trace(scenario)
    transfer(trace)
    result = values(trace.run())
    assert result["completion_time", "bulk"] == pytest.approx(0.33)
    assert result["throughput", "bulk"] == pytest.approx(4000 * 8 / 0.33)
    assert result["aggregate_throughput", ""] == pytest.approx(4000 * 8 / 0.33)


def test_a_hole_delivers_nothing_until_it_is_filled() -> None:
    trace = Trace(path_scenario())
    for t_s, byte in ((2.0, 0), (2.1, 2000), (2.2, 3000), (4.0, 1000)):
        trace.data(B, t_s, byte, kind="again" if byte == 1000 else "new")
    flow = trace.run().flows[0]
    assert flow.delivered_bytes(0, 3) == 1000
    assert flow.delivered_bytes(3, 5) == 3000
    over_time = flow.delivery_over_time(1.0)
    assert over_time["t_s"].to_list() == [float(second) for second in range(1, 11)]
    assert over_time["bps"].to_list() == [0, 0, 8000, 0, 24000, 0, 0, 0, 0, 0]
    assert metrics.throughput_over_time(flow, 1.0)["bps"].to_list() == [0, 0, 24000, 0, 8000, 0, 0, 0, 0, 0]


def test_the_bytes_of_all_connections_of_a_flow_count() -> None:
    """A web client's four connections, or a port that is used again: one flow."""
    scenario = path_scenario()
    scenario["workload"][0]["bytes"] = 8000
    trace = Trace(scenario)
    transfer(trace, port=40000)
    transfer(trace, port=40001, at_s=2.0)
    run = trace.run()
    flow = run.flows[0]
    assert flow.delivered_bytes(-math.inf, math.inf) == 8000
    assert flow.completed_s() == pytest.approx(2.33)
    assert flow.at_sender["stream"].n_unique() == 2
    assert metrics.outstanding(flow)["y"].max() == 1000
    # The same connection has the same number at both ends.
    ends = flow.connections.group_by("stream").agg("client_port")
    assert sorted(sorted(set(ports)) for ports in ends["client_port"].to_list()) == [[40000], [40001]]


def test_two_flows_are_compared_while_both_are_active() -> None:
    scenario = path_scenario()
    second = {**scenario["workload"][0], "name": "late", "port": 5002, "start_s": 5.0, "stop_s": 9.0, "group": "g"}
    scenario["workload"].append(second)
    scenario["workload"][0]["group"] = "g"
    trace = Trace(scenario)
    transfer(trace, segments=10)
    transfer(trace, at_s=6.0, segments=2)
    transfer(trace, flow=1, port=40001, at_s=6.0, segments=6)
    # 10 kB in 1..2 s, then the first connection's segments 0 and 1 again: nothing new.
    run = trace.run()
    result = values(run)
    assert result["active_throughput", "bulk"] == 0
    assert result["active_throughput", "late"] == pytest.approx(6000 * 8 / 4)
    assert result["active_packet_throughput", "late"] == pytest.approx(6 * (1000 + HEADER) * 8 / 4)
    assert result["active_throughput", "g"] == result["active_throughput", "late"]
    assert result["active_total_throughput", ""] == pytest.approx(6000 * 8 / 4)
    assert result["fairness_index", ""] == pytest.approx(0.5)
    # All bytes over one period: 1 s to 10 s, not 9 s for one and 4 s for the other.
    assert result["aggregate_throughput", ""] == pytest.approx(16000 * 8 / 9)
    assert result["throughput", "bulk"] + result["throughput", "late"] != pytest.approx(16000 * 8 / 9)
    assert metrics.throughput_while(run.flows[0], run.flows[:1]) == pytest.approx(10000 * 8 / 9)


def test_fairness_compares_flows_of_one_direction() -> None:
    """Two downloads of 6 and 2 segments and an upload: the upload's slow line counts apart, and has one flow only."""
    scenario = path_scenario()
    first = scenario["workload"][0]
    scenario["workload"] += [
        {**first, "name": "second", "port": 5002}, {**first, "name": "back", "from": "b", "to": "a", "port": 5003},
    ]  # fmt: skip
    trace = Trace(scenario)
    transfer(trace, segments=6)
    transfer(trace, flow=1, port=40001, segments=2)
    result = values(trace.run())
    assert {key for key in result if key[0] == "direction_fairness"} == {("direction_fairness", "line/forward")}
    assert result["direction_fairness", "line/forward"] == pytest.approx(8**2 / (2 * (6**2 + 2**2)))
    # Over all flows, the idle upload counts as a third share.
    assert result["fairness_index", ""] == pytest.approx(8**2 / (3 * (6**2 + 2**2)))


def test_the_slowest_of_the_lines_that_flows_share_is_theirs() -> None:
    scenario = path_scenario()
    first = scenario["workload"][0]
    scenario["workload"] += [{**first, "name": "second", "port": 5002}]
    hop = {**scenario["links"][1], "name": "hop", "ends": ["r2", "r3"]}
    hop["forward"] = {**hop["forward"], "rate_bps": 900_000}
    scenario["nodes"].insert(3, {"name": "r3", "kind": "router"})
    scenario["links"][1:] = [scenario["links"][1], hop, {**scenario["links"][2], "ends": ["r3", "b"]}]
    assert bottlenecks(typed(scenario)) == {"hop/forward": ["bulk", "second"]}
    hop["forward"]["rate_bps"] = 1_000_000
    assert bottlenecks(typed(scenario)) == {"line/forward": ["bulk", "second"]}


def test_the_warm_up_is_left_out() -> None:
    trace = Trace(path_scenario(warm_up_s=1.2))
    transfer(trace)
    result = values(trace.run())
    # Arrivals at 1.03, 1.13, 1.23, 1.33.
    assert result["throughput", "bulk"] == pytest.approx(2000 * 8 / 8.8)
    # Samples at 1.06, 1.16, 1.26, 1.36, all of 60 ms.
    assert metrics.rtt_samples(trace.run().flows[0])["t_s"].to_list() == [1.26, 1.36]


def test_a_flow_that_stops_before_the_warm_up_ends_has_no_throughput() -> None:
    scenario = path_scenario(warm_up_s=3.0)
    scenario["workload"][0]["stop_s"] = 2.0
    trace = Trace(scenario)
    transfer(trace)
    assert values(trace.run())["throughput", "bulk"] == 0


def test_jain() -> None:
    assert jain([1, 1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([3, 1]) == pytest.approx(16 / 20)
    assert jain([]) is None
    assert jain([0, 0]) is None


def test_round_trips() -> None:
    trace = Trace(path_scenario())
    for number, rtt_s in enumerate((0.1, 0.2, 0.3, 0.4)):
        trace.data(A, 2 + number, 1000 * number)
        trace.ack(A, 2 + number + rtt_s, 1000 * (number + 1), rtt_s=rtt_s)
    trace.data(A, 7, 4000, kind="again")
    trace.ack(A, 7.5, 5000)
    result = values(trace.run())
    assert result["rtt_mean", "bulk"] == pytest.approx(0.25)
    assert result["rtt_median", "bulk"] == pytest.approx(0.25)
    assert result["rtt_p95", "bulk"] == pytest.approx(0.385)
    assert result["rtt_sd", "bulk"] == pytest.approx(math.sqrt(0.05 / 3))


def test_why_segments_were_sent_again() -> None:
    trace = Trace(path_scenario())
    for number in range(6):
        trace.data(A, 2 + 0.01 * number, 1000 * number)
    trace.ack(A, 2.06, 1000)
    for number in range(3):
        trace.ack(A, 2.07 + 0.01 * number, 1000)
    trace.data(A, 2.0901, 1000, kind="fast")
    # A partial ack, and at once the next hole: no timer.
    trace.ack(A, 2.5, 3000)
    trace.data(A, 2.5001, 3000, kind="again")
    # Nothing comes back: the timer, twice; then what it set going again.
    trace.data(A, 3.6, 3000, kind="again")
    trace.data(A, 6.0, 3000, kind="again")
    trace.ack(A, 6.1, 4000)
    trace.data(A, 6.1001, 4000, kind="again")
    run = trace.run()
    result = values(run)
    assert result["retransmissions", "bulk"] == 5
    assert result["fast_retransmits", "bulk"] == 1
    assert result["coarse_timeouts", "bulk"] == 2
    assert metrics.timeouts(run.flows[0])["t_s"].to_list() == [3.6, 6.0]
    assert metrics.timeouts(run.flows[0])["waited_s"].to_list() == pytest.approx([1.0999, 2.4])


def test_a_byte_that_began_no_segment_before_has_waited_since_the_last_data() -> None:
    trace = Trace(path_scenario())
    trace.data(A, 2, 0)
    trace.data(A, 2.01, 1000)
    trace.ack(A, 2.1, 500)
    trace.data(A, 3.51, 500, kind="again")
    seen = metrics.timeouts(trace.run().flows[0])
    assert seen["waited_s"].to_list() == pytest.approx([1.5])


def test_spurious_retransmissions_are_a_part_of_all() -> None:
    trace = Trace(path_scenario())
    for number in range(3):
        trace.data(A, 2 + 0.01 * number, 1000 * number)
    trace.data(A, 3.0, 0, kind="spurious")
    trace.data(A, 3.1, 1000, kind="again")
    trace.data(A, 3.2, 2000, kind="fast")
    # At the receiver, the copy of a retransmission is not another retransmission.
    trace.data(B, 3.3, 0, kind="spurious")
    result = values(trace.run())
    assert result["spurious_retransmissions", "bulk"] == 1
    assert result["retransmissions", "bulk"] == 3


def test_the_first_segment_of_all_can_time_out() -> None:
    trace = Trace(path_scenario())
    trace.data(A, 2, 0)
    trace.data(A, 5, 0, kind="again")
    assert values(trace.run())["coarse_timeouts", "bulk"] == 1


def test_an_upswing_follows_a_second_without_anything() -> None:
    trace = Trace(path_scenario(duration_s=60.0))
    # A segment a second would be the mean of the whole; from 4 to 14 s there are two, but each second has some.
    times = [1.5, 2.5, 3.5, *(4 + k / 2 for k in range(20)), *(30 + k / 4 for k in range(40))]
    for number, t_s in enumerate(times):
        trace.data(B, t_s, 1000 * number)
    assert values(trace.run())["first_upswing", "bulk"] == 30
    trace = Trace(path_scenario(duration_s=60.0))
    for number in range(59):
        trace.data(B, 1.5 + number, 1000 * number)
    assert ("first_upswing", "bulk") not in values(trace.run())


@pytest.mark.parametrize(("seconds", "is_upswing"), [(20, False), (21, True)])
def test_an_upswing_has_more_than_twice_the_mean(seconds: int, is_upswing: bool) -> None:
    """Everything comes in ten seconds: of twenty, that is just twice the mean."""
    trace = Trace(path_scenario(duration_s=1.0 + seconds))
    for number in range(10):
        trace.data(B, 5.5 + number, 1000 * number)
    assert (("first_upswing", "bulk") in values(trace.run())) is is_upswing


@pytest.mark.parametrize(
    ("count", "filled", "first"),
    [
        (31, {21: 1, 25: 99}, 21),  # the ten slices after a pause have all
        (30, {21: 1, 25: 99}, None),  # there are only nine
        (30, {0: 100}, None),  # no slice before it
        (30, {0: 1, 1: 99}, None),  # the slice before it has something
        (30, {}, None),
    ],
)
def test_an_upswing_needs_a_pause_and_ten_slices(count: int, filled: dict[int, float], first: int | None) -> None:
    assert metrics.throughput_onset(Slices(0, 1.0, count, filled)) == first


def test_bursts_and_pauses() -> None:
    trace = Trace(path_scenario())
    for number, t_s in enumerate((2.0, 2.0001, 2.0002, 2.5, 5.0, 5.0001)):
        trace.data(A, t_s, 1000 * number)
    run = trace.run()
    result = values(run)
    assert metrics.bursts(run.flows[0])["segments"].to_list() == [3, 1, 2]
    assert (result["burst_mean", "bulk"], result["burst_max", "bulk"]) == (2, 3)
    assert metrics.idle_gaps(run.flows[0]).rows() == [(2.5, 2.5)]
    assert result["idle_share", "bulk"] == pytest.approx(2.5 / 3.0001)
    assert result["idle_longest", "bulk"] == pytest.approx(2.5)


def test_outstanding_data() -> None:
    trace = Trace(path_scenario())
    trace.data(A, 2, 0)
    trace.data(A, 3, 1000)
    trace.ack(A, 4, 1000)
    trace.data(A, 5, 0, kind="again")  # what was sent before adds nothing
    trace.ack(A, 6, 2000)
    run = trace.run()
    result = values(run)
    assert metrics.outstanding(run.flows[0]).rows() == [(2, 1000), (3, 2000), (4, 1000), (5, 1000), (6, 0)]
    assert result["outstanding_max", "bulk"] == 2000
    # 1000 for 1 s, 2000 for 1 s, 1000 for 2 s, of 9 s.
    assert result["outstanding_mean", "bulk"] == pytest.approx(5000 / 9)
    assert result["nothing_outstanding_share", "bulk"] == pytest.approx(5 / 9)


def test_acks_that_were_sent_apart_and_arrive_together() -> None:
    trace = Trace(path_scenario())
    for number, (sent_s, came_s) in enumerate(((2.0, 2.1), (2.1, 2.2), (2.2, 2.4), (2.3, 2.401), (2.4, 2.402))):
        trace.data(B, sent_s, 1000 * number)
        trace.ack(B, sent_s, 1000 * (number + 1))
        trace.ack(A, came_s, 1000 * (number + 1))
    trace.ack(B, 2.5, 5000)  # a duplicate one, filtered on the way
    result = values(trace.run())
    assert result["ack_compression", "bulk"] == pytest.approx(2 / 4)
    assert result["ack_spacing", "bulk"] == pytest.approx((0.001 + 0.1) / 2)
    assert result["acks_sent", "bulk"] == 6
    assert result["acks_delivered", "bulk"] == 5
    assert result["segments_per_ack", "bulk"] == pytest.approx(5 / 6)


@pytest.mark.parametrize(("spacing_s", "compressed"), [(0.032, 1), (0.035, 0), (0.06, 0), (0.07, 0)])
def test_acks_are_compressed_below_a_third_of_their_spacing(spacing_s: float, compressed: int) -> None:
    """Two acks leave the receiver 0.1 s apart."""
    trace = Trace(path_scenario())
    for number in range(2):
        trace.data(B, 2 + 0.1 * number, 1000 * number)
        trace.ack(B, 2 + 0.1 * number, 1000 * (number + 1))
        trace.ack(A, 2.1 + spacing_s * number, 1000 * (number + 1))
    assert values(trace.run())["ack_compression", "bulk"] == compressed


def test_an_ack_that_arrives_as_the_flow_starts_counts_and_an_earlier_one_does_not() -> None:
    for first_s, expected in ((1.0, 1.0), (0.999, None)):
        trace = Trace(path_scenario())
        for number, came_s in enumerate((first_s, 1.001)):
            trace.data(B, 0.5 + 0.1 * number, 1000 * number)
            trace.ack(B, 0.5 + 0.1 * number, 1000 * (number + 1))
            trace.ack(A, came_s, 1000 * (number + 1))
        assert values(trace.run()).get(("ack_compression", "bulk")) == expected


def test_an_overtaken_ack_says_nothing_of_compression() -> None:
    """Sent 0.1 s apart; the third overtakes the second. The gap from third to fourth is not a third of 0.1 s."""
    trace = Trace(path_scenario())
    for number in range(4):
        trace.data(B, 2 + 0.1 * number, 1000 * number)
        trace.ack(B, 2 + 0.1 * number, 1000 * (number + 1))
    for number, came_s in ((1, 2.1), (3, 2.2), (2, 2.201), (4, 2.24)):
        trace.ack(A, came_s, 1000 * number)
    assert values(trace.run())["ack_compression", "bulk"] == 0


def line_run(folder: Path, **changes: Any) -> RunData:
    trace = Trace(path_scenario(**changes))
    for number in range(10):
        trace.data(A, 2 + number / 10, 1000 * number)
        trace.data(IN, 2 + number / 10, 1000 * number)
        trace.data(OUT, 2.02 + number / 10, 1000 * number)
        trace.data(B, 2.03 + number / 10, 1000 * number)
        trace.ack(B, 2.03 + number / 10, 1000 * (number + 1))
        trace.ack(OUT, 2.04 + number / 10, 1000 * (number + 1))
        if number % 2:
            trace.ack(IN, 2.06 + number / 10, 1000 * (number + 1))
            trace.ack(A, 2.07 + number / 10, 1000 * (number + 1))
    said = [
        f'{{"t_ns":{t}00000000,"link":"line","direction":"reverse","event":"purged","bytes":52,"pure_ack":true}}'
        for t in range(21, 26)
    ]
    for t_ns, waiting, most in ((2_000_000_000, 4, 4), (4_000_000_000, 1, 6), (7_000_000_000, 0, 1)):
        said.append(f'{{"t_ns":{t_ns},"link":"line","direction":"reverse","packets":{waiting},"bytes":0,"max":{most}}}')
    said.append('{"t_ns":2500000000,"link":"line","direction":"reverse","event":"marked","bytes":99,"pure_ack":false}')
    said.append('{"t_ns":2500000000,"link":"line","direction":"reverse","event":"made","bytes":52,"pure_ack":true}')
    counters = {"line": {"forward": {"busy_s": 2.5, "transmitted_bytes": 20_000}, "reverse": {"busy_s": 1.0}}}
    return trace.run(folder, "\n".join(said) + "\n", counters)


def test_gaps_in_captures_are_whole_slices_of_10_ms(tmp_path: Path) -> None:
    """One flow, whose own time is when all are active: gaps of 970 and 490 ms of data, and thrice 90 ms of acks."""
    trace = Trace(path_scenario())
    for t_s in (2.005, 2.985, 3.485):
        trace.data(OUT, t_s, 0)
    for t_s in (4.005, 4.105, 4.205, 4.305, 4.505):
        trace.ack(IN, t_s, 1000)
    result = values(trace.run(tmp_path))
    assert result["longest_gap_of_data", "line/forward"] == pytest.approx(0.97)
    assert result["ack_gap_mode", "line/reverse"] == pytest.approx(0.09)
    assert ("ack_gap_mode", "line/forward") not in result


def test_sizes_of_packets_in_captures(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    trace.data(OUT, 2.0, 0, size=1000)
    trace.data(OUT, 2.1, 1000, size=500)
    trace.ack(IN, 2.2, 1500)
    result = values(trace.run(tmp_path))
    assert result["data_packet_size", "line/forward"] == 750 + HEADER
    assert result["ack_packet_size", "line/reverse"] == HEADER
    assert ("ack_packet_size", "line/forward") not in result


def test_packets_of_udp_count_where_captures_were_read_for_them(tmp_path: Path) -> None:
    """500 bytes at 2 s, and the same at 0.5 s, before the warm-up ends, and one in the other direction."""
    trace = Trace(path_scenario(warm_up_s=1.0))
    trace.ack(A, 0.1, 0)
    run = trace.run(tmp_path)
    with pytest.raises(MissingCapture, match="TCP only"):
        metrics.carried_other(run.lines[0])
    assert values(run)["utilisation", "line/forward"] == 0
    addresses = {end.node: end.address for end in reversed(trace.interfaces)}
    rows = [
        {"file": trace.files[where], "time_ns": round(t_s * 1e9), "src": addresses[source], "dst": addresses[target],
         "ip_len": 500}
        for where, t_s, source, target in ((OUT, 0.5, "a", "b"), (OUT, 2.0, "a", "b"), (IN, 3.0, "b", "a"))
    ]  # fmt: skip
    pl.DataFrame(rows, schema_overrides={"file": pl.UInt16}).write_parquet(tmp_path / "datagrams.parquet")
    result = values(trace.run(tmp_path))
    assert result["carried_other", "line/forward"] == pytest.approx(500 * 8 / 9)
    assert result["carried", "line/forward"] == pytest.approx(500 * 8 / 9)
    assert result["carried_data", "line/forward"] == 0
    assert result["utilisation", "line/forward"] == pytest.approx(500 * 8 / 9e6)
    assert result["utilisation_tcp", "line/forward"] == 0
    assert result["utility", "line"] == pytest.approx(500 * 8 / 9e6 + 500 * 8 / 9e5)


def test_a_line_whose_ends_are_named_is_measured_beside_that_between_routers(tmp_path: Path) -> None:
    at = ["r1:line", "r2:line", "a:left", "r1:left", "b:right"]
    run = Trace(path_scenario(capture={"at": at, "snaplen": 128})).run(tmp_path)
    assert {line.link for line in run.lines} == {"line", "left"}


def test_the_window_s_falls_in_telemetry(tmp_path: Path) -> None:
    """Below 23,000 bytes of data, 16 segments of 1460, in two slices of 0.1 s after 5 s of the flow; once before."""
    trace = Trace(path_scenario())
    trace.data(A, 1, 0)
    run = trace.run(tmp_path)
    told = ((0, 20), (3.0, 5), (3.5, 20), (6.0, 5), (6.1, 20), (7.02, 1), (7.04, 20), (8.0, 3))
    said = "".join(f'{{"t_ns":{round(t_s * 1e9)},"cwnd_segments":{cwnd}}}\n' for t_s, cwnd in told)
    (tmp_path / "telemetry/bulk.jsonl").write_text(said)
    # 20 ms of one segment leave the mean of a slice at 16.2 segments, 23,652 bytes.
    assert values(run)["cwnd_excursions", "bulk"] == 2


def test_a_line_that_compresses_headers_has_no_utilisation(tmp_path: Path) -> None:
    run = line_run(tmp_path)
    document = run.scenario.as_json()
    (link,) = (link for link in document["links"] if link["name"] == "line")
    link["reverse"] = {**link["reverse"], "options": {"header_compression": "rfc1144"}}
    compressing = typed(document)
    measured = measure(replace(run, scenario=compressing))
    lines = {subject for name, subject in measured.values if name in ("utilisation", "utilisation_tcp", "ack_share")}
    assert lines == {"line/forward"}
    (reason,) = (text for text in measured.unmeasured if "compresses headers" in text)
    assert "utilisation" in reason


def test_a_line_is_not_busy_for_longer_than_the_run(tmp_path: Path) -> None:
    run = line_run(tmp_path)
    # The last transmission ends after the run.
    forward = DirectionReport.read({"busy_s": 10.4})
    assert values(replace(run, counters={"line": {"forward": forward}}))["line_busy", "line/forward"] == 1.0


def test_what_a_line_carried(tmp_path: Path) -> None:
    run = line_run(tmp_path)
    result = values(run)
    data, acks = 10 * (1000 + HEADER) * 8 / 1e7, 5 * HEADER * 8 / 1e6
    assert result["utilisation", "line/forward"] == pytest.approx(data)
    assert result["data_share", "line/forward"] == pytest.approx(data)
    assert result["ack_share", "line/forward"] == 0
    assert result["utilisation", "line/reverse"] == result["ack_share", "line/reverse"] == pytest.approx(acks)
    assert result["utility", "line"] == pytest.approx(data)
    assert result["line_busy", "line/forward"] == pytest.approx(0.25)
    assert result["link_goodput", "line/forward"] == pytest.approx(10_000 / 20_000)
    assert ("link_goodput", "line/reverse") not in result
    # Two packets each in five slices of fifty: mean 0.2, and each of the five is 1.8 above it.
    spread = math.sqrt((5 * 1.8**2 + 45 * 0.2**2) / 49)
    assert result["data_bin_variation", "line/forward"] == pytest.approx(spread / 0.2)
    assert ("data_bin_variation", "line/reverse") not in result
    # Only the line between routers is what the scenario is about.
    assert {subject for name, subject in result if name == "utilisation"} == {"line/forward", "line/reverse"}
    over_time = metrics.utilisation_over_time(run.lines[0], 1.0)
    assert over_time["share"].to_list() == pytest.approx([0, 0, data * 10, 0, 0, 0, 0, 0, 0, 0])
    # A packet takes 8.4 ms: in slices of 4 ms, it fills the two before it came out, and a tenth of one more.
    fine = metrics.utilisation_over_time(run.lines[0], 0.004)["share"].to_list()
    at = round(2.02 / 0.004)
    assert fine[at - 4 : at + 1] == pytest.approx([0, 0.104, 1, 1, 0], abs=1e-6)
    # asym 3.1: ten times the rate, packets of 1052 for acks of 52 bytes.
    assert result["bandwidth_ratio", "bulk"] == pytest.approx(10 / (1052 / 52))


def two_ways() -> dict[str, Any]:
    """A path with a flow in each direction."""
    scenario = path_scenario()
    scenario["workload"].append({**scenario["workload"][0], "name": "back", "from": "b", "to": "a", "port": 5002})
    return scenario


def test_the_goodput_of_a_link_counts_the_flows_whose_data_cross_it(tmp_path: Path) -> None:
    trace = Trace(two_ways())
    for number in range(4):
        trace.data(B, 2 + number / 10, 1000 * number)
    trace.data(A, 2.5, 0, flow=1, port=40001)
    trace.ack(OUT, 2.6, 1000, flow=1, port=40001)
    forward = {"transmitted_bytes": 5000 + HEADER}
    counters = {"line": {"forward": forward, "reverse": {"transmitted_bytes": 4000}}}
    result = values(trace.run(tmp_path, "", counters))
    assert result["link_goodput", "line/forward"] == 4000 / 5000
    assert result["link_goodput", "line/reverse"] == 1000 / 4000


def test_counts_are_resolved_to_1_and_other_values_exactly() -> None:
    """Counts of 3 and 4 are not two groups of runs; rates that lie as far apart, relative to their spread, are."""
    for name, unit in (("retransmissions", "count"), ("no_longer_declared", "count")):
        assert estimate(name, unit, [3.0, 4.0]).resolution == 1
    assert estimate("throughput", "rate", [3.0, 4.0]).resolution == 0


def test_carried_rates_count_data_and_acks_apart(tmp_path: Path) -> None:
    trace = Trace(two_ways())
    for number in range(3):
        trace.data(OUT, 2 + number / 10, 1000 * number)
    trace.ack(OUT, 2.5, 1000, flow=1, port=40001)
    result = values(trace.run(tmp_path))
    data_bps, acks_bps = 3 * (1000 + HEADER) * 8 / 10, HEADER * 8 / 10
    assert result["carried_data", "line/forward"] == pytest.approx(data_bps)
    assert result["carried_acks", "line/forward"] == pytest.approx(acks_bps)
    assert result["carried", "line/forward"] == pytest.approx(data_bps + acks_bps)
    assert result["carried_acks", "line/reverse"] == 0


def test_warm_up_and_schedule_count_in_utilisation(tmp_path: Path) -> None:
    run = line_run(tmp_path, warm_up_s=2.5)
    # At the exit at 2.52 ... 2.92: five of the ten; 7.5 s of 1 Mbit/s.
    assert values(run)["utilisation", "line/forward"] == pytest.approx(5 * (1000 + HEADER) * 8 / 7.5e6)
    scenario = path_scenario()
    scenario["links"][1]["forward"]["schedule"] = [{"at_s": 6.0, "rate_bps": 500_000}, {"at_s": 7.0, "delay_s": 0.5}]
    line = Trace(scenario).run().lines[0]
    assert line.capacity_bits(5.0, 8.0) == pytest.approx(1e6 + 2 * 5e5)


def test_queue_and_ack_accounting(tmp_path: Path) -> None:
    run = line_run(tmp_path)
    result = values(run)
    # 4 for 2 s, 1 for 3 s, of 10 s.
    assert result["queue_mean", "line/reverse"] == pytest.approx(1.1)
    assert result["queue_max", "line/reverse"] == 6
    assert result["queue_max", "line/forward"] == 0
    assert result["queue_mean", "line/forward"] == 0
    assert result["acks_filtered", "line/reverse"] == 5
    assert result["acks_marked", "line/reverse"] == 0  # what was marked was data
    assert result["acks_reconstructed", "line/reverse"] == 1
    table = metrics.ack_accounting(run)
    row = table.filter(table["line"] == "line/reverse").to_dicts()[0]
    assert row == {
        "line": "line/reverse", "policy": "droptail", "entered": 10, "filtered": 5, "dropped": 0, "marked": 0,
        "reconstructed": 1, "lost": 0, "delivered": 5, "unexplained": 1,
    }  # fmt: skip


def test_dropped_and_lost_acks_are_taken_off_what_entered(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    transfer(trace, segments=4)
    events = ("dropped_full", "dropped_early", "dropped_early", "lost", "damaged")
    said = [
        f'{{"t_ns":{n}000000000,"link":"line","direction":"reverse","event":"{event}","bytes":52,"pure_ack":true}}\n'
        for n, event in enumerate(events, 2)
    ]
    table = metrics.ack_accounting(trace.run(tmp_path, "".join(said)))
    (row,) = table.filter(table["line"] == "line/reverse").to_dicts()
    assert (row["dropped"], row["lost"]) == (3, 2)
    assert row["unexplained"] == row["entered"] - row["delivered"] - 5


def test_samples_of_a_kernels_queue_have_lengths_and_classes_and_count_no_acks(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    transfer(trace, segments=4)
    head = '{"t_ns":2000000000,"link":"line","direction":"reverse",'
    said = [
        '"packets":4,"bytes":6000,"max":4}', '"event":"marked","count":3}',
        '"class":"classic","delay_s":0.015,"probability":0.01,"arrived_packets":7}',
        '"class":"l4s","delay_s":0.0005,"probability":0.2,"arrived_packets":9,"step_marked_packets":2}',
    ]  # fmt: skip
    run = trace.run(tmp_path, "".join(f"{head}{row}\n" for row in said))
    (line,) = [line for line in run.lines if line.name == "line/reverse"]
    assert line.queue_steps()["y"].to_list() == [4.0]
    assert line.events("marked")["t_s"].to_list() == [2.0]
    delays = line.class_steps("delay_s")
    assert {name: rows["y"].to_list() for name, rows in delays.items()} == {"classic": [0.015], "l4s": [0.0005]}
    assert list(line.class_steps("step_marked_packets")) == ["l4s"]
    with pytest.raises(MissingCapture, match="does not count acks separately"):
        _ = line.acks_by_event
    assert ("acks_marked", "line/reverse") not in values(run)
    assert values(run)["acks_marked", "line/forward"] == 0


def test_lines_are_measured_until_the_last_flow_ends(tmp_path: Path) -> None:
    scenario = path_scenario()
    scenario["workload"][0]["bytes"] = 10_000
    scenario["workload"].append(
        {**scenario["workload"][0], "name": "late", "port": 5002, "start_s": 2.0, "stop_s": 4.0}
    )
    scenario["workload"][1].pop("bytes")
    trace = Trace(scenario)
    for number in range(10):
        trace.data(OUT, 2.5 + number / 10, 1000 * number)
        trace.data(B, 2.6 + number / 10, 1000 * number)
    said = '{"t_ns":%s,"link":"line","direction":"forward","packets":%s,"bytes":0,"max":9}\n'  # noqa: UP031
    run = trace.run(tmp_path, said % (2_500_000_000, 4) + said % (3_000_000_000, 0))
    # One is through at 3.5 s, the other stops at 4 s: nobody asks what the line does from then to 10 s.
    assert run.lines[0].busy_window_s == (0.0, 4.0)
    result = values(run)
    assert result["utilisation", "line/forward"] == pytest.approx(10 * (1000 + HEADER) * 8 / 4e6)
    assert result["queue_mean", "line/forward"] == pytest.approx(4 * 0.5 / 4)
    # Both are active from 2 s to 3.5 s.
    assert result["active_queue_mean", "line/forward"] == pytest.approx(4 * 0.5 / 1.5)


def test_a_host_with_two_links_is_seen_on_both() -> None:
    """Data leave on one interface, acks come in on the other."""
    scenario = path_scenario()
    scenario["links"].append({**scenario["links"][0], "name": "second"})
    trace = Trace(scenario)
    trace.data("a-eth0", 2.0, 0)
    trace.ack("a-eth1", 2.5, 1000)
    trace.data("a-eth0", 3.0, 1000)
    flow = trace.run().flows[0]
    assert flow.at_sender["t_s"].to_list() == [2.0, 2.5, 3.0]
    assert flow.at_sender["stream"].n_unique() == 1
    assert metrics.outstanding(flow)["y"].to_list() == [1000, 0, 1000]


def test_round_trips_of_a_host_that_sends_by_one_interface_and_hears_by_another() -> None:
    scenario = path_scenario()
    scenario["links"].append({**scenario["links"][0], "name": "second"})
    trace = Trace(scenario)
    for t_s, byte in ((2.0, 0), (2.1, 1000), (2.2, 2000), (2.3, 3000)):
        trace.data("a-eth0", t_s, byte)
    trace.data("a-eth0", 3.0, 2000, kind="again")
    for t_s, byte in ((2.5, 1000), (2.6, 2000), (2.7, 2000), (3.5, 4000)):
        trace.ack("a-eth1", t_s, byte)
    # 1000 and 2000 exactly; 3000 was never acknowledged by itself, and its segment was sent twice.
    result = metrics.rtt_samples(trace.run().flows[0])
    assert result["t_s"].to_list() == [2.5, 2.6, 3.5]
    assert result["rtt_s"].to_list() == pytest.approx([0.5, 0.5, 1.2])


def test_what_was_not_captured_is_told_and_leaves_the_rest(tmp_path: Path) -> None:
    run = line_run(tmp_path)
    files = {name: number for name, number in run.files.items() if name != A}
    partial = replace(run, files=files)
    measured = measure(partial)
    assert ("throughput", "bulk") in measured.values
    assert ("goodput", "bulk") not in measured.values
    refused = measured.refused["flow bulk was not captured at a: add that interface to capture.at"]
    assert {"goodput", "rtt_mean", "cwnd_mean"} & set(refused) == {"goodput", "rtt_mean"}
    sentence = next(entry for entry in measured.unmeasured if "was not captured" in entry)
    assert sentence.startswith("goodput, retransmissions, ")
    assert sentence.endswith(": flow bulk was not captured at a: add that interface to capture.at")
    assert "idle_fraction" in measured.refused["needs counters (capture.counters), in a simulation"]
    silent = replace(run, folder=tmp_path / "nothing kept")
    with pytest.raises(MissingCapture, match="telemetry"):
        silent.lines[0].queue_steps()


def test_an_empty_run_has_no_metrics_that_need_packets() -> None:
    trace = Trace(path_scenario())
    trace.data(IN, 1.0, 0)  # one packet on a router's interface, none at a host
    result = values(trace.run())
    assert result["throughput", "bulk"] == 0
    assert ("goodput", "bulk") not in result
    assert ("rtt_mean", "bulk") not in result
    assert ("idle_share", "bulk") not in result
    assert result["coarse_timeouts", "bulk"] == 0


def test_every_metric_says_what_it_is() -> None:
    for entry in METRICS.values():
        assert all((entry.function.__doc__, entry.title, entry.source)), entry.name
        assert entry.per in ("flow", "run", "line", "link")


DOCUMENTATION = (Path(__file__).parents[3] / "docs/metrics.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the rows of a section's first table."""
    section = DOCUMENTATION.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_metric_is_in_the_documentation_with_its_providers() -> None:
    providers = {"runs": "C N", "captures": "C", "counters": "N"}
    expected = {name: providers[metric.subject.__module__.split(".")[1]] for name, metric in METRICS.items()}
    written: dict[str, str] = {}
    for heading in ("Flows", "Runs", "Links and their directions"):
        for row in table(heading):
            several = row[2].split(", ") if "," in row[2] else [row[2]] * len(names(row[0]))
            written |= dict(zip(names(row[0]), several, strict=True))
    # Of a run's application, which both providers read.
    written |= {name: "C N" for row in table("What applications experience") for name in names(row[0])}
    assert written == expected


@pytest.mark.parametrize("page", ["metrics", "plots", "exports", "studies/choices"])
def test_tables_of_the_documentation_are_those_of_the_registries(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    assert len(tables.TABLE.findall(text)) == {"plots": 2, "studies/choices": 6}.get(page, 1)
    assert tables.renewed(text) == text, "python -m tests.tables --update renews them"


def test_windows_of_the_stack_are_averaged_over_time(tmp_path: Path) -> None:
    trace = Trace(path_scenario(warm_up_s=2.0))
    trace.data(A, 2, 0)
    run = trace.run(tmp_path)
    told = ((0, 50), (1_000_000_000, 2), (5_000_000_000, 6))
    said = "".join(f'{{"t_ns":{t_ns},"cwnd_segments":{cwnd}}}\n' for t_ns, cwnd in told)
    (tmp_path / "telemetry/bulk.jsonl").write_text(said)
    result = values(run)
    # Begun at 1 s: 2 segments from 2 s on for 4 s, then 6 for the last 4 s.
    assert result["cwnd_mean", "bulk"] == pytest.approx(4)
    assert result["cwnd_variation", "bulk"] == pytest.approx(2 / 4)
    assert result["cwnd_final", "bulk"] == 6


def test_the_relay_of_a_split_connection_is_told_apart_from_the_source(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    trace.data(A, 1, 0)
    client, server = (next(end.address for end in trace.interfaces if end.node == node) for node in "ab")
    told = [(2, "ack", 2), (6, "coarse_timeout", 1), (7, "fast_retransmit", 1), (8, "ack", 6)]
    wireless = [
        {"t_ns": at_s * 10**9, "part": "wireless", "to": f"{server}:5001", "event": event, "cwnd_segments": cwnd}
        for at_s, event, cwnd in told
    ]
    others = [
        {"t_ns": 3 * 10**9, "part": "wired", "to": f"{client}:40000", "event": "coarse_timeout", "cwnd_segments": 1},
        {"t_ns": 3 * 10**9, "link": "line", "direction": "forward", "event": "coarse_timeout", "bytes": 1},
    ]
    run = trace.run(tmp_path, telemetry="".join(json.dumps(row) + "\n" for row in wireless + others))
    (tmp_path / "telemetry/bulk.jsonl").write_text('{"t_ns":0,"cwnd_segments":9}\n{"t_ns":5,"cwnd_segments":7}\n')
    result = values(run)
    assert result["relay_coarse_timeouts", "bulk"] == result["relay_fast_retransmits", "bulk"] == 1
    # From 1 s to 10 s: nothing, 2 from 2 s on, 1 from 6 s on, 6 from 8 s on.
    mean, square = (4 * 2 + 2 * 1 + 2 * 6) / 9, (4 * 4 + 2 * 1 + 2 * 36) / 9
    assert result["relay_cwnd_variation", "bulk"] == pytest.approx((square - mean**2) ** 0.5 / mean)
    assert result["cwnd_final", "bulk"] == 7
    complete = values(trace.run(tmp_path / "whole"))
    assert not any(name.startswith("relay_") for name, _ in complete)


def test_the_spread_over_flows() -> None:
    scenario = path_scenario()
    scenario["workload"].append({**scenario["workload"][0], "name": "second", "port": 5002})
    trace = Trace(scenario)
    transfer(trace, segments=4)
    transfer(trace, flow=1, port=40001, segments=8)
    assert values(trace.run())["throughput_sd", ""] == pytest.approx(4000 * 8 / 9 / 2**0.5)


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[float, int, int]]:
    """(time, connection, segment) of data at a receiver: lost, repeated, reordered, over up to three connections."""
    count = draw(st.integers(1, 40))
    times = sorted(draw(st.lists(st.integers(1000, 9999), min_size=count, max_size=count)))
    return [(t / 1000, draw(st.integers(0, 2)), draw(st.integers(0, 6))) for t in times]


@given(arrivals(), st.sampled_from([0.05, 0.3, 1.0, 7.0]), st.floats(0.0, 10.0))
def test_every_byte_is_delivered_once(came: list[tuple[float, int, int]], width_s: float, cut_s: float) -> None:
    """Whatever is lost or comes twice: slices, periods and the total tell of the same bytes."""
    trace = Trace(path_scenario())
    seen: list[set[int]] = [set(), set(), set()]
    for t_s, connection, segment in came:
        kind = "again" if segment in seen[connection] else "new"
        trace.data(B, t_s, 100 * segment, 100, kind, port=40000 + connection)
        seen[connection].add(segment)
    flow = trace.run().flows[0]
    complete = sum(100 * next(number for number in range(8) if number not in entry) for entry in seen)
    assert flow.delivered_bytes(-math.inf, math.inf) == complete
    assert flow.delivered_bytes(-math.inf, cut_s) + flow.delivered_bytes(cut_s, math.inf) == complete
    slices = flow.delivery_over_time(width_s)
    assert float(slices["bps"].sum()) * width_s / 8 == pytest.approx(complete)
    assert slices["bps"].min() >= 0  # type: ignore[operator]


@given(st.lists(st.just(0.0) | st.floats(1e-100, 1e9), max_size=20))  # squares of smaller ones lose their digits
def test_jains_index_is_between_one_nth_and_one(shares: list[float]) -> None:
    index = jain(shares)
    if index is not None:
        assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
        assert jain([2 * share for share in shares]) == pytest.approx(index)


@given(st.dictionaries(st.integers(0, 9999), st.integers(0, 9), max_size=20), st.integers(0, 9999), st.integers(1, 99))
def test_a_mean_over_time_is_that_of_its_instants(changes: dict[int, int], begin: int, length: int) -> None:
    steps = pl.DataFrame(sorted(changes.items()), schema={"t_s": pl.Float64, "y": pl.Float64}, orient="row")
    held = []
    for at in range(begin, begin + length):
        before = [t_s for t_s in changes if t_s <= at]
        held.append(changes[max(before)] if before else 0)
    assert captures.step_mean(steps, begin, begin + length) == pytest.approx(sum(held) / length)


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 9), max_size=20), st.lists(st.integers(0, 120), min_size=2))
def test_means_of_slices_are_those_of_their_periods(changes: dict[int, int], cuts: list[int]) -> None:
    steps = pl.DataFrame(sorted(changes.items()), schema={"t_s": pl.Float64, "y": pl.Float64}, orient="row")
    edges = [float(cut) for cut in sorted(set(cuts))]
    means = [captures.step_mean(steps, begin, end) for begin, end in pairwise(edges)]
    assert step_means(steps, edges) == pytest.approx(means)
