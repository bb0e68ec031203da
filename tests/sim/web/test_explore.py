"""Exploring a campaign, without a browser."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from analysis.figures import explorer, printed
from analysis.figures.cells import Sample
from analysis.figures.explorer import Layout
from analysis.results import Quantity
from analysis.statistics import RunKey
from analysis.store import Store
from tests.support.simulated import Simulated
from tests.system.browser.test_explore import POLICY, RATE

THROUGHPUT = Quantity("throughput", "forward", "rate")
AXES = {"line.rate": ["20 kbit/s", "10 kbit/s", "1 Mbit/s"], "delay": ["1 ms", "2 ms", "3 ms"], "policy": ["a", "b"]}


def sample(point: int, repetition: int, place: Mapping[str, str], value: float) -> Sample:
    return Sample(point, RunKey(repetition, repetition), f"{point}-{repetition}", place, value)


def samples() -> list[Sample]:
    """Three repetitions of every combination."""
    result = []
    for number in range(18):
        place = {
            "line.rate": AXES["line.rate"][number % 3], "delay": AXES["delay"][number // 3 % 3],
            "policy": AXES["policy"][number // 9],
        }  # fmt: skip
        result += [sample(number, n, place, 1e6 * (number + 1) + 1e5 * n * n) for n in range(3)]
    return result


def explored(kind: str, **slots: str) -> explorer.View:
    layout = replace(Layout(kind), **slots)  # type: ignore[arg-type]
    return explorer.view(samples(), AXES, layout, THROUGHPUT, "Throughput")


def test_a_heatmap_is_the_default_from_two_fields_of_quantities_on() -> None:
    assert explorer.default_layout(AXES) == Layout("heatmap", "line.rate", "delay", "", "policy")
    assert explorer.default_layout({"rate": ["1", "2", "3"], "policy": ["a", "b"]}) == Layout("means", "rate", "policy")
    assert explorer.default_layout({"rate": ["1"]}) == Layout("dots")


def test_a_pooled_value_is_a_repetitions_mean_over_the_points() -> None:
    cell = explored("effects").panels[2].cells[0]
    assert (cell.place, cell.points, cell.runs) == ({"policy": "a"}, 9, 27)
    by_repetition = [statistics.fmean(1e6 * (n + 1) + 1e5 * r * r for n in range(9)) for r in range(3)]
    assert cell.estimate is not None
    assert cell.estimate.values == pytest.approx(by_repetition)
    # Points share their seeds: the spread is that of the repetitions, not that of the points.
    assert cell.estimate.interval is not None
    assert cell.estimate.interval.half == pytest.approx(4.303 * statistics.stdev(by_repetition) / 3**0.5, rel=1e-3)


def test_a_repetition_that_lacks_a_point_is_left_out_of_a_pooled_mean() -> None:
    values, points = explorer.pooled([sample(0, 0, {}, 1.0), sample(0, 1, {}, 2.0), sample(1, 1, {}, 4.0)])
    assert (values, points) == ([3.0], 2)
    assert explorer.pooled([sample(0, 0, {}, 1.0), sample(1, 1, {}, 4.0)]) == ([], 2)


@pytest.mark.parametrize("kind", ["means", "heatmap", "dots", "box", "ecdf", "effects"])
def test_marks_have_the_numbers_of_their_cells(kind: str) -> None:
    view = explored(kind, x="line.rate", colour="delay", column="policy")
    assert [panel.title for panel in view.panels] == (
        ["by line.rate", "by delay", "by policy"] if kind == "effects" else ["a", "b"]
    )
    marks = 0
    for panel in view.panels:
        cells = {cell.number: cell for cell in panel.cells}
        for series in panel.figure.series:
            for row in series.points.iter_rows(named=True) if "cell" in series.points.columns else ():
                cell = cells[row["cell"]]
                assert cell.estimate is not None
                marks += 1
                if row.get("run"):
                    value = next(sample.value for sample in cell.samples if sample.run_id == row["run"]) / 1e6
                    assert value == pytest.approx(row["x"] if kind == "ecdf" else row["y"])
                elif kind == "heatmap":
                    assert row["label"] == f"{cell.estimate.mean / 1e6:.3g}"
                    low, high = (float(entry) for entry in re.findall(r"[\d.]+", series.name)[:2])
                    assert low * 0.99 <= cell.estimate.mean / 1e6 <= high * 1.01
                elif kind == "box":
                    values = sorted(sample.value / 1e6 for sample in cell.samples)
                    tops = [values[1], values[2], (values[1] + values[2]) / 2]
                    assert min(abs(row["y"] - top) for top in tops) < 1e-9
                else:
                    assert row["y"] == pytest.approx(cell.estimate.mean / 1e6)
                    assert (row["low"], row["high"]) == pytest.approx([end / 1e6 for end in cell.estimate.ends if end])
    assert marks >= 8
    # Panels that are read against each other have one scale.
    assert len({(panel.figure.y.label, panel.figure.y.range) for panel in view.panels}) == 1
    # Cells have their labels in all panels, or in none.
    drawn = [series.points for panel in view.panels for series in panel.figure.series]
    letters = max((len(label) for points in drawn if "label" in points.columns for label in points["label"]), default=0)
    assert {len(panel.figure.longest_label) for panel in view.panels} == {letters}
    assert letters > 0 or kind != "heatmap"
    rates = [label for _, label in view.panels[0].figure.x.ticks]
    if kind in ("heatmap", "dots", "box"):
        assert rates == ["10 kbit/s", "20 kbit/s", "1 Mbit/s"], "by size"


def test_a_box_over_a_figure_selects_what_it_covers() -> None:
    heatmap = explored("heatmap", x="line.rate", colour="delay", column="policy").panels[0]
    cells, _ = explorer.selected(heatmap.figure, (0.6, 1.4), (-0.4, 0.4))
    assert [cell.place for cell in heatmap.cells if cell.number in cells] == [
        {"line.rate": "20 kbit/s", "delay": "1 ms", "policy": "a"}
    ]
    dots = explored("dots", x="line.rate").panels[0]
    cells, runs = explorer.selected(dots.figure, (0.5, 1.5), (0.9, 1.05))
    assert (cells, runs) == (set(), {"0-0"})
    assert len(explorer.selected(dots.figure, (0.5, 1.5), None)[1]) == 18


def test_the_page_the_csv_and_the_store_agree(client: FlaskClient, simulated: Simulated) -> None:
    where = f"{simulated.address}/explore"
    rows = list(csv.DictReader(io.StringIO(client.get(f"{where}.csv?metric=goodput/reverse").text)))
    table = Store.open(simulated.results).table(simulated.campaign["campaign"])
    means = sorted(row.mean for row in table if (row.name, row.subject) == ("goodput", "reverse"))
    assert sorted(float(row["mean"]) for row in rows) == pytest.approx(means)
    page = client.get(f"{where}?metric=goodput/reverse").text
    figure = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', page)[0])
    drawn = sorted(value for entry in figure["series"] for value in entry["y"] if entry["kind"] == "line")
    assert drawn == pytest.approx([100 * mean for mean in means])
    for kind, begin in (("svg", b"<?xml"), ("pdf", b"%PDF-"), ("csv", b"series")):
        assert client.get(f"{where}.{kind}?kind=heatmap&panel=0").data.startswith(begin)
    assert client.get(f"{where}.svg?panel=7").status_code == 404


def test_filters_and_order_by_a_field_hold_for_the_table_of_runs(client: FlaskClient, simulated: Simulated) -> None:
    def runs_of(query: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = client.get(f"/api{simulated.address}/runs?{query}").json["runs"]  # type: ignore[index]
        return runs

    kept = runs_of(f"fix.{RATE}=9.6+kbit/s&fix.{RATE}=128+kbit/s&fix.{POLICY}=droptail")
    assert [entry["parameters"][RATE] for entry in kept] == ["9.6 kbit/s"] * 2 + ["128 kbit/s"] * 2
    rates = [entry["parameters"][RATE] for entry in runs_of(f"sort={RATE}&order=desc")]
    assert rates == ["128 kbit/s"] * 4 + ["28.8 kbit/s"] * 4 + ["9.6 kbit/s"] * 4


def test_a_metric_against_a_metric_has_the_runs_that_have_both() -> None:
    runs = samples()
    latencies = {sample.run_id: 0.01 * number for number, sample in enumerate(runs[:5])}
    across = explorer.Across("Latency", "time", latencies)
    view = explorer.view(runs, AXES, Layout("against", colour="policy", log=("x",)), THROUGHPUT, "Throughput", across)
    (panel,) = view.panels
    points = {run: (x, y) for line in panel.figure.series for x, y, _, run in line.points.iter_rows()}
    assert points.keys() == across.values.keys()
    assert points[runs[3].run_id][0] == pytest.approx(30)
    assert (panel.figure.x.label, panel.figure.x.log, panel.figure.y.log) == ("Latency (ms)", True, False)
    assert "1 value of 0 or less cannot be shown on a logarithmic axis." in view.notes


def test_a_heatmap_hatches_two_groups_and_writes_both_means() -> None:
    values = (1.0, 1.01, 5.0, 5.02, 1.0, 5.0)
    groups = [Sample(0, RunKey(n, n), f"g-{n}", {"a": "1", "b": "2"}, value) for n, value in enumerate(values)]

    def shown(samples: list[Sample]) -> explorer.View:
        quantity = Quantity("queue_mean", "", "packets")
        return explorer.view(samples, {"a": ["1"], "b": ["2"]}, Layout("heatmap", "a", "b"), quantity, "Throughput")

    view = shown(groups)
    series = view.panels[0].figure.series[-1]
    assert (series.name, series.hollow) == ("two groups, no mean", True)
    assert series.points["label"].to_list() == ["1 | 5.01"]
    # A printed file has the same: a hatched patch, and the words of both means.
    svg = printed.rendered(view.panels[0].figure, "svg", text=True).decode()
    patterns = re.findall(r'<pattern id="(\w+)"', svg)
    assert any(f"url(#{pattern})" in svg for pattern in patterns)
    assert "1 | 5.01" in svg
    plain = [replace(sample, value=1.0 + number / 100) for number, sample in enumerate(groups)]
    assert "<pattern" not in printed.rendered(shown(plain).panels[0].figure, "svg", text=True).decode()


def test_limits_keep_runs_by_their_values(client: FlaskClient, simulated: Simulated) -> None:
    rows = Store.open(simulated.results).values(simulated.campaign["campaign"], only=[("goodput", "reverse")])
    middle = sorted(row.value for row in rows)[len(rows) // 2]
    kept = {row.run_id for row in rows if row.value >= middle}
    query = f"where=goodput/reverse+>=+{middle}"
    listed: Any = client.get(f"/api{simulated.address}/runs?{query}").json
    assert {run["run_id"] for run in listed["runs"]} == kept
    means = list(csv.DictReader(io.StringIO(client.get(f"{simulated.address}/explore.csv?{query}").text)))
    assert sum(int(row["runs"]) for row in means) <= len(kept)
    page = client.get(f"{simulated.address}/explore?where=godput/reverse+>=+1").text
    assert "did you mean &#39;goodput/reverse&#39;" in page or "did you mean 'goodput/reverse'" in page
    page = client.get(f"{simulated.address}/explore?where=fast").text
    assert "is not METRIC/FLOW" in page
    # What was typed stays, to be corrected.
    assert 'id="where" value="fast"' in page


def test_details_are_metrics_of_the_explorer(client: FlaskClient, simulated: Simulated) -> None:
    page = client.get(f"{simulated.address}/explore?metric=outstanding_mean/reverse").text
    assert re.search(r'<option value="outstanding_mean/reverse" selected', page)
