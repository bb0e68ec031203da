"""The audit of links in virtual time: each fault is found and named, and healthy lines pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guards import FAULTS, healthy, in_virtual_time, matching, of_audit, scenario
from testbed import fidelity
from testbed.scenario import Limits


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_makes_a_run_invalid_and_is_named(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    problems = fidelity.problems(in_virtual_time(scenario(), tmp_path, fault))
    assert matching(fault, problems), [problem.sentence for problem in problems]


def test_a_healthy_line_is_fully_checked_and_passes(tmp_path: Path) -> None:
    report = in_virtual_time(scenario(), tmp_path)
    assert fidelity.problems(report) == []
    assert report.audit is not None
    audit = report.audit["line"]["forward"]
    assert audit.unchecked == {}
    assert audit.rate_measured_s > 3
    assert audit.drops_checked > 3
    assert audit.queue_limit_packets == 50


@pytest.mark.parametrize("seed", range(12))
def test_healthy_lines_of_many_kinds_pass(seed: int, tmp_path: Path) -> None:
    assert of_audit(in_virtual_time(healthy(seed), tmp_path, lateness_seed=seed)) == []


def test_what_cannot_be_checked_is_recorded_with_its_reason(tmp_path: Path) -> None:
    made = scenario(options={"framing": "ppp"})
    made["capture"]["at"] = ["a:line"]
    report = in_virtual_time(made, tmp_path / "one")
    assert report.audit is not None
    assert report.audit["line"]["forward"].unchecked == {"all": "b-eth0 was not captured"}
    made["capture"]["at"] = []
    report = in_virtual_time(made, tmp_path / "both")
    assert report.audit is not None
    assert set(report.audit["line"]["forward"].unchecked) == {"rate", "transit", "queue"}


def test_wider_limits_hold_for_the_audit_too(tmp_path: Path) -> None:
    slow = in_virtual_time(scenario(), tmp_path, FAULTS["rate 0.6 % low"])
    assert "the captures show a rate" in " ".join(of_audit(slow))
    wide = [problem.sentence for problem in fidelity.problems(slow, Limits(rate=0.02))]
    assert not any("show a rate" in sentence for sentence in wide)
