"""A campaign that keeps neither captures nor counters: its runs are valid, and have no metrics."""

from __future__ import annotations

from pathlib import Path

from tests.support.called import called
from tests.support.campaign_texts import asymmetric_path

CAMPAIGN = f"""
name: bare
{asymmetric_path()}workload: [{{name: f, from: server, to: client}}]
duration: 1 s
capture: {{at: [none]}}
"""


def test_a_run_without_captures_and_counters_is_valid_and_has_no_metrics(tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text(CAMPAIGN)
    stored = ("--results", tmp_path / "results")
    status, out, err = called("run", tmp_path / "bare.yaml", *stored)
    assert status == 0, err
    said = "no metrics: it keeps neither captures nor counters (capture.at, capture.counters)"
    assert f"The campaign has {said}" in out
    status, _, err = called("plot", "bars", "bare", *stored)
    assert (status, err) == (2, f"backchannel: campaign bare has {said}\n")
