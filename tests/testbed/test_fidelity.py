"""The fidelity verdict on reports made by hand: each end's lateness, each limit from both sides."""

from __future__ import annotations

import pytest

from testbed import fidelity
from testbed.report import ProblemKind, Report
from testbed.scenario import Limits

LIMITS = Limits()


def flow(**ends: object) -> Report:
    return Report.model_validate({"t0_epoch_ns": 0, "flows": {"f": ends}})


@pytest.mark.parametrize(("end", "name"), [("send", "sender"), ("receive", "receiver")])
@pytest.mark.parametrize(
    ("p99_s", "max_s", "words"),
    [
        (LIMITS.lateness_p99_s, LIMITS.stall_s, None),
        (LIMITS.lateness_p99_s * 1.01, LIMITS.stall_s, "one segment or timer in a hundred 2.02 ms late or more"),
        (LIMITS.lateness_p99_s, LIMITS.stall_s * 1.02, "a segment or timer 51 ms late"),
    ],
)
def test_each_end_of_a_flow_is_late_by_itself(
    end: str, name: str, p99_s: float, max_s: float, words: str | None
) -> None:
    other = {"send": "receive", "receive": "send"}[end]
    on_time, late = {"p50": 0.0, "p99": 0.0, "max": 0.0}, {"p50": 0.0, "p99": p99_s, "max": max_s}
    report = flow(**{end: {"lateness_s": late}, other: {"lateness_s": on_time}})
    problems = fidelity.problems(report)
    if words is None:
        assert problems == []
        assert fidelity.strain(report) == pytest.approx(1.0)
        return
    (problem,) = problems
    assert (problem.kind, problem.subject) == (ProblemKind.LATE, "f")
    assert problem.sentence.startswith(f"flow f: its {name} handled {words}")
    assert fidelity.strain(report) > 1
    assert fidelity.problems(report, Limits(lateness_p99_s=1.0, stall_s=1.0)) == []


def test_a_sender_that_starts_late_and_a_wrong_payload_make_a_run_invalid() -> None:
    late = LIMITS.stall_s * 1.02
    assert fidelity.problems(flow(send={"started_late_s": LIMITS.stall_s})) == []
    (problem,) = fidelity.problems(flow(send={"started_late_s": late}))
    assert problem.sentence == "flow f: its sender started 51 ms late; at most 50 ms is allowed"
    (problem,) = fidelity.problems(flow(receive={"payload_ok": False}))
    assert problem.kind is ProblemKind.PAYLOAD
