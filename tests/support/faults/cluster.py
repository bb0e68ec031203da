"""A Dask scheduler with workers and a PostgreSQL store, of which one part is killed while a campaign runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path

import psycopg

from analysis.store.artefacts import VERSION
from tests.equality.__main__ import VOLATILE
from tests.support.faults.commands import PATIENCE_S, Count, output_of, strike
from tests.support.faults.kills import simulated
from tests.support.faults.leftovers import Watch, command_line, parent
from tests.support.free_ports import free_ports
from tests.support.postgresql import postgresql
from tests.support.waiting import end, wait_until

WORKERS = 2
#: How long a runner may wait for a scheduler or workers that are started again, in s.
RESTART_S = 1.0


def _is_process_of_worker(pid: int) -> bool:
    return "spawn_main" in " ".join(command_line(pid))


class Cluster:
    """The services, and the campaign that uses them.

    Args:
        folder: for all files.
        rng: of the moments.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._file = folder / "faults.yaml"
        self._file.write_text(simulated())
        #: Of the runners, and of the services, which stay.
        self._runners, self._services = Watch(folder / "runner"), Watch(folder / "services")
        self._stack = ExitStack()
        ports = free_ports(2)
        self._server = self._stack.enter_context(
            postgresql(folder / "postgresql.log", "127.0.0.1", ports[0], "127.0.0.1/32")
        )
        self._port = ports[1]
        self._scheduler: subprocess.Popen[str] | None = None
        self._workers: list[subprocess.Popen[str]] = []
        self._logs: dict[int, Path] = {}
        self._numbers = itertools.count()
        try:
            self._serve()
            started = time.monotonic()
            ended = output_of(self._start(), self._runners)
            if ended.status != 0:
                raise SystemExit(f"the campaign does not run without faults either: {ended.output}")
            self._length_s = time.monotonic() - started
            self._reference = self._digest()
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[str]:
        """A runner."""
        words = ["run", str(self._file), "--results", self._server.url, "--scheduler", self._address]
        return self._run([*words, "--artefacts", f"file://{self._folder}/artefacts"], self._runners)

    def _run(self, words: list[str], watch: Watch, log: Path | None = None) -> subprocess.Popen[str]:
        environment = {**watch.environment, "BACKCHANNEL_LOCAL": str(self._folder / "local")}
        with nullcontext(subprocess.PIPE) if log is None else log.open("w") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "experiments", *words], stdout=out, stderr=subprocess.STDOUT, text=True,
                env=environment,
            )  # fmt: skip

    @property
    def _address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def _serve(self) -> None:
        """Starts the scheduler and the workers that have ended."""
        if self._scheduler is None or self._scheduler.poll() is not None:
            words = ["dask", "scheduler", "--host", "127.0.0.1", "--port", str(self._port)]
            self._scheduler = self._run(words, self._services, self._folder / "scheduler.log")
            wait_until(lambda: _answers(self._port), "the scheduler", PATIENCE_S)
            # Workers end with their scheduler.
            for worker in self._workers:
                end(worker)
        wait_until(self._workers_serve, "the workers", PATIENCE_S)

    def _workers_serve(self) -> bool:
        """Whether all workers have connected. Starts those that have ended: on a busy machine one may give up."""
        for worker in [worker for worker in self._workers if worker.poll() is not None]:
            self._workers.remove(worker)
        while len(self._workers) < WORKERS:
            log = self._folder / f"worker{next(self._numbers)}.log"
            worker = self._run(["dask", "worker", self._address, "--host", "127.0.0.1"], self._services, log)
            self._workers.append(worker)
            self._logs[worker.pid] = log
        return all("serves" in self._logs[worker.pid].read_text() for worker in self._workers)

    def parts(self) -> Mapping[str, Callable[[], list[int]]]:
        """What can be killed, by name: the processes that it has now."""
        return {
            "scheduler": lambda: [self._scheduler.pid] if self._scheduler else [],
            "worker": lambda: list(filter(_is_process_of_worker, self._services.processes())),
            "worker's nanny": lambda: [worker.pid for worker in self._workers if worker.poll() is None],
            "runner of a cluster": lambda: self._runners.processes()[:1],
        }

    def kill_once(self, part: str, count: Count) -> None:
        """Starts the campaign, kills one process of a part, starts what ended again, and completes the campaign."""
        self._forget()
        runner = self._start()
        victim = strike(runner, self.parts()[part], 1.1 * self._length_s, self._rng)
        count.kills += bool(victim)
        count.missed += not victim
        if part == "scheduler" and victim and self._scheduler is not None:
            self._scheduler.wait()
            # The fault itself: workers and the runner notice.
            time.sleep(RESTART_S)
        self._serve()
        count.judge(output_of(runner, self._runners), f"{part} was killed")
        count.findings += [f"after the {part} was killed: {what}" for what in self._runners.left() + self._orphans()]
        self._serve()
        count.judge_completion(output_of(self._start(), self._runners), self._digest, self._reference)

    def _orphans(self) -> list[str]:
        """Processes of services that have ended."""
        alive = [process.pid for process in (self._scheduler, *self._workers) if process and process.poll() is None]

        def lost() -> list[int]:
            return [pid for pid in self._services.processes() if not _is_below(pid, alive)]

        deadline = time.monotonic() + 10.0
        while lost() and time.monotonic() < deadline:
            time.sleep(0.05)
        return [f"process {pid}: {' '.join(command_line(pid))[:80]}" for pid in lost()]

    def _digest(self) -> str:
        """Of all runs, their metrics and files. Each file must be there as its row says."""
        with psycopg.connect(self._server.url) as connection:
            rows = connection.execute("SELECT id, state FROM run ORDER BY id").fetchall()
            metrics = connection.execute(
                "SELECT run_id, name, subject, value FROM metric ORDER BY run_id, name, subject"
            ).fetchall()
            files = connection.execute(
                "SELECT run_id, landed, path, sha256 FROM file JOIN run ON run.id = run_id ORDER BY run_id, path"
            ).fetchall()
        for run, landed, path, digest in files:
            file = self._folder / "artefacts/runs" / run[:2] / run / f"{VERSION}{landed}" / path
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                return f"run {run}: {path} differs from its row"
        same = [(run, path, digest) for run, _, path, digest in files if path not in VOLATILE]
        return hashlib.sha256(json.dumps([rows, metrics, same]).encode()).hexdigest()

    def _forget(self) -> None:
        """Empties the store."""
        with psycopg.connect(self._server.url) as connection:
            connection.execute("TRUNCATE run, campaign CASCADE")
        shutil.rmtree(self._folder / "artefacts", ignore_errors=True)

    def close(self) -> None:
        """Ends the services."""
        for process in (*self._workers, self._scheduler):
            if process is not None:
                end(process)
        self._stack.close()


def _is_below(pid: int, ancestors: list[int]) -> bool:
    while pid > 1:
        if pid in ancestors:
            return True
        pid = parent(pid)
    return False


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
