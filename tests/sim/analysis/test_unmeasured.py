"""Runs of which some metric has no value: nothing was captured, or there is nothing to divide by."""

from __future__ import annotations

from pathlib import Path

import pytest

import analysis
from analysis.errors import AnalysisError
from tests.support.called import called
from tests.support.campaign_texts import asymmetric_path

CAMPAIGN = f"""
name: bare
backend: sim
{asymmetric_path()}stack: newreno
workload: [{{name: f, from: server, to: client}}]
duration: 1 s
capture: {{at: [none]}}
"""


def test_a_run_without_captures_and_counters_is_valid_and_has_no_metrics(tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text(CAMPAIGN)
    stored = ("--results", tmp_path / "results")
    status, out, err = called("run", tmp_path / "bare.yaml", *stored)
    assert status == 0, err
    said = "no metrics: it keeps neither captures nor counters (capture.at, capture.counters)"
    assert f"The campaign has {said}" in " ".join(out.split())
    status, _, err = called("plot", "bars", "bare", *stored)
    assert (status, err) == (2, f"backchannel: campaign bare has {said}\n")


#: Links without rate and delay: a round trip, and a transfer, take no time.
INSTANT = """
name: instant
backend: sim
stack: modern
variation: {round_trip: none}
network: {topology: line, forward: {delay: 0 s}}
workload:
  - {name: ping, kind: probe, from: left, to: right}
  - {name: f, from: left, to: right, start: 15.496 ms, size: 10 kB}
duration: 1 s
"""


def test_what_takes_no_time_has_no_rate(tmp_path: Path) -> None:
    (tmp_path / "instant.yaml").write_text(INSTANT)
    status, _, err = called("run", tmp_path / "instant.yaml", "--results", tmp_path / "results")
    assert status == 0, err
    with analysis.open(tmp_path / "results") as store:
        values = {(row["metric"], row["subject"]): row["value"] for row in store["instant"].values().to_dicts()}
        run = store.run(store["instant"].run_ids[0])
        # The first flow that has sequence numbers is drawn.
        assert run.plot("sequence").title == "f: sequence numbers at the sender"
        with pytest.raises(AnalysisError, match="UDP and ICMP have no sequence numbers"):
            run.plot("sequence", of=["ping"])
    assert values["latency_p50", "ping"] == 0
    assert values["throughput", "f"] == 0
    assert not {("responsiveness", "ping"), ("ack_rate", "f")} & values.keys()
