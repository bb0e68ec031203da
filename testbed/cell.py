"""The runner's end of a cell: starts one, builds a testbed in it, has it run scenarios.

A Cell must be opened and used in one thread that outlives it: Linux sends a child its parent-death signal when the
thread that started it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed import node_binary, probing
from testbed.fidelity import limits_of
from testbed.json_lines import LineProcess

#: Building takes 1-2 s on an idle machine; many cells may build at once on a busy one.
BUILD_S = 90.0
#: What a run may take beyond its own length.
RUN_SLACK_S = 90.0
CALIBRATE_S = 120.0 * probing.ROUNDS


def topology_key(scenario: dict[str, Any]) -> str:
    """Equal for scenarios that one built testbed can run."""
    return json.dumps(
        [
            [(node["name"], node["kind"]) for node in scenario["nodes"]],
            [(link["name"], link["kind"], link["ends"]) for link in scenario["links"]],
        ]
    )


class Cell:
    """A sandbox with one emulated testbed. Methods raise TestbedError with a sentence; then close it."""

    def __init__(self, name: str, on_phase: Callable[[str], None] | None = None) -> None:
        self._log_folder = tempfile.TemporaryDirectory(prefix="backchannel-cell-")
        self._topology: str | None = None
        self._on_phase = on_phase
        words = [
            node_binary.path(), "cell", "--parent", str(os.getpid()), "--",
            sys.executable, "-m", "testbed.cellmain",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": str(node_binary.ROOT),
            "BACKCHANNEL_NODE": node_binary.path(),
        }
        if sys.version_info < (3, 12):
            # Mininet compares versions with distutils, for which setuptools would bring all of its own: most of the
            # time that importing Mininet takes.
            environment["SETUPTOOLS_USE_DISTUTILS"] = "stdlib"
        self._process = LineProcess(
            name, words, Path(self._log_folder.name) / "cell.log", on_event=self._event, env=environment
        )

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the process that holds the namespaces."""
        return self._process.pid

    def build(self, scenario: dict[str, Any]) -> bool:
        """Makes the scenario's network, unless it stands already. Returns whether it had to be made."""
        key = topology_key(scenario)
        if key == self._topology:
            return False
        self._topology = None
        self._process.ask("build", BUILD_S, nodes=scenario["nodes"], links=scenario["links"])
        self._topology = key
        return True

    def calibrate(self, scenario: dict[str, Any]) -> list[dict[str, Any]]:
        """Measures the links as the scenario declares them (testbed.probing.Measurement, as dicts)."""
        answer = self._process.ask(
            "calibrate", CALIBRATE_S, links=scenario["links"], seed=scenario["seed"], limits=asdict(limits_of(scenario))
        )
        return list(answer["measurements"])

    def run(self, scenario: dict[str, Any], out: Path) -> dict[str, Any]:
        """Runs it; files go to `out`. Returns the report (testbed.emulated.EmulatedTestbed.run)."""
        timeout_s = scenario["duration_s"] + RUN_SLACK_S
        return dict(self._process.ask("run", timeout_s, scenario=scenario, out=str(out.resolve()))["report"])

    def keep_log(self, to: Path) -> None:
        """Copies what the cell wrote to standard error."""
        log = Path(self._log_folder.name) / "cell.log"
        if log.exists():
            shutil.copy(log, to)

    def close(self) -> None:
        """Ends the cell and everything in it."""
        self._process.close()
        self._log_folder.cleanup()

    def kill(self) -> None:
        """Ends the cell at once, from any thread; what is being asked of it fails."""
        self._process.kill()

    def _event(self, event: dict[str, Any]) -> None:
        if self._on_phase and event.get("event") == "progress":
            self._on_phase(str(event["phase"]))
