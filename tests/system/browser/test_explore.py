"""The explorer: its figures and tables have the same numbers, and a person finds runs with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.simulated import Simulated, ran
from tests.support.site import SWEEP, on_both
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow("one figure in a browser in every layout"), pytest.mark.browser, on_both]


TWO_QUANTITIES = (
    SWEEP.replace("name: sweep", "name: two")
    .replace("8 s", "3 s")
    .replace(
        "repetitions: 2",
        "  network.reverse.queue.limit: [5 packets, 10 packets, 30 packets]\nrepetitions: 1\n"
        "capture: {at: [none], telemetry: false, counters: {every: 0.5 s, at: [bottleneck]}}",
    )
)
RATE, POLICY = "network.reverse.rate", "network.reverse.queue.policy"


def test_a_person_finds_runs_with_the_explorer(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(address + simulated.address)
    page.get_by_role("link", name="Explore 12 runs").click()
    panels, status = page.locator(".panel"), page.locator("#runs [role=status]")
    expect(panels).to_have_count(1)
    expect(status).to_have_text("12 runs")
    # A field is dragged from the colours to columns of panels.
    field = page.locator(f'[data-field="{POLICY}"]')
    expect(page.locator("#slot-colour")).to_have_value(POLICY)
    field.drag_to(page.locator('[data-slot="column"]'))
    expect(panels).to_have_count(2)
    expect(page.locator("#slot-colour")).to_have_value("none")
    # A chip filters; the keyboard stays where it was.
    chip = page.locator(f'[data-field="{RATE}"]')
    chip.locator("summary").click()
    chip.get_by_label("9.6 kbit/s").check()
    expect(status).to_have_text("4 runs")
    expect(chip.get_by_label("9.6 kbit/s")).to_be_focused()
    assert f"fix.{RATE}=9.6" in page.url
    # Everything is in the address.
    page.reload()
    expect(panels).to_have_count(2)
    expect(status).to_have_text("4 runs")
    page.go_back()
    expect(status).to_have_text("12 runs")
    page.go_back()
    expect(panels).to_have_count(1)


def test_a_view_is_saved_opened_and_removed(page: Page, address: str, simulated: Simulated) -> None:
    explorer = f"{address}{simulated.address}/explore"
    page.goto(f"{explorer}?kind=effects")
    views = page.locator("#views")
    views.locator("summary").click()
    page.get_by_label("Name of this view").fill("what matters")
    page.get_by_role("button", name="Save this view").click()
    expect(views.get_by_role("link", name="what matters")).to_be_visible()
    # Of this campaign, in this browser, also later.
    page.goto(explorer)
    expect(page.locator("select[name=kind]")).to_have_value("means")
    views.locator("summary").click()
    views.get_by_role("link", name="what matters").click()
    expect(page.locator("select[name=kind]")).to_have_value("effects")
    page.reload()
    views.locator("summary").click()
    page.get_by_role("button", name="Remove the view what matters").click()
    expect(views.get_by_role("link")).to_have_count(0)
    page.reload()
    views.locator("summary").click()
    expect(views.get_by_role("link")).to_have_count(0)


@pytest.fixture(scope="module")
def rates_and_limits(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """A sweep over two fields of quantities and one of names, with counters alone."""
    return ran(tmp_path_factory.mktemp("two"), "two.yaml", TWO_QUANTITIES)


@pytest.mark.parametrize("slot", ["x", "colour", "row", "column"])
def test_a_field_is_dragged_to_each_place(page: Page, address: str, simulated: Simulated, slot: str) -> None:
    page.goto(f"{address}{simulated.address}/explore?kind=dots&x=none&colour=none&row=none&column=none")
    place = page.locator(f"#slot-{slot}")
    expect(place).to_have_value("none")
    chip = page.locator(f'[data-field="{RATE}"]')
    chip.drag_to(page.locator(f'[data-slot="{slot}"]'))
    expect(place).to_have_value(RATE)
    expect(page).to_have_url(re.compile(rf"[?&]{slot}={RATE}"))
    # The figure has the field there.
    if slot in ("row", "column"):
        expect(page.locator(".panel")).to_have_count(3)
        expect(page.locator(".panel figcaption").first).to_contain_text("9.6 kbit/s")
    else:
        wanted = '"label":"reverse.rate"' if slot == "x" else '"name":"rate 9.6 kbit/s"'
        wait_until(
            lambda: wanted in str(page.locator(".panel script").first.text_content()).replace(": ", ":"),
            "the figure",
            10,
        )
    # It trades places with a field that it is dropped on.
    page.locator(f'[data-field="{POLICY}"]').drag_to(page.locator(f'[data-slot="{slot}"]'))
    expect(place).to_have_value(POLICY)


def test_two_fields_of_quantities_are_a_heatmap_in_small_multiples(
    page: Page, serve: Callable[[Path], str], rates_and_limits: Simulated
) -> None:
    page.goto(f"{serve(rates_and_limits.results)}{rates_and_limits.address}")
    page.get_by_role("link", name="Explore 18 runs").click()
    expect(page.locator("#kind")).to_have_value("heatmap")
    expect(page.locator(".panel")).to_have_count(2)
    expect(page.locator(".panel figcaption")).to_contain_text(["droptail", "acks-first"])
    places = [panel.bounding_box() for panel in page.locator(".panel").all()]
    assert all(places)
    aside, below = (abs(places[0][key] - places[1][key]) for key in ("x", "y"))  # type: ignore[index]
    # Beside each other; below each other on a phone.
    assert (aside > 100, below > 100) == ((True, False) if page.viewport_size["width"] > 900 else (False, True))  # type: ignore[index]
    # Every cell has the mean of its runs, as the table of the figures' means.
    drawn = page.evaluate(
        """() => [...document.querySelectorAll(".panel script")].flatMap((one) => JSON.parse(one.textContent).series)
        .filter((one) => one.kind === "cells").flatMap((one) => one.label).map(Number).sort((a, b) => a - b)"""
    )
    assert len(drawn) == 18
    metrics = [
        next(row["mean"] for row in point["metrics"] if (row["name"], row["subject"]) == ("throughput", "forward"))
        for point in rates_and_limits.campaign["points"]
    ]
    assert drawn == pytest.approx(sorted(value / 1e6 for value in metrics), rel=0.01)


@pytest.mark.parametrize(
    ("kind", "panels"), [("means", 1), ("dots", 1), ("box", 1), ("ecdf", 1), ("effects", 2), ("heatmap", 1)]
)
def test_every_view_is_chosen_and_drawn(page: Page, address: str, simulated: Simulated, kind: str, panels: int) -> None:
    # From another view, so that each of them is a change.
    page.goto(f"{address}{simulated.address}/explore?kind={'dots' if kind == 'means' else 'means'}")
    expect(page.locator(".panel .u-wrap canvas").first).to_be_visible()
    page.locator("#kind").select_option(kind)
    page.wait_for_url(re.compile(f"kind={kind}"))
    expect(page.locator(".panel")).to_have_count(panels)
    expect(page.locator(".panel .u-wrap canvas")).to_have_count(panels)
    drawn = page.evaluate(
        """() => [...new Set([...document.querySelectorAll(".panel script")]
        .flatMap((one) => JSON.parse(one.textContent).series)
        .filter((one) => one.x.length).map((one) => one.kind))]"""
    )
    wanted = {"means": "line", "dots": "points", "box": "bars", "ecdf": "steps", "effects": "bars", "heatmap": "cells"}
    assert wanted[kind] in drawn or (kind == "box" and "segments" in drawn), drawn
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]


def test_metrics_are_grouped_and_named_for_people(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}{simulated.address}/explore")
    groups = page.locator("#metric optgroup").evaluate_all("(all) => all.map((one) => one.label)")
    # Directions first, lines last.
    assert groups[:2] == ["forward", "reverse"]
    assert groups.index("whole run") < min(groups.index(name) for name in groups if "/" in name)
    names = page.locator("#metric optgroup").first.locator("option").all_inner_texts()
    assert "Throughput, forward (bit/s)" in names
    assert not [name for name in names if "_" in name]


def test_figure_and_table_show_each_others_runs(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}{simulated.address}/explore?kind=dots&x={RATE}&colour=none&row=none&column=none")
    board, status = page.locator(".panel .board"), page.locator("#runs [role=status]")
    over = board.locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 52, steps=4)
    page.mouse.up()
    expect(status).to_have_text("4 runs")
    expect(page.locator("#runs tbody tr")).to_have_count(4)
    assert "box=0" in page.url
    page.get_by_role("link", name="Show all runs").click()
    expect(status).to_have_text("12 runs")
    # A row rings its mark.
    canvas = page.locator(".panel .u-wrap canvas")
    plain = canvas.evaluate("(c) => c.toDataURL()")
    page.locator("#runs tbody tr").nth(3).hover()
    wait_until(lambda: canvas.evaluate("(c) => c.toDataURL()") != plain, "a ringed mark")
    # A mark names its row; a click on it opens the run.
    x, y, run = page.evaluate(
        """() => { const holder = document.querySelector(".panel");
        const one = JSON.parse(holder.querySelector("script").textContent).series[0];
        const v = JSON.parse(holder.querySelector(".board").dataset.view);
        const { clientWidth: wide, clientHeight: high } = holder.querySelector(".u-over");
        const share = (value, [low, high]) => (value - low) / (high - low);
        return [share(one.x[0], v.x) * wide, (1 - share(one.y[0], v.y)) * high, one.run[0]];
        }"""
    )
    over.hover(position={"x": x, "y": y})
    expect(page.locator("#runs tr.near")).to_have_attribute("data-run", run)
    over.click(position={"x": x, "y": y})
    page.wait_for_url(f"**/runs/{run}")


def test_runs_are_pinned_sorted_and_shown_with_other_columns(page: Page, address: str, simulated: Simulated) -> None:
    page.goto(f"{address}{simulated.address}/explore")
    rows = page.locator("#runs tbody tr")
    last = rows.nth(11)
    pinned = str(last.get_attribute("data-run"))
    last.get_by_role("link", name="Pin run").click()
    expect(page.locator("tr.pinned")).to_have_attribute("data-run", pinned)
    page.locator("#runs").get_by_role("link", name="reverse.rate").click()
    expect(page.locator('th[aria-sort="ascending"]')).to_contain_text("reverse.rate")
    expect(page.locator("tr.pinned")).to_have_count(1)
    expect(rows.nth(1)).to_contain_text("9.6 kbit/s")
    page.locator("#columns summary").click()
    page.locator("#columns").get_by_label("Packet throughput").first.check()
    expect(page.locator("#runs thead")).not_to_contain_text("Goodput")
    page.get_by_label("State").select_option("invalid")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    page.reload()
    expect(page.locator("tr.pinned")).to_have_attribute("data-run", pinned)
    page.get_by_role("link", name="Unpin run").click()
    expect(page.locator("tr.pinned")).to_have_count(0)


def test_a_note_is_found_by_tag(page: Page, serve: Callable[[Path], str], simulated: Simulated, tmp_path: Path) -> None:
    shutil.copytree(simulated.results, tmp_path / "results")
    address, run = serve(tmp_path / "results"), simulated.run_id(2)
    page.goto(f"{address}/runs/{run}")
    page.get_by_text("Write a note").click()
    page.get_by_label("Tags").fill("odd, look-again odd")
    page.get_by_label("Note", exact=True).fill("<b>Why</b> does it wait?")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("Note saved.")).to_be_visible()
    page.goto(f"{address}{simulated.address}/explore")
    expect(page.locator(f'#runs tr[data-run="{run}"]')).to_contain_text("<b>Why</b> does it wait?")
    page.get_by_label("Tag", exact=False).last.select_option("look-again")
    expect(page.locator("#runs [role=status]")).to_have_text("1 run")
    stored = page.request.get(f"{address}/api/runs/{run}").json()["note"]
    assert (stored["tags"], stored["text"]) == (["odd", "look-again"], "<b>Why</b> does it wait?")
    page.goto(f"{address}/runs/{run}")
    page.get_by_label("Tags").fill("")
    page.get_by_label("Note", exact=True).fill("")
    page.get_by_role("button", name="Keep").click()
    assert page.request.get(f"{address}/api/runs/{run}").json()["note"] is None
