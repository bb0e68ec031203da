"""Tasks a visitor has, each done in a real browser from start to end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from analysis.store import Store, requests
from analysis.store.rows import CellProgressRow
from tests.sim.web.test_pages import ARTEFACT, TARGETS, campaign, commit, throughput
from tests.support.simulated import Simulated
from tests.support.site import captured
from tests.support.traces.readers import tshark_fields
from web import guide

pytestmark = [pytest.mark.slow("whole visits in a browser"), pytest.mark.browser]


@pytest.fixture(params=[1280, 390])
def page(page: Page, request: pytest.FixtureRequest) -> Page:
    """A desktop's page and a phone's."""
    page.set_viewport_size({"width": request.param, "height": 900})
    return page


def test_the_scorecard_is_a_wall_of_figures_that_open_to_their_explanation(
    page: Page, serve: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asym").mkdir()
    (tmp_path / "asym/targets.yaml").write_text(TARGETS)
    monkeypatch.setattr("experiments.catalogue.FOLDER", tmp_path)
    store = Store.open(tmp_path / "results")
    campaign(store, ARTEFACT)
    for number, value in ((0, 1.0e6), (1, 1.2e6), (10, 2.0e6), (11, 2.0e6)):
        commit(store, tmp_path, number, throughput(value))
    address = serve(tmp_path / "results")
    page.goto(f"{address}/scorecard")
    cards = page.locator(".wall > details")
    expect(cards).to_have_count(2)
    card = cards.filter(has=page.locator("svg"))
    # The published value is a dash on its tolerance, the measured mean a mark that does not agree: a square.
    expect(card.locator("svg line.stroke-ink")).to_have_count(1)
    expect(card.locator("svg rect")).to_have_attribute("rx", "0")
    expect(card.get_by_text("3.2 Mbit/s published, 1.1 ± 1.3 Mbit/s measured")).to_be_hidden()
    card.locator("summary").first.click()
    expect(card.get_by_text("3.2 Mbit/s published, 1.1 ± 1.3 Mbit/s measured (−65.6 %)")).to_be_visible()
    name = card.get_attribute("id")
    # A link to a card opens it, also on the page that stands open.
    page.goto(f"{address}/scorecard")
    page.goto(f"{address}/scorecard#{name}")
    expect(card.get_by_text("3.2 Mbit/s published")).to_be_visible()
    with page.expect_download() as download:
        card.get_by_role("link", name="SVG").click()
    assert 'stroke="#' in Path(download.value.path()).read_text()


def test_a_request_shows_a_figure_as_its_runs_land(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    results = tmp_path / "results"
    store = Store.open(results)
    address = serve(results)
    number = requests.ask_run(store, "own.yaml", "name: own", [], force=False)
    page.goto(f"{address}/requests/{number}")
    expect(page.get_by_text("No runner is connected")).to_be_visible()
    taken = requests.take(store, "r1")
    assert taken is not None
    campaign_id = campaign(store)
    requests.name_campaign(store, number, campaign_id)
    cells: list[CellProgressRow] = [{"cell": "a", "run": "", "point": 1, "repetition": 0, "phase": "running"}]
    store.set_progress(campaign_id, {"share": 0.1, "per_minute": 6.0, "left_s": 20.0, "cells": cells})
    expect(page.locator(".cells")).to_have_text("policy=acks-first, repetition 1, running")
    expect(page.get_by_text("6 runs a minute, 20 s left")).to_be_visible()
    # Progress alone changes no other part of the page.
    cells[0]["phase"] = "collecting"
    store.set_progress(campaign_id, {"share": 0.2, "per_minute": 6.0, "left_s": 20.0, "cells": cells})
    expect(page.locator(".cells")).to_have_text("policy=acks-first, repetition 1, collecting")
    expect(page.get_by_text("There is no valid run yet")).to_be_visible()
    commit(store, tmp_path, 0, throughput(1.0e6))
    # Nobody reloads: the first run draws the figure, and the next one changes it.
    expect(page.locator("#live-figure .u-wrap canvas")).to_be_visible()
    expect(page.locator("#live-table")).to_contain_text("1 Mbit/s")
    commit(store, tmp_path, 10, throughput(2.0e6))
    expect(page.locator("#live-table")).to_contain_text("2 Mbit/s")
    figures = page.locator("#live-figure script")
    assert (
        figures.text_content()
        == page.request.get(f"{address}{'/campaigns/' + campaign_id}")
        .text()
        .partition('id="live-figure"')[2]
        .partition('<script type="application/json">')[2]
        .partition("</script>")[0]
    )


def test_an_import_lists_its_conversations_and_each_opens_its_plots(
    page: Page, serve: Callable[[Path], str], simulated: Simulated, tmp_path: Path
) -> None:
    capture = captured(simulated.results, tmp_path / "strange.pcap")
    address = serve(tmp_path / "results")
    page.goto(f"{address}/import")
    page.get_by_label("Label").fill("DSL, evening")
    page.get_by_label("Note", exact=True).fill("after the update")
    page.get_by_label("Drop captures or logs here").set_input_files(capture)
    page.get_by_role("button", name="Import").click()
    page.wait_for_url("**/runs/*")
    expect(page.get_by_role("heading", level=1)).to_contain_text("DSL, evening")
    expect(page.get_by_text("after the update", exact=True)).to_be_visible()
    rows = page.locator("#conversations tbody tr")
    expect(rows).to_have_count(2)
    # The numbers are those of tshark.
    theirs: dict[str, list[int]] = {}
    for stream, length in tshark_fields(capture, ("tcp.stream", "ip.len")):
        theirs.setdefault(stream, []).append(int(length))
    ours = page.request.get(page.url.replace("/runs/", "/api/runs/") + "/conversations").json()
    assert {(our["packets"], our["bytes"]) for our in ours} == {(len(all_), sum(all_)) for all_ in theirs.values()}
    assert ours == sorted(ours, key=lambda item: -item["bytes"])
    expect(rows.first.locator("td.number").first).to_contain_text(f"{ours[0]['packets']}")
    page.get_by_role("link", name="Duration").click()
    expect(page.locator("#conversations th[aria-sort=descending]")).to_contain_text("Duration")
    second = next(our for our in ours if our != ours[0])
    page.locator("#conversations").get_by_role("link", name=second["sender"]).click()
    page.wait_for_url("**#plots")
    expect(page.locator('.plot[data-kind="sequence"]')).to_have_attribute("data-flow", second["flow"])
    expect(page.locator('.plot[data-kind="sequence"]')).to_have_attribute("data-drawn", "true")


def test_the_first_campaign_is_one_click_away(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    address = serve(tmp_path / "results")
    page.goto(address)
    page.get_by_role("button", name="Run the first campaign").click()
    page.wait_for_url("**/requests/1")
    asked = requests.find(Store.open(tmp_path / "results"), 1)
    assert asked is not None
    assert asked.text.startswith("# A two-way transfer")
    assert list(asked.overrides) == ["backend=sim", "stack=newreno"]


def test_a_launch_starts_from_a_line_catalogue_guide_or_result(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/launch")
    page.get_by_role("link", name="hybrid-cable").click()
    # Runs, time and traps are previewed before anything is entered.
    expect(page.locator("#verdict .good")).to_contain_text("3 combinations, 15 runs on the sim backend")
    expect(page.locator("#verdict")).to_contain_text("To be run: 15 runs, about")
    expect(page.locator("#text")).to_have_value(re.compile("profile: hybrid-cable"))
    page.locator("summary", has_text="The catalogue").click()
    page.locator("summary", has_text=re.compile("^asym")).click()
    page.get_by_role("link", name="RED feedback to data only").click()
    expect(page.locator("#text")).to_have_value(re.compile("artefact: asym-claim-data-only-marking"))
    expect(page.locator("#verdict .good")).to_be_visible()
    # The guide's first example.
    page.goto(f"{address}/docs")
    page.get_by_role("link", name="How to write a campaign").click()
    page.get_by_role("link", name="Open in launch example 1", exact=True).click()
    expect(page.locator("#text")).to_have_value(re.compile("^name: smallest"))
    expect(page.locator("#verdict .good")).to_contain_text("1 combination, 1 run")
    # From a result: the same with another stack.
    page.goto(f"{address}{simulated.address}")
    page.get_by_label("The same with").fill("stack=sack")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("overrides, one on each line")).to_have_value("stack=sack")
    expect(page.locator("#verdict .good")).to_contain_text(
        "6 combinations, 12 runs on the sim backend; 0 with a valid result"
    )


def test_home_shows_what_runs_and_the_latest_runs(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    campaign_id = campaign(store)
    commit(store, tmp_path, 0, throughput(1.0e6))
    cells: list[CellProgressRow] = [{"cell": "a", "run": "", "point": 1, "repetition": 0, "phase": "running"}]
    store.set_progress(campaign_id, {"share": 0.25, "per_minute": 6.0, "left_s": 50.0, "cells": cells})
    page.goto(serve(tmp_path / "results"))
    running = page.locator("#live-top .running")
    expect(running).to_contain_text("Own 1 of 4 runs valid")
    expect(running).to_contain_text("6 runs a minute, 50 s left")
    expect(running.locator("progress")).to_have_attribute("value", "0.25")
    # Nobody reloads.
    store.set_progress(campaign_id, {"share": 0.5, "per_minute": 6.0, "left_s": 40.0, "cells": cells})
    expect(running).to_contain_text("40 s left")
    page.get_by_text("The newest runs").click()
    page.get_by_role("link", name="policy=droptail, repetition 1").click()
    page.wait_for_url(f"**/runs/{0:024x}")


def test_navigation_is_one_row_and_a_launch_one_column_of_explained_fields(page: Page, address: str) -> None:
    page.goto(f"{address}/launch")
    tops = page.locator(".places a").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().top)")
    assert len(tops) == 6
    assert len(set(tops)) == 1
    page.get_by_text("A form", exact=True).click()
    fields = page.locator(".build").locator("input, select")
    assert fields.count() > 20
    explained = fields.evaluate_all(
        """(all) => all.map((one) => { const help = document.getElementById(one.getAttribute("aria-describedby"));
        const isBeside = one.closest("div").contains(help) && help.getBoundingClientRect().height > 0;
        return isBeside && help.textContent.trim().length > 3; })"""
    )
    assert all(explained)
    left = page.locator(".launch > section").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().x)")
    assert len(left) == 2
    assert len(set(left)) == 1


def test_every_example_of_the_guide_is_one_to_launch() -> None:
    parts = guide.parts()
    examples = [part.example for part in parts if part.example]
    assert len(examples) > 8
    assert guide.example(1) == examples[0]
    assert guide.example(len(examples)) == examples[-1]
    assert guide.example(0) == guide.example(len(examples) + 1) == ""
    html = "".join(part.html for part in parts)
    assert '<h3 id="networks">' in html
    assert 'href="#networks"' in html
    # Links to files of the repository lead nowhere on the site.
    assert not any(".md" in address for address in re.findall(r'href="([^"]*)"', html))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_figure_is_shared(
    new_page: Callable[..., Page], address: str, simulated: Simulated, tmp_path: Path, width: int
) -> None:
    page = new_page(permissions=["clipboard-read", "clipboard-write"], viewport={"width": width, "height": 900})
    page.goto(f"{address}{simulated.address}?metric=throughput/forward")
    figure = page.locator("#live-figure")

    def copied(what: str) -> str:
        figure.locator("summary", has_text="Share").click()
        figure.get_by_role("button", name=what).click()
        expect(figure.locator("output")).to_have_text("Copied")
        result: str = page.evaluate(
            """async () => { const [one] = await navigator.clipboard.read();
            if (one.types.includes("image/png")) return `${(await one.getType("image/png")).size} bytes`;
            return await (await one.getType("text/plain")).text(); }"""
        )
        page.reload()
        return result

    assert copied("Copy link") == f"{address}{simulated.address}?metric=throughput/forward#live-figure"
    element = copied("Copy embedding")
    assert re.fullmatch(r'<img src="http[^"]*/figure\.svg\?[^"]*" alt="[^"]+">', element)
    assert int(copied("Copy picture").removesuffix(" bytes")) > 5000
    # A notebook on another port shows it.
    (tmp_path / "notebook.html").write_text(element)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as notebook:
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{notebook.server_port}/notebook.html")
        assert page.get_by_role("img").evaluate("(image) => image.complete && image.naturalWidth") > 100
        notebook.shutdown()
