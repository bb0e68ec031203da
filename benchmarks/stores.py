"""How long commands take with many runs in a results folder: `./backchannel bench stores`.

A campaign's runs are entered as copies of one that was simulated, with the ids of the campaign and values that vary, so
that `run` finds all of them made. Aims: two seconds for each command, or progress.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from rich.console import Console

from analysis.metrics.registry import METRICS
from analysis.store import Store, checksums
from analysis.store.rows import MetricRow, NewCampaign, RunRow
from analysis.store.schema import metric, run
from benchmarks.usage import timed
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language import source
from experiments.language.campaign import Plan, expand
from experiments.terminal import TerminalReporter
from testbed.local_folders import ScratchFolder
from tests.support.postgresql import on_loopback
from web.app import create_app

REPETITIONS = 100
#: Runs whose rows are inserted together.
TOGETHER = 1000
CAMPAIGN = """\
name: stores
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 10 ms}
  reverse: {rate: 1 Mbit/s, delay: 10 ms}
stack: newreno
workload:
  - {name: download, from: server, to: client, start: [0 s, 0.2 s]}
  - {name: upload, from: client, to: server, start: [0 s, 0.2 s]}
duration: 2 s
capture: {at: [none], telemetry: false, counters: {every: 0.5 s}}
"""


def campaign(runs: int) -> str:
    """The text of a campaign with so many runs."""
    delays = ", ".join(f"{10 + number} ms" for number in range(runs // REPETITIONS))
    return f"{CAMPAIGN}repetitions: {REPETITIONS}\nsweep: {{network.forward.delay: [{delays}]}}\n"


def fill(place: str | Path, artefacts: str | None, plan: Plan, metrics: int | None, runs: int | None = None) -> None:
    """Makes the store: one run, and copies of it for the others.

    Args:
        place: the folder, or the URL of a server.
        artefacts: URL of files beside a server.
        plan: of the campaign.
        metrics: of each run; None: all of them.
        runs: so many with ids that no plan has, which takes a tenth of the time; None: those of the plan.
    """
    options = Options(place, only=[plan.runs[0].id], artefacts=artefacts)
    run_campaign(plan, options, TerminalReporter(Console(stderr=True), quiet=True))
    with Store.open(place, artefacts) as store:
        model = store.run(plan.runs[0].id)
        assert model is not None
        kept = sorted(model.metrics, key=lambda row: row.name not in METRICS or not METRICS[row.name].column)[:metrics]
        draws = random.Random(1)
        points = [list(point.parameters.items()) for point in plan.points]
        new = [(member.point, member.repetition, member.id) for member in plan.members]
        if runs is not None:
            new = [(at // REPETITIONS, at % REPETITIONS, f"{draws.getrandbits(96):024x}") for at in range(runs)]
            new[0] = (0, 0, model.id)
            points = [[("network.forward.delay", f"{10 + number} ms")] for number in range(runs // REPETITIONS)]
        others = [(number, run_id) for number, (_, _, run_id) in enumerate(new) if run_id != model.id]
        for start in range(0, len(others), TOGETHER):
            some = others[start : start + TOGETHER]
            values = {run_id: [_metric_row(row, run_id, draws) for row in kept] for _, run_id in some}
            sums = {run_id: sum(row["checksum"] for row in rows) for run_id, rows in values.items()}
            with store.writing() as connection:
                connection.execute(sa.insert(run), [_run_row(model, at, run_id, sums[run_id]) for at, run_id in some])
                connection.execute(sa.insert(metric), [row for rows in values.values() for row in rows])
        entered = NewCampaign(
            id=plan.id,
            name=plan.name,
            title=plan.title,
            file=plan.file,
            text=plan.text,
            overrides={},
            backend=plan.backend,
            seed=plan.seed,
            repetitions=plan.repetitions,
        )
        store.begin_campaign(entered, points, new)
        store.end_campaign(plan.id, complete=True)


def _run_row(model: RunRow, number: int, run_id: str, metrics_sum: int) -> dict[str, Any]:
    scenario, manifest = model.documents.scenario_document, model.documents.manifest_document
    values = (
        model.backend,
        number % REPETITIONS,
        model.duration_s,
        model.state,
        list(model.problems),
        model.attempt,
        model.landed + number * 1e-3,
        checksums.of_documents(scenario, manifest),
        metrics_sum,
        0,
    )
    columns = {column.name: value for column, value in zip(checksums.OF_RUN, values, strict=True)}
    checksum = checksums.of_run(run_id, values)
    return {"id": run_id, **columns, "scenario": scenario, "manifest": manifest, "checksum": checksum}


def _metric_row(row: MetricRow, run_id: str, draws: random.Random) -> dict[str, Any]:
    values = (run_id, row.name, row.subject, row.value * draws.gauss(1, 0.05), row.unit)
    columns = {column.name: value for column, value in zip(checksums.OF_METRIC, values, strict=True)}
    return {**columns, "checksum": checksums.of(*values)}


def pages(place: str | Path, artefacts: str | None) -> None:
    """Prints what pages of the site take, asked for twice: a site keeps what it has computed."""
    if artefacts:
        os.environ["BACKCHANNEL_ARTEFACTS"] = artefacts
    with Store.open(place, artefacts) as store:
        (campaign_row,) = store.campaigns(counted=False)
    client = create_app(place).test_client()
    for what, path in (
        ("home", "/"),
        ("campaigns", "/campaigns"),
        ("a campaign", f"/campaigns/{campaign_row.id}"),
        ("its explorer", f"/campaigns/{campaign_row.id}/explore"),
    ):
        for again in ("", ", again"):
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            status = client.get(path).status_code
            assert status == 200, (path, status)
            wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
            print(f"| page: {what}{again} | {wall_s:.1f} s | {cpu_s:.1f} s |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="backchannel bench stores")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, help="metrics of each run, first those that tables show; default: all")
    parser.add_argument("--made-up", action="store_true", help="ids that no file asks for: without 'plan' and 'run'")
    parser.add_argument("--postgresql", action="store_true", help="in a server on loopback, as root")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(ScratchFolder())
        file, place, artefacts = folder / "stores.yaml", str(folder / "results"), None
        if given.postgresql:
            place = stack.enter_context(on_loopback(folder / "postgresql.log")).url
            artefacts = f"file://{folder}/artefacts"
        file.write_text(campaign(REPETITIONS if given.made_up else given.runs))
        began_s = time.monotonic()
        fill(place, artefacts, expand(source.read(file)), given.metrics, given.runs if given.made_up else None)
        size = _size(folder, place)
        print(
            f"{given.runs:,} runs, {size / given.runs:,.0f} bytes each in the database, made in "
            f"{time.monotonic() - began_s:.0f} s"
        )
        print(
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n\n| command | wall | CPU |\n|---|---|---|",
            flush=True,
        )
        where = ["--results", place, *(["--artefacts", artefacts] if artefacts else [])]
        for words in (
            ["results"],
            ["results", "stores"],
            ["results", "stores", "--json"],
            ["runs", "stores"],
            ["compare", "stores"],
            ["export", "means", "stores", "--out", str(folder / "means.csv")],
            ["export", "values", "stores", "--out", str(folder / "values.parquet")],
            *([] if given.made_up else [["plan", str(file)], ["run", str(file)]]),
        ):
            wall_s, cpu_s, _ = timed(*words, *where)
            shown = " ".join(word for word in words if not word.startswith("/") and word != "--out")
            print(f"| `{shown}` | {wall_s:.1f} s | {cpu_s:.1f} s |", flush=True)
        pages(place, artefacts)


def _size(folder: Path, place: str) -> int:
    """Bytes of the database."""
    if (file := folder / "results/results.sqlite").exists():
        return file.stat().st_size
    with psycopg.connect(place) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main()
