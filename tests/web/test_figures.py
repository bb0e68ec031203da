"""Drawings, axes, intervals, sweeps and pictures of networks, by themselves."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.language.campaign import load
from testbed import node_binary
from web import sweep, topology
from web.axes import Axis, log_ticks, ticks
from web.drawing import Dot, Drawing, Line, Rect, Text, fitted, text_width


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_round_and_within(low: float, width: float) -> None:
    found = ticks(low, low + width)
    slack = 1e-6 * max(width, abs(low) * 1e-6)
    assert all(low - slack <= one <= low + width + slack for one in found)
    assert 1 <= len(found) <= 13


@given(st.floats(1e-6, 1e6), st.floats(1.5, 1e6))
def test_logarithmic_axes_keep_order(low: float, factor: float) -> None:
    axis = Axis(low, low * factor, 0, 100, log=True)
    places = [axis.at(one) for one in log_ticks(low, low * factor)]
    assert places == sorted(places)
    assert all(-1 <= place <= 101 for place in places)


SHAPES = ("circle", "square", "diamond", "triangle", "cross")


def everything() -> Drawing:
    drawing = Drawing(200, 100, 'All <shapes> & "quotes"')
    drawing.add(
        Line([(0, 0), (10, 10), (20, 0)], "s0", dash=(3, 2)), Line([(0, 0), (5, 5), (0, 5)], closed=True),
        Rect(5, 5, 50, 20, "raised", "ink", 4, "a <title>"), Text((10, 10), "a & b (c) \\ ± →", bold=True),
        Text((20, 20), "up", upright=True, anchor="middle"),
        *(Dot((30, 30), "s1", 3, shape, True) for shape in SHAPES),
        *(Dot((40, 30), "s1", 3, shape, False) for shape in SHAPES),
    )  # fmt: skip
    return drawing


@pytest.mark.parametrize("page", [True, False])
def test_a_drawing_is_well_formed_svg(page: bool) -> None:
    root = ElementTree.fromstring(everything().svg(page))
    assert root.attrib["aria-label"] == 'All <shapes> & "quotes"'
    colours = re.findall(r"#[0-9a-f]{6}", everything().svg(page))
    assert bool(colours) is not page
    assert "style=" not in everything().svg(page)


def test_a_drawing_is_a_whole_pdf() -> None:
    data = everything().pdf()
    # Every entry of the table points at its object.
    at = int(re.findall(rb"startxref\n(\d+)", data)[0])
    offsets = [int(one) for one in re.findall(rb"(\d{10}) 00000 n", data[at:])]
    for number, offset in enumerate(offsets, 1):
        assert data[offset:].startswith(f"{number} 0 obj".encode())
    packed = data[data.index(b"stream\n") + 7 : data.index(b"\nendstream")]
    commands = zlib.decompress(packed).decode("cp1252")
    assert r"(a & b \(c\) \\ ± ») Tj" in commands
    assert commands.count(" re") == 2


def test_text_is_cut_to_its_room() -> None:
    assert fitted("short", 11, 100) == "short"
    cut = fitted("a rather long label that needs more", 11, 80)
    assert cut.endswith("…")
    assert text_width(cut, 11) <= 80


def points(*fields: str) -> list[dict[str, Any]]:
    combinations = [("droptail", "9.6 kbit/s"), ("droptail", "28.8 kbit/s"), ("droptail", "1 Mbit/s"),
                    ("red", "28.8 kbit/s"), ("red", "9.6 kbit/s")]  # fmt: skip
    return [
        {"number": number, "parameters": [list(pair) for pair in zip(fields, one, strict=True)]}
        for number, one in enumerate(combinations)
    ]


def rows(values: list[float]) -> list[dict[str, Any]]:
    return [
        {"point": n, "name": "throughput", "subject": "f", "unit": "rate", "n": 4, "mean": value, "sd": 2.0}
        for n, value in enumerate(values)
    ]


def make(**changes: Any) -> sweep.Figure:
    given_ = {
        "title": "Throughput", "unit": "rate", "metric": "throughput", "subject": "f",
        "x_field": "network.reverse.rate", "fixed": {},
    } | changes  # fmt: skip
    return sweep.make(points("policy", "network.reverse.rate"), rows([1e6, 2e6, 3e6, 4e6, 5e6]), **given_)


def test_a_sweep_over_quantities_is_lines_in_their_order() -> None:
    figure = make()
    assert figure.is_line
    assert figure.places == ["9.6 kbit/s", "28.8 kbit/s", "1 Mbit/s"]
    assert [one.label for one in figure.series] == ["droptail", "red"]
    # 95 % of four values: t is 3.182.
    assert figure.series[0].values[0].half == pytest.approx(3.182 * 2 / 2, rel=1e-3)
    drawn = sweep.draw(figure)
    lines = [one for one in drawn.shapes if isinstance(one, Line) and one.ink == "s1" and len(one.points) == 2]
    xs = [point[0] for point in lines[0].points]
    assert xs == sorted(xs)
    assert "Throughput by network.reverse.rate" in drawn.title


def test_a_sweep_over_names_is_bars() -> None:
    figure = make(x_field="policy", fixed={"network.reverse.rate": "9.6 kbit/s"})
    assert not figure.is_line
    bars = [one for one in sweep.draw(figure).shapes if isinstance(one, Rect) and one.title]
    assert [bar.title.split(":")[0] for bar in bars] == ["droptail", "red"]
    # Five times the mean, five times the bar.
    assert bars[1].height == pytest.approx(5 * bars[0].height, rel=1e-6)


def test_published_values_stand_where_their_cell_says() -> None:
    card = [
        {"metric": "throughput", "subject": "f", "cell": {"policy": "red", "rate": "9.6 kbit/s"}, "value": 7e6},
        {"metric": "goodput", "subject": "f", "cell": {"policy": "red", "rate": "9.6 kbit/s"}, "value": 8e6},
        {"metric": "throughput", "subject": "f", "cell": {"policy": "other"}, "value": 9e6},
    ]
    figure = make(published=card)
    assert figure.series[1].published == [("9.6 kbit/s", 7e6)]
    assert not figure.series[0].published
    assert "7000000.0" in sweep.as_csv(figure)
    hollow = [one for one in sweep.draw(figure).shapes if isinstance(one, Dot) and "published" in one.title]
    assert len(hollow) == 1


@pytest.mark.parametrize("name", ["quickstart.yaml", "ns2/aq-main.yaml", "ton/ton-table3.yaml"])
def test_every_network_has_a_picture(name: str) -> None:
    scenario = load(node_binary.ROOT / "experiments" / name).runs[0].scenario
    drawing = topology.draw(scenario)
    ElementTree.fromstring(drawing.svg(page=True))
    told = [one.text for one in drawing.shapes if isinstance(one, Text)]
    for link in scenario["links"][:2]:
        assert any(link["forward"]["queue"]["name"] in text for text in told)
    boxes = [one for one in drawing.shapes if isinstance(one, Rect)]
    assert len(boxes) >= min(len(scenario["nodes"]), 4)
    for shape in boxes:
        assert 0 <= shape.x <= drawing.width - shape.width
        assert 0 <= shape.y <= drawing.height - shape.height
    # Boxes do not lie on each other.
    for one in boxes:
        for other in boxes:
            if one is not other:
                apart = abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= one.height
                assert apart
