"""What a plan will take: time and disk, from what earlier runs took, or from what their links can carry.

A run's captured packets are estimated from its scenario: each flow fills the slowest line of its way, and every
interface on that way sees its data and their acks. Where the store has runs of the same point, they are believed
instead; where it has others, the estimate is scaled by what those came to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.engine.governor import RULES
from experiments.language.campaign import Run
from experiments.language.routes import PACKET_BYTES, Route, route
from testbed.scenario import Direction, LinkSpec, Scenario, ScenarioDocument

if TYPE_CHECKING:
    from analysis.store.rows import HistoryRow

#: Segments that one ack covers.
PER_ACK = 2
#: On a line without a rate, what a flow is taken to reach, in bit/s.
FREE_BPS = 1e9
#: Kept bytes of a captured packet: its compressed capture, its row, telemetry beside it.
BYTES_A_PACKET = 160.0
BYTES_A_RUN = 120_000.0
#: CPU time of an emulated run: each second, each captured packet, and once.
CPU_S_A_SECOND, CPU_S_A_PACKET, CPU_S_A_RUN = 0.025, 3e-5, 0.4
#: What an emulated run takes beside its own length, and a cell until its first run, in seconds.
OVERHEAD_S, BUILD_S = 1.0, 4.0
#: How many times longer a transfer of a known size takes than its slowest line would need: losses, sharing.
SIZED_SLOWER = 4.0
#: CPU time of a simulated run: once, for each captured packet, and each time that a packet crosses a link.
SIM_S_A_RUN, SIM_S_A_PACKET, SIM_S_A_CROSSING = 0.3, 6e-6, 2e-6


@dataclass(frozen=True)
class Forecast:
    """Of the runs that are to be made."""

    runs: int
    #: Seconds, from beginning to end.
    time_s: float
    #: Bytes that they will leave.
    disk_bytes: float
    #: Cells that are taken to be at work at once.
    cells: int
    #: Runs of the store that it is based on; 0: only on what the links can carry.
    based_on: int


def forecast(runs: Sequence[Run], history: Sequence[HistoryRow], cpus: int, jobs: int | None = None) -> Forecast:
    """Time and disk of runs.

    Args:
        runs: those to be made, all of one backend.
        history: of Store.history, for that backend.
        cpus: that share the work.
        jobs: cells at a time, where that was said.
    """
    if not runs:
        return Forecast(0, 0.0, 0.0, 0, len(history))
    sim = runs[0].backend == "sim"
    of_point: dict[str, list[HistoryRow]] = {}
    for one in history:
        of_point.setdefault(_point(one.scenario), []).append(one)
    modelled = [_modelled_bytes(one.scenario.scenario) for one in history]
    scale = sum(one.bytes for one in history) / sum(modelled) if modelled else 1.0
    took = [float(one.took_s) for one in history if one.took_s is not None]
    sim_scale = sum(took) / sum(_sim_s(one.scenario.scenario) for one in history) if sim and took else 1.0
    disk = time_s = longest_s = 0.0
    cpu_s = 0.0
    for run in runs:
        scenario = run.scenario
        same = of_point.get(_point(run.document), [])
        disk += _mean([one.bytes for one in same]) if same else scale * _modelled_bytes(scenario)
        known = [float(one.took_s) for one in same if one.took_s is not None]
        if sim:
            one_s = _mean(known) if known else sim_scale * _sim_s(scenario)
        else:
            length_s = _length_s(scenario)
            one_s = max(length_s, _mean(known)) + OVERHEAD_S if known else length_s + OVERHEAD_S
            cpu_s += CPU_S_A_RUN + CPU_S_A_SECOND * length_s + CPU_S_A_PACKET * captured_packets(scenario)
        time_s += one_s
        longest_s = max(longest_s, one_s)
    if sim:
        cells = min(jobs or cpus, len(runs))
    elif runs[0].backend == "physical":
        # A lab is one testbed, whatever was said of jobs.
        cells = 1
    else:
        seen = sorted(one.batch.cells for one in history if one.batch.cells)
        measured = seen[(9 * len(seen)) // 10] if len(seen) >= 8 else None
        fit = measured or max(1, math.floor(RULES.room * cpus / (cpu_s / time_s)))
        cells = min(jobs or fit, len(runs))
    # The last runs have no successors to keep the other cells at work.
    whole_s = max(longest_s, time_s / cells + longest_s * (1 - 1 / cells) / 2) + (0.0 if sim else BUILD_S)
    return Forecast(len(runs), whole_s, disk, cells, len(history))


def effort_s(run: Run) -> float:
    """What a run costs against others of its backend: its length in real time, its calculation in virtual time."""
    return _sim_s(run.scenario) if run.backend == "sim" else _length_s(run.scenario)


def _length_s(scenario: Scenario) -> float:
    """How long an emulated run lasts: its duration, or about as long as its transfers take where all have a size."""
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
    """Packets that all captures of a run will hold, about."""
    return _packets(scenario, lambda hops: _captures(scenario, hops))


def _packets(scenario: Scenario, times: Callable[[Route], int]) -> float:
    """Packets of all flows, each as many times as its way says."""
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
        # Acks of 40 bytes on the slowest line back bound the data that they acknowledge.
        rate_bps = min(rate_bps, ack_bps / 320 * PER_ACK * PACKET_BYTES * 8 * 4)
        end_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
        packets = rate_bps * max(end_s - flow.start_s, 0.0) / (8 * PACKET_BYTES)
        if flow.bytes:
            packets = min(packets, flow.bytes / PACKET_BYTES)
        total += packets * (1 + 1 / PER_ACK) * times(hops)
    return total


def _captures(scenario: Scenario, hops: Route) -> int:
    """Captured interfaces on a way: both ends of each link, unless the scenario names some."""
    at = scenario.capture.at
    return sum(not at or f"{end}:{link.name}" in at for link, _ in hops for end in link.ends)


def _modelled_bytes(scenario: Scenario) -> float:
    return BYTES_A_RUN + BYTES_A_PACKET * captured_packets(scenario)


def _sim_s(scenario: Scenario) -> float:
    crossings = _packets(scenario, len)
    return SIM_S_A_RUN + SIM_S_A_PACKET * captured_packets(scenario) + SIM_S_A_CROSSING * crossings


def _point(scenario: ScenarioDocument) -> str:
    """Equal for repetitions of one point: without its seed and what a repetition draws."""
    document = scenario.document
    drawn = {"seed": None, "workload": [{**flow, "start_s": None} for flow in document["workload"]]}
    return json.dumps({**document, **drawn}, sort_keys=True)


def _rate_bps(link: LinkSpec, way: Direction) -> float:
    rate_bps = link.direction(way).rate_bps
    return FREE_BPS if rate_bps is None else rate_bps


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
