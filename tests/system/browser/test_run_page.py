"""The page of a run explains its losses, on a desktop and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.simulated import Simulated, ran
from tests.system.browser.test_browser import LOSSY, drawn

pytestmark = [pytest.mark.slow("one page in a browser"), pytest.mark.browser]


@pytest.fixture(params=[1280, 390])
def page(page: Page, request: pytest.FixtureRequest) -> Page:
    """A desktop's page and a phone's."""
    page.set_viewport_size({"width": request.param, "height": 900})
    return page


#: Pixels of a colour of the theme on a straight line between two points of a plot, in units of its axes.
INKED = """([colour, from, to]) => {
  const u = plots[0].chart, ratio = devicePixelRatio;
  u.ctx.save(); u.ctx.fillStyle = Figures.color(colour); const wanted = u.ctx.fillStyle; u.ctx.restore();
  const [left, right] = [from, to].map(([x]) => u.valToPos(x, "x", true));
  const top = Math.round(u.valToPos(from[1], "y", true));
  const image = u.ctx.getImageData(Math.round(left), top - 2, Math.round(right - left), 5).data;
  let count = 0;
  for (let at = 0; at < image.length; at += 4) {
    const hex = "#" + [...image.slice(at, at + 3)].map((c) => c.toString(16).padStart(2, "0")).join("");
    count += hex === wanted;
  }
  return count; }"""


def click_at(page: Page, plot: Locator, x: float, y: float) -> None:
    left, top = page.evaluate(
        "([x, y]) => { const u = plots[0].chart; return [u.valToPos(x, 'x'), u.valToPos(y, 'y')]; }", [x, y]
    )
    plot.locator(".u-over").click(position={"x": left, "y": top})


def fates(page: Page, base: str, run: str) -> list[dict[str, Any]]:
    """Data segments of the flow "forward" that were lost and retransmitted, with their fates, in order."""
    found = page.request.get(f"{base}/api/runs/{run}/segments?flow=forward&from=0&to=3").json()["segments"]
    result = []
    for one in found:
        if one["direction"] != "data" or not one["payload"]:
            continue
        asked = f"flow=forward&seq={one['seq']}&payload={one['payload']}&at={one['time_s']}"
        fate = page.request.get(f"{base}/api/runs/{run}/fate?{asked}").json()
        if fate["lost"] and fate["again_s"]:
            result.append({**one, **fate})
        if result:
            break
    return result


def test_a_lost_segment_is_clicked_and_its_line_leads_to_the_retransmission(
    page: Page, serve: Callable[..., str], dropping: Simulated
) -> None:
    base, run = serve(dropping.results), dropping.run_id()
    lost = fates(page, base, run)[0]
    low, high = lost["time_s"] - 0.05, lost["again_s"] + 0.05
    page.goto(f"{base}/runs/{run}?flow=forward&from={low}&to={high}")
    plot = drawn(page, "sequence")
    y = lost["end"] / 1e3
    ends = [[lost["lost"]["t_s"] + 0.02, y], [lost["again_s"] - 0.02, y]]
    click_at(page, plot, lost["time_s"], y)
    fate = page.get_by_role("region", name="Segment").locator(".fate")
    expect(fate).to_have_text(
        re.compile(
            r"^Dropped at bottleneck forward, [\d.]+ s, queue 12 of 12 packets; retransmitted at "
            rf"{lost['again_s']:.3f} s after \d+ duplicate acks\.$"
        )
    )
    plot.scroll_into_view_if_needed()
    # A dashed line a pixel and a half wide, of which a little more than half is ink.
    pixels = page.evaluate("([a, b]) => plots[0].chart.valToPos(b, 'x') - plots[0].chart.valToPos(a, 'x')",
                           [ends[0][0], ends[1][0]])  # fmt: skip
    assert page.evaluate(INKED, ["mark", *ends]) > 0.3 * pixels
    expect(page).to_have_url(re.compile("segment="))


def test_timeouts_are_reached_by_key_in_both_ways(page: Page, serve: Callable[..., str], tmp_path: Path) -> None:
    lossy = ran(tmp_path, "lossy.yaml", LOSSY)
    address, run = serve(lossy.results), lossy.run_id()
    page.goto(f"{address}/runs/{run}?flow=forward")
    drawn(page, "sequence")
    figure = page.request.get(f"{address}/api/runs/{run}/sequence?flow=forward&from=0&to=20").json()
    times = next(line["x"] for line in figure["series"] if line["name"] == "timeout retransmission")
    assert len(times) >= 2
    panel = page.get_by_role("region", name="Segment")
    page.locator("h1").click()
    page.keyboard.press("t")
    expect(panel).to_contain_text("retransmission")
    at = re.compile(r"^Time ?\s*([\d.]+) s")
    first = float(at.match(panel.locator("dl").inner_text())[1])  # type: ignore[index]
    assert first == pytest.approx(times[0], abs=2e-6)
    low, high = page.evaluate("view")
    assert low < first < high
    # The one before the first is the last.
    page.keyboard.press("Shift+T")
    expect(panel.locator("dl")).not_to_contain_text(f"{first:.6f}")
    last = float(at.match(panel.locator("dl").inner_text())[1])  # type: ignore[index]
    assert last == pytest.approx(times[-1], abs=2e-6)


def test_controls_stay_in_sight_and_the_animation_zooms(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    drawn(page, "sequence")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(re.compile(r"from=2\.0"))
    expect(page.locator("#strip-from")).to_have_value("2.000")
    page.get_by_role("button", name="Later").click()
    expect(page.locator("#strip-from")).to_have_value("3.000")
    if page.viewport_size["width"] > 900:  # type: ignore[index]
        # A phone's plots stand below each other; there the controls would cover them.
        page.locator(".timeline > .plot").last.scroll_into_view_if_needed()
        page.evaluate("scrollBy(0, 200)")
        expect(page.get_by_role("button", name="Zoom in")).to_be_in_viewport()


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_without_scripts_are_pictures(
    new_page: Callable[..., Page], address: str, simulated: Simulated, width: int
) -> None:
    page = new_page(java_script_enabled=False, viewport={"width": width, "height": 900})
    page.goto(f"{address}/runs/{simulated.run_id()}")
    images = page.locator(".timeline .plot img")
    assert images.count() >= 5
    for number in range(images.count()):
        image = images.nth(number)
        image.scroll_into_view_if_needed()
        expect(image).to_be_visible()
        assert re.search(r"/plots?/[a-z]+\.svg", str(image.get_attribute("src")))
        answer = page.request.get(address + str(image.get_attribute("src")))
        assert answer.headers["content-type"].startswith("image/svg+xml")
        assert "<svg" in answer.text()
        box = image.bounding_box()
        assert box is not None
        assert box["height"] > 60
        assert box["x"] + box["width"] <= width


def test_packets_and_plot_select_each_other(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id()}?flow=reverse")
    drawn(page, "sequence")
    packets = page.locator("#packets")
    # It opens by itself where there is room beside the plots.
    packets.evaluate("(panel) => { panel.open = true; }")
    rows = packets.locator("tbody tr")
    expect(rows.first).to_be_visible()
    rows.nth(3).click()
    expect(rows.nth(3)).to_have_attribute("aria-current", "true")
    shown = page.get_by_role("region", name="Segment")
    expect(shown).to_contain_text(rows.nth(3).locator("button").inner_text())
    page.get_by_role("button", name="Next", exact=True).click()
    expect(rows.nth(4)).to_have_attribute("aria-current", "true")
    packets.get_by_label("Filter").fill("retransmission data")
    expect(rows.filter(has_not_text="retransmission")).to_have_count(0)
    expect(rows.first).to_contain_text("retransmission")


def height(plot: Locator) -> float:
    box = plot.locator(".u-over").bounding_box()
    assert box is not None
    return box["height"]


def test_hovering_moves_nothing_and_a_lane_is_resized(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    for each in page.locator(".timeline > .plot").all():
        each.scroll_into_view_if_needed()
        expect(each).to_have_attribute("data-drawn", "true")
    plot = drawn(page, "cwnd")
    plot.scroll_into_view_if_needed()
    # The list of packets comes after the plots.
    page.wait_for_load_state("networkidle")
    tall = height(plot)
    assert tall > 60
    before = page.evaluate("document.documentElement.scrollHeight")
    plot.locator(".u-over").hover(position={"x": 100, "y": 20})
    expect(plot.locator(".readout")).to_contain_text("segments")
    assert page.evaluate("document.documentElement.scrollHeight") == before
    plot.get_by_role("separator").press("ArrowDown")
    assert height(plot) == pytest.approx(tall + 20, abs=2)
    page.reload()
    again = drawn(page, "cwnd")
    assert height(again) == pytest.approx(tall + 20, abs=2)
