"""Faults of links with real packets: each makes its run invalid with its own sentence.

In the virtual kernel, because the audit allows a late machine more than some of these faults do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import fidelity
from testbed.report import ProblemKind
from testbed.virtual_kernel.kernels import Kernel
from tests.benchmarks.guards import FAULTS, in_virtual_kernel, matching, scenario, with_real_packets

pytestmark = pytest.mark.emulated


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_makes_a_run_invalid_and_is_named(name: str, kernel: Kernel, tmp_path: Path) -> None:
    fault = FAULTS[name]
    problems = fidelity.problems(in_virtual_kernel(scenario(), tmp_path, fault))
    assert matching(fault, problems), [problem.sentence for problem in problems]
    # A run with a fault is invalid even if no guard finds it.
    assert ProblemKind.FAULT in {problem.kind for problem in problems}


def test_a_fault_is_found_in_the_machines_own_time(tmp_path: Path) -> None:
    fault = FAULTS["packet swallowed"]
    problems = fidelity.problems(with_real_packets(scenario(), tmp_path, fault))
    assert matching(fault, problems), [problem.sentence for problem in problems]


def test_a_healthy_line_is_audited_in_full(tmp_path: Path) -> None:
    report = with_real_packets(scenario(), tmp_path)
    assert report.audit is not None
    audit = report.audit["line"]["forward"]
    assert audit.unchecked == {}
    assert audit.left_packets > 3000
    assert audit.swallowed_packets + audit.invented_packets + audit.reordered_packets + audit.changed_packets == 0
