"""What a run reports: links and their directions, flows, captures, calibration, stalls and clocks, as types.

The simulator, the emulator and the traffic programs write JSON. `Report.read` reads it once, at the edge; `as_json()`
returns the same document for the run's manifest. What Rust alone writes is in testbed/node_types.py. Here are the
types that Python or several programs write. Fields that nothing here computes with are kept as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed import node_types
from testbed.documents import NOTHING, Document, Model, Part
from testbed.node_types import (
    Arrival as Arrival,
    DirectionAudit as DirectionAudit,
    Fault as Fault,
    Lateness as Lateness,
    ProbeReceiveReport as ProbeReceiveReport,
    ProbeSendReport as ProbeSendReport,
    ProgramReport as ProgramReport,
)
from testbed.scenario import Direction


class DirectionReport(Part):
    """Counters of one direction of a link (testbed/core/src/report.rs)."""

    #: Declared; None where the link only delays or its rate changes.
    rate_bps: float | None = None
    submitted_packets: int = 0
    delivered_packets: int = 0
    #: Packets that the receiving interface did not take.
    refused_by_interface: int = 0
    #: Packets that the kernel dropped before the emulator read them; None: the interface is gone, so they are unknown.
    lost_before_the_link: int | None = 0
    transmitted_packets: int = 0
    transmitted_bytes: int = 0
    #: With framing.
    transmitted_wire_bytes: float = 0
    #: None where a kernel shapes the link.
    busy_s: float | None = None
    #: Achieved rate over the declared rate, minus 1, of the worst second; None if not measured.
    rate_error: float | None = None
    lateness_s: Lateness = Lateness()
    #: Packets lost or damaged by the direction's error models.
    error_losses: int = 0
    #: Count of each kind of event.
    events: Mapping[str, int] = NOTHING


#: Event kinds of packets that a queue did not send.
DROPS = ("dropped_full", "dropped_early", "purged")


class DirectionStatus(node_types.DirectionStatus):
    """One direction of a link while it runs."""

    @property
    def dropped_packets(self) -> int:
        """Packets that the queue dropped or purged."""
        return sum(self.events.get(kind, 0) for kind in DROPS)


#: A link's directions: forward, reverse; on a shared medium also port-2, port-3, ...
LinkReport = Mapping[str, DirectionReport]


class Stalls(node_types.Stalls):
    """Times longer than 1 ms during which the emulator did not run."""

    @property
    def queued_share(self) -> float:
        """Share of the stalls that other programs caused; 1 where the kernel does not count it."""
        return 1.0 if self.queued_s is None or not self.total_s else min(1.0, self.queued_s / self.total_s)


class DriverReport(Part):
    """What moved the packets: the simulator, an emulator, or the emulators of several link boxes."""

    links: Mapping[str, LinkReport] = NOTHING
    #: Whether every emulator had a real-time priority; absent in virtual time.
    realtime: bool | None = None
    #: Absent in virtual time, and where nothing is emulated.
    stalls: Stalls | None = None
    #: Tests of the guards only: the fault that was injected.
    fault: Fault | None = None

    def with_links(self, links: Mapping[str, LinkReport]) -> DriverReport:
        """The same report with further links, or with others in place of its own."""
        return self.replace(links={**self.links, **links})


class EndReport(Part):
    """One end of a flow, as its program or the simulator reports it."""

    bytes: int = 0
    #: QUIC on real packets: names of the qlog files, one a connection.
    qlogs: Sequence[str] = ()
    #: Research stack in real time: how late segments and timers were handled.
    lateness_s: Lateness | None = None


class SendReport(EndReport):
    """The sending end."""

    #: Seconds between its start time and its real start.
    started_late_s: float = 0.0
    #: Research stack: data segments sent again, and retransmissions that duplicate acks caused.
    retransmitted: int | None = None
    fast_retransmits: int | None = None


class ReceiveReport(EndReport):
    """The receiving end."""

    #: The payload is what the sender's generator makes.
    payload_ok: bool = True


class CommandReport(Part):
    """Both programs of a flow of kind `command`."""

    client: ProgramReport
    server: ProgramReport | None = None
    #: Seconds since the run's zero; None: the client never started.
    started_s: float | None
    ended_s: float


class FlowReport(Part):
    """Both ends of a flow."""

    send: SendReport = SendReport()
    receive: ReceiveReport = ReceiveReport()
    #: Of a flow of kind `command`, whose programs report nothing else.
    command: CommandReport | None = None

    def lateness_of_ends(self) -> Iterator[tuple[str, float, float]]:
        """Name, 99th percentile and maximum of lateness in seconds, for each end that measured any."""
        for name, end in (("sender", self.send), ("receiver", self.receive)):
            late = end.lateness_s
            if late is not None and late.p99 is not None and late.max is not None:
                yield name, late.p99, late.max


class CaptureReport(Part):
    """One interface's capture and its counters, in packets."""

    node: str
    interface: str
    #: File name in the run's `captures` folder.
    path: str
    captured: int
    #: None where it is unknown: an imported file.
    received: int | None = None
    #: Every packet that is not in the file; None where it is unknown.
    dropped: int | None = None


class InterfaceReport(Part):
    """One interface of the run's network."""

    node: str
    interface: str
    link: str
    end: int
    address: str


class Measurement(Model):
    """One direction of a link in calibration: declared and measured."""

    link: str
    direction: Direction
    #: Bit/s; None where the link only delays.
    declared_rate_bps: float | None
    measured_rate_bps: float | None
    declared_delay_s: float
    measured_delay_s: float | None
    #: Probes.
    sent: int
    received: int
    #: Probes that the link's own error model was meant to lose.
    taken_by_errors: int
    #: What deviates by more than the limits, as sentences.
    problems: tuple[str, ...] = ()
    #: A real link, by its kind: it is measured, and never rejected.
    real: str | None = None


class HostClock(Part):
    """One host's clock against the controller's, over a run."""

    offset_before_s: float
    offset_after_s: float
    #: A corrected stamp is wrong by at most this.
    uncertainty_s: float
    #: Gain over the controller's clock, as a ratio.
    drift: float
    #: False: it was set during the run.
    steady: bool


class Report(Part):
    """A run's report."""

    #: CLOCK_REALTIME at the run's zero.
    t0_epoch_ns: int
    #: Of an import: empty.
    driver: DriverReport = DriverReport()
    captures: tuple[CaptureReport, ...] = ()
    flows: Mapping[str, FlowReport] = NOTHING
    interfaces: tuple[InterfaceReport, ...] = ()
    #: Seconds that the run lasted; None in virtual time, where it is the scenario's.
    duration_s: float | None = None
    #: Seconds by which the last sender was ready after the run's zero.
    armed_late_s: float = 0.0
    #: What each node's kernel answered to its settings.
    settings: Mapping[str, Mapping[str, str]] = NOTHING
    #: Hosts by name, and with "one_way_delays" and "why" whether stamps of two hosts compare.
    clocks: Mapping[str, HostClock | str] | None = None
    #: Real links, by kind.
    real_links: Mapping[str, str] | None = None
    #: Which host each node runs on.
    hosts: Mapping[str, str] | None = None
    #: What played nodes and links on real hosts (testbed.installation).
    installation: Document | None = None
    #: What a cell's emulator ran without, a sentence each (testbed.capability.lacked); absent: nothing.
    lacked: Sequence[str] = ()
    #: By link and direction; absent in virtual time.
    audit: Mapping[str, Mapping[str, DirectionAudit]] | None = None

    def directions(self) -> Iterator[tuple[str, str, DirectionReport]]:
        """Link, direction and counters of every direction."""
        for link, directions in self.driver.links.items():
            for direction, counters in directions.items():
                yield link, direction, counters


class SessionHost(Part):
    """A node of a session, for programs that enter it."""

    address: str
    #: A process in its namespaces, as the cell numbers it.
    pid: int
    #: Number of its network namespace, by which processes outside of the cell find it.
    net_inode: int


class SessionStatus(Part):
    """A session while it runs."""

    #: Seconds since its zero.
    passed_s: float
    #: Size of captures and telemetry so far, in bytes; None once the record has ended.
    recorded_bytes: int | None
    links: Mapping[str, Mapping[str, DirectionStatus]]


class ProblemKind(StrEnum):
    """What makes a run invalid."""

    LOST = "lost"
    ORDER = "order"
    RATE = "rate"
    DELAY = "delay"
    QUEUE = "queue"
    LATE = "late"
    STALLED = "stalled"
    CAPTURE = "capture"
    PAYLOAD = "payload"
    DELIVERY = "delivery"
    COMMAND = "command"
    FAULT = "fault"


@dataclass(frozen=True)
class Problem:
    """One reason for which a run is invalid."""

    kind: ProblemKind
    #: Link and direction, interface or flow; empty for the whole run.
    subject: str
    #: For people; names the subject.
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Phase(StrEnum):
    """What a testbed is doing."""

    STARTING = "starting"
    CONNECTING = "connecting"
    BUILDING = "building"
    CALIBRATING = "calibrating"
    PREPARING = "preparing"
    RUNNING = "running"
    COLLECTING = "collecting"
    SIMULATING = "simulating"
    ANALYSING = "analysing"


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    phase: Phase
    #: Seconds of the run's own time that have passed, while it is running.
    passed_s: float = 0.0
    #: The run's duration; 0 outside of a run.
    total_s: float = 0.0

    def __str__(self) -> str:
        return f"running, {self.passed_s:.0f} s" if self.phase is Phase.RUNNING else self.phase.value

    def as_json(self) -> dict[str, Any]:
        """For a message between processes."""
        return {"phase": self.phase.value, "passed_s": self.passed_s, "total_s": self.total_s}

    @classmethod
    def from_json(cls, message: Mapping[str, Any]) -> Progress:
        """From such a message."""
        return cls(Phase(message["phase"]), float(message["passed_s"]), float(message["total_s"]))


def sentences(problems: Sequence[Problem]) -> list[str]:
    """The problems for people and for the store."""
    return [problem.sentence for problem in problems]
