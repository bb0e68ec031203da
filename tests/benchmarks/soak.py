"""A long campaign of tiny simulated runs: runs per second, memory, descriptors and store size, from start to end.

    ./backchannel bench soak [--runs N] [--scheduler none|local] [--samples N]

Prints one line for each share of the runs. A value that rises with the number of runs shows a leak; the store grows by
the same number of bytes for each run. The exit status is 1 if a run is missing at the end.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from testbed import node_binary
from testbed.local_folders import ScratchFolder, sweep

CAMPAIGN = """\
name: soak
backend: sim
network: {{topology: line, forward: {{rate: 10 Mbit/s, delay: 1 ms}}}}
stack: newreno
workload:
  - {{name: bulk, from: left, to: right}}
duration: 0.1 s
repetitions: {runs}
"""
LOOK_S = 0.5


@dataclass(frozen=True)
class Sample:
    """The command and its store at one moment."""

    landed: int
    at_s: float
    resident_bytes: int
    descriptors: int
    database_bytes: int
    #: Files of runs, as their rows say.
    files_bytes: int


def sample(pid: int, results: Path, started_s: float) -> Sample | None:
    """Measures a running command; None before its store exists, and after it has ended."""
    database = results / "results.sqlite"
    try:
        status = (Path("/proc") / str(pid) / "status").read_text()
        resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        descriptors = sum(1 for _ in (Path("/proc") / str(pid) / "fd").iterdir())
        store = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)
    except (OSError, StopIteration, sqlite3.OperationalError):
        return None
    try:
        landed = store.execute("SELECT count(*) FROM run WHERE state = 'valid'").fetchone()[0]
        files_bytes = store.execute("SELECT coalesce(sum(bytes), 0) FROM file").fetchone()[0]
    except sqlite3.OperationalError:
        return None
    finally:
        store.close()
    size = sum(path.stat().st_size for path in results.glob("results.sqlite*"))
    return Sample(landed, time.monotonic() - started_s, resident_kb << 10, descriptors, size, files_bytes)


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="number of runs (2000)")
    parser.add_argument("--scheduler", default="none", choices=["none", "local"], help="threads or Dask workers (none)")
    parser.add_argument("--samples", type=int, default=10, help="number of lines (10)")
    options = parser.parse_args()
    sweep()
    with ScratchFolder() as folder:
        return _soak(folder, options.runs, options.scheduler, options.samples)


def _soak(folder: Path, runs: int, scheduler: str, samples: int) -> int:
    file, results = folder / "soak.yaml", folder / "results"
    file.write_text(CAMPAIGN.format(runs=runs))
    words = ["run", str(file), "--results", str(results), "--scheduler", scheduler]
    started_s = time.monotonic()
    with (folder / "log").open("w") as log:
        command = subprocess.Popen(
            [sys.executable, "-m", "experiments", *words], stdout=log, stderr=log, cwd=node_binary.ROOT
        )
    print("   runs  seconds  runs/s     MB  descriptors  kB of database/run  kB of files/run")
    last, due = Sample(0, 0.0, 0, 0, 0, 0), 1
    while command.poll() is None:
        result = sample(command.pid, results, started_s)
        if result is not None and result.landed >= max(1, due * runs // samples):
            _show(result, last)
            last, due = result, result.landed * samples // runs + 1
        time.sleep(LOOK_S)
    store = sqlite3.connect(results / "results.sqlite")
    valid = store.execute("SELECT count(*) FROM run WHERE state = 'valid'").fetchone()[0]
    store.close()
    total_s = time.monotonic() - started_s
    print(
        f"{valid} of {runs} runs landed in {total_s:.0f} s, {valid / total_s:.1f} runs/s; status {command.returncode}"
    )
    return int(valid != runs or command.returncode != 0)


def _show(found: Sample, last: Sample) -> None:
    """One line; the rate is that since the last line."""
    rate = (found.landed - last.landed) / (found.at_s - last.at_s)
    print(
        f"{found.landed:>7} {found.at_s:>8.0f} {rate:>7.1f} {found.resident_bytes / 1e6:>6.0f} {found.descriptors:>12} "
        f"{found.database_bytes / 1e3 / found.landed:>19.1f} {found.files_bytes / 1e3 / found.landed:>16.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
