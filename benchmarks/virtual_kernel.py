"""Linux in virtual time: virtual seconds per second of CPU at five rates, and what the rest of a run costs.

    ./backchannel bench virtual-kernel [--rates 28800 1000000 ...] [--packets 2000]

Each rate carries one bulk flow between two hosts over an emulated line of 10 ms, with the kernel's CUBIC and with the
research stack (newreno), which the simulator runs too. A run of a hundredth of a second shows what starting costs, and
the others are counted without it. A second run of each counts the system calls of the programs inside by number, which
load does not touch (guest_calls.c).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed import node_binary
from testbed.addressing import as_json, make_plan
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import two_hosts, typed

HERE = Path(__file__).resolve().parent
RATES_BPS = (28_800, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
STACKS = ("cubic", "newreno")
#: Of a run, in s: enough for the line to be full, and bounded at low rates.
LEAST_S, MOST_S = 0.3, 60.0
PACKET_BITS = 12_000
#: Numbers of system calls on x86-64; the last place counts page faults.
CALLS = {
    0: "read", 1: "write", 7: "poll", 16: "ioctl", 20: "writev", 23: "select", 35: "nanosleep", 44: "sendto",
    45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 202: "futex", 228: "clock_gettime", 230: "clock_nanosleep",
    232: "epoll_wait", 257: "openat", 262: "newfstatat", 271: "ppoll", 281: "epoll_pwait", 286: "timerfd_settime",
    55: "getsockopt", 511: "(page faults)",
}  # fmt: skip
PLACES = 512
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
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost_s(kernel: kernels.Kernel, made: Scenario) -> tuple[float, int]:
    """CPU time of a run in the virtual kernel, and the captured packets."""
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as folder:
        before = children_s()
        report = VirtualMachine(kernel).run(made, Path(folder), lambda progress: None)
        return children_s() - before, sum(capture.captured for capture in report.captures)


def simulated_s(made: Scenario) -> float:
    """CPU time of the same run in the simulator."""
    request: dict[str, Any] = {"scenario": made.as_json(), "nodes": as_json(make_plan(made.nodes, made.links))}
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as folder:
        before = children_s()
        node_binary.call("simulate", "--out", folder, stdin=json.dumps(request))
        return children_s() - before


def counting(kernel: kernels.Kernel, folder: Path) -> tuple[kernels.Kernel, Path]:
    """The kernel with guest_calls.c in the library that is loaded into it, and the file of the counts."""
    counts = folder / "counts"
    counts.write_bytes(bytes(8 * PLACES))
    shutil.copy2(kernel.binary, folder / "linux")
    # One function calls the other in one library, because the order of several is the loader's.
    under, shared = folder / "under.o", ["gcc", "-O2", "-fPIC"]
    seeded, registers = kernels.PRELOADED
    subprocess.run([*shared, "-Dptrace=ptrace_under", "-c", "-o", str(under), str(registers)], check=True)
    subprocess.run(
        [*shared, "-shared", f'-DCOUNTS="{counts}"', "-o", str(folder / "preloaded.so"), str(seeded), str(under),
         str(HERE / "guest_calls.c")],
        check=True,
    )  # fmt: skip
    return replace(kernel, folder=folder), counts


def calls(kernel: kernels.Kernel, made: Scenario) -> np.ndarray[Any, Any]:
    """Number of each system call of the programs inside, during a run."""
    with tempfile.TemporaryDirectory(prefix="virtual-kernel-") as folder:
        counted, counts = counting(kernel, Path(folder))
        VirtualMachine(counted).run(made, Path(folder) / "out", lambda progress: None)
        return np.fromfile(counts, dtype=np.uint64).astype(np.int64)


def greatest(found: np.ndarray[Any, Any], n: int = 8) -> str:
    """The most frequent calls with their numbers."""
    order = [int(place) for place in np.argsort(-found)[:n] if found[place] > 0]
    return ", ".join(f"{CALLS.get(place, f'call {place}')} {found[place]}" for place in order)


def shown(value: float | None) -> str:
    """Virtual seconds per CPU second."""
    return "-" if value is None else f"{value:.3g}"


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description="Speed of Linux in virtual time.")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES_BPS, help="in bit/s")
    parser.add_argument("--packets", type=int, default=2000, help="data packets of a run, about (default 2000)")
    parser.add_argument("--stacks", nargs="+", default=STACKS, help=f"default: {' '.join(STACKS)}")
    options = parser.parse_args()
    kernel = kernels.build(kernels.VERSIONS[0], print)
    # What a machine leaves behind is counted too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    empty = scenario(1_000_000, "cubic", 0.01)
    boot_s, _ = cost_s(kernel, empty)
    boot_calls = calls(kernel, empty)
    print(f"start, build, collect and stop: {boot_s:.2f} s of CPU, {boot_calls.sum()} calls: {greatest(boot_calls)}")
    print(f"{'rate':>10} {'stack':8} {'virtual s':>9} {'packets':>8} {'virtual s/CPU s':>16} {'sim':>8} "
          f"{'CPU us/packet':>14} {'calls/packet':>13}")  # fmt: skip
    profiles = []
    for rate_bps in options.rates:
        duration_s = min(max(options.packets * PACKET_BITS / rate_bps, LEAST_S), MOST_S)
        for stack in options.stacks:
            made = scenario(rate_bps, stack, duration_s)
            took_s, packets = cost_s(kernel, made)
            found = calls(kernel, made) - boot_calls
            sim = duration_s / max(simulated_s(made), 1e-3) if stack != "cubic" else None
            used_s = max(took_s - boot_s, 1e-3)
            print(f"{rate_bps:>10} {stack:8} {duration_s:>9.2f} {packets:>8} {shown(duration_s / used_s):>16} "
                  f"{shown(sim):>8} {used_s / max(packets, 1) * 1e6:>14.0f} {found.sum() / max(packets, 1):>13.1f}",
                  flush=True)  # fmt: skip
            profiles.append((rate_bps, stack, greatest(found)))
    print("\nsystem calls inside, without those of an empty run:")
    for rate_bps, stack, words in profiles:
        print(f"{rate_bps:>10} {stack:8} {words}")


if __name__ == "__main__":
    main()
