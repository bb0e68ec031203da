"""How long commands take with many runs in a results folder: `./backchannel bench stores`.

A campaign's runs are entered as copies of one that was simulated, with the ids of the campaign and values that vary, so
that `run` finds all of them made. Aims: two seconds for each command, or progress.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.console import Console

from analysis.store import Store, checksums
from analysis.store.rows import MetricRow, NewCampaign, RunRow
from analysis.store.schema import metric, run
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.language import source
from experiments.language.campaign import Plan, expand
from experiments.terminal import TerminalReporter
from testbed import node_binary

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
        kept, draws = model.metrics[:metrics], random.Random(1)
        points = [list(point.parameters.items()) for point in plan.points]
        new = [(point, repetition, run_id) for point, repetition, run_id, _ in plan.members]
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
            id=plan.id, name=plan.name, title=plan.title, file=plan.file, text=plan.text, overrides={},
            backend=plan.backend, seed=plan.seed, repetitions=plan.repetitions,
        )  # fmt: skip
        store.begin_campaign(entered, points, new)
        store.end_campaign(plan.id, complete=True)


def _run_row(model: RunRow, number: int, run_id: str, metrics_sum: int) -> dict[str, Any]:
    scenario, manifest = model.documents.scenario_document, model.documents.manifest_document
    values = (
        model.backend, number % REPETITIONS, model.duration_s, model.state, list(model.problems), model.attempt,
        model.landed + number * 1e-3, checksums.of_documents(scenario, manifest), metrics_sum, 0,
    )  # fmt: skip
    columns = {column.name: value for column, value in zip(checksums.OF_RUN, values, strict=True)}
    checksum = checksums.of_run(run_id, values)
    return {"id": run_id, **columns, "scenario": scenario, "manifest": manifest, "checksum": checksum}


def _metric_row(row: MetricRow, run_id: str, draws: random.Random) -> dict[str, Any]:
    values = (run_id, row.name, row.subject, row.value * draws.gauss(1, 0.05), row.unit)
    columns = {column.name: value for column, value in zip(checksums.OF_METRIC, values, strict=True)}
    return {**columns, "checksum": checksums.of(*values)}


def took_s(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU time of a command; ends this program if it fails."""
    before, began_s = os.times(), time.monotonic()
    command = [sys.executable, "-m", "experiments", *words, "--results", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=node_binary.ROOT)
    after = os.times()
    if done.returncode != 0:
        sys.exit(f"'{' '.join(words)}' has status {done.returncode}\n{done.stderr[-3000:]}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began_s, cpu_s


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="backchannel bench stores")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--metrics", type=int, help="metrics of each run; default: all that counters serve")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bc-stores-"))
    try:
        file, results = folder / "stores.yaml", folder / "results"
        file.write_text(campaign(given.runs))
        plan = expand(source.read(file))
        fill(results, plan, given.metrics)
        size = (results / "results.sqlite").stat().st_size
        load, cpus = os.getloadavg()[0], os.cpu_count()
        print(f"{len(plan.runs):,} runs, {size / len(plan.runs):,.0f} bytes each in the database")
        print(f"load {load:.1f} on {cpus} CPUs\n\n| command | wall | CPU |\n|---|---|---|", flush=True)
        for words in (
            ["results"], ["results", "stores"], ["results", "stores", "--json"], ["runs", "stores"],
            ["compare", "stores"],
            ["export", "means", "stores", "--out", str(folder / "means.csv")],
            ["export", "values", "stores", "--out", str(folder / "values.parquet")],
            ["plan", str(file)], ["run", str(file)],
        ):  # fmt: skip
            wall_s, cpu_s = took_s(results, words)
            shown = " ".join(word for word in words if not word.startswith("/") and word != "--out")
            print(f"| `{shown}` | {wall_s:.1f} s | {cpu_s:.1f} s |", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
