"""What a campaign answers: the best point, whether that is conclusive, and its cost; and the trade-off's figure."""

from __future__ import annotations

import random

import pytest

from analysis.answer import Best, best, sentences
from analysis.figures import printed
from analysis.figures.tradeoff import tradeoff
from analysis.question import Asked
from analysis.results import Quantity, Results, ValueRow
from analysis.statistics import RunKey
from tests.conftest import two_hosts, typed
from tests.support.questions import asking

FORWARD, REVERSE = Quantity("throughput", "forward", "rate"), Quantity("throughput", "reverse", "rate")
#: An upload over a line of 28.8 kbit/s.
SLOW_RETURN = typed({
    **two_hosts(rate_bps=28_800),
    "workload": [{"name": "reverse", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5001}],
})  # fmt: skip
LABELS = {0: "a", 1: "b", 2: "c"}


def results(*points: tuple[list[float], list[float]]) -> Asked:
    """Values of both directions by point."""
    values = {
        number: {
            entry: {RunKey(at, at): value for at, value in enumerate(mine)}
            for entry, mine in zip((FORWARD, REVERSE), point, strict=True)
        }
        for number, point in enumerate(points)
    }
    named = Results("own", [{"policy": label} for label in LABELS.values()][: len(points)], values)
    return asking(named, FORWARD, REVERSE)


def answered(*points: tuple[list[float], list[float]]) -> Best:
    result = best(results(*points), FORWARD, REVERSE, scenario_of=lambda point: SLOW_RETURN)
    assert result is not None
    return result


def test_the_best_is_named_with_its_lead_and_its_cost() -> None:
    result = answered(
        ([1.00e6, 1.02e6, 1.01e6, 1.03e6], [40e3, 41e3, 42e3, 43e3]),
        ([7.00e6, 7.05e6, 7.02e6, 7.01e6], [1e3, 2e3, 1e3, 2e3]),
        ([5.00e6, 5.05e6, 5.01e6, 5.02e6], [20e3, 21e3, 22e3, 23e3]),
    )
    assert (result.best.point, result.next and result.next.point) == (1, 2)
    text = " ".join(sentences(result, LABELS))
    for wanted in (
        "Throughput of forward is highest with b: 7.020 ± 0.034 Mbit/s, 4 runs.", "Against c, the next: 5.020 ± 0.034",
        "the difference is +2.000 ± 0.017 Mbit/s (+40 %), which is conclusive.", "throughput of reverse is 1.50 ± 0.92",
        "less than 10 % of its fair share of the link (28.8 kbit/s): it starves. Its best is 41.5 ± 2.1 kbit/s with a.",
    ):  # fmt: skip
        assert wanted in text


def test_a_lead_within_chance_is_not_conclusive() -> None:
    result = answered(([1e6, 3e6, 2e6], [3e3] * 3), ([2.5e6, 1.5e6, 3e6], [3e3] * 3))
    text = " ".join(sentences(result, LABELS))
    assert "; 3 runs cannot tell, about " in text
    assert "conclusive" not in text
    assert "starves" not in text


def test_equal_repetitions_conclude_nothing() -> None:
    text = " ".join(sentences(answered(([1e6] * 3, [1.0] * 3), ([2e6] * 3, [1.0] * 3)), LABELS))
    assert "2 Mbit/s (3 equal)" in text
    assert "3 runs cannot tell: none differs from another" in text


def test_points_that_are_equal_run_by_run_are_called_equal() -> None:
    same = [1e6, 2e6], [1.0, 1.0]
    text = " ".join(sentences(answered(same, same), LABELS))
    assert "It is equal, run by run, with b." in text
    assert "more than" not in text


def test_the_comparison_pays_for_the_choice_among_all_points() -> None:
    pair = ([1.0e6, 1.2e6, 1.1e6, 1.3e6], [1e3] * 4), ([1.3e6, 1.4e6, 1.5e6, 1.5e6], [1e3] * 4)
    two, three = answered(*pair), answered(*pair, ([0.1e6] * 4, [1e3] * 4))
    levels = [entry.compared.difference.level for entry in (two, three) if entry.compared]
    # The best may be compared with one other point, or with two.
    assert levels == pytest.approx([0.95, 1 - 0.05 / 2])
    # The other direction is exploratory: one other metric at two comparisons.
    exploratory = best(results(*pair, pair[0]), REVERSE)
    assert exploratory is not None
    assert exploratory.exploratory
    assert exploratory.compared is not None
    assert exploratory.compared.difference.level == pytest.approx(1 - 0.05 / 2)


def test_interval_and_verdict_agree_and_chance_rarely_concludes() -> None:
    draws = random.Random(1)
    wrong = 0
    for _ in range(400):
        result = answered(*[([draws.gauss(1e6, 1e5) for _ in range(5)], [1.0] * 5) for _ in range(3)])
        assert result.compared is not None
        interval = result.compared.difference.interval
        assert interval is not None
        if result.compared.verdict != "same":
            assert (result.compared.verdict == "different") == (0 not in interval)
        wrong += result.compared.verdict == "different"
    assert wrong <= 0.05 * 400


def test_less_is_better_for_some_metrics() -> None:
    resent = Quantity("retransmissions", "forward", "count")
    values = {n: {resent: {RunKey(at, at): 10.0 * n + at for at in range(3)}} for n in range(3)}
    result = best(asking(Results("own", [{}] * 3, values), resent), resent)
    assert result is not None
    assert result.best.point == 0
    assert "is lowest with a" in sentences(result, LABELS)[0]


def test_of_a_metric_without_a_better_direction_the_highest_and_the_lowest_are_compared() -> None:
    used, back = (Quantity("utilisation", f"bottleneck/{way}", "fraction") for way in ("forward", "reverse"))
    means = {0: (0.5, 0.9), 1: (0.9, 0.2), 2: (0.2, 0.8)}
    values = {
        n: {
            of: {RunKey(at, at): mean + 0.001 * at for at in range(4)}
            for of, mean in zip((used, back), both, strict=True)
        }
        for n, both in means.items()
    }
    result = best(asking(Results("own", [{}] * 3, values), used, back), used, back)
    assert result is not None
    assert (result.best.point, result.next and result.next.point) == (1, 2)
    text = " ".join(sentences(result, LABELS))
    assert text.startswith("Utilisation of bottleneck/forward is highest with b: 90.15 ± ")
    assert "Against c, the lowest: 20.15 ± " in text
    assert "the difference is +70.00 ± 0.27 points, which is conclusive." in text
    assert "With b, utilisation of bottleneck/reverse is 20.15" in text
    assert "Its highest is 90.15" in text
    assert "starves" not in text


def test_a_single_point_has_no_next_and_no_other_best() -> None:
    assert sentences(answered(([1e6, 2e6], [1e3, 3e3])), LABELS) == [
        "Throughput of forward is 1, 2 Mbit/s, 2 runs.",
        "Throughput of reverse is 1, 3 kbit/s, less than 10 % of its fair share of the link (28.8 kbit/s): it starves.",
    ]  # fmt: skip


def test_the_trade_off_has_a_dot_a_run_means_and_the_pareto_edge() -> None:
    points = {0: (1e6, 40e3), 1: (7e6, 2e3), 2: (0.5e6, 30e3)}
    rows = [
        ValueRow(point, at, f"run{point}{at}", at, "throughput", subject, "rate", value * (1 + 0.01 * at * (1 + at)))
        for point, both in points.items()
        for subject, value in zip(("forward", "reverse"), both, strict=True)
        for at in range(3)
    ]
    # Of the fourth point the runs form two groups: it has dots and no mean.
    rows += [
        ValueRow(3, at, f"run3{at}", at, "throughput", subject, "rate", 3e6 + at if at < 3 else 5e6 + at)
        for subject in ("forward", "reverse")
        for at in range(6)
    ]
    figure = tradeoff(rows, FORWARD, REVERSE, ("Forward", "Reverse"), {0: "a", 1: "b", 4: "none", 2: "c", 3: "d"})
    assert figure is not None
    # The legend names no value without a run.
    assert "none" not in {line.name for line in figure.series}
    named = {line.name: line for line in figure.series if line.name}
    assert [named[name].points.height for name in "abcd"] == [3, 3, 3, 6]
    assert set(named["a"].points["run"]) == {"run00", "run01", "run02"}
    means = [line for line in figure.series if not line.name and line.kind == "points" and line.points.height]
    assert len(means) == 3
    # The third is beaten in both directions.
    assert named["Pareto edge"].points.height == 2
    (shown,) = (entry["run"] for entry in figure.as_json()["series"] if entry["name"] == "a")
    assert shown == ["run00", "run01", "run02"]
    assert b"Pareto edge" in printed.rendered(figure, "svg", text=True)
