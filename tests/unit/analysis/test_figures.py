"""Figures: the description holds what was measured, and both renderers draw it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.collections import LineCollection

from analysis.captures import MissingCapture
from analysis.errors import AnalysisError
from analysis.figures import campaign, page, printed, run as over_time
from analysis.figures.means import number_of, quantities
from analysis.figures.model import MOST_POINTS, PALETTE, Axis, Figure, Series, axis_scale
from analysis.figures.registry import FIGURES, Asked
from analysis.metrics import outstanding, rtt_samples, utilisation_over_time
from tests.support.made_traces import Trace, path_scenario


def series(figure: Figure) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in figure.as_json()["series"]}


def sequence(run: Any) -> Figure:
    arrived = run.flows[0].at_receiver.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
    return over_time.sequence("bulk", run.flows[0].at_sender, None, arrived.select("seq", "payload", "stream"))


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
    made = trace.run(tmp_path, "".join(json.dumps(entry) + "\n" for entry in said))
    cwnd = [{"t_ns": 500_000_000, "cwnd_segments": 2, "ssthresh_segments": None},
            {"t_ns": 2_500_000_000, "cwnd_segments": 4.5, "ssthresh_segments": 8}]  # fmt: skip
    (tmp_path / "telemetry/bulk.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in cwnd))
    return made


def test_a_time_sequence_has_every_segment_from_first_to_last_byte(run: Any) -> None:
    result = series(sequence(run))
    assert list(result) == ["acknowledged", "window", "data", "retransmission", "never arrived"]
    assert (result["data"]["x"], result["data"]["low"], result["data"]["y"]) == (
        [2, 3, 4, 5], [0.001, 1.001, 2.001, 3.001], [1.001, 2.001, 3.001, 4.001],
    )  # fmt: skip
    assert (result["retransmission"]["x"], result["retransmission"]["y"]) == ([7], [3.001])
    acknowledged = result["acknowledged"]
    assert (acknowledged["x"], acknowledged["y"]) == ([2.2, 3.2, 4.2, 5.2], [1.001, 2.001, 3.001, 4.001])
    assert result["window"]["y"][0] == pytest.approx(1.001 + 65.535)
    # Sent twice, arrived once.
    assert result["never arrived"]["x"] == [4]


def test_a_part_of_a_run_begins_with_what_held_before_and_is_clipped_not_clamped(run: Any) -> None:
    part = sequence(run).within(3.5, 5.0)
    at = series(part)["acknowledged"]
    assert dict(zip(at["x"], at["y"], strict=True))[3.5] == 2.001
    (axes,) = printed.draw(part).axes
    assert axes.get_xlim() == (3.5, 5.0)
    # The window lies far above the view: its own values stay, and the axis makes no room for them.
    tops = [max(map(float, line.get_ydata()), default=0.0) for line in axes.lines]  # type: ignore[arg-type]
    assert max(tops) == pytest.approx(2.001 + 65.535, abs=2.1)
    assert axes.get_ylim()[1] < 10


def test_window_round_trips_outstanding_throughput(run: Any) -> None:
    flow = run.flows[0]
    # Stacks count from their flow's start, at 1 s.
    cwnd = series(over_time.congestion_window("bulk", flow.telemetry))
    assert {name: (entry["x"], entry["y"]) for name, entry in cwnd.items()} == {
        "cwnd": ([1.5, 3.5], [2, 4.5]), "ssthresh": ([3.5], [8]),
    }  # fmt: skip
    assert cwnd["ssthresh"]["dash"] == [6, 3]
    assert not cwnd["ssthresh"]["fits"]
    assert series(over_time.round_trips("", {"bulk": rtt_samples(flow)}))["bulk"]["y"] == [200] * 4
    assert series(over_time.outstanding("", {"bulk": outstanding(flow)}))["bulk"]["y"] == [1, 0] * 4 + [0]


def test_throughput_is_what_arrives_in_steps_below_the_lines_rate() -> None:
    """A hole at 2 s is filled at 3.7 s: what arrives stays below the rate, what is delivered in order leaps."""
    trace = Trace(path_scenario(forward_bps=16_000))
    for number, byte in enumerate([0, 2000, 3000, 4000, 1000]):
        trace.data("b-eth0", 1.5 + 0.55 * number, byte, kind="again" if byte == 1000 else "new")
    flow = trace.run().flows[0]
    figure = FIGURES.find("throughput").function([flow], Asked(0.0, 10.0, 1.0))
    shown = series(figure)
    assert list(shown) == ["bulk", "bulk, in order", "rate of line/forward"]
    # Five packets of 1052 bytes take 2.63 s at 16 kbit/s: three slices of 1 s.
    assert figure.notes == ("bins of 3 s",)
    assert (shown["bulk"]["kind"], shown["bulk"]["x"]) == ("steps", [0, 3, 6, 9, 12])
    assert shown["bulk"]["y"] == pytest.approx([8, 16 / 3, 0, 0, 0])
    assert shown["bulk, in order"]["y"] == pytest.approx([8 / 3, 32 / 3, 0, 0, 0])
    assert not shown["bulk, in order"]["fits"]
    assert (shown["rate of line/forward"]["x"], shown["rate of line/forward"]["y"]) == ([0, 10], [16, 16])
    assert figure.y.label == "throughput (kbit/s)"
    assert [line.name for line in FIGURES.find("throughput").overlaid(figure)] == ["bulk"]


def test_a_line_whose_rate_changes_is_drawn_in_steps() -> None:
    scenario = path_scenario(forward_bps=16_000)
    scenario["links"][1]["forward"]["schedule"] = [{"at_s": 4.0, "rate_bps": 8_000}]
    trace = Trace(scenario)
    trace.data("b-eth0", 2.0, 0)
    shown = series(FIGURES.find("throughput").function([trace.run().flows[0]], Asked(0.0, 10.0, 1.0, "kbit/s")))
    limit = shown["rate of line/forward"]
    assert (limit["kind"], limit["x"], limit["y"]) == ("steps", [0, 4, 10], [16, 8, 8])


def test_a_segment_that_comes_twice_counts_twice_and_a_damaged_one_not() -> None:
    trace = Trace(path_scenario())
    trace.data("b-eth0", 2.0, 0)
    trace.data("b-eth0", 2.1, 0, kind="spurious")
    trace.data("b-eth0", 2.2, 1000, kind="damaged")
    flow = trace.run().flows[0]
    assert flow.received["bytes"].to_list() == [1000, 1000]


def test_queue_and_utilisation(run: Any) -> None:
    line = run.lines[0]
    events = {kind: line.events(kind)["t_s"].to_list() for kind in over_time.EVENTS}
    result = series(over_time.queue("", line.queue_steps(), events))
    assert (result["waiting"]["x"], result["waiting"]["y"]) == ([2, 4], [3, 0])
    assert (result["dropped full"]["x"], result["dropped full"]["y"]) == ([3], [0])
    peaks = result["peak since the last sample"]
    assert (peaks["x"], peaks["low"], peaks["y"]) == ([2, 4], [3, 0], [5, 3])
    share = series(over_time.utilisation("", {"line/forward": utilisation_over_time(line, 1.0)}))["line/forward"]
    assert share["y"] == pytest.approx([0, 0] + [1052 * 8 / 1e6 * 100] * 4 + [0] * 4)
    with pytest.raises(MissingCapture, match="telemetry"):
        _ = Trace(path_scenario()).run().flows[0].telemetry


def table() -> pl.DataFrame:
    rows = []
    for point, (rate, policy) in enumerate((r, p) for r in ("9.6 kbit/s", "28.8 kbit/s") for p in ("droptail", "red")):
        for subject in ("up", "down"):
            mean = 1e6 * (point + 1) + (subject == "up") * 5e5
            rows.append({
                "link.rate": rate, "queue.policy": policy, "point": point, "metric": "throughput", "subject": subject,
                "unit": "rate", "n": 3, "mean": mean, "values": [mean - 1e5, mean, mean + 1e5],
            })  # fmt: skip
    return pl.DataFrame(rows)


def test_bars_have_error_bars() -> None:
    figure = campaign.bars(table(), "throughput")
    assert list(series(figure)) == ["up", "down"]
    (axes,) = printed.draw(figure).axes
    assert [round(bar.get_height(), 6) for bar in axes.patches] == [1.5, 2.5, 3.5, 4.5, 1, 2, 3, 4]  # type: ignore[attr-defined]
    assert axes.get_ylabel() == "Throughput (Mbit/s)"
    errors = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
    # Student's t of three values: 4.3027 x 0.1 / sqrt 3.
    assert errors[0].get_segments()[0][:, 1].tolist() == pytest.approx([1.5 - 0.24841, 1.5 + 0.24841], abs=1e-5)
    assert [text.get_text() for text in axes.get_xticklabels()][0] == "9.6 kbit/s, droptail"
    assert figure.notes == ("means of 3 runs; bars: 95 % confidence",)


def test_bars_of_one_flow_are_coloured_by_a_field_of_names() -> None:
    figure = campaign.bars(table(), "throughput", ["down"], "sd")
    drawn = series(figure)
    assert {name: bars["y"] for name, bars in drawn.items()} == {"droptail": [1, 3], "red": [2, 4]}
    assert (drawn["droptail"]["low"][0], drawn["droptail"]["high"][0]) == pytest.approx((0.9, 1.1))
    assert [label for _, label in figure.x.ticks] == ["9.6 kbit/s", "28.8 kbit/s"]
    assert figure.y.label == "Throughput of down (Mbit/s)"


def test_bars_that_share_a_colour_differ_in_their_hatching() -> None:
    many = pl.concat([table().with_columns(subject=pl.lit(f"f{number}")) for number in range(10)])
    (axes,) = printed.draw(campaign.bars(many, "throughput")).axes
    for patches in (axes.patches, axes.figure.legends[0].get_patches()):
        assert len({(one.get_facecolor(), one.get_edgecolor(), one.get_hatch()) for one in patches}) == 10


def test_a_distribution_of_many_combinations_keeps_those_that_can_be_told_apart(recwarn: Any, tmp_path: Path) -> None:
    points = range(100)
    values = pl.DataFrame(
        {
            "limit": [str(point) for point in points], "point": points, "metric": "throughput", "subject": "down",
            "unit": "rate", "value": [1e6 + point for point in points],
        }
    )  # fmt: skip
    figure = campaign.cdf_of_runs(values, "throughput")
    assert [line.name for line in figure.series][-1] == "11 (1)"
    assert figure.x.label == "Throughput of down (Mbit/s)"
    assert figure.notes == ("88 more curves are left out; --where FIELD=VALUE chooses",)
    printed.save(figure, tmp_path / "cdf.png")
    assert not recwarn.list


def test_an_axis_of_packets_says_so_beside_bare_numbers() -> None:
    down = table().filter(pl.col("subject") == "down").drop("link.rate", "queue.policy")
    limits = down.insert_column(0, pl.Series("queue.limit", ["2 packets", "4", "8", "16"]))
    assert campaign.sweep(limits, "throughput").x.label == "queue.limit (packets)"


def test_a_long_title_stays_on_the_sheet() -> None:
    title = "Flow completion, median of pages on the way back"
    (axes,) = printed.draw(Figure(Axis(), Axis(title, "s"), ())).axes
    assert axes.get_ylabel() == "Flow completion, median of pages\non the way back (s)"
    # Long names slant below the axis, and take its height.
    names = tuple((float(at), f"ack filtering and acks first at {at} kbit/s and on") for at in range(14))
    sheet = printed.draw(Figure(Axis("way", ticks=names), Axis("Throughput, download-of-the-film-for-all", "s"), ()))
    sheet.draw_without_rendering()
    assert sheet.axes[0].yaxis.label.get_window_extent().y1 < sheet.bbox.y1


def test_means_that_lie_far_apart_have_a_logarithmic_axis() -> None:
    far = table().with_columns(
        pl.when(pl.col("subject") == "up").then(pl.lit([1e3, 1.1e3, 1.2e3])).otherwise(pl.col("values")).alias("values")
    )
    assert not campaign.bars(table(), "throughput").y.log
    for figure in (campaign.bars(far, "throughput"), campaign.sweep(far, "throughput")):
        assert figure.y.log
        assert "bars" not in [line.kind for line in figure.series]
        assert b"</svg>" in printed.rendered(figure, "svg")
        sheet = printed.draw(figure)
        sheet.draw_without_rendering()
        labels = {label.get_text() for label in sheet.axes[0].get_yticklabels(which="both")}
        assert {"0.001", "0.01", "0.1", "1"} <= labels
        assert not any("$" in label for label in labels)
    sheet = printed.draw(Figure(Axis("x", ""), Axis("Delay", "s", log=True, range=(0.08, 3)), ()))
    sheet.draw_without_rendering()
    shown = [label.get_text() for label in sheet.axes[0].get_yticklabels(which="both")]
    assert {"0.1", "0.2", "0.5", "1", "2"} <= set(shown)
    assert all(label.strip("0.") in {"", "1", "2", "5"} for label in shown)


def test_conditions_choose_what_is_drawn() -> None:
    (drawn,) = series(campaign.sweep(campaign.within(table(), {"policy": "red"}), "throughput", "", ["down"])).values()
    assert drawn["y"] == [2, 4]
    with pytest.raises(AnalysisError, match="unknown value of queue.policy 'blue'"):
        campaign.within(table(), {"policy": "blue"})


def test_few_runs_and_two_groups_are_dots() -> None:
    few = table().with_columns(pl.Series("values", [[1e6, 2e6]] * 8))
    result = series(campaign.bars(few, "throughput", ["down"]))
    assert (result["single runs"]["y"], result["red"]["y"]) == ([1, 2] * 2, [1.5] * 2)
    assert not any(result["red"]["high"])
    two = table().with_columns(pl.Series("values", [[1e6, 1e6, 1e6, 9e6, 9e6]] * 8))
    figure = campaign.bars(two, "throughput", ["down"])
    assert series(figure)["single runs"]["y"] == [1, 1, 1, 9, 9] * 2
    # No mean stands between the groups.
    assert series(figure)["red"]["y"] == []
    assert figure.notes == ("means of 5 runs; open circles: single runs, where they are two or form two groups",)
    assert "4.2" not in figure.description()
    printed.draw(figure)


def test_a_sweep_is_over_the_field_that_has_quantities() -> None:
    figure = campaign.sweep(table(), "throughput", subjects=["down"])
    result = series(figure)
    assert list(result) == ["droptail", "red"]
    assert figure.x.label == "link.rate (kbit/s)"
    assert [(entry["x"], entry["y"]) for entry in result.values()] == [([9.6, 28.8], [1, 3]), ([9.6, 28.8], [2, 4])]
    assert [label for _, label in figure.x.ticks] == ["9.6", "28.8"]
    with pytest.raises(AnalysisError, match=r"policy cannot be an axis: its value 'droptail' is not a quantity"):
        campaign.sweep(table(), "throughput", "policy")
    with pytest.raises(AnalysisError, match="unknown swept field 'delay'"):
        campaign.sweep(table(), "throughput", "delay")


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(AnalysisError, match="unknown metric of this campaign 'troughput'; did you mean 'throughput'"):
        campaign.bars(table(), "troughput")
    with pytest.raises(AnalysisError, match="unknown subject of throughput 'forward'; allowed: up, down"):
        campaign.bars(table(), "throughput", ["forward"])
    with pytest.raises(AnalysisError, match="unknown kind of error bar 'iqr'"):
        campaign.bars(table(), "throughput", interval="iqr")


def test_a_distribution_rises_by_its_share_at_every_sample() -> None:
    result = series(campaign.cdf({"a": [0.3, 0.1, 0.2, 0.2], "none": []}, "round-trip time", "time"))
    assert (result["a (4)"]["x"], result["a (4)"]["y"]) == (
        pytest.approx([100, 100, 200, 200, 300]), [0, 0.25, 0.5, 0.75, 1],
    )  # fmt: skip
    assert list(result) == ["a (4)", "none (0)"]
    with pytest.raises(AnalysisError, match="no sample"):
        campaign.cdf({"a": []}, "round-trip time", "time")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("28.8 kbit/s", (28_800, "rate")), ("5 ms", (0.005, "time")), ("0.5", (0.5, "number")),
        ("64 KiB", (65536, "bytes")), ("10 packets", (10, "packets")), ("2 %", (0.02, "fraction")),
        ("droptail", None), ("5 parsecs", None),
    ],
)  # fmt: skip
def test_swept_values_become_numbers(text: str, value: tuple[float, str] | None) -> None:
    result = number_of(text)
    assert result == value if value is None else result == (pytest.approx(value[0]), value[1])


def test_quantities_of_several_kinds_are_names() -> None:
    assert quantities(["1 ms", "20 ms"]) == ("time", [0.001, 0.02])
    assert quantities(["1", "2"]) == ("number", [1, 2])
    assert quantities(["1 ms", "2 packets"]) is None
    # A campaign file may leave the unit of packets and fractions out, but not that of a rate.
    assert quantities(["2 packets", "4"]) == ("packets", [2, 4])
    assert quantities(["0.5", "60 %"]) == ("fraction", [0.5, 0.6])
    assert quantities(["1", "2 ms"]) is None
    assert quantities(["1", "red"]) is None
    assert axis_scale([0.2, 0.4], "fraction") == (0.01, "%")


def test_equal_figures_give_equal_files_of_the_kind_asked_for(run: Any, tmp_path: Path) -> None:
    beginnings = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}
    for ending, beginning in beginnings.items():
        entry, two = tmp_path / f"one.{ending}", tmp_path / "new/folder" / f"two.{ending}"
        for path in (entry, two):
            printed.save(sequence(run), path)
        assert entry.read_bytes().startswith(beginning)
        assert entry.read_bytes() == two.read_bytes()
    with pytest.raises(AnalysisError, match=r"a figure's name ends in \.svg, \.pdf, \.png, \.html"):
        printed.save(sequence(run), tmp_path / "figure.doc")
    (tmp_path / "taken").write_text("")
    with pytest.raises(AnalysisError, match="cannot be written"):
        printed.save(sequence(run), tmp_path / "taken/figure.svg")


def test_long_series_are_images_within_a_vector_file(tmp_path: Path) -> None:
    count = printed.MOST_VECTORS + 2
    numbers = pl.Series(range(count), dtype=pl.Float64)
    points = pl.DataFrame({"x": numbers / 1000, "y": numbers + 1, "low": numbers})
    path = tmp_path / "long.svg"
    printed.save(Figure(Axis(), Axis(), (Series("long", "segments", points),)), path)
    assert b"data:image/png;base64" in path.read_bytes()
    assert path.stat().st_size < 2_000_000


def shown(figure: Figure) -> list[dict[str, Any]]:
    """The series of a figure's page."""
    result = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.page(figure))
    assert result is not None
    series_: list[dict[str, Any]] = json.loads(result[1])["series"]
    return series_


def line(name: str, y: list[float], **more: Any) -> Series:
    return Series(name, "line", pl.DataFrame({"x": [float(n) for n in range(len(y))], "y": y}), **more)


def test_a_page_thins_long_series_but_neither_peaks_nor_losses() -> None:
    count = 5 * MOST_POINTS
    y = [float(number % 7) for number in range(count)]
    y[count // 2 + 1], y[7] = 99.0, -5.0
    long, lost = shown(Figure(Axis(), Axis(), (line("line", y), line("lost", y, keep_all=True))))
    assert len(lost["x"]) >= count
    assert len(long["x"]) <= MOST_POINTS + 4
    assert (max(long["y"]), min(long["y"])) == (99, -5)
    assert long["x"] == sorted(long["x"])
    assert (long["x"][0], long["x"][-1]) == (0, count - 1)


def test_names_within_a_page_are_text_and_nothing_else() -> None:
    evil = "</script><script>alert(1)</script>&"
    figure = Figure(Axis(), Axis(), (line(evil, [0.0, 1.0]),), evil)
    assert "<script>alert" not in page.page(figure)
    assert shown(figure)[0]["name"] == evil


def test_one_palette_prints_and_shows() -> None:
    light = (page.STATIC / "figure.css").read_text().split("}")[0]
    shown_ = dict(re.findall(r"--(\w+): (#\w+);", light))
    assert {name: shown_[name] for name in PALETTE} == PALETTE


def test_kinds_are_listed_in_the_order_of_their_modules_whatever_was_imported_first() -> None:
    program = "import experiments.papers.figure\nfrom analysis.figures.registry import CAMPAIGN_FIGURES as c\nprint(*c)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "figure"
