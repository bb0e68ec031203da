"""Linux in virtual time: what a run costs, by kernel and by interception of system calls.

    ./backchannel bench virtual-kernel [--kernels 7.3 6.12] [--rates 28800 1000000 ...] [--packets 2000] [--rounds 3]
    ./backchannel bench virtual-kernel --quickstart

The first table has CPU time: of a run of a hundredth of a second (start, network, captures, stop), and of a packet that
two hosts exchange over an emulated line, with the kernel's CUBIC and with the research stack (newreno), beside the
simulator. Kernels and interceptions take turns within a round. The second counts what the programs inside ask of the
kernel, which load does not touch (guest_calls.c): system calls and page faults, by number and by program.

--quickstart times the twelve runs of the quickstart with one command, all included, in wall and CPU time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.usage import used_s
from testbed import node_binary
from testbed.addressing import as_json, make_plan
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import Interception, VirtualMachine
from tests.conftest import two_hosts, typed

HERE = Path(__file__).resolve().parent
RATES_BPS = (28_800, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
STACKS = ("cubic", "newreno")
#: Of a run, in s: enough for the line to be full, and bounded at low rates.
LEAST_S, MOST_S = 0.3, 60.0
PACKET_BITS = 12_000
START_S = 0.01
#: Numbers of system calls on x86-64; no number: a page fault.
CALLS = {
    "-1": "page fault",
    "0": "read",
    "1": "write",
    "3": "close",
    "5": "fstat",
    "7": "poll",
    "8": "lseek",
    "9": "mmap",
    "13": "rt_sigaction",
    "16": "ioctl",
    "20": "writev",
    "35": "nanosleep",
    "44": "sendto",
    "45": "recvfrom",
    "46": "sendmsg",
    "47": "recvmsg",
    "55": "getsockopt",
    "59": "execve",
    "202": "futex",
    "228": "clock_gettime",
    "230": "clock_nanosleep",
    "232": "epoll_wait",
    "257": "openat",
    "262": "newfstatat",
    "271": "ppoll",
    "281": "epoll_pwait",
    "286": "timerfd_settime",
    "299": "recvmmsg",
}
PR_SET_CHILD_SUBREAPER = 36


def scenario(rate_bps: int, stack: str, duration_s: float) -> Scenario:
    """Two hosts on a line with a bulk flow."""
    made = two_hosts(rate_bps, duration_s=duration_s)
    made["nodes"] = [{**node, "stack": {"name": stack, "options": {}}} for node in made["nodes"]]
    return typed(made)


def children_s() -> float:
    """CPU time of all processes that this one has waited for, orphans of its machines included."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                break
        except ChildProcessError:
            break
    return used_s()


def cost_s(kernel: Kernel, interception: Interception, made: Scenario) -> tuple[float, int]:
    """CPU time of a run in the virtual kernel, and the captured packets."""
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as folder:
        before = children_s()
        report = VirtualMachine(kernel, interception).run(made, Path(folder), lambda progress: None)
        return children_s() - before, sum(capture.captured for capture in report.captures)


def simulated_s(made: Scenario) -> float:
    """CPU time of the same run in the simulator."""
    request: dict[str, Any] = {"scenario": made.as_json(), "nodes": as_json(make_plan(made.nodes, made.links))}
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as folder:
        before = children_s()
        node_binary.call("simulate", "--out", folder, stdin=json.dumps(request))
        return children_s() - before


def traced(kernel: Kernel, made: Scenario) -> list[tuple[str, str, str]]:
    """Each system call and page fault inside during a run: process, number, and the file that an execve names."""
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as name:
        folder = Path(name)
        (folder / "calls").touch()
        shutil.copy2(kernel.binary, folder / "linux")
        # One function calls the other in one library, because the order of several is the loader's.
        under, shared = folder / "under.o", ["gcc", "-O2", "-fPIC"]
        others = [source for source in kernels.PRELOADED if source.stem != "wide_registers"]
        (registers,) = set(kernels.PRELOADED) - set(others)
        subprocess.run([*shared, "-Dptrace=ptrace_under", "-c", "-o", str(under), str(registers)], check=True)
        words = [*shared, "-shared", f'-DCALLS="{folder / "calls"}"', "-o", str(folder / "preloaded.so"), str(under)]
        subprocess.run([*words, *map(str, others), str(HERE / "guest_calls.c")], check=True)
        VirtualMachine(replace(kernel, folder=folder), "ptrace").run(made, folder / "out", lambda progress: None)
        lines = (folder / "calls").read_text(errors="replace").splitlines()
    return [(pid, number, of[0] if of else "") for pid, number, *of in (line.split(" ", 2) for line in lines)]


def by_program(calls: Sequence[tuple[str, str, str]]) -> Counter[str]:
    """Calls by the program that makes them; a process is that of the last execve before it began, or a fork of it."""
    program: dict[str, str] = {}
    last = "init"
    result: Counter[str] = Counter()
    for pid, number, file in calls:
        name = program.setdefault(pid, last)
        result[name] += 1
        if number == "59" and file:
            last = Path(file).name
    return result


def by_number(calls: Sequence[tuple[str, str, str]]) -> Counter[str]:
    """Calls by name."""
    return Counter(CALLS.get(number, f"call {number}") for _, number, _ in calls)


def greatest(found: Counter[str], n: int = 8) -> str:
    """The most frequent with their numbers."""
    return ", ".join(f"{name} {number}" for name, number in found.most_common(n) if number > 0)


def table(options: argparse.Namespace, built: Sequence[Kernel]) -> None:
    """CPU time, each figure the least of the rounds, because other work only adds to it."""
    ways: list[tuple[Kernel, Interception]] = [
        (kernel, interception)
        for kernel in built
        for interception in (("seccomp", "ptrace") if kernels.SECCOMP not in kernel.lacks else ("ptrace",))
    ]
    points = [(rate, stack) for rate in options.rates for stack in options.stacks]
    starts: dict[int, float] = {}
    costs: dict[tuple[int, int, str], tuple[float, int]] = {}
    for _ in range(options.rounds):
        for number, (kernel, interception) in enumerate(ways):
            took_s, _ = cost_s(kernel, interception, scenario(1_000_000, "cubic", START_S))
            starts[number] = min(starts.get(number, took_s), took_s)
        for rate_bps, stack in points:
            for number, (kernel, interception) in enumerate(ways):
                found = cost_s(kernel, interception, scenario(rate_bps, stack, duration_s(rate_bps, options.packets)))
                key = (number, rate_bps, stack)
                costs[key] = min(costs.get(key, found), found)
    print(f"CPU time, least of {options.rounds}; start: network, captures and stop included")
    heads = "".join(f"{kernel.name + ' ' + interception:>16}" for kernel, interception in ways)
    print(f"{'':28}{heads}{'sim':>10}")
    print(f"{'start, s':28}" + "".join(f"{starts[number]:>16.2f}" for number in range(len(ways))))
    for rate_bps, stack in points:
        row = f"{rate_bps / 1e6:>10g} Mbit/s {stack:10}"
        each = [costs[number, rate_bps, stack] for number in range(len(ways))]
        us = [
            max(took_s - starts[number], 0.0) / max(packets, 1) * 1e6 for number, (took_s, packets) in enumerate(each)
        ]
        of_sim = scenario(rate_bps, stack, duration_s(rate_bps, options.packets)) if stack != "cubic" else None
        sim = "-" if of_sim is None else f"{simulated_s(of_sim) / max(each[0][1], 1) * 1e6:.1f}"
        print(f"{row + ' us/packet':28}" + "".join(f"{value:>16.0f}" for value in us) + f"{sim:>10}", flush=True)


def duration_s(rate_bps: int, packets: int) -> float:
    """Of a run with about so many data packets."""
    return min(max(packets * PACKET_BITS / rate_bps, LEAST_S), MOST_S)


def spent(kernel: Kernel, options: argparse.Namespace) -> None:
    """What the programs inside ask of the kernel."""
    start = traced(kernel, scenario(1_000_000, "cubic", START_S))
    print(f"\nsystem calls and page faults inside, Linux {kernel.name}")
    print(f"start: {len(start)}: {greatest(by_number(start))}")
    print(f"  by program: {greatest(by_program(start), 12)}")
    for stack in options.stacks:
        made = scenario(10_000_000, stack, duration_s(10_000_000, options.packets))
        calls = by_number(traced(kernel, made))
        calls.subtract(by_number(start))
        _, packets = cost_s(kernel, "ptrace", made)
        print(f"10 Mbit/s {stack}: {calls.total() / packets:.1f} a captured packet: {greatest(calls)}", flush=True)


def quickstart() -> None:
    """The twelve runs, from the command to its table."""
    with tempfile.TemporaryDirectory(prefix="quickstart-") as folder:
        words = [
            sys.executable,
            "-m",
            "experiments",
            "run",
            str(node_binary.ROOT / "experiments/quickstart.yaml"),
            "--backend",
            "virtual-kernel",
            "--results",
            f"{folder}/results",
        ]
        before, started = children_s(), time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        wall_s = time.monotonic() - started
        if done.returncode != 0:
            sys.exit(done.stderr)
        print(done.stdout)
        print(
            f"twelve runs of 35 s: {wall_s:.1f} s of wall time, {children_s() - before:.1f} s of CPU, "
            f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"
        )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Cost of Linux in virtual time.")
    names = [series.name for series in kernels.SERIES[:2]]
    parser.add_argument("--kernels", nargs="+", default=names, help=f"default: {' '.join(names)}")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES_BPS, help="in bit/s")
    parser.add_argument("--packets", type=int, default=2000, help="data packets of a run, about (default 2000)")
    parser.add_argument("--stacks", nargs="+", default=STACKS, help=f"default: {' '.join(STACKS)}")
    parser.add_argument("--rounds", type=int, default=3, help="of which the least counts (default 3)")
    parser.add_argument("--quickstart", action="store_true", help="time the quickstart instead")
    options = parser.parse_args()
    # What a machine leaves behind is counted too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if options.quickstart:
        quickstart()
        return
    built = [build(name, print) if kernels.series(name) else kernels.find(name) for name in options.kernels]
    table(options, built)
    spent(built[0], options)


if __name__ == "__main__":
    main()
