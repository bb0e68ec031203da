"""The first program inside the virtual kernel: mounts what programs expect, runs one scenario, and ends the machine.

Its folder is a folder of the host, the only one that can be written. Reads its scenario.json. Prints progress as JSON
lines. Writes captures and telemetry to it, and report.json last: {"report": {...}}, or {"error": sentence}.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path

from testbed.clock import SharedClock
from testbed.conductor import Conductor
from testbed.errors import TestbedError
from testbed.local_network import LocalNetwork
from testbed.report import Progress, Report
from testbed.scenario import Scenario

_libc = ctypes.CDLL(None, use_errno=True)
#: File systems and where they are mounted.
MOUNTS = (
    ("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("devpts", "/dev/pts"), ("tmpfs", "/dev/shm"),
    ("tmpfs", "/run"),
)  # fmt: skip
#: Where the host's folder is.
HOST = Path("/run/host")
#: Folder of sockets and agents' files, in memory.
SCRATCH = Path("/dev/shm/bc")
#: For reboot(2).
POWER_OFF = 0x4321FEDC


def boot(folder: str) -> None:
    """Mounts what programs expect, and the host's folder."""
    for kind, place in MOUNTS:
        Path(place).mkdir(exist_ok=True)
        _mount(kind, place)
    Path("/dev/net").mkdir(exist_ok=True)
    HOST.mkdir()
    _mount("hostfs", str(HOST), folder)
    log = os.open(HOST / "guest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 2)


def _mount(kind: str, place: str, options: str = "") -> None:
    if _libc.mount(kind.encode(), place.encode(), kind.encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {kind}", place)


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


def answer() -> dict[str, object]:
    """What report.json says."""
    try:
        scenario = Scenario.read(json.loads((HOST / "scenario.json").read_text()))
        return {"report": run(scenario, HOST).as_json()}
    except TestbedError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (a defect must reach the user and the log)
        traceback.print_exc()
        return {"error": f"the run failed inside the virtual kernel: {type(error).__name__}: {error}"}


def main(folder: str) -> None:
    """Ends the machine."""
    boot(folder)
    part = HOST / "report.json.part"
    part.write_text(json.dumps(answer()))
    part.rename(HOST / "report.json")
    sys.stdout.flush()
    _libc.reboot(POWER_OFF)
