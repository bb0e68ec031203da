"""What the node binary reads and reports, as declared in Rust.

Made by `python -m tests.node_types --update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from testbed.documents import NOTHING, Model, Part, UInt16, UInt32, UInt64

#: Why a program ended.
Ended = Literal["itself", "stopped", "flooded"]
#: An end of a flow.
FlowEnd = Literal["from", "to"]
#: Version of the Internet Protocol.
IpVersion = Literal[4, 6]
#: What a node does.
NodeKind = Literal["host", "router", "base-station"]
#: What shows that a server serves.
Ready = Literal["tcp", "udp", "line", "started"]
#: An output of a flow's programs.
Stream = Literal["client", "client-errors", "server", "server-errors"]


class Capture(Model):
    """What is recorded."""

    #: Interfaces as `node:link`. Empty: all. A single `none`: no captures.
    at: tuple[str, ...] = ()
    #: Simulation only: traffic in bins of time, for runs without captures.
    counters: Counters | None = None
    #: Bytes kept of each packet.
    snaplen: UInt32
    #: Whether stacks and links write telemetry. A simulation without it is faster.
    telemetry: bool = True


class Lateness(Part):
    """Quantiles of lateness in seconds. Null without a sample."""

    #: Maximum. Unit: s.
    max: float | None = None
    #: Median. Unit: s.
    p50: float | None = None
    #: 99th percentile. Unit: s.
    p99: float | None = None


class Arrival(Part):
    """A probe at the receiver."""

    #: CLOCK_REALTIME of the receiving kernel. Unit: ns.
    received_ns: int
    #: CLOCK_REALTIME of the sender. Unit: ns.
    sent_ns: int
    #: Number of the probe, from 0.
    seq: int


class Change(Model):
    """A change of a direction at an instant. Absent fields do not change."""

    #: Seconds since the start of the run.
    at_s: float
    #: New delay in seconds. Packets in flight keep theirs, and packets do not overtake each other.
    delay_s: float | None = None
    #: New error models.
    errors: tuple[Named, ...] | None = None
    #: New jitter in seconds.
    jitter_s: float | None = None
    #: New queue policy. Packets that wait move to it in order, and it drops those for which it has no room.
    queue: Named | None = None
    #: New rate in bit/s.
    rate_bps: UInt64 | None = None


class CommandSpec(Model):
    """A program on each host of a flow. Words and environment variables may contain the placeholders `{client}` and
    `{server}`, which are addresses, `{port}` and `{seed}`.
    """

    #: Program and arguments of the client, which starts with the flow.
    client: tuple[str, ...]
    #: Host of the client; the server runs on the other one.
    client_at: FlowEnd
    #: Environment variables of both programs.
    environment: Mapping[str, str] = NOTHING
    #: Texts by file name, in the working folders of both programs. A text that starts with `#!` is executable.
    files: Mapping[str, str] = NOTHING
    #: Values that are read from the output, by name.
    metrics: Mapping[str, OutputMetric] = NOTHING
    #: Most that each program may write to each of its two outputs. One that writes more is ended.
    output_bytes: UInt64
    #: What the client talks to. Absent: nothing is started on the other host.
    server: ServerSpec | None = None


class Counters(Model):
    """What a simulation counts in bins of time."""

    #: Names of the links. Empty: all.
    at: tuple[str, ...] = ()
    #: Length of a bin in seconds.
    every_s: float


class DirectionAudit(Part):
    """What the captures at both ends of one direction of a link show."""

    #: Packets that left with another checksum, apart from reported damage. Unit: packet.
    changed_packets: int = 0
    #: Those of them at a queue that was not full. Unit: packet.
    drops_before_limit: int = 0
    #: Those of them at a queue that was longer than declared. Unit: packet.
    drops_beyond_limit: int = 0
    #: Drops at a full queue whose occupancy was determined. Unit: packet.
    drops_checked: int = 0
    #: Packets that entered during the run. Unit: packet.
    entered_packets: int = 0
    #: Packets that left and had not entered, apart from reported duplicates. Unit: packet.
    invented_packets: int = 0
    #: On a link with jitter: packets for which it reported nothing, or more than its declared jitter. Unit: packet.
    jitter_unexplained_packets: int = 0
    #: How long after its time each packet left.
    lateness_s: Lateness = Lateness()
    #: Least transit time of any packet minus what queueing, rate and delay allow; null without enough packets. Unit: s.
    least_excess_s: float | None = None
    #: Packets that left during the run. Unit: packet.
    left_packets: int = 0
    #: A length that the queue reached for certain; null if the queue was not checked. Unit: packet.
    longest_queue_packets: int | None = None
    #: Declared limit of the queue; null if the queue was not checked. Unit: packet.
    queue_limit_packets: int | None = None
    #: Achieved over declared rate, minus 1, of the second that deviates most; null if not measured. Unit: 1.
    rate_error: float | None = None
    #: The same as a number of bytes that each packet takes in addition to its declared size on the link. Unit: byte.
    rate_error_bytes: float | None = None
    #: Busy time over which the rate was measured. Unit: s.
    rate_measured_s: float = 0.0
    #: Packets that left after a packet that had entered later. Behind a policy that reorders, of the same flow. Unit:
    #: packet.
    reordered_packets: int = 0
    #: Packets that did not leave, although the link had time for them and reported no drop or loss. Unit: packet.
    swallowed_packets: int = 0
    #: Checks that were not made, with the reason: `all`, `rate`, `transit`, `queue`.
    unchecked: Mapping[str, str] = NOTHING


class DirectionSpec(Model):
    """One direction of a link."""

    #: One-way propagation delay in seconds.
    delay_s: float = 0.0
    #: Error models at the receiving side, applied in this order.
    errors: tuple[Named, ...] = ()
    #: Jitter in seconds, at most the delay: each packet's propagation delay is drawn uniformly from `delay_s` -
    #: `jitter_s` to `delay_s` + `jitter_s`.
    jitter_s: float = 0.0
    #: Jitter does not let packets overtake each other: a packet arrives no earlier than the one before it.
    keep_order: bool = False
    #: Options of the direction, such as header compression and framing, see the link kind.
    options: Mapping[str, Any] = NOTHING
    #: Queue policy in front of the line.
    queue: Named
    #: Rate in bit/s. Absent: the line only delays, and no queue builds up for a policy to act on.
    rate_bps: UInt64 | None = None
    #: Changes during the run, in order of time.
    schedule: tuple[Change, ...] = ()


class DirectionStatus(Part):
    """A direction while it runs: counters since the start of the run, and its queue now."""

    #: Packets that left. Unit: packet.
    delivered_packets: int
    #: Number of events of each kind.
    events: Mapping[str, int]
    #: Bytes that wait. Unit: B.
    queue_bytes: int
    #: Packets that wait. Unit: packet.
    queue_packets: int
    #: Packets that entered. Unit: packet.
    submitted_packets: int
    #: Network-layer bytes that the line serialised. Unit: B.
    transmitted_bytes: int


class Fault(Model):
    """A fault of both directions of a link."""

    #: What is wrong with it.
    kind: Mapping[str, Any]
    #: Name of the link.
    link: str


class Flow(Model):
    """A flow."""

    #: Bytes to send. Absent: until stopped.
    bytes: UInt64 | None = None
    #: Programs of a flow of kind `command`.
    command: CommandSpec | None = None
    #: Sending host.
    from_: str
    #: Flows of one group are also measured together.
    group: str | None = None
    #: Version of IP that it uses: 4 or 6.
    ip: IpVersion = 4
    #: Kind in the registry, such as `bulk`, `cbr`, `web` or `on-off`.
    kind: str
    #: Name, unique in the scenario.
    name: str
    #: Options of the workload kind.
    options: Mapping[str, Any] = NOTHING
    #: Port of the receiver.
    port: UInt16
    #: Stack options of this flow that override those of its hosts.
    stack: Mapping[str, Any] = NOTHING
    #: Start in seconds since the start of the run. A range in the campaign has been drawn already.
    start_s: float = 0.0
    #: End in seconds since the start of the run. Absent: when its bytes are delivered, or at the end of the run.
    stop_s: float | None = None
    #: Receiving host.
    to: str


class Headers(Part):
    """RFC 1144 header compression of one direction. All counts are packets."""

    #: Sent with a compressed header.
    compressed: int
    #: Discarded by the far end, which could not decompress the header.
    tossed: int
    #: Sent uncompressed to set a slot of the far end.
    uncompressed: int
    #: Sent unchanged: not TCP, start or end of a connection, or a fragment.
    unmodified: int
    #: Delivered with a wrong header, because the ends were out of step.
    wrong: int


class LinkSpec(Model):
    """A link. Direction `forward` runs from `ends[0]` to `ends[1]`, `reverse` back. A shared medium has more ends."""

    #: Names of the nodes at its ends.
    ends: tuple[str, ...]
    #: Direction from the first end.
    forward: DirectionSpec
    #: Kind in the registry, such as `point-to-point`, `ricochet` or `wavelan`.
    kind: str
    #: Middleboxes at its ends.
    middleboxes: tuple[MiddleboxSpec, ...] = ()
    #: Name, unique in the scenario.
    name: str
    #: Options of the link kind.
    options: Mapping[str, Any] = NOTHING
    #: Direction from the second end, and from every further end of a shared medium.
    reverse: DirectionSpec


class MiddleboxSpec(Model):
    """A middlebox in the node at one end of a link, between node and link."""

    #: End of the link: 0 or 1.
    end: UInt16
    #: Name in the registry.
    name: str
    #: Options.
    options: Mapping[str, Any] = NOTHING


class Named(Model):
    """A mechanism by name, with its options."""

    #: Name in the registry.
    name: str
    #: Options. Absent options take the registry's defaults.
    options: Mapping[str, Any] = NOTHING


class Node(Model):
    """A node."""

    #: What the node does.
    kind: NodeKind
    #: Name, unique in the scenario.
    name: str
    #: Simulation only: each segment that a host sends or receives takes it a time drawn uniformly from 0 to this many
    #: seconds. Segments of one direction keep their order. Absent: none.
    processing_s: float | None = None
    #: Routes that replace the shortest ones. testbed/addressing.py makes addresses of them; drivers read those.
    routes: tuple[RouteSpec, ...] = ()
    #: TCP of a host.
    stack: Named | None = None


class OutputMetric(Model):
    """A value in the output of a program: at a path of its JSON, or the group of a pattern's last match."""

    #: Names and indices with dots between, such as `end.streams.0.udp.jitter_ms`.
    json: str | None = None
    #: Where the value is.
    of: Stream
    #: Regular expression with one group.
    pattern: str | None = None
    #: Its unit in the SI unit: the value is multiplied by it.
    scale: float
    #: What it is: rate, time, bytes, packets, segments, fraction, number or count.
    unit: str


class ProbeReceiveReport(Part):
    """Report of `probe receive`."""

    #: Probes that arrived, in the order of arrival.
    packets: tuple[Arrival, ...]


class ProbeSendReport(Part):
    """Report of `probe send`."""

    #: Probes sent. Unit: packet.
    sent: int


class ProgramReport(Part):
    """Report of `program`."""

    #: Why it ended.
    ended: Ended
    #: End on CLOCK_MONOTONIC. Unit: ns.
    ended_monotonic_ns: int
    #: What it wrote to its standard error. Unit: byte.
    error_bytes: int
    #: Its exit status. Null after a signal. Unit: 1.
    exit_status: int | None = None
    #: Processes that it had left in the background, which were ended. Unit: 1.
    left_behind: int
    #: What it wrote to its standard output, kept or not. Unit: byte.
    output_bytes: int
    #: Number of the signal that ended it. Null if it exited, or never started. Unit: 1.
    signal: int | None = None
    #: Time between the requested and the actual start. Unit: s.
    started_late_s: float
    #: Start on CLOCK_MONOTONIC. Null if it never started. Unit: ns.
    started_monotonic_ns: int | None = None


class RouteSpec(Model):
    """Where a node sends packets for another node, or for all that it has no other route for."""

    #: Name of the link to the neighbour. Absent: there is only one.
    link: str | None = None
    #: Name of a node, or `default`.
    to: str
    #: Name of the neighbour that gets the packets.
    via: str


class Scenario(Model):
    """A network, its traffic and what is recorded."""

    #: What is recorded.
    capture: Capture = Capture(snaplen=128)
    #: Length of the run in seconds.
    duration_s: float
    #: Links between the nodes.
    links: tuple[LinkSpec, ...]
    #: Hosts and routers.
    nodes: tuple[Node, ...]
    #: Seed of the run. Every random stream derives from it.
    seed: UInt64
    #: What the repetition varied. A record: drivers use the drawn values in their own fields. Absent: nothing.
    variation: Variation | None = None
    #: Version of this format: 1.
    version: UInt32
    #: Seconds at the start that are not measured.
    warm_up_s: float = 0.0
    #: Flows.
    workload: tuple[Flow, ...]


class ServerSpec(Model):
    """A program that runs before the flow starts and until it has ended."""

    #: With `line`: text that a line of its output contains once it serves.
    line: str | None = None
    #: What shows that it serves.
    ready: Ready
    #: Program and arguments. It stays in the foreground.
    run: tuple[str, ...]
    #: Longest time until it serves, in seconds.
    within_s: float


class Stalls(Part):
    """Times during a run at which the emulator was not scheduled: wake-ups more than 1 ms late."""

    #: Number of stalls.
    count: int
    #: Length of the longest. Unit: s.
    longest_s: float
    #: Part of the total during which other programs had the CPU. Null where the kernel does not count that. Unit: s.
    queued_s: float | None = None
    #: Sum of their lengths. Unit: s.
    total_s: float


class Variation(Model):
    """Differences between repetitions that the expansion of a campaign drew: bounds of the uniform draws, and the
    draws.
    """

    #: Draws by the field of the scenario that has them, such as `workload.bulk.start_s`, in its unit.
    drawn: Mapping[str, float] = NOTHING
    #: Whether traces start at a drawn offset.
    phase: bool = False
    #: Bound of a host's processing time of a segment, in seconds; drawn during the run.
    processing_s: float | None = None
    #: Bound of the growth of a round-trip time, as a share of it.
    round_trip: float | None = None
    #: Bound of the delay of a flow's start, in seconds.
    start_s: float | None = None
