"""How late this machine wakes a program that asked for an instant: its CPUs left to halt, and kept (testbed.cpu_hold).

    ./backchannel bench wakeups [--windows 6] [--seconds 10]

A real-time program sleeps until every second millisecond. Windows with and without the hold take turns, so that a host
with more to do for a while meets both. The last line is the ratio of the means of the windows' 99th of 100.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from experiments.engine import machine
from testbed import cpu_hold

PERIOD_S = 0.002


def lateness_s(length_s: float) -> list[float]:
    """How late each wake-up was, sorted."""
    result, due_s = [], time.monotonic() + PERIOD_S
    end_s = due_s + length_s
    while due_s < end_s:
        time.sleep(max(0.0, due_s - time.monotonic()))
        now_s = time.monotonic()
        result.append(now_s - due_s)
        due_s = max(due_s + PERIOD_S, now_s)
    return sorted(result)


def main() -> int:
    """Prints a row for each window, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=6, help="of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window")
    arguments = parser.parse_args()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
    except PermissionError:
        print("bench wakeups: the real-time class needs root, or CAP_SYS_NICE", file=sys.stderr)
        return 1
    print(f"{'CPUs':8}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'max ms':>9}{'host took':>11}", flush=True)
    result: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(arguments.windows):
        for kept in (False, True):
            with cpu_hold.held(wanted=kept):
                time.sleep(0.5)
                before = machine.cpu_seconds()
                late = [1e3 * entry for entry in lateness_s(arguments.seconds)]
                stolen = machine.cpu_shares(before, machine.cpu_seconds())["steal"]
            p50, p99, p999 = (late[int(len(late) * share)] for share in (0.5, 0.99, 0.999))
            result[kept].append(p99)
            print(
                f"{'kept' if kept else 'halting':8}{p50:9.3f}{p99:9.3f}{p999:10.3f}{late[-1]:9.3f}{stolen:11.1%}",
                flush=True,
            )
    ratio = statistics.mean(result[False]) / statistics.mean(result[True])
    print(f"99th of 100, halting / kept: {ratio:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
