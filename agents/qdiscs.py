"""Statistics of the kernel's queueing disciplines: counters of a report, and samples over time as telemetry.

A sample reads all disciplines of the node's interfaces in one dump of rtnetlink. Lines have the format of the
emulator's telemetry (testbed/core/src/telemetry.rs): the length of a queue, what was counted since the previous sample,
and the state of a discipline's classes. A sample that changed nothing writes nothing.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agents.messages import ShapingCounters
from agents.netlink import (
    DUALPI2_COUPLING,
    TC_MESSAGE,
    TC_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    TCA_STATS2,
    RouteSocket,
    attributes,
)

#: The file of samples in an agent's folder.
SAMPLES = "qdiscs.jsonl"
#: Time between two samples, that of the emulator's telemetry.
PERIOD_NS = 10_000_000

# Attributes of TCA_STATS2 (gen_stats.h).
_BASIC, _QUEUE, _APP, _PACKETS64 = 1, 3, 4, 8
# Of cake, and of each of its tins.
_CAKE_TINS = 10
_TIN_ARRIVED, _TIN_DROPPED, _TIN_ACKS_DROPPED, _TIN_MARKED, _TIN_BACKLOG, _TIN_DELAY_US = 2, 4, 6, 8, 11, 19
#: PIE's probability of 1: of pie in 56 bits, of dualpi2 in 32.
_PIE_ONE, _DUALPI2_ONE = (1 << 56) - 1, (1 << 32) - 1
_US = 1e-6

#: Kinds of events as reports and telemetry name them.
DROPPED_FULL, DROPPED_EARLY, PURGED, MARKED, LOST = "dropped_full", "dropped_early", "purged", "marked", "lost"
#: Values of a class by their names in telemetry.
Class = Mapping[str, float | int]


@dataclass(frozen=True)
class Qdisc:
    """One discipline of a dump."""

    interface: int
    kind: str
    handle: int
    parent: int
    sent_packets: int = 0
    sent_bytes: int = 0
    drops: int = 0
    overlimits: int = 0
    queued_packets: int = 0
    queued_bytes: int = 0
    #: Statistics of its own kind, as the kernel wrote them.
    own: bytes = b""
    #: Its options, as the kernel wrote them.
    options: bytes = b""


@dataclass(frozen=True)
class State:
    """What a discipline's own statistics say."""

    #: Packets that its queue management dropped, an ack filter removed, and that were marked.
    early: int = 0
    purged: int = 0
    marked: int = 0
    classes: Mapping[str, Class] = field(default_factory=dict)


def read_qdisc(payload: bytes) -> Qdisc:
    """A discipline from the payload of its message."""
    _, interface, handle, parent, _ = TC_MESSAGE.unpack_from(payload)
    values = dict(attributes(payload[TC_MESSAGE.size :]))
    statistics = dict(attributes(values.get(TCA_STATS2, b"")))
    bytes_, packets = struct.unpack_from("=QI", statistics.get(_BASIC, bytes(12)))
    if _PACKETS64 in statistics:
        (packets,) = struct.unpack_from("=Q", statistics[_PACKETS64])
    queued, backlog, drops, _, overlimits = struct.unpack_from("=5I", statistics.get(_QUEUE, bytes(20)))
    return Qdisc(
        interface,
        values[TCA_KIND].rstrip(b"\0").decode(),
        handle,
        parent,
        packets,
        bytes_,
        drops,
        overlimits,
        queued,
        backlog,
        statistics.get(_APP, b""),
        values.get(TCA_OPTIONS, b""),
    )


def read_state(qdisc: Qdisc) -> State:
    """The statistics of a discipline's own kind; none for kinds without any."""
    own = qdisc.own
    match qdisc.kind:
        case "cake" if own:
            return _cake(own)
        case "dualpi2" if len(own) >= 48:
            return _dualpi2(qdisc)
        case "red" if len(own) >= 16:
            early, _, _, marked = struct.unpack_from("=4I", own)
            return State(early, marked=marked)
        case "codel" if len(own) >= 36:
            _, _, _, delay_us, _, full, marked, _, by_threshold = struct.unpack_from("=4Ii4I", own)
            delay = {"delay_s": delay_us * _US}
            return State(max(qdisc.drops - full, 0), marked=marked + by_threshold, classes={"all": delay})
        case "fq_codel" if len(own) >= 32 and not any(own[:4]):
            _, full, marked, _, _, _, by_threshold = struct.unpack_from("=7I", own, 4)
            return State(max(qdisc.drops - full, 0), marked=marked + by_threshold)
        case "pie" if len(own) >= 40:
            probability, delay_us, _, _, _, early, _, _, marked = struct.unpack_from("=Q8I", own)
            values = {"delay_s": delay_us * _US, "probability": probability / _PIE_ONE}
            return State(early, marked=marked, classes={"all": values})
        case "fq_pie" if len(own) >= 36:
            _, early, _, _, marked, _, _, _, _ = struct.unpack_from("=9I", own)
            return State(early, marked=marked)
    return State()


def _dualpi2(qdisc: Qdisc) -> State:
    values = struct.unpack_from("=8Ii3I", qdisc.own)
    probability, delay_c_us, delay_l_us, in_c, in_l, _, marked, step_marked = values[:8]
    base = probability / _DUALPI2_ONE
    coupling = dict(attributes(qdisc.options)).get(DUALPI2_COUPLING, b"\2")[0]
    # RFC 9332, 2.4: the classic probability is the square, the L4S probability the coupled one.
    classic = {"delay_s": delay_c_us * _US, "probability": base**2, "arrived_packets": in_c}
    l4s = {
        "delay_s": delay_l_us * _US,
        "probability": min(1.0, coupling * base),
        "arrived_packets": in_l,
        "step_marked_packets": step_marked,
    }
    # A full queue counts as over its limit, and nothing else does.
    early = max(qdisc.drops - qdisc.overlimits, 0)
    return State(early, marked=marked, classes={"classic": classic, "l4s": l4s})


def _cake(own: bytes) -> State:
    early = purged = marked = 0
    classes: dict[str, Class] = {}
    for number, content in attributes(dict(attributes(own)).get(_CAKE_TINS, b"")):
        tin = {kind: int.from_bytes(value[:4], sys.byteorder) for kind, value in attributes(content)}
        early += tin.get(_TIN_DROPPED, 0)
        purged += tin.get(_TIN_ACKS_DROPPED, 0)
        marked += tin.get(_TIN_MARKED, 0)
        classes[f"tin-{number}"] = {
            "delay_s": tin.get(_TIN_DELAY_US, 0) * _US,
            "waiting_bytes": tin.get(_TIN_BACKLOG, 0),
            "arrived_packets": tin.get(_TIN_ARRIVED, 0),
            "dropped_packets": tin.get(_TIN_DROPPED, 0),
            "marked_packets": tin.get(_TIN_MARKED, 0),
        }
    return State(early, purged, marked, classes)


def of_interface(qdiscs: Iterable[Qdisc], interface: int) -> tuple[Qdisc, Qdisc] | None:
    """The discipline at an interface's root and the one that holds the queue; None without a root."""
    own = [qdisc for qdisc in qdiscs if qdisc.interface == interface]
    root = next((qdisc for qdisc in own if qdisc.parent == TC_ROOT), None)
    if root is None:
        return None
    children = [qdisc for qdisc in own if qdisc.parent >> 16 == root.handle >> 16 and qdisc.parent != TC_ROOT]
    return root, children[0] if children else root


def counters(disciplines: tuple[Qdisc, Qdisc] | None) -> ShapingCounters:
    """The counters of an interface's disciplines; zeros without any."""
    if disciplines is None:
        return ShapingCounters(0, 0, 0)
    root, leaf = disciplines
    state = read_state(leaf)
    # The root counts its child's drops too.
    return ShapingCounters(root.sent_packets, root.sent_bytes, root.drops, state.early, state.purged, state.marked)


def events(of: ShapingCounters, is_delayed: bool) -> dict[str, int]:
    """Counts by kind of event, without zeros. Behind a receiver, losses are all that there is."""
    full = max(of.drops - of.early - of.purged, 0)
    kinds = {DROPPED_FULL: full, DROPPED_EARLY: of.early, PURGED: of.purged, MARKED: of.marked}
    return {kind: count for kind, count in ({LOST: of.drops} if is_delayed else kinds).items() if count}


@dataclass(frozen=True)
class SampledInterface:
    """An interface whose disciplines are sampled, by the names of the telemetry."""

    link: str
    direction: str
    #: On the interface behind a receiver, where packets are delayed and lost; it has no queue to report.
    is_delayed: bool = False


class Sampler:
    """Writes samples until it is stopped.

    Args:
        file: to be written; replaced.
        interfaces: by the interface's index.
        zero_ns: start of the run on CLOCK_MONOTONIC.

    Raises:
        AgentError: the kernel refused.
    """

    def __init__(self, file: Path, interfaces: Mapping[int, SampledInterface], zero_ns: int) -> None:
        self._interfaces = interfaces
        self._zero_ns = zero_ns
        self._route = RouteSocket()
        self._out: IO[str] = file.open("w", encoding="utf-8")
        #: Last row of each kind, by interface and class.
        self._last: dict[tuple[int, str], dict[str, Any]] = {}
        self._counted: dict[int, dict[str, int]] = {}
        #: The last dump, and the counters in it.
        self._dump: list[bytes] | None = None
        self._counters: dict[int, ShapingCounters] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qdiscs", daemon=True)
        self._thread.start()

    def stop(self) -> dict[int, ShapingCounters]:
        """Takes the last sample. The counters in it, by the interface's index."""
        self._end.set()
        self._thread.join()
        try:
            return self._sample()
        finally:
            self._out.close()
            self._route.close()

    def _run(self) -> None:
        due_ns = self._zero_ns
        while not self._end.wait(max(due_ns - time.monotonic_ns(), 0) / 1e9):
            self._sample()
            # Samples that would be late already are left out.
            due_ns += PERIOD_NS * max(1, -(-(time.monotonic_ns() - due_ns) // PERIOD_NS))

    def _sample(self) -> dict[int, ShapingCounters]:
        t_ns = time.monotonic_ns() - self._zero_ns
        dump = list(self._route.qdiscs())
        if dump == self._dump:
            # Most interfaces are idle most of the time.
            return self._counters
        self._dump = dump
        qdiscs = [read_qdisc(payload) for payload in dump]
        result = {}
        for interface, sampled in self._interfaces.items():
            disciplines = of_interface(qdiscs, interface)
            result[interface] = counters(disciplines)
            self._write_events(t_ns, interface, events(result[interface], sampled.is_delayed))
            if disciplines is not None and not sampled.is_delayed:
                _, leaf = disciplines
                packets, bytes_ = leaf.queued_packets, leaf.queued_bytes
                self._write(t_ns, interface, "", {"packets": packets, "bytes": bytes_, "max": packets})
                for name, values in read_state(leaf).classes.items():
                    self._write(t_ns, interface, name, {"class": name, **values})
        self._counters = result
        return result

    def _write_events(self, t_ns: int, interface: int, counts: dict[str, int]) -> None:
        before = self._counted.get(interface, {})
        for kind, count in counts.items():
            if count > before.get(kind, 0):
                self._append(t_ns, interface, {"event": kind, "count": count - before.get(kind, 0)})
        self._counted[interface] = counts

    def _write(self, t_ns: int, interface: int, name: str, values: dict[str, Any]) -> None:
        if self._last.get((interface, name)) != values:
            self._last[interface, name] = values
            self._append(t_ns, interface, values)

    def _append(self, t_ns: int, interface: int, values: Mapping[str, Any]) -> None:
        sampled = self._interfaces[interface]
        row = {"t_ns": t_ns, "link": sampled.link, "direction": sampled.direction, **values}
        self._out.write(json.dumps(row, separators=(",", ":")) + "\n")
