"""The pictures of the site in README and docs: `./backchannel screenshots [FOLDER]`.

Runs the quickstart and a sweep over the return line's rate in virtual time, imports a capture, executes a request,
starts a session, which needs root, and photographs every kind of page.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright
from rich.console import Console

from analysis.store import Store, requests
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language.campaign import load
from experiments.terminal import TerminalReporter
from testbed import node_binary
from tests.conftest import backchannel
from tests.support.site import captured, served
from tests.support.waiting import wait_until
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
#: What the pictures' request varies: enough runs to be photographed while they land.
LIVE = [entry.replace("return-rates", "more-rates").replace("repetitions=10", "repetitions=200") for entry in SWEEP]
QUICKSTART = node_binary.ROOT / "experiments/quickstart.yaml"


def main() -> None:
    """Makes all of them."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else node_binary.ROOT / "docs/images"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        results = Path(name) / "results"
        for overrides in (SIM, SWEEP):
            reporter = TerminalReporter(Console(stderr=True), quiet=True)
            done = run_campaign(load(QUICKSTART, overrides), Options(results), reporter)
            if done.interrupted or done.failed:
                raise SystemExit("a campaign did not finish: the pictures stay as they were")
        capture = captured(results, Path(name) / "evening.pcap")
        ended = backchannel("import", capture, "--results", results)
        if ended.returncode:
            raise SystemExit(ended.stderr)
        shoot(results, target)


def shoot(results: Path, target: Path) -> None:
    """Serves a folder and photographs its pages."""
    store = Store.open(results)
    imports = next(campaign for campaign in store.campaigns() if campaign.backend == "import")
    imported = store.campaign(imports.id)
    assert imported is not None
    ids = {campaign.name: campaign.id for campaign in store.campaigns()}
    sweep, campaign = (store.campaign(ids[name]) for name in ("return-rates", "quickstart"))
    assert sweep is not None
    assert campaign is not None
    runs = {
        dict(point.parameters)["network.reverse.queue.policy"]: point.members[0].run_id for point in campaign.points
    }
    app = create_app(results)
    warm(app)
    compared = "&".join(f"point={sweep.id}:{number}" for number in (1, 5, 9))
    with served(app) as base, sync_playwright() as playwright:
        address = f"{base}/campaigns/{sweep.id}"
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})

        def photograph(name: str, url: str, height: int = 900, until: str = "") -> None:
            page.set_viewport_size({"width": 1200, "height": height})
            page.goto(url)
            if until:
                expect(page.locator(until).first).to_contain_text("bit/s", timeout=30_000)
            settle(page)
            write(page.screenshot(), target / f"{name}.png")

        photograph("home", base, 760)
        photograph("campaign", f"{address}?metric=throughput/forward", 1150)
        photograph("explorer", f"{address}/explore?metric=throughput/forward", 1100)
        photograph("run", f"{base}/runs/{runs['droptail']}?flow=forward#plots", 1000)
        photograph("compare", f"{base}/compare?{compared}", 1000)
        for name in ("campaigns", "scorecard", "import", "docs"):
            photograph(name, f"{base}/{name}", 760)
        photograph("launch", f"{base}/launch?file=quickstart.yaml", 1050)
        photograph("guide", f"{base}/docs/guide", 900)
        photograph("imported", f"{base}/runs/{imported.points[0].members[0].run_id}", 1100)
        photograph("effects", f"{address}/explore?metric=throughput/forward&kind=effects", 700)
        photograph("counters", f"{base}/runs/{sweep.points[0].members[0].run_id}#plots", 700)
        photograph("error", f"{base}/runs/none", 300)
        photograph("upload", failed_upload(page, base, results.parent), 300)
        for name, path, token in (("first", "/", ""), ("enter", "/enter", "t" * 16)):
            with served(create_app(results.parent / name, token=token)) as other:
                photograph(name, other + path, 420)
        with session(results):
            photograph("sessions", f"{base}/sessions", 900, until="[data-direction=reverse] [data-now=throughput]")
        known = sum(len(point.members) for point in sweep.points)
        number = requests.ask_run(store, "return-rates.yaml", QUICKSTART.read_text(), LIVE, force=False)
        with runner(results):
            wait_until(lambda: landed_of(store, number) > known + 60, "runs of the request", 120)
            photograph("request", f"{base}/requests/{number}", 1100)
        browser.close()


def failed_upload(page: Page, base: str, folder: Path) -> str:
    """Sends a text as if it was a capture; the address of what became of it."""
    (folder / "letter.txt").write_text("Dear network,\n")
    page.goto(f"{base}/import")
    page.locator("#capture").set_input_files(folder / "letter.txt")
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#told.bad")).not_to_be_empty(timeout=30_000)
    page.goto(f"{base}/import")
    return base + str(page.get_by_role("link", name="letter.txt").get_attribute("href"))


def write(picture: bytes, path: Path) -> None:
    """Writes a picture with a palette of 256 colours, which takes half of the bytes."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def landed_of(store: Store, number: int) -> int:
    """Valid runs of a request's campaign."""
    asked = requests.find(store, number)
    campaign = store.campaign_head(asked.campaign_id) if asked and asked.campaign_id else None
    return campaign.valid if campaign else 0


@contextmanager
def runner(results: Path) -> Iterator[None]:
    """A runner that executes what is requested."""
    command = [sys.executable, "-m", "experiments", "serve", "runner", "--results", str(results), "--jobs", "1"]
    process = subprocess.Popen(command, cwd=node_binary.ROOT, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextmanager
def session(results: Path) -> Iterator[None]:
    """A host that pings through a line."""
    pings = ["ping", "-q", "-i", "0.1", "-s", "1000", "server"]
    options: list[str | Path] = ["--network", QUICKSTART, "--results", results, "--time-limit", "30"]
    command = [node_binary.ROOT / "backchannel", "shell", *options, "--", *pings]
    process = subprocess.Popen(command, cwd=node_binary.ROOT, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        # It ends by its limit.
        process.wait(120)


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
