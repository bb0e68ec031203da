"""The first program inside a cell: builds a network and runs scenarios, as the runner requests in JSON lines.

    backchannel-node cell --parent PID -- python -m testbed.cellmain

Requests on standard input get one line each on standard output: {"ok": true, ...} or {"ok": false, "error": sentence}.
Progress comes in between as {"event": "progress", "phase": ..., "passed_s": ..., "total_s": ...}.

    {"op": "build", "scenario": {...}}                     replaces the network by the scenario's
    {"op": "calibrate", "scenario": {...}}                 {"measurements": [...]} of its links (testbed.report)
    {"op": "run", "scenario": {...}, "out": "/folder"}     {"report": {...}} (testbed.report)
    {"op": "open", "scenario": {...}, "out": "/folder", "name_server": null}
                                                           builds and starts a session: {"hosts": {...}}
    {"op": "status"}                                       {"status": {...}} of the session
    {"op": "change", "link": ..., "direction": ..., "change": {...}}
                                                           changes a line now: {"at_s": ...}
    {"op": "end_record"}                                   {"report": {...}}; the session's links go on

The program ends at the end of its input. It is alone in its namespaces, so everything that it made ends with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.clock import SharedClock
from testbed.conductor import Conductor
from testbed.errors import TestbedError
from testbed.report import Progress
from testbed.scenario import Change, Scenario

if TYPE_CHECKING:
    from testbed.conductor import Conductor
    from testbed.local_network import LocalNetwork
    from testbed.session import Session

#: Folder of sockets, whose paths must be short, and captures: a memory file system that only this cell has.
FOLDER = Path("/dev/shm")


def private_memory_folder() -> None:
    """Mounts a memory file system over FOLDER, in this cell's mount namespace only.

    Raises:
        TestbedError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"backchannel", str(FOLDER).encode(), b"tmpfs", 0, b"mode=0700") != 0:
        raise TestbedError(f"cannot mount a memory file system inside the cell: {os.strerror(ctypes.get_errno())}")


class CellServer:
    """Answers requests one at a time."""

    def __init__(self) -> None:
        self._network: LocalNetwork | None = None
        self._conductor: Conductor | None = None
        self._session: Session | None = None
        self._built = 0

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            TestbedError: it failed.
        """
        op = request.get("op")
        if op in ("status", "change", "end_record"):
            return self._of_session(op, request)
        if op not in ("build", "calibrate", "run", "open"):
            raise TestbedError(f"a cell has no operation '{op}'")
        scenario = Scenario.read(request["scenario"])
        if op == "build":
            self._build(scenario)
            return {}
        if op == "open":
            return self._open(scenario, Path(request["out"]), request["name_server"])
        if self._conductor is None:
            raise TestbedError("this cell has no network yet: 'build' comes first")
        if op == "calibrate":
            measured = self._conductor.calibrate(scenario.links, scenario.seed, scenario.fidelity)
            return {"measurements": [measurement.as_json() for measurement in measured]}
        report = self._conductor.run(scenario, Path(request["out"]), _send_progress)
        return {"report": report.as_json()}

    def _open(self, scenario: Scenario, out: Path, name_server: str | None) -> dict[str, Any]:
        from testbed.session import Session

        self._build(scenario)
        assert self._network is not None
        assert self._conductor is not None
        self._session = Session(self._network, self._conductor, scenario, out, name_server)
        return {"hosts": {name: host.as_json() for name, host in self._session.hosts().items()}}

    def _of_session(self, op: str, request: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            raise TestbedError("this cell has no session: 'open' comes first")
        if op == "status":
            return {"status": self._session.status().as_json()}
        if op == "change":
            change = Change.read(request["change"])
            return {"at_s": self._session.change(request["link"], request["direction"], change)}
        return {"report": self._session.end_record().as_json()}

    def close(self) -> None:
        """Ends the network."""
        self._session = None
        conductor, self._conductor = self._conductor, None
        network, self._network = self._network, None
        for part in (conductor, network):
            if part is not None:
                part.close()

    def _build(self, scenario: Scenario) -> None:
        # Imported here because Mininet takes long, and a cell that is refused need not wait for it.
        from testbed.local_network import LocalNetwork

        self.close()
        self._built += 1
        self._network = LocalNetwork(scenario.nodes, scenario.links, FOLDER / f"bc{self._built}")
        self._conductor = Conductor(self._network, SharedClock())


def _send_progress(progress: Progress) -> None:
    send({"event": "progress", **progress.as_json()})


def send(message: dict[str, Any]) -> None:
    """One line to the runner."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Serves until the runner closes the pipe."""
    server = CellServer()
    try:
        private_memory_folder()
        for line in sys.stdin:
            try:
                send({"ok": True, **server.handle(json.loads(line))})
            except TestbedError as error:
                send({"ok": False, "error": str(error)})
            except Exception as error:  # noqa: BLE001 (a defect must reach the user and the log)
                traceback.print_exc()
                send({"ok": False, "error": f"the cell failed: {type(error).__name__}: {error}"})
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
