"""The registry of mechanisms: stacks, policies, links, error models, profiles, workloads, backends, topologies.

The node binary declares the mechanisms written in Rust (`backchannel-node registry`). The others are declared here.
Validation, `./backchannel list` and the documentation use only this registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from experiments.language import files
from experiments.language.backends import REAL_PACKETS, Backend
from experiments.language.files import Reader
from testbed import kernel_links, kernel_tcp, node_binary, units
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
            words.append(f"at least {self.min:.15g}")
        if self.max is not None:
            words.append(f"at most {self.max:.15g}")
        if self.required:
            words.append("required")
        elif self.default is not None:
            default = self.default
            shown = str(default).lower() if isinstance(default, bool) else default
            words.append(f"default {shown:.15g}" if isinstance(shown, float) else f"default {shown}")
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
            raise ValueError(f"'{value}' is out of range: it must be at least {self.min:.15g}")
        if self.max is not None and number > self.max:
            raise ValueError(f"'{value}' is out of range: it must be at most {self.max:.15g}")
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


_KERNEL_TCP = (
    Param("sack", "flag", "selective acknowledgments (RFC 2018)", True),
    Param("timestamps", "flag", "timestamp option (RFC 7323)", True),
    Param("window_scaling", "flag", "window scale option (RFC 7323)", True),
    Param(
        "ecn",
        "flag",
        "explicit congestion notification: false, none; true, ECN (RFC 3168) requested and accepted; "
        "accept, ECN accepted and none requested; accecn, Accurate ECN (RFC 9768) requested and accepted; "
        "accept-accecn-request-ecn and accept-accecn, Accurate ECN accepted, and ECN or none requested "
        "(net.ipv4.tcp_ecn; Linux 7.3 has Accurate ECN, 6.12 does not)",
        False,
        choices=("accept", *kernel_tcp.ACCECN),
    ),
    # Defaults would enter the ids of all runs with stacks of the kernel.
    Param(
        "ecn_option",
        "count",
        "when the option of Accurate ECN is sent: 0, never; 1, sparingly; 2, wherever it "
        "fits, unless it does not get through; 3, wherever it fits; absent: 2 (net.ipv4.tcp_ecn_option)",
        None,
        min=0,
        max=3,
    ),
    Param(
        "ecn_option_beacon",
        "count",
        "least number of such options in a round trip, with ecn_option 2; absent: 3 (net.ipv4.tcp_ecn_option_beacon)",
        None,
        min=0,
        max=3,
    ),
    Param("slow_start_after_idle", "flag", "restart from the initial window after an idle time", False),
    Param("send_buffer_bytes", "bytes", "size of the send buffer; absent: the kernel sizes it", None, min=4096),
    Param("receive_buffer_bytes", "bytes", "size of the receive buffer, which limits the window", None, min=2304),
    Param("mss_bytes", "bytes", "maximum segment size; absent: from the interface", None, min=88, max=32767),
)

#: Greatest time that dualpi2 and fq_pie compute with, in s: their gains would overflow beyond.
_MOST_TARGET_S = 4.0
_DUALPI2 = (
    Param("limit_packets", "packets", "capacity of both queues together", 10_000, min=1, max=10_000_000),
    Param(
        "memory_limit_bytes",
        "bytes",
        "capacity in memory, with the kernel's overhead; absent: twice what `limit` "
        "packets of the interface's MTU take",
        None,
        min=1,
        max=2**32 - 1,
    ),
    Param(
        "target_s",
        "time",
        "queueing delay that the controller aims at, of the slower queue (RFC 9332, A.1)",
        0.015,
        min=1e-6,
        max=_MOST_TARGET_S,
    ),
    Param(
        "tupdate_s",
        "time",
        "time between two updates of the probability; at most the target is usual (RFC 9332, A.1)",
        0.016,
        min=0.001,
        max=1,
    ),
    Param("alpha", "number", "integral gain in Hz (RFC 9332, A.1)", 0.16, min=1 / 256, max=1000),
    Param("beta", "number", "proportional gain in Hz (RFC 9332, A.1)", 3.2, min=1 / 256, max=1000),
    Param(
        "step_threshold_s",
        "time",
        "waiting time in the L4S queue beyond which every packet is marked (RFC 9332, A.1)",
        0.001,
        min=0,
        max=_MOST_TARGET_S,
    ),
    Param(
        "step_queue_packets",
        "packets",
        "the same threshold as a length of the L4S queue, for slow links; instead of step_threshold",
        None,
        min=0,
        max=10_000_000,
    ),
    Param(
        "step_least_packets",
        "packets",
        "length of the L4S queue below which the threshold marks nothing",
        0,
        min=0,
        max=10_000_000,
    ),
    Param(
        "coupling",
        "count",
        "k, the ratio of the L4S probability to the root of the classic one (RFC 9332, 2.1)",
        2,
        min=1,
        max=255,
    ),
    Param(
        "c_protection",
        "fraction",
        "share of the link that the classic queue keeps while the L4S queue is never "
        "empty (RFC 9332, 4.2.2); in whole percent",
        0.1,
        min=0,
        max=1,
    ),
    Param(
        "overload",
        "choice",
        "what happens once the L4S probability has reached 1: drop, packets of both queues are "
        "dropped; overflow, they are marked until the limit is reached (RFC 9332, 4.2.3)",
        "drop",
        choices=("drop", "overflow"),
    ),
    Param(
        "drop_at",
        "choice",
        "where packets are dropped or marked by the probability: dequeue, at the head; enqueue, at the tail",
        "dequeue",
        choices=("dequeue", "enqueue"),
    ),
    Param(
        "classify",
        "choice",
        "packets of the L4S queue: l4s-ect, those with ECT(1) or CE (RFC 9331); any-ect, all "
        "that are ECN-capable, which DCTCP needs: Linux sends it with ECT(0)",
        "l4s-ect",
        choices=("l4s-ect", "any-ect"),
    ),
)
_FQ_PIE = (
    Param("limit_packets", "packets", "capacity of all queues together", 10_240, min=1, max=10_000_000),
    Param("flows", "count", "number of queues; flows are hashed to them", 1024, min=1, max=65_536),
    Param(
        "target_s",
        "time",
        "queueing delay that PIE aims at (RFC 8033, 4.2: QDELAY_REF)",
        0.015,
        min=1e-6,
        max=_MOST_TARGET_S,
    ),
    Param(
        "tupdate_s",
        "time",
        "time between two updates of the probability, rounded up to ticks of the kernel, 10 ms "
        "in virtual time (RFC 8033, 4.2: T_UPDATE)",
        0.015,
        min=0.001,
        max=1,
    ),
    Param("alpha", "number", "integral gain in Hz, in steps of 1/16 (RFC 8033, 4.2)", 0.125, min=1 / 16, max=2),
    Param("beta", "number", "proportional gain in Hz, in steps of 1/16 (RFC 8033, 4.2)", 1.25, min=1 / 16, max=2),
    Param(
        "quantum_bytes",
        "bytes",
        "bytes that a queue may send in its turn; absent: the interface's largest frame",
        None,
        min=256,
        max=1 << 20,
    ),
    Param(
        "memory_limit_bytes", "bytes", "capacity in memory, with the kernel's overhead", 32 << 20, min=1, max=2**32 - 1
    ),
    Param("ecn", "flag", "mark ECN-capable packets instead of dropping them (RFC 8033, 5.1)", False),
    Param(
        "ecn_prob",
        "fraction",
        "probability above which ECN-capable packets are dropped too; in whole percent (RFC 8033, 5.1: mark_ecnth)",
        0.1,
        min=0,
        max=1,
    ),
    Param("bytemode", "flag", "make the probability proportional to the packet's length", False),
)

_KERNEL_POLICIES = (
    Entry(
        "policy",
        "dualpi2",
        "the kernel's coupled queues for L4S and classic traffic; on links of kind kernel",
        "Linux sch_dualpi2.c; RFC 9332",
        _DUALPI2,
        backends=REAL_PACKETS,
    ),
    Entry(
        "policy",
        "qdisc",
        "a queueing discipline of the kernel by its kind, such as one of yours; on links of kind kernel",
        "docs/your-own.md",
        (Param("kind", "word", "the kind, as tc names it; it gets no options", required=True),),
        backends=REAL_PACKETS,
    ),
    Entry(
        "policy",
        "fq_pie",
        "the kernel's PIE with a queue for each flow; on links of kind kernel",
        "Linux sch_fq_pie.c; tc-fq_pie(8); RFC 8033",
        _FQ_PIE,
        backends=REAL_PACKETS,
    ),
)

_PYTHON_ENTRIES = (
    Entry(
        "direction",
        "jitter",
        "varying delay of one direction, beside its field delay",
        "tc-netem(8)",
        (
            Param(
                "jitter_s",
                "time",
                "each packet's delay is drawn uniformly within this of the delay, which it must not "
                "exceed; packets may overtake each other",
                0.0,
                min=0.0,
            ),
            Param(
                "keep_order",
                "flag",
                "jitter does not let packets overtake each other: one that would arrive before its "
                "predecessor arrives with it",
                False,
            ),
        ),
        random="jitter_s",
    ),
    Entry(
        "link",
        "kernel",
        "a link shaped by the kernel's qdiscs; the kernel must have them",
        "tc(8)",
        (
            Param("shaper", "choice", "qdisc that limits the rate", "htb", choices=kernel_links.SHAPERS),
            Param("burst_bytes", "bytes", "burst of htb and tbf; absent: two packets or 250 us", None, min=1514),
            Param("ack_filter", "choice", "ACK filter of cake", "none", choices=("none", "filter", "aggressive")),
            Param("rtt_s", "time", "round-trip time that cake assumes; absent: 100 ms", None, min=1e-6, max=1000),
        ),
        backends=REAL_PACKETS,
    ),
    *(
        Entry("stack", name, f"the kernel's {title}", source, _KERNEL_TCP, backends=REAL_PACKETS)
        for name, title, source in (
            ("reno", "NewReno", "Linux tcp_cong.c; RFC 6582"),
            ("cubic", "CUBIC", "Linux tcp_cubic.c; RFC 9438"),
            ("bbr", "BBR", "Linux tcp_bbr.c"),
            ("vegas", "Vegas, if the kernel has it", "Linux tcp_vegas.c"),
            ("westwood", "Westwood+, if the kernel has it", "Linux tcp_westwood.c"),
            ("hybla", "Hybla, if the kernel has it", "Linux tcp_hybla.c"),
            ("illinois", "Illinois, if the kernel has it", "Linux tcp_illinois.c"),
            ("dctcp", "DCTCP, if the kernel has it; it needs queues that mark", "Linux tcp_dctcp.c; RFC 8257"),
            ("prague", "Prague, which trees of L4S have", "draft-briscoe-iccrg-prague-congestion-control"),
        )
    ),
    Entry(
        "stack",
        kernel_tcp.BY_NAME,
        "the kernel's TCP with a congestion control by name, such as one of yours",
        "docs/your-own.md",
        (Param("congestion", "word", "the congestion control, as Linux names it", required=True), *_KERNEL_TCP),
        backends=REAL_PACKETS,
    ),
    *(Entry("backend", backend.value, backend.summary, backend.source) for backend in Backend),
    Entry(
        "topology",
        "asymmetric-path",
        "server - router1 - router2 - client with an asymmetric link in the middle",
        "asym 7.1, figure 7",
    ),
    Entry(
        "topology",
        "dumbbell",
        "a server and a client for each flow, and one shared link between them",
        "aq 4, figure 2",
    ),
    Entry(
        "topology",
        "wireless",
        "server - base (a base station) - mobile; the second hop is under study",
        "ton IV-A, figure 2",
    ),
    Entry("topology", "packet-radio", "server - gateway - one or more mobiles over packet radio", "asym 5.1, figure 5"),
    Entry(
        "topology",
        "hybrid",
        "server - router - client; forward over one-way cable, reverse over another link",
        "asym 3.1, 7.3",
    ),
    Entry("topology", "line", "two hosts, left and right, on one link", "docs/campaigns.md"),
)


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
    declared = node_binary.registry()
    keys = ("policies", "links", "directions", "error_models", "middleboxes", "stacks")
    entries_ = [_entry(raw) for key in keys for raw in declared[key]]
    entries_ += [_entry(raw, REAL_PACKETS if raw["name"] == "command" else ()) for raw in declared["workloads"]]
    entries_ += [
        Entry("profile", raw["name"], raw["summary"], raw["source"], spec=LinkSpec.read(raw["spec"]))
        for raw in declared["profiles"]
    ]
    return (*_PYTHON_ENTRIES, *entries_, *_KERNEL_POLICIES)


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
    option, names_value, value = entry.random.partition("=")
    if names_value:
        return bool(options.get(option, entry.param(option).default) == value)
    return options.get(entry.random, entry.param(entry.random).default) not in (None, False, 0, "none")


def _entry(raw: Mapping[str, Any], backends: tuple[str, ...] = ()) -> Entry:
    params = []
    for param in raw["params"]:
        # Required parameters have a mapping as their default.
        required = isinstance(param["default"], dict)
        params.append(
            Param(
                name=param["name"],
                unit=param["unit"],
                help=param["help"],
                default=None if required else param["default"],
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
