"""Which campaigns a rule chooses."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.store.rows import CampaignRow
from experiments.cards import criteria
from experiments.language import source
from experiments.pruning import Rule, age_s, choose


def row(id_: str, name: str, finished: float | None, state: str = "complete", **changes: Any) -> CampaignRow:
    return CampaignRow(
        id_, name, name, "x.yaml", "name: x", {}, "sim", seed=1, repetitions=1, state=state, started=1.0,
        finished=finished, progress={}, runs=1, valid=1, invalid=0,
    )  # fmt: skip


#: Newest first, as the store lists them.
ROWS = [
    row("a3", "a", 300.0), row("b2", "b", None, "running"), row("a2", "a", 200.0), row("paper", "p", 150.0),
    row("a1", "a", 100.0),
]  # fmt: skip


def references(campaign: CampaignRow) -> str:
    return "reproduces something" if campaign.id == "paper" else ""


@pytest.mark.parametrize(
    ("rule", "goes", "stays"),
    [
        (Rule(keep=1), ["a2", "a1"], {}),
        (Rule(keep=2), ["a1"], {}),
        (Rule(before=200.0), ["a1"], {"is running": ["b"], "reproduces something": ["p"]}),
        (Rule(before=200.0, keep=3), [], {}),
        (Rule(before=200.0, referenced=True), ["paper", "a1"], {"is running": ["b"]}),
        (Rule(named=("paper", "b2")), ["paper"], {"is running": ["b"]}),
        (Rule(named=("a3", "a2", "a1"), keep=1), ["a2", "a1"], {}),
    ],
)
def test_every_condition_must_hold_and_what_is_in_use_stays(
    rule: Rule, goes: list[str], stays: dict[str, list[str]]
) -> None:
    chosen, kept = choose(ROWS, rule, references)
    assert ([each.id for each in chosen], kept) == (goes, stays)


def test_reasons_are_given_once_with_the_names() -> None:
    _, kept = choose(ROWS, Rule(before=500.0), lambda campaign: "is noted" if campaign.name == "a" else "")
    assert kept == {"is noted": ["a"], "is running": ["b"]}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 d", 30 * 86400), ("1.5 days", 129600), ("1 day", 86400), ("12 h", 43200), ("10 min", 600)],
)
def test_an_age_is_days_or_a_time(text: str, seconds: float) -> None:
    assert age_s(text) == seconds


@pytest.mark.parametrize("text", ["30", "soon", "-1 d", "2 weeks"])
def test_another_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as '30 d', '12 h' or '10 min'"):
        age_s(text)


def test_campaigns_of_a_report_card_are_known_by_their_names() -> None:
    for case in criteria.cases():
        assert source.read(case.file).values["name"] == f"card-{case.name}"
