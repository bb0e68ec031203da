"""What a run on a Dask cluster costs beside one on this machine: `./backchannel bench cluster`.

    ./backchannel bench cluster [--runs 200] [--workers 2 4 8] [--duration 0.1]

A lab in one cell, as in tests/system/dask: a PostgreSQL server, a scheduler, and workers in network namespaces of their
own. A campaign of simulations of 0.1 s is run on each number of workers, and first without a scheduler in the same
database. CPU times are of processes, because all workers share this machine's CPUs: of the scheduler, of the runner,
and of the workers with their simulations. What the runner and the workers use to start is left out: they make one run
before, twice, of which the second is subtracted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.usage import used_s
from testbed import node_binary
from tests.support.dask_lab import DATABASE, HERE, SCHEDULER, await_worker, bridge, running, worker
from tests.support.faults.leftovers import descendants
from tests.support.postgresql import postgresql
from tests.support.waiting import wait_until

CAMPAIGN = """\
name: cluster-{name}
backend: sim
network: {{topology: line, forward: {{rate: 10 Mbit/s, delay: 1 ms}}}}
stack: newreno
workload:
  - {{name: bulk, from: left, to: right}}
duration: {duration_s:g} s
repetitions: {runs}
seed: {seed}
capture: {{at: [none], telemetry: false, counters: {{every: 0.1 s}}}}
"""
INSIDE = "BACKCHANNEL_BENCH_INSIDE"


class Usage(NamedTuple):
    """CPU time in s of the parts of a campaign."""

    runner: float
    scheduler: float
    workers: float
    wall: float


def of_processes(pids: Iterable[int]) -> float:
    """CPU time of processes with those of their children that have ended, in s."""
    total, tick = 0, os.sysconf("SC_CLK_TCK")
    for pid in pids:
        try:
            # The name may have spaces.
            fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(value) for value in fields[11:15])
    return total / tick


def measured(
    folder: Path, name: str, seed: int, runs: int, duration_s: float, roots: tuple[list[int], list[int]]
) -> Usage:
    """Runs a campaign; on the cluster if there are workers.

    Args:
        folder: for its file and artefacts.
        name: of the campaign.
        seed: of the campaign, so that its runs are new.
        runs: how many.
        duration_s: of each.
        roots: processes of the scheduler and of the workers.
    """
    file = folder / f"{name}.yaml"
    file.write_text(CAMPAIGN.format(name=name, runs=runs, duration_s=duration_s, seed=seed))
    words = [
        sys.executable,
        "-m",
        "experiments",
        "run",
        str(file),
        "--results",
        DATABASE,
        "--artefacts",
        f"file://{folder}/artefacts",
        *(["--scheduler", SCHEDULER] if roots[1] else []),
    ]
    trees = [[*group, *(pid for root in group for pid in descendants(root))] for group in roots]
    before, began_s, of_runner = [of_processes(tree) for tree in trees], time.monotonic(), used_s()
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=node_binary.ROOT)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    after = [of_processes(tree) for tree in trees]
    scheduler_s, workers_s = (late - early for late, early in zip(after, before, strict=True))
    return Usage(used_s() - of_runner, scheduler_s, workers_s, time.monotonic() - began_s)


def difference(
    folder: Path, name: str, given: argparse.Namespace, seed: int, roots: tuple[list[int], list[int]]
) -> Usage:
    """What `--runs` runs use beyond a campaign of one."""
    # The first one lets workers import what they need.
    measured(folder, f"{name}-first", seed, 1, given.duration, roots)
    one = measured(folder, f"{name}-one", seed + 1, 1, given.duration, roots)
    many = measured(folder, f"{name}-many", seed + 2, given.runs + 1, given.duration, roots)
    return Usage(*(late - early for late, early in zip(many, one, strict=True)))


def inside(given: argparse.Namespace, folder: Path) -> None:
    """The table, in a network namespace."""
    os.environ["BACKCHANNEL_LOCAL"] = str(folder / "local")
    bridge()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; ms of CPU time a run, {given.runs} runs each\n")
    print("| workers | runner | scheduler | workers | all | wall a run |\n|---|---|---|---|---|---|", flush=True)
    with postgresql(folder / "postgresql.log", HERE, 5433, "10.77.0.0/24"):
        for number, count in enumerate([0, *given.workers]):
            with ExitStack() as stack:
                roots: tuple[list[int], list[int]] = ([], [])
                if count:
                    log = folder / f"scheduler-{count}.log"
                    words = [sys.executable, "-m", "experiments", "dask", "scheduler", "--host", HERE]
                    roots[0].append(stack.enter_context(running(*words, log=log)).pid)
                    wait_until(lambda log=log: "scheduler at" in log.read_text(), "the scheduler")  # type: ignore[misc]
                    of_workers = folder / str(count)
                    of_workers.mkdir()
                    # The kernel removes the interfaces of earlier workers some time after their end.
                    numbers = range(1 + sum(given.workers[: number - 1]), 1 + sum(given.workers[:number]))
                    roots[1].extend(stack.enter_context(worker(each, of_workers)).pid for each in numbers)
                    for each in numbers:
                        await_worker(of_workers, each)
                usage = difference(folder, f"w{count}", given, 1 + 3 * number, roots)
            cells = [usage.runner, usage.scheduler, usage.workers, sum(usage[:3]), usage.wall]
            shown = " | ".join(f"{value / given.runs * 1e3:.1f} ms" for value in cells)
            print(f"| {count or 'no scheduler'} | {shown} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="backchannel bench cluster")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--duration", type=float, default=0.1, help="of a run, in s")
    given = parser.parse_args()
    if INSIDE not in os.environ:
        words = [node_binary.path(), "cell", "--", sys.executable, "-m", "benchmarks.cluster", *sys.argv[1:]]
        sys.exit(subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False, cwd=node_binary.ROOT).returncode)
    with tempfile.TemporaryDirectory(prefix="bc-cluster-") as folder:
        inside(given, Path(folder))


if __name__ == "__main__":
    main()
