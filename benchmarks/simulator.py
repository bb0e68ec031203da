"""The simulator beside ns-2 and ns-3: the same dumbbell, in the same run, each alone on a core.

    ./backchannel bench simulator
    ./backchannel bench simulator --instructions    # counts them with valgrind, which noise does not touch
    ./backchannel bench simulator --flows           # only few and many flows, which needs neither ns-2 nor ns-3
    ./backchannel bench simulator --beside BINARY   # beside another build of it, such as an older one

Long NewReno flows that ack every segment cross a 100 Mbit/s line of 10 ms with 100-packet droptail queues. Their own
wires have 1 Gbit/s and 1 ms. The benchmark compares CPU time per delivered data packet, the whole process counted, in
several rounds, each with a run of every simulator. A busy machine stretches wall time more. Ratios are of runs of one
round. ns-2 carries no headers. ns-3 and ours build every byte of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.repeats import shown
from benchmarks.usage import used_s
from testbed import node_binary
from testbed.addressing import as_json
from testbed.local_folders import ScratchFolder
from tests.support.addresses import planned

HERE = Path(__file__).resolve().parent
RATE_BPS = 100_000_000
NS3_MODULES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control")
SEGMENT = 1460
#: Stream data in a full packet of QUIC: a payload of 1472 bytes less header, frame and tag.
QUIC_SEGMENT = 1440
NEWRENO = {"name": "newreno", "options": {"ack_every_segments": 1, "timestamps": False}}
MODERN = {"name": "modern", "options": {"ack_every_segments": 1}}
BBR = {"name": "modern-bbr", "options": {"ack_every_segments": 1}}
PRAGUE = {"name": "modern-prague", "options": {"ack_every_segments": 1}}
QUIC = {"name": "quic", "options": {"congestion": "newreno", "ack_every_segments": 1}}

K = TypeVar("K")
#: Does one run; returns the data packets that it delivered.
Simulation = Callable[[], int]
#: Queue policies of the line that are compared.
POLICIES = ("droptail", "red", "ack-filtering", "aq")
#: Numbers of flows that are compared.
FLOW_COUNTS = (1, 10, 100, 1000, 10_000)


def dumbbell(
    flows: int,
    seconds: float,
    capture: bool,
    policy: str = "droptail",
    stack: Mapping[str, Any] = NEWRENO,
    kind: str = "point-to-point",
) -> dict[str, Any]:
    """The scenario, as ours; `policy` is that of both ends of the line, `kind` that of the line."""

    def wire(rate_bps: int, delay_s: float, packets: int, policy: str = "droptail") -> dict[str, Any]:
        return {
            "rate_bps": rate_bps,
            "delay_s": delay_s,
            "queue": {"name": policy, "options": {"limit_packets": packets}},
        }

    def link(name: str, ends: list[str], direction: dict[str, Any], kind: str = "point-to-point") -> dict[str, Any]:
        return {
            "name": name,
            "kind": kind,
            "ends": ends,
            "forward": direction,
            "reverse": direction,
            "options": {},
        }

    access = wire(10**9, 0.001, 1000)
    nodes: list[dict[str, Any]] = [{"name": name, "kind": "router"} for name in ("r1", "r2")]
    links = [link("line", ["r1", "r2"], wire(RATE_BPS, 0.01, 100, policy), kind)]
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
        "version": 1,
        "seed": 1,
        "duration_s": seconds,
        "nodes": nodes,
        "links": links,
        "workload": workload,
        "capture": {"snaplen": 96, "at": at, "telemetry": capture},
    }


#: Runs a program and prints its peak resident memory in KiB to the error stream. A process inherits the peak of the
#: process that starts it, so this one must be small.
PEAK = (
    "import os, subprocess, sys; process = subprocess.Popen(sys.argv[1:]); _, status, usage = os.wait4(process.pid, 0);"
    "print(usage.ru_maxrss, file=sys.stderr); sys.exit(os.waitstatus_to_exitcode(status))"
)


class Ours:
    """This project's simulator with one scenario, of this build or of another."""

    def __init__(self, scenario: dict[str, Any], folder: Path, binary: Path | None = None) -> None:
        plan = as_json(planned(scenario))
        self._input = json.dumps({"scenario": scenario, "nodes": plan})
        self._words = [str(binary or node_binary.path()), "simulate", "--out", str(folder / "ours")]
        is_quic = any(node.get("stack") == QUIC for node in scenario["nodes"])
        self._segment = QUIC_SEGMENT if is_quic else SEGMENT

    def __call__(self) -> int:
        """Runs it; returns the data packets that it delivered."""
        return _delivered(self._run(self._words).stdout, self._segment)

    def peak_bytes(self) -> int:
        """Peak resident memory of a run."""
        return int(self._run([sys.executable, "-c", PEAK, *self._words]).stderr) * 1024

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, input=self._input, capture_output=True, text=True, check=True)

    def instructions(self) -> tuple[int, int]:
        """Instructions of a run under valgrind, and the data packets that it delivered."""
        words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *self._words]
        done = self._run(words)
        counted = re.search(r"Collected : (\d+)", done.stderr)
        if counted is None:
            raise RuntimeError(f"valgrind reported no count of instructions: {done.stderr}")
        return int(counted[1]), _delivered(done.stdout, self._segment)


def _delivered(report: str, segment: int) -> int:
    return sum(int(flow["receive"]["bytes"]) for flow in json.loads(report)["flows"].values()) // segment


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


def rounds_of(simulations: Mapping[K, Simulation], rounds: int) -> dict[K, list[tuple[float, int]]]:
    """CPU seconds and data packets of each in every round."""
    result: dict[K, list[tuple[float, int]]] = {name: [] for name in simulations}
    for _ in range(rounds):
        for name, run in simulations.items():
            before_s = used_s()
            packets = run()
            result[name].append((used_s() - before_s, packets))
    return result


def number_of_flows(seconds: float, rounds: int, folder: Path) -> None:
    """Tables of runs with few and with many flows: whole, and without the start-up, which grows with the flows."""
    lengths_s = (seconds, 2 * seconds)
    runs = {
        (flows, length_s): Ours(dumbbell(flows, length_s, capture=False), folder)
        for flows in FLOW_COUNTS
        for length_s in lengths_s
    }
    taken = rounds_of(runs, rounds)
    halves, wholes = ({f"{flows} flows": taken[flows, length_s] for flows in FLOW_COUNTS} for length_s in lengths_s)
    second_halves = {
        name: [(whole[0] - half[0], whole[1] - half[1]) for half, whole in zip(halves[name], wholes[name], strict=True)]
        for name in wholes
    }
    tell("Number of flows, nothing captured:", wholes, "10 flows")
    tell("The same, the second half of each run alone, so without start-up:", second_halves, "10 flows")
    for (flows, length_s), run in runs.items():
        if length_s == lengths_s[1]:
            print(f"  {f'{flows} flows':<28} {run.peak_bytes() / 2**20:>8.0f} MiB at most")


def tell(title: str, results: dict[str, list[tuple[float, int]]], reference: str) -> None:
    """A table of means with their half-widths, and ratios to the named one."""
    print(f"\n{title}")
    costs = {name: [took_s / packets * 1e6 for took_s, packets in rounds] for name, rounds in results.items()}
    print(f"  {'':<28} {'CPU (s)':>22} {'packets':>9} {'us a packet':>24} {'relative':>22}")
    for name, rounds in results.items():
        ratios = [own / other for own, other in zip(costs[name], costs[reference], strict=True)]
        cpu = shown([took_s for took_s, _ in rounds])
        print(f"  {name:<28} {cpu:>22} {rounds[0][1]:>9} {shown(costs[name]):>24} {shown(ratios):>22}")


def tell_instructions(folder: Path) -> None:
    """A table of instructions per data packet of the second to the fifth virtual second, so without start-up."""
    scenarios: dict[str, dict[str, Any]] = {
        **{f"ten flows, {policy}": {"policy": policy} for policy in POLICIES},
        "ten flows, dual-pi2": {"policy": "dual-pi2"},
        "ten flows, grant": {"kind": "grant"},
        "ten flows of Prague, grant, dual-pi2": {"kind": "grant", "policy": "dual-pi2", "stack": PRAGUE},
        "ten flows, wifi": {"kind": "wifi"},
        "ten flows, captured": {"capture": True},
        "ten flows of CUBIC as in Linux, droptail": {"stack": MODERN},
        "ten flows of BBRv3, droptail": {"stack": BBR},
        "ten flows of QUIC, droptail": {"stack": QUIC},
        **{f"{flows} flows, droptail": {"flows": flows} for flows in (1, 100, 1000)},
    }
    print(f"  {'':<40} {'instructions a packet':>22}")
    for name, changes in scenarios.items():
        scenes = [dumbbell(**{"flows": 10, "seconds": seconds, "capture": False, **changes}) for seconds in (1.0, 5.0)]
        runs = [Ours(scene, folder).instructions() for scene in scenes]
        (start, before), (complete, packets) = runs
        print(f"  {name:<40} {(complete - start) / (packets - before):>22.0f}")


def compare(seconds: float, rounds: int, folder: Path) -> None:
    """All tables of CPU times."""
    program = build_ns3(folder)
    silent: dict[str, Simulation] = {
        "backchannel": Ours(dumbbell(10, seconds, capture=False), folder),
        "ns-2": ns2(10, seconds),
        "ns-3": ns3(program, 10, seconds, None),
    }
    tell("Ten flows, nothing captured:", rounds_of(silent, rounds), "backchannel")
    captured: dict[str, Simulation] = {
        "backchannel": Ours(dumbbell(10, seconds, capture=True), folder),
        "ns-3": ns3(program, 10, seconds, folder / "ns3"),
    }
    tell("The same, both ends of the line captured:", rounds_of(captured, rounds), "backchannel")
    policies: dict[str, Simulation] = {
        policy: Ours(dumbbell(10, seconds, capture=False, policy=policy), folder) for policy in POLICIES
    }
    tell("Queue policy of the line, nothing captured:", rounds_of(policies, rounds), POLICIES[0])
    number_of_flows(seconds, rounds, folder)


def compare_builds(other: Path, seconds: float, rounds: int, folder: Path) -> None:
    """CPU times and instructions of this build and another one."""
    builds = {"this build": None, "the other one": other}
    for title, capture in {
        "Ten flows, nothing captured:": False,
        "The same, both ends of the line captured:": True,
    }.items():
        scenario = dumbbell(10, seconds, capture)
        runs: dict[str, Simulation] = {name: Ours(scenario, folder, binary) for name, binary in builds.items()}
        tell(title, rounds_of(runs, rounds), "this build")
        for name, binary in builds.items():
            instructions, packets = Ours(dumbbell(10, 5.0, capture), folder, binary).instructions()
            print(f"  {name:<28} {instructions / packets:>22.0f} instructions a packet in 5 virtual seconds")


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description="The simulator beside ns-2 and ns-3.")
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of a run (60)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind instead")
    parser.add_argument("--flows", action="store_true", help="compare only numbers of flows")
    parser.add_argument(
        "--beside", metavar="BINARY", type=Path, help="another build of the node binary to compare with instead"
    )
    args = parser.parse_args()
    if args.beside and not os.access(args.beside, os.X_OK):
        parser.error(
            f"--beside: {args.beside} is not a program; build the other revision and name its backchannel-node"
        )
    # One core for everybody, the same one.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with ScratchFolder() as folder:
        if args.beside:
            compare_builds(args.beside.resolve(), args.seconds, args.rounds, folder)
        elif args.instructions:
            tell_instructions(folder)
        elif args.flows:
            number_of_flows(args.seconds, args.rounds, folder)
        else:
            compare(args.seconds, args.rounds, folder)


if __name__ == "__main__":
    main()
