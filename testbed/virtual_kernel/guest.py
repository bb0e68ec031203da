"""Runs one scenario inside the virtual kernel.

    python -m testbed.virtual_kernel.guest FOLDER

Reads FOLDER/scenario.json. Prints progress as JSON lines. Writes captures and telemetry to FOLDER, and report.json
last: {"report": {...}}, or {"error": sentence}.
"""

from __future__ import annotations

import ctypes
import gc

MCL_FUTURE = 2
if __name__ == "__main__":
    # In User-Mode Linux a page that is touched for the first time is a page fault, which costs as much as some tens of
    # microseconds of computing. The collector touches every object, and agents are forks of this process: it stays off.
    gc.disable()
    # Until all modules are imported, memory has its pages when it is mapped.
    ctypes.CDLL(None).mlockall(MCL_FUTURE)

# ruff: noqa: E402
import json
import sys
import traceback
from pathlib import Path

from testbed.clock import SharedClock
from testbed.conductor import Conductor
from testbed.errors import TestbedError
from testbed.local_network import LocalNetwork
from testbed.report import Progress, Report
from testbed.scenario import Scenario

#: Folder of sockets and agents' files, in memory.
SCRATCH = Path("/dev/shm/bc")


def run(scenario: Scenario, out: Path) -> Report:
    """Builds the scenario's network and runs the scenario on it."""
    network = LocalNetwork(scenario.nodes, scenario.links, SCRATCH, virtual_time=True)
    conductor = Conductor(network, SharedClock())
    try:
        return conductor.run(scenario, out, _say)
    finally:
        conductor.close()
        network.close()


def _say(progress: Progress) -> None:
    print(json.dumps(progress.as_json()), flush=True)


def main() -> int:
    """Status 0 if report.json was written."""
    # Stacks of threads are mapped as a whole and hardly used.
    ctypes.CDLL(None).munlockall()
    folder = Path(sys.argv[1])
    answer: dict[str, object]
    try:
        scenario = Scenario.model_validate_json((folder / "scenario.json").read_text())
        answer = {"report": run(scenario, folder).as_json()}
    except TestbedError as error:
        answer = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (a defect must reach the user and the log)
        traceback.print_exc()
        answer = {"error": f"the run failed inside the virtual kernel: {type(error).__name__}: {error}"}
    part = folder / "report.json.part"
    part.write_text(json.dumps(answer))
    part.rename(folder / "report.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
