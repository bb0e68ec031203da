"""What the engine needs of a testbed with real packets: a cell of this machine, or a lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Testbed(Protocol):
    """Runs scenarios, one at a time: testbed.cell.Cell, or testbed.physical.PhysicalCell."""

    def build(self, scenario: dict[str, Any]) -> bool:
        """Prepares it for a scenario. Returns whether it had to be rebuilt."""

    def calibrate(self, scenario: dict[str, Any]) -> list[dict[str, Any]]:
        """Measures the scenario's links."""

    def run(self, scenario: dict[str, Any], out: Path) -> dict[str, Any]:
        """Runs a scenario, writes its files to `out`, and returns the report."""

    def keep_log(self, to: Path) -> None:
        """Copies its log."""

    def close(self) -> None:
        """Ends it."""

    def kill(self) -> None:
        """Ends it at once, from any thread."""


#: Makes a testbed from a name for people and a callback for its phases.
TestbedFactory = Callable[[str, Callable[[str], None]], Testbed]
