"""What exists: every stack, policy, link, error model, profile, workload and backend, with its parameters.

The node binary declares what is written in Rust (`backchannel-node registry`); what lives in Python stands here. The
validator, `./backchannel list` and the documentation read nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed import kernel_links, node_binary, units

#: Kinds in the order in which people are shown them, with the word of `./backchannel list`.
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
_SUFFIXES = ("_packets", "_bytes", "_bps", "_s", "_segments")


def no_file(name: str) -> str:
    """What stands for the files of a text that came without its folder.

    Raises:
        ValueError: always, with a sentence.
    """
    raise ValueError(
        f"no file can be read from here, and this text does not bring {name} along: run the file where it lies "
        "(./backchannel run)"
    )


#: Gives the text of a file that the campaign being read names. Whoever may have files opened says so.
FILES: ContextVar[Callable[[str], str]] = ContextVar("FILES", default=no_file)
#: Scenarios hold such files whole.
MAX_FILE_BYTES = 8 * 1024 * 1024


def read_file(value: object) -> str:
    """The text of a file that a campaign names.

    Raises:
        ValueError: with a sentence.
    """
    if not isinstance(value, str):
        raise ValueError(f"'{value}' is no file name")
    return FILES.get()(value)


def read_path(path: Path) -> str:
    """The text of a file of this machine.

    Raises:
        ValueError: with a sentence.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text") from None


@dataclass(frozen=True)
class Param:
    """One parameter of a mechanism."""

    name: str
    unit: str
    help: str
    default: Any = None
    required: bool = False
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name without its unit: how campaign files may write it."""
        for suffix in _SUFFIXES:
            if self.name.endswith(suffix):
                return self.name.removesuffix(suffix)
        return self.name

    def allowed(self) -> str:
        """Unit, range and default, for people: "packets, at least 1, default 20"."""
        words = [", ".join(self.choices) if self.choices else "true or false" if self.unit == "flag" else self.unit]
        if self.min is not None:
            words.append(f"at least {self.min:g}")
        if self.max is not None:
            words.append(f"at most {self.max:g}")
        if self.required:
            words.append("must be given")
        elif self.default is not None:
            default = self.default
            shown = str(default).lower() if isinstance(default, bool) else default
            words.append(f"default {shown:g}" if isinstance(shown, float) else f"default {shown}")
        return ", ".join(words)

    def read(self, value: object) -> Any:
        """The value of a campaign file in the SI unit.

        Raises:
            ValueError: with a sentence.
        """
        if self.unit == "flag":
            if not isinstance(value, bool):
                raise ValueError(f"'{value}' is neither true nor false")
            return value
        if self.unit == "choice":
            if value not in self.choices:
                raise ValueError(unknown("choice", str(value), self.choices))
            return value
        if self.unit == "file":
            return read_file(value)
        number = units.parse(value, self.unit)
        if self.min is not None and number < self.min:
            raise ValueError(f"'{value}' is too small: it must be at least {self.min:g}")
        if self.max is not None and number > self.max:
            raise ValueError(f"'{value}' is too great: it must be at most {self.max:g}")
        return number


@dataclass(frozen=True)
class Entry:
    """One mechanism."""

    kind: str
    name: str
    summary: str
    source: str
    params: tuple[Param, ...] = ()
    #: When a simulation with it depends on the seed: always, never, or unless this option is 0, false, none or absent.
    random: bool | str = False
    #: Backends that have it; empty: all.
    backends: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)

    def param(self, name: str) -> Param:
        """By its full or short name.

        Raises:
            ValueError: there is none.
        """
        for param in self.params:
            if name in (param.name, param.short):
                return param
        raise ValueError(unknown(f"option of {self.kind} {self.name}", name, [param.short for param in self.params]))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


_KERNEL_TCP = (
    Param("sack", "flag", "selective acknowledgments (RFC 2018)", True),
    Param("timestamps", "flag", "timestamp option (RFC 7323)", True),
    Param("window_scaling", "flag", "window scale option (RFC 7323)", True),
    Param("ecn", "flag", "explicit congestion notification (RFC 3168)", False),
    Param("slow_start_after_idle", "flag", "restart from the initial window after an idle time", False),
    Param("send_buffer_bytes", "bytes", "size of the send buffer; absent: the kernel sizes it", None, min=4096),
    Param("receive_buffer_bytes", "bytes", "size of the receive buffer, which bounds the window", None, min=2304),
    Param("mss_bytes", "bytes", "maximum segment size; absent: from the interface", None, min=88, max=32767),
)

#: Backends with real packets.
_REAL = ("emulated", "physical")

_PYTHON_ENTRIES = (
    Entry("link", "kernel", "a wire that the kernel's own qdiscs shape, where it has them", "tc(8)", (
        Param("shaper", "choice", "what keeps the rate", "htb", choices=kernel_links.SHAPERS),
        Param("burst_bytes", "bytes", "of htb and tbf; absent: two packets, or 250 us of the rate", None, min=1514),
        Param("ack_filter", "choice", "cake's", "none", choices=("none", "filter", "aggressive")),
        Param("rtt_s", "time", "of the flows, as cake takes it; absent: 100 ms", None, min=1e-6, max=1000),
    ), backends=_REAL),
    Entry("stack", "reno", "the kernel's NewReno", "Linux tcp_cong.c; RFC 6582", _KERNEL_TCP, backends=_REAL),
    Entry("stack", "cubic", "the kernel's CUBIC", "Linux tcp_cubic.c; RFC 9438", _KERNEL_TCP, backends=_REAL),
    Entry("stack", "bbr", "the kernel's BBR", "Linux tcp_bbr.c", _KERNEL_TCP, backends=_REAL),
    Entry("stack", "vegas", "the kernel's Vegas, where it has it", "Linux tcp_vegas.c", _KERNEL_TCP, backends=_REAL),
    Entry("stack", "westwood", "the kernel's Westwood+, where it has it", "Linux tcp_westwood.c", _KERNEL_TCP,
          backends=_REAL),
    Entry("stack", "hybla", "the kernel's Hybla, where it has it", "Linux tcp_hybla.c", _KERNEL_TCP, backends=_REAL),
    Entry("stack", "illinois", "the kernel's Illinois, where it has it", "Linux tcp_illinois.c", _KERNEL_TCP,
          backends=_REAL),
    Entry("backend", "sim", "virtual time on any machine: the same bytes for the same scenario and seed",
          "docs/architecture.md"),
    Entry("workload", "bulk", "one connection that sends bytes until its end, or its time, is reached", "asym 4.1"),
    Entry("backend", "emulated", "real packets on this machine: Mininet nodes and emulated links in a cell",
          "docs/architecture.md"),
    Entry("backend", "physical", "real packets on the hosts of a lab, over SSH; wires, modems and radios may be real",
          "docs/physical.md"),
    Entry("topology", "asymmetric-path", "server - router1 - router2 - client with an asymmetric line in the middle",
          "asym 7.1, figure 7"),
    Entry("topology", "dumbbell", "a server and a client of its own for each flow, and one line between them all",
          "aq 4, figure 2"),
    Entry("topology", "wireless", "server - base (a base station) - mobile; the second hop is under study",
          "ton IV-A, figure 2"),
    Entry("topology", "packet-radio", "server - gateway - mobile, or several, over packet radio",
          "asym 5.1, figure 5"),
    Entry("topology", "hybrid", "server - router - client: one way over wireless cable, back over another link",
          "asym 3.1, 7.3"),
    Entry("topology", "line", "two hosts, left and right, on one line", "docs/campaigns.md"),
)  # fmt: skip


@cache
def entries() -> tuple[Entry, ...]:
    """Everything that exists."""
    declared = node_binary.call("registry")
    keys = ("policies", "links", "directions", "error_models", "middleboxes", "stacks")
    found = [_entry(raw) for key in keys for raw in declared[key]]
    found += [_entry(raw, ("sim",)) for raw in declared["workloads"]]
    found += [
        Entry("profile", raw["name"], raw["summary"], raw["source"], spec=raw["spec"]) for raw in declared["profiles"]
    ]
    return (*_PYTHON_ENTRIES, *found)


def of_kind(kind: str) -> list[Entry]:
    """Every mechanism of a kind."""
    return [entry for entry in entries() if entry.kind == kind]


def find(kind: str, name: str) -> Entry:
    """A mechanism by name.

    Raises:
        ValueError: there is none; says which there are and which is nearest.
    """
    all_of_kind = of_kind(kind)
    for entry in all_of_kind:
        if entry.name == name:
            return entry
    raise ValueError(unknown(kind.replace("-", " "), name, [entry.name for entry in all_of_kind]))


@cache
def _random() -> dict[tuple[str, str], Entry]:
    return {(entry.kind, entry.name): entry for entry in entries() if entry.random}


def draws(kind: str, name: str, options: Mapping[str, Any]) -> bool:
    """Whether a simulation with this mechanism depends on its seed."""
    entry = _random().get((kind, name))
    if entry is None or isinstance(entry.random, bool):
        return entry is not None
    return options.get(entry.random, entry.param(entry.random).default) not in (None, False, 0, "none")


def unknown(what: str, name: str, allowed: Any) -> str:
    """The sentence for a name that does not exist."""
    allowed = list(allowed)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    listed = ", ".join(allowed) if allowed else "none"
    return f"there is no {what} '{name}'{hint}; there are: {listed}"


def _entry(raw: Mapping[str, Any], backends: tuple[str, ...] = ()) -> Entry:
    params = []
    for one in raw["params"]:
        default, required = one["default"], False
        if isinstance(default, dict):
            default, required = None, True
        params.append(
            Param(
                name=one["name"], unit=one["unit"], help=one["help"], default=default, required=required,
                min=one.get("min"), max=one.get("max"), choices=tuple(one.get("choices", ())),
            )
        )  # fmt: skip
    return Entry(raw["kind"], raw["name"], raw["summary"], raw["source"], tuple(params), raw["random"], backends)
