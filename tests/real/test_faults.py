"""The audit with real packets: it finds a fault, and checks a healthy line in full.

`tests/virtual_kernel/test_faults.py` has every fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guards import FAULTS, matching, scenario, with_real_packets
from testbed import fidelity

pytestmark = [pytest.mark.slow("tests/virtual_kernel has every fault"), pytest.mark.emulated]


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
