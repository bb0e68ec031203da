"""Figures of campaigns and pictures of networks."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.figures import printed
from analysis.figures.campaign import PublishedValue, of_points
from analysis.figures.means import Means
from analysis.figures.model import Axis, Figure, Series
from analysis.store.rows import PointRow, TableRow
from experiments.language.campaign import load
from testbed import node_binary
from testbed.scenario import DirectionSpec, LinkSpec, Named
from web import topology
from web.app import create_app
from web.network_words import link_labels


def points(*fields: str) -> list[PointRow]:
    combinations = [("droptail", "9.6 kbit/s"), ("droptail", "28.8 kbit/s"), ("droptail", "1 Mbit/s"),
                    ("red", "28.8 kbit/s"), ("red", "9.6 kbit/s")]  # fmt: skip
    return [
        PointRow(number, list(zip(fields, combination, strict=True))) for number, combination in enumerate(combinations)
    ]


def rows(values: list[float]) -> list[TableRow]:
    return [
        TableRow(n, "throughput", "f", "rate", 4, value, 1.63, values=[value - 2, value, value, value + 2])
        for n, value in enumerate(values)
    ]


def make(**changes: Any) -> Means:
    given_ = {
        "title": "Throughput", "unit": "rate", "metric": "throughput", "subject": "f",
        "x_field": "network.reverse.rate", "fixed": {},
    } | changes  # fmt: skip
    return of_points(points("policy", "network.reverse.rate"), rows([1e6, 2e6, 3e6, 4e6, 5e6]), **given_)


def test_a_sweep_over_quantities_is_lines_in_their_order() -> None:
    means = make()
    assert means.is_line
    assert means.places == ["9.6 kbit/s", "28.8 kbit/s", "1 Mbit/s"]
    assert [group.label for group in means.groups] == ["droptail", "red"]
    # 95 % of four values: t is 3.182; their deviation is sqrt(8 / 3).
    low, high = means.groups[0].means[0].estimate.ends
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(3.182 * (8 / 3) ** 0.5 / 2, rel=1e-3)
    figure = means.figure()
    droptail, red = (line.as_json() for line in figure.series)
    assert (droptail["kind"], droptail["x"], droptail["y"]) == ("line", [9.6, 28.8, 1000], [1, 2, 3])
    assert (red["x"], red["y"]) == ([9.6, 28.8], [5, 4])
    assert figure.x.log
    assert figure.x.label == "reverse.rate (kbit/s)"
    assert figure.description().startswith("Throughput by reverse.rate: 9.6 kbit/s, droptail: 1")
    assert "Throughput (Mbit/s)" in printed.rendered(figure, "svg", text=True).decode()


def test_bare_numbers_have_the_unit_in_their_fields_name_and_no_exponent() -> None:
    sweep = [PointRow(n, [("c_d_bps", f"{n + 1}000000")]) for n in range(3)]
    values = [TableRow(n, "m", "", "", 1, 1.0, None, values=[1.0]) for n in range(3)]

    def x_of(field: str) -> Axis:
        renamed = [PointRow(point.number, [(field, dict(point.parameters)["c_d_bps"])]) for point in sweep]
        made = of_points(renamed, values, title="M", unit="", metric="m", subject="", x_field=field, fixed={})
        return made.figure().x

    assert (x_of("c_d_bps").unit, [label for _, label in x_of("c_d_bps").ticks]) == ("Mbit/s", ["1", "2", "3"])
    assert [label for _, label in x_of("number").ticks] == ["1000000", "2000000", "3000000"]


def test_a_sweep_over_names_is_bars() -> None:
    means = make(x_field="policy", fixed={"network.reverse.rate": "9.6 kbit/s"})
    assert not means.is_line
    figure = means.figure()
    assert [label for _, label in figure.x.ticks] == ["droptail", "red"]
    (axes,) = printed.draw(figure).axes
    # Five times the mean, five times the bar.
    assert axes.patches[1].get_height() == pytest.approx(5 * axes.patches[0].get_height())  # type: ignore[attr-defined]


def test_published_values_stand_where_their_cell_says() -> None:
    cell = {"policy": "red", "rate": "9.6 kbit/s"}
    card = [
        PublishedValue("throughput", "f", cell, 7e6), PublishedValue("goodput", "f", cell, 8e6),
        PublishedValue("throughput", "f", {"policy": "other"}, 9e6),
    ]  # fmt: skip
    means = make(published=card)
    assert means.groups[1].published == [("9.6 kbit/s", 7e6)]
    assert not means.groups[0].published
    assert "7000000.0" in means.as_csv()
    hollow = [line for line in means.figure().series if line.hollow]
    assert [(entry.name, entry.points["x"].to_list(), entry.points["y"].to_list()) for entry in hollow] == [
        ("published", [9.6], [7])
    ]


@pytest.mark.parametrize("name", ["quickstart.yaml", "ns2/aq-main.yaml", "ton/ton-table3.yaml"])
def test_every_network_has_a_picture(name: str, tmp_path: Path) -> None:
    scenario = load(node_binary.ROOT / "experiments" / name).runs[0].scenario
    picture = topology.draw(scenario)
    with create_app(tmp_path).test_request_context():
        for page in (True, False):
            root = ElementTree.fromstring(str(picture.svg(page)))
            assert root.attrib["aria-label"] == picture.description
    texts = [label.text for label in picture.labels]
    for link in scenario.links[:2]:
        assert any(link.forward.queue.name in text for text in texts)
    boxes = picture.boxes
    assert len(boxes) >= min(len(scenario.nodes), 4)
    for shape in boxes:
        assert 0 <= shape.x <= picture.width - shape.width
        assert 0 <= shape.y <= picture.height - shape.height
    # Boxes do not overlap.
    for box in boxes:
        for other in boxes:
            if box is not other:
                apart = abs(box.x - other.x) >= box.width or abs(box.y - other.y) >= box.height
                assert apart
    assert picture.pdf().startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("options", "shown"),
    [({}, "droptail"), ({"limit_packets": 5}, "droptail, 5 packets"), ({"buffer_bytes": 3000}, "droptail, 3 kB"),
     ({"limit_packets": 5, "buffer_bytes": 3000}, "droptail, 5 packets, 3 kB")],
)  # fmt: skip
def test_a_link_shows_the_limits_of_its_queue(options: dict[str, int], shown: str) -> None:
    way = DirectionSpec(rate_bps=1_000_000, queue=Named(name="droptail", options=options))
    labels, _ = link_labels(LinkSpec(name="line", kind="point-to-point", ends=("a", "b"), forward=way, reverse=way))
    assert labels[1] == shown


@pytest.mark.parametrize("name", ["quickstart.yaml", "aq/aq-fig8.yaml", "ton/ton-table2.yaml"])
def test_a_narrow_screen_has_the_network_upright(name: str, tmp_path: Path) -> None:
    scenario = load(node_binary.ROOT / "experiments" / name).runs[0].scenario
    picture = topology.draw_upright(scenario)
    assert picture is not None
    with create_app(tmp_path).test_request_context():
        ElementTree.fromstring(str(picture.svg(page=True)))
    # It fits a phone, and every node is below the one that the wide picture has on its left.
    assert picture.width <= 390
    x_of = {label.text: label.x for label in topology.draw(scenario).labels if label.bold}
    y_of = {label.text: label.y for label in picture.labels if label.bold}
    assert len(y_of) >= min(len(scenario.nodes), 4)
    for one, other in itertools.combinations(y_of, 2):
        assert (x_of[one] < x_of[other]) == (y_of[one] < y_of[other])
    for box, beside in itertools.combinations(picture.boxes, 2):
        assert abs(box.x - beside.x) >= box.width or abs(box.y - beside.y) >= box.height
    assert all(0 <= box.x <= picture.width - box.width and box.y + box.height < picture.height for box in picture.boxes)
    # Forward goes down from the first end of the link under study.
    texts = [label.text for label in picture.labels]
    assert any(text.startswith(("↓", "↕")) for text in texts)
    assert not any("→" in text or "←" in text for text in texts)


@pytest.mark.parametrize("name", ["ns2/aq-main.yaml", "asym/asym-fig16.yaml"])
def test_each_side_of_the_link_under_study_is_drawn_on_its_side(name: str) -> None:
    scenario = load(node_binary.ROOT / "experiments" / name).runs[0].scenario
    picture = topology.draw(scenario)
    x_of = {label.text: label.x for label in picture.labels if label.bold}
    routers = sorted(x_of[node.name] for node in scenario.nodes if node.kind == "router")
    servers = [x for text, x in x_of.items() if text.startswith("server")]
    clients = [x for text, x in x_of.items() if text.startswith("client")]
    assert servers
    assert max(servers) < routers[0]
    assert min(clients) > routers[-1]
    assert len(set(servers)) == len(set(clients)) == 1
    # Two links between the same nodes are two lines.
    lines = {(wire.x0, wire.y0, wire.x1, wire.y1) for wire in picture.wires if not wire.arrow}
    assert len(lines) == len([wire for wire in picture.wires if not wire.arrow])


def test_what_lies_outside_a_range_is_cut_off_and_not_moved_to_the_edge() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 500.0, 2.0]})
    figure = Figure(
        Axis("Time", "s", range=(0.0, 4.0)), Axis("Sequence", "kB", range=(0.0, 10.0)),
        (Series("data", "points", frame, marker="square"),),
    )  # fmt: skip
    root = ElementTree.fromstring(printed.rendered(figure, "svg", text=True))
    svg = "{http://www.w3.org/2000/svg}"
    clip = root.find(f".//{svg}clipPath/{svg}rect")
    assert clip is not None
    top, bottom = float(clip.attrib["y"]), float(clip.attrib["y"]) + float(clip.attrib["height"])
    drawn = [
        [float(entry.attrib["y"]) for entry in group.iter(f"{svg}use")]
        for group in root.iter(f"{svg}g")
        if "clip-path" in group.attrib
    ]
    heights = [y for group in drawn for y in group]
    # Two points are inside. The third is far above the axes, where the clip hides it, or is not drawn at all.
    inside = sorted(y for y in heights if top - 1 <= y <= bottom + 1)
    assert inside == pytest.approx([bottom - 0.2 * (bottom - top), bottom - 0.1 * (bottom - top)], abs=0.1)
