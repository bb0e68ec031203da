"""Faults of links against the guards: which verdict each fault gets, and how often a healthy line is rejected.

    ./backchannel bench guards [--runs N] [--emulated N]

Every fault is injected into a simulated run, a run of the virtual kernel and an emulated run, and must make each
invalid with the right sentence. N healthy runs in virtual time (500) and N with real packets (0) must stay valid by the
audit. In virtual time the stamps of both captures are exact, so the audit adds the lateness of a real-time driver.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import fidelity, node_binary
from testbed.addressing import as_json, make_plan
from testbed.audit import audited
from testbed.cell import Cell
from testbed.report import Problem, ProblemKind, Report
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import two_hosts

#: Of a run with a fault.
DURATION_S = 8.0
#: Problems that the audit finds.
OF_AUDIT = (
    "the captures show",
    "entered, did not leave",
    "had not entered",
    "had entered later",
    "rate and delay allow",
    "another checksum",
    "the queue held",
    "were dropped by a queue",
)


@dataclass(frozen=True)
class Fault:
    """A fault of a link and what its verdict must contain."""

    #: FaultKind of testbed/links/src/fault.rs.
    kind: Mapping[str, Any]
    problem: ProblemKind
    sentence: str


FAULTS: Mapping[str, Fault] = {
    "rate 0.6 % low": Fault({"rate_factor": 0.994}, ProblemKind.RATE, "off by -0.6"),
    "rate 1 % high": Fault({"rate_factor": 1.01}, ProblemKind.RATE, "off by 1.0"),
    "stall of 100 ms": Fault({"stall": {"at_s": 4.0, "length_s": 0.1}}, ProblemKind.STALLED, "left "),
    "packet delivered twice": Fault({"duplicate_every": 997}, ProblemKind.ORDER, "left that had not entered"),
    "18 bytes more framing": Fault({"framing_bytes": 18}, ProblemKind.RATE, "as by +1"),
    "delay 0.3 ms long": Fault({"delay_s": 0.0003}, ProblemKind.DELAY, "every packet took 0.3"),
    "queue one packet long": Fault({"queue_packets": 1}, ProblemKind.QUEUE, "by a queue longer than its limit of 50"),
    "packets reordered": Fault({"reorder_every": 997}, ProblemKind.ORDER, "had entered later"),
    "packet swallowed": Fault({"swallow_every": 997}, ProblemKind.LOST, "did not leave and were not reported"),
}


def scenario(seed: int = 1, duration_s: float = DURATION_S, **changes: Any) -> dict[str, Any]:
    """Two hosts on a line of 10 Mbit/s, with a download; `changes` are fields of both directions."""
    made = two_hosts(**{"rate_bps": 10_000_000, "duration_s": duration_s, "seed": seed, **changes})
    made["workload"] = [{**made["workload"][0], "name": "down", "start_s": 0.1}]
    return made


def healthy(seed: int) -> dict[str, Any]:
    """A scenario with a rate, delay, queue, policy and errors that `seed` chooses."""
    rng = random.Random(seed)
    policy = rng.choice(["droptail", "droptail", "droptail", "red", "codel", "acks-first", "ack-filtering", "fq-drr"])
    queue = {"name": policy, "options": {} if policy == "codel" else {"limit_packets": rng.choice([10, 20, 50, 100])}}
    errors = [{"name": "uniform", "options": {"probability": 0.005, "effect": "lose"}}] if rng.random() < 0.25 else []
    return scenario(
        seed,
        rate_bps=rng.choice([28_800, 128_000, 1_000_000, 5_000_000, 10_000_000, 20_000_000]),
        delay_s=rng.choice([0.0, 0.001, 0.01, 0.05]) + rng.random() * 0.001,
        queue=queue,
        errors=errors,
    )


def in_virtual_time(made: dict[str, Any], folder: Path, fault: Fault | None = None, lateness_seed: int = 1) -> Report:
    """An audited simulation; the lateness of a real-time driver is added to its stamps."""
    typed = Scenario.read({**made, "nodes": [_research(node) for node in made["nodes"]]})
    request: dict[str, Any] = {"scenario": typed.as_json(), "nodes": as_json(make_plan(typed.nodes, typed.links))}
    if fault is not None:
        request["fault"] = {"link": "line", "kind": fault.kind}
    report = node_binary.call("simulate", "--out", str(folder), stdin=json.dumps(request))
    return audited(typed, Report.read(report), folder, lateness_seed=lateness_seed)


def _research(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "stack": {"name": "newreno", "options": {}}}


@contextmanager
def injected(fault: Fault | None) -> Iterator[None]:
    """Emulators that start inside have the fault."""
    if fault is not None:
        os.environ["BACKCHANNEL_FAULT"] = json.dumps({"link": "line", "kind": fault.kind})
    try:
        yield
    finally:
        os.environ.pop("BACKCHANNEL_FAULT", None)


def in_virtual_kernel(made: dict[str, Any], folder: Path, fault: Fault | None = None) -> Report:
    """An audited run of Linux in virtual time, where nothing is late."""
    typed = Scenario.read(made)
    with injected(fault):
        report = VirtualMachine(build(kernels.DEFAULT, print)).run(typed, folder, lambda progress: None)
    return audited(typed, report, folder)


def with_real_packets(made: dict[str, Any], folder: Path, fault: Fault | None = None) -> Report:
    """An audited run in a cell."""
    typed = Scenario.read(made)
    with injected(fault), Cell("guards") as cell:
        cell.build(typed)
        report = cell.run(typed, folder)
    return audited(typed, report, folder)


#: Every fault is injected once into each.
RUNS = (("simulated", in_virtual_time), ("virtual kernel", in_virtual_kernel), ("emulated", with_real_packets))


def matching(fault: Fault, problems: list[Problem]) -> list[Problem]:
    """The problems that name the fault."""
    return [problem for problem in problems if problem.kind is fault.problem and fault.sentence in problem.sentence]


def of_audit(report: Report) -> list[str]:
    """What the audit has against a run."""
    sentences = [problem.sentence for problem in fidelity.problems(report)]
    return [sentence for sentence in sentences if any(part in sentence for part in OF_AUDIT)]


def _healthy_run(seed: int) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        return seed, of_audit(in_virtual_time(healthy(seed), Path(folder), lateness_seed=seed))


def _print_faults(real: bool) -> bool:
    right = True
    for name, fault in FAULTS.items():
        for backend, run in RUNS[: None if real else 1]:
            with tempfile.TemporaryDirectory(prefix="guards-") as folder:
                problems = fidelity.problems(run(scenario(), Path(folder), fault))
            result = matching(fault, problems)
            right = right and bool(result)
            verdict = result[0].sentence if result else "NOT FOUND"
            print(f"{name:24} {backend:14} {verdict}", flush=True)
    return right


def main() -> int:
    """Prints the table of faults, then the healthy runs that were rejected. Fails if there is one, or a fault is not
    found.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="healthy runs in virtual time")
    parser.add_argument("--emulated", type=int, default=0, help="healthy runs with real packets")
    parser.add_argument("--no-emulation", action="store_true", help="inject faults into simulated runs only")
    options = parser.parse_args()
    right = _print_faults(not options.no_emulation)
    rejected = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for seed, problems in pool.map(_healthy_run, range(options.runs)):
            rejected += bool(problems)
            for problem in problems:
                print(f"healthy, seed {seed}: {problem}", flush=True)
    print(f"{options.runs} healthy runs in virtual time, {rejected} rejected by the audit")
    late = 0
    for seed in range(options.emulated):
        with tempfile.TemporaryDirectory(prefix="guards-") as folder:
            report = with_real_packets(scenario(seed), Path(folder))
        problems = of_audit(report)
        rejected += bool(problems)
        late += bool(fidelity.problems(report)) and not problems
        for problem in problems:
            print(f"healthy, real packets, run {seed}: {problem}", flush=True)
    if options.emulated:
        print(f"{options.emulated} healthy runs with real packets, {late} late by other limits")
    return 0 if right and not rejected else 1


if __name__ == "__main__":
    sys.exit(main())
