"""A campaign whose axes are called as columns of the tables of results, and have equals signs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import analysis
from analysis.store.rows import MISSING
from tests.support.called import called
from tests.support.campaign_texts import asymmetric_path

CAMPAIGN = f"""
name: odd
backend: sim
stack: newreno
{asymmetric_path()}workload: [{{name: f, from: server, to: client}}]
duration: 1 s
sweep:
  axes:
    metric: {{a: {{network.reverse.delay: 50 ms}}, b=c: {{network.reverse.delay: 60 ms}}}}
    point: {{5 ms: {{network.forward.delay: 5 ms}}, 9 ms: {{network.forward.delay: 9 ms}}}}
    x=y: {{one: {{network.forward.queue.limit: 5 packets}}, two: {{network.forward.queue.limit: 9 packets}}}}
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.yaml").write_text(CAMPAIGN)
    only = ("--only", "x=y=one", "--only", "metric=b=c", "--only", "metric=a")
    status, _, err = called("run", folder / "odd.yaml", "--results", folder / "results", *only)
    assert status == 0, err
    return folder / "results"


def test_axes_and_columns_of_one_name_are_told_apart(odd: Path, tmp_path: Path) -> None:
    with analysis.open(odd) as store:
        campaign = store["odd"]
        made = campaign.runs().filter(pl.col("state") != MISSING)
        assert made.select("axes.metric", "axes.point", "x=y", "point").rows() == [
            ("a", "5 ms", "one", 0), ("a", "9 ms", "one", 2), ("b=c", "5 ms", "one", 4), ("b=c", "9 ms", "one", 6),
        ]  # fmt: skip
        throughput = pl.col("metric") == "throughput"
        means = campaign.means().filter(throughput)
        assert means["axes.metric"].to_list() == ["a", "a", "b=c", "b=c"]
        against = campaign.contrast("metric", metrics=["throughput"])
        assert against.select("axes.point", "x=y", "baseline", "value").rows() == [
            ("5 ms", "one", "a", "b=c"), ("9 ms", "one", "a", "b=c"),
        ]  # fmt: skip
    for kind in ("values", "wide"):
        status, _, err = called("export", kind, "odd", "--results", odd, "--out", tmp_path / "table.csv")
        assert status == 0, err
        table = pl.read_csv(tmp_path / "table.csv")
        assert table["axes.point"].unique(maintain_order=True).to_list() == [0.005, 0.009]
        assert set(table["axes.point_unit"]) == {"s"}


def test_a_condition_names_an_axis_with_an_equals_sign(odd: Path, tmp_path: Path) -> None:
    status, out, err = called("runs", "odd", "--where", "x=y=one", "--where", "metric=b=c", "--results", odd)
    assert status == 0, err
    assert [line.split("metric=")[1][:3] for line in out.splitlines()[1:]] == ["b=c", "b=c"]
    figure = ("sweep", "odd", "--axis", "point", "--where", "x=y=one", "--out", tmp_path / "figure.svg")
    status, _, err = called("plot", *figure, "--results", odd)
    assert status == 0, err
    status, _, err = called("runs", "--where", "x=y=three", "--results", odd)
    assert (status, err) == (2, "backchannel: unknown value of x=y 'three'; allowed: one, two\n")
