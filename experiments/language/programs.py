"""`command` of a flow: programs on its hosts, their files, and what is read from their output. docs/programs.md."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from experiments.language import files
from experiments.language.quantities import Model, quantity
from testbed import scenario, units

#: Most that a program may write to an output, in bytes, and the default.
MOST_OUTPUT, OUTPUT = 64 * 1024**2, 1024**2
#: Files of a command, and characters of a word.
MOST_FILES, MOST_WORD = 50, 10_000
#: What a sentence about a unit lists.
_UNITS = ", ".join(spelling for kind in ("rate", "time", "bytes") for spelling in units.UNITS[kind])
#: Units without a spelling of their own.
_PLAIN = ("number", "count", "fraction")


def _no_shell_line(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(
            f"'{value[:40]}' is not a list of words: write [program, argument], or [sh, -c, '...'] for a shell"
        )
    # YAML reads 80 as a number.
    return [str(word) if type(word) in (int, float) else word for word in value] if isinstance(value, list) else value


Word = Annotated[str, Field(max_length=MOST_WORD)]
Words = Annotated[list[Word], Field(min_length=1, max_length=200), BeforeValidator(_no_shell_line)]


class OutputMetric(Model):
    """A value in the output of a program."""

    json_: str | None = Field(None, alias="json", description="path in the JSON of the output, such as end.sum.bytes")
    pattern: str | None = Field(None, description="regular expression with one group; its last match counts")
    of: Literal["client", "client-errors", "server", "server-errors"] = "client"
    unit: str

    @field_validator("json_")
    @classmethod
    def _has_steps(cls, value: str | None) -> str | None:
        if value is not None and not all(value.split(".")):
            raise ValueError(f"'{value}' is not a path such as end.sum.bytes, with names and indices between dots")
        return value

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is None:
            return None
        # Few files have patterns, and the library takes as long to load as a small file to read.
        import regex

        try:
            groups = regex.compile(value).groups
        except regex.error as error:
            raise ValueError(f"'{value}' is not a regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"'{value}' has {groups} groups; put the value, and nothing else, in ( )")
        return value

    @field_validator("unit")
    @classmethod
    def _exists(cls, value: str) -> str:
        unit_of(value)
        return value

    @model_validator(mode="after")
    def _one_place(self) -> OutputMetric:
        if (self.json_ is None) == (self.pattern is None):
            raise ValueError("a metric is at a 'json' path or behind a 'pattern': give one of them")
        return self

    def as_scenario(self) -> scenario.OutputMetric:
        """The value in a scenario."""
        kind, scale = unit_of(self.unit)
        return scenario.OutputMetric.make(json=self.json_, pattern=self.pattern, of=self.of, unit=kind, scale=scale)


def unit_of(text: str) -> tuple[str, float]:
    """A unit's kind (testbed.units.UNITS), and its size in the SI unit.

    Raises:
        ValueError: unknown unit.
    """
    if text in _PLAIN:
        return text, 1.0
    for kind, spellings in units.UNITS.items():
        if text and text in spellings:
            return kind, float(spellings[text])
    raise ValueError(f"unknown unit '{text}'; allowed: {_UNITS}, %, {', '.join(_PLAIN)}")


class Server(Model):
    """The program on the host that the client talks to."""

    run: Words
    ready: Literal["tcp", "udp", "line", "started"] = Field(
        "tcp", description="what shows that it serves: a socket on the flow's port, or a line of its output"
    )
    line: str | None = Field(None, min_length=1, description="text of that line")
    within: Annotated[float, quantity("time", above=0, most=120)] = 10.0

    @model_validator(mode="after")
    def _line_for_line(self) -> Server:
        if (self.ready == "line") != (self.line is not None):
            raise ValueError("'ready: line' needs 'line', a text of that line, and the others have none")
        return self

    def as_scenario(self) -> scenario.ServerSpec:
        """The program in a scenario."""
        return scenario.ServerSpec.make(run=tuple(self.run), ready=self.ready, line=self.line, within_s=self.within)


class Command(Model):
    """Programs of a flow. The client starts with the flow, the server before the run."""

    client: Words
    client_at: Literal["from", "to"] = Field("to", description="host of the client; the server runs on the other")
    server: Server | None = None
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}
    files: list[str] = Field([], max_length=MOST_FILES, description="files beside the campaign file")
    metrics: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)], OutputMetric] = {}
    output: Annotated[int, quantity("bytes", above=0, most=MOST_OUTPUT)] = Field(
        OUTPUT, description="most that a program may write to each of its outputs"
    )
    #: Content of the files, by the names under which programs find them.
    _texts: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read_files(self, info: ValidationInfo) -> Command:
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts[1:]:
                raise ValueError(f"'{name}' is not the name of a file beside the campaign file")
            # A file of a neighbouring folder is found by its own name.
            kept = path.name if path.parts[0] == ".." else str(path)
            if kept in self._texts:
                raise ValueError(f"two files have the name '{kept}'")
            self._texts[kept] = files.named(name, files.reader(info))
        return self

    @property
    def programs(self) -> list[str]:
        """The first word of each program."""
        return [self.client[0], *([] if self.server is None else [self.server.run[0]])]

    def as_scenario(self) -> scenario.CommandSpec:
        """The programs in a scenario."""
        return scenario.CommandSpec.make(
            client_at=self.client_at,
            client=tuple(self.client),
            server=None if self.server is None else self.server.as_scenario(),
            environment=self.environment,
            files=self._texts,
            metrics={name: metric.as_scenario() for name, metric in self.metrics.items()},
            output_bytes=self.output,
        )
