"""What is gathered to be compared, and what changes on pages while one looks, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import backchannel
from tests.sim.web.test_requests import TINY
from tests.support.simulated import Simulated
from tests.system.browser.test_browser import drawn

pytestmark = [pytest.mark.slow("one page in a browser"), pytest.mark.browser]


def test_runs_and_points_of_any_page_are_gathered(page: Page, address: str, simulated: Simulated) -> None:
    basket = page.get_by_role("complementary", name="To compare")
    page.goto(address + simulated.address)
    expect(basket).to_be_hidden()
    page.get_by_label("Compare policy=droptail, rate=28.8 kbit/s").check()
    page.get_by_role("button", name="Add to comparison").first.focus()
    page.keyboard.press("Enter")
    expect(basket.get_by_role("listitem")).to_have_count(1)
    for run in (simulated.run_id(), simulated.run_id(1), simulated.run_id(1)):
        page.goto(f"{address}/runs/{run}")
        page.get_by_role("button", name="Add to comparison").click()
    expect(basket.get_by_role("listitem")).to_have_count(3)
    for place in (0, 0.5, 1):
        page.evaluate("(share) => scrollTo(0, share * document.documentElement.scrollHeight)", place)
        expect(basket.get_by_role("link", name="Compare these")).to_be_in_viewport()
    basket.get_by_role("button", name=f"run {simulated.run_id()[:8]}").focus()
    page.keyboard.press("Enter")
    expect(basket.get_by_role("listitem")).to_have_count(2)
    basket.get_by_role("link", name="Compare these").click()
    page.wait_for_url("**/compare?point=*&run=*")
    expect(page.locator("main .chips li")).to_have_count(2)


def test_one_goes_to_each_retransmission_in_turn(page: Page, serve: Callable[[Path], str], dropping: Simulated) -> None:
    page.goto(f"{serve(dropping.results)}/runs/{dropping.run_id()}?flow=forward")
    drawn(page, "sequence")
    wanted = page.evaluate(
        """async () => { const found = [];
        for (let t = 0; t < 12; t++) found.push(...(await segments(t, t + 1 - 1e-9)).segments);
        return found.filter((one) => one.classes.includes("retransmission")).map((one) => one.time_s); }"""
    )
    assert len(wanted) > 1
    result = []
    for _ in range(len(wanted) + 1):
        page.evaluate("seek('retransmission', 1)")
        result.append(page.evaluate("segment.time_s"))
    assert result == [*wanted, wanted[0]]


def test_times_that_were_rounded_up_do_not_hold_it(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id()}?flow=reverse")
    drawn(page, "sequence")
    # As real captures have them: marks rounded to a microsecond, segments to a nanosecond, two in one instant.
    result = page.evaluate(
        """async () => { const times = [1.0000004, 2.0000006, 2.0000006, 3.0000009]; const met = [];
        const all = times.map((time_s, seq) => ({ time_s, seq, end: seq + 1, payload: 1,
          ip_bytes: 41, ack: 0, window: 1, direction: "data",
          classes: ["retransmission"], flags: [], sack: [], rtt_ms: null, in_order: 0 }));
        const real = window.fetch; window.fetch = async (url, ...rest) => {
          const asked = new URL(url, location);
          const [from, to] = ["from", "to"].map((key) => Number(asked.searchParams.get(key)));
          // What the page asks for on its own meanwhile (events, other figures) is answered as ever.
          const part = asked.pathname.split("/").at(-1);
          if (!["segments", "sequence", "fate"].includes(part)) return real(url, ...rest);
          const inside = all.filter((one) => one.time_s >= from && one.time_s <= to);
          const series = [{ name: "retransmission", style: "marks", ink: "mark",
            x: inside.map((one) => +one.time_s.toFixed(6)), y: inside.map((one) => one.end / 1e3) }];
          const figure = { x: { label: "", unit: "s" }, y: { label: "", unit: "" }, series };
          const fate = { sentence: "arrived", sent_s: 0, arrived_s: 1, again_s: null, lost: null };
          return new Response(JSON.stringify({ segments: { segments: inside }, sequence: figure, fate }[part]));
        };
        for (let n = 0; n < 5; n++) { await seek("retransmission", 1); met.push(segment.seq); }
        window.fetch = real; return met; }"""
    )
    assert result == [0, 1, 2, 3, 0]


def test_a_click_finds_what_is_nearest_among_many(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward")
    drawn(page, "sequence")
    # Both sides of the cursor are asked for, so that no limit of an answer hides what is under it.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/segments?" in request.url else None)
    page.evaluate("nearest(plots[0].chart, 3, 100)")
    # The list of packets asks for what is in view.
    assert sorted("tail=1" in url for url in asked if re.search(r"[?&](from|to)=3(&|$)", url)) == [False, True]


def test_keys_reach_a_segment_and_a_failed_zoom_is_reported(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward&from=20&to=30")
    drawn(page, "sequence")
    assert page.evaluate("view") == [0, 8]
    page.locator("h1").click()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("region", name="Segment")).to_contain_text("segment")
    page.evaluate("() => { window.real = fetch; window.fetch = async () => { throw new Error('the line is cut'); }; }")
    page.keyboard.press("+")
    expect(page.get_by_text("The site does not answer").first).to_be_visible()
    page.evaluate("() => { window.fetch = window.real; }")
    page.keyboard.press("+")
    expect(page.get_by_text("The site does not answer")).to_have_count(0)


def test_a_plot_that_failed_is_drawn_at_the_next_zoom(page: Page, address: str, simulated: Simulated) -> None:
    page.add_init_script(
        """window.real = fetch; window.fetch = async (url, ...rest) => {
          if (new URL(url, location).pathname.endsWith('/throughput')) throw new Error('the line is cut');
          return real(url, ...rest); };"""
    )
    page.goto(f"{address}/runs/{simulated.run_id(1)}?flow=forward")
    plot = drawn(page, "throughput")
    expect(plot).to_contain_text("cannot be shown")
    page.evaluate("() => { window.fetch = window.real; }")
    page.locator("h1").click()
    page.keyboard.press("+")
    expect(plot.locator(".u-over")).to_be_visible()
    expect(plot).not_to_contain_text("cannot be shown")
    expect(plot.locator(".board.failed, .failed")).to_have_count(0)


def test_lists_follow_the_store_and_a_kept_page_wakes(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    results = tmp_path / "results"
    page.goto(f"{serve(results)}/campaigns")
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    # As when the browser keeps the page and one comes back to it.
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    (tmp_path / "tiny.yaml").write_text(TINY)
    done = backchannel("run", tmp_path / "tiny.yaml", "--results", results, "--json")
    assert json.loads(done.stdout)["state"] == "complete"
    expect(page.locator("#live-campaigns .state")).to_have_text("complete")


def test_changes_are_said_without_a_flood(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    said = page.locator("#live-said")
    page.evaluate("heard('count', '1 of 9 runs valid', '2 of 9 runs valid')")
    expect(said).to_be_empty()
    page.evaluate("heard('state', 'running', 'complete')")
    expect(said).to_have_text("The campaign is complete.")
    assert said.get_attribute("aria-live") == "polite"
