"""Every kind of page, in both themes, on a desktop and on a phone: axe-core finds nothing, and nothing is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from tests.web.conftest import FakeSession, Simulated

pytestmark = pytest.mark.browser

AXE = (Path(__file__).with_name("axe") / "axe.min.js").read_text()
#: WCAG 2.2 to level AA, and axe's own best practices.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = (
    "home", "campaigns", "campaign", "explorer", "panels", "effects", "run", "compare", "scorecard", "launch", "import",
    "docs", "guide", "profile", "error", "sessions",
)  # fmt: skip


def path_of(kind: str, simulated: Simulated) -> str:
    point = f"point={simulated.campaign['campaign']}"
    fields = "row=network.reverse.queue.policy&column=network.reverse.rate&x=none&colour=none"
    paths = {
        "home": "/", "campaign": simulated.address, "explorer": f"{simulated.address}/explore",
        "panels": f"{simulated.address}/explore?kind=dots&{fields}&box=0:-1:1",
        "effects": f"{simulated.address}/explore?kind=effects&pin={simulated.run_id()}",
        "run": f"/runs/{simulated.run_id()}", "compare": f"/compare?{point}:0&{point}:1",
        "launch": "/launch?file=quickstart.yaml", "guide": "/docs/guide", "profile": "/launch?profile=cable",
        "error": "/runs/none",
    }  # fmt: skip
    return paths.get(kind, f"/{kind}")


def violations(page: Page) -> list[str]:
    """What axe-core finds: rule, element and what is wrong with it."""
    page.evaluate(AXE)
    result: dict[str, Any] = page.evaluate(
        "(rules) => axe.run(document, { runOnly: rules, resultTypes: ['violations'] })", RULES
    )
    return [
        f"{entry['id']}: {node['html'][:160]} {node['failureSummary']}"
        for entry in result["violations"]
        for node in entry["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing(
    browser: Browser,
    address: str,
    simulated: Simulated,
    session: FakeSession,
    kind: str,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(address + path_of(kind, simulated), wait_until="load")
    result = violations(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert result == []
    assert wide <= width
