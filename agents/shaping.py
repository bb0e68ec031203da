"""The kernel's queueing disciplines on the experiment's interfaces, set up by tc(8), and dualpi2 by rtnetlink.

Each interface has disciplines at its root, for packets that leave, and on an ifb behind it, for packets that arrive.
The controller sends tc's arguments (testbed/kernel_links.py); the agent accepts those that concern the interface and
its ifb. Clearing restores the interface's settings. Statistics are sampled during a run (agents/qdiscs.py).
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents import netlink, qdiscs
from agents.errors import AgentError
from agents.messages import Shaped, ShapingCounters

#: Disciplines that a line may set up.
KINDS = ("htb", "tbf", "netem", "cake", "pfifo", "bfifo", "codel", "fq_codel", "pie", "red", "fq_pie", "dualpi2")
#: The end of a line that sets up a discipline of the user's, which gets no options.
_OWN_LINE = re.compile(r"(root|parent [0-9a-f]+:[0-9a-f]*)( handle [0-9a-f]+:)? [a-z][a-z0-9_]{0,14}")
#: How ip and tc name the line of a batch that failed.
_FAILED_LINE = re.compile(r"Command failed -:(\d+)")
_WORD = re.compile(r"[A-Za-z0-9_.:%-]+\Z")
#: Settings with which a discipline sees single packets. TCP otherwise passes it bundles, whatever the offloads are.
PREPARED = {"tx_queue_len": "10000", "gso_max_segs": "1"}


def ifb_name(interface: str) -> str:
    """The interface on which an interface's arrivals are delayed."""
    return f"d-{interface}"[:15]


def checked_line(line: str, interface: str) -> list[str]:
    """The arguments of a tc line that sets up a discipline on this interface or its ifb.

    Raises:
        AgentError: it does anything else.
    """
    words, ifb = line.split(), ifb_name(interface)
    match words:
        case ["qdisc", "add", "dev", dev, "root" | "parent", *more] if dev in (interface, ifb) and (
            any(word in KINDS for word in more) or _OWN_LINE.fullmatch(" ".join(words[4:]))
        ):
            pass
        case ["class", "add", "dev", dev, "parent", _, "classid", _, "htb", *_] if dev == interface:
            pass
        case ["qdisc", "add", "dev", dev, "handle", "ffff:", "ingress"] if dev == interface:
            pass
        case [
            "filter",
            "add",
            "dev",
            dev,
            "parent",
            "ffff:",
            "protocol",
            "all",
            "u32",
            "match",
            "u32",
            "0",
            "0",
            "action",
            "mirred",
            "egress",
            "redirect",
            "dev",
            to,
        ] if (dev, to) == (interface, ifb):
            pass
        case _:
            raise AgentError(f"'tc {line}' is not a discipline of {interface} that an agent sets up")
    if not all(_WORD.match(word) for word in words):
        raise AgentError(f"unsupported tc argument in 'tc {line}'")
    return words


def _disciplines() -> list[qdiscs.Qdisc]:
    """Of all interfaces of this network namespace."""
    with netlink.RouteSocket() as route:
        return [qdiscs.read_qdisc(payload) for payload in route.qdiscs()]


def _require_kinds(lines: Sequence[Sequence[str]]) -> None:
    """Raises AgentError unless every discipline that lines set up is there."""
    disciplines = _disciplines()
    for words in lines:
        if words[:2] != ["qdisc", "add"] or words[-1] == "ingress":
            continue
        kind = next((word for word in words if word in KINDS), words[-1])
        has = {qdisc.kind for qdisc in disciplines if qdisc.interface == socket.if_nametoindex(words[3])}
        if kind not in has:
            raise AgentError(f"the kernel has {', '.join(sorted(has)) or 'nothing'} at {words[3]} in place of {kind}")


class Shaping:
    """The disciplines of one node's interfaces."""

    def __init__(self) -> None:
        #: Each interface's settings before.
        self._before: dict[str, dict[str, str]] = {}
        self._sampler: qdiscs.Sampler | None = None
        #: Counters of the last sample, by the interface's index.
        self._sampled: Mapping[int, ShapingCounters] = {}

    def configure(self, interface: str, lines: Sequence[str]) -> None:
        """Replaces an interface's disciplines. Queues are empty and counters zero afterwards.

        Raises:
            AgentError: a line is not allowed, or the kernel lacks its discipline.
        """
        checked = [checked_line(line, interface) for line in lines]
        self._end_samples()
        self._sampled = {}
        settings = Path("/sys/class/net") / interface
        if not settings.exists():
            raise AgentError(f"this host has no interface '{interface}'")
        if interface in self._before or _has_disciplines(interface):
            self._remove(interface)
        self._before[interface] = {name: (settings / name).read_text().strip() for name in ("tx_queue_len",)}
        shown = json.loads(_must(["ip", "-details", "-json", "link", "show", "dev", interface]))[0]
        self._before[interface]["gso_max_segs"] = str(shown.get("gso_max_segs", 65535))
        ifb = ifb_name(interface)
        added = [["link", "add", ifb, "type", "ifb"], ["link", "set", ifb, "up"]]
        _batch("ip", [_settings(interface, PREPARED), *added])
        _set_up(checked)
        _require_kinds(checked)

    def report(self, interface: str) -> Shaped:
        """An interface's counters since it was shaped. Ends the samples; the counters are then those of the last."""
        if interface not in self._before:
            raise AgentError(f"'{interface}' is not shaped")
        self._end_samples()
        sampled = self._sampled
        if not sampled:
            disciplines = _disciplines()
            sampled = {
                qdisc.interface: qdiscs.counters(qdiscs.of_interface(disciplines, qdisc.interface))
                for qdisc in disciplines
            }
        indices = [socket.if_nametoindex(name) for name in (interface, ifb_name(interface))]
        root, delayed = (sampled.get(index, ShapingCounters(0, 0, 0)) for index in indices)
        return Shaped(root, delayed)

    def sample(self, file: Path, interfaces: Mapping[str, qdiscs.SampledInterface], zero_ns: int) -> None:
        """Samples the statistics of shaped interfaces and their ifbs from an instant on, until `report` or `clear`.

        Args:
            file: that the samples are written to.
            interfaces: by the interface's name.
            zero_ns: the instant on CLOCK_MONOTONIC.
        """
        for name in interfaces:
            if name not in self._before and not any(name == ifb_name(interface) for interface in self._before):
                raise AgentError(f"'{name}' is not shaped")
        self._end_samples()
        indices = {socket.if_nametoindex(name): line for name, line in interfaces.items()}
        self._sampler = qdiscs.Sampler(file, indices, zero_ns)

    def _end_samples(self) -> None:
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            self._sampled = sampler.stop()

    def clear(self) -> None:
        """Removes every discipline."""
        self._end_samples()
        for interface in list(self._before):
            self._remove(interface)

    def _remove(self, interface: str) -> None:
        before = self._before.pop(interface, None)
        # Errors are ignored, because there may be no discipline, or no interface any more.
        for where in ("root", "ingress"):
            _run(["tc", "qdisc", "del", "dev", interface, where])
        _run(["ip", "link", "del", ifb_name(interface)])
        if before is not None and Path(f"/sys/class/net/{interface}").exists():
            _must(["ip", *_settings(interface, before)])


def _has_disciplines(interface: str) -> bool:
    """Whether an interface has an ifb of ours, or disciplines that somebody has set up: those of the kernel have no
    handle.
    """
    if Path("/sys/class/net", ifb_name(interface)).exists():
        return True
    index = socket.if_nametoindex(interface)
    return any(discipline.interface == index and discipline.handle for discipline in _disciplines())


def _settings(interface: str, values: dict[str, str]) -> list[str]:
    words = ["txqueuelen", values["tx_queue_len"], "gso_max_segs", values["gso_max_segs"]]
    return ["link", "set", "dev", interface, *words]


def _set_up(lines: Sequence[list[str]]) -> None:
    """Sets disciplines up in their order: a child follows its parent."""
    for by_tc, group in itertools.groupby(lines, key=lambda words: "dualpi2" not in words):
        if by_tc:
            _batch("tc", list(group))
            continue
        for words in group:
            try:
                netlink.add(words)
            except AgentError as error:
                raise AgentError(f"'tc {' '.join(words)}' failed: {error}") from None


def _batch(program: str, lines: Sequence[Sequence[str]]) -> None:
    """Runs lines of ip or tc in one process, because starting one takes longer than what it does.

    Raises:
        AgentError: a line failed; those after it were not run.
    """
    commands = [" ".join(words) for words in lines]
    done = subprocess.run(
        [program, "-batch", "-"], input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        failed = _FAILED_LINE.search(done.stderr)
        command = commands[int(failed[1]) - 1] if failed else "; ".join(commands)
        output = _FAILED_LINE.sub("", done.stderr).strip().splitlines()
        reason = output[-1] if output else f"status {done.returncode}"
        raise AgentError(f"'{program} {command}' failed: {reason}")


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _must(words: list[str]) -> str:
    done = _run(words)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise AgentError(f"'{' '.join(words)}' failed: {output[-1] if output else f'status {done.returncode}'}")
    return done.stdout
