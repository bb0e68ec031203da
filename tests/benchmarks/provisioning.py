"""What Ansible takes to make a testbed of hosts: six nodes and a link box, as namespaces of this machine.

    ./backchannel bench provisioning

Each line is one `./backchannel testbed ...` from the command on: of hosts that have nothing, of hosts that have all,
and dry; then the way back. CPU is that of the command and all it waited for, on the hosts too, since they are here;
what an agent takes to start is waited for, and no part of it. The aim is 15 s of wall time, once, on two cores.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from testbed import node_binary

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
STEPS = (
    ("dry, nothing there", "site", "--check", "--diff"),
    ("the first time", "site"),
    ("the second time", "site"),
    ("dry, all there", "site", "--check", "--diff"),
    ("is it fit?", "check"),
    ("away", "teardown"),
)


def main() -> int:
    """Inside the lab when a folder is named, and what builds the lab otherwise."""
    if len(sys.argv) > 1:
        return inside(Path(sys.argv[1]))
    folder = Path(tempfile.mkdtemp(prefix="bc-provisioning-"))
    try:
        (folder / "six.yaml").write_text(CAMPAIGN)
        (folder / "hosts.yml").write_text(HOSTS)
        words = [sys.executable, "-m", "experiments", "lab", "-i", str(folder / "hosts.yml"), "--"]
        return subprocess.run(
            [*words, sys.executable, __file__, str(folder)], check=False, cwd=node_binary.ROOT
        ).returncode
    finally:
        shutil.rmtree(folder)


def inside(folder: Path) -> int:
    """Every step, timed."""
    one_minute, *_ = os.getloadavg()
    print(f"load before: {one_minute:.1f} on {os.cpu_count()} CPUs\n")
    print(f"{'':20}{'wall':>8}{'CPU':>8}{'changed':>12}")
    first_s = 0.0
    for name, *arguments in STEPS:
        words = [sys.executable, "-m", "experiments", "testbed", arguments[0], "-i", str(folder / "hosts.yml")]
        if arguments[1:]:
            words += ["--", *arguments[1:]]
        before, began_s = used_s(), time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=node_binary.ROOT)
        wall_s, cpu_s = time.monotonic() - began_s, used_s() - before
        if done.returncode != 0:
            print(f"{name}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}", file=sys.stderr)
            return 1
        rows = [line for line in done.stdout.splitlines() if "unreachable=" in line]
        changed = sum("changed=0" not in row for row in rows)
        print(f"{name:20}{wall_s:6.1f} s{cpu_s:6.1f} s{changed:5} of {len(rows)}", flush=True)
        first_s = wall_s if name == "the first time" else first_s
    print(f"\nthe first time: {first_s:.1f} s, of {AIM_S:g} s that are the aim")
    return 0


def used_s() -> float:
    """CPU time of all that this process waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
