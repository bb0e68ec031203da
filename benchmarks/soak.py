"""A long campaign of tiny simulated runs: runs per second, memory, descriptors and store size, from start to end.

    ./backchannel bench soak [--runs N] [--duration S] [--beside] [--samples N] [--most-s S]
    ./backchannel bench soak --postgresql [--object-store] [--runners 2] [--restart] [--beside] [--runs N]

Prints one line for each share of the runs. A value that rises with the number of runs shows a leak; the store grows by
the same number of bytes for each run. With `--postgresql` the store is a server on loopback, and several runners may
share the campaign; memory and descriptors are those of the first. `--restart` ends the server as a crash does when half
of the runs have landed, and starts it again; a runner that ended is started again, too. `--object-store` keeps the
files of runs in an S3 server on loopback (moto) instead of a folder. `--beside` runs the campaign in a results folder
with one runner first, and prints the ratio of the rates. The exit status is 1 if a run is missing at
the end.

Ctrl-C, SIGTERM and `--most-s` end the campaign early; the counts until then are printed.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

from experiments.exits import FAILED, INTERRUPTED
from testbed import node_binary
from testbed.local_folders import ScratchFolder, sweep
from tests.support.faults.object_store import BUCKET, client_settings, object_store
from tests.support.postgresql import Server, on_loopback
from tests.support.waiting import interrupted_by_sigterm

CAMPAIGN = """\
name: soak
backend: sim
network: {{topology: line, forward: {{rate: 10 Mbit/s, delay: 1 ms}}}}
stack: newreno
workload:
  - {{name: bulk, from: left, to: right}}
duration: {duration_s:g} s
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


class MeasuredStore(Protocol):
    """A store, beside the commands that use it."""

    #: Options of the command line.
    words: list[str]

    def number(self, query: str) -> int | None:
        """The result of a query; None before the store exists."""

    def size(self) -> int:
        """Bytes of its database."""


class Folder:
    """A results folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.words = ["--results", str(folder)]

    def number(self, query: str) -> int | None:
        """The result of a query; None before the store exists."""
        try:
            store = sqlite3.connect(f"file:{self._folder}/results.sqlite?mode=ro", uri=True, timeout=60)
        except sqlite3.OperationalError:
            return None
        try:
            return int(store.execute(query).fetchone()[0])
        except sqlite3.OperationalError:
            return None
        finally:
            store.close()

    def size(self) -> int:
        """Bytes of its database."""
        return sum(path.stat().st_size for path in self._folder.glob("results.sqlite*"))


class Database:
    """A PostgreSQL server with a place for files."""

    def __init__(self, server: Server, files_url: str) -> None:
        self._url = server.url
        self.words = ["--results", server.url, "--artefacts", files_url]

    def number(self, query: str) -> int | None:
        """The result of a query; None before the store exists."""
        try:
            with psycopg.connect(self._url) as connection:
                row = connection.execute(query).fetchone()
        except psycopg.Error:
            return None
        return int(row[0]) if row else None

    def size(self) -> int:
        """Bytes of its database."""
        return self.number("SELECT pg_database_size(current_database())") or 0


LANDED = "SELECT count(*) FROM run WHERE state = 'valid'"


def sample(pid: int, store: MeasuredStore, started_s: float) -> Sample | None:
    """Measures a running command; None before its store exists, and after it has ended."""
    try:
        status = (Path("/proc") / str(pid) / "status").read_text()
        resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        descriptors = sum(1 for _ in (Path("/proc") / str(pid) / "fd").iterdir())
    except (OSError, StopIteration):
        return None
    landed = store.number(LANDED)
    files_bytes = store.number("SELECT coalesce(sum(bytes), 0) FROM file")
    if landed is None or files_bytes is None:
        return None
    return Sample(landed, time.monotonic() - started_s, resident_kb << 10, descriptors, store.size(), files_bytes)


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="number of runs (2000)")
    parser.add_argument("--duration", type=float, default=0.1, help="duration of a run in s (0.1)")
    parser.add_argument("--samples", type=int, default=10, help="number of lines (10)")
    parser.add_argument("--postgresql", action="store_true", help="store runs in a PostgreSQL server on loopback")
    parser.add_argument("--object-store", action="store_true", help="with --postgresql: keep files in an S3 server")
    parser.add_argument("--runners", type=int, default=1, help="commands that share the campaign (1)")
    parser.add_argument("--restart", action="store_true", help="restart the PostgreSQL server in mid-campaign")
    parser.add_argument("--beside", action="store_true", help="run the campaign in a results folder first")
    parser.add_argument(
        "--most-s", type=float, default=math.inf, help="end each campaign after so many seconds (never)"
    )
    options = parser.parse_args()
    if not options.postgresql and (options.object_store or options.restart or options.runners > 1):
        parser.error("--object-store, --restart and --runners need --postgresql")
    interrupted_by_sigterm()
    sweep()
    with ScratchFolder() as folder, ExitStack() as servers:
        os.environ["BACKCHANNEL_LOCAL"] = str(folder / "local")
        beside = _soak(folder, Folder(folder / "beside"), plain(options)) if options.beside else None
        if options.postgresql:
            server = servers.enter_context(on_loopback(folder / "postgresql.log"))
            files_url = f"file://{folder}/files"
            if options.object_store:
                store = servers.enter_context(object_store())
                os.environ.update(client_settings(store.url))
                files_url = f"s3://{BUCKET}/runs"
            outcome = _soak(folder, Database(server, files_url), options, server if options.restart else None)
        else:
            outcome = _soak(folder, Folder(folder / "results"), options)
    if beside is None:
        return outcome.status
    print(
        f"{outcome.rate:.2f} runs/s, {outcome.rate / beside.rate:.2f} times the {beside.rate:.2f} of a results folder, "
        "one runner"
    )
    return outcome.status or beside.status


def plain(options: argparse.Namespace) -> argparse.Namespace:
    """The options of the campaign that others are compared with: one runner."""
    return argparse.Namespace(**{**vars(options), "runners": 1})


@dataclass(frozen=True)
class Outcome:
    """Exit status and rate of landed runs, per s."""

    status: int
    rate: float


def _soak(folder: Path, store: MeasuredStore, options: argparse.Namespace, restarted: Server | None = None) -> Outcome:
    """Runs the campaign.

    Args:
        folder: for the campaign file and the log.
        store: of its results.
        options: of the command line.
        restarted: the server to restart in mid-campaign.
    """
    file, runs = folder / "soak.yaml", options.runs
    file.write_text(CAMPAIGN.format(runs=runs, duration_s=options.duration))
    words = [sys.executable, "-m", "experiments", "run", str(file), *store.words]
    started_s = time.monotonic()
    print("   runs  seconds  runs/s     MB  descriptors  kB of database/run  kB of files/run")
    last, due, stopped = Sample(0, 0.0, 0, 0, 0, 0), 1, False
    # Runners that may be started again.
    again = 0
    with (folder / "log").open("w") as log:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(words, stdout=log, stderr=log, cwd=node_binary.ROOT, start_new_session=True)

        commands = [start() for _ in range(options.runners)]
        try:
            while True:
                result = sample(commands[0].pid, store, started_s)
                if result is not None and result.landed >= max(1, due * runs // options.samples):
                    _show(result, last)
                    last, due = result, result.landed * options.samples // runs + 1
                if restarted is not None and (landed := store.number(LANDED) or 0) >= runs // 2:
                    restarted.stop()
                    restarted.start()
                    print(f"the server was restarted after {landed} runs")
                    restarted, again = None, options.runners
                statuses = [command.poll() for command in commands]
                for number, status in enumerate(statuses):
                    if status == FAILED and again:
                        print("a runner ended for that and was started again")
                        commands[number], statuses[number] = start(), None
                        again -= 1
                if None not in statuses:
                    break
                if time.monotonic() - started_s > options.most_s:
                    raise KeyboardInterrupt
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            stopped = True
            for command in commands:
                command.send_signal(signal.SIGINT)
        for command in commands:
            command.wait()
    valid, total_s = store.number(LANDED) or 0, time.monotonic() - started_s
    ends = [command.returncode for command in commands]
    print(
        f"{valid} of {runs} runs landed in {total_s:.0f} s, {valid / total_s:.1f} runs/s; "
        f"status {', '.join(map(str, ends))}" + ("; ended early" if stopped else "")
    )
    expected = {0, INTERRUPTED} if stopped else {0}
    return Outcome(int(not expected.issuperset(ends) or (valid != runs and not stopped)), valid / total_s)


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
