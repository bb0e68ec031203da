"""From campaigns to the scorecard: labelled axes, measures, counters, arithmetic, and the verdict on each value and
ordering.
"""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from analysis.results import Quantity
from analysis.statistics import Interval, RunKey, exact_interval, sd_interval, share_interval
from experiments.language import source
from experiments.language.campaign import Plan, expand
from experiments.language.measures import AnyForm, Configured, Metric, Ratio, Split, read
from experiments.language.problems import CampaignError
from experiments.papers import scorecard, theory, wording
from experiments.papers.reproduction import reproductions, select_reproductions
from experiments.papers.scorecard import Artefact, OrderingScore, Score, ValueScore, between_backends
from experiments.papers.table import Table, TableCell
from experiments.papers.tables import score_table
from experiments.papers.targets import Expected, Ordering, all_targets, targets
from testbed.node_binary import ROOT
from tests.conftest import two_hosts, typed

BASE = """\
name: t
backend: sim
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 5 ms}}
stack: {name: newreno, timestamps: false, ack_every: 1}
workload: [{name: f, from: left, to: right}]
duration: 5 s
variation: none
"""
AXES = """\
sweep:
  axes:
    protocol:
      Reno: {stack.name: reno-bsd}
      AF: {stack.name: newreno, network.forward.queue.policy: ack-filtering}
    "rate, delay":
      "slow, 5": {network.forward.rate: 1 Mbit/s}
      "fast, 50": {network.forward.rate: 2 Mbit/s, network.forward.delay: 50 ms}
"""


def plan(more: str = "", *overrides: str) -> Plan:
    return expand(source.parse("c.yaml", BASE + more), overrides)


# Labelled axes ------------------------------------------------------------------------------------------------


def test_points_are_told_by_the_labels_of_their_axes() -> None:
    planned = plan(AXES)
    assert [dict(point.parameters) for point in planned.points] == [
        {"protocol": "Reno", "rate": "slow", "delay": "5"}, {"protocol": "Reno", "rate": "fast", "delay": "50"},
        {"protocol": "AF", "rate": "slow", "delay": "5"}, {"protocol": "AF", "rate": "fast", "delay": "50"},
    ]  # fmt: skip
    last = planned.runs[-1].document.document["links"][0]["forward"]
    assert (last["rate_bps"], last["delay_s"], last["queue"]["name"]) == (2_000_000, 0.05, "ack-filtering")


def test_a_label_can_be_excluded_and_a_field_overridden() -> None:
    planned = plan(AXES + "  exclude: [{protocol: AF, 'rate, delay': 'fast, 50'}]\n", "network.forward.delay=7 ms")
    assert len(planned.points) == 3
    assert {run.document.document["links"][0]["forward"]["delay_s"] for run in planned.runs} == {0.007}


def test_labels_and_measures_make_no_other_runs() -> None:
    labelled = plan(AXES + "artefact: aq-fig1\nmeasures: {x: {metric: throughput, of: f}}\n")
    swept = plan("sweep: {stack.name: [reno-bsd, newreno]}")
    assert labelled.runs[0].id == swept.runs[0].id


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("sweep: {axes: [1]}", "sweep.axes: expected a mapping such as"),
        ("sweep: {axes: {p: {a: 3}}}", "expected a mapping of fields to values"),
        ("sweep: {axes: {'p, q': {a: {duration: 1 s}}}}", "has 2 names, so each label needs 2 parts"),
        ("sweep: {axes: {p: {a: {duration: 1 s}}}, duration: [1 s]}", "'duration' is swept twice"),
        ("sweep: {axes: {p: {' ': {duration: 1 s}}}}", "the label is empty"),
        ("measures: {x: {metric: throughput, ratio: y}}", "exactly one of"),
        ("measures: {x: {ratio: y}}", "a measure with 'ratio' needs 'axis'"),
        ("measures: {x: {gather: {a: y}}}", "a measure with 'gather' needs 'axis'"),
        ("capture: {counters: {every: 1 s, at: [lime]}}", "did you mean 'line'"),
        ("workload: [{name: u, kind: cbr, from: left, to: right}]", "cbr needs 'rate'"),
    ],
)
def test_mistakes_are_told(more: str, words: str) -> None:
    base = BASE if "workload" not in more else BASE.replace("workload: [{name: f, from: left, to: right}]\n", "")
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("c.yaml", base + more))
    assert words in str(caught.value)


def test_a_comma_in_an_axis_name_is_one_mistake_however_many_labels_there_are() -> None:
    labels = ", ".join(f"d{number}: {{duration: {number} s}}" for number in range(2, 32))
    with pytest.raises(CampaignError) as caught:
        expand(source.parse("c.yaml", BASE + f"sweep: {{axes: {{'delay, both ways': {{{labels}}}}}}}"))
    assert len(caught.value.problems) == 1
    assert str(caught.value).endswith("for an axis with one name, leave the comma out of its name")


# Measures -----------------------------------------------------------------------------------------------------

POINTS = {0: {"policy": "a", "rate": "1"}, 1: {"policy": "a", "rate": "2"}, 2: {"policy": "b", "rate": "1"}}


def values_of(runs: Mapping[int, Sequence[float]]) -> dict[int, dict[Quantity, dict[RunKey, float]]]:
    """Values of measure x by point."""
    return {
        number: {Quantity("throughput", "f", "rate"): {RunKey(at, at): value for at, value in enumerate(of_point)}}
        for number, of_point in runs.items()
    }


VALUES = values_of({0: [10.0, 12.0], 1: [20.0, 22.0], 2: [5.0, 6.0]})


def table(splits: list[dict[str, Any]] | None = None, **measures: dict[str, Any]) -> Table:
    made = {name: read(measure) for name, measure in measures.items()}
    made["x"] = Metric(metric="throughput", of="f")
    return Table(made, [Split.model_validate(entry) for entry in splits or []], POINTS, VALUES)


def around(mean: float | None, half: float | None) -> Interval | None:
    return None if mean is None or half is None else Interval(mean - half, mean + half, 0.95, "t")


def rate(measured: float | None, half: float | None, **other: Any) -> ValueScore:
    """A published rate of 10 ± 10 %, beside a measured one."""
    value = ValueScore(
        "rate", {}, "eq", 10.0, "bit/s", {"rel": 0.1}, "stated", measured, 3, around(measured, half), within=True
    )
    return replace(value, **other)


def test_a_cell_with_fewer_labels_takes_all_that_fit() -> None:
    assert table().cell("x", {"policy": "a"}).values == [10.0, 12.0, 20.0, 22.0]
    assert table().cell("x", {"policy": "a", "rate": 2}).values == [20.0, 22.0]
    assert table().cell("nothing", {}).values == []


def test_derived_measures() -> None:
    made = table(
        less={"difference": "x", "axis": "policy", "between": ["a", "b"]},
        over={"ratio": "x", "axis": "policy", "between": ["a", "b"]},
        most={"greatest": "x", "over": "rate"},
        best={"best": "x", "over": "rate"},
        mean={"mean": "x", "over": "rate"},
        low={"share": "x", "below": 11},
        half={"scale": "x", "by": 0.5},
        own={"scale": "x", "axis": "policy", "by": {"a": 1, "b": 100}},
        more={"plus": "x", "by": 1},
        twice={"sum": ["x", "x"]},
    )
    assert made.cell("less", {"rate": 1}).values == [5.0, 6.0]
    assert made.cell("less", {"rate": 2}).values == []
    assert made.cell("over", {}).values == [2.0, 2.0]
    assert made.cell("most", {"policy": "a"}).values == [20.0, 22.0]
    assert made.cell("best", {"policy": "a"}).values == [2.0]
    assert made.cell("mean", {"policy": "a"}).values == [10.0, 12.0, 20.0, 22.0]
    assert made.cell("low", {"policy": "a", "rate": 1}).values == [1.0, 0.0]
    assert made.cell("low", {"policy": "a", "rate": 1}).interval == share_interval(1, 2)
    assert made.cell("low", {"policy": "b"}).interval == share_interval(2, 2), "all runs, and yet not certain"
    assert made.cell("half", {"policy": "b"}).values == [2.5, 3.0]
    assert made.cell("own", {"policy": "b"}).values == [500.0, 600.0]
    assert made.cell("more", {"policy": "b"}).values == [6.0, 7.0]
    assert made.cell("twice", {"policy": "b"}).values == [10.0, 12.0]


@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1, 2)), min_size=2, max_size=9))
def test_a_ratio_is_that_of_the_means_and_varies_with_both(runs: list[tuple[float, float]]) -> None:
    """The values' mean is the ratio of the means, and their deviation that of the delta method: of numerator,
    denominator and what they share.
    """
    values = ratios(*({RunKey(at, at): run[side] for at, run in enumerate(runs)} for side in (0, 1)))
    top, bottom = [run[0] for run in runs], [run[1] for run in runs]
    ratio = statistics.fmean(top) / statistics.fmean(bottom)
    assert statistics.fmean(values) == pytest.approx(ratio)
    variance = (
        statistics.variance(top)
        + ratio**2 * statistics.variance(bottom)
        - 2 * ratio * statistics.covariance(top, bottom)
    ) / statistics.fmean(bottom) ** 2
    assert statistics.variance(values) == pytest.approx(variance, rel=1e-6, abs=1e-12)


def test_a_ratio_of_runs_that_do_not_pair_is_one_value() -> None:
    paired, others = {RunKey(0, 1): 10.0, RunKey(1, 2): 12.0}, {RunKey(5, 6): 5.0, RunKey(6, 7): 6.0}
    assert ratios(paired, others) == [2.0]


def ratios(a: dict[RunKey, float], b: dict[RunKey, float]) -> Sequence[float]:
    """The values of a measured ratio of `a` over `b`."""
    ratio = Ratio(ratio="x", axis="p", between=("a", "b"))
    measures: dict[str, AnyForm] = {"x": Metric(metric="throughput", of="f"), "over": ratio}
    values = {number: {Quantity("throughput", "f", "rate"): side} for number, side in enumerate((a, b))}
    return Table(measures, [], {0: {"p": "a"}, 1: {"p": "b"}}, values).cell("over", {}).values


def by_label(runs: dict[str, list[float]], **measures: dict[str, Any]) -> Table:
    """Measures of `x`, whose axis `n` has these runs."""
    made = {name: read(measure) for name, measure in measures.items()}
    made["x"] = Metric(metric="throughput", of="f")
    points = {number: {"n": label} for number, label in enumerate(runs)}
    return Table(made, [], points, values_of(dict(enumerate(runs.values()))))


NOISY = {"1": [3.0, 9.0, 4.0], "2": [6.0, 6.5, 4.0], "3": [4.0, 4.5, 5.0], "4": [0.1, 0.3, 0.2]}


def test_a_label_of_the_greatest_mean_lies_among_those_that_may_be_it() -> None:
    cell = by_label(NOISY, best={"best": "x", "over": "n"}).cell("best", {})
    assert cell.values == [2.0]
    assert cell.interval == Interval(1.0, 3.0, 0.95, "possible")
    clear = by_label({"1": [3.0, 3.1, 3.0], "2": [9.0, 9.2, 9.1]}, best={"best": "x", "over": "n"})
    assert clear.cell("best", {}).interval == Interval(2.0, 2.0, 0.95, "possible")
    single = by_label({"1": [3.0], "2": [9.0], "5": [4.0]}, best={"best": "x", "over": "n"})
    assert single.cell("best", {}).interval == Interval(1.0, 5.0, 0.95, "possible"), "one run each decides nothing"


def test_the_greatest_mean_has_the_interval_of_a_choice() -> None:
    cell = by_label(NOISY, most={"greatest": "x", "over": "n"}).cell("most", {})
    alone = TableCell({}, NOISY["2"]).interval
    assert (cell.values, cell.interval is not None, alone is not None) == (NOISY["2"], True, True)
    assert cell.interval.low < alone.low < alone.high < cell.interval.high  # type: ignore[union-attr]
    # Its other runs count for nothing once a competitor has a single one.
    lone = by_label({"1": [3.0], "2": [9.0, 9.1]}, most={"greatest": "x", "over": "n"}).cell("most", {})
    assert (lone.values, lone.interval) == ([9.05], None)


def test_a_deviation_over_runs_has_an_interval() -> None:
    values = [1.0, 2.0, 4.0, 3.0, 9.0, 2.0]
    cell = by_label({"1": values}, spread={"stdev": "x"}).cell("spread", {})
    assert cell.values == [statistics.stdev(values)]
    assert cell.interval == sd_interval(values)
    assert by_label({"1": values[:4]}, spread={"stdev": "x"}).cell("spread", {}).interval is None
    assert by_label({"1": values[:1]}, spread={"stdev": "x"}).cells("spread") == []


def test_an_interval_follows_what_keeps_it_and_is_lost_by_what_does_not() -> None:
    best = {"best": "x", "over": "n"}
    made = by_label(
        NOISY, best=best, percent={"scale": "best", "by": -100}, more={"plus": "best", "by": 1},
        kinds={"gather": {"a": "best", "b": "x"}, "axis": "kind"},
        twice={"sum": ["best", "best"]}, most={"greatest": "x", "over": "n"}, double={"sum": ["most", "most"]},
        mean={"mean": "kinds", "over": "kind"},
    )  # fmt: skip

    def interval(name: str, **labels: str) -> tuple[float, float] | None:
        found = made.cell(name, labels).interval
        return None if found is None else (found.low, found.high)

    assert (interval("percent"), interval("more")) == ((-300.0, -100.0), (2.0, 4.0))
    assert interval("kinds", kind="a") == (1.0, 3.0)
    assert (made.cell("twice", {}).values, interval("twice")) == ([4.0], None)
    assert (made.cell("double", {}).values, interval("double")) == ([11.0], None), "the runs were chosen"
    assert made.cell("mean", {}).values[:1] == [2.0]


def test_measures_of_one_run_become_labels_of_an_axis() -> None:
    made = table(
        half={"scale": "x", "by": 0.5},
        both={"gather": {"wired": "x", "wireless": "half", "lost": "nothing"}, "axis": "part"},
    )
    assert made.cell("both", {"part": "wired", "policy": "b"}).values == [5.0, 6.0]
    assert made.cell("both", {"part": "wireless", "policy": "b"}).values == [2.5, 3.0]
    assert made.cell("both", {"part": "lost"}).values == []


def test_a_configured_value_is_the_scenario_s() -> None:
    measures = {
        "rate": Configured(configured="links.air.forward.rate_bps"),
        "none": Configured(configured="links.sea.rate"),
    }
    scenario = two_hosts(rate_bps=100)
    scenario["links"] = [{**scenario["links"][0], "name": name} for name in ("wire", "air")]
    scenario["links"][0]["forward"] = {**scenario["links"][0]["forward"], "rate_bps": 200}
    made = Table(measures, [], POINTS, VALUES, {0: typed(scenario)})
    assert made.cell("rate", {"policy": "a"}).values == [100.0]
    assert made.cell("rate", {"policy": "a"}).interval == exact_interval(100.0), "there is no chance in it"
    assert made.cell("none", {}).values == []


def test_runs_of_two_kinds_are_told_apart() -> None:
    split = {"axis": "policy", "label": "a", "by": "key", "below": 11, "into": ["a (low)", "a (high)"]}
    made = table([split], key={"metric": "throughput", "of": "f"})
    assert made.cell("x", {"policy": "a (low)", "rate": 1}).values == [10.0]
    assert made.cell("x", {"policy": "a (high)"}).values == [12.0, 20.0, 22.0]
    assert made.cell("key", {"policy": "a (low)"}).values == [10.0]


# The verdict --------------------------------------------------------------------------------------------------


#: Two tolerances of 10 at 100, each by the greater of its parts.
TENTH = [{"rel": 0.1, "abs": 1}, {"rel": 0.01, "abs": 10}]
LIMITS = [("eq", [90, 110], [89, 111]), ("approx", [90], [89]), ("ge", [90, 111], [89]), ("le", [89, 110], [111])]


@pytest.mark.parametrize(
    ("value", "tolerance", "relation", "inside", "outside"),
    [
        *((100, tolerance, *limits) for tolerance in TENTH for limits in LIMITS),
        (0, {"abs": 0.5}, "ge", [-0.5], [-0.51]), (0, {"abs": 0.5}, "le", [0.5], [0.51]),
        (0, {"abs": 0.5}, "eq", [0.5], [0.51]), (0, {"abs": 0.5}, "approx", [-0.5], [-0.51]),
        (1, {"rel": 0.1}, "eq", [1.05], [1.5]), (1, {"abs": 0.1}, "eq", [1, 1.05], [1.5]), (1, {}, "eq", [1], [1.05]),
    ],
)  # fmt: skip
def test_the_greater_tolerance_includes_its_edges(
    value: float, tolerance: dict[str, float], relation: str, inside: list[float], outside: list[float]
) -> None:
    of_target = {"metric": "x", "cell": {}, "value": value, "unit": "1", "origin": "stated"}
    expected = Expected.model_validate({**of_target, "relation": relation, "tolerance": tolerance})
    assert [scorecard.within(measured, expected) for measured in inside] == [True] * len(inside)
    assert not any(scorecard.within(measured, expected) for measured in outside)


@pytest.mark.parametrize(
    ("within", "of", "passes"), [(4, 5, True), (3, 5, False), (79, 100, False), (80, 100, True), (1, 2, False)]
)
def test_an_artefact_passes_with_four_fifths_of_its_stated_values(within: int, of: int, passes: bool) -> None:
    def value(origin: str, good: bool) -> ValueScore:
        return rate(10.0, 0.5, origin=origin, within=good)

    stated = [value("stated", at < within) for at in range(of)]
    # Derived values count for neither side.
    for derived in ([], [value("derived", False)] * of, [value("derived", True)] * of):
        assert Score("sim", "c", 3, 3, [*stated, *derived], []).passes is passes
    # An incomplete campaign, and one whose ordering is reversed, never pass.
    assert not Score("sim", "c", 4, 3, stated, []).passes
    reversed_ = OrderingScore("x", "policy", ["a", "b"], {}, None, [1.0, 2.0], False, False)
    assert not Score("sim", "c", 3, 3, stated, [reversed_]).passes
    # Without stated values and orderings, the derived ones count.
    assert Score("sim", "c", 3, 3, [value("derived", at < within) for at in range(of)], []).passes is passes


@pytest.mark.parametrize(
    ("min_ratio", "a", "b", "holds", "tie"),
    [
        (None, [9.0, 11.0, 10.0], [9.5, 11.5, 10.5], True, True),
        (None, [9.0, 9.1, 9.2], [19.0, 19.1, 19.2], False, False),
        (None, [9.0], [9.1], False, False),
        (None, [9.1], [9.0], True, False),
        (None, [9.0], [9.0], True, False),
        # A label without a value, in either place, is not an ordering.
        (None, [], [9.0], False, False),
        (None, [9.0], [], False, False),
        # A least ratio is of the means; the intervals make no tie of a smaller one.
        (2.0, [18.0, 22.0], [9.0, 11.0], True, False),
        (2.0, [17.9, 21.9], [9.0, 11.0], False, False),
        (1.0, [9.0, 11.0, 10.0], [9.5, 11.5, 10.5], False, False),
    ],
)
@pytest.mark.parametrize("direction", ["descending", "ascending"])
def test_an_ordering_holds_by_means_least_ratio_and_ties(
    direction: str, min_ratio: float | None, a: list[float], b: list[float], holds: bool, tie: bool
) -> None:
    result = scorecard._ordering(of_a_and_b(a, b), ordering_of_a_and_b(direction, min_ratio))
    assert (result.holds, result.tie) == (holds, tie)


@pytest.mark.parametrize(("spread", "runs", "refuted"), [(0.1, 20, True), (3.0, 20, False), (0.4, 2, False)])
def test_a_tie_of_means_that_are_shown_to_be_equal_refutes_the_effect(spread: float, runs: int, refuted: bool) -> None:
    """A tie of few or scattered runs leaves open whether the published order would show."""
    a = [10.0 + spread * (-1) ** run for run in range(runs)]
    b = [value + 0.05 for value in a]
    result = scorecard._ordering(of_a_and_b(a, b), ordering_of_a_and_b("descending", None))
    assert (result.holds, result.tie, result.refuted) == (True, True, refuted)
    score = Score("sim", "c", 3, 3, [], [result])
    assert list(wording.counts(score)) == [
        f"1 of 1 orderings (1 as ties{', 1 of them without an effect of 5 %' if refuted else ''})"
    ]


@pytest.mark.parametrize(
    ("relation", "values", "conclusive"),
    [
        # 90 to 110 are within; three values at distance 1 have an interval of 2.5 on both sides.
        ("eq", [99.0, 100.0, 101.0], True),
        ("eq", [107.5, 108.5, 109.5], False),
        ("eq", [110.5, 111.5, 112.5], False),
        ("eq", [112.0, 113.0, 114.0], True),
        ("eq", [90.0, 91.0, 92.0], False),
        # A bound has one limit.
        ("le", [90.0, 91.0, 92.0], True),
        ("le", [109.0, 110.0, 111.0], False),
        ("ge", [109.0, 110.0, 111.0], True),
        ("ge", [88.0, 89.0, 90.0], False),
        # Without chance nothing crosses. Without a second run nothing is known of chance.
        ("eq", [110.0, 110.0, 110.0], True),
        ("eq", [100.0], False),
        ("eq", [], False),
    ],
)
def test_an_interval_across_a_limit_is_inconclusive(relation: str, values: list[float], conclusive: bool) -> None:
    of_target = {"metric": "x", "cell": {}, "value": 100, "unit": "1", "origin": "stated", "tolerance": {"rel": 0.1}}
    expected = Expected.model_validate({**of_target, "relation": relation})
    assert scorecard._value(of_a_and_b(values, []), expected).conclusive is conclusive


def ordering_of_a_and_b(direction: str, min_ratio: float | None) -> Ordering:
    """Measure x of policy a is the greater one."""
    order = ["a", "b"] if direction == "descending" else ["b", "a"]
    return Ordering.model_validate(
        {"metric": "x", "axis": "policy", "order": order, "where": {"rate": 1}, "direction": direction,
         "min_ratio": min_ratio}
    )  # fmt: skip


def of_a_and_b(a: list[float], b: list[float]) -> Table:
    """Measure x of policies a and b."""
    return Table({"x": Metric(metric="throughput", of="f")}, [], POINTS, values_of({0: a, 2: b}))


@pytest.mark.parametrize(
    ("min_ratio", "a", "b", "conclusive"),
    [
        (None, [19.0, 20.0, 21.0], [9.0, 10.0, 11.0], True),
        (None, [9.0, 10.0, 11.0], [19.0, 20.0, 21.0], True),
        # In order, and the difference of 1 may be chance.
        (None, [10.0, 11.0, 12.0], [9.0, 10.0, 11.0], False),
        # In order by 3 ± 2.3, although the two intervals, 2.5 each, overlap.
        (None, [12.0, 13.0, 14.0], [9.0, 10.0, 11.0], True),
        # Reversed by as much: a tie, which more runs may end.
        (None, [9.0, 10.0, 11.0], [12.0, 13.0, 14.0], False),
        (2.0, [24.0, 25.0, 26.0], [9.0, 10.0, 11.0], True),
        (2.0, [20.0, 21.0, 22.0], [9.0, 10.0, 11.0], False),
        (2.0, [14.0, 15.0, 16.0], [9.0, 10.0, 11.0], True),
        # Constants have no chance.
        (None, [5.0, 5.0], [5.0, 5.0], True),
        (None, [5.0, 5.0], [6.0, 6.0], True),
        # Chance is unknown.
        (None, [5.0], [6.0], False),
        (None, [6.0], [5.0], False),
        (None, [], [6.0, 7.0], True),
    ],
)
@pytest.mark.parametrize("direction", ["descending", "ascending"])
def test_an_insignificant_order_is_inconclusive(
    direction: str, min_ratio: float | None, a: list[float], b: list[float], conclusive: bool
) -> None:
    assert scorecard._ordering(of_a_and_b(a, b), ordering_of_a_and_b(direction, min_ratio)).conclusive is conclusive


def of_spreads(a: list[float], b: list[float]) -> scorecard.OrderingScore:
    runs = {"a": a, "b": b}
    ordering = Ordering.model_validate(
        {"metric": "spread", "axis": "n", "order": ["a", "b"], "where": {}, "direction": "descending"}
    )
    return scorecard._ordering(by_label(runs, spread={"stdev": "x"}), ordering)


def test_an_order_of_deviations_needs_intervals_that_do_not_overlap() -> None:
    wide, close, equal = [0.0, 60.0, 20.0, 90.0, 40.0, 10.0], [50.0, 51.0, 50.2, 50.7, 49.9, 50.4], [50.0] * 6
    assert (of_spreads(wide, close).holds, of_spreads(wide, close).conclusive) == (True, True)
    assert (of_spreads(close, wide).holds, of_spreads(close, wide).conclusive) == (False, True)
    rather_wide = [value * 0.7 for value in wide]
    assert (of_spreads(wide, rather_wide).holds, of_spreads(wide, rather_wide).conclusive) == (True, False)
    assert (of_spreads(rather_wide, wide).tie, of_spreads(rather_wide, wide).conclusive) == (True, False)
    assert of_spreads(wide, equal).conclusive
    assert (of_spreads(equal, equal).holds, of_spreads(equal, equal).conclusive) == (True, True), "no chance in either"
    assert not of_spreads(wide[:4], close).conclusive, "four values have no interval"


@pytest.mark.parametrize(
    ("means", "holds", "conclusive"),
    [((30, 20, 10), True, True), ((30, 20, 19), True, False), ((30, 19, 20), True, False), ((10, 20, 19), False, True)],
)
def test_one_significant_reversal_decides_an_order(means: tuple[int, ...], holds: bool, conclusive: bool) -> None:
    made = by_label({policy: [mean - 1.0, mean, mean + 1.0] for policy, mean in zip("abc", means, strict=True)})
    order = {"metric": "x", "axis": "n", "order": ["a", "b", "c"], "where": {}, "direction": "descending"}
    result = scorecard._ordering(made, Ordering.model_validate(order))
    assert (result.holds, result.conclusive) == (holds, conclusive)


@pytest.mark.parametrize(
    ("values", "orderings", "passes", "conclusive"),
    [
        # Of five values four are needed. + and -: conclusive; p and m: within and outside, inconclusive.
        ("+++++", "", True, True),
        ("++++p", "", True, True),
        ("+++pp", "", True, False),
        ("+++pm", "", True, False),
        ("+++--", "", False, True),
        ("+++-m", "", False, False),
        ("++--m", "", False, True),
        ("++++-", "+", True, True),
        ("++++-", "+p", True, False),
        ("++++-", "-p", False, True),
        ("++++-", "m", False, False),
        # Both have to be otherwise at once.
        ("+++-m", "m", False, False),
        ("+++--", "m", False, True),
        ("", "p", True, False),
    ],
)
def test_a_verdict_is_conclusive_if_no_inconclusive_value_or_ordering_decides_it(
    values: str, orderings: str, passes: bool, conclusive: bool
) -> None:
    made = Score(
        "sim", "c", 3, 3,
        [rate(10.0, 0.5, within=sign in "+p", conclusive=sign in "+-") for sign in values],
        [OrderingScore("x", "p", ["a"], {}, None, [1.0], False, sign in "+p", sign in "+-") for sign in orderings],
    )  # fmt: skip
    assert (made.passes, made.conclusive) == (passes, conclusive)
    # A campaign that is not complete fails for certain.
    assert replace(made, valid=2).conclusive


def test_what_is_inconclusive_is_marked_and_counted() -> None:
    value = rate(10.9, 0.5, conclusive=False)
    order = OrderingScore("rate", "p", ["a", "b"], {}, None, [1.0, 2.0], False, False, conclusive=False)
    score = Score("sim", "c", 3, 3, [value], [order])
    text = printed(Artefact("asym-x", "asym", "X", "7", "simulated", 1, 1, {"sim": score}))
    assert "(inconclusive)  1 of 1 values, 0 of 1 orderings" in text
    assert "+? Rate, tolerance 10 %: 10 bit/s published, 10.90 ± 0.50 bit/s measured (+9 %)" in text
    assert "Rate, in order: sim -? a 1, b 2" in text
    assert "1 verdict of a backend is inconclusive" in text
    both = Artefact("asym-x", "asym", "X", "7", "simulated", 1, 1, {"sim": score, "emulated": replace(score)})
    text = printed(both)
    assert "sim +? 10.90 ± 0.50 bit/s, emulated +? 10.90 ± 0.50 bit/s" in text
    assert "sim -? a 1, b 2; emulated -? a 1, b 2" in text
    clear = replace(
        score, values=[replace(value, conclusive=True)], orderings=[replace(order, holds=True, conclusive=True)]
    )
    text = printed(Artefact("asym-x", "asym", "X", "7", "simulated", 1, 1, {"sim": clear}))
    assert "(inconclusive)" not in text
    assert "?" not in text
    assert "+ Rate" in text


def printed(artefact: Artefact) -> str:
    """The table of one artefact with details."""
    terminal = Console(record=True, width=200, file=io.StringIO())
    terminal.print(score_table([artefact], details=True))
    return terminal.export_text()


def test_the_verdict_with_defaults_is_the_ordinary_one_where_nothing_was_chosen() -> None:
    good, part = Score("sim", "c", 3, 3, [], []), Score("sim", "c", 3, 2, [], [])
    bad = replace(good, orderings=[OrderingScore("x", "p", ["a"], {}, None, [1.0], False, False)])
    cases: list[tuple[dict[str, Score], dict[str, Score], bool, str]] = [
        ({"sim": good}, {}, False, "pass"), ({}, {}, False, "not run"), ({"sim": good}, {"sim": bad}, True, "fail"),
        ({"sim": bad}, {"sim": good}, True, "pass"), ({}, {"sim": good, "emulated": bad}, True, "fail"),
        ({"sim": good}, {}, True, "not run"), ({"sim": good}, {"sim": good}, True, "pass"),
        ({}, {"sim": part}, True, "incomplete"),
    ]  # fmt: skip
    made = [Artefact("a", "aq", "A", "4", "simulated", 0, 1, *case[:3]) for case in cases]
    assert [entry.verdict_with_defaults for entry in made] == [verdict for *_, verdict in cases]
    assert Artefact("a", "aq", "A", "4", "simulated", 0, 1, {"sim": good}).verdict_with_defaults == "pass"
    counted = scorecard.count(made)
    assert (counted["pass"], counted["defaults_pass"], counted["defaults_not_run"]) == (4, 3, 3)
    assert scorecard.count(made[5:6])["defaults_not_run"] == 1


def test_published_values_of_stored_metrics_are_in_si_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.catalogue.FOLDER", tmp_path)
    common = "relation: eq, tolerance: {rel: 0.1}, origin: stated"
    (tmp_path / "aq").mkdir()
    (tmp_path / "aq/targets.yaml").write_text(
        "- {id: a, paper: aq, title: A, section: '4', source: simulated, orderings: [], expected: [\n"
        f"  {{metric: up, cell: {{rate: 2}}, value: 30, unit: '%', {common}}},\n"
        f"  {{metric: up, cell: {{}}, value: 4, unit: s, {common}}},\n"
        f"  {{metric: best, cell: {{}}, value: 5, unit: s, {common}}},\n"
        f"  {{metric: other, cell: {{}}, value: 6, unit: s, {common}}}]}}\n"
    )
    text = "artefact: a\nmeasures:\n  up: {metric: goodput, of: bulk}\n  best: {best: up, over: rate}\n"
    result = [(entry.metric, entry.subject, entry.cell, entry.value) for entry in scorecard.published(text)]
    assert result == [("goodput", "bulk", {"rate": "2"}, 0.3), ("goodput", "bulk", {}, 4.0)]
    assert scorecard.published(text.replace("artefact: a\n", "")) == []


def test_ties_are_counted_apart_from_orderings_that_hold() -> None:
    def ordering(tie: bool, holds: bool) -> OrderingScore:
        return OrderingScore("x", "policy", ["a", "b"], {}, None, [1.0, 2.0], tie, holds)

    made = Score("sim", "c", 3, 3, [], [ordering(True, True), ordering(False, True), ordering(False, False)])
    result = scorecard.count([Artefact("a", "aq", "A", "4", "simulated", 0, 3, {"sim": made})])
    assert (result["orderings"], result["orderings_hold"], result["orderings_tied"]) == (3, 2, 1)


def test_the_document_for_scripts_has_scores_totals_and_agreement() -> None:
    def score(backend: str, measured: float) -> Score:
        values = [rate(measured, 0.1, origin=origin, within=origin == "stated") for origin in ("stated", "derived")]
        return Score(backend, "c", 3, 3, values, [])

    scores = {"sim": score("sim", 10.0), "emulated": score("emulated", 10.4)}
    made = Artefact("a", "aq", "A", "4", "simulated", 2, 0, scores, {"sim": scores["sim"]}, has_choices=True)
    result = scorecard.document([made])
    (artefact,) = result["artefacts"]
    assert {key: value for key, value in artefact.items() if key not in ("scores", "defaults")} == {
        "id": "a", "paper": "aq", "title": "A", "section": "4", "source": "simulated", "values": 2, "orderings": 0,
        "has_choices": True, "passes": True, "with_defaults": "pass",
    }  # fmt: skip
    assert (artefact["scores"].keys(), artefact["defaults"].keys()) == ({"sim", "emulated"}, {"sim"})
    sim = artefact["scores"]["sim"]
    assert (sim["campaign"], sim["stated"], sim["within"], sim["passes"], len(sim["values"])) == ("c", 1, 1, True, 2)
    assert (result["count"]["values"], result["count"]["values_within"], result["count"]["run"]) == (2, 2, 1)
    assert (result["between_backends"]["values"], len(result["between_backends"]["disagreements"])) == (2, 2)
    assert scorecard.document([])["between_backends"] is None


def test_the_documentation_has_every_field_of_the_document() -> None:
    page = (ROOT / "docs/json.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([^`]+)` \| (.*) \|$", page.partition("\n## The scorecard\n")[2].partition("\n## ")[0], re.MULTILINE
    )
    told = {field: set(re.findall(r"`([^`]+)`", text)) for field, text in rows}
    value = ValueScore("m", {}, "eq", 1.0, "", {"rel": 0.1}, "stated", 1.0, 1, exact_interval(1.0), True)
    other = replace(value, measured=3.0, interval=exact_interval(3.0))
    scores = {
        backend: Score(backend, "c", 1, 1, [each], [OrderingScore("m", "a", ["x"], {}, None, [1.0], False, True)])
        for backend, each in (("sim", value), ("emulated", other))
    }
    made = scorecard.document([Artefact("a", "aq", "A", "4", "simulated", 1, 1, scores)])
    (artefact,), agreement = made["artefacts"], made["between_backends"]
    score = artefact["scores"]["sim"]
    assert made.keys() == {"artefacts", "count", "between_backends"}
    assert told["count"] == made["count"].keys()
    assert told["artefacts[]"] == artefact.keys()
    assert told["scores.BACKEND"] == score.keys()
    assert told["values[]"] == score["values"][0].keys()
    assert told["interval"] - {"t"} == score["values"][0]["interval"].keys()
    assert told["orderings[]"] == score["orderings"][0].keys()
    assert {field.removesuffix("[]") for field in told["between_backends"]} == agreement.keys()
    assert told["disagreements[]"] == agreement["disagreements"][0].keys()


@settings(deadline=None)  # the first interval imports SciPy
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_an_interval_contains_its_mean_and_scales(values: list[float]) -> None:
    cell = TableCell({}, values)
    assert cell.interval is not None
    assert cell.interval.low <= cell.interval.high
    twice = cell.mapped(lambda value: -2 * value).interval
    assert twice is not None
    assert (twice.low, twice.high) == pytest.approx((-2 * cell.interval.high, -2 * cell.interval.low), abs=1e-6)


def test_student_s_quantiles_go_on_where_the_table_ends() -> None:
    interval = TableCell({}, [0.0] * 16 + [1.0] * 16).interval
    assert interval is not None
    assert interval.half == pytest.approx(2.0395 * 0.50800 / 32**0.5, rel=1e-3)


def test_every_arithmetic_artefact_has_targets_and_meets_them() -> None:
    known = {target.id: target for target in all_targets()}
    for artefact in theory.ARITHMETIC:
        assert known[artefact].source == "theory"


# Whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", reproductions(), ids=lambda item: item.file.stem)
def test_every_paper_s_campaign_is_good_and_reaches_every_target(entry: Any) -> None:
    """Each value and ordering of the artefact finds cells among the campaign's labels and a measure of its name;
    what an artefact cannot have yet stands here."""
    target = next(item for item in targets(entry.file.parent / "targets.yaml") if item.id == entry.artefact)
    planned = entry.plan(None)
    assert entry.file.stem == entry.artefact == planned.name
    measures = entry.source.values["measures"]
    labels = [{k: str(v) for k, v in point.parameters.items()} for point in planned.points]
    for split in entry.source.values.get("split", []):
        labels += [{split["axis"]: into} for into in split["into"]]
    removed = {each.get("axis") for each in measures.values() if "between" in each} | {
        each.get("over") for each in measures.values()
    }
    cells_of = [(wanted.measure, [wanted.cell]) for wanted in target.expected]
    cells_of += [(wanted.measure, [{**wanted.where, wanted.axis: label} for label in wanted.order])
                 for wanted in target.orderings]  # fmt: skip
    for name, cells in cells_of:
        measure = measures[name]
        gathered = [{**have, measure["axis"]: label} for label in measure.get("gather", {}) for have in labels]
        for cell in cells:
            named = {axis: str(label) for axis, label in cell.items() if axis not in removed}
            result = any(all(have.get(axis) == label for axis, label in named.items()) for have in labels + gathered)
            assert result, (entry.artefact, cell)


def selected(*words: str, backend: str | None = None) -> list[str]:
    return [entry.artefact for entry in select_reproductions(list(words), backend=backend)]


def test_a_paper_or_artefact_is_chosen_by_name() -> None:
    assert {entry.paper for entry in select_reproductions(["aq"])} == {"aq"}
    assert selected("aq-fig3") == ["aq-fig3"]
    assert selected("asym-fig2", "aq-fig3") == ["aq-fig3", "asym-fig2"]
    with pytest.raises(ValueError, match="did you mean 'aq-fig3'"):
        selected("ton", "aq-fig33")


def test_two_backends_stand_side_by_side() -> None:
    def score(backend: str, measured: float, *, holds: bool) -> Score:
        value = rate(measured, 0.5, within=holds, cell={"path": "LAN"})
        ordering = OrderingScore("rate", "path", ["LAN", "WAN"], {}, None, [measured, 2.0], False, holds)
        return Score(backend, "c", 3, 3, [value], [ordering])

    artefact = Artefact(
        "a-fig1", "a", "A figure", "1", "measured", 1, 1,
        {"sim": score("sim", 10.5, holds=True), "emulated": score("emulated", 20.0, holds=False)},
    )  # fmt: skip
    lines = printed(artefact).splitlines()
    value = next(line for line in lines if "published" in line)
    assert "emulated" in value
    assert "20.00 ± 0.50" in value
    places = [value.index(text) for text in ("tolerance 10 %: 10 bit/s published", "sim", "10.50 ± 0.50", "emulated")]
    assert places == sorted(places)
    # Each value and ordering once; at the end those of which the two backends disagree.
    assert [line.split()[0] for line in lines if "Rate" in line] == ["Rate", "Rate,", "a-fig1"]
    assert lines[-1].strip() == "a-fig1 Rate at path LAN: emulated 20, sim 10.5"


def test_the_table_writes_an_interval_around_no_middle_by_its_ends() -> None:
    possible = rate(10.5, None, interval=Interval(8.0, 12.0, 0.95, "possible"))
    scores = {"sim": Score("sim", "c", 3, 3, [possible], [])}
    assert "10.5 [8.0, 12.0]" in printed(Artefact("a-fig1", "a", "A figure", "1", "measured", 1, 0, scores))


def measured_on(backend: str, *measured: float | None, half: float | None = 0.5) -> Score:
    """The score of a backend that measured these rates."""
    return Score(backend, "c", 3, 3, [rate(entry, half, cell={"n": n}) for n, entry in enumerate(measured)], [])


def test_backends_are_held_against_each_other() -> None:
    def artefact(**scores: Score) -> Artefact:
        return Artefact("a-fig1", "a", "A figure", "1", "measured", 1, 1, scores)

    assert between_backends([artefact(sim=measured_on("sim", 1.0))]) is None
    two = artefact(
        sim=measured_on("sim", 10.0, 100.0, 20.0, 0.0, 5.0),
        emulated=measured_on("emulated", 10.9, 101.0, 22.0, 0.0, None),
    )
    told = between_backends([two, artefact(sim=measured_on("sim", 1.0))])
    assert told is not None
    assert (told.values, told.within_5_percent) == (4, 2)
    assert told.median == pytest.approx((0.01 + 0.09) / 2)
    # 10.0 and 10.9 are half a unit wide either way, and so meet; 20 and 22 do not.
    assert [(entry.cell, entry.sim, entry.emulated) for entry in told.disagreements] == [({"n": 2}, 20.0, 22.0)]


def test_backends_that_disagree_most_come_first_and_of_zero_any_difference_is_one() -> None:
    scores = {
        "sim": measured_on("sim", 10.0, 10.0, 0.0, half=0.01),
        "emulated": measured_on("emulated", 11.0, 15.0, 0.5, half=0.01),
    }
    told = between_backends([Artefact("a", "a", "A", "1", "measured", 3, 0, scores)])
    assert told is not None
    assert told.median == 0.5
    assert [entry.cell["n"] for entry in told.disagreements] == [2, 1, 0]


@pytest.mark.parametrize(
    ("sim", "emulated", "half", "disagreements"),
    [(1000.0, 1001.0, None, 0), (1000.0, 1001.1, None, 1), (2.0, 2.5, None, 1), (2.0, 2.5, 0.25, 0)],
)
def test_disagreements_differ_by_more_than_a_thousandth_and_their_intervals(
    sim: float, emulated: float, half: float | None, disagreements: int
) -> None:
    scores = {"sim": measured_on("sim", sim, half=half), "emulated": measured_on("emulated", emulated, half=half)}
    told = between_backends([Artefact("a", "a", "A", "1", "measured", 1, 0, scores)])
    assert told is not None
    assert len(told.disagreements) == disagreements


def test_emulated_takes_the_artefacts_with_fields_for_it() -> None:
    names = set(selected(backend="emulated"))
    assert {"ton-table2", "asym-fig20", "aq-fig3", "pulsed-claim-growth", "acq-fig4"} <= names
    assert {"aq-fig4", "asym-fig16", "asym-table3", "pulsed-table4", "ton-claim-double-rxmt"} <= names
    assert "acq-fig3" not in names, "its runs of 10,000 s have millions of packets"
    assert set(selected()) > names
    # By name, what was asked for is tried and refused with its reason.
    assert selected("acq-fig3", backend="emulated") == ["acq-fig3"]
