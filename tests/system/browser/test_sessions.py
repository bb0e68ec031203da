"""The page of running sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from experiments.sessions.control import ControlServer
from experiments.sessions.state import SessionControl
from tests.support.site import FakeSession, phone_first


@pytest.mark.browser
@phone_first
def test_a_line_is_watched_and_changed_while_it_runs(
    page: Page, session: FakeSession, serve: Callable[[Path], str], tmp_path: Path
) -> None:
    page.goto(f"{serve(tmp_path)}/sessions")
    mine = page.locator(f'section[data-session="test{os.getpid()}"]')
    # The session sent 1000 bytes more at each look, a second apart by its own clock.
    expect(mine.locator("tr[data-direction=reverse] [data-now=throughput]")).to_have_text("8 kbit/s")
    for chart in ("throughput", "queue"):
        expect(mine.locator(f"[data-chart={chart}] .u-wrap canvas")).to_be_visible()
    rate = mine.get_by_label("Rate of line reverse")
    rate.focus()
    page.keyboard.press("Home")
    form = mine.get_by_role("group", name="Change line reverse")
    expect(form.get_by_label("Rate", exact=True)).to_have_value("1 kbit/s")
    page.keyboard.press("ArrowRight")
    expect(form.get_by_label("Rate", exact=True)).to_have_value("1.12 kbit/s")
    form.get_by_label("Policy").select_option("codel")
    form.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status").filter(has_text="line reverse: rate 1.12 kbit/s, queue codel")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # A line that someone changes elsewhere is shown anew.
    session.asked.clear()
    session.changes = [{"at_s": 3.0, "link": "line", "direction": "forward", "fields": {"delay": "20 ms"}}]
    mine.get_by_text("1 change so far").click()
    expect(mine).to_contain_text("at 3.000 s, line forward: delay 20 ms")


@pytest.mark.browser
def test_open_pages_are_current(page: Page, session: FakeSession, serve: Callable[[Path], str], tmp_path: Path) -> None:
    page.goto(f"{serve(tmp_path)}/sessions")
    name = f"more{os.getpid()}"
    later = page.locator(f'section[data-session="{name}"]')
    expect(later).to_have_count(0)
    with closing(ControlServer(name, SessionControl, FakeSession(name))):
        expect(later).to_be_visible()
    expect(later).to_have_count(0)
