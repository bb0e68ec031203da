"""Jitter on Linux in virtual time: the simulator's draws for every packet, and a verdict that finds what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import exchanges
from benchmarks.guards import Fault, in_virtual_kernel
from testbed import fidelity
from testbed.report import ProblemKind
from testbed.virtual_kernel.kernels import Kernel
from tests.conftest import two_hosts, typed
from tests.sim.testbed.test_simulation import simulate

JITTER_S = 0.008


def scenario() -> dict[str, Any]:
    made = two_hosts(rate_bps=5_000_000, delay_s=0.02, duration_s=6.0, seed=4)
    (line,) = made["links"]
    line["forward"] = {**line["forward"], "jitter_s": JITTER_S}
    line["reverse"] = {**line["forward"], "keep_order": True}
    options = {"interval_s": 0.004, "packet_bytes": 300}
    made["workload"] = [
        {"name": "probe", "kind": "probe", "from": "a", "to": "b", "start_s": 0.2, "port": 5001, "options": options}
    ]
    return made


def draws(folder: Path, direction: str) -> list[int]:
    """Deviations in ns that a direction drew, in the order in which packets left its queue."""
    lines = map(json.loads, (folder / "telemetry" / "links.jsonl").read_text().splitlines())
    drawn = [row for row in lines if "jitter_ns" in row and row["direction"] == direction]
    return [row["jitter_ns"] for row in sorted(drawn, key=lambda row: row["t_ns"] - row["jitter_ns"])]


@pytest.fixture(scope="module")
def folders(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the run on Linux, whose verdict is good, and of the simulated one."""
    base = tmp_path_factory.mktemp("jitter")
    found = fidelity.problems(in_virtual_kernel(scenario(), base / "linux"))
    assert found == [], [problem.sentence for problem in found]
    simulated = scenario()
    for node in simulated["nodes"]:
        node["stack"] = {"name": "sack", "options": {}}
    simulate(simulated, base / "sim")
    return base / "linux", base / "sim"


def test_draws_are_those_of_the_simulation(folders: tuple[Path, Path]) -> None:
    for direction in ("forward", "reverse"):
        linux, sim = (draws(folder, direction) for folder in folders)
        count = min(len(linux), len(sim))
        assert count > 1000
        # Packets of the kernel come some microseconds later, which moves what is held back on the way that keeps order.
        exact = [one == other for one, other in zip(linux, sim, strict=False)]
        assert sum(exact) == count if direction == "forward" else sum(exact) > count / 4
        assert max(map(abs, linux)) <= JITTER_S * 1e9
    # Five standard deviations of the mean of uniform draws.
    free = draws(folders[0], "forward")
    assert abs(sum(free) / len(free)) < 5 * JITTER_S * 1e9 / (3 * len(free)) ** 0.5


def test_probes_overtake_each_other_on_one_way_and_not_on_the_other(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        table = exchanges.read(folder, typed(scenario()).flow("probe"))
        assert table is not None
        answered = table.drop_nulls("returned_s").sort("seq")
        overtaken = answered["arrived_s"].diff().drop_nulls() < 0
        assert overtaken.sum() > 100
        # In order of arrival at the far end, they return in that order.
        assert answered.sort("arrived_s")["returned_s"].is_sorted()
        one_way_s = answered["arrived_s"] - answered["sent_s"]
        assert one_way_s.mean() == pytest.approx(0.02 + 300 * 8 / 5e6, abs=5e-4)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ({"delay_s": 0.003}, "every packet took"),
        pytest.param(
            {"reorder_every": 50}, "left after packets that had entered later", marks=pytest.mark.slow("another fault")
        ),
        ({"jitter_s": 0.002}, "had a jitter that the link did not report, or more than it declares"),
    ],
)
def test_a_fault_of_a_line_with_jitter_makes_the_run_invalid(
    kind: dict[str, float], sentence: str, kernel: Kernel, tmp_path: Path
) -> None:
    found = fidelity.problems(in_virtual_kernel(scenario(), tmp_path, Fault(kind, ProblemKind.FAULT, sentence)))
    assert any(sentence in problem.sentence for problem in found), [problem.sentence for problem in found]
