"""The pictures of the site in README and docs: `./backchannel screenshots [FOLDER]`.

Runs the quickstart and a sweep over the return line's rate in virtual time, serves them, and photographs the pages.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

import waitress
from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from analysis.store import Store
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import load
from experiments.terminal import TerminalReporter
from testbed import node_binary
from web.app import create_app, warm

SIM = ["backend=sim", "stack=newreno"]
SWEEP = [
    *SIM,
    "sweep.network.reverse.rate=[9.6 kbit/s, 28.8 kbit/s, 64 kbit/s, 128 kbit/s]",
    "repetitions=10",
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
    sweep = next(one for one in store.campaigns() if one.name == "return-rates")
    campaign = store.campaign(sweep.id)
    assert campaign is not None
    runs = {tuple(value for _, value in point.parameters): point.members[0].run_id for point in campaign.points}
    app = create_app(results)
    warm(app)
    server = waitress.create_server(app, host="127.0.0.1", port=0, threads=40)
    threading.Thread(target=server.run, daemon=True).start()
    base = f"http://127.0.0.1:{server.effective_port}"
    address = f"{base}/campaigns/{sweep.id}"
    compared = "&".join(f"point={sweep.id}:{number}" for number in (1, 5, 9))
    with sync_playwright() as playwright:
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
        photograph("run", f"{base}/runs/{runs['droptail', '28.8 kbit/s']}?flow=forward#plots", 1000)
        photograph("compare", f"{base}/compare?{compared}", 1000)
        photograph("launch", f"{base}/launch?file=quickstart.yaml", 1050)
        browser.close()
    server.close()


def settle(page: Page) -> None:
    """Until every plot that is on screen stands."""
    page.wait_for_load_state("load")
    # The site's policy forbids `wait_for_function`, which evaluates text in the page.
    drawn = """() => [...document.querySelectorAll(".plot")].every((plot) => {
            const box = plot.getBoundingClientRect();
            return box.top > innerHeight || plot.closest("details:not([open])") || plot.dataset.drawn === "true"; })"""
    for _ in range(600):
        if page.evaluate(drawn):
            break
        page.wait_for_timeout(100)
    else:
        raise TimeoutError("a plot was not drawn within a minute")
    page.wait_for_timeout(300)


if __name__ == "__main__":
    main()
