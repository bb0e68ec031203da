"""A campaign file: its fields and their types. docs/campaigns.md is the reference for users."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from analysis.figures.spec import FigureSpec
from analysis.question import QuestionSpec
from experiments.language import files, registry
from experiments.language.backends import Backend
from experiments.language.measures import Measure, Split
from experiments.language.mechanisms import Stack, read_options, workload_kind
from experiments.language.network import Network
from experiments.language.programs import Command
from experiments.language.quantities import (
    Bytes,
    Deviation,
    Model,
    Name,
    PositiveSeconds,
    Seconds,
    Share,
    default,
    quantity,
    time_range,
)
from testbed.scenario import Limits, Options
from testbed.virtual_kernel import kernels

#: Versions of IP: `both` gives flows one and the other in turn, beginning with IPv4.
Ip = Literal[4, 6, "both"]


class Flow(Model):
    """Data from one host to another."""

    name: Name
    kind: str = "bulk"
    from_: str = Field(alias="from")
    to: str
    #: s. Each repetition draws from the range.
    start: tuple[float, float] = (0.0, 0.0)
    stop: Seconds | None = None
    size: Bytes | None = Field(None, description="bytes to send; default: send until the flow stops")
    count: Annotated[int, quantity("count", above=0, most=10_000)] = 1
    stack: Stack | None = Field(None, description="stack of this flow; default: the stack of its hosts")
    ip: Ip | None = Field(None, description="version of IP of this flow; default: that of the campaign")
    command: Command | None = Field(None, description="programs of a flow of kind command")
    #: Options of the workload kind. Once validated: by their full names, in SI units.
    options: Options = Field(default_factory=dict)

    @field_validator("kind", mode="before")
    @classmethod
    def _exists(cls, value: object, info: ValidationInfo) -> str:
        return workload_kind(value, files.reader(info))

    @field_validator("start", mode="before")
    @classmethod
    def _range(cls, value: object) -> tuple[float, float]:
        return time_range(value, "the start")

    @model_validator(mode="after")
    def _command_of_its_kind(self) -> Flow:
        if self.kind != "command":
            if self.command is not None:
                raise ValueError(f"'command' needs 'kind: command'; this flow is of kind {self.kind}")
            return self
        if self.command is None:
            raise ValueError("a flow of kind command needs 'command', such as command: {client: [curl, ...]}")
        for name in ("size", "stack"):
            if getattr(self, name) is not None:
                raise ValueError(f"a flow of kind command has no '{name}': its programs open their own connections")
        return self

    @model_validator(mode="after")
    def _options_of_its_kind(self, info: ValidationInfo) -> Flow:
        options = read_options(registry.find("workload", self.kind), self.options, files.reader(info), ("options",))
        object.__setattr__(self, "options", options)
        return self


class CounterSpec(Model):
    """Counters of a simulation, in bins of time."""

    every: PositiveSeconds
    at: list[str] = Field(default_factory=list, description="links to count at; default: all")


class CaptureSpec(Model):
    """Captures, telemetry and counters of a run."""

    snaplen: Annotated[int, quantity("bytes", least=64, most=262_144)] = 128
    at: list[str] = Field(default_factory=list, description="node:link interfaces to capture at; default: all")
    telemetry: bool = Field(
        True, description="whether stacks and links record samples; only the sim backend can go without"
    )
    counters: CounterSpec | None = Field(None, description="counters in bins of time, for runs without captures (sim)")


class FidelitySpec(Model):
    """Limits of the fidelity guard that replace the defaults (testbed.fidelity.Limits)."""

    rate: Deviation | None = Field(
        None, description="greatest deviation of the achieved rate from the declared rate; default: 0.5 %"
    )
    delay: PositiveSeconds | None = Field(
        None, description="greatest deviation of the calibrated delay from the declared delay; default: 1 ms"
    )
    lateness: PositiveSeconds | None = Field(
        None, description="99th percentile of the packets' lateness; default: 2 ms"
    )
    stall: PositiveSeconds | None = Field(
        None, description="longest time without the emulator being scheduled; default: 50 ms"
    )
    stalled: Deviation | None = Field(
        None, description="share of the run in which the emulator was not scheduled; default: 1 %"
    )

    def as_scenario(self) -> Limits:
        """The limits in a scenario."""
        return Limits.make(
            rate=self.rate,
            delay_s=self.delay,
            lateness_p99_s=self.lateness,
            stall_s=self.stall,
            stalled_share=self.stalled,
        )


#: What `none` is in each part of the variation.
_NOT_VARIED = {"start": "0 s", "processing": "0 s", "round_trip": "0 %", "phase": False}


class VariationSpec(Model):
    """What repetitions vary (experiments.language.variation): bounds of uniform draws. `none`: not varied."""

    start: Seconds | None = Field(
        None, description="greatest delay of a flow's start; default: 100 ms, at most 1 % of the flow's time"
    )
    processing: Seconds | None = Field(
        None, description="greatest time of a host for a segment (sim); default: a full segment's on the fastest link"
    )
    round_trip: Share | None = Field(
        None, description="greatest growth of a round-trip time; default: 1 % in simulations, otherwise none"
    )
    phase: bool = Field(True, description="whether traces start at a drawn offset")

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        if value == "none":
            return _NOT_VARIED
        if not isinstance(value, dict):
            raise ValueError(f"this is 'none', or a mapping with any of {', '.join(_NOT_VARIED)}")
        return {name: _NOT_VARIED.get(name, part) if part == "none" else part for name, part in value.items()}


#: Version of the campaign format (docs/versions.md).
FORMAT = "0.1"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


class Campaign(Model):
    """One point of a campaign: every field has one value."""

    name: Name
    title: str = ""
    description: str = ""
    backend: Backend = Backend.EMULATED
    kernel: str = Field(kernels.DEFAULT, description="Linux of the virtual-kernel backend")
    network: Network
    stack: Stack = Field(default_factory=default(Stack, "reno"))
    ip: Ip = Field(4, description="version of IP of the flows: 4, 6, or both in turn")
    workload: list[Flow] = Field(min_length=1)
    duration: PositiveSeconds
    warm_up: Seconds = 0.0
    capture: CaptureSpec = Field(default_factory=default(CaptureSpec, {}))
    fidelity: FidelitySpec = Field(
        default_factory=default(FidelitySpec, {}), description="limits that make a run invalid"
    )
    variation: VariationSpec = Field(
        default_factory=default(VariationSpec, {}), description="what repetitions vary, or none"
    )
    #: The published table, figure or claim that the campaign reproduces, and the names that its targets give to
    #: metrics. They do not change a run.
    artefact: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)] | None = None
    measures: dict[str, Measure] = Field(default_factory=dict)
    split: list[Split] = Field(default_factory=list)
    question: QuestionSpec | None = Field(None, description="what is asked of its results")
    figure: FigureSpec | None = Field(None, description="how the campaign's figure is drawn")
    repetitions: Annotated[int, quantity("count", above=0)] = 1
    seed: Annotated[int, quantity("count")] = 1
    format: str = Field(FORMAT, description="version of the format that the file is written in")

    @field_validator("format", mode="before")
    @classmethod
    def _is_read(cls, value: object) -> str:
        # YAML reads 0.1 as a number.
        text = str(value)
        if re.fullmatch(r"\d+\.\d+", text) is None:
            raise ValueError(f"'{text}' is not a version of the format, such as {FORMAT}")
        if _numbers(text) > _numbers(FORMAT):
            raise ValueError(
                f"the file is written in format {text}, and this version of Backchannel reads up to {FORMAT}: install "
                "a newer one"
            )
        return text

    @field_validator("kernel", mode="before")
    @classmethod
    def _is_built_from_source(cls, value: object) -> str:
        # YAML reads 6.12 as a number.
        value = str(value)
        if value not in kernels.names():
            raise ValueError(kernels.unknown(value))
        return value

    @field_validator("backend", mode="before")
    @classmethod
    def _exists(cls, value: object) -> Backend:
        return Backend(registry.find("backend", str(value)).name)
