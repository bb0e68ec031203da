"""Captures with hostile time stamps: import, every figure and every export need little memory and few points."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import analysis
from analysis import metrics, slices
from analysis.errors import AnalysisError
from analysis.exports import flent, xplot
from analysis.figures.printed import save
from analysis.figures.registry import FIGURES
from tests.conftest import backchannel
from tests.support.traces import hostile

#: Less than a second of slices for each second of the span would need.
MEMORY_GB = 1.5
#: Figures of links, which an import does not have.
OF_LINKS = {"queue", "queue-delay", "mark-probability", "utilisation"}


#: Time stamps of each kind: in turn, without flows, far in one format and the other, of no time, and many.
_KINDS = ("back-and-forth", "backwards", "one-late-packet", "pcapng-beyond-64-bits", "pcapng-finest", "days-of-data")
_ALIKE = pytest.mark.slow(reason="time stamps of a kind that another capture has")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _KINDS else _ALIKE) for name in hostile.CAPTURES]
)
def test_a_hostile_capture_is_measured_drawn_and_exported(name: str, tmp_path: Path) -> None:
    capture = tmp_path / f"{name}.pcap"
    capture.write_bytes(hostile.CAPTURES[name]())
    results = tmp_path / "results"
    done = backchannel("import", capture, "--results", results, "--json", "--memory-limit", str(MEMORY_GB))
    if name in ("pcapng-coarsest", "pcapng-finest"):
        assert done.returncode == 2
        assert "an interface with a time resolution of" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    # One capture's data all carry one time stamp or run backwards: nothing has a rate.
    assert len(result["flows"]) == (name != "backwards")
    if name == "backwards":
        _check_refusals(result["run"], results, tmp_path)
        return
    packets = result["files"][0]["packets"]
    with analysis.open(results) as s:
        run = s.run(result["run"])
    for kind in FIGURES:
        if kind == "cwnd" or kind in OF_LINKS:
            with pytest.raises(AnalysisError, match=r"telemetry|no links"):
                run.plot(kind, slice_s=0.001)
            continue
        figure = run.plot(kind, slice_s=0.001)
        assert sum(line.points.height for line in figure.series) <= 20 * packets
        if kind in ("sequence", "throughput"):
            save(figure, tmp_path / f"{kind}.{'svg' if kind == 'throughput' else 'html'}")
    _check_exports(result["run"], results, tmp_path, packets)


def _check_refusals(run_id: str, results: Path, folder: Path) -> None:
    """A run without flows has nothing to draw, and nothing for programs that show flows."""
    with analysis.open(results) as s:
        run = s.run(run_id)
    for kind in set(FIGURES) - OF_LINKS:
        with pytest.raises(AnalysisError, match="this run has no flows: there is nothing to draw"):
            run.plot(kind)
    for kind in ("flent", "xplot"):
        done = backchannel("export", kind, run_id, "--results", results, "-o", folder / kind)
        assert (done.returncode, done.stdout) == (2, "")
        assert "this run has no flows: there is nothing to write" in done.stderr
        assert not (folder / kind).exists()


def _check_exports(run_id: str, results: Path, folder: Path, packets: int) -> None:
    run = analysis.open(results).run(run_id).data
    flent.write(run, folder / "run.flent.gz", "hostile")
    document = json.loads(gzip.decompress((folder / "run.flent.gz").read_bytes()))
    most = max(5 * packets + 2, 5 * run.window_s[1] + 2 if run.window_s[1] < slices.MAX_DENSE / 5 else 0)
    assert len(document["x_values"]) <= most
    sent = run.flows[0].arrivals["bytes"].sum()
    rates = document["results"]["TCP download"]
    assert sum(rate or 0.0 for rate in rates) * 1e6 * document["metadata"]["STEP_SIZE"] / 8 == pytest.approx(sent)
    for flow in run.flows:
        assert xplot.write(flow, folder / "xplot")


def test_a_long_gap_is_left_out_of_a_series(tmp_path: Path) -> None:
    capture = tmp_path / "gap.pcap"
    capture.write_bytes(hostile.CAPTURES["one-late-packet"]())
    done = backchannel("import", capture, "--results", tmp_path / "results", "--json")
    flow = analysis.open(tmp_path / "results").run(json.loads(done.stdout)["run"]).data.flows[0]
    series = metrics.throughput_over_time(flow, 1.0)
    times_s = series["t_s"].to_list()
    # Every second of the transfer and the empty one after it; then nothing until the end.
    assert times_s[:4] == [1.0, 2.0, 3.0, 4.0]
    assert times_s[-1] == pytest.approx(60 * hostile.YEAR_S, abs=1.5)
    assert len(times_s) == 5
    assert series["bps"].to_list()[-2:] == [0.0, 0.0]
    assert series["bps"].sum() == 8 * flow.arrivals["bytes"].sum()


@pytest.mark.parametrize(
    ("number", "listed"),
    [(5, [0, 1, 2, 3, 4]), (slices.MAX_DENSE + 1, [0, 6, 7, 8, 9, 10, slices.MAX_DENSE - 1, slices.MAX_DENSE])],
)
def test_neighbours_of_occupied_slices_are_listed(number: int, listed: list[int]) -> None:
    occupied = pl.Series([7, 9, slices.MAX_DENSE], dtype=pl.Int64)
    assert slices.listed_slices(occupied, number).to_list() == listed


def test_a_slice_that_is_too_short_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"slices of 1e-09 s are too short for a period of 1e\+09 s; use at least"):
        slices.count(0.0, 1e9, 1e-9)
    with pytest.raises(AnalysisError, match="must be longer than 0 s"):
        slices.count(0.0, 1.0, float("nan"))
