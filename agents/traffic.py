"""Traffic programs of a node: `load`, `probe` and `program` of the node binary.

Each is one process. It writes its report as JSON to standard output, at the latest on SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.errors import AgentError
from agents.messages import OptionValue

#: Programs that an agent may start, and their subcommands of the node binary.
PROGRAMS: Mapping[str, Sequence[str]] = {
    "load-send": ("load", "send"),
    "load-receive": ("load", "receive"),
    "probe-send": ("probe", "send"),
    "probe-receive": ("probe", "receive"),
    "program": ("program",),
}
#: Runs a program of a campaign, and so any code with the agent's rights: only where the node allows it.
OF_CAMPAIGN = "program"
#: Programs that listen before the run begins.
RECEIVERS = ("load-receive", "probe-receive", OF_CAMPAIGN)
OPTION = re.compile(r"[a-z][a-z0-9-]*\Z")
#: Options whose value is a file in the agent's folder.
FILES = ("telemetry", "records", "qlog", "run-begins-file", "cwd", "output", "errors")
#: File with the start of the run, for receivers, which listen before it is known.
BEGIN = "begin"
#: Start of the line on standard error that reports that the program listens.
READY = "ready on "
#: Time that `program` has to end what its program started, in s.
SUPERVISED_S = 5.0


def command(node: str, program: str, options: Mapping[str, OptionValue], folder: Path) -> list[str]:
    """The command line of one program. `true` gives a bare flag, `false` and null leave the option out.

    Raises:
        AgentError: an unknown program, an invalid option name, or a file outside `folder`.
    """
    if program not in PROGRAMS:
        raise AgentError(f"unknown program '{program}'; allowed: {', '.join(PROGRAMS)}")
    words = [node, *PROGRAMS[program]]
    for name, value in options.items():
        if not OPTION.match(name):
            raise AgentError(f"'{name}' is not an option name")
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is True:
            continue
        words.append(str(inside(folder, str(value)) if name in FILES else value))
    return words


def inside(folder: Path, name: str) -> Path:
    """The file called `name` in the agent's folder.

    Raises:
        AgentError: the name would leave it.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or path == folder.resolve():
        raise AgentError(f"'{name}' lies outside this agent's folder")
    return path


def put(folder: Path, name: str, text: str) -> None:
    """Writes a file of a campaign below the agent's folder; a text that starts with `#!` is executable.

    Raises:
        AgentError: the name would leave the folder.
    """
    path = inside(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o700 if text.startswith("#!") else 0o600)


class TrafficProcess:
    """A running traffic program.

    Args:
        name: for messages and files.
        words: command line.
        folder: the agent's.
        supervises: it ends other processes, so it is asked to end before it is killed.
    """

    def __init__(self, name: str, words: Sequence[str], folder: Path, supervises: bool = False) -> None:
        self.name = name
        self._supervises = supervises
        self._out = inside(folder, f"{name}.json")
        self._log = inside(folder, f"{name}.log")
        try:
            with self._out.open("wb") as out, self._log.open("wb") as log:
                self._process = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        except OSError as error:
            raise AgentError(f"{name}: cannot start {words[0]}: {error.strerror}") from error

    def wait_until_ready(self, timeout_s: float = 5.0) -> None:
        """Waits until it has reported that it listens.

        Raises:
            AgentError: it ended first, or reported nothing in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # Checked before the log is read, so that the log of a program that has ended is complete.
            running = self.running
            if any(line.startswith(READY) for line in self._log.read_text(errors="replace").splitlines()):
                return
            if not running:
                raise AgentError(f"{self.name} ended before it was ready: {self._output()}")
            if time.monotonic() > deadline:
                raise AgentError(f"{self.name} was not ready after {timeout_s:g} s")
            time.sleep(0.002)

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> object:
        """Its report as parsed JSON, once it has ended by itself.

        Raises:
            AgentError: it is still running after `timeout_s`, or failed.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AgentError(f"{self.name} was still running after {timeout_s:g} s") from error
        return self._report()

    def stop(self, timeout_s: float = 5.0) -> object:
        """Stops it; its report as parsed JSON.

        Raises:
            AgentError: it did not end, or failed.
        """
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired as error:
                self.kill()
                raise AgentError(f"{self.name} did not end within {timeout_s:g} s after SIGTERM") from error
        return self._report()

    def kill(self) -> None:
        """Kills it; for clean-up."""
        if self.running and self._supervises:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SUPERVISED_S)
        if self.running:
            self._process.kill()
            self._process.wait()

    def _output(self) -> str:
        return self._log.read_text(errors="replace").strip().removeprefix("error: ") or "it printed nothing"

    def _report(self) -> object:
        if self._process.returncode != 0:
            raise AgentError(f"{self.name} failed: {self._output()}")
        try:
            report = json.loads(self._out.read_text())
        except ValueError as error:
            raise AgentError(f"{self.name} wrote no readable report: {self._output()}") from error
        if not isinstance(report, dict):
            raise AgentError(f"{self.name} wrote a report that is not an object")
        return report
