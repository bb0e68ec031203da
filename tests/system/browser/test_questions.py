"""Questions that a visitor has, each answered in a real browser on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from analysis.store import Store
from tests.conftest import backchannel
from tests.screenshots import settle
from tests.support.simulated import Simulated, ran
from tests.support.site import COUNTED, captured, on_both
from tests.system.browser.test_accessibility import path_of
from tests.system.browser.test_browser import brightness, drawn

pytestmark = [pytest.mark.slow("one page in a browser"), pytest.mark.browser, on_both]


def test_what_did_a_run_with_counters_do(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    counted = ran(tmp_path, "counted.yaml", COUNTED)
    page.goto(f"{serve(counted.results)}/runs/{counted.run_id()}")
    for kind in ("throughput", "cwnd", "queue"):
        plot = drawn(page, kind)
        expect(plot.locator(".u-wrap canvas")).to_be_visible()
        assert page.evaluate(
            "(kind) => plots.find((one) => one.holder.dataset.kind === kind).chart.data[1].some((y) => y > 0)", kind
        )
    expect(page.locator("#plots")).not_to_contain_text("Nothing happened")


@pytest.mark.parametrize("kind", ["home", "campaigns", "campaign", "explorer", "compare", "scorecard", "docs", "guide"])
def test_what_does_a_page_print(page: Page, address: str, simulated: Simulated, kind: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(address + path_of(kind, simulated))
    settle(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 703, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert brightness(page) == 255
    assert brightness(page, "document.querySelector('h1, h2')", "color") < 50
    expect(page.locator("header")).to_be_hidden()
    for board in page.locator(".board:visible").all():
        box = board.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 703


def test_no_column_of_the_runs_is_cut_off(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}{simulated.address}/explore")
    table = page.locator("table.sorts")
    beyond = table.evaluate("(one) => one.closest('.scroll').scrollWidth - one.closest('.scroll').clientWidth")
    assert beyond == 0
    expect(table.locator("tr[data-run]").first.locator("[data-title=Landed]")).to_be_visible()


def test_can_the_height_of_every_plot_be_read(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    plots = page.locator(".timeline > .plot")
    for number in range(plots.count()):
        plot = plots.nth(number)
        plot.scroll_into_view_if_needed()
        expect(plot).to_have_attribute("data-drawn", "true")
    ticks = page.evaluate("plots.filter((one) => one.chart).map((one) => one.chart.axes[1]._values)")
    assert len(ticks) >= 6
    assert all(len([text for text in of_plot if text]) >= 2 for of_plot in ticks), ticks


@pytest.mark.parametrize("kind", ["imported", "scorecard"])
def test_any_cut_off(page: Page, serve: Callable[[Path], str], simulated: Simulated, tmp_path: Path, kind: str) -> None:
    capture = captured(simulated.results, tmp_path / "evening.pcap")
    backchannel("import", capture, "--results", tmp_path / "results", status=0)
    store = Store.open(tmp_path / "results")
    run = store.newest(1)[0].id
    page.goto(f"{serve(tmp_path / 'results')}{'/scorecard' if kind == 'scorecard' else f'/runs/{run}'}")
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
    tables = page.locator(".scroll:has(table):visible")
    beyond = tables.evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert beyond
    assert not any(beyond), beyond
