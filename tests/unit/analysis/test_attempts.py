"""Attempts at a point's runs, and when the valid ones are marked as a selection."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from analysis.attempts import PointAttempts, attempts_of, permutation_p
from analysis.errors import AnalysisError
from analysis.handle import StoredCampaign
from analysis.results import MetricValue
from analysis.store import PendingRun, Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from experiments.labels import results_document
from experiments.results_table import Asked, results_table
from tests.conftest import two_hosts


def test_a_permutation_test_by_hand() -> None:
    # Of the 10 ways to choose two of five, only the two greatest differ from the mean as much.
    assert permutation_p([1.0, 2.0, 3.0], [9.0, 10.0]) == pytest.approx(1 / 10)
    assert permutation_p([1.0, 2.0], [1.5]) == 1.0
    assert permutation_p([1.0, 2.0], []) is None
    assert permutation_p([0.0, 0.0], [1.0]) is None
    # C(30, 15) regroupings are drawn.
    low, high = [float(value) for value in range(15)], [float(value) for value in range(15, 30)]
    assert permutation_p(low, high) == pytest.approx(0, abs=1e-3)
    assert permutation_p(low[::2] + high[::2], low[1::2] + high[1::2]) > 0.5  # type: ignore[operator]


def test_a_point_is_marked_for_many_thrown_attempts_or_unlike_ones() -> None:
    assert PointAttempts(valid=9, thrown=1).reasons == []
    assert PointAttempts(valid=8, thrown=1).reasons == ["1 of 9 attempts was discarded"]
    kept = [10.0 + 0.01 * number for number in range(40)]
    unlike = PointAttempts(kept_bps=kept, thrown_bps=[8.0, 8.1], valid=40, thrown=2)
    assert unlike.reasons == ["the discarded attempts had -21.0% throughput (permutation test, p = 0.0012)"]
    assert PointAttempts(kept_bps=kept, thrown_bps=[10.1, 10.3], valid=40, thrown=2).reasons == []


def test_the_table_and_the_json_say_how_many_attempts_a_point_took(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")

    def commit(run_id: str, throughput: float, *problems: str) -> None:
        folder = store.staging_folder(run_id)
        rows = [
            MetricValue("aggregate_throughput", "", throughput, "rate"),
            MetricValue("throughput", "f", 1e6, "rate"),
        ]
        documents = Documents(two_hosts(duration_s=1.0), {})
        store.commit_run(PendingRun(run_id, "emulated", documents, rows, problems, 1, folder))

    new = NewCampaign("c", "c", "C", "c.yaml", "", {}, "emulated", seed=1, repetitions=3)
    runs = [(0, number, f"run{number}") for number in range(3)]
    store.begin_campaign(new, [[("policy", "red")], [("policy", "waits")]], [*runs, (1, 0, "run9")])
    for number in range(3):
        commit(f"run{number}", 5e6)
    commit("run3", 9e6)
    assert attempts_of(store, "c")[0].reasons == []
    for run_id in ("run0", "run1"):
        commit(run_id, 2e6, "a packet left 9 ms late")
    result = attempts_of(store, "c")
    assert (result[0].total, result[0].thrown) == (5, 2)
    assert (result[0].kept_bps, result[0].thrown_bps) == ([5e6] * 3, [2e6] * 2)
    campaign = store.campaign("c")
    assert campaign is not None
    terminal = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    terminal.print(results_table(StoredCampaign(store, campaign), Asked(), terminal.width))
    text = terminal.export_text()
    with pytest.raises(AnalysisError, match="unknown flow or link 'g'; allowed: f$"):
        results_table(StoredCampaign(store, campaign), Asked(flows=["g"]), terminal.width)
    assert "3 of 5 tried !" in text
    assert "! policy=red: 2 of 5 attempts were discarded" in text
    assert "waits" not in text
    assert "Without a run so far: 1 combination" in text
    document = results_document(StoredCampaign(store, campaign))
    assert document["points"][0]["attempts"] == {
        "total": 5, "thrown": 2, "marked": ["2 of 5 attempts were discarded"],
    }  # fmt: skip
    store.close()
