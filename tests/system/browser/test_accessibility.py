"""Every kind of page, in both themes, on a desktop and on a phone: axe-core finds nothing, and nothing is cut off."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from werkzeug.routing import Rule

from analysis.store import Store, requests
from analysis.store.rows import CellProgressRow
from tests.conftest import backchannel
from tests.sim.web.test_pages import campaign
from tests.sim.web.test_safety import csrf
from tests.support.simulated import Simulated, ran
from tests.support.site import COUNTED, DESKTOP_PX, PATIENCE_MS, PHONE_PX, FakeSession, captured, served
from tests.support.waiting import wait_until
from web.app import create_app

pytestmark = pytest.mark.browser

AXE = (Path(__file__).with_name("axe") / "axe.min.js").read_text()
#: WCAG 2.2 to level AA, and axe's own best practices.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: Those of them that depend on colours, by name: the only ones that another theme can break.
OF_COLOURS = ["color-contrast", "link-in-text-block"]
#: What axe does not hold: one heading of the page, its language, and names of progress bars and pictures.
OTHER_RULES = """() => ({
  headings: document.querySelectorAll("h1").length, language: document.documentElement.lang,
  nameless: [...document.querySelectorAll("progress, canvas")].filter((e) => e.checkVisibility() &&
    !e.closest(".u-wrap, [aria-hidden=true]") && !e.ariaLabel).length})"""
#: The colour of each theme's paper.
PAPER: dict[Literal["light", "dark"], str] = {"light": "rgb(251, 251, 249)", "dark": "rgb(19, 23, 22)"}
PAGES = (
    "home", "campaigns", "campaign", "explorer", "panels", "effects", "run", "compare", "scorecard", "launch", "import",
    "docs", "filtered", "guide", "study", "profile", "error", "sessions", "search",
)  # fmt: skip
#: Kinds of pages that need a store of their own.
OTHERS = ("first", "request", "upload", "imported", "counters", "enter")
#: Endpoints outside the API that answer with something else than a page of their own.
NO_PAGES = {
    "static", "figures.static", "monitoring.metrics", "runs.find", "runs.download", "runs.network", "runs.plot_file",
    "campaign_exports.figure", "campaign_exports.file_figure", "campaign_exports.tradeoff", "campaign_exports.network",
    "campaign_exports.as_csv", "campaign_exports.runs_as_csv", "campaign_exports.as_yaml", "explore.file",
    "compare.figure", "compare.plot_file", "scorecard.small_figure",
}  # fmt: skip


#: Kinds whose page is another's, of something else.
SAME = {"profile": "launch", "imported": "run", "guide": "study"}


def case(kind: str, width: int) -> Any:
    """Each kind is examined by default on a phone, where the least room is; two on a desktop as well: one whose tables
    are cards on a phone, and the one that has most beside another.
    """
    if kind == "docs":
        reason = "some of its many entries, and the page around them, are `filtered`"
    elif kind in SAME:
        reason = f"the page is that of `{SAME[kind]}`"
    elif width == DESKTOP_PX and kind not in ("campaign", "run"):
        reason = "the same on a desktop"
    else:
        return pytest.param(kind, width, id=f"{kind}-{width}")
    return pytest.param(kind, width, marks=pytest.mark.slow(reason), id=f"{kind}-{width}")


def path_of(kind: str, simulated: Simulated) -> str:
    point = f"point={simulated.campaign['campaign']}"
    fields = "row=network.reverse.queue.policy&column=network.reverse.rate&x=none&colour=none"
    paths = {
        "home": "/", "campaign": simulated.address, "explorer": f"{simulated.address}/explore",
        "panels": f"{simulated.address}/explore?kind=dots&{fields}&box=0:-1:1",
        "effects": f"{simulated.address}/explore?kind=effects&pin={simulated.run_id()}",
        "run": f"/runs/{simulated.run_id()}", "compare": f"/compare?{point}:0&{point}:1",
        "launch": "/launch?file=quickstart.yaml", "guide": "/docs/guide", "study": "/docs/studies/asym",
        "profile": "/launch?profile=cable", "filtered": "/docs?q=red", "error": "/runs/none",
        "search": "/search?q=droptail",
    }  # fmt: skip
    return paths.get(kind, f"/{kind}")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, simulated: Simulated) -> Iterator[dict[str, str]]:
    """Addresses of OTHERS: a live request, a failed upload, an import, a run with counters, the door, an empty site."""
    folder = tmp_path_factory.mktemp("others")
    counted = ran(folder, "counted.yaml", COUNTED)
    capture = captured(simulated.results, folder / "evening.pcap")
    backchannel("import", capture, "--results", counted.results, "--json", status=0)
    store = Store.open(counted.results)
    imports = next(row for row in store.campaigns() if row.backend == "import")
    imported = store.campaign(imports.id)
    assert imported is not None
    number = requests.ask_run(store, "own.yaml", "name: own", [], force=False)
    requests.take(store, "r1")
    running = campaign(store)
    requests.name_campaign(store, number, running)
    cells: list[CellProgressRow] = [{"cell": "a", "run": "", "point": 1, "repetition": 0, "phase": "running"}]
    store.set_progress(running, {"share": 0.1, "per_minute": 6.0, "left_s": 20.0, "cells": cells})
    app = create_app(counted.results)
    visitor = app.test_client()
    token = csrf(visitor)
    sent = visitor.post("/import", data={"csrf": token, "capture": (io.BytesIO(b"Dear network,"), "letter.txt")})
    upload = sent.headers["Location"]
    wait_until(lambda: visitor.get(f"/api{upload}".replace("/import/", "/imports/")).json["state"] == "failed")  # type: ignore[index]
    with (
        served(app) as address,
        served(create_app(folder / "empty")) as empty,
        served(create_app(folder / "closed", token="t" * 16)) as closed,
    ):
        yield {
            "first": f"{empty}/", "request": f"{address}/requests/{number}", "upload": address + upload,
            "imported": f"{address}/runs/{imported.points[0].members[0].run_id}",
            "counters": f"{address}/runs/{counted.run_id()}", "enter": f"{closed}/enter",
        }  # fmt: skip
    store.close()


def is_page(rule: Rule) -> bool:
    """Whether an address of the site should answer with a page."""
    return "GET" in (rule.methods or ()) and not rule.rule.startswith("/api/") and rule.endpoint not in NO_PAGES


def test_every_kind_of_page_is_examined(simulated: Simulated, others: dict[str, str]) -> None:
    app = create_app(simulated.results)
    adapter = app.url_map.bind("localhost")
    paths = [path_of(kind, simulated) for kind in PAGES]
    paths += ["/" + address.partition("//")[2].partition("/")[2] for address in others.values()]
    examined = {adapter.match(path.partition("?")[0])[0] for path in paths}
    assert {rule.endpoint for rule in app.url_map.iter_rules() if is_page(rule)} == examined
    assert set(others) == set(OTHERS)


def violations(page: Page, rules: list[str]) -> list[str]:
    """What axe-core finds: rule, element and what is wrong with it."""
    result: dict[str, Any] = page.evaluate(
        "(rules) => axe.run(document, { runOnly: rules, resultTypes: ['violations'] })", rules
    )
    return [
        f"{entry['id']}: {node['html'][:160]} {node['failureSummary']}"
        for entry in result["violations"]
        for node in entry["nodes"]
    ]


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One tab for every page, whose scripts and styles stay in the browser's cache."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("kind", "width"), [case(kind, width) for width in (DESKTOP_PX, PHONE_PX) for kind in PAGES + OTHERS]
)
def test_axe_finds_nothing(
    tab: Page, address: str, simulated: Simulated, others: dict[str, str], session: FakeSession, kind: str, width: int
) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(others.get(kind) or address + path_of(kind, simulated), wait_until="load")
    if kind == "sessions":
        # Its charts begin with the second look.
        expect(tab.locator(".u-wrap canvas").first).to_be_visible()
    if kind == "search":
        tab.get_by_role("searchbox").first.fill("acks")
        expect(tab.get_by_role("region", name="Found")).to_contain_text("Docs")
    tab.evaluate(AXE)
    # The themes are in the style sheet alone, so both are examined on the page as it was loaded.
    for scheme, paper in PAPER.items():
        tab.emulate_media(color_scheme=scheme)
        assert violations(tab, RULES if scheme == "light" else OF_COLOURS) == []
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(OTHER_RULES) == {"headings": 1, "language": "en", "nameless": 0}
