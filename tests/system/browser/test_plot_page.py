"""A figure's own page, opened from the disk in a real browser: it needs nothing else, zooms, and tells its points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import backchannel
from tests.support.simulated import Simulated

pytestmark = pytest.mark.browser


def opened(page: Page, simulated: Simulated, folder: Path, *words: str | Path) -> Locator:
    """The page of a figure, from the disk; a request for anything else fails the test."""
    path = folder / "figure.html"
    backchannel("plot", *words, "--results", simulated.results, "--out", path, status=0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    return page.locator(".board")


def view(board: Locator) -> dict[str, list[float]]:
    result: dict[str, list[float]] = json.loads(board.get_attribute("data-view") or "")
    return result


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a point of the figure lies on the screen."""
    left, top = page.evaluate(
        """([x, y]) => { const u = Figures.chart.plot, box = u.over.getBoundingClientRect();
        return [box.left + u.valToPos(x, "x"), box.top + u.valToPos(y, "y")]; }""",
        [x, y],
    )
    return left, top


def test_a_time_sequence_zooms_moves_and_tells_its_segments(page: Page, simulated: Simulated, tmp_path: Path) -> None:
    board = opened(page, simulated, tmp_path, "sequence", simulated.run_id(1), "--of", "forward")
    ink = board.locator(".u-wrap canvas").evaluate(
        """(c) => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"""
    )
    assert ink > 2000
    complete = view(board)
    assert complete["x"] == [0, 8]
    # A flat drag is a period, and y is fitted to what is seen there.
    (left, top), (right, _) = place(page, 2, complete["y"][1] / 2), place(page, 4, 0)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, top, steps=5)
    page.mouse.up()
    near = view(board)
    assert near["x"] == pytest.approx([2, 4], abs=0.02)
    assert near["y"][1] - near["y"][0] < complete["y"][1] - complete["y"][0]
    # Shift and drag moves it.
    page.keyboard.down("Shift")
    page.mouse.move(left + 200, top)
    page.mouse.down()
    page.mouse.move(left + 100, top, steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert view(board)["x"][0] > near["x"][0]
    # The segment under the pointer is named.
    name, x, low, y = page.evaluate(
        """() => { const one = Figures.chart.figure.series.find((s) => s.name === "data");
        const [from, to] = Figures.chart.view.x;
        const i = one.x.findIndex((x) => x > (from + to) / 2); return [one.name, one.x[i], one.low[i], one.y[i]]; }"""
    )
    page.mouse.move(*place(page, x, (low + y) / 2))
    readout = page.locator(".readout")
    expect(readout).to_contain_text(name)
    expect(readout).to_contain_text("sequence number (kB)")
    board.locator(".u-over").dblclick()
    assert view(board) == complete
    # The wheel keeps what is under the pointer there.
    page.mouse.move(*place(page, 6, complete["y"][1] / 2))
    page.mouse.wheel(0, -100)
    page.wait_for_function("Figures.chart.view.x[0] > 0")
    low_x, high_x = view(board)["x"]
    assert (6 - low_x) / (high_x - low_x) == pytest.approx(6 / 8, abs=0.02)
    board.press("0")
    assert view(board) == complete
    board.press("+")
    assert view(board)["x"] == [2, 6]


def test_a_name_hides_its_series(page: Page, simulated: Simulated, tmp_path: Path) -> None:
    board = opened(page, simulated, tmp_path, "outstanding", simulated.run_id(1))
    canvas = board.locator(".u-wrap canvas")
    shot = canvas.screenshot()
    button = page.get_by_role("button", name="forward")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert canvas.screenshot() != shot
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    # The ring around a name that has the focus touches the canvas.
    page.evaluate("document.activeElement.blur()")
    assert canvas.screenshot() == shot


def test_bars_tell_their_point_and_their_errors(page: Page, simulated: Simulated, tmp_path: Path) -> None:
    board = opened(page, simulated, tmp_path, "bars", "sweep")
    bars: dict[str, Any] = page.evaluate("Figures.chart.figure.series.find((s) => s.kind === 'bars')")
    page.mouse.move(*place(page, bars["x"][2], bars["y"][2] / 2))
    readout = page.locator(".readout")
    expect(readout).to_contain_text(bars["name"])
    expect(readout).to_contain_text("128 kbit/s")
    expect(readout).to_contain_text("2 runs")
    assert view(board)["y"][0] == 0
    expect(page.locator("body")).to_contain_text("means of 2 runs")
