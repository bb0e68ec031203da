"""Search files: expressions, axes, questions, and their problems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analysis.results import Quantity
from experiments.language import source
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError
from experiments.search.expression import Expression
from experiments.search.file import read, read_question
from experiments.search.space import Choices, Numbers, design, read_axis
from tests.support.campaign_texts import one_line

VALUES = {Quantity("throughput", "down", "rate"): 6.0, Quantity("throughput", "up", "rate"): 2.0}
AXES = "axes: {network.forward.delay: {from: 1 ms, to: 1 s, scale: log}}\n"
QUESTION = "question: {max: throughput(bulk)}\n"


def value(text: str) -> float | None:
    scenario = expand(source.parse("c.yaml", one_line("c", ""))).runs[0].scenario
    return Expression.parse(text).value(VALUES, scenario)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("throughput(down)", 6.0),
        ("throughput(down) / throughput(up) - 1", 2.0),
        ("-(throughput( up ) + 0.5) * 2", -5.0),
        ("throughput(down) / (throughput(up) - 2)", None),
        ("throughput(nobody)", None),
    ],
)
def test_expressions_of_metrics(text: str, number: float | None) -> None:
    assert value(text) == number


@pytest.mark.parametrize(
    "text",
    ["1 + 1", "throughput(down) ** 9", "throughput(down) and 1", "__import__(down)", "throughput(down).real", "x + 1",
     "(", "throughput(down) + x", "throughput(down) + True"],
)  # fmt: skip
def test_what_is_no_expression_of_metrics_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an expression|unknown metric"):
        Expression.parse(text)


def test_axes_have_values_that_people_can_write() -> None:
    log = read_axis("rate", {"from": "50 kbit/s", "to": "5 Mbit/s", "scale": "log"})
    assert isinstance(log, Numbers)
    assert [log.value(share) for share in (0, 0.5, 1)] == ["50000 bit/s", "500000 bit/s", "5000000 bit/s"]
    assert log.share("500 kbit/s") != log.share("500000 bit/s") == pytest.approx(0.5)
    queue = read_axis("limit", {"from": "5 packets", "to": "8 packets"})
    assert [queue.value(share / 4) for share in range(5)] == [f"{n} packets" for n in (5, 6, 6, 7, 8)]
    assert read_axis("count", {"from": 1, "to": 9}).value(0.5) == 5
    choices = read_axis("policy", ["droptail", "codel"])
    assert isinstance(choices, Choices)
    assert [choices.value(share) for share in (0, 0.49, 0.5, 1)] == ["droptail", "droptail", "codel", "codel"]


def test_a_design_fills_the_space_and_is_the_same_for_a_seed() -> None:
    axes = (read_axis("a", {"from": 0.0, "to": 1.0}), read_axis("b", ["x", "y"]))
    points = design(axes, 32, 7)
    assert points == design(axes, 32, 7) != design(axes, 32, 8)
    # Each quarter of the range has its share, with each value.
    for quarter in range(4):
        inside = [point for point in points if quarter / 4 <= point["a"] < (quarter + 1) / 4]
        assert len(inside) == pytest.approx(8, abs=1)
        assert {point["b"] for point in inside} == {"x", "y"}


def test_questions_turn_what_is_searched_for_upwards() -> None:
    where = read_question({"where": "throughput(bulk) < 100 kbit/s"})
    assert where.sample([40_000.0]) == 60_000.0
    assert read_question({"min": "throughput(bulk)"}).sample([3.0]) == -3.0
    flips = read_question({"flips": "throughput(bulk)", "between": {"stack": ["reno", "cubic"]}})
    assert flips.variants == ({"stack": "reno"}, {"stack": "cubic"})
    assert flips.sample([3.0, 5.0]) == 2.0


@pytest.mark.parametrize(
    ("asked", "amount"),
    [
        ({"where": "throughput(bulk) < 100 kbit/s"}, "below 100 kbit/s by"),
        ({"where": "starvation(bulk) > 0.9"}, "above 0.9 by"),
        ({"min": "throughput(bulk)"}, "better than the campaign by"),
        ({"differs": "throughput(bulk)", "between": {"stack": ["reno", "cubic"]}}, "a difference of"),
    ],
)
def test_an_interval_is_said_of_what_it_is(asked: dict[str, object], amount: str) -> None:
    assert read_question(asked).amount == amount


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (AXES + QUESTION, 1, "campaign: is required"),
        ("name: c\nnetwork: {topology: line}\nduration: 9 s\n", 1, "this is a campaign file; a search file names it"),
        (
            "campaign: c.yaml\n" + AXES + "question: {most: throughput(bulk)}\n",
            3,
            "unknown field 'most'; allowed: max, min, where, flips",
        ),
        ("campaign: c.yaml\n" + AXES + "question: {where: throughput(bulk)}\n", 3, "is not EXPRESSION > NUMBER"),
        ("campaign: c.yaml\n" + AXES + "question: {flips: throughput(bulk)}\n", 3, "'between' belongs to flips and"),
        ("campaign: c.yaml\naxes: {stack: reno}\n" + QUESTION, 2, "an axis is a list of two or more values, or {from"),
        (
            "campaign: c.yaml\naxes: {stack: {from: 1 ms, to: 1 kbit/s}}\n" + QUESTION,
            2,
            "'ms' is a unit of time, but this is a rate",
        ),
        ("campaign: c.yaml\naxes: {stack: {from: 0 s, to: 1 s, scale: log}}\n" + QUESTION, 2, "above 0 on a log scale"),
        ("campaign: c.yaml\nrepetitions: 1\n" + AXES + QUESTION, 2, "is a whole number from 2"),
        ("campaign: c.yaml\nruns: 9\n" + AXES + QUESTION, 2, "unknown field 'runs'; allowed: axes, campaign, name"),
    ],
)
def test_problems_have_their_line(tmp_path: Path, text: str, line: int, sentence: str) -> None:
    (tmp_path / "c.yaml").write_text(one_line("c", ""))
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(CampaignError) as raised:
        read(tmp_path / "s.yaml")
    (problem,) = raised.value.problems
    assert (problem.line, sentence in problem.text("s.yaml")) == (line, True), problem


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "search.yaml")
    with pytest.raises(CampaignError, match="is not a regular file"):
        read(tmp_path / "search.yaml")
