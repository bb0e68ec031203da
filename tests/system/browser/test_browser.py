"""The site in a real browser, driven as a person would. Any message of the console fails a test (conftest.page)."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from analysis.store import Store
from tests.conftest import backchannel
from tests.screenshots import settle
from tests.sim.web.test_pages import campaign, commit
from tests.sim.web.test_requests import TINY
from tests.support.simulated import Simulated
from tests.support.site import captured, desktop_first, phone_first
from tests.support.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.browser


def drawn(page: Page, kind: str) -> Locator:
    plot = page.locator(f'.plot[data-kind="{kind}"]').first
    plot.scroll_into_view_if_needed()
    expect(plot).to_have_attribute("data-drawn", "true")
    return plot


def drag(page: Page, plot: Locator, start: float, end: float) -> None:
    over = plot.locator(".u-over").bounding_box()
    assert over is not None
    y = over["y"] + over["height"] / 2
    page.mouse.move(over["x"] + over["width"] * start, y)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] * end, y, steps=5)
    page.mouse.up()


def test_plots_are_drawn_zoom_together_and_come_back(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    plot = drawn(page, "sequence")
    ink = plot.locator(".u-wrap canvas").evaluate(
        """(c) => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"""
    )
    assert ink > 2000
    assert page.evaluate("view") == [0, 8]
    drawn(page, "throughput")
    plot.scroll_into_view_if_needed()
    drag(page, plot, 0.25, 0.5)
    low, high = page.evaluate("view")
    assert low == pytest.approx(2, abs=0.05)
    assert high == pytest.approx(4, abs=0.05)
    ranges = page.evaluate(
        "plots.filter((p) => p.chart).map((p) => [p.chart.scales.x.min, p.chart.scales.x.max].join())"
    )
    assert len(ranges) >= 2
    assert len(set(ranges)) == 1
    # The address keeps what is in view.
    page.wait_for_url(re.compile(r"from=\d.*to=\d"))
    page.reload()
    drawn(page, "sequence")
    assert page.evaluate("view") == pytest.approx([low, high], abs=1e-5)
    page.locator('[data-zoom="all"]').click()
    page.wait_for_url(lambda url: "from=" not in url)
    assert page.evaluate("view") == [0, 8]


def test_the_uppermost_plot_is_asked_for_with_the_page_and_once(page: Page, address: str, simulated: Simulated) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/sequence?" in request.url else None)
    for period in ("", "&from=2&to=6", "&from=0.5&to=nonsense"):
        asked.clear()
        page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward{period}")
        drawn(page, "sequence")
        # Before any script: the browser itself asked, as the page's head told it to.
        first = page.evaluate(
            """() => { const all = performance.getEntriesByType("resource");
            const of = (part) => all.find((one) => one.name.includes(part));
            return [of("/sequence?").initiatorType, of("/sequence?").startTime <= of("plots.js").responseEnd]; }"""
        )
        assert first == ["link", True]
        settle(page)
        assert len(asked) == 1, period


@desktop_first
def test_cursors_are_linked(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    first = drawn(page, "sequence")
    drawn(page, "throughput")
    first.scroll_into_view_if_needed()
    first.locator(".u-over").hover(position={"x": 150, "y": 100})
    here = page.evaluate("plots[0].chart.cursor.left")
    assert page.evaluate("plots[1].chart.cursor.left") == pytest.approx(here, abs=3)
    # The value at that time stands in the plot, with its unit, and nothing moves.
    expect(page.locator('.plot[data-kind="throughput"] .readout').first).to_contain_text(
        re.compile(r"forward: [\d.]+ kbit/s")
    )
    expect(first.locator(".readout")).to_contain_text(re.compile(r"^[\d.]+ s"))


@phone_first
def test_one_zooms_to_a_retransmission_and_reads_its_fields(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id()}?flow=reverse")
    drawn(page, "sequence")
    page.get_by_role("button", name="Next retransmission").click()
    panel = page.get_by_role("region", name="Segment")
    expect(panel).to_contain_text("retransmission")
    expect(panel).to_contain_text("ACK")
    low, high = page.evaluate("view")
    assert high - low == pytest.approx(0.5, abs=0.01)
    before = panel.locator("dl").inner_text()
    panel.get_by_role("button", name="Previous").click()
    expect(panel.locator("dl")).not_to_have_text(before, use_inner_text=True)
    # The keys do the same.
    page.locator("h1").click()
    page.keyboard.press("Shift+ArrowRight")
    expect(panel.locator("dl")).to_have_text(before, use_inner_text=True)


@desktop_first
def test_a_loss_is_explained_and_in_the_address(page: Page, serve: Callable[[Path], str], dropping: Simulated) -> None:
    page.goto(f"{serve(dropping.results)}/runs/{dropping.run_id()}")
    drawn(page, "sequence")
    panel = page.get_by_role("region", name="Segment")
    page.get_by_role("button", name="Next loss").click()
    expect(panel.locator(".fate")).to_contain_text("Dropped at bottleneck forward")
    expect(panel.locator(".fate")).to_contain_text("queue 12 of 12 packets; retransmitted at")
    if page.viewport_size["width"] > 900:  # type: ignore[index]
        expect(page.locator(".timeline > .plot").first.locator(".u-over")).to_be_in_viewport()
    first = panel.locator("dl").inner_text()
    # By key to the next two, and back by two quick presses.
    page.locator("h1").click()
    for _ in range(2):
        before = panel.locator("dl").inner_text()
        page.keyboard.press("l")
        expect(panel.locator("dl")).not_to_have_text(before, use_inner_text=True)
    for _ in range(2):
        page.keyboard.press("Shift+L")
    expect(panel.locator("dl")).to_have_text(first, use_inner_text=True)
    page.reload()
    expect(panel.locator("dl")).to_have_text(first, use_inner_text=True)
    expect(panel.locator(".fate")).to_contain_text("Dropped at bottleneck forward")


def test_a_seek_that_fails_is_told_beside_the_controls(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward")
    drawn(page, "sequence")
    page.evaluate("() => { window.fetch = async () => { throw new Error('cut'); }; }")
    for key in ("l", "t", "i", "Shift+ArrowRight"):
        page.evaluate("() => { document.getElementById('range').textContent = ''; }")
        page.locator("h1").click()
        page.keyboard.press(key)
        expect(page.locator("#range")).to_have_text("The site does not answer; is it still running?")


@phone_first
def test_the_legend_has_the_shape_of_each_series(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id()}?flow=reverse")
    plot = drawn(page, "sequence")
    samples = plot.locator(".u-series:visible .u-sample")
    names = plot.locator(".u-series:visible .u-label").all_inner_texts()
    # A line and a segment of equal colour differ; without a cursor, no name waits for a value.
    shapes = samples.evaluate_all("(all) => all.map((c) => c.toDataURL())")
    assert len(shapes) == len(set(shapes)) == len(names) >= 3
    assert all(name and ":" not in name for name in plot.locator(".u-legend").inner_text().split())
    inks = plot.locator(".u-label").evaluate_all("(all) => all.map((one) => getComputedStyle(one).color)")
    assert len(set(inks)) == 1
    before = plot.evaluate("(one) => one.offsetHeight")
    plot.locator(".u-over").hover(position={"x": 150, "y": 100})
    expect(plot.locator(".readout")).to_contain_text(re.compile(r"[\d.]+ s"))
    # Values stand beside the pointer, so nothing below moves.
    assert plot.evaluate("(one) => one.offsetHeight") == before


#: Draws bars on a board of some width beside what is on the page; gives the texts that were written, the height of the
#: chart, and of each bar the share of pixels inside it that are not paper.
BARS = """async ([names, hollow, width]) => {
  const written = [], { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    written.push(text);
    return fillText.call(this, text, ...rest);
  };
  const board = document.createElement("div");
  board.style.width = `${width}px`;
  document.getElementById("main").replaceChildren(board);
  const axis = { label: "metric (s)", unit: "s", log: false, range: null, zero: true, ticks: null };
  const series = names.map((name, at) => ({ name, kind: "bars", colour: "s1", marker: "", size: 0, dash: [],
    hollow: hollow.includes(at), fits: true, width: 0.8, x: [at], y: [10] }));
  const x = { ...axis, label: "name", unit: "", ticks: names.map((name, at) => [at, name]) };
  const chart = Figures.draw(board, { x, y: axis, series, notes: [], verticals: [], description: "bars" });
  await new Promise((done) => setTimeout(done, 50));
  const { ctx } = chart.plot, at = (value, key) => Math.round(chart.plot.valToPos(value, key, true));
  ctx.fillStyle = Figures.color("raised");
  const paper = ctx.fillStyle, wide = ctx.canvas.width;
  const { data } = ctx.getImageData(0, 0, wide, ctx.canvas.height);
  const hex = (i) => "#" + [...data.slice(i, i + 3)].map((c) => c.toString(16).padStart(2, "0")).join("");
  const shares = names.map((_, bar) => {
    let [inked, all] = [0, 0];
    for (let left = at(bar - 0.3, "x"); left < at(bar + 0.3, "x"); left++) {
      for (let top = at(9, "y"); top < at(1, "y"); top++, all++) inked += hex(4 * (top * wide + left)) !== paper;
    }
    return inked / all;
  });
  CanvasRenderingContext2D.prototype.fillText = fillText;
  return [written, chart.plot.height, shares];
}"""


@pytest.fixture
def bars(page: Page, address: str) -> Callable[..., tuple[list[str], float, list[float]]]:
    """Draws bars on a page that has the scripts of figures and nothing that is drawn."""
    page.goto(f"{address}/compare")
    return lambda *arguments: page.evaluate(BARS, [*arguments])


def test_bars_after_the_last_colour_are_hatched(bars: Callable[..., tuple[list[str], float, list[float]]]) -> None:
    _, _, (plain, hatched) = bars(["plain", "hatched"], [1], 600)
    assert plain == 1
    # Lines a pixel and a half wide, six pixels apart, on paper.
    assert 0.1 < hatched < 0.9


def test_names_below_bars_are_whole(bars: Callable[..., tuple[list[str], float, list[float]]]) -> None:
    two = ["ack-filtering", "ack-filtering-acks-first"]
    written, height, _ = bars(two, [], 1200)
    assert set(two) <= set(written)
    assert height == 380
    # In lines, where there is room for lines.
    many = [f"ack filtering and acks first, {number} kbit/s" for number in range(100, 1500, 100)]
    written, height, _ = bars(many, [], 1200)
    text = " ".join(written)
    assert all(name in text for name in many)
    assert not set(many) & set(written)
    assert height == 380
    # Upright on a phone, where the figure grows.
    written, height, _ = bars(many, [], 350)
    assert set(many) <= set(written)
    assert height > 500
    # A word that is wider than its bar is broken.
    written, _, _ = bars(["x" * 100, "y"], [], 700)
    assert "x" * 100 in "".join(written)


def test_the_receivers_side_is_seen_with_the_same_flow_and_zoom(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=reverse&from=2&to=6")
    sent = drawn(page, "sequence")
    expect(sent).to_contain_text("at the sender")
    page.get_by_label("Captured at").select_option("receiver")
    page.wait_for_url(re.compile(r"side=receiver"))
    plot = drawn(page, "received")
    expect(plot).to_contain_text("at the receiver")
    assert page.evaluate("view") == [2, 6]
    assert "flow=reverse" in page.url
    first = page.evaluate("segments(view[0], view[1]).then((found) => found.segments[0])")
    at_sender = page.request.get(f"{address}/api/runs/{simulated.run_id(1)}/segments?flow=reverse&from=2&to=6").json()
    # The same segment is seen there later, by the way it took.
    twin = next(
        entry for entry in at_sender["segments"] if (entry["seq"], entry["end"]) == (first["seq"], first["end"])
    )
    assert (first["time_s"] > twin["time_s"]) == (first["direction"] == "data")


def test_compared_plots_are_taken_along_as_they_are_seen(page: Page, address: str, simulated: Simulated) -> None:
    campaign = simulated.campaign["campaign"]
    page.goto(f"{address}/compare?point={campaign}:0&point={campaign}:1&from=2&to=6")
    drawn(page, "sequence")
    page.locator('[data-zoom="in"]').click()
    page.wait_for_url(re.compile(r"from=3\.0+&to=5\.0+"))
    plot = drawn(page, "throughput")
    with page.expect_download() as caught:
        plot.get_by_role("link", name="CSV").click()
    rows = [line.split(",") for line in caught.value.path().read_text().splitlines()[1:]]
    times = [float(row[-2]) for row in rows]
    assert len(times) > 20
    assert sum(not 3 <= t <= 5 for t in times) <= 4, "but for the points that lead to the edges"
    with page.expect_download() as caught:
        page.locator("figure.wide").get_by_role("link", name="PDF").click()
    assert caught.value.path().read_bytes().startswith(b"%PDF-")


def test_a_click_on_a_segment_shows_it(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward&from=1&to=1.4")
    plot = drawn(page, "sequence")
    x, y, seq = page.evaluate(
        """async () => { const found = await segments(view[0], view[1]);
        const one = found.segments.filter((s) => s.direction === "data")[5];
        const u = plots[0].chart; return [u.valToPos(one.time_s, "x"), u.valToPos(one.end / 1e3, "y"), one.seq]; }"""
    )
    plot.locator(".u-over").click(position={"x": x, "y": y})
    expect(page.get_by_role("region", name="Segment")).to_contain_text(f"{seq} to")


@phone_first
def test_what_is_typed_is_found_at_once(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/docs")
    page.keyboard.press("/")
    found = page.get_by_role("region", name="Found")
    page.keyboard.insert_text(simulated.run_id()[:7])
    run = found.get_by_role("link", name=f"Run {simulated.run_id()[:8]}")
    expect(run).to_be_visible()
    box = found.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.evaluate("innerWidth")
    page.keyboard.press("ArrowDown")
    expect(run).to_be_focused()
    page.keyboard.press("Escape")
    expect(found).to_be_hidden()
    page.locator("#everything").fill("rates")
    found.get_by_role("link", name="A sweep of rates").click()
    page.wait_for_url("**/campaigns/*")


def test_it_is_used_with_the_keyboard(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/campaigns")
    page.keyboard.press("/")
    page.keyboard.type("rates")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=rates")
    page.get_by_role("link", name="A sweep of rates").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/campaigns/*")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    # A figure that has the focus.
    figure = page.locator("#live-figure .board")
    figure.focus()
    expect(figure).to_have_attribute("data-view", re.compile("x"))
    whole = figure.get_attribute("data-view") or ""
    page.keyboard.press("+")
    expect(figure).not_to_have_attribute("data-view", whole)
    page.keyboard.press("0")
    expect(figure).to_have_attribute("data-view", whole)
    page.goto(f"{address}/runs/{simulated.run_id()}")
    drawn(page, "sequence")
    page.locator("h1").click()
    page.keyboard.press("+")
    assert page.evaluate("view") == [2, 6]
    page.keyboard.press("ArrowRight")
    assert page.evaluate("view") == [3, 7]
    page.keyboard.press("0")
    assert page.evaluate("view") == [0, 8]


def test_it_is_used_with_a_finger_on_a_phone(new_page: Callable[..., Page], address: str, simulated: Simulated) -> None:
    page = new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward")
    plot = drawn(page, "sequence")
    for name, view in (("Zoom in", [2, 6]), ("Later", [3, 7]), ("Zoom in", [4, 6]), ("Earlier", [3.5, 5.5])):
        page.get_by_role("button", name=name, exact=True).tap()
        # The browser makes a click of a touch some time after the touch.
        wait_until(lambda: page.evaluate("view") == view, name)  # noqa: B023 (called at once)
    expect(plot).to_have_attribute("data-shown", "3.5 5.5")
    expect(page).to_have_url(re.compile(r"from=3\.5"))
    x, y, seq = page.evaluate(
        """async () => { const found = await segments(5, 5.2);
        const one = found.segments.find((s) => s.direction === "data");
        const u = plots[0].chart; return [u.valToPos(one.time_s, "x"), u.valToPos(one.end / 1e3, "y"), one.seq]; }"""
    )
    assert seq > 0
    plot.locator(".u-over").tap(position={"x": x, "y": y})
    expect(page.get_by_role("region", name="Segment")).to_contain_text("Data segment")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_digest_in_a_sentence_breaks_on_a_phone(
    new_page: Callable[..., Page], address: str, simulated: Simulated
) -> None:
    page = new_page(viewport={"width": 390, "height": 800})
    page.goto(f"{address}/runs/{simulated.run_id()}")
    note = page.locator("p.note", has_text="Virtual time is exact")
    note.evaluate("(one) => { one.textContent += '0123456789abcdef'.repeat(4) }")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_tables_are_cards_on_a_phone(new_page: Callable[..., Page], address: str, simulated: Simulated) -> None:
    """Every number stands with its name, and nothing lies beside the screen."""
    page = new_page(viewport={"width": 390, "height": 800})
    points = [f"point={simulated.campaign['campaign']}:{number}" for number in range(2)]
    tables = 0
    for path in (
        "/campaigns", simulated.address, f"{simulated.address}/explore", f"/runs/{simulated.run_id()}",
        f"/compare?{'&'.join(points)}",
    ):  # fmt: skip
        page.goto(address + path)
        result = page.evaluate(
            """() => [...document.querySelectorAll("table.cards")].map((table) => [
              table.closest(".scroll").scrollWidth - table.closest(".scroll").clientWidth,
              [...table.querySelectorAll("td.number:not([data-title])")].length,
              [...table.querySelectorAll("td")].filter((one) => one.offsetWidth > 390).length])"""
        )
        assert result, path
        assert all(entry == [0, 0, 0] for entry in result), (path, result)
        tables += len(result)
    assert tables >= 6


def test_a_card_has_its_number_interval_and_verdict(
    new_page: Callable[..., Page], address: str, simulated: Simulated
) -> None:
    page = new_page(viewport={"width": 390, "height": 800})
    page.goto(address + simulated.address)
    cells = page.locator("table.results tr:has([data-head]) td[data-title='Throughput']")
    points = simulated.campaign["points"]
    assert cells.count() == len(points) > 2
    means = [
        next(row["mean"] for row in point["metrics"] if (row["name"], row["subject"]) == ("throughput", "forward"))
        for point in points
    ]
    best, top = means.index(max(means)), max(means)
    for number, mean in enumerate(means):
        cell = cells.nth(number)
        expect(cell).to_contain_text("bit/s")
        expect(cell.locator(".bar")).to_be_visible()
        # The line of 10 Mbit/s is the flow's alone.
        word = "starves" if mean < 1e6 else "best" if number == best else ""
        assert cell.locator(".word").all_inner_texts() == ([word] if word else [])
    # The dots are as far apart as the means.
    at = [float(dot.get_attribute("cx") or "") for dot in page.locator("tr:has([data-head]) .bar circle").all()]
    assert [x / at[best] for x in at] == pytest.approx([mean / top for mean in means], abs=0.02)


def test_a_comparison_draws_each_interval(page: Page, address: str, simulated: Simulated) -> None:
    points = [f"point={simulated.campaign['campaign']}:{number}" for number in range(2)]
    page.goto(f"{address}/compare?{'&'.join(points)}")
    # The farthest end of a row is the edge of its scale, 58 units from "no difference".
    drawn = page.evaluate(
        """() => [...document.querySelectorAll(".bar")].map((bar) => [bar.ariaLabel, ...["x1", "x2"].map(
          (end) => Number(bar.querySelector("line:not(.none)")?.getAttribute(end) ?? NaN)),
          Number(bar.querySelector("circle").getAttribute("cx"))])"""
    )
    assert drawn
    for label, low, high, value in drawn:
        if label == "no interval":
            assert abs(value) == 58
        else:
            assert low <= value <= high
            assert max(-low, high) == 58
            assert (low <= 0 <= high) == ("spans" in label)


def test_two_policies_are_compared(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    page.get_by_label("Compare policy=droptail, rate=28.8 kbit/s").check()
    page.get_by_label("Compare policy=acks-first, rate=28.8 kbit/s").check()
    page.get_by_role("button", name="Compare the chosen combinations").click()
    page.wait_for_url("**/compare?*")
    expect(page.locator(".chips")).to_contain_text("policy=acks-first")
    # The policies differ by far more than their repetitions do.
    row = page.get_by_role("row").filter(has_text="Throughput").filter(has_text="forward").first
    expect(row.locator(".clear")).to_contain_text("±")
    plot = drawn(page, "sequence")
    expect(plot.locator(".u-legend")).to_contain_text("policy=droptail")
    page.get_by_role("link", name="Remove policy=droptail, rate=28.8 kbit/s").click()
    expect(page.locator(".chips li")).to_have_count(1)


def test_the_figure_follows_its_controls(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    figure = page.locator("#live-figure .board")
    expect(figure).to_have_attribute("aria-label", re.compile("^Throughput, forward by reverse.rate"))
    page.get_by_label("Metric").select_option("goodput/reverse")
    page.wait_for_url("**metric=goodput*")
    expect(figure).to_have_attribute("aria-label", re.compile("^Goodput, reverse"))
    page.get_by_label("Along").select_option("network.reverse.queue.policy")
    page.wait_for_url("**x=network.reverse.queue.policy*")
    with page.expect_download() as download:
        page.locator("#live-figure").get_by_role("link", name="PDF").click()
    assert Path(download.value.path()).read_bytes().startswith(b"%PDF-")


def test_the_chip_of_an_invalid_run_is_red_on_it(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    campaign(store)
    address = serve(tmp_path / "results")
    shown = []
    for run_id in (commit(store, tmp_path, 0), commit(store, tmp_path, 1, problems=["late"])):
        page.goto(f"{address}/runs/{run_id}")
        chip = page.locator(".member[aria-current]")
        shown.append(chip.evaluate("(e) => getComputedStyle(e).backgroundColor"))
    # Green, and red.
    (_, *valid), (_, *invalid) = (re.split(r"\D+", colour) for colour in shown)
    assert int(valid[0]) < int(valid[1])
    assert int(invalid[0]) > 2 * int(invalid[1])


@phone_first
def test_a_dot_of_the_trade_off_opens_its_run(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    figure = page.locator("#live-tradeoff")
    expect(figure.locator(".u-wrap canvas")).to_be_visible()
    figure.scroll_into_view_if_needed()
    text = figure.locator("script").text_content()
    dots = next(load for load in json.loads(text or "")["series"] if load.get("run"))
    view = json.loads(figure.locator(".board").get_attribute("data-view") or "")
    over = figure.locator(".u-over").bounding_box()
    assert over is not None
    share = [(dots[key][0] - view[key][0]) / (view[key][1] - view[key][0]) for key in ("x", "y")]
    page.mouse.click(over["x"] + share[0] * over["width"], over["y"] + (1 - share[1]) * over["height"])
    page.wait_for_url(re.compile("/runs/"))
    assert page.url.rpartition("/")[2] in dots["run"]


def test_all_plots_of_a_run_are_tall_and_have_one_time_axis(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    plots = page.locator(".timeline > .plot")
    for number in range(plots.count()):
        # Plots are drawn as they come into view.
        plots.nth(number).scroll_into_view_if_needed()
        expect(plots.nth(number)).to_have_attribute("data-drawn", "true")
    assert plots.count() >= 6
    boxes = [plots.nth(number).locator(".u-over").bounding_box() for number in range(plots.count())]
    assert all(box is not None and box["height"] >= 100 for box in boxes)
    assert len({(round(box["x"]), round(box["width"])) for box in boxes if box}) == 1, "one time axis"
    # The names of the series cover neither the plot nor its title, though one has more of them than there is room for.
    covered = page.evaluate(
        """() => [...document.querySelectorAll(".timeline > .plot")].map((plot) => {
          const title = document.createRange();
          title.selectNode(plot.querySelector("figcaption").firstChild);
          const over = plot.querySelector(".u-over").getBoundingClientRect(), head = title.getBoundingClientRect();
          return [...plot.querySelectorAll(".u-series:not([hidden])")].some((row) => {
            const { top, bottom, left } = row.getBoundingClientRect();
            return (bottom > over.top && top < over.bottom) || (top < head.bottom && left < head.right);
          }); })"""
    )
    assert covered == [False] * plots.count()
    # Both hosts, beside the same other plots.
    page.get_by_label("Captured at").select_option("both")
    page.wait_for_url(re.compile("side=both"))
    drawn(page, "sequence")
    drawn(page, "received")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(re.compile(r"from=2\.0"))
    shown = page.evaluate("plots.slice(0, 2).map((p) => [p.chart.scales.x.min, p.chart.scales.x.max])")
    assert shown == [[2, 6], [2, 6]]
    # The packets on the line are those of the part in view.
    expect(page.locator("#strip-from")).to_have_value("2.000")
    expect(page.locator("#strip-span")).to_have_value("5")


@desktop_first
def test_one_goes_to_pauses_of_the_sender_by_key(page: Page, address: str, simulated: Simulated) -> None:
    # The slowest return line, whose sender waits for timeouts.
    run = simulated.run_id(0)
    page.goto(f"{address}/runs/{run}?flow=forward")
    drawn(page, "sequence")
    result = page.request.get(f"{address}/api/runs/{run}/idle?flow=forward").json()
    periods = result["periods"]
    assert periods
    metrics = {
        (entry["name"], entry["subject"]): entry["value"]
        for entry in page.request.get(f"{address}/api/runs/{run}").json()["metrics"]
    }
    assert max(end - start for start, end in periods) == pytest.approx(metrics["idle_longest", "forward"])
    page.locator("h1").click()
    page.keyboard.press("i")
    start, end = periods[0]
    expect(page.locator("#range")).to_contain_text(f"no data sent for {end - start:.3f} s")
    low, high = page.evaluate("view")
    assert low <= start < end <= high
    page.keyboard.press("Shift+I")
    start, end = periods[-1]
    expect(page.locator("#range")).to_contain_text(f"no data sent for {end - start:.3f} s")


def test_packets_cross_the_line(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    strip = page.locator("#strip")
    strip.scroll_into_view_if_needed()
    told = page.locator("#strip-told")
    expect(told).to_contain_text("packets")
    at = page.locator("#strip-at")
    before = at.input_value()
    # At the usual speed it may end before a busy machine has paused it.
    page.get_by_label("Speed").select_option("0.01")
    page.get_by_role("button", name="Play").click()
    expect(at).not_to_have_value(before)
    page.get_by_role("button", name="Pause").click()
    at.focus()
    page.keyboard.press("Home")
    assert at.input_value() == "0"


def brightness(page: Page, of: str = "document.body", what: str = "backgroundColor") -> float:
    """Of a page's paper, or of another colour: 0 is black, 255 white."""
    red_green_blue = re.findall(r"\d+", page.evaluate(f"getComputedStyle({of}).{what}"))[:3]
    return sum(map(int, red_green_blue)) / 3


#: Width of the widest figure on a page, px.
WIDEST = "Math.max(...[...document.querySelectorAll('.board canvas')].map((one) => one.offsetWidth))"


def test_a_run_is_printed_with_all_plots_on_light_paper(
    new_page: Callable[..., Page], address: str, simulated: Simulated
) -> None:
    page = new_page(color_scheme="dark")
    page.add_init_script("window.print = () => (window.printed = true)")
    page.goto(f"{address}/runs/{simulated.run_id(1)}")
    page.get_by_role("button", name="Print").click()
    plots = page.locator(".timeline > .plot")
    for number in range(plots.count()):
        expect(plots.nth(number)).to_have_attribute("data-drawn", "true")
    assert page.evaluate("window.printed")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(WIDEST) <= 700
    page.emulate_media(media="print")
    assert brightness(page) == 255
    expect(page.locator("header")).to_be_hidden()
    expect(plots.first.locator(".u-wrap canvas")).to_be_visible()
    # As wide as A4 between its margins: plots have a readable height, and no room is left empty below them.
    page.set_viewport_size({"width": 703, "height": 1000})
    heights = page.evaluate(
        """() => [...document.querySelectorAll(".timeline .plot .board:not(.note)")].map((board) => [
          board.offsetHeight, ...[".u-wrap", ".uplot"].map((part) => board.querySelector(part).offsetHeight)])"""
    )
    assert len(heights) >= 5
    assert all(wrap >= 150 and board <= whole + 40 for board, wrap, whole in heights), heights
    page.set_viewport_size({"width": 1280, "height": 720})
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(WIDEST) > 800
    assert brightness(page) < 50


def test_light_and_dark_is_remembered(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("button", name="Dark").click()
    assert brightness(page) < 50
    # An address that a mail program cut ends no script.
    page.goto(f"{address}/docs#50%")
    assert brightness(page) < 50
    page.get_by_role("button", name="Light").click()
    assert brightness(page) > 200


def test_nothing_moves_while_it_loads(page: Page, address: str, simulated: Simulated) -> None:
    page.add_init_script(
        """window.shifts = 0; new PerformanceObserver((list) => {
            for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifts += e.value;
        }).observe({ type: "layout-shift", buffered: true });"""
    )
    campaign = simulated.campaign["campaign"]
    compare = f"/compare?point={campaign}:0&point={campaign}:1"
    launch, run = "/launch?file=quickstart.yaml", f"/runs/{simulated.run_id()}"
    for path in ("/", simulated.address, run, compare, launch, "/docs"):
        page.goto(address + path)
        settle(page)
        assert page.evaluate("window.shifts") < 0.02, path


def test_scripts_that_are_put_in_are_blocked(new_page: Callable[..., Page], address: str) -> None:
    page = new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(address)
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"owned = 1\"><p style=\"top: 0\">x</p>')"
    )
    page.evaluate("{ const s = document.createElement('script'); s.text = 'owned = 1'; document.body.append(s); }")
    # The image has failed, so that its handler would have run.
    wait_until(lambda: page.evaluate("document.querySelector('img[src=x]').complete"))
    assert page.evaluate("window.owned") is None
    assert any("Content Security Policy" in entry for entry in said)


def test_without_scripts_a_campaign_and_a_run_can_be_read(
    new_page: Callable[..., Page], address: str, simulated: Simulated
) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(address + simulated.address)
    expect(page.locator("#live-figure img")).to_be_visible()
    page.get_by_label("Metric").select_option("goodput/forward")
    page.locator("form.controls").first.get_by_role("button", name="Show").click()
    page.wait_for_url("**metric=goodput*")
    page.goto(f"{address}/runs/{simulated.run_id()}")
    expect(page.locator("#happened")).to_be_visible()


@pytest.mark.slow(
    "a campaign and a run are read without scripts by default; these pages, by test_explore and test_pages"
)
def test_without_scripts_the_explorer_a_launch_and_files_are_there(
    new_page: Callable[..., Page], address: str, simulated: Simulated
) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(f"{address}{simulated.address}/explore")
    expect(page.locator(".panel img")).to_be_visible()
    page.locator("#kind").select_option("box")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url(re.compile("kind=box"))
    expect(page.locator("#kind")).to_have_value("box")
    page.goto(f"{address}/launch?file=quickstart.yaml")
    expect(page.locator("#verdict")).to_contain_text("4 combinations, 12 runs")
    page.goto(f"{address}/runs/{simulated.run_id()}")
    with page.expect_download():
        page.locator('.plot[data-kind="sequence"]').get_by_role("link", name="SVG").click()


@pytest.fixture
def own(tmp_path: Path, serve: Callable[[Path], str]) -> tuple[str, Path]:
    """A site over a results folder of its own."""
    results = tmp_path / "results"
    return serve(results), results


def write(page: Page, text: str) -> None:
    """Replaces the file in the editor."""
    page.evaluate("(text) => editor.setValue(text)", text)


def test_the_editor_offers_mechanisms_and_fields(page: Page, own: tuple[str, Path]) -> None:
    page.goto(f"{own[0]}/launch")
    write(page, "stack: newr")
    page.evaluate("editor.focus(); editor.setCursor(0, 11)")
    page.keyboard.press("Control+Space")
    page.locator(".CodeMirror-hint").first.click()
    expect(page.locator("#text")).to_have_value(re.compile("^stack: newreno"))
    write(page, "repeti")
    page.evaluate("editor.focus(); editor.setCursor(0, 6)")
    page.keyboard.press("Control+Space")
    page.locator(".CodeMirror-hint", has_text="repetitions").click()
    expect(page.locator("#text")).to_have_value("repetitions: ")


def test_a_campaign_is_launched_and_watched_until_it_is_finished(page: Page, own: tuple[str, Path]) -> None:
    address, results = own
    page.goto(f"{address}/launch")
    write(page, TINY.replace("newreno", "newrno"))
    expect(page.locator("#verdict")).to_contain_text("did you mean 'newreno'?")
    page.get_by_role("button", name="Show line").click()
    assert page.evaluate("editor.getSelection()") == "stack: newrno"
    expect(page.locator(".CodeMirror-lint-marker-error")).to_have_count(1)
    write(page, TINY.replace("repetitions: 2", "repetitions: 3"))
    expect(page.locator(".CodeMirror-lint-marker-error")).to_have_count(0)
    expect(page.locator("#verdict")).to_contain_text("3 runs, about")
    # One is for phones.
    expect(page.locator("#picture svg").filter(visible=True)).to_have_count(1)
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url("**/requests/1")
    expect(page.get_by_text("No runner is connected")).to_be_visible()
    runner = subprocess.Popen(
        [sys.executable, "-m", "experiments", "serve", "runner", "--results", str(results)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # Nobody reloads: the page follows by itself.
        page.get_by_role("link", name=re.compile("the campaign")).click()
        page.wait_for_url("**/campaigns/*")
        expect(page.locator("#live-state")).to_have_text("complete")
        expect(page.locator("#live-facts")).to_contain_text("3 of 3 runs valid")
        expect(page.locator("#live-figure .u-wrap canvas")).to_be_visible()
    finally:
        runner.send_signal(signal.SIGINT)
        runner.wait(HANGS_S)


@pytest.mark.slow("a form makes a file, and a check keeps both, without a browser in test_requests")
def test_a_form_makes_a_file_and_a_check_keeps_both(page: Page, own: tuple[str, Path]) -> None:
    page.goto(f"{own[0]}/launch")
    page.get_by_text("A form", exact=True).click()
    page.get_by_label("Title").fill("What it asks")
    page.get_by_label("Rate", exact=True).first.fill("100 Mbit/s")
    page.get_by_role("button", name="Make the file").click()
    expect(page.locator("#text")).to_have_value(re.compile("title: What it asks"))
    # What validate warns of; its line is one click away.
    expect(page.locator("#verdict .warnings")).to_contain_text("warning: bottleneck elsewhere")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#verdict .good")).to_contain_text("2 combinations, 6 runs")
    expect(page.get_by_label("Title")).to_have_value("What it asks")
    expect(page.locator("#text")).to_have_value(re.compile("title: What it asks"))


@pytest.fixture
def capture(simulated: Simulated, tmp_path: Path) -> Path:
    """A capture of one of our own runs, as somebody might have it."""
    return captured(simulated.results, tmp_path / "strange.pcap")


def drop(page: Page, name: str, body: bytes) -> None:
    """Drags a file onto the form, as far as a script can."""
    transfer = page.evaluate_handle(
        """([name, text]) => { const t = new DataTransfer();
        t.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name)); return t; }""",
        [name, base64.b64encode(body).decode()],
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})


def test_a_capture_is_dragged_in_and_lands_on_its_plots(page: Page, own: tuple[str, Path], capture: Path) -> None:
    address, _ = own
    page.goto(f"{address}/import")
    drop(page, capture.name, capture.read_bytes())
    page.wait_for_url("**/runs/*")
    drawn(page, "sequence")
    page.get_by_role("button", name="Next retransmission").click()
    expect(page.get_by_role("region", name="Segment")).to_contain_text("retransmission")


def test_what_is_no_capture_is_said_in_words(page: Page, own: tuple[str, Path]) -> None:
    address, results = own
    page.goto(f"{address}/import")
    drop(page, "letter.txt", b"Dear network,\n" * 100)
    expect(page.locator("#told.bad")).not_to_be_empty()
    assert str(results) not in page.locator("#told").inner_text()
    assert "Traceback" not in page.locator("#told").inner_text()
    # By the name that the visitor knows.
    expect(page.locator("#told")).to_contain_text("letter.txt is neither pcap nor pcapng")


def test_what_ends_while_a_page_loads_is_shown_as_ended(page: Page, own: tuple[str, Path]) -> None:
    address, results = own
    store = Store.open(results)
    running = campaign(store, TINY)

    def end(route: Route) -> None:
        store.end_campaign(running, complete=True)
        route.continue_()

    # After the page was made, before its first event.
    page.route("**/api/events*", end)
    page.goto(f"{address}/campaigns/{running}")
    expect(page.locator("#live-state")).to_have_text("complete")
    store.close()


def test_the_site_tells_every_page_of_a_change(page: Page, own: tuple[str, Path]) -> None:
    address, results = own
    page.goto(address)
    expect(page.get_by_text("Nothing was run yet")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    file = results.parent / "tiny.yaml"
    file.write_text(TINY)
    done = backchannel("run", file, "--results", results, "--json")
    assert json.loads(done.stdout)["state"] == "complete"
    expect(page.locator("#live-new")).to_contain_text("2 in the store")


#: A line that loses, damages and fills up, so that segments are sent again for every reason.
LOSSY = """
name: lossy
backend: sim
network:
  topology: asymmetric-path
  forward:
    {rate: 2 Mbit/s, delay: 20 ms, queue: {policy: droptail, limit: 20 packets}, errors: [
      {model: uniform, probability: 0.03}, {model: uniform, probability: 0.02, effect: damage}]}
  reverse: {rate: 128 kbit/s, delay: 20 ms, queue: {policy: droptail, limit: 10 packets}}
stack: sack
workload:
  - {name: forward, from: server, to: client}
duration: 20 s
seed: 3
capture: {snaplen: 65535 B}    # whole packets: only of those is a checksum known
"""


def test_fates_of_segments_have_inks_of_their_own(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    (tmp_path / "lossy.yaml").write_text(LOSSY)
    done = backchannel("run", tmp_path / "lossy.yaml", "--results", tmp_path / "results", "--json", status=0)
    run = json.loads(done.stdout)["points"][0]["runs"][0]["run_id"]
    address = serve(tmp_path / "results")
    seen: dict[str, dict[str, list[int]]] = {}
    for side, kind in (("sender", "sequence"), ("receiver", "received")):
        page.goto(f"{address}/runs/{run}?side={side}")
        drawn(page, kind)
        # Of each series: its points, and pixels of its ink where they are.
        seen[side] = page.evaluate(
            """() => { const u = plots[0].chart, found = {}, { width, height } = u.ctx.canvas;
            const all = u.ctx.getImageData(0, 0, width, height).data;
            const two = (c) => c.toString(16).padStart(2, "0");
            const hex = (at) => "#" + [...all.slice(at, at + 3)].map(two).join("");
            u.series.slice(1).forEach((one, index) => { const count = [0, 0];
              u.ctx.save(); u.ctx.fillStyle = one.stroke(u, index + 1);
              const wanted = u.ctx.fillStyle; u.ctx.restore();
              u.data[index + 1].forEach((value, row) => { if (value == null) return;
                count[0] += 1;
                const left = Math.round(u.valToPos(u.data[0][row], "x", true));
                const top = Math.round(u.valToPos(value, "y", true));
                for (let y = top - 4; y <= top + 4; y++) for (let x = left - 4; x <= left + 4; x++)
                  if (hex(4 * (y * width + x)) === wanted) { count[1] += 1; return; } });
              found[one.label] = count; });
            return found; }"""
        )
    segment = page.evaluate("segments(0, 20).then((found) => found.segments.find((one) => one.sack.length))")
    page.evaluate("(one) => choose(one)", segment)
    left, right = segment["sack"][0]
    expect(page.get_by_role("region", name="Segment")).to_contain_text(f"{left} to {right}")
    wanted = {
        "sender": ("data", "acknowledged", "SACK", "fast retransmission", "timeout retransmission", "never arrived"),
        "receiver": ("data", "SACK", "damaged"),
    }
    for side, names in wanted.items():
        for name in names:
            points, inked = seen[side][name]
            assert points > 0, (side, name)
            # Marks may hide one another, and of a thin line few pixels have just its ink.
            assert inked > (0 if name in ("SACK", "acknowledged") else 0.5 * points), (side, name, points, inked)
