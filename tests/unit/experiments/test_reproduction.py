"""What the papers' artefacts would take, counted from each point's first run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.store import Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from experiments.language.identity import run_identity
from experiments.papers.reproduction import Reproduction, expected, reproductions
from tests.unit.analysis.store.conftest import campaign_fields, pending_run

#: asym-fig4 has the runs of asym-fig3; asym-table4 has a single run of each point.
NAMES = ("asym-fig3", "asym-fig4", "asym-table4")


@pytest.fixture(scope="module")
def chosen() -> list[Reproduction]:
    return [item for item in reproductions() if item.artefact in NAMES]


@pytest.fixture
def store(tmp_path: Path, chosen: list[Reproduction]) -> Store:
    """With every other run of the first campaign."""
    made = Store.open(tmp_path / "results")
    plan = chosen[0].plan("sim")
    points = [list(point.parameters.items()) for point in plan.points]
    members = [(run.point, run.repetition, run.id) for run in plan.members]
    made.begin_campaign(NewCampaign(**campaign_fields(id=plan.id, backend="sim")), points, members)
    documents = {run.id: run.document.document for run in plan.runs}
    for run_id in plan.run_ids[::2]:
        made.commit_run(replace(pending_run(made, run_id, 1.0), documents=Documents(documents[run_id], {})))
    return made


def made_one_by_one(chosen: list[Reproduction], known: set[str], limit: float) -> dict[str, int]:
    """Runs of each artefact that are to be made, by the ids of all."""
    plans = sorted(((item, item.plan("sim")) for item in chosen), key=lambda pair: -pair[1].longest_s)
    seen, counts = set(known), dict[str, int]()
    for item, plan in plans:
        missing = [run_id for run_id in plan.run_ids if run_id not in seen]
        missing = missing[: int(min(limit - (len(seen) - len(known)), len(missing)))]
        seen |= set(missing)
        counts[item.artefact] = len(missing)
    return counts


@pytest.mark.parametrize("limit", [None, 5])
def test_counts_are_those_of_all_runs_made_one_by_one(chosen: list[Reproduction], limit: int | None) -> None:
    rows, whole_s = expected(chosen, "sim", None, 2, limit=limit)
    assert {row.artefact: row.to_run for row in rows} == made_one_by_one(chosen, set(), limit or math.inf)
    assert [row.runs for row in rows] == [len(item.plan("sim").runs) for item in chosen]
    assert sum(row.to_run for row in rows) < sum(row.runs for row in rows), "they share runs"
    assert whole_s > 0


def test_runs_of_the_store_are_not_counted(chosen: list[Reproduction], store: Store) -> None:
    known = set(chosen[0].plan("sim").run_ids[::2])
    rows, _ = expected(chosen, "sim", store, 2)
    assert {row.artefact: row.to_run for row in rows} == made_one_by_one(chosen, known, math.inf)
    forced, _ = expected(chosen, "sim", store, 2, force=True)
    assert {row.artefact: row.to_run for row in forced} == made_one_by_one(chosen, set(), math.inf)
    store.close()


def test_counting_makes_one_run_of_each_point(chosen: list[Reproduction], monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def counted(*words: Any) -> str:
        made.append(run_identity(*words))
        return made[-1]

    monkeypatch.setattr("experiments.language.runs.run_identity", counted)
    expected(chosen, "sim", None, 2)
    assert len(made) == sum(len(item.plan("sim").points) for item in chosen)
