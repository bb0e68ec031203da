"""Report cards: what a criterion is, and when a sender meets it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from analysis.errors import AnalysisError
from analysis.question import subjects
from analysis.results import Quantity, Values
from analysis.statistics import RunKey
from experiments.cards import card, criteria
from experiments.cards.criteria import FOLDER, TESTED, Criterion
from experiments.cards.verdicts import Judged, judge, of_case
from experiments.language import source
from experiments.language.backends import Backend

RATE = Quantity("throughput", "tested", "rate")
AT_LEAST = Criterion(metric="throughput", of="tested", at_least_of_standard=0.9)


def values(*of_runs: float) -> Values:
    return {RunKey(number, 100 + number): value for number, value in enumerate(of_runs)}


def judged(criterion: Criterion, tested: Sequence[float], standard: Sequence[float], family: int = 1) -> Judged:
    return judge(criterion, {}, {RATE: values(*tested)}, {RATE: values(*standard)} if standard else {}, family)


@pytest.mark.parametrize(
    ("tested", "standard", "verdict"),
    [
        ([9.5, 9.6, 9.4], [10, 10, 10], "pass"),
        ([8.0, 8.1, 7.9], [10, 10, 10], "fail"),
        ([8.0, 10.0, 9.0], [10, 10, 10], "cannot tell"),
        # Pairs of a seed count: what varies alike cancels.
        ([9.3, 18.31, 27.32], [10, 20, 30], "pass"),
        # One run shows no spread.
        ([20.0], [10], "cannot tell"),
        # Values without any are their own interval.
        ([9.0, 9.0, 9.0], [10, 10, 10], "pass"),
        ([8.9, 8.9, 8.9], [10, 10, 10], "fail"),
        ([9.5, 9.6, 9.4], [], "not measured"),
    ],
)
def test_a_sender_is_judged_by_the_standard(tested: Sequence[float], standard: Sequence[float], verdict: str) -> None:
    assert judged(AT_LEAST, tested, standard).verdict == verdict


def test_at_most_turns_the_sides_and_a_number_needs_no_standard() -> None:
    at_most = Criterion(metric="throughput", of="tested", at_most_of_standard=1.25)
    assert judged(at_most, [12.0, 12.1, 11.9], [10, 10, 10]).verdict == "pass"
    assert judged(at_most, [13.0, 13.1, 12.9], [10, 10, 10]).verdict == "fail"
    number = Criterion(metric="throughput", of="tested", at_most=5.0)
    assert judged(number, [4.0, 4.1, 3.9], []).verdict == "pass"
    assert judged(number, [5.9, 6.0, 6.1], []).verdict == "fail"
    below = judged(number, [4.0, 4.1, 3.9], [])
    assert below.slack is not None
    assert 0 < below.slack.low < 1.0 < below.slack.high


def test_a_failure_among_many_criteria_needs_a_wider_interval_than_a_pass() -> None:
    # The interval at 95 % excludes the bound, and at 99.5 % does not.
    tested, standard = [8.7, 8.8, 8.9], [10, 10, 10]
    assert judged(AT_LEAST, [value - 0.1 for value in tested], standard, 1).verdict == "fail"
    assert judged(AT_LEAST, [value - 0.1 for value in tested], standard, 10).verdict == "cannot tell"
    better = [9.2, 9.3, 9.4]
    assert {judged(AT_LEAST, better, standard, family).verdict for family in (1, 10)} == {"pass"}


def test_a_case_passes_by_all_and_fails_by_one() -> None:
    passed, failed = judged(AT_LEAST, [9.5, 9.5], [10, 10]), judged(AT_LEAST, [8, 8], [10, 10])
    unsure, unmeasured = judged(AT_LEAST, [8, 11], [10, 10]), judged(AT_LEAST, [8, 8], [])
    assert [each.verdict for each in (passed, failed, unsure, unmeasured)] == [
        "pass", "fail", "cannot tell", "not measured",
    ]  # fmt: skip
    assert of_case([passed, passed]) == "pass"
    assert of_case([passed, failed, unmeasured]) == "fail"
    assert of_case([passed, unsure]) == "cannot tell"
    assert of_case([passed, unsure, unmeasured]) == "not measured"


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "at_most": 2}, {"at_least_of_standard": 0}])
def test_a_criterion_has_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Criterion.model_validate({"metric": "throughput", "of": "tested", **bounds})


def test_a_criterion_names_a_metric_that_exists() -> None:
    with pytest.raises(ValidationError, match="did you mean 'throughput'"):
        Criterion(metric="throughputt", of="tested", at_least=1)


@pytest.mark.parametrize("name", ["modern-bbr", "cubic"])
def test_every_case_is_a_campaign_that_has_what_is_asked(name: str) -> None:
    sender = card.sender(name)
    for case in criteria.cases():
        planned = card.planned(case, sender)
        assert planned.tested.name == f"card-{case.name}"
        for _, scenario in planned.tested.first_scenarios():
            of_tested = [flow for flow in scenario.workload if (flow.group or flow.name).startswith(TESTED)]
            assert of_tested, case.name
            assert {flow.stack["name"] for flow in of_tested if flow.stack} == {name}
            for criterion in case.criteria:
                assert criterion.of in subjects(scenario, criterion.metric), case.name
        # What the standard sender does in its place differs in nothing else.
        assert len(planned.standard.runs) == len(planned.tested.runs)
        assert (planned.standard.seed, planned.standard.repetitions) == (
            planned.tested.seed,
            planned.tested.repetitions,
        )


def test_every_campaign_of_the_folder_is_a_case() -> None:
    files = {path.stem for path in FOLDER.glob("*.yaml")} - {"criteria"}
    assert files == {case.name for case in criteria.cases()}


def test_a_case_keeps_the_options_of_its_own() -> None:
    (collapse,) = criteria.named(["collapse"])
    assert "receive_buffer: 64 kB" in collapse.file.read_text()
    plan = card.planned(collapse, card.sender("{name: modern, congestion: newreno, sack: true}")).tested
    ((_, scenario),) = plan.first_scenarios()
    stack = scenario.workload[0].stack
    assert stack is not None
    assert (stack["receive_buffer_bytes"], stack["congestion"]) == (64_000, "newreno")


def test_senders_and_what_they_are_held_against() -> None:
    assert card.sender("modern-bbr") == card.Sender({"name": "modern-bbr"}, "CUBIC", Backend.SIM)
    assert card.sender("bbr") == card.Sender({"name": "bbr"}, "CUBIC", Backend.VIRTUAL_KERNEL)
    assert card.sender("modern").standard == "Reno"
    assert card.sender("cubic").standard == "Reno"
    assert card.sender("{name: modern, ecn: data}").standard == "CUBIC"
    assert card.sender("{name: modern, ecn: data}").name == "modern (ecn: data)"
    assert card.sender("modern", "CUBIC").standard == "CUBIC"


@pytest.mark.parametrize(
    ("text", "standard", "message"),
    [
        ("modern-brb", None, "did you mean 'modern-bbr'"),
        ("{congestion: bbr}", None, "is not a stack"),
        ("{name: [", None, "is not a stack"),
        ("modern", "Vegas", "unknown standard 'Vegas'"),
    ],
)
def test_unknown_senders_are_rejected(text: str, standard: str | None, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        card.sender(text, standard)


def test_an_unknown_case_is_rejected_with_the_closest() -> None:
    with pytest.raises(AnalysisError, match="did you mean 'mixed"):
        criteria.named(["mixd"])
    assert [case.name for case in criteria.named(["mixed", "loss"])] == ["mixed", "loss"]


def test_files_have_the_parameter_where_docs_say_it_is() -> None:
    for case in criteria.cases():
        flows = source.read(case.file).values["workload"]
        assert all("stack" in flow for flow in flows if flow["name"].startswith(TESTED)), case.name
