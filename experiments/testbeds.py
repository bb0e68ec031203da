"""What the engine needs of a testbed with real packets: a cell of this machine, or a lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from testbed.report import Measurement, Progress, Report
from testbed.scenario import Scenario


class Testbed(Protocol):
    """Runs scenarios, one at a time: testbed.cell.Cell, or testbed.host_testbed.HostTestbed."""

    def build(self, scenario: Scenario) -> bool:
        """Prepares it for a scenario. Returns whether it had to be rebuilt."""

    def calibrate(self, scenario: Scenario) -> list[Measurement]:
        """Measures the scenario's links."""

    def run(self, scenario: Scenario, out: Path) -> Report:
        """Runs a scenario, writes its files to `out`, and returns the report."""

    def keep_log(self, to: Path) -> None:
        """Copies its log."""

    def close(self) -> None:
        """Ends it."""

    def kill(self) -> None:
        """Ends it at once, from any thread."""


OnProgress = Callable[[Progress], None]
#: Makes a testbed from a name for people and a callback for its progress.
TestbedFactory = Callable[[str, OnProgress], Testbed]
