"""The process that serves emulated links: `backchannel-node emulate` (docs/emulator-protocol.md)."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.rpc import END_S, ChildProcess
from testbed import node_binary
from testbed.errors import TestbedError
from testbed.local_folders import ScratchFolder
from testbed.report import DirectionStatus, DriverReport
from testbed.scenario import Change, Direction, LinkSpec


@dataclass(frozen=True)
class LinkEnd:
    """Where an end of a link is created: an interface in the network namespace of a process."""

    pid: int
    interface: str
    mac: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For the emulator's protocol."""
        end: dict[str, Any] = {"pid": self.pid, "ifname": self.interface}
        return end if self.mac is None else {**end, "mac": self.mac}


class Emulator(ChildProcess):
    """One emulator. Methods raise TestbedError."""

    _shared: Emulator | None = None

    _scratch: ScratchFolder | None = None

    def __init__(self, log: Path, virtual_time: bool = False) -> None:
        command = [node_binary.path(), "emulate", "--parent", str(os.getpid())]
        if virtual_time:
            command.append("--virtual-time")
        super().__init__("the emulator", command, log, TestbedError)

    @classmethod
    def shared(cls) -> Emulator:
        """The emulator of this Python process, started on first use."""
        if cls._shared is None:
            cls._scratch = ScratchFolder()
            cls._shared = cls(cls._scratch.path / "emulator.log")
            atexit.register(cls._shared.close)
        return cls._shared

    def locked_bytes(self) -> int:
        """Its memory that is never paged out."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmLck:"))
        return int(kib) * 1024

    def add_link(self, link: LinkSpec, ends: Sequence[LinkEnd], seed: int = 0) -> None:
        """Creates a link between new TAP interfaces; it carries packets at once."""
        self.request("add_link", {"name": link.name, "spec": link, "seed": seed, "ends": ends})

    def remove_link(self, name: str) -> None:
        """Removes a link and its interfaces."""
        self.request("remove_link", {"name": name})

    def configure(self, link: LinkSpec, seed: int) -> None:
        """Sets a link's parameters and policies. It is empty and its counters are zero afterwards."""
        self.request("configure", {"name": link.name, "spec": link, "seed": seed})

    def start(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        """Starts a run's timeline `lead_s` from now; its zero on CLOCK_MONOTONIC, in nanoseconds."""
        return int(self.request("start", {"telemetry": telemetry, "lead_s": lead_s}))

    def stop(self, keep: bool = False) -> DriverReport:
        """Ends the timeline; the report. With `keep`, links go on without telemetry."""
        return DriverReport.read(self.request("stop", {"keep": keep}))

    def change(self, link: str, direction: Direction, change: Change) -> float:
        """Changes a direction of a link now, whatever `at_s` of the change. Returns when, in s since the start."""
        return float(self.request("change", {"name": link, "direction": direction, "change": change}))

    def status(self) -> dict[str, dict[str, DirectionStatus]]:
        """The directions of every link as they are now, by link and direction."""
        return {
            link: {way: DirectionStatus.read(status) for way, status in directions.items()}
            for link, directions in self.request("status", {}).items()
        }

    def close(self, timeout_s: float = END_S) -> None:
        """Ends the process; its interfaces vanish."""
        super().close(timeout_s)
        if Emulator._shared is self:
            Emulator._shared = None
            if Emulator._scratch:
                Emulator._scratch.close()
