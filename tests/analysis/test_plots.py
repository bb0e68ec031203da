"""Figures: what is drawn is what was measured, and what is written is what was asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis import plots
from analysis.errors import AnalysisError
from analysis.metrics import MissingCapture
from analysis.plots import page, style
from analysis.plots.of_campaign import number_of
from tests.analysis.traces import Trace, path_scenario

VIEW = (0.0, 10.0)


def axes(figure: Figure) -> Axes:
    (found,) = figure.axes
    return found


def labels(figure: Figure) -> list[str]:
    legend = axes(figure).get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def lines(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))  # type: ignore[arg-type]
        for line in axes(figure).lines
    }


@pytest.fixture
def run(tmp_path: Path) -> Any:
    trace = Trace(path_scenario())
    for number in range(4):
        trace.data("a-eth0", 2.0 + number, 1000 * number)
        trace.data("b-eth0", 2.1 + number, 1000 * number)
        trace.ack("a-eth0", 2.2 + number, 1000 * (number + 1), rtt_s=0.2)
        trace.data("r2-eth0", 2.05 + number, 1000 * number)
    trace.data("a-eth0", 7.0, 2000, kind="again")
    said = [
        {"t_ns": 2_000_000_000, "link": "line", "direction": "forward", "packets": 3, "bytes": 0, "max": 5},
        {"t_ns": 4_000_000_000, "link": "line", "direction": "forward", "packets": 0, "bytes": 0, "max": 3},
        {"t_ns": 3_000_000_000, "link": "line", "direction": "forward", "event": "dropped_full", "bytes": 1052,
         "pure_ack": False},
    ]  # fmt: skip
    made = trace.run(tmp_path, "".join(json.dumps(one) + "\n" for one in said))
    cwnd = [{"t_ns": 500_000_000, "cwnd_segments": 2, "ssthresh_segments": None},
            {"t_ns": 2_500_000_000, "cwnd_segments": 4.5, "ssthresh_segments": 8}]  # fmt: skip
    (tmp_path / "telemetry/bulk.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cwnd))
    return made


def test_a_time_sequence_has_every_segment_from_first_to_last_byte(run: Any) -> None:
    figure = plots.time_sequence(run.flows[0], VIEW)
    assert labels(figure) == ["data (4)", "retransmitted (1)", "acknowledged", "window"]
    data, again = (one for one in axes(figure).collections if isinstance(one, LineCollection))
    assert [bar.tolist() for bar in data.get_segments()][:2] == [
        [[2.0, 0.001], [2.0, 1.001]],
        [[3.0, 1.001], [3.0, 2.001]],
    ]
    assert [bar.tolist() for bar in again.get_segments()] == [[[7.0, 2.001], [7.0, 3.001]]]
    x, y = lines(figure)["acknowledged"]
    assert (x, y) == ([2.2, 3.2, 4.2, 5.2], pytest.approx([1.001, 2.001, 3.001, 4.001]))
    assert lines(figure)["window"][1][0] == pytest.approx(1.001 + 65.535)


def test_a_part_of_a_run_begins_with_what_held_before(run: Any) -> None:
    x, y = lines(plots.time_sequence(run.flows[0], (3.5, 5.0)))["acknowledged"]
    assert (x, y) == ([3.5, 4.2], [2.001, 3.001])


def test_window_round_trips_outstanding_throughput(run: Any) -> None:
    flow = run.flows[0]
    # Stacks count from their flow's start, at 1 s.
    assert lines(plots.congestion_window(flow, VIEW)) == {"cwnd": ([1.5, 3.5], [2, 4.5]), "ssthresh": ([3.5], [8])}
    assert lines(plots.round_trips([flow], VIEW))["bulk (4 samples)"][1] == [200] * 4
    assert lines(plots.outstanding([flow], VIEW))["bulk"][1] == [1, 0] * 4 + [0]
    x, y = lines(plots.throughput([flow], VIEW, 1.0))["bulk"]
    assert (x, y) == ([float(t) for t in range(11)], [0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0])
    assert axes(plots.throughput([flow], VIEW, 1.0)).get_ylabel() == "throughput (kbit/s)"


def test_queue_and_utilisation(run: Any) -> None:
    line = run.lines[0]
    figure = plots.queue(line, VIEW)
    assert lines(figure)["waiting"] == ([2, 4], [3, 0])
    assert lines(figure)["dropped, full (1)"] == ([3], [0])
    (peaks,) = axes(figure).collections
    assert [bar.tolist() for bar in peaks.get_segments()] == [[[2, 3], [2, 5]], [[4, 0], [4, 3]]]  # type: ignore[attr-defined]
    share = lines(plots.utilisation([line], VIEW, 1.0))["line/forward"][1]
    assert share == pytest.approx([0, 0] + [1052 * 8 / 1e6 * 100] * 4 + [0] * 4)
    with pytest.raises(MissingCapture, match="telemetry"):
        plots.congestion_window(Trace(path_scenario()).run().flows[0], VIEW)


def table() -> pl.DataFrame:
    rows = []
    for point, (rate, policy) in enumerate((r, p) for r in ("9.6 kbit/s", "28.8 kbit/s") for p in ("droptail", "red")):
        for subject in ("up", "down"):
            mean = 1e6 * (point + 1) + (subject == "up") * 5e5
            rows.append({
                "link.rate": rate, "queue.policy": policy, "point": point, "metric": "throughput", "subject": subject,
                "unit": "rate", "n": 5, "mean": mean, "sd": 1e5, "t_low": mean - 2e5, "t_high": mean + 2e5,
                "bootstrap_low": mean - 1e5, "bootstrap_high": mean + 3e5,
            })  # fmt: skip
    return pl.DataFrame(rows)


def test_bars_have_error_bars() -> None:
    figure = plots.bars(table(), "throughput")
    assert labels(figure) == ["up", "down"]
    bars = axes(figure).patches
    assert [round(bar.get_height(), 6) for bar in bars] == [1.5, 2.5, 3.5, 4.5, 1, 2, 3, 4]  # type: ignore[attr-defined]
    assert axes(figure).get_ylabel() == "Throughput (Mbit/s)"
    errors = [one for one in axes(figure).collections if isinstance(one, LineCollection)]
    assert errors[0].get_segments()[0][:, 1].tolist() == pytest.approx([1.3, 1.7])
    drawn = plots.bars(table(), "throughput", ["down"], "bootstrap")
    (error,) = (one for one in axes(drawn).collections if isinstance(one, LineCollection))
    assert error.get_segments()[0][:, 1].tolist() == pytest.approx([0.9, 1.3])
    assert [text.get_text() for text in axes(figure).get_xticklabels()][0] == "rate=9.6 kbit/s, policy=droptail"


def test_a_sweep_is_over_the_field_that_has_quantities() -> None:
    figure = plots.sweep(table(), "throughput", subjects=["down"])
    assert labels(figure) == ["droptail", "red"]
    assert axes(figure).get_xlabel() == "link.rate (kbit/s)"
    drawn = [line for line in axes(figure).lines if len(line.get_xdata()) == 2 and line.get_marker() in "os"]  # type: ignore[arg-type]
    assert [list(line.get_xdata()) for line in drawn] == [[9.6, 28.8]] * 2  # type: ignore[arg-type]
    assert [list(line.get_ydata()) for line in drawn] == [[1, 3], [2, 4]]  # type: ignore[arg-type]
    assert [text.get_text() for text in axes(figure).get_xticklabels()] == ["9.6", "28.8"]
    with pytest.raises(AnalysisError, match=r"policy cannot be an axis: its value 'droptail' is no quantity"):
        plots.sweep(table(), "throughput", "policy")
    with pytest.raises(AnalysisError, match="there is no swept field 'delay'"):
        plots.sweep(table(), "throughput", "delay")


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(AnalysisError, match=r"no metric of this campaign 'troughput' \(did you mean 'throughput'\?\)"):
        plots.bars(table(), "troughput")
    with pytest.raises(AnalysisError, match="no subject of throughput 'forward'; there are: up, down"):
        plots.bars(table(), "throughput", ["forward"])
    with pytest.raises(AnalysisError, match="no kind of error bar 'iqr'"):
        plots.bars(table(), "throughput", interval="iqr")


def test_a_distribution_rises_by_its_share_at_every_sample() -> None:
    figure = plots.cdf({"a": [0.3, 0.1, 0.2, 0.2], "none": []}, "round-trip time", "time")
    x, y = lines(figure)["a (4)"]
    assert (x, y) == (pytest.approx([100, 100, 200, 200, 300]), [0, 0.25, 0.5, 0.75, 1])
    assert labels(figure) == ["a (4)", "none (0)"]
    with pytest.raises(AnalysisError, match="no sample"):
        plots.cdf({"a": []}, "round-trip time", "time")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("28.8 kbit/s", (28_800, "rate")), ("5 ms", (0.005, "time")), ("0.5", (0.5, "number")),
        ("64 KiB", (65536, "bytes")), ("10 packets", (10, "packets")), ("2 %", (0.02, "fraction")),
        ("droptail", None), ("5 parsecs", None),
    ],
)  # fmt: skip
def test_swept_values_become_numbers(text: str, value: tuple[float, str] | None) -> None:
    found = number_of(text)
    assert found == value if value is None else found == (pytest.approx(value[0]), value[1])


def test_equal_figures_give_equal_files_of_the_kind_asked_for(run: Any, tmp_path: Path) -> None:
    beginnings = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}
    for ending, beginning in beginnings.items():
        one, two = tmp_path / f"one.{ending}", tmp_path / "new/folder" / f"two.{ending}"
        for path in (one, two):
            plots.save(plots.time_sequence(run.flows[0], VIEW), path)
        assert one.read_bytes().startswith(beginning)
        assert one.read_bytes() == two.read_bytes()
    with pytest.raises(AnalysisError, match=r"a figure's name ends in \.svg, \.pdf, \.png, \.html"):
        plots.save(plots.bars(table(), "throughput"), tmp_path / "figure.doc")
    (tmp_path / "taken").write_text("")
    with pytest.raises(AnalysisError, match="cannot be written"):
        plots.save(plots.bars(table(), "throughput"), tmp_path / "taken/figure.svg")


def test_long_series_are_images_within_a_vector_file(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    for number in range(plots.style.MOST_VECTORS + 2):
        trace._add("a-eth0", 2 + number / 10_000, 0, 40000, 0, 10, 1 + 10 * number, 1, 4097, None)
        trace._in_order.clear()
    path = tmp_path / "long.svg"
    plots.save(plots.time_sequence(trace.run().flows[0], VIEW), path)
    assert b"data:image/png;base64" in path.read_bytes()
    assert path.stat().st_size < 2_000_000


def shown(figure: Figure) -> list[dict[str, Any]]:
    """The series of a figure's page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.page(figure))
    assert found is not None
    (panel,) = json.loads(found[1])
    series: list[dict[str, Any]] = panel["series"]
    return series


def test_a_page_has_what_the_figure_has(run: Any) -> None:
    series = {(one["name"], one["kind"]): one for one in shown(plots.time_sequence(run.flows[0], VIEW))}
    data = series["data (4)", "bars"]
    assert (data["x"], data["low"], data["y"]) == (
        [2, 3, 4, 5],
        [0.001, 1.001, 2.001, 3.001],
        [1.001, 2.001, 3.001, 4.001],
    )
    assert series["retransmitted (1)", "bars"]["x"] == [7]
    assert series["acknowledged", "after"]["y"] == [1.001, 2.001, 3.001, 4.001]
    assert series["window", "after"]["beyond"]
    queue = {(one["name"], one["kind"]): one for one in shown(plots.queue(run.lines[0], VIEW))}
    assert queue["dropped, full (1)", "dots"]["x"] == [3]
    cwnd = {one["name"]: one for one in shown(plots.congestion_window(run.flows[0], VIEW))}
    assert cwnd["ssthresh"]["dash"] == [6, 3]
    bars = [(one["name"], one["kind"]) for one in shown(plots.bars(table(), "throughput"))]
    assert sorted(bars) == [("down", "bars"), ("down", "boxes"), ("up", "bars"), ("up", "boxes")]
    lines_of = [(one["name"], one["kind"]) for one in shown(plots.sweep(table(), "throughput", subjects=["down"]))]
    assert sorted(lines_of) == [(name, kind) for name in ("droptail", "red") for kind in ("bars", "line")]


def test_a_page_thins_long_series_but_neither_peaks_nor_losses() -> None:
    count = 5 * page.MOST_POINTS
    y = [float(number % 7) for number in range(count)]
    y[count // 2 + 1] = 99.0
    with style.figure("long") as (figure, of):
        of.plot(range(count), y, label="line")
        page.keep_all(*of.plot(range(count), y, "o", label="lost"))
    line, lost = shown(figure)
    assert line["total"] == lost["total"] == len(lost["x"]) == count
    assert len(line["x"]) <= page.MOST_POINTS + 4
    assert max(line["y"]) == 99
    assert (line["x"][0], line["x"][-1]) == (0, count - 1)


def test_names_within_a_page_are_text_and_nothing_else() -> None:
    evil = "</script><script>alert(1)</script>&"
    with style.figure(evil) as (figure, of):
        of.plot([0, 1], [0, 1], label=evil)
    made = page.page(figure)
    assert "<script>alert" not in made
    assert shown(figure)[0]["name"] == evil


def test_what_a_page_cannot_show_is_refused_not_left_out() -> None:
    with style.figure() as (figure, of):
        of.fill_between([0, 1], [0, 1])
    with pytest.raises(AnalysisError, match=r"cannot show a .*; SVG and PDF can"):
        page.page(figure)
