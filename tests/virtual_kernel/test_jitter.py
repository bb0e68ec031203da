"""Jitter on Linux in virtual time: the simulator's draws, for every packet, and a verdict without problems."""

from __future__ import annotations

from pathlib import Path

from testbed import audit, fidelity
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import typed
from tests.real.test_jitter import draws, scenario
from tests.sim.testbed.test_simulation import simulate


def test_draws_are_those_of_the_simulation(kernel: Kernel, tmp_path: Path) -> None:
    made, simulated = typed(scenario()), scenario()
    report = VirtualMachine(kernel).run(made, tmp_path / "virtual", lambda _: None)
    found = fidelity.problems(audit.audited(made, report, tmp_path / "virtual"))
    assert found == [], [problem.sentence for problem in found]
    for node in simulated["nodes"]:
        node["stack"] = {"name": "sack", "options": {}}
    simulate(simulated, tmp_path / "sim")
    for direction in ("forward", "reverse"):
        virtual, sim = (draws(tmp_path / folder, direction) for folder in ("virtual", "sim"))
        count = min(len(virtual), len(sim))
        assert count > 1000
        # Packets of the kernel come some microseconds later, which moves what is held back on the way that keeps order.
        exact = [one == other for one, other in zip(virtual, sim, strict=False)]
        assert sum(exact) == count if direction == "forward" else sum(exact) > count / 4
