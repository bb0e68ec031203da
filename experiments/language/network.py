"""A campaign's network: a topology by name with its lines, or nodes and links."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from experiments.language import files, registry
from experiments.language.mechanisms import ErrorModel, LinkKind, MiddleboxOrNone, Policy, Stack
from experiments.language.quantities import Bytes, Model, Name, Rate, Seconds, default, quantity, time_range
from testbed import scenario


def _file(value: object, info: ValidationInfo) -> str | None:
    return None if value is None else files.named(value, files.reader(info))


class LineFields(TypedDict, total=False):
    """Fields of a direction or of a change of it, as a campaign file would have them."""

    rate: object
    delay: object
    jitter: object
    queue: object
    errors: object


class Change(Model):
    """A change of a direction at one time of the run."""

    at: Seconds
    rate: Rate | None = None
    delay: Seconds | None = None
    jitter: Seconds | None = None
    errors: list[ErrorModel] | None = None
    queue: Policy | None = Field(None, description="waiting packets move to the new policy")

    @model_validator(mode="after")
    def _changes_something(self) -> Change:
        if all(value is None for value in (self.rate, self.delay, self.jitter, self.errors, self.queue)):
            raise ValueError("a change needs a new 'rate', 'delay', 'jitter', 'errors' or 'queue'")
        return self

    def as_scenario(self) -> scenario.Change:
        """The change in a scenario."""
        return scenario.Change.make(
            at_s=self.at,
            rate_bps=None if self.rate is None else round(self.rate),
            delay_s=self.delay,
            jitter_s=self.jitter,
            errors=None if self.errors is None else tuple(model.as_scenario() for model in self.errors),
            queue=None if self.queue is None else self.queue.as_scenario(),
        )


class Direction(Model):
    """One direction of a link."""

    rate: Rate | None = Field(None, description="bit/s; default: unlimited, the link only delays")
    delay: Seconds = 0.0
    jitter: Seconds = Field(default=0.0, description="each packet's delay is drawn uniformly within this of 'delay'")
    keep_order: bool = Field(default=False, description="jitter does not let packets overtake each other")
    queue: Policy = Field(default_factory=default(Policy, "droptail"))
    errors: list[ErrorModel] = Field(default_factory=list)
    changes: list[Change] = Field(default_factory=list)
    header_compression: Literal["none", "cslip", "cslip-acks", "rfc1144"] = "none"
    slots: int = Field(default=16, ge=1, le=256, description="rfc1144: number of connection states")
    name_every_slot: bool = Field(default=False, description="rfc1144: every packet carries its slot number")
    framing: Literal["none", "slip", "ppp"] = "none"
    accm: int = Field(
        default=0xFFFFFFFF, ge=0, le=0xFFFFFFFF, description="ppp: control characters to escape, one bit each"
    )
    bits_per_byte: Literal[8, 10] = 8
    free_options: bool = Field(
        default=False, description="TCP options take no transmission time, as in the simulator of the papers"
    )
    device_buffer: Bytes | None = Field(default=None, description="size of a modem's transmit buffer behind the queue")
    clock_tick: Seconds | None = Field(
        default=None, description="time between interrupts of a host that emulates the link; sends at these only"
    )
    #: Content of the file of delivery opportunities. For mahimahi links.
    trace: Annotated[str | None, BeforeValidator(_file)] = None

    @model_validator(mode="after")
    def _jitter_within_the_delay(self) -> Direction:
        delay, jitter, has_jitter, when = self.delay, self.jitter, "jitter" in self.model_fields_set, ""
        for change in (None, *self.changes):
            if change is not None:
                has_jitter = has_jitter or change.jitter is not None
                delay = delay if change.delay is None else change.delay
                jitter = jitter if change.jitter is None else change.jitter
                when = f" from {change.at:g} s on"
            if jitter > delay:
                raise ValueError(
                    f"the jitter of {jitter * 1e3:g} ms exceeds the delay of {delay * 1e3:g} ms{when}; a packet cannot "
                    "arrive before it was sent, so lower 'jitter' or raise 'delay'"
                )
        if self.keep_order and not has_jitter:
            raise ValueError("'keep_order' needs a 'jitter': without it packets do not overtake each other")
        return self

    def as_scenario(self) -> scenario.DirectionSpec:
        """The direction in a scenario."""
        options = {name: value for name, default_ in _serial_defaults() if (value := getattr(self, name)) != default_}
        if self.device_buffer is not None:
            options["device_buffer_bytes"] = self.device_buffer
        if self.clock_tick:
            options["clock_tick_s"] = self.clock_tick
        if self.trace is not None:
            options["trace"] = self.trace
        return scenario.DirectionSpec.make(
            delay_s=self.delay,
            jitter_s=self.jitter or None,
            keep_order=self.keep_order or None,
            queue=self.queue.as_scenario(),
            rate_bps=None if self.rate is None else round(self.rate),
            errors=tuple(model.as_scenario() for model in self.errors) or None,
            options=options or None,
            schedule=tuple(change.as_scenario() for change in self.changes) or None,
        )


class Access(Direction):
    """Both directions of the links between a topology's hosts and its routers."""

    kind: LinkKind | None = Field(None, description="default: point-to-point")


class Route(Model):
    """Where a node sends packets for another node."""

    to: str = Field(description="a node, or default: every node without a route of its own")
    via: str = Field(description="the neighbour that gets the packets")
    link: Name | None = Field(None, description="the link to it, where there are several")


#: Fields of a direction that are options of serial lines.
_SERIAL = ("header_compression", "slots", "name_every_slot", "framing", "accm", "bits_per_byte", "free_options")


@cache
def _serial_defaults() -> list[tuple[str, Any]]:
    return [(name, Direction.model_fields[name].default) for name in _SERIAL]


class Node(Model):
    """A node of a network without a named topology."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$", max_length=9)]
    kind: Literal["host", "router", "base-station"] = "host"
    stack: Stack | None = Field(None, description="stack of this host; default: the campaign's stack")
    routes: list[Route] = Field(default_factory=list, description="in place of the routes with the fewest links")

    def as_scenario(self) -> scenario.Node:
        """The node in a scenario, without a stack."""
        routes = tuple(scenario.RouteSpec.make(to=route.to, via=route.via, link=route.link) for route in self.routes)
        return scenario.Node.make(name=self.name, kind=self.kind, routes=routes or None)


def _with_profile(value: object, kind_key: str) -> object:
    """Adds the fields of a profile that the file does not set.

    Raises:
        ValueError: unknown profile.
    """
    if not isinstance(value, dict) or not isinstance(value.get("profile"), str):
        return value
    spec = registry.find("profile", value["profile"]).spec
    assert spec is not None, "a profile is a link"
    filled = dict(value)
    filled[kind_key] = _with_options(filled.get(kind_key), spec)
    for way, line in spec.directions():
        fields = filled.get(way)
        if fields is not None and not isinstance(fields, dict):
            continue
        queue = {"policy": line.queue.name, **registry.find("policy", line.queue.name).written(line.queue.options)}
        preset = {"rate": f"{line.rate_bps} bit/s", "delay": f"{line.delay_s} s", "queue": queue}
        filled[way] = {**preset, **line.options, **(fields or {})}
    return filled


def _with_options(kind: object, spec: scenario.LinkSpec) -> object:
    """The kind of a file, or None, with those options of a profile of that kind that the file does not set."""
    declared = {"kind": spec.kind} if kind is None else {"kind": kind} if isinstance(kind, str) else kind
    if not isinstance(declared, dict) or declared.get("kind") != spec.kind:
        return kind
    entry = registry.find("link", spec.kind)
    unset = {
        name: value for name, value in spec.options.items() if not {name, entry.param(name).short} & declared.keys()
    }
    return {**entry.written(unset), **declared}


class Link(Model):
    """A link of a network without a named topology."""

    name: Name
    profile: str | None = Field(None, description="a link by name; fields of the file override its fields")
    kind: LinkKind = Field(default_factory=default(LinkKind, "point-to-point"))
    ends: list[str] = Field(min_length=2)
    forward: Direction
    reverse: Direction | None = Field(None, description="default: as forward")
    framing: Bytes | None = None
    one_way: bool = Field(False, description="only the first end sends; the other direction needs another link")
    #: Runs in the node at the first end.
    middlebox: MiddleboxOrNone = None

    @model_validator(mode="before")
    @classmethod
    def _profile(cls, value: object) -> object:
        return _with_profile(value, "kind")

    def as_scenario(self) -> scenario.LinkSpec:
        """The link in a scenario."""
        return scenario.LinkSpec.make(
            name=self.name,
            kind=self.kind.name,
            ends=tuple(self.ends),
            forward=self.forward.as_scenario(),
            reverse=(self.reverse or self.forward).as_scenario(),
            options={
                **self.kind.options,
                **({} if self.framing is None else {"framing_bytes": self.framing}),
                **({"one_way": True} if self.one_way else {}),
            },
            middleboxes=None if self.middlebox is None else (self.middlebox.at_first_end(),),
        )


class Network(Model):
    """The network: a topology by name with its lines, or nodes and links spelled out."""

    topology: str | None = None
    profile: str | None = Field(None, description="the topology's link by name; fields of the file override its fields")
    link: LinkKind | None = Field(None, description="kind of the topology's link; default: point-to-point")
    #: Runs in the router where forward data enter the line.
    middlebox: MiddleboxOrNone = None
    forward: Direction | None = Field(None, description="the topology's link, towards the client")
    reverse: Direction | None = None
    access: Access | None = Field(None, description="the links between hosts and routers; default: 10 Mbit/s, 1 ms")
    #: Number of hosts behind the radio, or at the end of the cable.
    mobiles: Annotated[int, quantity("count", above=0, most=200)] = 1
    #: Propagation delay of both ways, in s. Each pair of hosts draws from the range.
    rtt: tuple[float, float] | None = None
    nodes: list[Node] = Field(default_factory=list)
    links: list[Link] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _profile(cls, value: object) -> object:
        return _with_profile(value, "link")

    @field_validator("topology")
    @classmethod
    def _exists(cls, value: str | None) -> str | None:
        return None if value is None else registry.find("topology", value).name

    @field_validator("rtt", mode="before")
    @classmethod
    def _rtt_range(cls, value: object) -> tuple[float, float] | None:
        return None if value is None else time_range(value, "the round-trip time")

    @model_validator(mode="after")
    def _topology_or_links(self) -> Network:
        if self.rtt is not None and self.topology != "dumbbell":
            raise ValueError("'rtt' is a field of the topology dumbbell only")
        if self.mobiles > 1 and self.topology not in ("packet-radio", "hybrid"):
            raise ValueError("'mobiles' is a field of the topologies packet-radio and hybrid only")
        if self.topology is None:
            if not self.nodes or not self.links:
                raise ValueError("a network needs a 'topology', or 'nodes' and 'links'")
            if self.forward or self.reverse or self.access or self.link or self.middlebox:
                raise ValueError(
                    "'link', 'middlebox', 'forward', 'reverse' and 'access' need a 'topology'; "
                    "without it, 'links' describe every link"
                )
        elif self.nodes or self.links:
            raise ValueError("a network has a 'topology', or 'nodes' and 'links', not both")
        elif self.forward is None:
            raise ValueError(f"topology {self.topology} needs 'forward': the link under study")
        return self
