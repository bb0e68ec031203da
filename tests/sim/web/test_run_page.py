"""What the page of a run says first, and the filters of its packets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flask.testing import FlaskClient

from analysis.store.rows import MetricRow
from testbed.report import DriverReport, Report
from tests.conftest import typed
from tests.support.made_traces import path_scenario
from tests.support.simulated import Simulated, ran
from tests.support.site import COUNTED
from web import packet_filter, run_summary
from web.app import create_app

SEGMENTS = pl.DataFrame(
    [
        {"dir": 0, "seq": 1, "payload": 1000, "ack": 1, "flags": 16, "class": 1 | 4096},
        {"dir": 0, "seq": 1, "payload": 1000, "ack": 1, "flags": 24, "class": 2 | 4096},
        {"dir": 1, "seq": 1, "payload": 0, "ack": 1001, "flags": 16, "class": 1024},
        {"dir": 1, "seq": 0, "payload": 0, "ack": 1, "flags": 18, "class": 1},
    ]
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", [0, 1, 2, 3]), ("data", [0, 1]), ("ack", [2, 3]), ("SYN", [3]), ("retransmission", [1]), ("data new", [0]),
        ("1000", [0, 1]), ("1001", [2]), ("data psh 500", [1]),
    ],
)  # fmt: skip
def test_a_filter_keeps_what_matches_all_of_its_words(text: str, kept: list[int]) -> None:
    rows = SEGMENTS.with_row_index("at").filter(pl.lit(value=True), *packet_filter.parse(text))
    assert rows["at"].to_list() == kept


def test_an_unknown_filter_names_the_nearest(client: FlaskClient, simulated: Simulated) -> None:
    answer = client.get(f"/api/runs/{simulated.run_id()}/segments?flow=forward&filter=retranmission")
    assert answer.status_code == 400
    assert "did you mean 'retransmission'?" in answer.text
    filtered: Any = client.get(f"/api/runs/{simulated.run_id()}/segments?flow=forward&filter=syn").json
    assert [one["flags"] for one in filtered["segments"]] == [["SYN"], ["SYN", "ACK"]]


def test_the_story_has_what_each_kind_of_flow_is_judged_by_and_the_queues_that_dropped() -> None:
    scenario = path_scenario()
    scenario["workload"].append({"name": "ping", "kind": "probe", "from": "a", "to": "b", "port": 5002})
    metrics = [
        MetricRow("r", "throughput", "bulk", 250_000.0, "rate"), MetricRow("r", "throughput", "ping", 100.0, "rate"),
        MetricRow("r", "latency_p50", "ping", 0.02, "time"), MetricRow("r", "coarse_timeouts", "bulk", 2.0, "count"),
    ]  # fmt: skip
    links = {"line": {"forward": {"submitted_packets": 90, "events": {"dropped_full": 7}}, "reverse": {}}}
    report = Report(t0_epoch_ns=0, driver=DriverReport.read({"links": links}))
    summary = run_summary.summarize(typed(scenario), metrics, report)
    assert [dict(flow.outcomes) for flow in summary.flows] == [
        {"Throughput": "250 kbit/s, 25 % of 1 Mbit/s (line forward)", "Coarse timeouts": "2"},
        {"Latency, median": "20 ms"},
    ]
    assert summary.queues == ["Of 90 packets on line forward: 7 dropped."]


def test_a_run_without_drops_says_so() -> None:
    report = Report(t0_epoch_ns=0, driver=DriverReport.read({"links": {"line": {"forward": {}}}}))
    summary = run_summary.summarize(typed(path_scenario()), [], report)
    assert summary.queues == ["No queue dropped or marked a packet, and no link lost one."]


def test_captures_say_nothing_of_queues() -> None:
    assert run_summary.summarize(typed(path_scenario()), [], Report(t0_epoch_ns=0)).queues == []


def test_a_flow_of_datagrams_has_no_plots_of_segments(tmp_path: Path) -> None:
    text = COUNTED.split("capture:")[0].replace(
        "workload:\n", "workload:\n  - {name: ping, kind: probe, from: client, to: server}\n"
    )
    pinging = ran(tmp_path, "pinging.yaml", text.replace("name: counted", "name: pinging").replace("12 s", "3 s"))
    site = create_app(pinging.results).test_client()
    plots = {
        flow: re.findall(r'data-kind="([\w-]+)"', site.get(f"/runs/{pinging.run_id()}?flow={flow}").text)
        for flow in ("ping", "forward")
    }
    assert {"sequence", "cwnd"} <= set(plots["forward"])
    assert not {"sequence", "cwnd"} & set(plots["ping"])
    assert {"throughput", "rtt"} <= set(plots["ping"])
    assert 'id="strip"' in site.get(f"/runs/{pinging.run_id()}").text


def test_datagrams_alone_do_not_cross_a_link_of_segments(tmp_path: Path) -> None:
    text = COUNTED.partition("workload:")[0].replace("name: counted", "name: probing")
    text += "workload: [{name: ping, kind: probe, from: client, to: server}]\nduration: 1 s\n"
    probing = ran(tmp_path, "probing.yaml", text)
    page = create_app(probing.results).test_client().get(f"/runs/{probing.run_id()}").text
    assert "Throughput, received by" in page
    # It would say that no packet crossed.
    assert 'id="strip"' not in page
