"""Results as frames, and figures by the command line, of a campaign in virtual time."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

import analysis
from analysis.captures import RunData
from analysis.errors import AnalysisError
from analysis.metrics import throughput
from tests.support.called import called


def test_a_campaign_is_a_frame(results: Path) -> None:
    assert analysis.campaigns(results).select("name", "backend", "runs", "valid").rows() == [("small", "sim", 4, 4)]
    values = analysis.values("small", results)
    assert values.columns[0] == "network.reverse.queue.policy"
    mine = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward"))
    assert mine.select("network.reverse.queue.policy", "point", "repetition").rows() == [
        ("droptail", 0, 0), ("droptail", 0, 1), ("acks-first", 1, 0), ("acks-first", 1, 1),
    ]  # fmt: skip
    means = analysis.means("small", results)
    row = means.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    pair = mine["value"][:2]
    assert row["mean"] == pytest.approx(pair.mean())
    assert row["sd"] == pytest.approx(pair.std())
    # Two runs have values and no interval.
    assert (row["values"], row["low"], row["method"], row["groups"]) == (pair.to_list(), None, None, 1)


def test_a_run_is_its_tables(results: Path) -> None:
    values = analysis.values("small", results)
    row = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    run = analysis.run_data(row["run_id"][:8], results)
    assert isinstance(run, RunData)
    assert throughput(run.flows[0]) == row["value"]
    assert run.flows[0].telemetry["cwnd_segments"].max() > 2  # type: ignore[operator]


class Pandas(ModuleType):
    """Stands in for pandas: keeps what it is given, with its type, as plain Python."""

    @staticmethod
    def array(values: list[int | None], dtype: str) -> tuple[str, list[int | None]]:
        return dtype, values

    @staticmethod
    def Series(values: list[object], dtype: type) -> tuple[str, list[object]]:  # noqa: N802 (pandas' name)
        return dtype.__name__, values

    @staticmethod
    def DataFrame(columns: dict[str, object]) -> dict[str, object]:  # noqa: N802 (pandas' name)
        return columns


def test_frames_are_pandas_frames_for_who_wants_them(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", Pandas("pandas"))
    values = analysis.values("small", results)
    made: Any = analysis.to_pandas(values)
    assert list(made) == values.columns
    assert made["value"].tolist() == values["value"].to_list()
    assert made["metric"] == ("object", values["metric"].to_list())
    run = analysis.run_data(values["run_id"][0], results)
    segments: Any = analysis.to_pandas(run.segments)
    assert {len(column[1] if isinstance(column, tuple) else column) for column in segments.values()} == {
        run.segments.height
    }
    # What is absent stays absent, and whole numbers stay whole.
    odd: Any = analysis.to_pandas(
        pl.DataFrame({"n": [1, None], "x": [0.5, None], "word": ["a", None], "b": [True, False]})
    )
    assert odd["n"] == ("Int64", [1, None])
    assert odd["x"][0] == 0.5
    assert math.isnan(odd["x"][1])
    assert odd["word"] == ("object", ["a", None])
    assert odd["b"] == ("object", [True, False])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(AnalysisError, match="pip install pandas"):
        analysis.to_pandas(values)


def test_what_is_not_there_is_told(results: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"no campaign 'smal' \(did you mean 'small'\?\); there are: small"):
        analysis.values("smal", results)
    with pytest.raises(AnalysisError, match="no run whose id begins with 'zz'"):
        analysis.run_data("zz", results)
    with pytest.raises(AnalysisError, match=r"4 runs begin with ''"):
        analysis.run_data("", results)
    with pytest.raises(AnalysisError, match="there are no results"):
        analysis.campaigns(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_figures_by_the_command_line(results: Path, tmp_path: Path) -> None:
    run = analysis.values("small", results)["run_id"][0]
    for words in (
        ("sequence", run, "--of", "forward", "--from", "2"), ("cwnd", run), ("rtt", run), ("outstanding", run),
        ("throughput", run, "--slice", "0.5"), ("queue", run, "--of", "bottleneck/reverse"), ("utilisation", run),
        ("rtt-cdf", run), ("bars", "small", "--metric", "goodput"), ("cdf", "small", "--pooled"),
    ):  # fmt: skip
        path = tmp_path / f"{words[0]}.pdf"
        status, out, err = called("plot", *words, "--results", results, "--out", path)
        assert (status, out) == (0, f"{path}\n"), err
        assert path.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sequences", "RUN"), "there is no figure 'sequences' (did you mean 'sequence'?)"),
        (("sequence", "RUN", "--of", "forwards"), "there is no flow or group 'forwards' (did you mean 'forward'?)"),
        (("queue", "RUN", "--of", "bottleneck"), "there is no line 'bottleneck'"),
        (("rtt", "RUN", "--from", "5", "--to", "5"), "there is nothing between 5 s and 5 s"),
        (("bars", "small", "--metric", "speed"), "there is no metric of this campaign 'speed'"),
        (("bars", "large"), "there is no campaign 'large'"),
        (("sweep", "small"), "--axis must say which swept field is the axis"),
        (("bars", "small", "--out", "x.doc"), "a figure's name ends in .svg, .pdf, .png"),
    ],
)
def test_mistakes_are_sentences(words: tuple[str, ...], said: str, results: Path) -> None:
    run = analysis.values("small", results)["run_id"][0]
    status, _, err = called("plot", *(run if word == "RUN" else word for word in words), "--results", results)
    assert status == 2
    assert said in " ".join(err.replace("│", " ").split())


def test_policies_are_compared_on_the_same_seeds(results: Path, tmp_path: Path) -> None:
    frame = analysis.contrast("small", results)
    row = frame.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    assert (row["first"], row["second"], row["n"], row["unpaired"]) == ("droptail", "acks-first", 2, 0)
    values = analysis.values("small", results)
    mine = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward"))["value"].to_list()
    assert row["difference"] == pytest.approx((mine[2] - mine[0] + mine[3] - mine[1]) / 2)
    assert row["relative"] == pytest.approx((mine[2] + mine[3]) / (mine[0] + mine[1]) - 1)
    turned = analysis.contrast("small", results, "policy", "acks-first")
    back = turned.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    assert back["difference"] == pytest.approx(-row["difference"])
    status, out, err = called("contrast", "small", "--results", results)
    assert status == 0, err
    assert out.startswith("throughput forward: acks-first against droptail: +")
    assert ", 2 pairs" in out
    status, out, err = called(
        "contrast", "small", "--metric", "all", "--results", results, "-o", tmp_path / "c.parquet"
    )
    assert status == 0, err
    assert pl.read_parquet(tmp_path / "c.parquet").equals(frame)
    for words, said in (
        (("--first", "red"), "there is no value of network.reverse.queue.policy 'red'"),
        (("--field", "rate"), "there is no swept field 'rate'"), (("--metric", "x"), "there is no metric of this"),
    ):  # fmt: skip
        status, _, err = called("contrast", "small", *words, "--results", results)
        assert (status, said in err) == (2, True), err
