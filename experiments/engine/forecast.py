"""Estimates the time and disk space of a plan, from earlier runs or from the capacity of the links.

The number of captured packets follows from the scenario: each flow fills the slowest line of its route, and every
interface on the route captures its data and acks. Earlier runs of the same point replace this estimate. Earlier runs of
other points scale it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from experiments.engine.governor import RULES
from experiments.language.backends import SIM, VIRTUAL_KERNEL, in_virtual_time
from experiments.language.campaign import Run
from experiments.language.routes import PACKET_BYTES, Route, route
from testbed.scenario import DIRECTIONS, Direction, Document, LinkSpec, Scenario, ScenarioDocument

if TYPE_CHECKING:
    from analysis.store.rows import HistoryRow

#: Segments that one ack covers.
PER_ACK = 2
#: Assumed rate of a flow over lines without a rate, in bit/s.
FREE_BPS = 1e9
#: Stored bytes per captured packet (compressed capture, table row, telemetry) and per run.
BYTES_A_PACKET = 160.0
BYTES_A_RUN = 120_000.0
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


def forecast(runs: Sequence[Run], history: Sequence[HistoryRow], cpus: int, jobs: int | None = None) -> Forecast:
    """Time and disk of runs.

    Args:
        runs: to estimate, all of one backend.
        history: of Store.history, for that backend.
        cpus: number of CPUs.
        jobs: maximum number of cells, if the user set it.
    """
    if not runs:
        return Forecast(0, 0.0, 0.0, 0, len(history))
    virtual = in_virtual_time(runs[0].backend)
    cost_s = _sim_s if runs[0].backend == SIM else _virtual_kernel_s
    of_point: dict[str, list[HistoryRow]] = {}
    for past in history:
        of_point.setdefault(_point(past.scenario), []).append(past)
    modelled = [_modelled_bytes(past.scenario.scenario) for past in history]
    scale = sum(past.bytes for past in history) / sum(modelled) if modelled else 1.0
    took = _taken(history, virtual)
    virtual_scale = sum(took) / sum(cost_s(past.scenario.scenario) for past in history) if virtual and took else 1.0
    disk = time_s = longest_s = 0.0
    cpu_s = 0.0
    for run in runs:
        scenario = run.scenario
        same = of_point.get(_point(run.document), [])
        disk += _mean([past.bytes for past in same]) if same else scale * _modelled_bytes(scenario)
        known = _taken(same, virtual)
        if virtual:
            one_s = _mean(known) if known else virtual_scale * cost_s(scenario)
        else:
            length_s = _length_s(scenario)
            one_s = max(length_s, _mean(known)) + OVERHEAD_S if known else length_s + OVERHEAD_S
            cpu_s += CPU_S_A_RUN + CPU_S_A_SECOND * length_s + CPU_S_A_PACKET * captured_packets(scenario)
        time_s += one_s
        longest_s = max(longest_s, one_s)
    if virtual:
        cells = min(jobs or cpus, len(runs))
    elif runs[0].backend == "physical":
        # A lab is one testbed, so `jobs` has no effect.
        cells = 1
    else:
        seen = sorted(past.batch.cells for past in history if past.batch.cells)
        measured = seen[(9 * len(seen)) // 10] if len(seen) >= 8 else None
        fit = measured or max(1, math.floor(RULES.room * cpus / (cpu_s / time_s)))
        cells = min(jobs or fit, len(runs))
    # At the end some cells have no run left.
    whole_s = max(longest_s, time_s / cells + longest_s * (1 - 1 / cells) / 2) + (0.0 if virtual else BUILD_S)
    return Forecast(len(runs), whole_s, disk, cells, len(history))


def _taken(history: Sequence[HistoryRow], virtual: bool) -> list[float]:
    """What runs took, in s. In virtual time their analysis keeps CPUs from other runs; in real time it does not."""
    return [
        float(past.took_s) + (float(past.analysed_s or 0.0) if virtual else 0.0)
        for past in history
        if past.took_s is not None
    ]


def effort_s(run: Run) -> float:
    """Cost of a run relative to others of its backend: its duration in real time, its CPU time in virtual time."""
    if run.backend == SIM:
        return _sim_s(run.scenario)
    return _virtual_kernel_s(run.scenario) if run.backend == VIRTUAL_KERNEL else _length_s(run.scenario)


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


def captured_packets(scenario: Scenario) -> float:
    """Estimated number of packets in all captures of a run."""
    return _packets(scenario, lambda hops: _captures(scenario, hops))


def _packets(scenario: Scenario, times: Callable[[Route], int]) -> float:
    """Estimated packets of all flows, each multiplied by `times` of its route."""
    total = 0.0
    ways = [(flow, route(scenario, flow.from_, flow.to)) for flow in scenario.workload]
    load: dict[tuple[str, str], int] = {}
    for _, hops in ways:
        for link, direction in hops:
            load[link.name, direction] = load.get((link.name, direction), 0) + 1
    for flow, hops in ways:
        if not hops:
            continue
        rate_bps = min(_rate_bps(link, side) / load[link.name, side] for link, side in hops)
        ack_bps = min(_rate_bps(link, "reverse" if side == "forward" else "forward") for link, side in hops)
        # Acks of 40 bytes on the slowest reverse line limit the data rate.
        rate_bps = min(rate_bps, ack_bps / 320 * PER_ACK * PACKET_BYTES * 8 * 4)
        end_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
        packets = rate_bps * max(end_s - flow.start_s, 0.0) / (8 * PACKET_BYTES)
        if flow.bytes:
            packets = min(packets, flow.bytes / PACKET_BYTES)
        total += packets * (1 + 1 / PER_ACK) * times(hops)
    return total


def _captures(scenario: Scenario, hops: Route) -> int:
    """Number of captured interfaces on a route: both ends of each link, unless the scenario names interfaces."""
    at = scenario.capture.at
    return sum(not at or f"{end}:{link.name}" in at for link, _ in hops for end in link.ends)


def _modelled_bytes(scenario: Scenario) -> float:
    return BYTES_A_RUN + BYTES_A_PACKET * captured_packets(scenario)


def _virtual_kernel_s(scenario: Scenario) -> float:
    """CPU time of a run on a kernel in virtual time, in s."""
    return VIRTUAL_S_A_RUN + VIRTUAL_S_A_SECOND * scenario.duration_s + VIRTUAL_S_A_PACKET * captured_packets(scenario)


def _sim_s(scenario: Scenario) -> float:
    crossings = _packets(scenario, len)
    return SIM_S_A_RUN + SIM_S_A_PACKET * captured_packets(scenario) + SIM_S_A_CROSSING * crossings


def _point(scenario: ScenarioDocument) -> str:
    """Equal for repetitions of a point: the scenario without its seed and drawn values."""
    document = scenario.document
    growth_s = (document.get("variation") or {}).get("drawn", {})
    links = [
        {
            **link,
            **{way: _undrawn(link[way], growth_s.get(f"links.{link['name']}.delay_s", 0.0)) for way in DIRECTIONS},
        }
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
