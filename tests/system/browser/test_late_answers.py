"""Answers of the site that come late: none takes a visitor back from where they are by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Route, expect

from analysis.store import Store, requests
from tests.sim.web.test_pages import campaign
from tests.sim.web.test_requests import TINY
from tests.support.simulated import Simulated
from tests.support.waiting import wait_until
from tests.system.browser.test_browser import drawn, write

pytestmark = pytest.mark.browser


@contextmanager
def held(page: Page, address: str) -> Iterator[Callable[[], Route]]:
    """Holds requests to an address until the test lets them go on; gives the oldest of them, once it is there."""
    waiting: list[Route] = []

    def has_come() -> bool:
        # Playwright tells of requests while it waits.
        page.wait_for_timeout(10)
        return bool(waiting)

    def oldest() -> Route:
        wait_until(has_come, f"a request to {address}")
        return waiting.pop(0)

    page.route(address, lambda route: waiting.append(route))
    yield oldest
    page.unroute(address)


def answer(page: Page, route: Route, answers: Callable[[], None]) -> None:
    """Answers a request, and returns when the page has done what it does with the answer."""
    with page.expect_event("requestfinished", lambda request: request == route.request):
        answers()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def test_a_late_answer_leaves_the_focus_where_it_is(page: Page, address: str, simulated: Simulated) -> None:
    run = simulated.run_id()
    page.goto(f"{address}/docs")
    with held(page, f"**/search?q={run[:7]}") as late:
        page.keyboard.press("/")
        page.keyboard.insert_text(run[:6])
        link = page.get_by_role("region", name="Found").get_by_role("link", name=f"Run {run[:8]}")
        expect(link).to_be_visible()
        page.keyboard.type(run[6])
        asked = late()
        page.keyboard.press("ArrowDown")
        expect(link).to_be_focused()
        drawn_before = link.element_handle()
        answer(page, asked, asked.continue_)
    page.wait_for_function("link => !link.isConnected", arg=drawn_before)
    expect(link).to_be_focused()


def test_what_was_found_late_does_not_open_again(page: Page, address: str) -> None:
    page.goto(f"{address}/docs")
    found = page.locator("#found")
    with held(page, "**/search?q=*") as late:
        page.keyboard.press("/")
        page.keyboard.insert_text("rates")
        asked = late()
        page.locator("h1").click()
        answer(page, asked, asked.continue_)
    expect(found).to_be_hidden()
    assert found.locator("a").count() == 0


def test_a_late_page_does_not_take_back_a_newer_one(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    running = campaign(store, TINY)
    page.goto(f"{serve(tmp_path / 'results')}/campaigns/{running}")
    expect(page.locator("html")).to_have_attribute("data-live", "on")
    expect(page.locator("#live-state")).to_have_text("running")
    made: list[Route] = []
    bodies: list[str] = []

    def hold_the_first(route: Route, request: Request) -> None:
        if request.headers.get("x-requested-with") != "fetch" or made:
            return route.continue_()
        made.append(route)
        bodies.append(route.fetch().text())
        return None

    page.route(page.url, hold_the_first)
    # A runner is shown on the page, and the campaign ends while the page with the runner is under way.
    requests.show_runner(store, "r1", 0.0, [])
    wait_until(lambda: page.evaluate("1") and bodies, "the first page")
    store.end_campaign(running, complete=True)
    # Time in which the page would ask for itself once more.
    page.wait_for_timeout(1500)
    made[0].fulfill(body=bodies[0], content_type="text/html")
    expect(page.locator("#live-state")).to_have_text("complete")
    store.close()


def test_a_verdict_on_an_earlier_text_is_not_shown(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    page.goto(f"{serve(tmp_path / 'results')}/launch")
    verdict = page.locator("#verdict")
    with held(page, "**/api/check") as late:
        write(page, TINY.replace("newreno", "newrno"))
        first = late()
        write(page, TINY.replace("repetitions: 2", "repetitions: 3"))
        # The next check begins half a second later, and is held too.
        problem = "campaign.yaml:3: stack: unknown choice 'newrno'"
        answer(page, first, lambda: first.fulfill(json={"problems": [problem]}))
        assert "newrno" not in verdict.inner_text()
        late().continue_()
    expect(verdict).to_contain_text("3 runs, about")


def test_the_fate_of_a_loss_does_not_undo_a_zoom(page: Page, serve: Callable[[Path], str], dropping: Simulated) -> None:
    page.goto(f"{serve(dropping.results)}/runs/{dropping.run_id()}")
    drawn(page, "sequence")
    with held(page, "**/fate?*") as late:
        page.get_by_role("button", name="Next loss").click()
        asked = late()
        page.locator("h1").click()
        for _ in range(2):
            page.keyboard.press("+")
        view = page.evaluate("view")
        answer(page, asked, asked.continue_)
    expect(page.locator("#segment .fate")).to_contain_text("retransmitted at")
    assert page.evaluate("view") == view
