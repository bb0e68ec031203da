"""Values in the output of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import outputs
from analysis.metrics.registry import estimate
from testbed.scenario import OutputMetric, Scenario
from tests.conftest import two_hosts


def metric(**fields: Any) -> OutputMetric:
    return OutputMetric.read({"of": "client", "unit": "number", "scale": 1.0, **fields})


def test_a_path_leads_through_objects_and_lists() -> None:
    text = '{"end": {"streams": [{"rate": 1}, {"rate": 2.5}]}}'
    assert outputs.value_in(text, metric(json="end.streams.1.rate")) == 2.5


def test_json_may_be_the_last_line_alone() -> None:
    assert outputs.value_in('loading\n50 %\n{"a": "7"}\n', metric(json="a")) == 7


def test_the_last_match_of_a_pattern_counts() -> None:
    assert outputs.value_in("1 Mbit/s\n2 Mbit/s\n", metric(pattern=r"^(\d+) Mbit/s$")) == 2


@pytest.mark.parametrize(
    ("text", "fields", "sentence"),
    [
        ("no json", {"json": "a"}, "the output is not JSON, and neither is its last line"),
        ('{"a": {"b": 1}}', {"json": "a.c"}, "a has no 'c'; it has: b"),
        ('{"a": [1]}', {"json": "a.1"}, "a has no '1'; it has: a list"),
        ('{"a": true}', {"json": "a"}, "'True' is not a number"),
        ('{"a": {}}', {"json": "a"}, "'{}' is not a number"),
        ('{"a": NaN}', {"json": "a"}, "nan is not a finite number"),
        ("x", {"pattern": "(y)"}, "nothing in the output matches '(y)'"),
        ("", {"json": "a"}, "the output is not JSON"),
    ],
)
def test_what_is_missing_is_a_sentence(text: str, fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        outputs.value_in(text, metric(**fields))
    assert sentence in str(caught.value)


def test_a_pattern_that_would_take_for_ever_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_MATCHING_S", 0.2)
    with pytest.raises(ValueError, match=r"was sought for 0.2 s without an end; write it without repetitions"):
        outputs.value_in("a" * 60 + "!", metric(pattern=r"^(?:(a|aa)+)+$"))


def test_values_are_of_the_flow_in_si_units_and_a_missing_one_is_a_problem(tmp_path: Path) -> None:
    document = two_hosts()
    (flow,) = document["workload"]
    flow |= {"kind": "command", "command": {
        "client_at": "to", "client": ["x"], "output_bytes": 100,
        "metrics": {
            "rtt": {"pattern": r"rtt (\d+)", "of": "client", "unit": "time", "scale": 1e-3},
            "loss": {"pattern": r"loss (\d+)", "of": "server-errors", "unit": "fraction", "scale": 0.01},
            "lost": {"json": "x", "of": "client", "unit": "count", "scale": 1},
        },
    }}  # fmt: skip
    scenario = Scenario.read(document)
    assert not outputs.read(tmp_path, scenario).rows
    (tmp_path / "programs").mkdir()
    (tmp_path / f"programs/{flow['name']}.client.out").write_text("rtt 25 ms\n")
    (tmp_path / f"programs/{flow['name']}.server.err").write_text("loss 3 %\n")
    found = outputs.read(tmp_path, scenario)
    assert [(row.metric, row.subject, row.value, row.unit) for row in found.rows] == [
        ("output.rtt", flow["name"], 0.025, "time"),
        ("output.loss", flow["name"], 0.03, "fraction"),
    ]
    (problem,) = found.problems
    assert "output.lost: the output is not JSON" in problem


def test_an_estimate_of_a_programs_number_may_be_negative() -> None:
    assert estimate("output.gain", "number", [-3.0, -2.0, -2.5]).bounds.least < -3
