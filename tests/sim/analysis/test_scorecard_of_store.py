"""The scorecard of a store: which campaigns count, and what it reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.handle import OpenResults
from analysis.store import Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from experiments.papers import scorecard, theory
from experiments.papers.scorecard import Artefact
from tests.conftest import two_hosts
from tests.unit.analysis.store.conftest import campaign_fields, pending_run

TARGETS = """\
- {id: a, paper: p, title: A, section: '4', source: simulated, orderings: [], expected: [
    {metric: up, cell: {}, value: 10, unit: bit/s, relation: eq, tolerance: {rel: 0.1}, origin: stated}]}
- {id: b, paper: p, title: B, section: '5', source: simulated, orderings: [], expected: []}
"""
CHOICES = """\
- {artefacts: [a], fields: {duration: 3 s}, default: 5 s, by: ours, when: before, reason: short}
- {artefacts: [b], fields: {duration: 3 s}, default: none, by: ours, when: before, reason: short}
"""
TEXT = "artefact: a\nmeasures: {up: {metric: throughput, of: bulk}}\n"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("experiments.catalogue.FOLDER", tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p/targets.yaml").write_text(TARGETS)
    (tmp_path / "p/chosen.yaml").write_text(CHOICES)
    result = Store.open(tmp_path / "results")
    yield result
    result.close()


def keep(store: Store, name: str, *values: float, runs: int | None = None, text: str = TEXT, **changes: Any) -> None:
    """Keeps a campaign of `runs` runs, of which the first have landed with `values`."""
    members = [(0, number, f"{name}-{number}") for number in range(len(values) if runs is None else runs)]
    fields = campaign_fields(id=name, text=text, **({"backend": "sim"} | changes))
    store.begin_campaign(NewCampaign(**fields), [[("policy", "droptail")]], members)
    for (_, _, run_id), value in zip(members, values, strict=False):
        store.commit_run(replace(pending_run(store, run_id, value), documents=Documents(two_hosts(rate_bps=7), {})))


def artefact(store: Store, name: str = "a") -> Artefact:
    return next(entry for entry in scorecard.scorecard(OpenResults(store, "")) if entry.id == name)


def test_the_newest_campaign_of_each_backend_without_other_overrides_counts(store: Store) -> None:
    keep(store, "old", 10.0)
    keep(store, "new", 10.5, 11.5, overrides={"backend": "sim"})
    keep(store, "shorter", 10.0, overrides={"backend": "sim", "duration": "1 s"})
    keep(store, "nothing-landed", runs=1)
    keep(store, "no-artefact", 10.0, text="name: x")
    keep(store, "other-artefact", 10.0, text="artefact: b")
    keep(store, "real", 20.0, backend="emulated")
    result = artefact(store)
    assert {backend: score.campaign for backend, score in result.scores.items()} == {"sim": "new", "emulated": "real"}
    assert result.defaults == {}
    assert [(value.measured, value.runs, value.within) for value in result.scores["sim"].values] == [(11.0, 2, True)]
    assert not result.passes, "it fails with real packets"
    assert artefact(store, "b").scores["sim"].campaign == "other-artefact"


def test_a_campaign_with_defaults_is_scored_apart(store: Store) -> None:
    keep(store, "chosen", 10.0)
    assert artefact(store).verdict_with_defaults == "not run"
    keep(store, "defaults", 20.0, overrides={"defaults": "duration"})
    result = artefact(store)
    assert (result.scores["sim"].campaign, result.defaults["sim"].campaign) == ("chosen", "defaults")
    assert (result.passes, result.verdict_with_defaults) == (True, "fail")
    assert artefact(store, "b").verdict_with_defaults == "not run"
    keep(store, "other", 10.0, text="artefact: b")
    assert artefact(store, "b").verdict_with_defaults == "pass", "b has no default, so nothing was chosen"


@pytest.mark.parametrize(("runs", "passes", "verdict"), [(1, True, "pass"), (2, False, "incomplete")])
def test_runs_that_are_missing_leave_the_verdict_open(store: Store, runs: int, passes: bool, verdict: str) -> None:
    keep(store, "c", 10.0, runs=runs, text="artefact: b")
    result = artefact(store, "b")
    assert (result.passes, result.verdict_with_defaults) == (passes, verdict)
    assert (result.scores["sim"].asked, result.scores["sim"].valid) == (runs, 1)


@pytest.mark.parametrize("more", ["", ", other: {metric: throughput, of: bulk}"])
def test_a_configured_value_comes_from_the_stored_scenario(store: Store, more: str) -> None:
    link = two_hosts()["links"][0]["name"]
    keep(store, "c", 1.0, text=f"artefact: a\nmeasures: {{up: {{configured: links.{link}.forward.rate_bps}}{more}}}\n")
    assert [value.measured for value in artefact(store).scores["sim"].values] == [7.0]


def test_of_an_empty_store_only_arithmetic_passes(tmp_path: Path) -> None:
    with OpenResults.open(tmp_path / "results", create=True) as opened:
        scored = scorecard.scorecard(opened)
    assert scored
    for entry in scored:
        assert entry.passes == (entry.id in theory.ARITHMETIC), entry.id
        assert set(entry.scores) <= {"theory"}
