"""Two hundred runs: equal seeds give equal bytes and other seeds other bytes, on idle CPUs and on busy ones, whether
the kernel intercepts system calls by seccomp or ptrace.

Only `./backchannel test --vm` runs it, because it takes minutes. BACKCHANNEL_CORPUS_SEEDS sets another number of seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.language.campaign import load
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.machine import Interception
from tests.virtual_kernel.test_machine import made

pytestmark = pytest.mark.vm

SEEDS = range(1, 1 + int(os.environ.get("BACKCHANNEL_CORPUS_SEEDS", "5")))
#: Interception, and whether other programs take the CPUs meanwhile.
CIRCUMSTANCES: tuple[tuple[Interception, bool], ...] = (
    ("seccomp", False), ("ptrace", False), ("seccomp", True), ("seccomp", True)
)  # fmt: skip

POINT = """
  forward: {{rate: 4 Mbit/s, delay: 10 ms, queue: {{policy: droptail, limit: 30 packets}}}}
  reverse: {{rate: 128 kbit/s, delay: 10 ms, queue: {{policy: {policy}, limit: 20 packets}}}}
"""
KERNEL = """
  topology: line
  link: {{kind: kernel, {options}}}
  forward: {{rate: 4 Mbit/s, delay: 10 ms{queue}}}
  reverse: {{rate: 4 Mbit/s, delay: 10 ms}}
"""
LINE = "\n  topology: line" + POINT.format(policy="ack-filtering")
BULK = "workload: [{name: bulk, from: left, to: right}, {name: back, from: right, to: left, start: 0.5 s}]"
COMMAND = """
workload:
  - name: copy
    kind: command
    from: left
    to: right
    command:
      client_at: from
      server: {run: [python3, -m, http.server, "{port}", --bind, "{server}"]}
      client: [python3, -c, "from urllib.request import urlopen; print(urlopen('http://{server}:{port}/').read())"]
"""
SCENARIOS = {
    "cubic": (LINE, "stack: cubic", BULK),
    "bbr": (LINE, "stack: bbr", BULK),
    "newreno": (LINE, "stack: newreno", BULK),
    "research-sack": (LINE, "stack: {name: newreno, sack: true}", BULK),
    "ipv6": (LINE, "stack: cubic\nip: 6", BULK),
    "both-ip": (LINE, "stack: bbr\nip: both", BULK),
    "dctcp-dualpi2": (
        KERNEL.format(options="shaper: htb", queue=", queue: {policy: dualpi2, classify: any-ect}"),
        "stack: {name: dctcp, ecn: true}", BULK,
    ),
    "cake": (KERNEL.format(options="shaper: cake, ack_filter: filter", queue=""), "stack: cubic", BULK),
    "jitter-loss": (
        LINE.replace("delay: 10 ms", "delay: 10 ms, jitter: 3 ms, errors: [{model: uniform, probability: 1 %}]"),
        "stack: bbr", BULK,
    ),
    "command": (LINE, "stack: cubic", COMMAND),
}  # fmt: skip


@contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """Spinning programs, one for each CPU."""
    number = len(os.sched_getaffinity(0)) if is_busy else 0
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", SCENARIOS)
def test_equal_seeds_give_equal_bytes_and_others_do_not(name: str, kernel: kernels.Kernel, tmp_path: Path) -> None:
    network, stack, workload = SCENARIOS[name]
    file = tmp_path / f"{name}.yaml"
    file.write_text(
        f"name: {name}\nbackend: virtual-kernel\nnetwork:{network}\n{stack}\n{workload}\nduration: 3 s\n"
        f"repetitions: {len(SEEDS)}\n"
    )
    scenarios = [run.scenario for run in load(file).runs]
    of_seed: list[set[tuple[tuple[str, str], ...]]] = [set() for _ in scenarios]
    for number, (interception, is_busy) in enumerate(CIRCUMSTANCES):
        folder = tmp_path / str(number)

        def digests(at: int, folder: Path = folder, by: Interception = interception) -> tuple[tuple[str, str], ...]:
            return tuple(sorted(made(kernel, scenarios[at], folder / str(at), by)[1].items()))

        with busy(is_busy), ThreadPoolExecutor(2) as pool:
            for found, result in zip(of_seed, pool.map(digests, range(len(scenarios))), strict=True):
                found.add(result)
    assert [len(found) for found in of_seed] == [1] * len(of_seed)
    captures = [{digest for name, digest in next(iter(found)) if name.endswith(".pcap")} for found in of_seed]
    assert len(set.union(*captures)) == sum(map(len, captures)), "other seeds gave equal captures"
