"""The scenario: one point of a campaign with every value fixed, as the node binary takes it (JSON, SI units).

Mirrors `testbed/core/src/scenario.rs` field by field; PYTHON_ONLY exist on this side only. A field that is absent from
the JSON is absent from `as_json()` too, and an integer stays an integer, so that a scenario read and written again is
the same document. Unknown fields are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, ValidationError

from testbed.errors import TestbedError

#: A direction of a link: `forward` runs from its first end, `reverse` from every other.
Direction = Literal["forward", "reverse"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
NodeKind = Literal["host", "router", "base-station"]
#: Options of a mechanism, by the names and in the units of its registry entry.
Options = Mapping[str, Any]

# Smart unions keep what JSON had: 50 is not written as 50.0 again.
Number = StrictInt | StrictFloat
Unsigned = Annotated[StrictInt, Field(ge=0)]
Port = Annotated[StrictInt, Field(ge=0, le=65_535)]


class Model(BaseModel):
    """A frozen part of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    def as_json(self) -> dict[str, Any]:
        """The JSON object that the model was made from."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def make(cls, **fields: Any) -> Self:
        """The part with these fields. None leaves a field unset, so that it is absent from `as_json()`."""
        return cls(**{name: value for name, value in fields.items() if value is not None})

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields; these are not validated."""
        return self.model_copy(update=changes)


class Named(Model):
    """A mechanism by its name in the registry."""

    name: str
    #: An absent option has the registry's default.
    options: Options = {}


class RouteSpec(Model):
    """Where a node sends packets for another node, or with `default` for all that it has no other route for."""

    to: str
    #: Name of the neighbour that gets the packets.
    via: str
    #: Name of the link to it; absent: there is only one.
    link: str | None = None


class Node(Model):
    """A host, router or base station."""

    name: str
    kind: NodeKind
    #: A host's TCP; absent for routers.
    stack: Named | None = None
    #: Simulation only: bound of the uniform processing time of each segment sent or received; absent: none.
    processing_s: Number | None = None
    #: In place of the shortest routes.
    routes: tuple[RouteSpec, ...] = ()


class MiddleboxSpec(Model):
    """A middlebox in the node at one end of a link, between the node and the link."""

    name: str
    options: Options = {}
    #: Index into the link's `ends`.
    end: Unsigned


class Change(Model):
    """New values for a direction from an instant on; absent fields keep theirs."""

    #: Seconds since the start of the run.
    at_s: Number
    rate_bps: Unsigned | None = None
    delay_s: Number | None = None
    jitter_s: Number | None = None
    errors: tuple[Named, ...] | None = None
    #: Packets that wait move to the new policy.
    queue: Named | None = None


class DirectionSpec(Model):
    """One direction of a link."""

    #: Absent: the line only delays, and its queue never fills.
    rate_bps: Unsigned | None = None
    #: One-way propagation delay.
    delay_s: Number = 0.0
    #: Each packet's delay is drawn uniformly within this of `delay_s`.
    jitter_s: Number = 0.0
    #: Jitter does not let packets overtake each other.
    keep_order: bool = False
    queue: Named
    #: Error models at the receiving side, applied in this order.
    errors: tuple[Named, ...] = ()
    #: Framing and header compression; the link kind defines them.
    options: Options = {}
    #: In order of time.
    schedule: tuple[Change, ...] = ()


class LinkSpec(Model):
    """A link between two nodes, or a shared medium between more."""

    name: str
    kind: str
    #: Node names.
    ends: tuple[str, ...]
    forward: DirectionSpec
    reverse: DirectionSpec
    options: Options = {}
    middleboxes: tuple[MiddleboxSpec, ...] = ()

    def direction(self, way: Direction) -> DirectionSpec:
        """One direction."""
        return self.forward if way == "forward" else self.reverse

    def directions(self) -> Iterator[tuple[Direction, DirectionSpec]]:
        """Both directions, forward first."""
        for way in DIRECTIONS:
            yield way, self.direction(way)

    @property
    def one_way(self) -> bool:
        """Whether packets pass only from the first end to the second."""
        return bool(self.options.get("one_way"))


class ServerSpec(Model):
    """A program that runs before its flow starts and until the flow has ended."""

    run: tuple[str, ...]
    #: What shows that it serves: a TCP or UDP socket on the flow's port, a line of its output, or that it was started.
    ready: Literal["tcp", "udp", "line", "started"]
    #: With `line`: text that the line contains.
    line: str | None = None
    #: Longest time until it serves.
    within_s: Number


class OutputMetric(Model):
    """A value in a program's output: at a path of its JSON, or the group of a pattern's last match."""

    json_: str | None = Field(None, alias="json")
    pattern: str | None = None
    of: Literal["client", "client-errors", "server", "server-errors"]
    #: A kind of testbed.units.UNITS.
    unit: str
    #: The value is multiplied by it, which gives the SI unit.
    scale: Number


class CommandSpec(Model):
    """Programs of a flow of kind `command` (testbed/core/src/command.rs)."""

    #: Host of the client; the server runs on the other one.
    client_at: Literal["from", "to"]
    #: Program and arguments, with placeholders.
    client: tuple[str, ...]
    server: ServerSpec | None = None
    environment: Mapping[str, str] = {}
    #: Texts by file name.
    files: Mapping[str, str] = {}
    metrics: Mapping[str, OutputMetric] = {}
    #: Most that each program may write to each of its outputs.
    output_bytes: Unsigned


class Flow(Model):
    """A flow, or a source of several flows."""

    name: str
    kind: str
    #: Flows with the same group are also measured together.
    group: str | None = None
    #: Sending host.
    from_: str = Field(alias="from")
    #: Receiving host.
    to: str
    #: Seconds since the start of the run.
    start_s: Number = 0.0
    #: Seconds since the start of the run; absent: at the end of its bytes or of the run.
    stop_s: Number | None = None
    #: Absent: the flow sends until it is stopped.
    bytes: Unsigned | None = None
    #: Of the receiver.
    port: Port
    #: Version of IP.
    ip: Literal[4, 6] = 4
    #: Stack options of this flow that differ from its hosts'.
    stack: Options = {}
    options: Options = {}
    #: Of a flow of kind `command`.
    command: CommandSpec | None = None


class Counters(Model):
    """What a simulation counts in bins of time."""

    #: Length of a bin.
    every_s: Number
    #: Names of links; empty: all.
    at: tuple[str, ...] = ()


class Capture(Model):
    """What is captured."""

    #: Bytes kept of each frame.
    snaplen: Unsigned
    #: Interfaces as `node:link`; empty: all; the single entry `none`: nothing.
    at: tuple[str, ...] = ()
    #: Whether stacks and links write samples of their state.
    telemetry: StrictBool = True
    #: Simulations only.
    counters: Counters | None = None


class Limits(Model):
    """How far a run on real packets, and its links in calibration, may deviate from what is declared.

    Only lateness has limits. A lost packet always makes a run invalid.
    """

    #: Rate of a busy direction against the declared rate, as a share of it; in calibration too.
    rate: Number = 0.005
    #: Delay of a link in calibration against the declared delay.
    delay_s: Number = 0.001
    #: 99th percentile of how late packets leave a link, or of how late a research-stack endpoint handles events.
    lateness_p99_s: Number = 0.002
    #: Longest time during which the emulator, or such an endpoint, did not run.
    stall_s: Number = 0.05
    #: Sum of these times over the run's duration.
    stalled_share: Number = 0.01


class Variation(Model):
    """What a repetition varied: bounds of the uniform draws, and the draws. A record that drivers ignore."""

    #: Delay of a flow's start.
    start_s: Number | None = None
    #: A host's processing time of a segment, drawn during the run.
    processing_s: Number | None = None
    #: Growth of a round-trip time, as a share of it.
    round_trip: Number | None = None
    #: Whether traces start at a drawn offset.
    phase: StrictBool = False
    #: Draws by the field of the scenario that has them, such as `workload.bulk.start_s`, in its unit.
    drawn: Mapping[str, Number] = {}


#: Fields of a scenario that the node binary never sees.
PYTHON_ONLY = frozenset({"fidelity", "kernel"})


class Scenario(Model):
    """One run's input."""

    #: Format of this document: 1.
    version: Unsigned
    #: Every random stream of the run derives from it.
    seed: Unsigned
    #: When the run ends.
    duration_s: Number
    #: Nothing before this second is measured.
    warm_up_s: Number = 0.0
    nodes: tuple[Node, ...]
    links: tuple[LinkSpec, ...]
    workload: tuple[Flow, ...]
    capture: Capture = Capture(snaplen=128)
    #: Absent: nothing varies but what draws during the run.
    variation: Variation | None = None
    #: What makes a run invalid.
    fidelity: Limits = Limits()
    #: The kernel in virtual time (testbed.virtual_kernel.kernels.name).
    kernel: str | None = None

    @property
    def uses_ipv6(self) -> bool:
        """Whether any flow does."""
        return any(flow.ip == 6 for flow in self.workload)

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("node", self._nodes, name)

    def link(self, name: str) -> LinkSpec:
        """The link of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("link", self._links, name)

    def flow(self, name: str) -> Flow:
        """The flow of that name.

        Raises:
            TestbedError: there is none.
        """
        return _find("flow", self._flows, name)

    def direction(self, link: str, way: Direction) -> DirectionSpec:
        """One direction of the link of that name.

        Raises:
            TestbedError: there is no such link.
        """
        return self.link(link).direction(way)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _links(self) -> dict[str, LinkSpec]:
        return {link.name: link for link in self.links}

    @cached_property
    def _flows(self) -> dict[str, Flow]:
        return {flow.name: flow for flow in self.workload}


#: A parsed JSON object.
Document = Mapping[str, Any]


@dataclass(frozen=True)
class ScenarioDocument:
    """A scenario as JSON, which is typed when it is first asked for: a plan or a store has thousands."""

    document: Document

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario, without null and unknown fields of its top level, which older versions wrote.

        Raises:
            TestbedError: it is none.
        """
        known = {name: self.document.get(name) for name in Scenario.model_fields}
        # Imports recorded the names of files there.
        if "snaplen" not in (known["capture"] or {}):
            known["capture"] = None
        try:
            return Scenario.model_validate({name: value for name, value in known.items() if value is not None})
        except ValidationError as error:
            raise TestbedError(f"a scenario cannot be read: {error}") from None

    def free(self) -> None:
        """Frees the typed scenario. It is made again when it is asked for."""
        vars(self).pop("scenario", None)


T = TypeVar("T")


def _find(kind: str, items: Mapping[str, T], name: str) -> T:
    try:
        return items[name]
    except KeyError:
        known = ", ".join(items) or "none"
        raise TestbedError(f"the scenario has no {kind} '{name}'; it has: {known}") from None
