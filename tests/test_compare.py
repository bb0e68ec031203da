"""Comparisons: intervals against published tables, and verdicts on campaigns whose differences are known."""

from __future__ import annotations

import datetime
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.intervals import holm, paired, welch
from analysis.student import incomplete_beta, t_quantile, t_tail
from experiments.compare import CompareError, compare
from tests.campaigns.test_command_line import backchannel


@pytest.mark.parametrize(
    ("freedom", "probability", "t"),
    # Abramowitz and Stegun, table 26.10.
    [(1, 0.975, 12.706), (1, 0.995, 63.657), (2, 0.975, 4.303), (10, 0.995, 3.169), (120, 0.975, 1.980)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(freedom: int, probability: float, t: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(t, abs=6e-4)


@given(st.floats(0.5, 50), st.floats(0.5, 50), st.floats(0.0, 1.0))
def test_incomplete_beta_is_a_distribution_and_mirrors(a: float, b: float, x: float) -> None:
    value = incomplete_beta(a, b, x)
    assert -1e-12 <= value <= 1 + 1e-12
    assert value == pytest.approx(1 - incomplete_beta(b, a, 1 - x), abs=1e-9)


@given(st.floats(0, 100), st.sampled_from([1, 2]))
def test_tail_has_its_closed_forms(t: float, freedom: int) -> None:
    closed = 0.5 - math.atan(t) / math.pi if freedom == 1 else 0.5 - t / (2 * math.sqrt(2 + t * t))
    assert t_tail(t, freedom) == pytest.approx(closed, abs=1e-9)


def test_paired_interval_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303.
    found = paired([10, 20, 30], [11, 22, 33], 0.95)
    assert (found.difference, found.method) == (2, "paired")
    assert found.low == pytest.approx(2 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert found.high == pytest.approx(2 + 4.30265 / math.sqrt(3), abs=1e-4)


def test_welch_covers_as_often_as_it_says() -> None:
    draws = random.Random(5)
    covered = 0
    for _ in range(2000):
        a = [draws.gauss(10, 1) for _ in range(4)]
        b = [draws.gauss(12, 3) for _ in range(7)]
        found = welch(a, b, 0.9)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 2 <= found.high
    # Four standard deviations of a share of 2000.
    assert covered / 2000 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 2000))


def test_holm_by_hand() -> None:
    # 0.01 x 4, 0.02 x 3, 0.03 x 2 (not below the one before), 0.5.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def side(
    shift: float = 0.0, noise: float = 1.0, repetitions: int = 5, seed: int = 0, sample: int = 1
) -> dict[str, Any]:
    draws = random.Random(sample)
    values = [
        {"point": point, "repetition": number, "seed": seed + number, "name": name, "subject": "bulk", "unit": "rate",
         "value": 100.0 + shift + draws.gauss(0, noise)}
        for point in (0, 1) for name in ("throughput", "completion_time", "rtt_mean") for number in range(repetitions)
    ]  # fmt: skip
    return {"points": [{"stack": "reno"}, {"stack": "cubic"}], "values": values}


def test_a_loss_of_throughput_is_worse_and_of_time_is_better() -> None:
    verdicts = {line.metric: line.verdict for line in compare(side(), side(-20), ("a", "b")).lines}
    assert verdicts == {"throughput": "worse", "completion_time": "better", "rtt_mean": "different"}


def test_chance_is_no_regression() -> None:
    alarms = sum(
        bool(
            [line for line in compare(side(sample=n), side(sample=-n - 1), ("a", "b")).lines if line.verdict != "same"]
        )
        for n in range(200)
    )
    # At most one comparison in twenty errs, whatever its number of lines; three standard deviations on top.
    assert alarms <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_small_differences_are_within_the_tolerance() -> None:
    a, b = side(noise=1e-6), side(-0.5, noise=1e-6)
    assert {line.verdict for line in compare(a, b, ("a", "b")).lines} == {"same"}
    assert "worse" in {line.verdict for line in compare(a, b, ("a", "b"), tolerance=0.001).lines}


def test_one_run_each_is_unknown_and_other_seeds_are_no_pairs() -> None:
    assert {line.verdict for line in compare(side(repetitions=1), side(-20, repetitions=1), ("a", "b")).lines} == {
        "unknown"
    }
    methods = {line.difference.method for line in compare(side(), side(seed=100), ("a", "b")).lines}
    assert methods == {"welch"}


def test_points_that_one_lacks_are_told() -> None:
    other = side()
    other["points"][1] = {"stack": "bbr"}
    found = compare(side(), other, ("a", "b"))
    assert (found.only_a, found.only_b) == (({"stack": "cubic"},), ({"stack": "bbr"},))
    other["points"][0] = {"stack": "tahoe"}
    with pytest.raises(CompareError, match="no point in common"):
        compare(side(), other, ("a", "b"))


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


def test_the_command_names_what_is_worse_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "compared.yaml"
    file.write_text(FILE)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert backchannel("run", str(file), "--results", a).returncode == 0
    assert backchannel("run", str(file), "--results", b, "--set", "network.forward.rate=500 kbit/s").returncode == 0
    worse = backchannel("compare", a, b)
    assert worse.returncode == 1, worse.stderr
    assert "worse" in worse.stdout
    assert backchannel("compare", b, f"{a}:compared").returncode == 0
    same = backchannel("compare", a, a, "--json")
    assert same.returncode == 0
    assert json.loads(same.stdout)["regressions"] == 0
    # Two dates of one campaign, run again with nothing changed.
    before = datetime.datetime.now().isoformat(timespec="milliseconds")
    assert backchannel("run", str(file), "--results", a, "--force").returncode == 0
    dated = backchannel("compare", f"{a}@{before}", a, "--json")
    assert (dated.returncode, json.loads(dated.stdout)["regressions"]) == (0, 0)
    early = backchannel("compare", f"{a}@2020-01-01", a)
    assert (early.returncode, "nothing had landed by 2020-01-01" in early.stderr) == (2, True)
    for wrong in ([a, "nowhere"], [a, f"{b}:compard"], [a, f"{b}@yesterday"], [a, b, "--metric", "troughput"]):
        done = backchannel("compare", *wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
