"""The runner's end of a cell: starts it, builds a network in it, and has it run scenarios.

One thread must open and use a Cell and outlive it, because Linux sends a child its parent-death signal when the thread
ends that started it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.rpc import TIMEOUT_S, ChildProcess
from testbed import node_binary, probing
from testbed.cellmain import CellServer
from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from testbed.report import Measurement, Progress, Report, SessionHost, SessionStatus
from testbed.scenario import Change, Direction, Scenario

#: Building takes 1 to 2 s on an idle machine; on a busy one many cells may build at the same time.
BUILD_S = 90.0
#: Longest time of a run beyond its duration.
RUN_SLACK_S = 90.0
CALIBRATE_S = 120.0 * probing.ROUNDS


def topology_key(scenario: Scenario) -> str:
    """Equal for scenarios that can use the same network."""
    return json.dumps(
        [
            [(node.name, node.kind, [route.as_json() for route in node.routes]) for node in scenario.nodes],
            [(link.name, link.kind, link.ends) for link in scenario.links],
        ]
    )


class Cell:
    """A sandbox with one emulated network. After a method has raised TestbedError, close the cell.

    Args:
        name: for messages.
        on_progress: called when the phase changes and about once a second during a run.
    """

    def __init__(self, name: str, on_progress: Callable[[Progress], None] | None = None) -> None:
        self._log_folder = ScratchFolder()
        self._topology: str | None = None
        self._on_progress = on_progress
        command = [
            node_binary.path(), "cell", "--parent", str(os.getpid()), "--",
            sys.executable, "-m", "testbed.cellmain",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": str(node_binary.ROOT),
            "BACKCHANNEL_NODE": node_binary.path(),
        }
        if sys.version_info < (3, 12):
            # Mininet imports distutils. Setuptools' replacement takes most of the time of that import.
            environment["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
        self._process = ChildProcess(
            name, command, self._log_folder.path / "cell.log", TestbedError, self._event, environment
        )

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process that holds the namespaces."""
        return self._process.pid

    def build(self, scenario: Scenario) -> bool:
        """Builds the scenario's network. Returns False if it exists already."""
        key = topology_key(scenario)
        if key == self._topology:
            return False
        self._topology = None
        self._process.call(BUILD_S, CellServer.build, scenario)
        self._topology = key
        return True

    def calibrate(self, scenario: Scenario) -> list[Measurement]:
        """Measures the links as the scenario declares them."""
        return self._process.call(CALIBRATE_S, CellServer.calibrate, scenario)

    def run(self, scenario: Scenario, out: Path) -> Report:
        """Runs a scenario; its files go to `out` (testbed.conductor.Conductor.run)."""
        return self._process.call(scenario.duration_s + RUN_SLACK_S, CellServer.run, scenario, out.resolve())

    def open(self, scenario: Scenario, out: Path, name_server: str | None) -> dict[str, SessionHost]:
        """Builds the scenario's network and starts a session on it (testbed.session.Session). Returns its nodes."""
        return self._process.call(BUILD_S, CellServer.open, scenario, out.resolve(), name_server)

    def status(self) -> SessionStatus:
        """The session's links as they are now."""
        return self._process.call(TIMEOUT_S, CellServer.status)

    def change(self, link: str, direction: Direction, change: Change) -> float:
        """Changes a direction of a session's link now. Returns when, in s since the session's zero."""
        return self._process.call(TIMEOUT_S, CellServer.change, link, direction, change)

    def end_record(self) -> Report:
        """Ends the session's record and collects its files. Its links go on."""
        return self._process.call(RUN_SLACK_S, CellServer.end_record)

    def keep_log(self, to: Path) -> None:
        """Copies the cell's standard error to a file."""
        log = self._log_folder.path / "cell.log"
        if log.exists():
            shutil.copy(log, to)

    def close(self) -> None:
        """Ends the cell and everything in it."""
        self._process.close()
        self._log_folder.close()

    def kill(self) -> None:
        """Ends the cell at once, from any thread; a request under way fails."""
        self._process.kill()

    def _event(self, progress: dict[str, Any]) -> None:
        if self._on_progress:
            self._on_progress(Progress.from_json(progress))
