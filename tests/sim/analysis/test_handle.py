"""The handle of a store: results as frames, and figures, of a campaign in virtual time."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import analysis
from analysis.captures import RunData
from analysis.errors import AnalysisError
from analysis.handle import OpenResults, StoredRun
from analysis.metrics import throughput
from tests.sim.analysis.conftest import SHORT
from tests.support.called import called
from tests.support.rewriting import rewriting
from web import run_view
from web.app import create_app


def test_a_campaign_is_a_frame(results: Path) -> None:
    assert analysis.open(results).campaigns().select("name", "backend", "runs", "valid").rows() == [
        ("small", "sim", 4, 4)
    ]
    values = analysis.open(results)["small"].values()
    assert values.columns[0] == "network.reverse.queue.policy"
    mine = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward"))
    assert mine.select("network.reverse.queue.policy", "point", "repetition").rows() == [
        ("droptail", 0, 0), ("droptail", 0, 1), ("acks-first", 1, 0), ("acks-first", 1, 1),
    ]  # fmt: skip
    means = analysis.open(results)["small"].means()
    row = means.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    pair = mine["value"][:2]
    assert row["mean"] == pytest.approx(pair.mean())
    assert row["sd"] == pytest.approx(pair.std())
    # Two runs have values and no interval.
    assert (row["values"], row["low"], row["method"], row["groups"]) == (pair.to_list(), None, None, 1)


def test_a_run_is_its_tables(results: Path) -> None:
    values = analysis.open(results)["small"].values()
    row = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    run = analysis.open(results).run(row["run_id"][:8]).data
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
    values = analysis.open(results)["small"].values()
    made: Any = analysis.to_pandas(values)
    assert list(made) == values.columns
    assert made["value"].tolist() == values["value"].to_list()
    assert made["metric"] == ("object", values["metric"].to_list())
    run = analysis.open(results).run(values["run_id"][0]).data
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
    with pytest.raises(AnalysisError, match=r"unknown campaign 'smal'; did you mean 'small'\? Allowed: small"):
        analysis.open(results)["smal"]
    with pytest.raises(AnalysisError, match="unknown run 'zz'"):
        analysis.open(results).run("zz")
    with pytest.raises(AnalysisError, match=r"this is a campaign; ./backchannel runs small lists runs"):
        analysis.open(results).run("small")
    with analysis.open(results) as s:
        campaign_id, run_id = s["small"].row.id[:8], s["small"].run_ids[0][:8]
        with pytest.raises(AnalysisError, match=f"this is a campaign; ./backchannel runs {campaign_id} lists runs"):
            s.run(campaign_id)
        with pytest.raises(AnalysisError, match=f"unknown campaign '{run_id}': this is a run of small"):
            s[run_id]
    with pytest.raises(AnalysisError, match=r"4 runs begin with ''"):
        analysis.open(results).run("")
    with pytest.raises(AnalysisError, match="no results in"):
        analysis.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


_DRAWN_ALIKE = pytest.mark.slow(reason="lines over time, as sequence and queue draw them")


@pytest.mark.parametrize(
    "words",
    [
        ("sequence", "RUN", "--of", "forward", "--from", "2"), ("queue", "RUN", "--of", "bottleneck/reverse"),
        ("throughput", "RUN", "--slice", "0.5"), ("bars", "small", "--metric", "goodput"), ("cdf", "small", "--pooled"),
        *(pytest.param((kind, "RUN"), marks=_DRAWN_ALIKE)
          for kind in ("cwnd", "rtt", "outstanding", "utilisation", "rtt-cdf")),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_figures_by_the_command_line(words: tuple[str, ...], results: Path, tmp_path: Path) -> None:
    run = analysis.open(results)["small"].values()["run_id"][0]
    path = tmp_path / f"{words[0]}.pdf"
    given = (run if word == "RUN" else word for word in words)
    status, out, err = called("plot", *given, "--results", results, "--out", path)
    assert (status, out) == (0, f"{path}\n"), err
    assert path.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sequences", "RUN"), "unknown figure 'sequences'; did you mean 'sequence'?"),
        (("sequence", "RUN", "--of", "forwards"), "unknown flow or group 'forwards'; did you mean 'forward'?"),
        (("queue", "RUN", "--of", "bottleneck"), "unknown direction of a link 'bottleneck'"),
        (("rtt", "RUN", "--from", "5", "--to", "5"), "no data between 5 s and 5 s"),
        (("bars", "small", "--metric", "speed"), "unknown metric 'speed'"),
        (
            ("bars", "small", "--metric", "video_stalls"),
            "no run of this campaign has a value of video_stalls; 'results --metric video_stalls' says why",
        ),
        (("bars", "small", "--where", "policy=red"), "unknown value of network.reverse.queue.policy 'red'"),
        (("bars", "small", "--where", "red"), "'red' is not FIELD=VALUE"),
        (("throughput", "small"), "`plot throughput` draws one run, and small is a campaign"),
        (("bars", "large"), "unknown campaign 'large'"),
        (("sweep", "small"), "no swept field has quantities, which a sweep needs"),
        (("bars", "small", "--out", "x.doc"), "a figure's name ends in .svg, .pdf, .png"),
    ],
)
def test_mistakes_are_sentences(words: tuple[str, ...], said: str, results: Path) -> None:
    run = analysis.open(results)["small"].values()["run_id"][0]
    status, _, err = called("plot", *(run if word == "RUN" else word for word in words), "--results", results)
    assert status == 2
    assert said in " ".join(err.replace("│", " ").split())


def test_policies_are_compared_on_the_same_seeds(results: Path, tmp_path: Path) -> None:
    frame = analysis.open(results)["small"].contrast()
    row = frame.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    assert (row["baseline"], row["value"], row["n"], row["unpaired"]) == ("droptail", "acks-first", 2, 0)
    values = analysis.open(results)["small"].values()
    mine = values.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward"))["value"].to_list()
    assert row["difference"] == pytest.approx((mine[2] - mine[0] + mine[3] - mine[1]) / 2)
    assert row["relative"] == pytest.approx((mine[2] + mine[3]) / (mine[0] + mine[1]) - 1)
    turned = analysis.open(results)["small"].contrast("policy", "acks-first")
    back = turned.filter((pl.col("metric") == "throughput") & (pl.col("subject") == "forward")).to_dicts()[0]
    assert back["difference"] == pytest.approx(-row["difference"])
    status, out, err = called("compare", "small", "--results", results)
    assert (status, err) == (0, "")
    assert out.startswith("throughput of forward: acks-first against droptail, 2 pairs\n")
    assert row["shown"].partition("; ")[0] in out
    status, out, err = called("compare", "small", "--metric", "all", "--results", results, "-o", tmp_path / "c.parquet")
    assert status == 0, err
    assert pl.read_parquet(tmp_path / "c.parquet").equals(frame)
    for words, said in (
        (("--baseline", "red"), "unknown value of network.reverse.queue.policy 'red'"),
        (("--field", "rate"), "unknown swept field 'rate'"), (("--metric", "x"), "unknown metric 'x'"),
        (("--metric", "video_stalls"), "no run of this campaign has a value of video_stalls"),
    ):  # fmt: skip
        status, _, err = called("compare", "small", *words, "--results", results)
        assert (status, said in err) == (2, True), err
    status, former, err = called("contrast", "small", "--first", "droptail", "--results", results)
    assert (status, former) == (0, called("compare", "small", "--results", results)[1])
    assert "'contrast' is now 'compare'" in err
    assert "'--first' is now '--baseline'" in err


def test_the_interface_is_what_it_lists() -> None:
    for name in dir(analysis):
        assert getattr(analysis, name) is not None
    assert not hasattr(analysis, "frames")


def test_runs_are_listed_valid_or_not(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    with analysis.open(tmp_path / "copy") as s:
        first, second, *_ = s["small"].values()["run_id"].unique(maintain_order=True)
        with rewriting(s.store) as connection:
            late = "UPDATE run SET state = 'invalid', problems = '[\"late\"]' WHERE id = ?"
            connection.exec_driver_sql(late, (first,))
            connection.exec_driver_sql("DELETE FROM run WHERE id = ?", (second,))
        runs = s["small"].runs()
        states = dict(runs.select("run_id", "state").iter_rows())
        assert (states[first], states[second], len(states)) == ("invalid", "missing", 4)
        row = runs.row(by_predicate=pl.col("run_id") == first, named=True)
        assert (row["network.reverse.queue.policy"], row["problems"], row["backend"]) == ("droptail", ["late"], "sim")
        assert runs.row(by_predicate=pl.col("run_id") == second, named=True)["landed"] is None
        assert s.runs().equals(runs.select(s.runs().columns))
        assert first not in s["small"].values()["run_id"]
        # What has captures is there, valid or not.
        assert set(s["small"].segments().select("run_id").unique().collect()["run_id"]) == set(states) - {second}
        assert repr(s) == f"<results in {tmp_path / 'copy'}: 1 campaigns>"


def test_segments_and_telemetry_are_read_when_they_are_collected(results: Path) -> None:
    with analysis.open(results) as s:
        run = s.run(s["small"].runs()["run_id"][0])
        mine = s["small"].segments().filter(pl.col("run_id") == run.id).drop("run_id")
        assert isinstance(mine, pl.LazyFrame)
        segments = run.segments.collect()
        assert segments.equals(mine.collect())
        assert segments.equals(s.segments().filter(pl.col("run_id") == run.id).drop("run_id").collect())
        # Of the flow, the same as its metrics see.
        flow = run.data.flows[0]
        assert flow.at_sender["t_s"].is_in(segments["t_s"].implode()).all()
        told = run.telemetry.collect()
        assert told.filter(pl.col("of") == flow.name)["t_s"].to_list() == flow.telemetry["t_s"].to_list()
        assert told.filter(pl.col("of") == "links").height == run.data.telemetry.height
        assert {path.name for path in run.captures} == {f"{name}.pcap.gz" for name in run.data.files}
        assert run.metrics.filter(pl.col("metric") == "throughput").height == 2
        assert run.connections.collect().height == run.data.connections.height
        lines = [repr(run), repr(run.data), repr(s["small"])]
        assert [line.count("\n") for line in lines] == [0, 0, 0]
        assert lines[0] == f"<run {run.id[:8]} of small, policy=droptail, repetition 1: valid, sim, 6 s>"
    bare = StoredRun(s.store, run.row)
    bare.__dict__["folder"] = results
    with pytest.raises(AnalysisError, match="no captures"):
        bare.segments.collect()


def test_lazy_tables_give_the_same_as_loaded_ones(results: Path) -> None:
    with analysis.open(results) as s:
        for run_id in s["small"].runs()["run_id"]:
            run = s.run(run_id)
            lazy = run.view(lazy=True)
            assert isinstance(lazy, RunData)
            for now, later in zip(run.data.flows, lazy.flows, strict=True):
                for receiver in (False, True):
                    asked: Any = {"receiver": receiver, "where": pl.col("payload") > 0, "period": (1.0, 3.0)}
                    columns = ("seq", "file", "class")
                    # To the last bit but one: a lazy division is a multiplication.
                    assert_frame_equal(now.rows(columns, **asked), later.rows(columns, **asked), rel_tol=1e-12)
                assert_frame_equal(now.arrivals, later.arrivals, rel_tol=1e-12)
                assert_frame_equal(now.round_trips(), later.round_trips(), rel_tol=1e-12)


def test_a_page_draws_what_the_command_draws(results: Path) -> None:
    site = create_app(results).test_client()
    with analysis.open(results) as s:
        run = s.run(s["small"].runs()["run_id"][0])
        for kind in ("sequence", "throughput", "rtt", "cwnd", "queue", "outstanding"):
            of = "bottleneck/reverse" if kind == "queue" else "forward"
            answer: Any = site.get(f"/api/runs/{run.id}/{kind}?flow={of}").json
            drawn = run.plot(kind, [of])
            assert [entry["name"] for entry in answer["series"]] == [line.name for line in drawn.series]
            # Units may differ, and pages thin long series.
            for entry, line in zip(answer["series"], drawn.series, strict=True):
                if line.points.height <= run_view.POINTS and line.kind not in ("line", "steps"):
                    assert len(entry["x"]) == line.points.height


def test_a_campaign_is_run_from_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The place of a team's artefacts, which does not go with a folder.
    monkeypatch.setenv("BACKCHANNEL_ARTEFACTS", "s3://team/results")
    (tmp_path / "small.yaml").write_text(SHORT)
    with OpenResults.open(tmp_path / "results", create=True) as s:
        ran = s.run_campaign(tmp_path / "small.yaml", "repetitions=1")
        assert (ran.row.name, ran.row.valid) == ("small", 2)
        with pytest.raises(AnalysisError, match=r"^--set repetitions=none: repetitions: "):
            s.run_campaign(tmp_path / "small.yaml", "repetitions=none")


def test_the_catalogue_has_every_metric(results: Path) -> None:
    with analysis.open(results) as s:
        row = s.metrics.row(by_predicate=pl.col("name") == "throughput", named=True)
    assert (row["title"], row["unit"], row["of"], row["better"], row["package"]) == (
        "Throughput", "rate", "flow", "more", None,
    )  # fmt: skip
    assert row["definition"].startswith("Bytes delivered to the receiver over the flow's time")
