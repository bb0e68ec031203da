"""The registry of mechanisms: stacks, policies, links, error models, profiles, workloads, backends, topologies.

The node binary declares the mechanisms written in Rust (`backchannel-node registry`), and linux.toml the others.
Validation, `./backchannel list` and the documentation use only this registry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments.language import files
from experiments.language.backends import REAL_PACKETS, Backend
from experiments.language.files import Reader
from testbed import node_binary, units
from testbed.errors import unknown as unknown
from testbed.scenario import CrateUsed, LinkSpec, Options

#: Kinds in the order of `./backchannel list`, with the argument that selects each.
KINDS = {
    "stack": "stacks",
    "policy": "policies",
    "link": "links",
    "profile": "profiles",
    "error-model": "error-models",
    "middlebox": "middleboxes",
    "workload": "workloads",
    "backend": "backends",
    "topology": "topologies",
}
#: The option of stacks that names a congestion controller.
CONGESTION = "congestion"
#: Kind of the mechanisms that a scenario has under a key, and the field with their name. Options have that of their
#: mechanism, because policies hold others.
_NAMED_IN = {
    "queue": ("policy", "name"),
    "stack": ("stack", "name"),
    "links": ("link", "kind"),
    "errors": ("error-model", "name"),
    "middleboxes": ("middlebox", "name"),
    "workload": ("workload", "kind"),
}
#: A name of a congestion control or of a queueing discipline (TCP_CA_NAME_MAX, IFNAMSIZ).
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,14}")
#: Kinds of the mechanisms of Linux, which need real packets.
_OF_LINUX = ("link", "stack", "policy")
_SUFFIXES = ("_packets", "_bytes", "_bps", "_s", "_segments")


@dataclass(frozen=True)
class Param:
    """A parameter of a mechanism."""

    name: str
    unit: str
    help: str
    default: Any = None
    required: bool = False
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()
    #: The crate of the user's that adds it to a stack; empty: none.
    crate: str = ""

    @property
    def short(self) -> str:
        """The name without its unit, which campaign files may use."""
        for suffix in _SUFFIXES:
            if self.name.endswith(suffix):
                return self.name.removesuffix(suffix)
        return self.name

    def written(self, value: Any) -> Any:
        """A value in the SI unit as a campaign file has it: "0.002 s"."""
        unit = next((name for name, size in units.UNITS.get(self.unit, {}).items() if size == 1), "")
        return f"{value} {unit}" if unit else value

    def allowed(self) -> str:
        """Unit, range and default: "packets, at least 1, default 20"."""
        if self.unit == "flag":
            words = [", ".join(("true", "false", *self.choices)) if self.choices else "true or false"]
        else:
            words = [", ".join(self.choices) if self.choices else self.unit]
        if self.min is not None:
            words.append(f"at least {units.exact(self.min, self.unit)}")
        if self.max is not None:
            words.append(f"at most {units.exact(self.max, self.unit)}")
        if self.required:
            words.append("required")
        elif self.default is not None:
            default = self.default
            if isinstance(default, bool):
                default = str(default).lower()
            elif isinstance(default, float | int):
                default = units.exact(default, self.unit)
            words.append(f"default {default}")
        return ", ".join(words)

    def read(self, value: object, read: Reader) -> Any:
        """A value of a campaign file in the SI unit; `read` reads a file that it names.

        Raises:
            ValueError: invalid value; the message says what is allowed.
        """
        if self.unit == "flag":
            # A flag may have further values.
            if not isinstance(value, bool) and value not in self.choices:
                further = ("true", "false", *self.choices)
                raise ValueError(
                    unknown("choice", str(value), further) if self.choices else f"'{value}' is not true or false"
                )
            return value
        if self.unit == "choice":
            if value not in self.choices:
                raise ValueError(unknown("choice", str(value), self.choices))
            return value
        if self.unit == "word":
            if not isinstance(value, str) or not _WORD.fullmatch(value):
                raise ValueError(
                    f"'{value}' is not a name for Linux: at most 15 letters, digits, hyphens and underscores"
                )
            return value
        if self.unit == "file":
            return files.named(value, read)
        number = units.parse(value, self.unit)
        if self.min is not None and number < self.min:
            raise ValueError(f"'{value}' is out of range: it must be at least {units.exact(self.min, self.unit)}")
        if self.max is not None and number > self.max:
            raise ValueError(f"'{value}' is out of range: it must be at most {units.exact(self.max, self.unit)}")
        return number


@dataclass(frozen=True)
class Entry:
    """A mechanism."""

    kind: str
    name: str
    summary: str
    source: str
    params: tuple[Param, ...] = ()
    #: When a simulation with it depends on the seed: always, never, unless this option is 0, false, none or absent, or
    #: for `option=value` if it has that value.
    random: bool | str = False
    #: Backends that support it; empty: all.
    backends: tuple[str, ...] = ()
    #: The link of a profile, without its name and ends.
    spec: LinkSpec | None = None
    #: The crate of the user's that has it; empty: none.
    crate: str = ""

    def param(self, name: str) -> Param:
        """A parameter by its full or short name.

        Raises:
            ValueError: no parameter has that name.
        """
        for param in self.params:
            if name in (param.name, param.short):
                return param
        raise ValueError(unknown(f"option of {self.kind} {self.name}", name, [param.short for param in self.params]))

    def written(self, options: Options) -> dict[str, Any]:
        """Options of a scenario as a campaign file has them, by their short names."""
        return {(param := self.param(name)).short: param.written(value) for name, value in options.items()}

    def as_json(self) -> dict[str, Any]:
        """As `list --json` and `show --json` print it."""
        document = {**asdict(self), "spec": {} if self.spec is None else self.spec.as_json()}
        for part in (document, *document["params"]):
            if not part["crate"]:
                del part["crate"]
        return document


@dataclass(frozen=True)
class PacketLimits:
    """Lengths of packets in bytes, headers included; those of IP by its version."""

    #: Least packet with which a research stack can send data.
    stack_least: Mapping[int, int]
    #: Headers of a packet without a connection: IP, and UDP or ICMP echo.
    datagram_headers: Mapping[int, int]
    #: Least packet without a connection on real packets, whose payload has its number.
    numbered_least: int


@cache
def packet_limits() -> PacketLimits:
    """The limits that Rust declares."""
    limits = node_binary.registry()["packet_limits"]
    by_version = {
        name: {int(version): bytes_ for version, bytes_ in limits[name].items()}
        for name in ("stack_least", "datagram_headers")
    }
    return PacketLimits(**by_version, numbered_least=limits["numbered_least"])


@node_binary.cached
def entries() -> tuple[Entry, ...]:
    """Every mechanism."""
    declared, others = node_binary.registry(), _others()
    keys = ("policies", "links", "directions", "error_models", "middleboxes", "stacks")
    entries_ = [_entry(raw) for key in keys for raw in declared[key]]
    entries_ += [_entry(raw, REAL_PACKETS if raw["name"] == "command" else ()) for raw in declared["workloads"]]
    entries_ += [
        Entry("profile", raw["name"], raw["summary"], raw["source"], spec=LinkSpec.read(raw["spec"]))
        for raw in declared["profiles"]
    ]
    backends = [Entry("backend", backend.value, backend.summary, backend.source) for backend in Backend]
    first = [entry for kind in ("direction", "link", "stack") for entry in others[kind]]
    return (*first, *backends, *others["topology"], *entries_, *others["policy"])


@cache
def _others() -> Mapping[str, list[Entry]]:
    """The mechanisms that are not written in Rust, by kind."""
    declared = tomllib.loads((Path(__file__).parent / "linux.toml").read_text(encoding="utf-8"))
    tcp, entries_ = declared.pop("tcp"), dict[str, list[Entry]]()
    for kind, rows in declared.items():
        for row in rows:
            params = [*row.get("params", ()), *(tcp if kind == "stack" else ())]
            raw = {"random": False, **row, "kind": kind, "params": params}
            entries_.setdefault(kind, []).append(_entry(raw, REAL_PACKETS if kind in _OF_LINUX else ()))
    return entries_


@node_binary.cached
def crates() -> Mapping[str, CrateUsed]:
    """The crates of the user's that the node has, by name."""
    return {
        raw["name"]: CrateUsed(name=raw["name"], version=raw["version"], sha256=raw["sha256"])
        for raw in node_binary.registry()["crates"]
    }


@node_binary.cached
def _owners() -> Mapping[tuple[str, str], str]:
    """The crate of each mechanism that a crate of the user's adds, by kind and name."""
    return {(kind, name): raw["name"] for raw in node_binary.registry()["crates"] for kind, name in raw["adds"]}


def owner(kind: str, name: str) -> str:
    """The crate of the user's that has a mechanism, or a `controller`; empty: none."""
    return _owners().get((kind, name), "")


def controller(name: str) -> Entry | None:
    """A congestion controller of a crate of the user's, as if it were a mechanism: the options are those of stacks."""
    crate = owner("controller", name)
    if not crate:
        return None
    params = tuple(param for param in find("stack", "modern").params if param.crate == crate)
    summary = f"congestion controller of research stacks: 'congestion: {name}'"
    return Entry("controller", name, summary, f"crate {crate}", params, crate=crate)


def additions(crate: str) -> list[tuple[str, str]]:
    """Kind and name of what a crate of the user's adds."""
    return [added for added, name in _owners().items() if name == crate]


def crates_of(scenario: Mapping[str, Any]) -> tuple[CrateUsed, ...]:
    """The crates of the user's whose mechanisms a scenario has, by name."""
    return tuple(crates()[name] for name in sorted(set(_used(scenario)))) if _owners() else ()


def _used(value: Any, named_in: tuple[str, str] = ("", "")) -> Iterator[str]:
    """Crates of the mechanisms below a value of a scenario, which has mechanisms of this kind in this field."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _used(part, named_in)
    elif isinstance(value, Mapping):
        kind, field = named_in
        for key, part in value.items():
            if not isinstance(part, str):
                yield from _used(part, _NAMED_IN.get(key, named_in))
            elif (of := "controller" if key == CONGESTION else kind if key == field else "") and (
                name := owner(of, part)
            ):
                yield name


@node_binary.cached
def of_kind(kind: str) -> tuple[Entry, ...]:
    """Every mechanism of a kind."""
    return tuple(entry for entry in entries() if entry.kind == kind)


def find(kind: str, name: str) -> Entry:
    """A mechanism by name.

    Raises:
        ValueError: none has that name; the message lists the names and the closest.
    """
    all_of_kind = of_kind(kind)
    for entry in all_of_kind:
        if entry.name == name:
            return entry
    raise ValueError(unknown(kind.replace("-", " "), name, [entry.name for entry in all_of_kind]))


@node_binary.cached
def _random() -> dict[tuple[str, str], Entry]:
    return {(entry.kind, entry.name): entry for entry in entries() if entry.random}


def children(kind: str, name: str, options: Options) -> list[dict[str, Any]]:
    """The mechanisms that a mechanism of a scenario holds, each with its name and options."""
    params = find(kind, name).params if any(isinstance(value, dict) for value in options.values()) else ()
    return [options[param.name] for param in params if param.unit == "policy" and param.name in options]


def draws(kind: str, name: str, options: Options) -> bool:
    """Whether a simulation with this mechanism depends on its seed."""
    if any(draws(kind, child["name"], child["options"]) for child in children(kind, name, options)):
        return True
    entry = _random().get((kind, name))
    if entry is None or isinstance(entry.random, bool):
        return entry is not None
    option, names_values, values = entry.random.partition("=")
    if names_values:
        return options.get(option, entry.param(option).default) in values.split(",")
    return options.get(entry.random, entry.param(entry.random).default) not in (None, False, 0, "none")


def _entry(raw: Mapping[str, Any], backends: tuple[str, ...] = ()) -> Entry:
    params = []
    for param in raw["params"]:
        # Required parameters have a mapping as their default.
        required = isinstance(param.get("default"), dict)
        params.append(
            Param(
                name=param["name"],
                unit=param["unit"],
                help=param["help"],
                default=None if required else param.get("default"),
                required=required,
                min=param.get("min"),
                max=param.get("max"),
                choices=tuple(param.get("choices", ())),
                crate=owner("stack-option", param["name"]) if raw["kind"] == "stack" else "",
            )
        )
    return Entry(
        raw["kind"],
        raw["name"],
        raw["summary"],
        raw["source"],
        tuple(params),
        raw["random"],
        backends,
        crate=owner(raw["kind"], raw["name"]),
    )
