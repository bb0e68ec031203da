"""What was chosen where a paper is silent: experiments/PAPER/chosen.yaml beside the campaign files."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.catalogue import FOLDER
from experiments.papers.choices import FILE, all_choices, choices, with_defaults
from experiments.papers.defaults import default_values, occurrences
from experiments.papers.reproduction import Reproduction, reproductions, select_reproductions
from experiments.papers.scorecard import Artefact, OrderingScore, Score
from experiments.papers.tables import score_table

ALL = {reproduction.artefact: reproduction for reproduction in reproductions()}


@pytest.mark.parametrize("paper", ["acq", "aq", "asym", "pulsed", "ton"])
def test_the_campaigns_have_the_chosen_values(paper: str) -> None:
    for choice in choices(FOLDER / paper / FILE):
        for artefact in choice.artefacts:
            for field, value in choice.fields.items():
                assert occurrences(ALL[artefact].source.values, field, value), (artefact, field, value)


@pytest.mark.parametrize("reproduction", ALL.values(), ids=lambda item: item.artefact)
def test_everything_that_a_file_calls_chosen_is_listed(reproduction: Reproduction) -> None:
    listed = [choice for choice in all_choices() if reproduction.artefact in choice.artefacts]
    text = reproduction.file.read_text()
    keys = {field.rpartition(".")[2] for choice in listed for field in choice.fields}
    fields = sum(len(choice.fields) for choice in listed)
    # A comment behind a field names that field. Other comments announce at least one field each.
    behind = [line for line in text.splitlines() if re.search("chosen", line, re.IGNORECASE) and not _is_comment(line)]
    for line in behind:
        if "backends" not in text or text.index(line) < text.index("\nbackends:"):
            assert any(key in line for key in keys | ({"start"} if line.startswith("workload:") else set())), line
    assert fields >= sum(bool(re.search("chosen", line, re.IGNORECASE)) for line in set(text.splitlines()))


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def test_defaults_replace_chosen_values_in_the_base_and_in_labels() -> None:
    chosen = choices(FOLDER / "asym" / FILE)
    entry = ALL["asym-table1"]
    values = default_values(entry.source.values, entry.artefact, chosen)
    assert values["workload"][0]["kind"] == "bulk"
    assert "free_options" not in values["network"]["reverse"]
    labels = values["sweep"]["axes"]["protocol"]
    assert labels["AF/AR"]["network.middlebox"] == {"middlebox": "ack-reconstruction"}
    # What the paper states stays.
    assert labels["Reno"]["stack"] == {"name": "reno-ns", "packet": "1000 B", "max_window": 120}
    assert entry.source.values["workload"][0]["kind"] == "established"


def test_with_defaults_an_artefact_is_another_campaign() -> None:
    entry = ALL["asym-table1"]
    plan, other = entry.plan("sim"), entry.plan("sim", defaults=True)
    assert (other.name, len(other.runs), dict(other.overrides)) == (
        "asym-table1-defaults", len(plan.runs), {"backend": "sim", "defaults": FILE}
    )  # fmt: skip
    assert not set(plan.run_ids) & set(other.run_ids)
    flow = other.runs[0].document.document["workload"][0]
    assert flow["kind"] == "bulk"


def test_only_artefacts_with_a_default_are_selected() -> None:
    assert {entry.artefact for entry in select_reproductions(defaults=True)} == with_defaults()


def test_the_printed_score_counts_ties_apart_and_shows_defaults_of_what_was_not_run_otherwise() -> None:
    tie = OrderingScore("m", "axis", ["a", "b"], {}, None, [1.0, 2.0], tie=True, holds=True)
    score = Score("sim", "c", 1, 1, [], [tie, replace(tie, tie=False)])
    artefact = Artefact("a", "aq", "A", "4", "simulated", 0, 2, {}, {"sim": score}, True)
    console = Console(width=300)
    with console.capture() as capture:
        console.print(score_table([artefact]))
    line = capture.get().splitlines()[0].strip()
    assert line == "a  not run, with defaults: pass (2 of 2 orderings (1 as ties))"
