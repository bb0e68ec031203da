"""Questions that a visitor has, each answered in a real browser on a desktop and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from analysis.store import Landing, Store
from analysis.store.documents import Documents
from tests.conftest import backchannel, two_hosts
from tests.screenshots import settle
from tests.sim.web.test_pages import campaign
from tests.support.simulated import Simulated, ran
from tests.support.site import COUNTED, captured
from tests.system.browser.test_browser import drawn

pytestmark = [pytest.mark.slow("one page in a browser"), pytest.mark.browser]


@pytest.fixture(params=[1280, 390])
def page(page: Page, request: pytest.FixtureRequest) -> Page:
    """A desktop's page and a phone's."""
    page.set_viewport_size({"width": request.param, "height": 900})
    return page


def best_of(simulated: Simulated) -> dict[str, float]:
    """The greatest mean of each direction's throughput, bit/s."""
    rows = [row for point in simulated.campaign["points"] for row in point["metrics"] if row["name"] == "throughput"]
    return {flow: max(row["mean"] for row in rows if row["subject"] == flow) for flow in ("forward", "reverse")}


def test_which_point_is_best_and_what_does_it_cost(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    assert page.locator("h2").first.inner_text() == "Answer"
    answer = page.locator("p.answer").first
    expect(answer).to_contain_text(re.compile(r"^Throughput of forward is highest with policy=.*2 runs"))
    expect(answer).to_contain_text("the next")
    expect(answer).to_contain_text("throughput of reverse is")
    # The number of the sentence is the greatest mean, in its unit.
    told = re.search(r": ([\d.]+)(?:, ([\d.]+))? (k|M)bit/s, 2 runs", answer.inner_text())
    assert told is not None
    values = [float(value) * {"k": 1e3, "M": 1e6}[told[3]] for value in told.groups()[:2] if value]
    assert sum(values) / len(values) == pytest.approx(best_of(simulated)["forward"], rel=0.01)
    figure = page.locator("#live-tradeoff")
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".u-wrap canvas")).to_be_visible()
    expect(figure).to_contain_text("Pareto edge")


def test_which_of_two_is_better(page: Page, address: str, simulated: Simulated) -> None:
    point = f"point={simulated.campaign['campaign']}"
    page.goto(f"{address}/compare?{point}:0&{point}:2")
    sentence = page.locator("p.answer").first
    expect(sentence).to_contain_text("policy=droptail, rate=128 kbit/s against policy=droptail, rate=9.6 kbit/s, of")
    expect(sentence).to_contain_text(re.compile(r"of \d+ metrics: .*(better|worse|cannot be told apart)"))
    expect(page.locator("#main")).to_contain_text("exploratory metrics share it among themselves")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]


def test_why_are_runs_invalid(page: Page, serve: Callable[[Path], str], tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    campaign(store)
    for number, late in ((0, "2"), (1, "3.5")):
        folder = tmp_path / f"{number:024x}"
        folder.mkdir()
        documents = Documents(two_hosts(seed=number, duration_s=1.0), {})
        store.land(Landing(folder.name, "sim", documents, [], [f"bottleneck forward left {late} ms late"], 1, folder))
    page.goto(serve(tmp_path / "results"))
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    cause = page.get_by_role("listitem").filter(has_text="bottleneck forward left")
    expect(cause).to_have_count(1)
    cause.get_by_role("link", name="2 runs of Own").click()
    page.wait_for_url("**/explore?state=invalid#runs")
    expect(page.locator("tr[data-run]")).to_have_count(2)
    expect(page.locator("tr[data-run]").first).to_contain_text("bottleneck forward left 2 ms late")


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


def test_what_does_a_link_with_an_old_metric_show(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}{simulated.address}?metric=throughtput/forward")
    expect(page.get_by_role("alert")).to_contain_text("Unknown metric 'throughtput/forward'")
    expect(page.get_by_role("alert")).to_contain_text("It is left out.")
    expect(page.locator("#live-figure .u-wrap canvas")).to_be_visible()


@pytest.mark.parametrize("kind", ["home", "campaigns", "campaign", "explorer", "compare", "scorecard", "docs", "guide"])
def test_what_does_a_page_print(page: Page, address: str, simulated: Simulated, kind: str) -> None:
    point = f"point={simulated.campaign['campaign']}"
    paths = {
        "home": "/", "campaign": simulated.address, "explorer": f"{simulated.address}/explore",
        "compare": f"/compare?{point}:0&{point}:1", "guide": "/docs/guide",
    }  # fmt: skip
    page.emulate_media(color_scheme="dark")
    page.goto(address + paths.get(kind, f"/{kind}"))
    settle(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 703, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('h1, h2')).color") == "rgb(28, 35, 33)"
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


def test_two_single_runs_are_compared_without_a_claim(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}/compare?run={simulated.run_id(0)}&run={simulated.run_id(2)}")
    main = page.locator("#main")
    expect(main).to_contain_text("These runs are too few for intervals, so no difference is called better or worse.")
    expect(page.locator("#compare-figure figcaption")).to_contain_text("One run each.")
    expect(main).not_to_contain_text("Holm")
    expect(main).not_to_contain_text("95 % confidence.")
    expect(page.locator("td .word")).to_have_text(["cannot tell"] * page.locator("td .word").count())


def test_what_does_a_campaign_answer_whose_metric_has_no_better_direction(
    page: Page, address: str, simulated: Simulated
) -> None:
    page.goto(f"{address}{simulated.address}?metric=utilisation/bottleneck/forward")
    answer = page.locator("p.answer").first
    expect(answer).to_contain_text(re.compile(r"^Utilisation of bottleneck/forward is highest with policy="))
    expect(answer).to_contain_text(re.compile(r"Against .*, the lowest: .* %, the difference is \+.* points"))
    expect(answer).to_contain_text("utilisation of bottleneck/reverse is")
    figure = page.locator("#live-tradeoff")
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".u-wrap canvas")).to_be_visible()
    # Neither direction has a better end, so there is no Pareto edge to be explained.
    expect(figure).not_to_contain_text("Pareto edge")


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
def test_is_a_table_cut_off(
    page: Page, serve: Callable[[Path], str], simulated: Simulated, tmp_path: Path, kind: str
) -> None:
    capture = captured(simulated.results, tmp_path / "evening.pcap")
    done = backchannel("import", capture, "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    store = Store.open(tmp_path / "results")
    run = store.newest(1)[0].id
    page.goto(f"{serve(tmp_path / 'results')}{'/scorecard' if kind == 'scorecard' else f'/runs/{run}'}")
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
    tables = page.locator(".scroll:has(table):visible")
    beyond = tables.evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert beyond
    assert not any(beyond), beyond
