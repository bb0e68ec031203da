"""Comparisons of campaigns whose differences are known, and one interval for the same data wherever it is shown."""

from __future__ import annotations

import datetime
import io
import json
import math
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import analysis
from analysis.comparison import CompareError, compare, contrast, load
from analysis.errors import AnalysisError
from analysis.estimates import Estimate
from analysis.question import Asked
from analysis.results import Quantity, Results, ValueRow, by_point
from analysis.statistics import judged
from analysis.store import Store
from experiments.language.measures import AnyForm, Difference, Metric
from experiments.papers.table import Table
from experiments.tables import SINGLE_RUNS, comparison_table
from tests.support.called import called
from tests.support.command_line import backchannel
from tests.support.questions import asking
from tests.support.rewriting import rewriting
from tests.support.simulated import ran
from web.app import create_app
from web.compared import ComparedValue, Row, note_on


def side(
    shift: float = 0.0, noise: float = 1.0, repetitions: int = 5, seed: int = 0, sample: int = 1,
    points: tuple[str, str] = ("reno", "cubic"), name: str = "a",
) -> Asked:  # fmt: skip
    draws = random.Random(sample)
    rows = [
        ValueRow(
            point, number, f"r{number}", seed + number, metric, "bulk", "rate", 100.0 + shift + draws.gauss(0, noise)
        )
        for point in (0, 1) for metric in ("throughput", "completion_time", "queue_mean")
        for number in range(repetitions)
    ]  # fmt: skip
    made = Results.of_rows(name, [{"stack": stack} for stack in points], rows)
    return asking(made, Quantity("throughput", "bulk", "rate"))


def test_a_loss_of_throughput_is_worse_and_of_time_is_better() -> None:
    verdicts = {line.metric: line.verdict for line in compare(side(), side(-20)).lines}
    assert verdicts == {"throughput": "worse", "completion_time": "better", "queue_mean": "different"}


def test_chance_is_no_regression() -> None:
    alarms = sum(
        any(line.verdict not in ("same", "cannot tell") for line in compare(side(sample=n), side(sample=-n - 1)).lines)
        for n in range(200)
    )
    # At most one comparison in twenty errs, whatever its number of lines; three standard deviations on top.
    assert alarms <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_small_differences_are_within_the_margin() -> None:
    a, b = side(noise=1e-3), side(-0.5, noise=1e-3, sample=2)
    assert {line.verdict for line in compare(a, b).lines} == {"same"}
    assert "worse" in {line.verdict for line in compare(a, b, margin=0.001).lines}


def test_one_run_each_cannot_tell_and_other_seeds_are_no_pairs() -> None:
    lone = compare(side(repetitions=1), side(-20, repetitions=1))
    assert {line.verdict for line in lone.lines} == {"cannot tell"}
    methods = {line.difference.method for line in compare(side(), side(seed=100)).lines}
    assert methods == {"welch"}


def test_single_runs_are_shown_beside_each_other_and_told_once() -> None:
    def printed(*words: bool, repetitions: int = 1) -> str:
        out = io.StringIO()
        compared = compare(side(repetitions=repetitions), side(-20, sample=2, repetitions=repetitions))
        Console(file=out, width=200).print(comparison_table(compared, *words))
        return out.getvalue()

    said = printed(False)
    # The question's metric at two points.
    assert [re.split(r"  +", line.strip()) for line in said.splitlines()[1:3]] == [
        ["stack=reno", "throughput of bulk", "101 bit/s", "82.3 bit/s", "−19 bit/s (−19 %)"],
        ["stack=cubic", "throughput of bulk", "99.2 bit/s", "80.1 bit/s", "−19.1 bit/s (−19 %)"],
    ]
    assert " ".join(said.split()).endswith(f"{SINGLE_RUNS} 4 more values: --all shows all.")
    assert "tell" not in said
    assert printed(True).count("bulk") == 6
    assert SINGLE_RUNS not in printed(False, repetitions=2)


def test_a_comparison_says_how_many_it_makes() -> None:
    compared = compare(side(), side(-20, sample=2))
    document = compared.as_json()
    assert document["comparisons"] == len(compared.lines) == 6
    # The question's at two points; two other metrics at two points.
    assert [line["metric"] for line in document["lines"] if not line["exploratory"]] == ["throughput"] * 2
    assert [line["difference"]["level"] for line in document["lines"]] == pytest.approx(
        [1 - 0.05 / 2] * 2 + [1 - 0.05 / 4] * 4
    )
    text = "".join(part.plain for part in comparison_table(compared, False).renderables if hasattr(part, "plain"))
    assert "2 comparisons, an interval at 97.5 % or 4 comparisons, an interval at 98.8 % (Bonferroni)" in text


def test_points_that_one_lacks_are_told() -> None:
    result = compare(side(), side(points=("reno", "bbr")))
    assert (result.only_a, result.only_b) == (({"stack": "cubic"},), ({"stack": "bbr"},))
    with pytest.raises(CompareError, match="no combination in common"):
        compare(side(), side(points=("tahoe", "bbr")))


def test_what_one_campaign_alone_has_a_value_of_is_told() -> None:
    complete = side()
    ended = {number: dict(values) for number, values in complete.values.items()}
    for quantity in [quantity for quantity in ended[1] if quantity.metric == "completion_time"]:
        del ended[1][quantity]
    result = compare(complete, replace(complete, values=ended))
    assert (result.unmatched_a, result.unmatched_b) == (("completion_time of bulk",), ())
    assert compare(complete, replace(complete, values=ended), metrics=["throughput"]).unmatched_a == ()
    said = [part.plain for part in comparison_table(result, False).renderables if hasattr(part, "plain")]
    assert "only in a: values of completion_time of bulk" in said


def test_values_without_a_valid_run_are_not_called_missing_from_the_sweep() -> None:
    partly = side()
    with pytest.raises(AnalysisError, match="nothing to compare: stack has no valid run with cubic"):
        contrast(replace(partly, values={0: partly.values[0]}))
    with pytest.raises(AnalysisError, match="stack has no valid run with reno"):
        contrast(replace(partly, values={1: partly.values[1]}), baseline="reno")
    with pytest.raises(AnalysisError, match="unknown value of stack 'bbr'"):
        contrast(partly, baseline="bbr")


def test_the_sites_note_counts_every_row() -> None:
    """The last one may be equal on both sides, which has no interval."""

    def note(*sides: tuple[dict[int, float], dict[int, float]]) -> str:
        cells = [ComparedValue(Estimate(()), judged(*pair, family=2)) for pair in sides]
        return note_on([Row("m", "", "rate", [None, cell], exploratory=True, family=2) for cell in cells])

    differs, equal = ({1: 1.0, 2: 2.0, 3: 4.0}, {1: 3.0, 2: 5.0, 3: 6.0}), ({1: 1.0, 2: 2.0}, {1: 1.0, 2: 2.0})
    assert note(differs, equal).startswith("Differences are taken by pairs")
    assert note(equal).startswith("Differences are taken by pairs")
    assert note(({1: 1.0}, {1: 2.0})).startswith("These runs are single or have no spread")


def test_a_folder_may_have_the_sign_that_begins_a_date(tmp_path: Path) -> None:
    folder = tmp_path / "me@host" / "results"
    with Store.open(folder), pytest.raises(AnalysisError, match=r"unknown campaign in .*me@host/results 'c'"):
        load(f"{folder}:c", "results")
    with pytest.raises(CompareError, match="'yesterday' is not a date"):
        load(f"{folder}:c@yesterday", "results")


FILE = """
name: compared
backend: sim
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 20 packets}}}
stack: newreno
workload:
  - {name: bulk, from: left, to: right, start: [0 s, 1 s]}
duration: 10 s
repetitions: 3
"""


def test_the_command_names_what_is_worse_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A bare name is a campaign of the default results folder, if this checkout has one.
    monkeypatch.setenv("BACKCHANNEL_RESULTS", str(tmp_path / "none"))
    file = tmp_path / "compared.yaml"
    file.write_text(FILE)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert backchannel("run", str(file), "--results", a).returncode == 0
    assert backchannel("run", str(file), "--results", b, "--set", "network.forward.rate=500 kbit/s").returncode == 0
    worse = backchannel("compare", a, b, status=1)
    assert "worse" in worse.stdout
    assert called("compare", b, f"{a}:compared")[0] == 0
    status, said, _ = called("compare", a, a, "--json")
    assert (status, json.loads(said)["regressions"]) == (0, 0)
    # Two dates of one campaign, run again with nothing changed.
    before = datetime.datetime.now().isoformat(timespec="milliseconds")
    assert backchannel("run", str(file), "--results", a, "--force").returncode == 0
    status, said, _ = called("compare", f"{a}@{before}", a, "--json")
    assert (status, json.loads(said)["regressions"]) == (0, 0)
    status, _, error = called("compare", f"{a}@2020-01-01", a)
    assert (status, "had no results by 2020-01-01" in error) == (2, True)
    for wrong, error in (
        ([a, "nowhere"], "is not a results folder"),
        ([a, f"{b}:compard"], "compard"),
        ([a, f"{b}@yesterday"], "yesterday"),
        ([a, b, "--metric", "troughput"], "troughput"),
    ):
        status, _, said = called("compare", *wrong)
        assert status == 2
        assert error in said


SWEPT = FILE.replace("repetitions: 3", "repetitions: 6\nsweep: {network.forward.queue.limit: [10 packets, 20 packets]}")
SWEPT = SWEPT.replace("delay: 10 ms,", "delay: 10 ms, errors: [{model: uniform, probability: 0.01}],")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of SWEPT."""
    return ran(tmp_path_factory.mktemp("swept"), "c.yaml", SWEPT).results


@pytest.mark.parametrize(
    "invalid", [[], [(0, 0)], [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)]], ids=["all", "one", "five"]
)
def test_compare_contrast_site_and_scorecard_give_one_interval(
    swept: Path, tmp_path: Path, invalid: list[tuple[int, int]]
) -> None:
    """With all runs, with one that has no partner, and with so few pairs that Welch's interval is due."""
    folder = tmp_path / "results"
    shutil.copytree(swept, folder)
    store = Store.open(folder)
    with rewriting(store) as connection:
        for point, repetition in invalid:
            connection.exec_driver_sql(
                "UPDATE run SET state = 'invalid' WHERE id IN"
                " (SELECT run_id FROM membership WHERE point = ? AND repetition = ?)", (point, repetition),
            )  # fmt: skip
    campaign = store.campaigns()[0].id
    rows = store.values(campaign)
    method = "welch" if len(invalid) > 1 else "paired"

    here, present = (
        asking(
            Results.of_rows(str(point), [{}], [replace(row, point=0) for row in rows if row.point == point]),
            Quantity("throughput", "bulk", "rate"),
        )
        for point in (0, 1)
    )
    line = next(
        line
        for line in compare(here, present, metrics=["throughput"]).lines
        if (line.metric, line.subject) == ("throughput", "bulk")
    )
    assert line.difference.interval is not None
    low, high = line.difference.interval.low, line.difference.interval.high
    assert (line.difference.method, low < high) == (method, True)

    frame = analysis.open(folder)["compared"].contrast(metrics=["throughput"])
    row = next(dict for dict in frame.to_dicts() if (dict["metric"], dict["subject"]) == ("throughput", "bulk"))
    assert (row["method"], row["low"], row["high"], row["comparisons"]) == (method, low, high, 1)

    site = create_app(folder).test_client()
    answer: Any = site.get(f"/api/compare?point={campaign}:0&point={campaign}:1").json
    cells = next(entry for entry in answer["metrics"] if (entry["metric"], entry["flow"]) == ("throughput", "bulk"))[
        "cells"
    ]
    assert cells[1]["method"] == method
    middle, half = (low + high) / 2, (high - low) / 2
    assert cells[1]["difference"] == pytest.approx(middle)
    assert (cells[1]["difference_low"], cells[1]["difference_high"]) == (low, high)

    measures: dict[str, AnyForm] = {
        "rate": Metric(metric="throughput", of="bulk"),
        "gap": Difference(difference="rate", axis="limit", between=("20 packets", "10 packets")),
    }
    table = Table(measures, [], {0: {"limit": "10 packets"}, 1: {"limit": "20 packets"}}, by_point(rows))
    gap = table.cell("gap", {})
    assert gap.mean == pytest.approx(middle)
    if method == "paired":
        assert gap.interval is not None
        assert gap.interval.half == pytest.approx(half)
    else:
        assert gap.interval is None

    means = analysis.open(folder)["compared"].means().to_dicts()
    for point in (0, 1):
        entry = next(x for x in means if (x["point"], x["metric"], x["subject"]) == (point, "throughput", "bulk"))
        interval = table.cell("rate", {"limit": f"{(point + 1) * 10} packets"}).interval
        assert interval is not None
        assert (entry["low"], entry["high"]) == pytest.approx((interval.low, interval.high))
        assert (cells[point]["low_95"], cells[point]["high_95"]) == (entry["low"], entry["high"])
    store.close()
