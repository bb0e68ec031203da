"""Verdicts with one chosen parameter at a time at another value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from rich.console import Console

from analysis.store import Store
from experiments.engine.options import Options
from experiments.language.campaign import Plan, expand
from experiments.papers import choice_sensitivity
from experiments.papers.choice_sensitivity import Outcome, Variant, outcomes, variants
from experiments.papers.choices import FILE, Choice, all_choices, choices
from experiments.papers.reproduction import Reproduction, reproductions
from experiments.papers.sensitivity import perturbed_plan
from experiments.papers.targets import Target, all_targets
from experiments.terminal import TerminalReporter
from tests.support.called import called

ALL = {one.artefact: one for one in reproductions()}
TARGETS = {target.id: target for target in all_targets()}
CLAIM, TARGET = ALL["pulsed-claim-growth"], TARGETS["pulsed-claim-growth"]
PULSED = next(value for value in TARGET.expected if value.cell.get("option") == "Pulsed ACK")


def scored(folder: Path, target: Target = TARGET) -> Iterator[Outcome]:
    """The outcomes of the claim by its target, or by another one."""
    return outcomes(CLAIM, target, Options(folder, 1), TerminalReporter(Console(quiet=True)), 1)


def test_every_choice_is_changed_alone_to_its_default_and_alternatives() -> None:
    found = variants(ALL["asym-table1"])
    assert found[0].label == "as chosen"
    spacing = [one.changed for one in found if "network.middlebox.spacing" in one.changed]
    assert spacing == [{"network.middlebox.spacing": None}, {"network.middlebox.spacing": "agent"}]
    agent = next(one for one in found if one.label == "network.middlebox.spacing: agent").values
    labels = agent["sweep"]["axes"]["protocol"]
    assert labels["AF/AR"]["network.middlebox"]["spacing"] == "agent"
    assert labels["ACC/SA"] == ALL["asym-table1"].source.values["sweep"]["axes"]["protocol"]["ACC/SA"]


@pytest.mark.parametrize(
    "one", [ALL[name] for choice in all_choices() if choice.alternatives for name in choice.artefacts],
    ids=lambda one: one.artefact,
)  # fmt: skip
def test_alternatives_make_valid_campaigns(one: Reproduction) -> None:
    listed = [choice for choice in choices(one.file.with_name(FILE)) if one.artefact in choice.artefacts]
    made = [variant for variant in variants(one) if any(variant.changed in choice.alternatives for choice in listed)]
    assert made
    for variant in made:
        assert expand(replace(one.source, values=dict(variant.values)), ["backend=sim"]).runs


def test_an_alternative_is_a_value_of_a_field_of_its_choice() -> None:
    with pytest.raises(ValidationError, match="alternatives are values of a, not of"):
        Choice(
            artefacts=("x",), fields={"a": 1}, default="none", alternatives=({"b": 2},), by="ours", when="after",
            reason="r",
        )  # fmt: skip


def test_an_interrupted_score_ends_all_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def interrupted(plans: list[Plan], *_: object) -> list[SimpleNamespace]:
        begun.append(plans[0].id)
        return [SimpleNamespace(interrupted=True)]

    monkeypatch.setattr(choice_sensitivity, "run_campaigns", interrupted)
    Store.open(tmp_path / "results").close()
    reporter = TerminalReporter(Console(quiet=True))
    with pytest.raises(KeyboardInterrupt):
        list(outcomes(ALL["asym-table1"], TARGETS["asym-table1"], Options(tmp_path / "results"), reporter, 1))
    assert len(begun) == 1


def test_a_verdict_that_changes_is_a_flip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a longer path the window grows less in a second, which the target's measure scales by the usual round trip."""
    network = CLAIM.source.values["network"]
    longer = {**CLAIM.source.values, "network": {**network, "forward": {**network["forward"], "delay": "80 ms"}}}
    both = [Variant({}, CLAIM.source.values), Variant({"network.forward.delay": "80 ms"}, longer)]
    monkeypatch.setattr(choice_sensitivity, "variants", lambda _: both)
    usual, long = scored(tmp_path)
    grown = _measured(long)
    assert 0 < grown < _measured(usual)
    # A target that only the longer path meets.
    changed = _expecting(grown, within=1e-6)
    assert [outcome.flips for outcome in scored(tmp_path, changed)] == [False, True]


def test_a_variant_whose_runs_fail_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Variant({}, CLAIM.source.values), Variant({}, CLAIM.source.values, 1)]
    monkeypatch.setattr(choice_sensitivity, "variants", lambda _: both)

    def broken(plan: Plan, number: int, by: float) -> Plan:
        runs = perturbed_plan(plan, number, by).runs
        line = runs[0].document.document["links"][1]
        line["forward"]["queue"]["options"]["limit_packets"] = -1
        return replace(plan, name=f"{plan.name}-{number}", runs=runs)

    monkeypatch.setattr(choice_sensitivity, "perturbed_plan", broken)
    usual, failed = scored(tmp_path)
    assert usual.score is not None
    assert (failed.score, failed.flips) == (None, False)
    assert failed.problem == f"1 of {usual.score.asked} runs have no valid result"


def test_a_share_of_runs_in_a_phase_lock_flips_with_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is the exact growth on the exact lines, which no other line has."""
    perturbed = [one for one in variants(CLAIM) if one.perturbation]
    assert [one.label for one in perturbed] == [
        f"every rate, delay and buffer up to 0.1% off ({number})" for number in (1, 2, 3)
    ]
    monkeypatch.setattr(choice_sensitivity, "variants", lambda _: [Variant({}, CLAIM.source.values), *perturbed])
    exact = _measured(next(scored(tmp_path)))
    first, *others = scored(tmp_path, _expecting(exact, within=1e-9))
    assert first.score is not None
    assert (first.score.passes, [other.flips for other in others]) == (True, [True] * 3)


def _expecting(growth: float, within: float) -> Target:
    """The target with this growth in place of the published one, and without orderings."""
    value = PULSED.model_copy(update={"value": growth, "tolerance": {"abs": within}})
    return TARGET.model_copy(update={"expected": [value], "orderings": []})


def _measured(outcome: Outcome) -> float:
    assert outcome.score is not None
    values = [value for value in outcome.score.values if value.measure == PULSED.measure]
    value = next(value for value in values if "Pulsed" in str(value.cell))
    assert value.measured is not None
    return value.measured


def test_sensitivity_needs_an_artefact() -> None:
    status, _, errors = called("papers", "score", "--sensitivity")
    assert status == 2
    assert "--sensitivity needs the artefacts or papers to run" in errors


def test_an_artefact_is_scored_with_another_number_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, errors = called("papers", "score", "--repetitions", "2")
    assert status == 2
    assert "--repetitions 2 needs the artefacts or papers to run, for example: papers score asym-table1" in errors
    status, _, errors = called("papers", "score", "asym-fig1", "--repetitions", "2")
    assert (status, "asym-fig1" in errors) == (2, True)
    monkeypatch.chdir(tmp_path)
    status, printed, _ = called("papers", "score", "asym-fig10", "--repetitions", "2", "--json")
    (artefact,) = json.loads(printed)["artefacts"]
    assert (status, artefact["id"], list(artefact["scores"])) == (0, "asym-fig10", ["sim"])
    score = artefact["scores"]["sim"]
    assert (score["asked"], score["valid"], {value["runs"] for value in score["values"]}) == (2, 2, {2})
    # Neither runs nor scores are kept.
    assert list(tmp_path.iterdir()) == []
    status, printed, _ = called("papers", "score", "asym-fig10", "--repetitions", "2")
    assert (status, "Max idle gap" in printed) == (0, True)
