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

from agents.rpc import END_S, ChildProcess, remote
from testbed import capability, node_binary, probing
from testbed.cellmain import CellServer
from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from testbed.report import Progress, Report, SessionHost
from testbed.scenario import Scenario

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


class Cell(ChildProcess):
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
            *capability.cell_words(),
            "--parent",
            str(os.getpid()),
            "--",
            *node_binary.module("testbed.cellmain"),
        ]
        environment = {**os.environ, "PYTHONPATH": node_binary.python_path(), "BACKCHANNEL_NODE": node_binary.path()}
        if sys.version_info < (3, 12):
            # Mininet imports distutils. Setuptools' replacement takes most of the time of that import.
            environment["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
        log = self._log_folder.path / "cell.log"
        super().__init__(name, command, log, TestbedError, self._event, environment)

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    calibrate = remote(CellServer.calibrate, CALIBRATE_S)
    status = remote(CellServer.status)
    change = remote(CellServer.change)
    end_record = remote(CellServer.end_record, RUN_SLACK_S)

    def build(self, scenario: Scenario) -> bool:
        """Builds the scenario's network. Returns False if it exists already."""
        key = topology_key(scenario)
        if key == self._topology:
            return False
        self._topology = None
        self.call(BUILD_S, CellServer.build, scenario)
        self._topology = key
        return True

    def run(self, scenario: Scenario, out: Path) -> Report:
        """Runs a scenario; its files go to `out` (testbed.conductor.Conductor.run)."""
        return self.call(scenario.duration_s + RUN_SLACK_S, CellServer.run, scenario, out.resolve())

    def open(self, scenario: Scenario, out: Path, name_server: str | None) -> dict[str, SessionHost]:
        """Builds the scenario's network and starts a session on it (testbed.session.Session). Returns its nodes."""
        return self.call(BUILD_S, CellServer.open, scenario, out.resolve(), name_server)

    def keep_log(self, to: Path) -> None:
        """Copies the cell's standard error to a file."""
        if self._log.exists():
            shutil.copy(self._log, to)

    def close(self, timeout_s: float = END_S) -> None:
        """Ends the cell and everything in it."""
        super().close(timeout_s)
        self._log_folder.close()

    def _event(self, progress: dict[str, Any]) -> None:
        if self._on_progress:
            self._on_progress(Progress.from_json(progress))
