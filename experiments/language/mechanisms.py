"""Mechanisms in a campaign file: a name of the registry, with options."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, model_validator

from experiments.language import files, registry
from experiments.language.files import Reader
from testbed import own_crates, own_nodes
from testbed.errors import BadRequest
from testbed.scenario import MiddleboxSpec, Named, Options

#: The key for the folder of the crate that has the mechanism.
FROM = "from"
#: Keys below a mechanism (empty: the mechanism itself), and what is wrong there.
OptionProblem = tuple[tuple[str, ...], str]


class MechanismError(ValueError):
    """Every problem of one mechanism."""

    def __init__(self, problems: Sequence[OptionProblem]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))


def read_options(entry: registry.Entry, options: Options, read: Reader, below: tuple[str, ...] = ()) -> Options:
    """Options by their full names, in SI units.

    Args:
        entry: the mechanism.
        options: as the file has them.
        read: reads a file that an option names.
        below: the key that holds the options, where there is one.

    Raises:
        MechanismError: unknown, invalid, repeated or missing options.
    """
    values: dict[str, Any] = {}
    problems: list[OptionProblem] = []
    for name, value in options.items():
        try:
            param = entry.param(name)
            if param.name in values:
                raise ValueError(f"'{name}' is another name of '{param.short}', which is set already")
            values[param.name] = _child(value, read) if param.unit == "policy" else param.read(value, read)
        except MechanismError as error:
            problems += [((*below, name, *keys), message) for keys, message in error.problems]
        except ValueError as error:
            problems.append(((*below, name), str(error)))
    if not problems:
        missing = [param for param in entry.params if param.required and param.name not in values]
        problems = [(below, f"{entry.name} needs '{param.short}': {param.help}") for param in missing]
    if problems:
        raise MechanismError(problems)
    return values


def _read_named(kind: str, key: str, value: Any, read: Reader) -> tuple[registry.Entry, Options]:
    """A mechanism of a kind and its options; `key` holds its name, unless the value is the name.

    Raises:
        ValueError: the value is neither; a MechanismError for its name and options.
    """
    named = {key: value} if isinstance(value, str) else value
    if isinstance(named, dict) and FROM in named:
        _require_crate(named[FROM], read)
        named = _without_from(named, key)
    if not isinstance(named, dict) or not isinstance(named.get(key), str):
        near = difflib.get_close_matches(key, named, n=1) if isinstance(named, dict) and key not in named else []
        hint = f"; did you mean '{key}' instead of '{near[0]}'?" if near else ""
        of_kind = kind.replace("-", " ")
        raise ValueError(f"expected the name of a {of_kind}, or a mapping with '{key}' and its options{hint}")
    try:
        entry = registry.find(kind, named[key])
    except ValueError as error:
        raise MechanismError([((key,) if isinstance(value, dict) else (), str(error))]) from None
    return entry, read_options(entry, {name: option for name, option in named.items() if name != key}, read)


def workload_kind(value: Any, read: Reader) -> str:
    """The kind of a flow: its name, or a mapping with it and the folder of its crate. Options stand beside the kind.

    Raises:
        ValueError: unknown kind.
    """
    if not isinstance(value, dict):
        return registry.find("workload", str(value)).name
    _require_crate(value.get(FROM), read)
    named = _without_from(value, "kind")
    entry = registry.find("workload", str(named.pop("kind", "")))
    if named:
        raise ValueError(f"'{next(iter(named))}' belongs below 'options' of the flow, beside 'kind'")
    return entry.name


def _without_from(named: dict[str, Any], key: str) -> dict[str, Any]:
    """Beside a folder, `name` may stand for the key of the kind."""
    rest = {name: option for name, option in named.items() if name != FROM}
    return {key: rest.pop("name"), **rest} if key not in rest and "name" in rest else rest


def _require_crate(folder: Any, read: Reader) -> None:
    """Checks that the current node has the crate in a folder. Names of other mechanisms may stand beside it, because
    sweeps exchange them.

    Raises:
        MechanismError: unknown crate, or the node does not have it.
    """
    try:
        if not is_folder(folder):
            raise ValueError(
                f"'{folder}' is not the folder of a crate: write a path that begins with ./, ../ or /, such as ./mine"
            )
        crate = own_crates.from_text(read(folder), folder)
        if reason := own_nodes.lack([crate.used]):
            raise ValueError(
                f"{reason}: 'validate' and 'run' build one for a campaign file, and --from FOLDER for other commands"
            )
    except (ValueError, BadRequest) as error:
        raise MechanismError([((FROM,), str(error))]) from None


def is_folder(value: object) -> bool:
    """Whether a value of `from` names a folder; that of a flow names a node."""
    return isinstance(value, str) and value.startswith((".", "/"))


def _child(value: Any, read: Reader) -> dict[str, Any]:
    """A policy that another one holds, as a scenario has it."""
    entry, options = _read_named("policy", "policy", value, read)
    if entry.backends:
        raise ValueError(f"{entry.name} is the kernel's own policy, which no other policy can hold")
    return Named(name=entry.name, options=options).as_json()


class Mechanism(BaseModel):
    """A mechanism by name with its options: "droptail", or {policy: droptail, limit: 10 packets}."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    #: Kind in the registry, and the key that holds the name.
    KIND: ClassVar[str] = "policy"
    KEY: ClassVar[str] = "policy"
    name: str
    options: Options

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, cls):
            return value
        entry, options = _read_named(cls.KIND, cls.KEY, value, files.reader(info))
        return {"name": entry.name, "options": options}

    def as_scenario(self) -> Named:
        """The mechanism in a scenario."""
        return Named(name=self.name, options=self.options)


class Policy(Mechanism):
    """A queue policy."""


class ErrorModel(Mechanism):
    """An error model."""

    KIND = "error-model"
    KEY = "model"


class LinkKind(Mechanism):
    """What carries packets between two nodes."""

    KIND = "link"
    KEY = "kind"


class Middlebox(Mechanism):
    """A middlebox between a router and the line under study."""

    KIND = "middlebox"
    KEY = "middlebox"

    def at_first_end(self) -> MiddleboxSpec:
        """The middlebox in a scenario, in the node at the first end of its link."""
        return MiddleboxSpec(name=self.name, options=self.options, end=0)


#: "none" lets a sweep have a point without a middlebox.
MiddleboxOrNone = Annotated[Middlebox | None, BeforeValidator(lambda value: None if value == "none" else value)]


class Stack(Mechanism):
    """A host's TCP."""

    KIND = "stack"
    KEY = "name"
