"""The first program inside a cell: builds the testbed and runs what the runner asks, as JSON lines.

    backchannel-node cell --parent PID -- python -m testbed.cellmain

Requests on standard input, one answer a line on standard output ({"ok": true, ...} or {"ok": false, "error": text}),
progress in between as {"event": "progress", "phase": ...}:

    {"op": "build", "nodes": [...], "links": [...]}        one testbed; a second build replaces the first
    {"op": "calibrate", "links": [...], "seed": 1,
     "limits": {...}}                                       {"measurements": [...]}; testbed.fidelity.Limits
    {"op": "run", "scenario": {...}, "out": "/folder"}      {"report": {...}}

The end of standard input ends it. The process is alone in its namespaces: when it dies, everything it made dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.fidelity import Limits

#: Sockets (whose paths must be short) and captures live here: a memory file system of this cell's own.
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
    """Answers requests, one at a time."""

    def __init__(self) -> None:
        self._testbed: Any = None
        self._built = 0

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; raises TestbedError."""
        match request.get("op"):
            case "build":
                self._build(request)
                return {}
            case "calibrate":
                limits = Limits(**request["limits"])
                return {"measurements": self._ready().calibrate(request["links"], int(request["seed"]), limits)}
            case "run":
                report = self._ready().run(request["scenario"], Path(request["out"]), self._progress)
                return {"report": report}
        raise TestbedError(f"a cell does not know '{request.get('op')}'")

    def close(self) -> None:
        """Ends the testbed."""
        if self._testbed is not None:
            self._testbed.close()
            self._testbed = None

    def _build(self, request: dict[str, Any]) -> None:
        # Mininet is slow to import; a cell that is refused need not wait for it.
        from testbed.emulated import EmulatedTestbed

        self.close()
        self._built += 1
        self._testbed = EmulatedTestbed(request["nodes"], request["links"], FOLDER / f"bc{self._built}")

    def _ready(self) -> Any:
        if self._testbed is None:
            raise TestbedError("this cell holds no testbed yet: 'build' comes first")
        return self._testbed

    def _progress(self, phase: str) -> None:
        say({"event": "progress", "phase": phase})


def say(message: dict[str, Any]) -> None:
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
                say({"ok": True, **server.handle(json.loads(line))})
            except TestbedError as error:
                say({"ok": False, "error": str(error)})
            except Exception as error:  # noqa: BLE001 (a defect of ours must reach the person, and the log)
                traceback.print_exc()
                say({"ok": False, "error": f"the cell failed: {type(error).__name__}: {error}"})
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
