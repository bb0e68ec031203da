"""What a campaign file says of its figure, and the points that it gives."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from analysis.figures import printed
from analysis.figures.model import Axis, Figure, Series, frame_of
from analysis.figures.spec import FigureSpec, size_of
from analysis.results import Quantity
from analysis.statistics import RunKey, sd_interval
from experiments.language.measures import AnyForm, Metric, Stdev, read
from experiments.papers.figure import make
from experiments.papers.table import Table
from experiments.papers.targets import Expected

MEASURES = {flow: read({"metric": "throughput", "of": flow}) for flow in ("up", "down")}


def table() -> Table:
    points = {
        number: {"policy": policy, "rate": rate}
        for number, (policy, rate) in enumerate((p, r) for p in ("droptail", "aq") for r in ("1000000", "4000000"))
    }
    values = {
        number: {
            Quantity("throughput", subject, "rate"): {
                RunKey(at, at + 1): base + (1 + 2 * at) * 1e5 * number for at in (0, 1)
            }
            for subject, base in (("up", 1e6), ("down", 5e6))
        }
        for number in points
    }
    return Table(MEASURES, [], points, values)


def spec(**other: Any) -> FigureSpec:
    raw: dict[str, Any] = {
        "kind": "lines", "x": {"axis": "rate", "unit": "Mbit/s"}, "y": {"measures": ["up"], "unit": "Mbit/s"},
    }  # fmt: skip
    return FigureSpec.model_validate({**raw, **other})


def published(measure: str, cell: dict[str, Any], value: float, relation: str) -> Expected:
    """A published value in bit/s."""
    return Expected.model_validate({
        "metric": measure, "cell": cell, "value": value, "relation": relation, "unit": "bit/s", "tolerance": {},
        "origin": "stated",
    })  # fmt: skip


def test_series_stand_in_the_order_asked_for_with_their_names_and_in_the_axes_units() -> None:
    drawn = make(spec(series=["aq", "droptail"], names={"aq": "AQ"}), "Rates", table())
    assert [curve.name for curve in drawn.curves] == ["AQ", "droptail"]
    assert [(point.x, point.mean, point.runs) for point in drawn.curves[0].points] == [(1.0, 1.4, 2), (4.0, 1.6, 2)]
    # Two values have no interval: they are drawn as dots.
    assert drawn.curves[0].points[0].high is None
    assert drawn.note == "means of 2 runs; open circles: single runs, where they are two or form two groups"
    lone = [line for line in drawn.figure().series if line.name == "single runs"]
    assert sorted(lone[0].points["y"]) == pytest.approx([1.2, 1.3, 1.6, 1.9])
    sd = make(spec(error_bars="sd"), "", table()).curves[1].points[0]
    assert sd.low == pytest.approx(1.4 - 0.2 * 2**0.5)
    assert make(spec(error_bars="none"), "", table()).curves[0].points[0].low is None


def test_a_measure_with_an_interval_of_its_own_is_drawn_with_it() -> None:
    measures: dict[str, AnyForm] = {"up": Metric(metric="throughput", of="f"), "spread": Stdev(stdev="up")}
    runs = [1e6, 2e6, 4e6, 3e6, 9e6, 2e6]
    values = {0: {Quantity("throughput", "f", "rate"): {RunKey(at, at): value for at, value in enumerate(runs)}}}
    made = Table(measures, [], {0: {"policy": "aq"}}, values)
    drawn = make(spec(x={"axis": "policy"}, kind="bars", y={"measures": ["spread"], "unit": "Mbit/s"}), "", made)
    (point,) = drawn.curves[0].points
    interval = sd_interval(runs)
    assert interval is not None
    assert (point.low, point.high) == pytest.approx((interval.low / 1e6, interval.high / 1e6))


def test_published_values_stand_at_their_own_points_only() -> None:
    expected = [
        published("up", {"policy": "aq", "rate": 4000000}, 1.5e6, "eq"),
        published("up", {"policy": "droptail"}, 9e6, "eq"),  # an average over the axis
        published("down", {"policy": "aq", "rate": 1000000}, 2e6, "ge"),
    ]
    drawn = make(spec(), "", table(), expected)
    present = {(curve.name, point.x): point.published for curve in drawn.curves for point in curve.points}
    assert present == {
        ("droptail", 1.0): [], ("droptail", 4.0): [], ("aq", 1.0): [], ("aq", 4.0): [(1.5, "eq")],
    }  # fmt: skip


def test_bars_have_named_places_in_the_order_asked_for() -> None:
    at_1_mbps = {"rate": "1000000"}
    drawn = make(spec(kind="bars", x={"axis": "policy", "order": ["aq", "droptail"]}, where=at_1_mbps), "", table())
    assert drawn.ticks == [(0.0, "aq"), (1.0, "droptail")]
    assert [(point.label, point.mean) for curve in drawn.curves for point in curve.points] == [
        ("aq", 1.4), ("droptail", 1.0),
    ]  # fmt: skip
    by_measure = spec(kind="bars", x={"axis": "measures"}, y={"measures": ["up", "down"]}, where=at_1_mbps)
    of_measures = make(by_measure, "", table())
    assert [curve.name for curve in of_measures.curves] == ["droptail", "aq"]
    assert [tick for _, tick in of_measures.ticks] == ["up", "down"]


def test_a_distribution_is_one_step_a_run() -> None:
    drawn = make(spec(kind="cdf", x={"unit": "Mbit/s"}, where={"rate": "4000000"}), "", table())
    assert [(point.x, point.mean) for point in drawn.curves[0].points] == [(1.1, 0.5), (1.3, 1.0)]


@pytest.mark.parametrize("kind", ["lines", "bars", "scatter", "cdf"])
def test_both_renderers_draw_every_kind(kind: str) -> None:
    expected = [published("up", {"policy": "aq", "rate": "4000000"}, 1.5e6, "le")]
    x = {} if kind == "cdf" else {"axis": "rate", "unit": "Mbit/s"}
    drawn = make(spec(kind=kind, x=x), "Rates", table(), expected)
    figure = drawn.figure()
    assert printed.draw(figure).axes[0].get_xlabel() == ("" if kind == "cdf" else "rate (Mbit/s)")
    svg = printed.rendered(figure, "svg", text=True).decode()
    assert "droptail" in svg
    assert ("published, at most" in svg) == (kind != "cdf")
    points = {entry["name"]: entry["y"] for entry in figure.as_json()["series"]}
    # A distribution has a curve for each rate as well.
    assert {name.partition(",")[0] for name in points} >= {"droptail", "aq"}
    assert points.get("published, at most") == (None if kind == "cdf" else [1.5])
    assert drawn.as_csv().count("\n") == 1 + sum(len(curve.points) for curve in drawn.curves)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"kind": "lines", "x": {}}, "x.axis"),
        ({"y": {}}, "y.measures"),
        ({"kind": "time"}, "y.counters"),
        ({"kind": "time", "y": {"counters": ["cwind"], "of": ["up"]}}, "unknown counter 'cwind'"),
        ({"x": {"axis": "rate", "unit": "Mbits"}}, "is not a unit of an axis"),
        ({"x": {"axis": "rate", "range": [5, 1]}}, "from the lesser"),
        ({"x": {"axis": "rate", "scale": "log", "range": [0, 1]}}, "begins above 0"),
    ],
)
def test_a_mistake_is_told(other: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        spec(**other)


def test_the_rest_of_the_file_must_have_what_the_figure_names() -> None:
    assert spec().problems(["up"], {"rate": ["1"]}) == []
    wrong = spec(y={"measures": ["upp"]}, where={"path": "LAN"}).problems(["up"], {"rate": ["1"]})
    assert len(wrong) == 2
    assert "unknown measure 'upp'" in wrong[0]
    assert "unknown axis 'path'" in wrong[1]
    assert [size_of(unit) for unit in ("", "%", "kbit/s", "ms", "KiB")] == [1.0, 0.01, 1000.0, 0.001, 1024.0]


def test_a_place_without_a_mean_interrupts_its_line_and_no_other_kind() -> None:
    points = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, None, 3.0]})
    assert Series("a", "line", points, "s0").as_json()["y"] == [1.0, None, 3.0]
    assert Series("a", "points", points, "s0").as_json()["y"] == [1.0, 3.0]


def test_an_interval_that_an_axis_cuts_has_an_arrow_head_there() -> None:
    ends: list[Any] = [{"x": 1, "y": 0.5, "low": 0.4, "high": 2}, {"x": 2, "y": 0.5, "low": -1, "high": 0.6}]
    points = frame_of(ends, "low", "high")
    figure = Figure(Axis("x"), Axis("y", range=(0.0, 1.0)), (Series("a", "line", points),))
    (axes,) = printed.draw(figure).axes
    marks = [line for line in axes.lines if line.get_marker() in ("^", "v")]
    heads = {line.get_marker(): np.asarray(line.get_xydata()).tolist() for line in marks}
    assert heads == {"^": [[1, 1]], "v": [[2, 0]]}
    (complete,) = printed.draw(replace(figure, y=Axis("y"))).axes
    assert not [line for line in complete.lines if line.get_marker() in ("^", "v")]


@pytest.mark.parametrize("name", ["probability 0, rate=1 Mbit/s, stack=modern", "bbr"])
def test_long_notes_and_a_long_legend_leave_the_axes_their_room(name: str) -> None:
    points = frame_of([{"x": 1.0, "y": 1.0}, {"x": 2.0, "y": 2.0}])
    lines = [Series(f"{name} {number}", "line", points, f"s{number % 4}") for number in range(13)]
    notes = ("means of 2 runs; dots: single runs, where they are two or form two groups", "33 more lines are left out")
    sheet = printed.draw(Figure(Axis("x"), Axis("y"), tuple(lines), "title", notes))
    with warnings.catch_warnings():
        # matplotlib's word for axes without room.
        warnings.simplefilter("error")
        sheet.draw_without_rendering()
    width_in, height_in = sheet.get_size_inches()
    room = sheet.axes[0].get_position()
    assert room.width * width_in > 4.0
    assert room.height * height_in > 1.5
    legend = sheet.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= sheet.bbox.x1
