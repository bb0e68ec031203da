"""Starts commands by forking a process that has imported the program.

The imports take 2 s of CPU, most of a short command. They change no file, so a kill during them tests nothing. A forked
command runs `experiments/__main__.py` as `python -m experiments` does, and its own children start as they always do.
Its end leaves out what comes after the functions of `atexit`: freeing every module takes longer than most commands.

    python -m tests.support.starter [MODULE...]   # one request a line: {"words": [...], "out": "/file", "err": "/file"}

Answers to a request are two lines: the command's process id at once, and its exit status when it has ended. A request
may have a folder (`cwd`) and an environment (`env`), without which the command has the starter's, and a limit of the
address space in bytes (`memory`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.language import campaign
from experiments.language.problems import CampaignError
from testbed import node_binary, resource_limits, sources
from testbed.errors import TestbedError

#: What `run` imports on its way to the first run and after it.
IMPORTED = (
    "experiments.cli", "experiments.commands.run", "experiments.engine.scheduling", "experiments.engine.dask_executor",
    "experiments.engine.execution", "experiments.labels", "experiments.terminal", "experiments.tables",
    "analysis.attempts", "analysis.store", "analysis.estimates", "rich.live", "rich.progress",
    "rich.table", "scipy.stats", "scipy.special", "logging.config", "sqlalchemy.dialects.sqlite",
)  # fmt: skip


class Forked:
    """A command that a starter has forked, with the methods of Popen that the tests use."""

    def __init__(
        self, starter: subprocess.Popen[str], words: list[str], log: Path, err: Path | None = None, **more: Any
    ) -> None:
        assert starter.stdin is not None
        assert starter.stdout is not None
        self.returncode: int | None = None
        self._words, self._log = words, log
        # Unbuffered: a buffer would take the status of a short command along with its id, hidden from `select`.
        self._answers = open(starter.stdout.fileno(), "rb", buffering=0, closefd=False)  # noqa: PTH123, SIM115
        request = {"words": words, "out": str(log), "err": str(err or log), **more}
        starter.stdin.write(json.dumps(request) + "\n")
        starter.stdin.flush()
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._wait(0.0)

    def kill(self) -> None:
        """Ends it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What it wrote, once it has ended.

        Raises:
            TimeoutExpired: it runs on.
        """
        if self._wait(timeout) is None:
            raise subprocess.TimeoutExpired(self._words, timeout or 0.0)
        return self._log.read_text(errors="replace"), None

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], timeout_s)[0]:
            self.returncode = int(self._answers.readline())
        return self.returncode


class Starter:
    """The process that forks; one command at a time.

    Args:
        environment: of the commands.
        log: file for the output of the last command.
        modules: imported beside what `run` needs.
    """

    def __init__(self, environment: dict[str, str], log: Path, modules: Sequence[str] = ()) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.starter", *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment,
        )  # fmt: skip
        self.pid = self._process.pid

    def start(self, words: list[str]) -> Forked:
        """A command; the one before has ended."""
        return Forked(self._process, words, self._log)

    def run(
        self, words: list[str], environment: Mapping[str, str], timeout_s: float, memory_bytes: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command in this process's folder, from its start to its end; the one before has ended.

        Raises:
            TimeoutExpired: it took longer, and was killed.
        """
        err = self._log.with_suffix(".err")
        place = {"cwd": str(Path.cwd()), "env": dict(environment)}
        command = Forked(self._process, words, self._log, err, **place, memory=memory_bytes)
        try:
            out, _ = command.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            raise
        assert command.returncode is not None
        return subprocess.CompletedProcess(words, command.returncode, out, err.read_text(errors="replace"))

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()


def _serve() -> list[str]:
    """Forks a command for each line. Returns in the commands alone, with their words; the starter ends."""
    # A key pressed in the terminal is for the commands.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = open(0, "rb", buffering=0, closefd=False)  # noqa: PTH123, SIM115 (a descriptor, open to the end)
    while line := requests.readline():
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for name, target in ((request["out"], 1), (request["err"], 2)):
                if target == 2 and name == request["out"]:
                    os.dup2(1, 2)
                    continue
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(file, target)
                os.close(file)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
            os.chdir(request.get("cwd", "."))
            if "env" in request:
                os.environ.clear()
                os.environ.update(request["env"])
            if request.get("memory"):
                resource_limits.lower(resource.RLIMIT_AS, request["memory"])
            return list(request["words"])
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit(0)


def main() -> None:
    """Imports, then serves until the end of standard input."""
    ended: list[int] = []
    # The first that is registered is the last that is called.
    atexit.register(_end, ended)
    # Threads do not survive a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for module in (*IMPORTED, *sys.argv[1:]):
        importlib.import_module(module)
    # Every run states it, and no test changes the sources.
    sources.digest()
    # What the first campaign of a process has made once: what the node binary declares, and readers of files. Both
    # depend on the binary alone; a command with another one has its own.
    with contextlib.suppress(TestbedError, CampaignError):
        campaign.load(node_binary.ROOT / "experiments/quickstart.yaml", ["backend=sim", "stack=newreno"])
    gc.collect()
    gc.freeze()
    sys.argv = ["experiments", *_serve()]
    try:
        runpy.run_module("experiments", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, int):
            ended.append(error.code)
        raise


def _end(status: list[int]) -> None:
    """Ends a command that asked for this exit status; one that failed in another way ends as Python does."""
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status[0])


if __name__ == "__main__":
    main()
