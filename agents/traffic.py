"""Traffic programs of a node: `send`, `receive`, `endpoint` and `probe` of the node binary, run by the agent.

Each runs as a process of its own, writes its report as JSON to standard output, and ends on SIGTERM with that report.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.errors import AgentError

#: Programs an agent may start, as words of the node binary's command line.
PROGRAMS: Mapping[str, Sequence[str]] = {
    "send": ("send",),
    "receive": ("receive",),
    "endpoint-send": ("endpoint", "send"),
    "endpoint-receive": ("endpoint", "receive"),
    "probe-send": ("probe", "send"),
    "probe-receive": ("probe", "receive"),
}
OPTION = re.compile(r"[a-z][a-z0-9-]*\Z")
#: Options that name files; these lie in the agent's folder.
FILES = ("telemetry", "run-begins-file")
#: The file of the agent that says when the run begins, for receivers, which listen before that is settled.
BEGIN = "begin"
#: Begins the line on standard error that says the program listens.
READY = "ready on "


def command(node: str, program: str, options: Mapping[str, Any], folder: Path) -> list[str]:
    """The command line of one program. `true` gives a bare flag, `false` and null leave the option out.

    Raises:
        AgentError: an unknown program, an option that is no option name, or a file outside `folder`.
    """
    if program not in PROGRAMS:
        raise AgentError(f"there is no program '{program}'; there are: {', '.join(PROGRAMS)}", 400)
    words = [node, *PROGRAMS[program]]
    for name, value in options.items():
        if not OPTION.match(name):
            raise AgentError(f"'{name}' is not an option name", 400)
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is True:
            continue
        if name in FILES:
            value = inside(folder, str(value))
        words.append(str(value))
    return words


def inside(folder: Path, name: str) -> Path:
    """The file called `name` in the agent's folder.

    Raises:
        AgentError: the name would leave it.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or path == folder.resolve():
        raise AgentError(f"'{name}' lies outside this agent's folder", 400)
    return path


class Program:
    """A running traffic program."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        self.name = name
        self._out = inside(folder, f"{name}.json")
        self._log = inside(folder, f"{name}.log")
        try:
            with self._out.open("wb") as out, self._log.open("wb") as log:
                self._process = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        except OSError as error:
            raise AgentError(f"{name}: cannot start {words[0]}: {error.strerror}") from error

    def wait_until_ready(self, timeout_s: float = 5.0) -> None:
        """Until it has said that it listens.

        Raises:
            AgentError: it ended, or said nothing in time.
        """
        deadline = time.monotonic() + timeout_s
        while not any(line.startswith(READY) for line in self._log.read_text(errors="replace").splitlines()):
            if self._process.poll() is not None:
                raise AgentError(f"{self.name} ended before it was ready: {self._said()}")
            if time.monotonic() > deadline:
                raise AgentError(f"{self.name} was not ready after {timeout_s:g} s")
            time.sleep(0.002)

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """Its report, once it has ended of itself.

        Raises:
            AgentError: it is still running after `timeout_s`, or failed.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AgentError(f"{self.name} was still running after {timeout_s:g} s", 409) from error
        return self._report()

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ends it and returns its report.

        Raises:
            AgentError: it did not end, or failed.
        """
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired as error:
                self.kill()
                raise AgentError(f"{self.name} did not end within {timeout_s:g} s of being told to") from error
        return self._report()

    def kill(self) -> None:
        """Ends it at once; for clean-up."""
        if self.running:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        return self._log.read_text(errors="replace").strip().removeprefix("error: ") or "it said nothing"

    def _report(self) -> dict[str, Any]:
        if self._process.returncode != 0:
            raise AgentError(f"{self.name} failed: {self._said()}")
        try:
            report = json.loads(self._out.read_text())
        except ValueError as error:
            raise AgentError(f"{self.name} gave no readable report: {self._said()}") from error
        if not isinstance(report, dict):
            raise AgentError(f"{self.name} gave a report that is no object")
        return report
