"""Metrics of runs with counters: by hand, and beside the captures of the same runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from analysis.captures import RunData
from analysis.counters import CountedRun, FlowBins, LineBins
from analysis.metrics import METRICS, ack_gap_mode, longest_gap_of_data, measure, utility_settling_time
from analysis.metrics.links import data_goodput
from analysis.metrics.window import cwnd_excursions
from analysis.store.documents import Batch
from experiments.engine.execution import Worker
from experiments.language import source
from experiments.language.campaign import expand
from testbed.report import Report
from tests.conftest import typed
from tests.support.campaign_texts import asymmetric_path

QUEUE = {"queue": {"name": "droptail"}}


def counted(**changes: Any) -> CountedRun:
    link: LineBins = {
        "data_bytes": [0, 1000, 1000, 0], "ack_bytes": [0, 0, 250, 0], "other_bytes": [0, 0, 0, 250],
        "queue_packets": [0, 2, 4, 6], "data_packets": 2, "data_payload_bytes": 1920, "ack_packets": 1,
        "ack_packets_bytes": 40, "longest_lost_run_of_acks": 0,
    }  # fmt: skip
    flow: FlowBins = {
        "delivered_bytes": [0, 960, 960, 0], "coarse_timeouts": [0, 0, 1, 0], "cwnd_segments": [0, 2, 4, 4],
        "last_s": 2.5, "round_trips": 2, "round_trips_s": 0.5, "round_trips_squared_s2": 0.145, "packet_bytes": 2000,
        "payload_bytes": 1920,
    }  # fmt: skip
    direction = {"rate_bps": 10_000} | QUEUE
    scenario = {
        "version": 1, "seed": 1, "duration_s": 4.0, "warm_up_s": 1.0,
        "links": [
            {"name": "l", "kind": "point-to-point", "ends": ["a", "b"], "forward": direction, "reverse": direction}
        ],
        "nodes": [{"name": "a", "kind": "host", "stack": {"name": "sa", "options": {}}}, {"name": "b", "kind": "host"}],
        "workload": [{"name": "f", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.5, "port": 5000}],
    }  # fmt: skip
    report = {
        "t0_epoch_ns": 0,
        "flows": {"f": {"send": {"retransmitted": 1}}},
        "driver": {"links": {"l": {"forward": {"error_losses": 4, "events": {"source_retransmit": 1}}}}},
    }
    return CountedRun(
        typed(scenario | changes), 1.0, 4.0, {"l": {"forward": link, "reverse": link}}, {"f": flow},
        Report.read(report),
    )  # fmt: skip


def test_the_last_bin_of_a_curve_lasts_until_the_runs_end() -> None:
    run = counted()
    assert run.flows[0].window_samples().select("t_s", "cwnd_segments").rows()[-2:] == [(3.0, 4.0), (4.0, 4.0)]
    assert run.lines[0].queue_steps().select("t_s", "y").rows()[-2:] == [(3.0, 6.0), (4.0, 6.0)]


def test_metrics_from_counters() -> None:
    rows = measure(counted()).values
    assert rows["throughput", "f"] == 1920 * 8 / 3
    assert rows["packet_throughput", "f"] == pytest.approx(2000 * 8 / 3)
    assert rows["utilisation", "l/forward"] == 2500 * 8 / 3 / 10_000
    assert rows["ack_share", "l/forward"] == 250 * 8 / 3 / 10_000
    assert rows["carried_data", "l/forward"] == 2000 * 8 / 3
    assert rows["carried_acks", "l/forward"] == 250 * 8 / 3
    assert rows["carried_other", "l/forward"] == 250 * 8 / 3
    assert rows["carried", "l/forward"] == 2500 * 8 / 3
    assert rows["data_fraction", "l/reverse"] == 2000 / 2250
    assert rows["ack_fraction", "l/reverse"] == pytest.approx(250 / 2250)
    assert rows["data_packet_size", "l/forward"] == 1000
    assert rows["ack_packet_size", "l/forward"] == 40
    assert rows["longest_gap_of_data", "l/forward"] == 0
    # From the flow's start at 0.5 s on, the bins from 1 s on.
    assert rows["idle_fraction", "l/forward"] == pytest.approx(1 / 3)
    assert rows["utility", "l"] == pytest.approx(2 * 2250 * 8 / 3 / 10_000)
    assert rows["queue_mean", "l/forward"] == 4
    assert rows["cwnd_mean", "f"] == pytest.approx(10 / 3)
    assert rows["cwnd_growth", "f"] == 1
    # 1 segment/s, and 10/3 segments outstanding at 2000 * 8 / 3 bit/s in packets of 1500 bytes: a window takes 7.5 s.
    assert rows["cwnd_growth_per_window", "f"] == pytest.approx(7.5)
    assert rows["coarse_timeouts", "f"] == 1
    assert rows["rtt_mean", "f"] == 0.25
    assert rows["rtt_sd", "f"] == pytest.approx(0.1)
    assert rows["data_goodput", "l/forward"] == 1
    assert rows.get(("data_goodput", "l/reverse")) is None  # no flow's data cross it
    assert rows["retransmissions_per_loss", ""] == 0.25
    assert rows["resent_twice_per_loss", ""] == 0.25


def test_goodput_of_data_counts_no_bytes_of_a_probe() -> None:
    flow = {"name": "f", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.5, "port": 5000}
    run = counted(workload=[flow, flow | {"name": "ping", "kind": "probe", "port": 0}])
    report = run.report.replace(flows={**run.report.flows, "ping": run.report.flows["f"]})
    run = replace(run, flow_bins={"f": run.flow_bins["f"], "ping": run.flow_bins["f"]}, report=report)
    assert data_goodput(run.lines[0]) == 1


def on_the_link(run: CountedRun, every_s: float, forward: dict[str, Any], reverse: dict[str, Any]) -> CountedRun:
    """The run with other bins of its link."""
    both = {"forward": forward, "reverse": reverse}
    ways = {way: cast(LineBins, {**run.link_bins["l"][way], **bins}) for way, bins in both.items()}
    return replace(run, every_s=every_s, end_s=run.scenario.duration_s, link_bins={"l": ways})


@pytest.mark.parametrize(("begins_s", "settled_s"), [(101, 290.0), (103, 300.0)])
def test_the_utility_settles_once_its_average_is_97_percent_of_the_second_half(begins_s: int, settled_s: float) -> None:
    """Data fill the forward line from the start and the slower reverse line later, so that the utility ends at 2.

    Averages over 200 s, every 10 s: 1.94 needs 188 s of the reverse line.
    """
    ways = {"forward": {"rate_bps": 10_000}, "reverse": {"rate_bps": 1000}}
    link = {"name": "l", "kind": "point-to-point", "ends": ["a", "b"]}
    run = counted(duration_s=800.0, links=[link | {way: spec | QUEUE for way, spec in ways.items()}])
    late = [0] * begins_s + [125] * (800 - begins_s)
    bins = {"data_bytes": [1250] * 800, "other_bytes": [0] * 800}, {"data_bytes": late, "other_bytes": [0] * 800}
    assert utility_settling_time(on_the_link(run, 1.0, *bins).links[0]) == settled_s


def test_the_utility_of_less_than_800_s_or_without_a_rate_does_not_settle() -> None:
    full = {"data_bytes": [1250] * 800, "other_bytes": [0] * 800}
    assert utility_settling_time(on_the_link(counted(duration_s=799.0), 1.0, full, full).links[0]) is None
    assert utility_settling_time(on_the_link(counted(duration_s=800.0), 1.0, full, full).links[0]) == 200
    link = {"name": "l", "kind": "point-to-point", "ends": ["a", "b"], "forward": {"rate_bps": 10_000} | QUEUE}
    unlimited = counted(duration_s=800.0, links=[link | {"reverse": QUEUE}])
    assert utility_settling_time(on_the_link(unlimited, 1.0, full, full).links[0]) is None


def test_gaps_of_acks_count_above_50_ms_and_the_longest_of_data_is_reported() -> None:
    """The flow runs from 0.5 s to 2 s. Two gaps of 90 ms are fewer than three of 30 ms, which are too short."""
    bins = {"ack_bytes": [0] * 200, "data_bytes": [0] * 200}
    for at in (10, 60, 70, 80, 84, 88, 92):
        bins["ack_bytes"][at] = 40
    for at in (10, 60, 70, 90):
        bins["data_bytes"][at] = 1000
    run = on_the_link(counted(duration_s=2.0, warm_up_s=0.0), 0.01, bins, bins)
    assert ack_gap_mode(run.lines[0]) == pytest.approx(0.09)
    assert longest_gap_of_data(run.lines[0]) == pytest.approx(0.19)


def test_the_window_falls_from_the_pipe_s_23000_bytes_to_less() -> None:
    """Falls in the first 5 s of the flow do not count, nor do rises, nor further bins below."""
    # A packet of 1040 bytes has 1000 of data, so 23 segments are 23 000 bytes.
    sender = {"name": "a", "kind": "host", "stack": {"name": "sa", "options": {"packet_bytes": 1040}}}
    run = replace(counted(duration_s=14.0, nodes=[sender, {"name": "b", "kind": "host"}]), end_s=14.0)
    run.flows[0].bins["cwnd_segments"] = [30, 1, 30, 1, 30, 1, 23, 22, 1, 30, 22.9, 30, 30, 1]
    assert cwnd_excursions(run.flows[0]) == 3


def test_a_period_that_ends_within_a_bin_takes_its_share() -> None:
    run = counted()
    assert run.total([10, 20, 30, 40], 0.5, 2.25) == 5 + 20 + 7.5
    assert run.mean([10, 20, 30, 40], 1.5, 2.5) == 25
    assert run.complete_bins([10, 20, 30, 40], 0.5, 3.5) == [20, 30]


def test_metrics_that_need_captures_are_refused() -> None:
    measured = measure(counted())
    assert "rtt_p95" in measured.refused["needs captures (capture.at)"]
    assert {"rtt_mean", "queue_mean", "idle_fraction"} <= {name for name, _ in measured.values}


# Both providers ----------------------------------------------------------------------------------------------

BOTH = f"""
name: both
backend: sim
{asymmetric_path("10 Mbit/s, delay: 10 ms", "200 kbit/s, delay: 10 ms")}stack: newreno
workload:
  - {{name: down, from: server, to: client, start: 0.3 s}}
  - {{name: up, from: client, to: server, start: 1 s}}
duration: 20 s
warm_up: 2 s
capture: {{counters: {{every: 100 ms, at: [bottleneck]}}}}
sweep:
  stack: [newreno, reno-bsd]
  network.forward.errors:
    - []
    - [{{model: uniform, probability: 0.01}}]
"""
#: Metrics whose definition depends on the provider (docs/metrics.md, "Where captures and counters differ").
DIFFERENT = {
    "first_upswing": "slices of 1 s against bins",
    "fast_retransmits": "every segment of a recovery against the sender's count of recoveries",
    "coarse_timeouts": "the whole run against the time after the warm-up",
    "rtt_mean": "each ack after the warm-up against each ack of new data of the whole run",
    "rtt_sd": "as rtt_mean",
    "cwnd_variation": "over time against over the bins' means",
    "cwnd_growth": "over the first and last second against the first and last bin",
    "cwnd_growth_per_window": "as cwnd_growth",
    "data_bin_variation": "slices of 0.2 s against bins",
    "queue_mean": "telemetry against every change; until the last flow ends against from the last flow's start",
}
#: Metrics that one provider of the two refuses, though it is not bound to the other.
ONE_ALONE = {"carried_other"}
#: Metrics without a value here: flows have no size, and no line has two flows.
WITHOUT_VALUE = {"ack_gap_mode", "completion_time", "mean_completion_time", "direction_fairness"}
#: What applications record is one file, which both providers read; flows here record nothing.
RECORDED = {
    name
    for name, metric in METRICS.items()
    if metric.function.__module__
    in ("analysis.metrics.calls", "analysis.metrics.latency", "analysis.metrics.transfers", "analysis.metrics.video")
}


def test_counters_and_captures_of_a_run_agree(tmp_path: Path) -> None:
    compared: set[str] = set()
    for number, run in enumerate(expand(source.parse("both.yaml", BOTH)).runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        pending = Worker("test", lambda _: None).run(run, 1, folder)(Batch())
        report = pending.documents.report
        counted_run = CountedRun.load(folder, run.scenario, report)
        assert counted_run is not None
        from_captures = measure(RunData.load(folder, run.scenario, report)).values
        from_counters = measure(counted_run).values
        both = {name for name, metric in METRICS.items() if metric.subject.__module__ == "analysis.runs"}
        for name, subject in sorted(from_captures.keys() | from_counters.keys()):
            if name in both - DIFFERENT.keys() - ONE_ALONE:
                key = (name, subject)
                assert from_captures[key] == pytest.approx(from_counters[key], rel=1e-9), key
                compared.add(name)
        # What lands is the captures' value, and the counters' where captures have none.
        landed = {(row.metric, row.subject): row.value for row in pending.metrics}
        assert landed == {**from_counters, **from_captures}
    assert compared == both - DIFFERENT.keys() - ONE_ALONE - WITHOUT_VALUE - RECORDED
