"""The first program inside a cell: builds a network and runs scenarios, as the runner requests in JSON lines.

    backchannel-node cell --parent PID -- python -m testbed.cellmain

It serves the requests of CellServer on standard input and output (agents.rpc). Progress of a run comes as events before
its answer.

The program ends at the end of its input. It is alone in its namespaces, so everything that it made ends with it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agents.errors import AgentError
from agents.rpc import Dispatcher, method, standard_streams
from testbed import capability
from testbed.clock import SharedClock
from testbed.conductor import Conductor, require_crates
from testbed.errors import TestbedError
from testbed.report import Measurement, Progress, Report, SessionHost, SessionStatus
from testbed.scenario import Change, Direction, Scenario

if TYPE_CHECKING:
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
    """What a cell does, one request at a time. Methods raise TestbedError or AgentError.

    Args:
        on_progress: called during a run.
    """

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._network: LocalNetwork | None = None
        self._conductor: Conductor | None = None
        self._session: Session | None = None
        self._built = 0

    @method
    def build(self, scenario: Scenario) -> None:
        """Replaces the network by the scenario's."""
        # Imported here because Mininet takes long, and a cell that is refused need not wait for it.
        from testbed.local_network import LocalNetwork

        self.close()
        self._built += 1
        self._network = LocalNetwork(scenario.nodes, scenario.links, FOLDER / f"bc{self._built}")
        self._conductor = Conductor(self._network, SharedClock())

    @method
    def calibrate(self, scenario: Scenario) -> list[Measurement]:
        """Measures the links as the scenario declares them."""
        return self._built_conductor().calibrate(scenario.links, scenario.seed, scenario.fidelity)

    @method
    def run(self, scenario: Scenario, out: Path) -> Report:
        """Runs a scenario; its files go to `out` (testbed.conductor.Conductor.run)."""
        conductor = self._built_conductor()
        assert self._network is not None
        # Links are emulated by the program of the nodes.
        require_crates(scenario, self._network.agents)
        report = conductor.run(scenario, out, self._on_progress)
        lacked = capability.lacked(
            report.driver.realtime is not False,
            self._network.emulator.locked_bytes(),
            Path("/proc/self/uid_map").read_text(),
        )
        return report.replace(lacked=tuple(lacked)) if lacked else report

    @method
    def open(self, scenario: Scenario, out: Path, name_server: str | None) -> dict[str, SessionHost]:
        """Builds the scenario's network and starts a session on it (testbed.session.Session). Returns its nodes."""
        from testbed.session import Session

        self.build(scenario)
        assert self._network is not None
        self._session = Session(self._network, self._built_conductor(), scenario, out, name_server)
        return self._session.hosts()

    @method
    def status(self) -> SessionStatus:
        """The session's links as they are now."""
        return self._opened().status()

    @method
    def change(self, link: str, direction: Direction, change: Change) -> float:
        """Changes a direction of a session's link now. Returns when, in s since the session's zero."""
        return self._opened().change(link, direction, change)

    @method
    def end_record(self) -> Report:
        """Ends the session's record and collects its files. Its links go on."""
        return self._opened().end_record()

    def _built_conductor(self) -> Conductor:
        if self._conductor is None:
            raise TestbedError("this cell has no network yet: 'build' comes first")
        return self._conductor

    def _opened(self) -> Session:
        if self._session is None:
            raise TestbedError("this cell has no session: 'open' comes first")
        return self._session

    def close(self) -> None:
        """Ends the network."""
        self._session = None
        conductor, self._conductor = self._conductor, None
        network, self._network = self._network, None
        for part in (conductor, network):
            if part is not None:
                part.close()


def main() -> int:
    """Serves until the runner closes the pipe."""
    stream = standard_streams()
    server = CellServer(lambda progress: stream.send({"event": progress}))
    try:
        private_memory_folder()
        Dispatcher("the cell", CellServer, server, (TestbedError, AgentError)).serve(stream)
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
