"""The fidelity verdict on reports made by hand: each end's lateness, each limit from both sides."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    ("counters", "kind", "words"),
    [
        ({"rate_error": LIMITS.rate}, None, ""),
        ({"rate_error": -LIMITS.rate}, None, ""),
        ({"rate_error": -1.2 * LIMITS.rate}, ProblemKind.RATE, "the rate was off by -0.60 %; at most 0.5 % is allowed"),
        ({"lateness_s": {"p99": LIMITS.lateness_p99_s}}, None, ""),
        (
            {"lateness_s": {"p99": 1.5 * LIMITS.lateness_p99_s}},
            ProblemKind.LATE,
            "one packet in a hundred left 3.00 ms late or more; at most 2 ms is allowed",
        ),
        (
            {"lost_before_the_link": 2},
            ProblemKind.LOST,
            "the kernel dropped 2 packets before the emulator read them",
        ),
        (
            {"lost_before_the_link": None},
            ProblemKind.LOST,
            "the kernel may have dropped packets (the interface is gone) before the emulator read them",
        ),
        ({"refused_by_interface": 3}, ProblemKind.LOST, "the receiving interface did not take 3 packets"),
    ],
)
def test_a_direction_of_a_link_has_limits(counters: dict[str, Any], kind: ProblemKind | None, words: str) -> None:
    healthy = {"lost_before_the_link": 0}
    links = {"line": {"forward": healthy, "reverse": healthy | counters}}
    problems = fidelity.problems(Report.model_validate({"t0_epoch_ns": 0, "driver": {"links": links}}))
    if kind is None:
        assert problems == []
    else:
        (problem,) = problems
        assert (problem.kind, problem.subject) == (kind, "line reverse")
        assert problem.sentence == f"line reverse: {words}"


def test_limits_wider_than_the_usual_ones_are_named_with_both() -> None:
    assert fidelity.wider(Limits()) == []
    twice = Limits(rate=0.01, delay_s=0.002, lateness_p99_s=0.004, stall_s=0.1, stalled_share=0.02)
    assert fidelity.wider(twice) == [
        "rate 1 % instead of 0.5 %",
        "delay 2 ms instead of 1 ms",
        "lateness 4 ms instead of 2 ms",
        "stall 100 ms instead of 50 ms",
        "stalled 2 % instead of 1 %",
    ]


def test_a_captured_packet_may_leave_10_ms_after_the_longest_stall() -> None:
    def problems(latest_s: float) -> list[str]:
        audit = {"line": {"forward": {"lateness_s": {"max": latest_s}}}}
        report = Report.model_validate({"t0_epoch_ns": 0, "audit": audit})
        return [problem.sentence for problem in fidelity.problems(report)]

    assert problems(0.06) == []
    assert problems(0.08) == ["line forward: the captures show a packet that left 80 ms late; at most 60 ms is allowed"]


def test_a_sender_that_starts_late_and_a_wrong_payload_make_a_run_invalid() -> None:
    late = LIMITS.stall_s * 1.02
    assert fidelity.problems(flow(send={"started_late_s": LIMITS.stall_s})) == []
    (problem,) = fidelity.problems(flow(send={"started_late_s": late}))
    assert problem.sentence == "flow f: its sender started 51 ms late; at most 50 ms is allowed"
    (problem,) = fidelity.problems(flow(receive={"payload_ok": False}))
    assert problem.kind is ProblemKind.PAYLOAD
