"""Estimates the time and disk space of a plan, from earlier runs or from the capacity of the links.

The number of captured packets follows from the scenario: each flow fills the slowest line of its route, unless its
application sends less, and every
interface on the route captures its data and acks. Earlier runs of the same point replace this estimate. Earlier runs of
other points scale it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from experiments.engine import pace as paces
from experiments.engine.governor import RULES
from experiments.engine.pace import UNMEASURED, Pace
from experiments.language import registry
from experiments.language.backends import Backend
from experiments.language.campaign import Run
from experiments.language.routes import PACKET_BYTES, Route, route
from testbed.scenario import DIRECTIONS, Direction, Document, Flow, LinkSpec, Scenario, ScenarioDocument

if TYPE_CHECKING:
    from analysis.store import Store
    from analysis.store.rows import HistoryRow

#: Segments that one ack covers.
PER_ACK = 2
#: Assumed rate of a flow over lines without a rate, in bit/s.
FREE_BPS = 1e9
#: Stored bytes per captured packet (compressed capture, table row): in a simulation, whose times compress well, and
#: with real packets, telemetry included. Per captured interface, and per run.
SIM_BYTES_A_PACKET, BYTES_A_PACKET = 33.0, 160.0
#: Compressed telemetry of a simulation, per packet of a sender.
TELEMETRY_BYTES_A_PACKET = 6.0
BYTES_A_CAPTURE, BYTES_A_RUN = 13_000.0, 50_000.0
#: The database of a new store, and what each run adds to it.
BYTES_A_STORE, ROW_BYTES_A_RUN = 500_000.0, 37_000.0
#: Time of the command itself in virtual time, in s: measured where the store has every run.
COMMAND_S = 0.8
#: CPU time of an emulated run: per second, per captured packet, and once per run, in s.
CPU_S_A_SECOND, CPU_S_A_PACKET, CPU_S_A_RUN = 0.025, 3e-5, 0.4
#: Time of an emulated run in addition to its duration, and of a cell before its first run, in s.
OVERHEAD_S, BUILD_S = 1.0, 4.0
#: Time of a transfer of a known size, relative to its transmission time on the slowest line: losses, sharing.
SIZED_SLOWER = 4.0
#: CPU time of a simulated run with its analysis: once, per captured packet, and per packet and link, in s.
SIM_S_A_RUN, SIM_S_A_PACKET, SIM_S_A_CROSSING = 0.25, 6e-6, 4e-7
#: CPU time of a run on a kernel in virtual time: once, per virtual second, and per captured packet, in s.
VIRTUAL_S_A_RUN, VIRTUAL_S_A_SECOND, VIRTUAL_S_A_PACKET = 4.0, 0.05, 3e-4


@dataclass(frozen=True)
class Forecast:
    """The estimate for a set of runs."""

    runs: int
    #: Elapsed time of all runs, in s.
    time_s: float
    disk_bytes: float
    #: Assumed number of busy cells.
    cells: int
    #: Number of stored runs that it is based on; 0: only the capacity of the links.
    based_on: int
    #: Runs in other folders by which this machine's pace is known, where there are no stored ones.
    pace_runs: int = 0


@dataclass(frozen=True)
class Traffic:
    """Estimated packets of a run."""

    #: In all captures.
    captured: float
    #: Over all links: a packet counts once for each.
    crossings: float
    #: Captured interfaces.
    captures: int
    #: Packets that senders sample; 0 without telemetry.
    sampled: float


@dataclass(frozen=True)
class _Cost:
    """The estimate for one run."""

    time_s: float
    disk_bytes: float
    #: CPU time in real time, in s; 0 in virtual time, where it is the time.
    cpu_s: float


def learn(store: Store, backend: Backend) -> None:
    """Keeps what a store's runs of a backend say of this machine's pace, for forecasts in results folders without."""
    paces.keep(backend, Forecaster(backend, store.history(backend), os.cpu_count() or 1).pace)


class Forecaster:
    """Forecasts for sets of runs of one backend, from the same history. Each point is estimated once.

    Args:
        backend: of the runs.
        history: of Store.history, for that backend.
        cpus: number of CPUs.
        jobs: maximum number of cells, if the user set it.
        pace: of this machine, which counts where there is no history.
    """

    def __init__(
        self,
        backend: Backend,
        history: Sequence[HistoryRow],
        cpus: int,
        jobs: int | None = None,
        pace: Pace = UNMEASURED,
    ) -> None:
        self._backend, self._history, self._cpus, self._jobs = backend, history, cpus, jobs
        self._is_virtual = backend.in_virtual_time
        self._of_point: dict[str, list[HistoryRow]] = {}
        for past in history:
            self._of_point.setdefault(_point(past.scenario), []).append(past)
        self._traffic: dict[str, Traffic] = {}
        modelled = [
            _modelled_bytes(backend, self._traffic_of(point, past.scenario.scenario))
            for point, rows in self._of_point.items()
            for past in rows
        ]
        took = _taken(history, self._is_virtual)
        in_time = 1.0
        if self._is_virtual and took:
            in_time = sum(took) / sum(
                _virtual_s(backend, past.scenario.scenario, self._traffic_of(point, past.scenario.scenario))
                for point, rows in self._of_point.items()
                for past in rows
            )
        in_bytes = sum(past.bytes for past in history) / sum(modelled) if modelled else 1.0
        #: Measured over modelled in the history.
        self.pace = Pace(in_time, in_bytes, len(history)) if history else pace
        self._costs: dict[str, _Cost] = {}
        self._cost_of_run: dict[str, _Cost] = {}

    def forecast(self, runs: Sequence[Run]) -> Forecast:
        """Time and disk of runs."""
        if not runs:
            return Forecast(0, 0.0, 0.0, 0, len(self._history))
        costs = [self._cost(run) for run in runs]
        time_s, longest_s = sum(cost.time_s for cost in costs), max(cost.time_s for cost in costs)
        cells = self._cells(len(runs), sum(cost.cpu_s for cost in costs) / time_s)
        # At the end some cells have no run left.
        whole_s = max(longest_s, time_s / cells + longest_s * (1 - 1 / cells) / 2)
        disk_bytes = sum(cost.disk_bytes + ROW_BYTES_A_RUN for cost in costs)
        disk_bytes += 0.0 if self._history else BYTES_A_STORE
        return Forecast(
            len(runs),
            whole_s + (COMMAND_S if self._is_virtual else BUILD_S),
            disk_bytes,
            cells,
            len(self._history),
            0 if self._history else self.pace.runs,
        )

    def _cells(self, runs: int, busy: float) -> int:
        """Runs at the same time, each of which keeps this share of a CPU busy."""
        if self._is_virtual:
            return min(self._jobs or self._cpus, runs)
        if self._backend.in_lab:
            # A lab is one testbed, so `jobs` has no effect.
            return 1
        seen = sorted(past.batch.cells for past in self._history if past.batch.cells)
        measured = seen[(9 * len(seen)) // 10] if len(seen) >= 8 else None
        fit = measured or max(1, math.floor(RULES.room * self._cpus / busy))
        return min(self._jobs or fit, runs)

    def _cost(self, run: Run) -> _Cost:
        cost = self._cost_of_run.get(run.id)
        if cost is None:
            point = _point(run.document)
            # Repetitions differ by what varies only.
            if point not in self._costs:
                self._costs[point] = self._estimate(point, run.scenario)
            cost = self._cost_of_run[run.id] = self._costs[point]
        return cost

    def _estimate(self, point: str, scenario: Scenario) -> _Cost:
        same, traffic = self._of_point.get(point, []), self._traffic_of(point, scenario)
        disk_bytes = (
            _mean([past.bytes for past in same]) if same else self.pace.bytes * _modelled_bytes(self._backend, traffic)
        )
        known = _taken(same, self._is_virtual)
        if self._is_virtual:
            modelled_s = self.pace.time * _virtual_s(self._backend, scenario, traffic)
            return _Cost(_mean(known) if known else modelled_s, disk_bytes, 0.0)
        length_s = _length_s(scenario)
        cpu_s = CPU_S_A_RUN + CPU_S_A_SECOND * length_s + CPU_S_A_PACKET * traffic.captured
        return _Cost((max(length_s, _mean(known)) if known else length_s) + OVERHEAD_S, disk_bytes, cpu_s)

    def _traffic_of(self, point: str, scenario: Scenario) -> Traffic:
        if point not in self._traffic:
            self._traffic[point] = traffic(scenario)
        return self._traffic[point]


def _taken(history: Sequence[HistoryRow], virtual: bool) -> list[float]:
    """What runs took, in s. In virtual time their analysis keeps CPUs from other runs; in real time it does not."""
    return [
        float(past.took_s) + (float(past.analysed_s or 0.0) if virtual else 0.0)
        for past in history
        if past.took_s is not None
    ]


def effort_s(run: Run) -> float:
    """Cost of a run relative to others of its backend: its duration in real time, its CPU time in virtual time."""
    if not run.backend.in_virtual_time:
        return _length_s(run.scenario)
    return _virtual_s(run.backend, run.scenario, traffic(run.scenario))


def _length_s(scenario: Scenario) -> float:
    """Length of an emulated run, in s: its duration, or the estimated time of its transfers if all have a size."""
    whole_s = float(scenario.duration_s)
    taken_s = 0.0
    for flow in scenario.workload:
        hops = route(scenario, flow.from_, flow.to)
        if not flow.bytes or not hops:
            return whole_s
        rate_bps = min(_rate_bps(*hop) for hop in hops)
        taken_s = max(taken_s, flow.start_s + SIZED_SLOWER * flow.bytes * 8 / rate_bps)
    return min(whole_s, taken_s)


def traffic(scenario: Scenario) -> Traffic:
    """Estimated packets of all flows."""
    captured = crossings = sent = 0.0
    interfaces = [f"{end}:{link.name}" for link in scenario.links for end in link.ends]
    captures = sum(not scenario.capture.at or name in scenario.capture.at for name in interfaces)
    ways = [(flow, route(scenario, flow.from_, flow.to), _offered_per_s(flow)) for flow in scenario.workload]
    load: dict[tuple[str, str], int] = {}
    for _, hops, offered_per_s in ways:
        if offered_per_s < math.inf:
            # It takes little of what the others fill.
            continue
        for link, direction in hops:
            load[link.name, direction] = load.get((link.name, direction), 0) + 1
    for flow, hops, offered_per_s in ways:
        if not hops:
            continue
        rate_bps = min(_rate_bps(link, side) / load.get((link.name, side), 1) for link, side in hops)
        ack_bps = min(_rate_bps(link, "reverse" if side == "forward" else "forward") for link, side in hops)
        # Acks of 40 bytes on the slowest reverse line limit the data rate.
        rate_bps = min(rate_bps, ack_bps / 320 * PER_ACK * PACKET_BYTES * 8 * 4)
        end_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
        packets = min(rate_bps / (8 * PACKET_BYTES), offered_per_s) * max(end_s - flow.start_s, 0.0)
        if flow.bytes:
            packets = min(packets, flow.bytes / PACKET_BYTES)
        packets *= 1 + 1 / PER_ACK
        captured += packets * _captures(scenario, hops)
        crossings += packets * len(hops)
        sent += packets
    return Traffic(captured, crossings, captures, sent if scenario.capture.telemetry else 0.0)


def _offered_per_s(flow: Flow) -> float:
    """Packets a second that a flow's application sends; infinite where only the line limits it."""
    params = registry.find("workload", flow.kind).params
    # A workload of the user's own may have options of these names that are zero or absent.
    options = {param.name: flow.options.get(param.name, param.default) or 0 for param in params}
    for name in ("interval_s", "frame_s"):
        if options.get(name):
            return 1 / float(options[name])
    if options.get("distance_s") and options.get("mean_bytes"):
        return float(options["mean_bytes"]) / PACKET_BYTES / float(options["distance_s"])
    if options.get("rate_bps"):
        size = options.get("packet_bytes") or options.get("write_bytes") or PACKET_BYTES
        return float(options["rate_bps"]) / 8 / float(size)
    return math.inf


def _captures(scenario: Scenario, hops: Route) -> int:
    """Number of captured interfaces on a route: both ends of each link, unless the scenario names interfaces."""
    at = scenario.capture.at
    return sum(not at or f"{end}:{link.name}" in at for link, _ in hops for end in link.ends)


def _modelled_bytes(backend: Backend, traffic: Traffic) -> float:
    fixed_bytes = BYTES_A_RUN + BYTES_A_CAPTURE * traffic.captures
    if backend.has_real_packets:
        return fixed_bytes + BYTES_A_PACKET * traffic.captured
    return fixed_bytes + SIM_BYTES_A_PACKET * traffic.captured + TELEMETRY_BYTES_A_PACKET * traffic.sampled


def _virtual_s(backend: Backend, scenario: Scenario, traffic: Traffic) -> float:
    """CPU time of a run in virtual time, in s."""
    if not backend.has_real_packets:
        return SIM_S_A_RUN + SIM_S_A_PACKET * traffic.captured + SIM_S_A_CROSSING * traffic.crossings
    return VIRTUAL_S_A_RUN + VIRTUAL_S_A_SECOND * scenario.duration_s + VIRTUAL_S_A_PACKET * traffic.captured


def _point(scenario: ScenarioDocument) -> str:
    """Equal for repetitions of a point: the scenario without its seed and drawn values."""
    document = scenario.document
    growth_s = (document.get("variation") or {}).get("drawn", {})
    links = [
        {**link, **{way: _undrawn(link[way], growth_s.get(f"links.{link['name']}.delay_s", 0.0)) for way in DIRECTIONS}}
        for link in document["links"]
    ]
    flows = [{**flow, "start_s": None} for flow in document["workload"]]
    drawn = {"seed": None, "variation": None, "workload": flows, "links": links}
    return json.dumps({**document, **drawn}, sort_keys=True)


def _rate_bps(link: LinkSpec, way: Direction) -> float:
    direction = link.direction(way)
    if direction.rate_bps is not None:
        return direction.rate_bps
    trace = direction.options.get("trace")
    return _trace_rate_bps(str(trace)) if trace else FREE_BPS


@lru_cache(maxsize=16)
def _trace_rate_bps(trace: str) -> float:
    """Mean rate of a trace of delivery opportunities, each a line with its time in ms."""
    opportunities = trace.split()
    return len(opportunities) * PACKET_BYTES * 8 / (float(opportunities[-1]) / 1000)


def _undrawn(direction: Document, growth_s: float) -> Document:
    """A direction without the growth of its delay and from the start of its trace."""
    options = {key: value for key, value in direction.get("options", {}).items() if key != "offset_s"}
    return {**direction, "delay_s": round(direction["delay_s"] - growth_s, 9), "options": options}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
