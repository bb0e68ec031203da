"""The first program inside the virtual kernel: mounts what programs expect, runs one scenario, and ends the machine.

Its folder is a folder of the host, the only one that can be written. Reads its scenario.json. Prints progress as JSON
lines. Writes captures and telemetry to it, and report.json last: {"report": {...}}, or {"error": sentence}.
"""

from __future__ import annotations

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
from testbed.virtual_kernel import inside

#: Folder of sockets and agents' files, in memory.
SCRATCH = Path("/dev/shm/bc")


def run(scenario: Scenario, out: Path) -> Report:
    """Runs the scenario on a network that is built for it. Nothing is taken down: the machine ends with the run."""
    network = LocalNetwork(scenario.nodes, scenario.links, SCRATCH, virtual_time=True)
    return Conductor(network, SharedClock()).run(scenario, out, _say)


def _say(progress: Progress) -> None:
    print(json.dumps(progress.as_json()), flush=True)


def answer() -> dict[str, object]:
    """What report.json says."""
    try:
        scenario = Scenario.read(json.loads((inside.HOST / "scenario.json").read_text()))
        return {"report": run(scenario, inside.HOST).as_json()}
    except TestbedError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (a defect must reach the user and the log)
        traceback.print_exc()
        return {"error": f"the run failed inside the virtual kernel: {type(error).__name__}: {error}"}


def main(folder: str) -> None:
    """Ends the machine."""
    inside.boot(folder)
    part = inside.HOST / "report.json.part"
    part.write_text(json.dumps(answer()))
    part.rename(inside.HOST / "report.json")
    sys.stdout.flush()
    inside.power_off()
