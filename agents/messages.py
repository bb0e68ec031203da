"""What an agent and its client exchange, as types. Standard library only: a bare host has nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Value of a traffic program's option. True gives a bare flag; False and None leave the option out.
OptionValue = str | int | float | bool | None


@dataclass(frozen=True)
class Health:
    """The agent's process, the node's kernel and its holder."""

    pid: int
    #: Release of the kernel.
    kernel: str
    root: bool
    congestion_controls: tuple[str, ...]
    #: Interfaces that are being captured.
    captures: int
    #: Names of the traffic programs.
    traffic: tuple[str, ...]
    #: Empty: nobody.
    holder: str
    #: Driver and identifiers of each interface (agents.hardware).
    interfaces: Mapping[str, str]
    #: Longest IP packet of each interface, in bytes.
    mtus: Mapping[str, int]
    #: Number and model of the processors (agents.hardware).
    processors: str = "unknown"
    #: Hardware address of each interface with Ethernet's headers.
    macs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Clocks:
    """A node's clocks, read together."""

    realtime_ns: int
    monotonic_ns: int

    @property
    def lead_ns(self) -> int:
        """CLOCK_REALTIME less CLOCK_MONOTONIC."""
        return self.realtime_ns - self.monotonic_ns


@dataclass(frozen=True)
class InterfaceAddress:
    """An interface of the experiment and its address in CIDR notation."""

    name: str
    address: str


@dataclass(frozen=True)
class Neighbour:
    """An address on the link behind an interface, and the hardware address that has it."""

    address: str
    mac: str
    interface: str


@dataclass(frozen=True)
class CaptureRequest:
    """An interface to capture."""

    interface: str
    #: Path in the agent's folder.
    file: str
    #: Most that can pass, both directions together; None: no bound is known.
    rate_bps: float | None = None


@dataclass(frozen=True)
class CaptureCounts:
    """tcpdump's final counters, in packets; `dropped` counts every packet that is not in the file."""

    interface: str
    path: str
    captured: int
    received: int
    dropped: int


@dataclass(frozen=True)
class ShapingCounters:
    """What the kernel's queueing discipline counted."""

    packets: int
    bytes: int
    #: All of them: by a full queue, and the two below.
    drops: int
    #: By queue management.
    early: int = 0
    #: By an ack filter.
    purged: int = 0
    marked: int = 0


@dataclass(frozen=True)
class Shaped:
    """Counters of a shaped interface."""

    #: Packets that leave.
    root: ShapingCounters
    #: Packets that have arrived.
    delayed: ShapingCounters
