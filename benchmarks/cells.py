"""How much faster many cells are than one: a batch of 28.8 kbit/s to 10 Mbit/s runs, one by one and as many at once as
the fidelity guard allows.

    ./backchannel bench cells [--repetitions 24] [--duration 20]

Two repetitions of every rate run one by one, of which the second counts: setting up, and measuring every line, is done
by then, as in a long batch. The median time from one commit to the next counts, so that an invalid attempt does not
make one by one seem slower. All other runs run together, and there all of the time counts, from the command to the
commit of the last: one batch, whose ratio has no interval. It also prints the times between commits, and what
a run costs beside its own length on a testbed that stands, with the half-widths of their 95 % intervals.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from analysis.store import Store
from analysis.store.rows import RunRow
from benchmarks.repeats import shown
from experiments.engine import machine
from experiments.engine.options import Options
from experiments.engine.scheduling import Outcome, run_campaign
from experiments.language.campaign import Plan, load
from experiments.terminal import TerminalReporter

CAMPAIGN = """
name: cells
title: Rates of modems, as many at once as are in time
network:
  topology: asymmetric-path
  forward: {{rate: 1 Mbit/s, delay: 10 ms, queue: {{policy: droptail, limit: 30 packets}}}}
  reverse: {{rate: 1 Mbit/s, delay: 10 ms, queue: {{policy: droptail, limit: 10 packets}}}}
workload:
  - {{name: forward, from: server, to: client, start: [0 s, 0.5 s]}}
duration: {duration} s
repetitions: {repetitions}
sweep:
  zip:
    - network.forward.rate: [28.8 kbit/s, 128 kbit/s, 512 kbit/s, 2 Mbit/s, 10 Mbit/s]
      network.reverse.rate: [28.8 kbit/s, 28.8 kbit/s, 64 kbit/s, 128 kbit/s, 28.8 kbit/s]
"""


def main() -> int:
    """Runs the batch twice and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=24)
    parser.add_argument("--duration", type=int, default=20, help="of a run, in seconds")
    arguments = parser.parse_args()
    before = machine.cpu_seconds()
    time.sleep(3)
    others = 1 - machine.cpu_shares(before, machine.cpu_seconds())["idle"]
    print(f"before it begins, {others:.0%} of the CPUs are busy with other things", flush=True)
    with tempfile.TemporaryDirectory(prefix="backchannel-bench-") as folder:
        file, results = Path(folder) / "cells.yaml", Path(folder) / "results"
        file.write_text(CAMPAIGN.format(duration=arguments.duration, repetitions=arguments.repetitions))
        plan = load(file)
        alone, _, alone_runs = batch(plan, Options(results, jobs=1, only=["repetition=1", "repetition=2"]))
        if alone.interrupted:
            return 130
        first, second = alone_runs[: len(alone_runs) // 2], alone_runs[len(alone_runs) // 2 :]
        landed = [run.landed for run in [first[-1], *second]]
        gaps = [later - entry for entry, later in itertools.pairwise(landed)]
        alone_s = len(second) * statistics.median(gaps)
        many, many_s, many_runs = batch(plan, Options(results))
        if many.interrupted:
            return 130
    print(f"{'':24}{'runs':>6}{'minutes':>9}{'runs a minute':>15}{'at once':>9}{'tried again':>13}{'not valid':>11}")
    for name, outcome, took_s, runs in (
        ("one by one", alone, alone_s, second),
        ("together", many, many_s, many_runs),
    ):
        again = sum(int(run.attempt) - 1 for run in runs)
        print(
            f"{name:24}{len(runs):6}{took_s / 60:9.2f}{60 * len(runs) / took_s:15.2f}{outcome.cells:9}"
            f"{again:13}{len(outcome.failed):11}"
        )
    print(f"together / one by one: {len(many_runs) / many_s / (len(second) / alone_s):.1f} (one batch)")
    print(f"from one commit to the next, one by one: {shown(gaps, 's')}")
    for name, runs in (("one by one", second), ("together", many_runs)):
        spans = [(run.documents.manifest.took_s, run.duration_s) for run in runs]
        beside = sorted(whole_s - run_s for whole_s, run_s in spans if whole_s is not None)
        print(
            f"a run beside its own length, on a testbed that stands, {name}: {shown(beside, 's')}, "
            f"at most {beside[-1]:.2f} s"
        )
    return 1 if alone.failed or many.failed else 0


def batch(plan: Plan, options: Options) -> tuple[Outcome, float, list[RunRow]]:
    """One of the two: outcome, seconds, the runs that landed."""
    began_s, began = time.monotonic(), time.time()
    outcome = run_campaign(plan, options, TerminalReporter(Console(file=sys.stderr)))
    took_s = time.monotonic() - began_s
    store = Store.open(options.results)
    result = [store.run(run_id) for run_id in store.valid_runs([run.id for run in plan.runs])]
    store.close()
    committed = [run for run in result if run is not None and run.landed >= began]
    return outcome, took_s, sorted(committed, key=lambda run: float(run.landed))


if __name__ == "__main__":
    sys.exit(main())
