"""Flows without a byte: a result where the scenario explains it, an invalid run where nothing does."""

from __future__ import annotations

from typing import Any

from testbed import delivery
from testbed.addressing import make_plan
from testbed.report import ProblemKind, Report
from testbed.scenario import Scenario
from tests.conftest import two_hosts


def scenario(**changes: Any) -> Scenario:
    """Two flows between two hosts, in opposite directions, over one line."""
    made = two_hosts()
    (flow,) = made["workload"]
    back = {**flow, "name": "back", "from": flow["to"], "to": flow["from"], "port": flow["port"] + 1}
    made |= {"workload": [{**flow, "name": "forth"}, back], "duration_s": 30.0, **changes}
    return Scenario.read(made)


def problems(forth: int, back: int, forward: dict[str, Any] | None, one: Scenario | None = None) -> list[str]:
    """Problems of a run with these bytes received; `forward` has the line's counters, None those of a real wire."""
    checked = one or scenario()
    idle = {"busy_s": 0.0}
    line = None if forward is None else {"forward": idle | forward, "reverse": idle}
    counters = {} if line is None else {checked.links[0].name: line}
    flows = {"forth": {"receive": {"bytes": forth}}, "back": {"receive": {"bytes": back}}}
    report = Report.read({"t0_epoch_ns": 0, "driver": {"links": counters}, "flows": flows})
    found = list(delivery.problems(checked, report, make_plan(checked.nodes, checked.links)))
    assert {problem.kind for problem in found} <= {ProblemKind.DELIVERY}
    return [problem.subject for problem in found]


#: Everything that entered left: nothing can have starved a flow.
CLEAN = {"submitted_packets": 9, "delivered_packets": 9}


def test_runs_in_which_every_flow_delivers_are_valid() -> None:
    assert problems(1, 1, CLEAN) == []


def test_a_run_without_a_byte_is_invalid() -> None:
    assert problems(0, 0, CLEAN) == ["forth", "back"]
    assert problems(0, 0, None) == ["forth", "back"]


def test_a_flow_beside_another_that_delivers_is_broken_unless_a_packet_was_taken() -> None:
    assert problems(1, 0, CLEAN) == ["back"]


def test_a_flow_that_a_queue_starves_is_a_result() -> None:
    # Dropped by the queue, or still in it behind the other flow's acks.
    assert problems(1, 0, {"submitted_packets": 9, "delivered_packets": 8}) == []
    assert problems(1, 0, {**CLEAN, "error_losses": 1}) == []


def test_on_a_wire_that_nothing_counts_only_another_flow_can_starve_one() -> None:
    assert problems(1, 0, None) == []
    shaped = {**CLEAN, "busy_s": None}
    assert problems(1, 0, shaped) == []
    assert problems(0, 0, shaped) == ["forth", "back"]


def test_a_flow_that_has_no_time_for_its_first_byte_is_none_that_was_to_deliver() -> None:
    assert problems(0, 0, CLEAN, scenario(duration_s=2.9)) == []
