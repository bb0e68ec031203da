"""Reading a capture beside tshark, tcptrace and a bare loop: packets a second of one core, and peak memory.

    ./backchannel bench traces

The capture is made by the simulator: 26 flows over a lossy dumbbell, 96 bytes of each packet kept, at least two million
packets. Every program reads it on the same core, one after another, in several rounds (tshark in one). What counts is
the CPU time of the whole process; a busy machine stretches wall time, which is printed as well. Ratios are of runs of
one round. Then follow wall times of our reader with a thread for each core, which need a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.repeats import shown
from benchmarks.simulator import dumbbell
from testbed import node_binary
from testbed.addressing import as_json
from testbed.local_folders import ScratchFolder
from tests.support.addresses import planned

HERE = Path(__file__).resolve().parent
FLOWS = 26
#: Virtual seconds of a million packets: 100 Mbit/s of full packets, and an ack for each.
SECONDS_A_MILLION = 62.5
#: Rounds of the table of several files.
ROUNDS_OF_FOUR = 3
TSHARK_FIELDS = ("frame.time_epoch", "ip.src", "ip.dst", "tcp.seq", "tcp.ack", "tcp.len", "tcp.analysis.retransmission")


@dataclass
class Cost:
    """What one run of a program took."""

    cpu_s: float
    wall_s: float
    peak_kb: int


def make_capture(folder: Path, millions: float) -> Path:
    """The capture, by the simulator."""
    scenario = dumbbell(FLOWS, millions * SECONDS_A_MILLION, capture=True)
    scenario["capture"] |= {"at": ["r1:line"], "telemetry": False}
    for node in scenario["nodes"]:
        if "stack" in node:
            node["stack"] = {"name": "newreno", "options": {"ack_every_segments": 1}}
    plan = as_json(planned(scenario))
    node_binary.call("simulate", "--out", str(folder), stdin=json.dumps({"scenario": scenario, "nodes": plan}))
    (capture,) = (folder / "captures").glob("*.pcap")
    return capture


def run(words: Sequence[str]) -> Cost:
    """Runs a program to its end, its output thrown away."""
    started = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started
    if status:
        raise SystemExit(f"{words[0]} failed")
    return Cost(used.ru_utime + used.ru_stime, wall_s, used.ru_maxrss)


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description="Reading a capture beside tshark, tcptrace and a bare loop.")
    parser.add_argument("--millions", type=float, default=2.5, help="packets of the capture, in millions (2.5)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (5); tshark: 1")
    parser.add_argument("--without-tshark", action="store_true", help="leave out tshark, which takes a minute or more")
    args = parser.parse_args()
    cores = os.sched_getaffinity(0)
    with ScratchFolder() as folder:
        walker = folder / "walker"
        subprocess.run(["gcc", "-O2", "-o", str(walker), str(HERE / "walker.c")], check=True)
        capture = make_capture(folder, args.millions)
        packets = int(subprocess.run([walker, capture], capture_output=True, text=True, check=True).stdout.split()[0])
        # One core for everybody, the same one.
        os.sched_setaffinity(0, {max(cores)})
        ours = [node_binary.path(), "trace", "--out", str(folder / "tables")]
        fields = [word for name in TSHARK_FIELDS for word in ("-e", name)]
        programs: dict[str, tuple[list[str], int]] = {
            "bare loop": ([str(walker), str(capture)], args.rounds),
            "ours, metrics alone": ([*ours, "--no-segments", f"one={capture}"], args.rounds),
            "ours, with Parquet": ([*ours, f"one={capture}"], args.rounds),
            "tcptrace -l": (["tcptrace", "-l", str(capture)], args.rounds),
            "tshark -z conv,tcp": (["tshark", "-n", "-q", "-z", "conv,tcp", "-r", str(capture)], 1),
            "tshark -T fields": (["tshark", "-n", "-r", str(capture), "-T", "fields", *fields], 1),
        }
        if args.without_tshark:
            programs = {name: given for name, given in programs.items() if not name.startswith("tshark")}
        costs: dict[str, list[Cost]] = {name: [] for name in programs}
        for turn in range(args.rounds):
            for name, (words, rounds) in programs.items():
                if turn < rounds:
                    costs[name].append(run(words))
        print(f"{packets} packets, {FLOWS} flows, {capture.stat().st_size / 1e6:.0f} MB, one core")
        print(
            f"{'':<22} {'million packets/s':>24} {'CPU (s)':>24} {'wall (s)':>24} {'peak (MB)':>10} "
            f"{'to tcptrace':>24} {'to bare loop':>24}"
        )
        for name, result in costs.items():
            rates = [packets / cost.cpu_s / 1e6 for cost in result]
            ratios = [
                shown([other.cpu_s / cost.cpu_s for cost, other in zip(result, costs[against], strict=False)])
                for against in ("tcptrace -l", "bare loop")
            ]
            print(
                f"{name:<22} {shown(rates):>24} {shown([cost.cpu_s for cost in result]):>24} "
                f"{shown([cost.wall_s for cost in result]):>24} {max(cost.peak_kb for cost in result) / 1024:10.1f} "
                f"{ratios[0]:>24} {ratios[1]:>24}"
            )
        os.sched_setaffinity(0, cores)
        share(ours[0], folder, capture, packets, len(cores), args.rounds)
        spread(ours[0], folder, capture, packets, len(cores))


def share(program: str, folder: Path, capture: Path, packets: int, cores: int, rounds: int) -> None:
    """The file read by one thread, and with a thread for each core that encodes tables. Wall time counts."""
    words = [program, "trace", "--out", str(folder / "tables"), f"one={capture}", "--jobs"]
    alone: list[Cost] = []
    shared: list[Cost] = []
    for _ in range(rounds):
        alone.append(run([*words, "1"]))
        shared.append(run([*words, str(cores)]))
    print(f"\nThe same file, with Parquet, {cores} cores:")
    for name, costs in (("one thread", alone), (f"{cores} that encode", shared)):
        rates = [packets / cost.wall_s / 1e6 for cost in costs]
        print(
            f"  {name}: {shown([cost.wall_s for cost in costs], 's')}; {shown(rates, 'million packets/s')}; "
            f"CPU {shown([cost.cpu_s for cost in costs], 's')}"
        )
    print(f"  ratio: {shown([one.wall_s / cost.wall_s for one, cost in zip(alone, shared, strict=True)])}")


def spread(program: str, folder: Path, capture: Path, packets: int, cores: int) -> None:
    """Several files, one after another and side by side."""
    files = [f"{number}={capture}" for number in range(4)]
    print(f"\n4 such files, with Parquet, {cores} cores:")
    for jobs in (1, cores):
        words = [program, "trace", "--out", str(folder / "tables"), "--jobs", str(jobs), *files]
        costs = [run(words) for _ in range(ROUNDS_OF_FOUR)]
        rates = [4 * packets / cost.wall_s / 1e6 for cost in costs]
        print(f"  {jobs} at a time: {shown([cost.wall_s for cost in costs], 's')}; {shown(rates, 'million packets/s')}")


if __name__ == "__main__":
    main()
