"""The campaign file: its fields, as pydantic models. docs/campaigns.md explains them to people.

Values leave here in SI units. Names of mechanisms and their options are held against the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from analysis.figures.spec import FigureSpec
from analysis.measures import Measure, Split
from experiments.language import registry
from testbed import units


def _quantity(
    kind: str, least: float | None = 0, above: float | None = None, most: float | None = None
) -> BeforeValidator:
    def read(value: object) -> float | int:
        number = units.parse(value, kind)
        if above is not None and number <= above:
            raise ValueError(f"'{value}' is not possible: it must be greater than {above:g}")
        if least is not None and number < least:
            allowed = "it must not be negative" if least == 0 else f"it must be at least {least:g}"
            raise ValueError(f"'{value}' is not possible: {allowed}")
        if most is not None and number > most:
            raise ValueError(f"'{value}' is not possible: it must be at most {most:g}")
        return number

    return BeforeValidator(read)


def _file(value: object) -> str | None:
    return None if value is None else registry.read_file(value)


#: Scenarios have whole bit/s.
Rate = Annotated[float, _quantity("rate", above=0, least=1, most=1e12)]
#: At most about eleven days, the longest a run can be.
Seconds = Annotated[float, _quantity("time", most=1e6)]
Length = Annotated[float, _quantity("time", above=0, most=1e6)]
#: From what is declared, as a share of it.
Deviation = Annotated[float, _quantity("fraction", above=0, most=1)]
Share = Annotated[float, _quantity("fraction", most=1)]
Bytes = Annotated[int, _quantity("bytes", above=0, most=2**62)]

#: Names of things in a scenario: they become interface and file names.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]


class Model(BaseModel):
    """Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MechanismError(ValueError):
    """Mistakes in a mechanism, each with its key below the mechanism (empty: the mechanism as a whole)."""

    def __init__(self, problems: Sequence[tuple[tuple[str, ...], str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


def read_options(
    entry: registry.Entry, given: Mapping[str, object], below: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[tuple[tuple[str, ...], str]]]:
    """Options by their full names in SI units, and every mistake with its key, `below` which the options stand."""
    options: dict[str, Any] = {}
    problems: list[tuple[tuple[str, ...], str]] = []
    for name, value in given.items():
        try:
            param = entry.param(name)
            if param.name in options:
                raise ValueError(f"this is '{param.short}', which is given already")
            options[param.name] = param.read(value)
        except ValueError as error:
            problems.append(((*below, name), str(error)))
    return options, problems


class Mechanism(BaseModel):
    """A mechanism by name with its options: "droptail", or {policy: droptail, limit: 10 packets}."""

    model_config = ConfigDict(frozen=True)
    #: Kind in the registry, and the key that holds the name.
    KIND: str = "policy"
    KEY: str = "policy"
    name: str
    options: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        kind, key = cls.model_fields["KIND"].default, cls.model_fields["KEY"].default
        if isinstance(value, cls):
            return value
        given_as = value
        if isinstance(value, str):
            value = {key: value}
        if not isinstance(value, dict) or not isinstance(value.get(key), str):
            raise ValueError(f"this is a name, or a mapping with '{key}' and options, such as {{{key}: ...}}")
        spelled = isinstance(given_as, dict)
        try:
            entry = registry.find(kind, value[key])
        except ValueError as error:
            raise MechanismError([((key,) if spelled else (), str(error))]) from None
        given = {name: one for name, one in value.items() if name != key}
        options, problems = read_options(entry, given)
        for param in entry.params:
            if param.required and param.name not in options and not problems:
                problems.append(((), f"{entry.name} needs '{param.short}': {param.help}"))
        if problems:
            raise MechanismError(problems)
        return {"KIND": kind, "KEY": key, "name": entry.name, "options": options}

    def as_scenario(self) -> dict[str, Any]:
        """As scenarios have it (core::scenario::Named)."""
        return {"name": self.name, "options": dict(self.options)}


class Policy(Mechanism):
    """A queue policy."""


class ErrorModel(Mechanism):
    """An error model."""

    KIND: str = "error-model"
    KEY: str = "model"


class LinkKind(Mechanism):
    """What carries packets between two nodes."""

    KIND: str = "link"
    KEY: str = "kind"


class Middlebox(Mechanism):
    """What stands between a router and the line under study."""

    KIND: str = "middlebox"
    KEY: str = "middlebox"


MiddleboxOrNone = Annotated[Middlebox | None, BeforeValidator(lambda value: None if value == "none" else value)]


class Stack(Mechanism):
    """A host's TCP."""

    KIND: str = "stack"
    KEY: str = "name"


class Change(Model):
    """A change of a direction at an instant."""

    at: Seconds
    rate: Rate | None = None
    delay: Seconds | None = None
    errors: list[ErrorModel] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Change:
        if self.rate is None and self.delay is None and self.errors is None:
            raise ValueError("a change names a new 'rate', 'delay' or 'errors'")
        return self


class Direction(Model):
    """One direction of a link."""

    rate: Rate | None = Field(None, description="bit/s; without it the line only delays")
    delay: Seconds = 0.0
    queue: Policy = Field(default_factory=lambda: Policy.model_validate("droptail"))
    errors: list[ErrorModel] = []
    changes: list[Change] = []
    header_compression: Literal["none", "cslip", "cslip-acks", "rfc1144"] = "none"
    slots: int = Field(default=16, ge=1, le=256, description="connections that rfc1144 remembers")
    name_every_slot: bool = Field(default=False, description="rfc1144: no packet leaves its connection's slot out")
    framing: Literal["none", "slip", "ppp"] = "none"
    accm: int = Field(default=0xFFFFFFFF, ge=0, le=0xFFFFFFFF, description="control bytes that ppp escapes")
    bits_per_byte: Literal[8, 10] = 8
    free_options: bool = Field(
        default=False, description="TCP options take no time on the line, as in the papers' simulator"
    )
    device_buffer: Bytes | None = Field(
        default=None, description="what a modem's own transmit buffer holds, behind the queue"
    )
    #: Of a mahimahi link: delivery opportunities, from a file.
    trace: Annotated[str | None, BeforeValidator(_file)] = None

    def as_scenario(self) -> dict[str, Any]:
        """As core::scenario::DirectionSpec."""
        spec: dict[str, Any] = {"delay_s": self.delay, "queue": self.queue.as_scenario()}
        if self.rate is not None:
            spec["rate_bps"] = round(self.rate)
        if self.errors:
            spec["errors"] = [model.as_scenario() for model in self.errors]
        serial = (
            "header_compression", "slots", "name_every_slot", "framing", "accm", "bits_per_byte", "free_options",
        )  # fmt: skip
        options = {
            name: getattr(self, name) for name in serial if getattr(self, name) != type(self).model_fields[name].default
        }
        if self.device_buffer is not None:
            options["device_buffer_bytes"] = self.device_buffer
        if self.trace is not None:
            options["trace"] = self.trace
        if options:
            spec["options"] = options
        if self.changes:
            spec["schedule"] = [_change(change) for change in self.changes]
        return spec


def _change(change: Change) -> dict[str, Any]:
    spec: dict[str, Any] = {"at_s": change.at}
    if change.rate is not None:
        spec["rate_bps"] = round(change.rate)
    if change.delay is not None:
        spec["delay_s"] = change.delay
    if change.errors is not None:
        spec["errors"] = [model.as_scenario() for model in change.errors]
    return spec


class Node(Model):
    """A node of a network that the file spells out."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$", max_length=9)]
    kind: Literal["host", "router", "base-station"] = "host"
    stack: Stack | None = Field(None, description="a host's own stack; without it, the campaign's")


def _with_profile(value: object, kind_key: str) -> object:
    """Fills in what a profile says and the file does not.

    Raises:
        ValueError: there is no such profile.
    """
    if not isinstance(value, dict) or not isinstance(value.get("profile"), str):
        return value
    spec = registry.find("profile", value["profile"]).spec
    filled = dict(value)
    filled.setdefault(kind_key, spec["kind"])
    for way in ("forward", "reverse"):
        own = filled.get(way)
        if own is not None and not isinstance(own, dict):
            continue
        line = spec[way]
        queue = {"policy": line["queue"]["name"], **line["queue"]["options"]}
        if "limit_packets" in queue:
            queue["limit"] = f"{queue.pop('limit_packets')} packets"
        preset = {"rate": f"{line['rate_bps']} bit/s", "delay": f"{line['delay_s']} s", "queue": queue}
        filled[way] = {**preset, **line.get("options", {}), **(own or {})}
    return filled


class Link(Model):
    """A link of a network that the file spells out."""

    name: Name
    profile: str | None = Field(None, description="a line by name; what the file says besides goes before it")
    kind: LinkKind = Field(default_factory=lambda: LinkKind.model_validate("point-to-point"))
    ends: list[str] = Field(min_length=2)
    forward: Direction
    reverse: Direction | None = Field(None, description="like forward, if it is left out")
    framing: Bytes | None = None
    one_way: bool = Field(False, description="from the first end alone; what goes back takes another link")
    #: In the node at the first end; "none" for a sweep's point without one.
    middlebox: MiddleboxOrNone = None

    @model_validator(mode="before")
    @classmethod
    def _profile(cls, value: object) -> object:
        return _with_profile(value, "kind")

    def as_scenario(self) -> dict[str, Any]:
        """As core::scenario::LinkSpec."""
        reverse = self.reverse or self.forward
        return {
            "name": self.name,
            "kind": self.kind.name,
            "ends": list(self.ends),
            "forward": self.forward.as_scenario(),
            "reverse": reverse.as_scenario(),
            "options": {
                **self.kind.options,
                **({} if self.framing is None else {"framing_bytes": self.framing}),
                **({"one_way": True} if self.one_way else {}),
            },
            **({} if self.middlebox is None else {"middleboxes": [{**self.middlebox.as_scenario(), "end": 0}]}),
        }


def _time_range(value: object, what: str) -> tuple[float, float]:
    pair = value if isinstance(value, list | tuple) else [value, value]
    if len(pair) != 2:
        raise ValueError(f"{what} is a time, or a pair of times to draw from, such as [5 s, 6 s]")
    low, high = (float(units.parse(one, "time")) for one in pair)
    if low < 0 or high < low:
        raise ValueError(f"a range for {what} begins at 0 s or later and does not run backwards")
    return low, high


class Flow(Model):
    """Who sends what to whom."""

    name: Name
    kind: str = "bulk"
    from_: str = Field(alias="from")
    to: str
    #: Seconds; a pair is a range from which each repetition draws.
    start: tuple[float, float] = (0.0, 0.0)
    stop: Seconds | None = None
    size: Bytes | None = Field(None, description="bytes to send; without it, until the end")
    count: Annotated[int, _quantity("count", above=0, most=10_000)] = 1
    stack: Stack | None = Field(None, description="of this flow's connection; without it, its hosts'")
    #: Of the workload kind, by their full names and in SI units once read.
    options: dict[str, Any] = {}

    @field_validator("kind")
    @classmethod
    def _exists(cls, value: str) -> str:
        return registry.find("workload", value).name

    @field_validator("start", mode="before")
    @classmethod
    def _range(cls, value: object) -> tuple[float, float]:
        return _time_range(value, "a start")

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> Flow:
        entry = registry.find("workload", self.kind)
        options, problems = read_options(entry, self.options, ("options",))
        for param in entry.params:
            if param.required and param.name not in options and not problems:
                problems.append((("options",), f"{entry.name} needs '{param.short}': {param.help}"))
        if problems:
            raise MechanismError(problems)
        object.__setattr__(self, "options", options)
        return self


class Network(Model):
    """The network: a topology by name with its lines, or nodes and links spelled out."""

    topology: str | None = None
    profile: str | None = Field(None, description="the topology's own line by name; what the file says goes before it")
    link: LinkKind | None = Field(None, description="kind of the topology's own line; point-to-point without it")
    #: In the router at the line's near end, seen from forward data; "none" for a sweep's point without one.
    middlebox: MiddleboxOrNone = None
    forward: Direction | None = Field(None, description="of the topology's own line, towards the client")
    reverse: Direction | None = None
    access: Direction | None = Field(None, description="of the wires around it; 10 Mbit/s and 1 ms without it")
    #: Hosts behind the radio, or at the cable's end.
    mobiles: Annotated[int, _quantity("count", above=0, most=200)] = 1
    #: Propagation alone, in seconds; each pair of hosts draws its own.
    rtt: tuple[float, float] | None = None
    nodes: list[Node] = []
    links: list[Link] = []

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
        return None if value is None else _time_range(value, "a round-trip time")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Network:
        if self.rtt is not None and self.topology != "dumbbell":
            raise ValueError("'rtt' belongs to the topology dumbbell, whose pairs of hosts have each their own")
        if self.mobiles > 1 and self.topology not in ("packet-radio", "hybrid"):
            raise ValueError("'mobiles' belongs to the topologies packet-radio and hybrid")
        if self.topology is None:
            if not self.nodes or not self.links:
                raise ValueError("a network has a 'topology', or 'nodes' and 'links'")
            if self.forward or self.reverse or self.access or self.link or self.middlebox:
                raise ValueError(
                    "'link', 'middlebox', 'forward', 'reverse', 'access' belong to a topology; here 'links' say it all"
                )
        elif self.nodes or self.links:
            raise ValueError("a network has a 'topology', or 'nodes' and 'links', not both")
        elif self.forward is None:
            raise ValueError(f"topology {self.topology} needs 'forward': the line under study")
        return self


class CounterSpec(Model):
    """What a simulation counts in bins of time."""

    every: Length
    at: list[str] = Field([], description="links; all, if it is left out")


class CaptureSpec(Model):
    """What is captured."""

    snaplen: Annotated[int, _quantity("bytes", least=64, most=262_144)] = 128
    at: list[str] = Field([], description="node:link interfaces; all, if it is left out")
    telemetry: bool = Field(True, description="whether stacks and links write down their own samples (sim)")
    counters: CounterSpec | None = Field(
        None, description="what passed, in bins of time, for runs without captures (sim)"
    )


class FidelitySpec(Model):
    """Limits of the fidelity guard that are not the usual ones (testbed.fidelity.Limits)."""

    rate: Deviation | None = Field(None, description="achieved rate against the declared one; 0.5 %")
    delay: Length | None = Field(None, description="delay in calibration against the declared one; 1 ms")
    lateness: Length | None = Field(None, description="how late the 99th of 100 packets may leave; 2 ms")
    stall: Length | None = Field(None, description="longest time in which the emulator does not run; 50 ms")
    stalled: Deviation | None = Field(None, description="all such time, as a share of the run; 1 %")

    def as_scenario(self) -> dict[str, float]:
        """The fields of testbed.fidelity.Limits that are set."""
        names = {"delay": "delay_s", "lateness": "lateness_p99_s", "stall": "stall_s", "stalled": "stalled_share"}
        return {names.get(name, name): value for name, value in self if value is not None}


_NONE = BeforeValidator(lambda value: 0 if value == "none" else value)


class VariationSpec(Model):
    """What repetitions vary (experiments.language.variation): bounds of uniform draws. 0 or `none`: not varied."""

    start: Annotated[Seconds, _NONE] | None = Field(None, description="of a flow's delay; 100 ms and 1 % of its time")
    processing: Annotated[Seconds, _NONE] | None = Field(
        None, description="of a host's time for a segment; a full segment's on the fastest line (sim)"
    )
    round_trip: Annotated[Share, _NONE] | None = Field(None, description="of a round trip's growth; 1 % (sim)")
    phase: Annotated[bool, _NONE] = Field(True, description="whether traces start at a drawn offset")

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return dict.fromkeys(cls.model_fields, "none") if value == "none" else value


class Campaign(Model):
    """A whole file, with one value for every field: what a sweep's point is."""

    name: Name
    title: str = ""
    description: str = ""
    backend: str = "emulated"
    network: Network
    stack: Stack = Field(default_factory=lambda: Stack.model_validate("reno"))
    workload: list[Flow] = Field(min_length=1)
    duration: Length
    warm_up: Seconds = 0.0
    capture: CaptureSpec = Field(default_factory=lambda: CaptureSpec.model_validate({}))
    fidelity: FidelitySpec = Field(
        default_factory=lambda: FidelitySpec.model_validate({}), description="limits that make a run invalid"
    )
    variation: VariationSpec = Field(
        default_factory=lambda: VariationSpec.model_validate({}), description="what repetitions vary, or none"
    )
    #: The published table, figure or claim that the campaign reproduces, and how its metrics get the names that the
    #: artefact's targets use. Neither changes a run.
    artefact: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)] | None = None
    measures: dict[str, Measure] = {}
    split: list[Split] = []
    figure: FigureSpec | None = Field(None, description="how the campaign's figure is drawn")
    repetitions: Annotated[int, _quantity("count", above=0)] = 1
    seed: Annotated[int, _quantity("count")] = 1

    @field_validator("backend")
    @classmethod
    def _exists(cls, value: str) -> str:
        return registry.find("backend", value).name


FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|\d+")
