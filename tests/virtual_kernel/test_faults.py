"""Faults of links in Linux's virtual time: each makes its run invalid with its own sentence.

With real packets the audit allows a late machine more than some of these faults do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guards import FAULTS, in_virtual_kernel, matching, scenario
from testbed import fidelity
from testbed.report import ProblemKind
from testbed.virtual_kernel.kernels import Kernel

#: A little more time, a little less rate, a packet too few: what a machine's clocks and queues could hide. That the
#: audit finds each fault, tests/unit/testbed/test_audit.py shows in the simulator.
FIRST = ("delay 0.3 ms long", "rate 0.6 % low", "packet swallowed")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FIRST else pytest.mark.slow("as three others")) for name in FAULTS],
)
def test_a_fault_makes_a_run_invalid_and_is_named(name: str, kernel: Kernel, tmp_path: Path) -> None:
    fault = FAULTS[name]
    problems = fidelity.problems(in_virtual_kernel(scenario(), tmp_path, fault))
    assert matching(fault, problems), [problem.sentence for problem in problems]
    # A run with a fault is invalid even if no guard finds it.
    assert ProblemKind.FAULT in {problem.kind for problem in problems}
