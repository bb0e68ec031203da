"""Time that Ansible takes to set up six nodes and a link box, as namespaces of this machine.

    ./backchannel bench provisioning [ROUNDS]

Each line is one `./backchannel testbed ...`, with minimum and median over the rounds: of hosts that have nothing,
of hosts that have everything, in check mode, and the teardown. CPU is that of the command and everything that it
waited for, including the hosts. The start of an agent is waited for, but its CPU is not counted. The aim is 15 s of
wall time for the first time, on two cores.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.usage import timed
from testbed import node_binary
from testbed.local_folders import ScratchFolder

CAMPAIGN = """
name: six
network:
  nodes:
    - {name: a, kind: host}
    - {name: b, kind: host}
    - {name: c, kind: host}
    - {name: d, kind: host}
    - {name: r1, kind: router}
    - {name: r2, kind: router}
  links:
    - {name: a-access, ends: [a, r1], forward: {rate: 10 Mbit/s}}
    - {name: b-access, ends: [b, r1], forward: {rate: 10 Mbit/s}}
    - {name: bottleneck, ends: [r1, r2], forward: {rate: 1 Mbit/s, delay: 10 ms}, reverse: {rate: 28.8 kbit/s}}
    - {name: c-access, ends: [r2, c], forward: {rate: 10 Mbit/s}}
    - {name: d-access, ends: [r2, d], forward: {rate: 10 Mbit/s}}
workload: [{name: download, from: a, to: c}]
duration: 3 s
"""
HOSTS = """
plugin: backchannel
campaign: six.yaml
connection: namespace
hosts: {a: {}, b: {}, c: {}, d: {}, r1: {}, r2: {}, box: {}}
links:
  a-access: {box: box}
  b-access: {box: box}
  bottleneck: {box: box}
  c-access: {box: box}
  d-access: {box: box}
"""
AIM_S = 15.0
ROUNDS = 3
FIRST = "first time"
STEPS = (
    ("check mode, nothing installed", "site", "--check", "--diff"),
    (FIRST, "site"),
    ("second time", "site"),
    ("check mode, all installed", "site", "--check", "--diff"),
    ("preflight check", "check"),
    ("teardown", "teardown"),
)


def main() -> int:
    """Builds the lab and runs this file in it, where the second argument is the lab's folder."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if len(sys.argv) > 2:
        measure(rounds, Path(sys.argv[2]))
        return 0
    with ScratchFolder() as folder:
        (folder / "six.yaml").write_text(CAMPAIGN)
        (folder / "hosts.yml").write_text(HOSTS)
        lab = [sys.executable, "-m", "experiments", "testbed", "rehearse", "-i", str(folder / "hosts.yml"), "--"]
        words = [*lab, sys.executable, __file__, str(rounds), str(folder)]
        return subprocess.run(words, check=False, cwd=node_binary.ROOT).returncode


def measure(rounds: int, folder: Path) -> None:
    """Runs every step in each round and prints the times."""
    one_minute, *_ = os.getloadavg()
    print(f"load before: {one_minute:.1f} on {os.cpu_count()} CPUs; minimum and median of {rounds} rounds\n")
    walls_s: dict[str, list[float]] = {name: [] for name, *_ in STEPS}
    cpus_s: dict[str, list[float]] = {name: [] for name, *_ in STEPS}
    changed: dict[str, str] = {}
    for _ in range(rounds):
        for name, playbook, *options in STEPS:
            wall_s, cpu_s, said = timed("testbed", playbook, "-i", str(folder / "hosts.yml"), "--", *options)
            walls_s[name].append(wall_s)
            cpus_s[name].append(cpu_s)
            rows = [line for line in said.splitlines() if "unreachable=" in line]
            changed[name] = f"{sum('changed=0' not in row for row in rows)} of {len(rows)}"
    print(f"{'':30}{'wall':>17}{'CPU':>17}{'changed':>9}")
    for name, *_ in STEPS:
        print(f"{name:30}{spread(walls_s[name])}{spread(cpus_s[name])}{changed[name]:>9}")
    print(f"\n{FIRST}: {statistics.median(walls_s[FIRST]):.1f} s; the aim is {AIM_S:g} s")


def spread(times_s: Sequence[float]) -> str:
    """Minimum and median, in s."""
    return f"{min(times_s):8.1f}, {statistics.median(times_s):4.1f} s"


if __name__ == "__main__":
    sys.exit(main())
