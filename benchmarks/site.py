"""How fast the site is with ten thousand runs in the store: `./backchannel bench site`.

A store is made of runs that were simulated once and entered many times over, with metrics that vary; one run has
captures of a million segments. Every page is asked for over the loopback interface, from a site served as `serve`
serves it; then a browser opens the long run, and zooms.

Aims: half of the pages within 100 ms, 95 of 100 within 300 ms; the plot 500 ms after its page; the first byte of an
export of 2000 runs within 2 s.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import sqlalchemy as sa
from rich.console import Console

from analysis.store import Store, checksums
from analysis.store.rows import NewCampaign
from analysis.store.schema import file, metric, run
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language import source
from experiments.language.campaign import expand
from experiments.terminal import TerminalReporter
from testbed.local_folders import ScratchFolder
from tests.support.campaign_texts import TWO_WAYS, asymmetric_path
from tests.support.site import served
from web.app import create_app, warm

SEED_CAMPAIGN = f"""
name: seed
title: What the others are copies of
backend: sim
stack: newreno
{asymmetric_path()}{TWO_WAYS}duration: 8 s
"""
#: Campaigns by points and repetitions; ten thousand runs in all.
SHAPES = [(200, 20), (100, 20), (40, 50), *[(10, 10)] * 20]
POLICIES = ("droptail", "ack-filtering", "acks-first", "red", "codel")
SEGMENTS = 1_000_000
SEGMENTS_FILE = "segments.parquet"
#: Classes of a segment that was sent again (docs/traces.md).
RETRANSMITTED = 2 | 4 | 8


def main() -> None:
    """Makes the store, measures, prints."""
    parser = argparse.ArgumentParser(description="How fast the site is with ten thousand runs in the store.")
    parser.add_argument("--rounds", type=int, default=20, help="times that each page is asked for")
    parser.add_argument("--no-browser", action="store_true", help="leave the browser out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with ScratchFolder() as folder:
        said: dict[str, Any] = {}
        began = time.perf_counter()
        ids, long_runs = fill(folder)
        runs = sum(points * repetitions for points, repetitions in SHAPES)
        print(f"{runs} runs in {len(SHAPES)} campaigns, made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        app = create_app(folder)
        warm(app)
        with served(app) as base:
            load = os.getloadavg()[0]
            said["pages"] = pages(base, ids, long_runs[0], given.rounds)
            said["exports"] = exports(base, ids[2])
            said["load"] = load, os.getloadavg()[0]
            if not given.no_browser:
                said["plot"] = browse_(base, ids[0], long_runs)
        print(json.dumps(said, indent=2) if given.json else table(said))


def fill(folder: Path) -> tuple[list[str], list[str]]:
    """Makes the store; gives the campaigns and two runs with a million segments."""
    plan = expand(source.parse("seed.yaml", SEED_CAMPAIGN))
    run_campaign(plan, Options(folder), TerminalReporter(Console(stderr=True), quiet=True))
    store = Store.open(folder)
    model = store.run(plan.runs[0].id)
    assert model is not None
    draws = random.Random(1)
    campaigns = []
    number = 0
    for count, (points, repetitions) in enumerate(SHAPES):
        parameters = [
            [
                ("network.reverse.queue.policy", POLICIES[n % 5]),
                ("network.reverse.rate", f"{9.6 + 4 * (n // 5):g} kbit/s"),
            ]
            for n in range(points)
        ]
        members = []
        rows, metrics, files = [], [], []
        for point in range(points):
            for repetition in range(repetitions):
                number += 1
                run_id = f"{number:024x}"
                members.append((point, repetition, run_id))
                bad = draws.random() < 0.01
                rows.append(
                    {
                        **{key: getattr(model, key) for key in ("backend", "duration_s", "attempt")},
                        "scenario": model.documents.scenario_document,
                        "manifest": model.documents.manifest_document,
                        "id": run_id,
                        "seed": repetition,
                        "state": "invalid" if bad else "valid",
                        "problems": ["bottleneck forward left 3 ms late"] if bad else [],
                        "landed": time.time() + number,
                    }
                )
                metrics += [
                    {
                        "run_id": run_id,
                        "name": metric.name,
                        "subject": metric.subject,
                        "unit": metric.unit,
                        "value": metric.value * (1 + 0.02 * point) * draws.gauss(1, 0.05),
                    }
                    for metric in model.metrics
                ]
                files += [
                    {key: getattr(file, key) for key in ("path", "bytes", "sha256")} | {"run_id": run_id}
                    for file in model.files
                ]
        new = NewCampaign(
            id=f"{count:016x}",
            name=f"bench-{count}",
            title=f"Benchmark campaign {count}",
            file="bench.yaml",
            text=SEED_CAMPAIGN,
            overrides={},
            backend="sim",
            seed=1,
            repetitions=repetitions,
        )
        store.begin_campaign(new, parameters, members)
        with store.writing() as connection:
            sums = dict.fromkeys(("documents_sum", "metrics_sum", "files_sum", "checksum"), 0)
            connection.execute(sa.insert(run), [row | sums for row in rows])
            connection.execute(sa.insert(metric), [row | {"checksum": 0} for row in metrics])
            connection.execute(sa.insert(file), files)
        store.end_campaign(new.id, complete=True)
        campaigns.append(new.id)
    long_runs = [f"{n:024x}" for n in (1, 40)]
    for long_run in long_runs:
        shutil.copytree(store.run_folder(model.id), store.folder_of_run(long_run))
        stretch(store.folder_of_run(long_run))
    with store.writing() as connection:
        for long_run in long_runs:
            data = (store.folder_of_run(long_run) / SEGMENTS_FILE).read_bytes()
            statement = sa.update(file).where(file.c.run_id == long_run, file.c.path == SEGMENTS_FILE)
            connection.execute(statement.values(bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
        connection.execute(sa.update(run).where(run.c.id.in_(long_runs)).values(state="valid", problems=[]))
        checksums.seal_all(connection)
    for ordinary in (f"{n:024x}" for n in range(2, 40)):
        shutil.copytree(store.run_folder(model.id), store.folder_of_run(ordinary))
    store.close()
    return campaigns, long_runs


def stretch(folder: Path) -> None:
    """Makes the captures of both hosts ones of a million segments: the run's own, over and over, closer together."""
    path = folder / SEGMENTS_FILE
    segments = pl.read_parquet(path)
    summary = json.loads((folder / "summary.json").read_text())
    numbers = [entry["file"] for entry in summary["files"] if entry["label"] in ("server-eth0", "client-eth0")]
    mine, others = segments.filter(pl.col("file").is_in(numbers)), segments.filter(~pl.col("file").is_in(numbers))
    times = -(-SEGMENTS // mine.filter(pl.col("file") == numbers[0]).height)
    first, last = mine.select(pl.col("time_ns").min().alias("first"), pl.col("time_ns").max().alias("last")).row(0)
    span = last - first
    top = int(mine.select((pl.col("seq") + pl.col("payload")).max()).item())
    # Marks all stay, whatever their number: one transfer's losses are enough for the whole.
    innocent = pl.col("class") & ~pl.lit(RETRANSMITTED, dtype=pl.UInt16)
    copies = [
        mine.with_columns(
            ((pl.col("time_ns") - first) // times + first + n * (span // times)).alias("time_ns"),
            (pl.col("seq") + n * top).alias("seq"),
            pl.when(pl.col("ack") >= 0).then(pl.col("ack") + n * top).otherwise(-1).alias("ack"),
            (pl.col("class") if n == 0 else innocent).alias("class"),
        ).filter((pl.col("class") & RETRANSMITTED == 0) | (n == 0))
        for n in range(times)
    ]
    pl.concat([*copies, others]).sort("file", "time_ns", maintain_order=True).write_parquet(path)


def pages(base: str, campaigns: list[str], long_run: str, rounds: int) -> list[dict[str, Any]]:
    """Times of every page in ms, over an own connection each, in turn.

    Beside wall time stands the CPU time of the site: of this process without the thread that asks, which on a machine
    with other work says what a page costs.
    """
    large, middle = campaigns[0], campaigns[2]
    asked = {
        "home": "/",
        "campaigns": "/campaigns",
        "campaigns, searched": "/campaigns?q=benchmark+7",
        "campaign of 4000 runs": f"/campaigns/{large}",
        "explorer of 4000 runs": f"/campaigns/{large}/explore",
        "the same, as single runs": f"/campaigns/{large}/explore?kind=dots&metric=goodput/forward",
        "the same, sorted by a metric": f"/campaigns/{large}/explore?sort=throughput/forward&order=desc&page=7",
        "the same, searched": f"/campaigns/{large}/explore?q=acks-first&state=invalid",
        "campaign of 2000 runs": f"/campaigns/{middle}",
        "figure as PDF": f"/campaigns/{large}/figure.pdf",
        "run": f"/runs/{2:024x}",
        "run of a million segments": f"/runs/{long_run}",
        "compare two points": f"/compare?point={large}:0&point={large}:7",
        "compare four runs": "/compare?" + "&".join(f"run={n:024x}" for n in range(2, 6)),
        "scorecard": "/scorecard",
        "launch": "/launch",
        "import": "/import",
        "docs": "/docs",
    }
    result: list[dict[str, Any]] = []
    complete: list[Answer] = []
    for name, path in asked.items():
        answers = [fetch(base + path) for _ in range(rounds)]
        complete += answers
        result.append({"page": name, **summary(answers)})
    worst = {key: max(entry[key] for entry in result) for key in ("first_ms", "first_cpu_ms")}
    result.append({"page": "all", **summary(complete), **worst})
    return result


class Answer(NamedTuple):
    """Costs of one request: wall time, and CPU time of the site, ms."""

    wall_ms: float
    cpu_ms: float


def site_cpu_s() -> float:
    """CPU time of all threads of this process but the calling one."""
    return time.process_time() - time.thread_time()


def fetch(address: str) -> Answer:
    """Requests a page and reads all of it."""
    began, cpu = time.perf_counter(), site_cpu_s()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return Answer((time.perf_counter() - began) * 1e3, (site_cpu_s() - cpu) * 1e3)


def summary(answers: list[Answer]) -> dict[str, float]:
    """First, median and 95th percentile of wall and CPU time."""
    result = {"first_ms": answers[0].wall_ms, "first_cpu_ms": answers[0].cpu_ms}
    for prefix, times in (("", [one.wall_ms for one in answers]), ("cpu_", [one.cpu_ms for one in answers])):
        result |= {f"{prefix}{key}": value for key, value in spread(times).items()}
    return result


def exports(base: str, campaign: str) -> list[dict[str, Any]]:
    """Of each export of a campaign of 2000 runs: time to the first byte and to the last, and its size."""
    result = []
    paths = {
        "JSON": f"/api/campaigns/{campaign}",
        "means, CSV": f"/campaigns/{campaign}.csv",
        "runs, CSV": f"/campaigns/{campaign}/runs.csv",
    }
    for name, path in paths.items():
        began, cpu = time.perf_counter(), site_cpu_s()
        with urllib.request.urlopen(base + path) as answer:
            first = answer.read(1)
            first_s, first_cpu_s = time.perf_counter() - began, site_cpu_s() - cpu
            size = len(first) + len(answer.read())
        costs = {"whole_s": time.perf_counter() - began, "whole_cpu_s": site_cpu_s() - cpu}
        result.append(
            {"export": name, "first_byte_s": first_s, "first_byte_cpu_s": first_cpu_s, **costs, "bytes": size}
        )
    return result


def spread(times: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    ordered = sorted(times)
    return {"median_ms": statistics.median(ordered), "p95_ms": ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]}


def browse_(base: str, campaign: str, long_runs: list[str]) -> dict[str, Any]:
    """Opens the long runs in a browser: when their plots stand, and how long zooming takes.

    The first is the first page of a browser that was just started. To the second one comes from its campaign's page, as
    people do; nobody has asked for its segments before.
    """
    from playwright.sync_api import Page, sync_playwright

    def appears_ms(page: Page, run_id: str) -> float:
        page.goto(f"{base}/runs/{run_id}?flow=forward", wait_until="commit")
        page.wait_for_selector('.plot[data-kind="sequence"][data-drawn="true"] canvas')
        return float(
            page.evaluate(
                """performance.getEntriesByName("drawn sequence")[0].startTime
                - performance.getEntriesByType("navigation")[0].responseEnd"""
            )
        )

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        started_ms = appears_ms(page, long_runs[0])
        page.goto(f"{base}/campaigns/{campaign}", wait_until="load")
        first_ms = appears_ms(page, long_runs[1])
        again = [appears_ms(page, long_runs[1]) for _ in range(5)]
        zooms = []
        for _ in range(14):
            zooms.append(
                page.evaluate(
                    """async () => { const t = performance.now(); zoom(0.4);
                    await new Promise((done) => {
                      const shown = () => plots[0].holder.dataset.shown === view.join(" ");
                      const wait = () => (shown() ? done() : requestAnimationFrame(wait));
                      wait(); });
                    return performance.now() - t - 120; }"""
                )
            )
        points = page.evaluate("plots[0].chart.data[0].length")
        browser.close()
    return {
        "browser_started_ms": started_ms,
        "first_ms": first_ms,
        "again_ms": statistics.median(again),
        "zoom_median_ms": statistics.median(zooms),
        "zoom_worst_ms": max(zooms),
        "points_at_the_deepest": points,
    }


def table(said: dict[str, Any]) -> str:
    """For people."""
    one, of = said["load"]
    lines = [
        f"load {one:.1f} before, {of:.1f} after, on {os.cpu_count()} CPUs; CPU time is the site's\n",
        f"{'':32}{'wall, ms (aims: 100, 300)':>30}{'CPU, ms':>30}",
        f"{'page':32}" + f"{'first':>10}{'median':>10}{'p95':>10}" * 2,
    ]
    for entry in said["pages"]:
        keys = ("first_ms", "median_ms", "p95_ms", "first_cpu_ms", "cpu_median_ms", "cpu_p95_ms")
        lines.append(f"{entry['page']:32}" + "".join(f"{entry[key]:10.1f}" for key in keys))
    lines.append(f"\n{'':32}{'wall, s (aim: first byte 2)':>30}{'CPU, s':>24}")
    lines.append(f"{'export of 2000 runs':32}{'first byte':>20}{'whole':>10}{'first byte':>14}{'whole':>10}{'MB':>10}")
    for entry in said["exports"]:
        wall = f"{entry['first_byte_s']:20.2f}{entry['whole_s']:10.1f}"
        cpu = f"{entry['first_byte_cpu_s']:14.2f}{entry['whole_cpu_s']:10.1f}"
        lines.append(f"{entry['export']:32}{wall}{cpu}{entry['bytes'] / 1e6:10.1f}")
    if "plot" in said:
        plot = said["plot"]
        lines.append(
            f"\na million segments: the plot stands {plot['first_ms']:.0f} ms after its page when nobody opened the "
            f"run before (aim 500), {plot['again_ms']:.0f} ms later on; in a browser that was started for it "
            f"{plot['browser_started_ms']:.0f} ms; a step of zoom takes {plot['zoom_median_ms']:.0f} ms, at worst "
            f"{plot['zoom_worst_ms']:.0f}; after 14 steps {plot['points_at_the_deepest']} points are in view"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
