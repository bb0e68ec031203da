"""The pictures of the site in README and docs: `./backchannel screenshots [FOLDER]`.

Runs the quickstart and a sweep over the return line's rate in virtual time, serves them, and photographs the pages.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from analysis.store import Store
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import load
from experiments.terminal import TerminalReporter
from testbed import node_binary
from tests.waiting import wait_until
from tests.web.conftest import served
from web.app import create_app, warm

SIM = ["backend=sim", "stack=newreno"]
SWEEP = [
    *SIM,
    "sweep.network.reverse.rate=[9.6 kbit/s, 28.8 kbit/s, 64 kbit/s, 128 kbit/s]",
    "repetitions=10",
    # Many runs, whose segments no picture shows.
    "capture={at: [none], telemetry: false, counters: {every: 0.5 s, at: [bottleneck]}}",
    "name=return-rates",
    "title=How fast must the return line be?",
]


def main() -> None:
    """Makes all of them."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else node_binary.ROOT / "docs/images"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        results = Path(name) / "results"
        file = node_binary.ROOT / "experiments/quickstart.yaml"
        for overrides in (SIM, SWEEP):
            reporter = TerminalReporter(Console(stderr=True), quiet=True)
            done = run_campaign(load(file, overrides), Options(results), reporter)
            if done.interrupted or done.failed:
                raise SystemExit("a campaign did not finish: the pictures stay as they were")
        shoot(results, target)


def shoot(results: Path, target: Path) -> None:
    """Serves a folder and photographs its pages."""
    store = Store.open(results)
    sweep, quickstart = (
        next(campaign for campaign in store.campaigns() if campaign.name == name)
        for name in ("return-rates", "quickstart")
    )
    campaign = store.campaign(quickstart.id)
    assert campaign is not None
    runs = {
        dict(point.parameters)["network.reverse.queue.policy"]: point.members[0].run_id for point in campaign.points
    }
    app = create_app(results)
    warm(app)
    compared = "&".join(f"point={sweep.id}:{number}" for number in (1, 5, 9))
    with served(app) as base, sync_playwright() as playwright:
        address = f"{base}/campaigns/{sweep.id}"
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})

        def photograph(name: str, url: str, height: int = 900) -> None:
            page.set_viewport_size({"width": 1200, "height": height})
            page.goto(url)
            settle(page)
            page.screenshot(path=target / f"{name}.png")
            print(target / f"{name}.png")

        photograph("home", base, 760)
        photograph("campaign", f"{address}?metric=throughput/forward", 1150)
        photograph("explorer", f"{address}/explore?metric=throughput/forward", 1100)
        photograph("run", f"{base}/runs/{runs['droptail']}?flow=forward#plots", 1000)
        photograph("compare", f"{base}/compare?{compared}", 1000)
        for name in ("campaigns", "scorecard", "import", "docs"):
            photograph(name, f"{base}/{name}", 760)
        photograph("launch", f"{base}/launch?file=quickstart.yaml", 1050)
        browser.close()


def settle(page: Page) -> None:
    """Returns once every plot and image on screen is drawn, and two frames later."""
    page.wait_for_load_state("load")
    # The site's policy forbids `wait_for_function`, which evaluates text in the page.
    drawn = """() => [...document.querySelectorAll(".plot, img")].every((one) => {
            const isOut = one.getBoundingClientRect().top > innerHeight || one.closest("details:not([open])");
            return isOut || one.complete || one.dataset.drawn === "true"; })"""
    wait_until(lambda: page.evaluate(drawn), "a drawn page")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


if __name__ == "__main__":
    main()
