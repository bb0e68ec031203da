"""What a screened run costs, and what a million would: `./backchannel bench screening`.

A two-way transfer of 10 s at 10 Mbit/s is screened `--runs` times, once with the metric that a search asks for and
once with every metric that counters serve, and made `--ordinary` times by `run` with counters alone, which keeps three
files a run. CPU time counts this process and all that it waits for. A million runs is an extrapolation from the
largest number measured: the same time and bytes for each run.
"""

from __future__ import annotations

import argparse
import os
import time

from rich.console import Console

from analysis.store import Store
from benchmarks.usage import size, used_s
from experiments.engine.options import Options
from experiments.engine.scheduling import run_campaign
from experiments.engine.screen import screen
from experiments.language import source
from experiments.language.campaign import expand
from experiments.terminal import TerminalReporter
from testbed.local_folders import ScratchFolder

MANY = 1_000_000
CAMPAIGN = """\
name: screening
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 30 packets}}
  reverse: {rate: 1 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 10 packets}}
stack: newreno
workload:
  - {name: download, from: server, to: client, start: [0 s, 0.2 s]}
  - {name: upload, from: client, to: server, start: [0 s, 0.2 s]}
duration: 10 s
capture: {at: [none], telemetry: false, counters: {every: 0.5 s}}
sweep: {network.reverse.queue.policy: [droptail, ack-filtering, acks-first, codel, red]}
"""


def row(what: str, runs: int, began_s: float, began_cpu_s: float, stored_bytes: int) -> None:
    """Prints a line of the table."""
    wall_s, cpu_s = time.monotonic() - began_s, used_s(with_own=True) - began_cpu_s
    each_s, each_bytes = cpu_s / runs, stored_bytes / runs
    night = f"{MANY * each_s / (os.cpu_count() or 1) / 3600:.1f} h, {MANY * each_bytes / 1e9:.2f} GB"
    print(f"| {what} | {runs:,} | {wall_s:.0f} s | {each_s * 1e3:.1f} ms | {each_bytes:,.0f} | {night} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="backchannel bench screening")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--ordinary", type=int, default=500)
    arguments = parser.parse_args()
    file = source.parse("screening.yaml", CAMPAIGN)
    plan = expand(file, [f"repetitions={max(arguments.runs // 5, 1)}"])
    ordinary = expand(file, [f"repetitions={max(arguments.ordinary // 5, 1)}"])
    with ScratchFolder() as folder:
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n")
        print(f"| | runs | wall | CPU a run | bytes a run | {MANY:,} runs on these CPUs (extrapolated) |")
        print("|---|---|---|---|---|---|", flush=True)
        for what, names in (("screened, one metric", ["throughput"]), ("screened, every metric", None)):
            place = folder / what.replace(" ", "-")
            with Store.open(place) as store:
                empty, began_s, began_cpu_s = size(place), time.monotonic(), used_s(with_own=True)
                _, progress = screen(store, plan.runs, names)
                assert progress.made == len(plan.runs), progress.failed
            row(what, progress.made, began_s, began_cpu_s, size(place) - empty)
            with Store.open(place) as store:
                began_s = time.monotonic()
                assert screen(store, plan.runs, names)[1].reused == len(plan.runs)
                print(f"| {what}: resumed, nothing to make | | {time.monotonic() - began_s:.2f} s | | | |", flush=True)
        began_s, began_cpu_s = time.monotonic(), used_s(with_own=True)
        run_campaign(ordinary, Options(folder / "ordinary"), TerminalReporter(Console(quiet=True), quiet=True))
        row("`run`, counters alone", len(ordinary.runs), began_s, began_cpu_s, size(folder / "ordinary"))


if __name__ == "__main__":
    main()
