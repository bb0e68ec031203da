"""The simulator beside ns-2 and ns-3: the same dumbbell, in the same run, each alone on a core.

    ./backchannel bench simulator

Long NewReno flows that ack every segment cross a 100 Mbit/s line of 10 ms with 100-packet droptail queues; their own
wires have 1 Gbit/s and 1 ms. What is compared is wall time per data packet delivered, the whole process counted, in
several rounds, each with a run of everybody. Ratios are of runs of one round. ns-2 carries no headers; ns-3 and ours
build every byte of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed import node_binary
from testbed.addressing import as_json, make_plan
from tests.benchmarks.repeats import shown

HERE = Path(__file__).resolve().parent
RATE_BPS = 100_000_000
NS3_MODULES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control")
SEGMENT = 1460

#: Does one run; gives the data packets that it delivered.
Simulation = Callable[[], int]


def dumbbell(flows: int, seconds: float, capture: bool) -> dict[str, Any]:
    """The scenario, as ours."""

    def wire(rate_bps: int, delay_s: float, packets: int) -> dict[str, Any]:
        return {
            "rate_bps": rate_bps,
            "delay_s": delay_s,
            "queue": {"name": "droptail", "options": {"limit_packets": packets}},
        }

    def link(name: str, ends: list[str], direction: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name, "kind": "point-to-point", "ends": ends,
            "forward": direction, "reverse": direction, "options": {},
        }  # fmt: skip

    stack = {"name": "newreno", "options": {"ack_every_segments": 1, "timestamps": False}}
    access = wire(10**9, 0.001, 1000)
    nodes: list[dict[str, Any]] = [{"name": name, "kind": "router"} for name in ("r1", "r2")]
    links = [link("line", ["r1", "r2"], wire(RATE_BPS, 0.01, 100))]
    workload = []
    for i in range(flows):
        nodes += [{"name": f"{side}{i}", "kind": "host", "stack": stack} for side in "sd"]
        links += [link(f"s{i}", [f"s{i}", "r1"], access), link(f"d{i}", ["r2", f"d{i}"], access)]
        start_s = 0.01 * (i % 100)
        workload.append(
            {"name": f"f{i}", "kind": "bulk", "from": f"s{i}", "to": f"d{i}", "start_s": start_s, "port": 5001}
        )
    at = ["r1:line", "r2:line"] if capture else ["none"]
    return {
        "version": 1, "seed": 1, "duration_s": seconds, "nodes": nodes, "links": links, "workload": workload,
        "capture": {"snaplen": 96, "at": at, "telemetry": capture},
    }  # fmt: skip


def ours(flows: int, seconds: float, capture: bool, folder: Path) -> Simulation:
    """This project's."""
    scenario = dumbbell(flows, seconds, capture)
    plan = as_json(make_plan(scenario["nodes"], scenario["links"]))
    given = json.dumps({"scenario": scenario, "nodes": plan})

    def run() -> int:
        words = [node_binary.path(), "simulate", "--out", str(folder / "ours")]
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=True)
        flows_said = json.loads(done.stdout)["flows"].values()
        return sum(int(flow["receive"]["bytes"]) for flow in flows_said) // SEGMENT

    return run


def ns2(flows: int, seconds: float) -> Simulation:
    """ns-2, without traces."""
    words = ["ns", str(HERE / "dumbbell.tcl"), str(flows), str(RATE_BPS), str(seconds)]
    return lambda: int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def ns3(program: Path, flows: int, seconds: float, capture: Path | None) -> Simulation:
    """ns-3; with captures on both ends of the line if asked."""
    words = [str(program), str(flows), str(RATE_BPS), str(seconds), *([str(capture)] if capture else [])]
    return lambda: int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def build_ns3(folder: Path) -> Path:
    """Compiles the ns-3 program, optimised."""
    program = folder / "dumbbell"
    libraries = [f"-lns3-{module}" for module in NS3_MODULES]
    subprocess.run(["g++", "-O2", "-o", str(program), str(HERE / "dumbbell.cc"), *libraries], check=True)
    return program


def rounds_of(simulations: dict[str, Simulation], rounds: int) -> dict[str, list[tuple[float, int]]]:
    """Wall seconds and data packets of each in every round."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in simulations}
    for _ in range(rounds):
        for name, run in simulations.items():
            started = time.perf_counter()
            packets = run()
            found[name].append((time.perf_counter() - started, packets))
    return found


def tell(title: str, results: dict[str, list[tuple[float, int]]], reference: str) -> None:
    """A table of means with their half-widths, and ratios to the named one."""
    print(f"\n{title}")
    costs = {name: [took_s / packets * 1e6 for took_s, packets in rounds] for name, rounds in results.items()}
    print(f"  {'':<28} {'wall (s)':>22} {'packets':>9} {'us a packet':>24} {'relative':>22}")
    for name, rounds in results.items():
        ratios = [own / other for own, other in zip(costs[name], costs[reference], strict=True)]
        wall = shown([took_s for took_s, _ in rounds])
        print(f"  {name:<28} {wall:>22} {rounds[0][1]:>9} {shown(costs[name]):>24} {shown(ratios):>22}")


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description="The simulator beside ns-2 and ns-3.")
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of a run (60)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (5)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="backchannel-bench-"))
    # One core for everybody, the same one.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        program = build_ns3(folder)
        silent: dict[str, Simulation] = {
            "backchannel": ours(10, args.seconds, False, folder),
            "ns-2": ns2(10, args.seconds),
            "ns-3": ns3(program, 10, args.seconds, None),
        }
        tell("Ten flows, nothing captured:", rounds_of(silent, args.rounds), "backchannel")
        captured: dict[str, Simulation] = {
            "backchannel": ours(10, args.seconds, True, folder),
            "ns-3": ns3(program, 10, args.seconds, folder / "ns3"),
        }
        tell("The same, both ends of the line captured:", rounds_of(captured, args.rounds), "backchannel")
        counts = (1, 10, 100, 1000)
        many: dict[str, Simulation] = {
            f"backchannel, {n} flows": ours(n, 2 * args.seconds, False, folder) for n in counts
        }
        tell("Number of flows, nothing captured:", rounds_of(many, args.rounds), "backchannel, 1 flows")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
