"""The fidelity verdict on reports made by hand: each end's lateness, each limit from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from testbed import fidelity
from testbed.report import ProblemKind, Report
from testbed.scenario import Limits

LIMITS = Limits()


def flow(**ends: object) -> Report:
    return Report.read({"t0_epoch_ns": 0, "flows": {"f": ends}})


@pytest.mark.parametrize(("end", "name"), [("send", "sender"), ("receive", "receiver")])
@pytest.mark.parametrize(
    ("p99_s", "max_s", "words"),
    [
        (LIMITS.lateness_p99_s, LIMITS.stall_s, None),
        (LIMITS.lateness_p99_s * 1.01, 0.05, "one segment or timer in a hundred 2.02 ms late or more; at most 2 ms"),
        (0.2, LIMITS.stall_s, "one segment or timer in a hundred 200.00 ms late or more; at most 2 ms"),
        (LIMITS.lateness_p99_s, LIMITS.stall_s * 1.02, "a segment or timer 51 ms late; at most 50 ms"),
        (LIMITS.lateness_p99_s, 1.0, "a segment or timer 1000 ms late; at most 50 ms"),
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
        assert fidelity.worst_limit_ratio(report) == pytest.approx(1.0)
        return
    (problem,) = problems
    assert (problem.kind, problem.subject) == (ProblemKind.LATE, "f")
    assert problem.sentence == f"flow f: its {name} handled {words} is allowed"
    assert fidelity.worst_limit_ratio(report) > 1
    assert fidelity.problems(report, Limits(lateness_p99_s=1.0, stall_s=1.0)) == []


@pytest.mark.parametrize(
    ("counters", "kind", "words"),
    [
        ({"rate_error": LIMITS.rate}, None, ""),
        ({"rate_error": -LIMITS.rate}, None, ""),
        ({"rate_error": -1.2 * LIMITS.rate}, ProblemKind.RATE, "the rate was off by -0.60 %; at most 0.5 % is allowed"),
        ({"lateness_s": {"p99": LIMITS.lateness_p99_s}}, None, ""),
        ({"lateness_s": {"p99": 1.5 * LIMITS.lateness_p99_s}}, ProblemKind.LATE, "3.00 ms late or more; at most 2 ms"),
        ({"lost_before_the_link": 1}, ProblemKind.LOST, "the kernel dropped 1 packet before the emulator read"),
        ({"lost_before_the_link": None}, ProblemKind.LOST, "may have dropped packets (the interface is gone)"),
        ({"refused_by_interface": 3}, ProblemKind.LOST, "the receiving interface did not take 3 packets"),
    ],
)
def test_a_direction_of_a_link_has_limits(counters: dict[str, Any], kind: ProblemKind | None, words: str) -> None:
    healthy = {"lost_before_the_link": 0}
    links = {"line": {"forward": healthy, "reverse": healthy | counters}}
    problems = fidelity.problems(Report.read({"t0_epoch_ns": 0, "driver": {"links": links}}))
    assert [(problem.kind, problem.subject) for problem in problems] == ([(kind, "line reverse")] if kind else [])
    assert all(words in problem.sentence for problem in problems)


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


def audited(**line: object) -> list[str]:
    """Problems of a run whose captures show this of a line."""
    report = Report.read({"t0_epoch_ns": 0, "audit": {"line": {"forward": line}}})
    return [problem.sentence for problem in fidelity.problems(report)]


def test_a_rate_that_the_captures_show_is_bounded_and_named_with_bytes_that_would_explain_it() -> None:
    assert audited(rate_error=LIMITS.rate) == audited(rate_error=-LIMITS.rate) == []
    sentence = "line forward: the captures show a rate that was off by 0.60 %; at most 0.5 % is allowed"
    assert audited(rate_error=0.006) == [sentence]
    more = sentence.replace("0.60 %", "0.60 %, as by +5.0 bytes a packet")
    assert audited(rate_error=0.006, rate_error_bytes=5.0) == [more]


def test_a_captured_packet_may_leave_10_ms_after_the_longest_stall() -> None:
    def problems(latest_s: float) -> list[str]:
        return audited(lateness_s={"max": latest_s})

    assert problems(LIMITS.stall_s + fidelity.AFTER_STALL_S) == []
    assert problems(0.08) == ["line forward: the captures show a packet that left 80 ms late; at most 60 ms is allowed"]


def test_lateness_names_a_missing_real_time_class_and_other_problems_do_not() -> None:
    def problems(realtime: bool) -> list[str]:
        audit = {"line": {"forward": {"lateness_s": {"max": 0.08}, "swallowed_packets": 1}}}
        report = Report.read({"t0_epoch_ns": 0, "driver": {"realtime": realtime}, "audit": audit})
        return [problem.sentence for problem in fidelity.problems(report)]

    swallowed, late = problems(True)
    assert problems(False) == [swallowed, f"{late}; the emulator had no real-time class"]


def test_a_sender_that_starts_late_and_a_wrong_payload_make_a_run_invalid() -> None:
    late = LIMITS.stall_s * 1.02
    assert fidelity.problems(flow(send={"started_late_s": LIMITS.stall_s})) == []
    (problem,) = fidelity.problems(flow(send={"started_late_s": late}))
    assert problem.sentence == "flow f: its sender started 51 ms late; at most 50 ms is allowed"
    (problem,) = fidelity.problems(flow(receive={"payload_ok": False}))
    assert problem.kind is ProblemKind.PAYLOAD
    (problem,) = fidelity.problems(run_report(armed_late_s=1.25))
    assert (problem.kind, "1250 ms after the run's zero" in problem.sentence) == (ProblemKind.LATE, True)


DROPPED, BY_LIMIT = "2 of 10 packets were dropped by a queue", " than its limit of 50 packets"
TOO_SLOW = "every packet took 0.30 ms longer than rate and delay allow, or more; at most 0.2 ms is allowed"


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ({"least_excess_s": fidelity.LEAST_OF_MANY * LIMITS.delay_s}, []),
        ({"least_excess_s": -fidelity.CLOCK_S}, []),
        ({"least_excess_s": 0.0003}, [TOO_SLOW]),
        ({"least_excess_s": -0.00011}, ["a packet arrived 0.11 ms before rate and delay allow"]),
        ({"queue_limit_packets": 50, "longest_queue_packets": 50}, []),
        ({"queue_limit_packets": 50, "longest_queue_packets": 51}, ["the queue held 51 packets; its limit is 50"]),
        ({"longest_queue_packets": 51}, []),
        ({"queue_limit_packets": 50, "drops_checked": 10, "drops_beyond_limit": 1, "drops_before_limit": 1}, []),
        ({"queue_limit_packets": 50, "drops_checked": 10, "drops_beyond_limit": 2}, [f"{DROPPED} longer{BY_LIMIT}"]),
        ({"queue_limit_packets": 50, "drops_checked": 10, "drops_before_limit": 2}, [f"{DROPPED} shorter{BY_LIMIT}"]),
    ],
)
def test_captures_may_contradict_delay_and_queue_within_limits(line: dict[str, Any], sentences: list[str]) -> None:
    assert audited(**line) == [f"line forward: {sentence}" for sentence in sentences]


SHARE = "for 1.2 % of the time; at most 1 % is allowed"
OTHERS, HOST = "; other programs used the CPU", "; no other program used the CPU, so the hypervisor took the time"


@pytest.mark.parametrize(
    ("stalls", "sentences"),
    [
        ({"longest_s": 0.05, "total_s": 0.1}, []),
        ({"longest_s": 0.051, "total_s": 0.1}, ["for 51 ms; at most 50 ms is allowed"]),
        ({"longest_s": 0.01, "total_s": 0.12}, [SHARE]),
        ({"longest_s": 0.01, "total_s": 0.12, "queued_s": 0.06}, [SHARE + OTHERS]),
        ({"longest_s": 0.06, "total_s": 0.1, "queued_s": 0.04}, [f"for 60 ms; at most 50 ms is allowed{HOST}"]),
    ],
)  # fmt: skip
def test_an_emulator_may_stand_still_for_50_ms_and_one_per_cent(stalls: dict[str, Any], sentences: list[str]) -> None:
    report = Report.read({"t0_epoch_ns": 0, "duration_s": 10, "driver": {"stalls": {"count": 1, **stalls}}})
    result = [problem.sentence for problem in fidelity.problems(report)]
    assert result == [f"the emulator was not scheduled {sentence}" for sentence in sentences]


def test_lost_packets_of_a_capture_and_an_injected_fault_are_named() -> None:
    captures = [{"node": "a", "interface": name, "path": f"{name}.pcap", "captured": 9, "dropped": dropped}
                for name, dropped in (("a-eth0", 0), ("a-eth1", 2), ("a-eth2", None))]  # fmt: skip
    fault = {"link": "line", "kind": {"stall": {"at_s": 4, "length_s": 0.1}}}
    report = Report.read({"t0_epoch_ns": 0, "captures": captures, "driver": {"fault": fault}})
    assert report.driver.as_json() == {"fault": fault}
    assert [(problem.kind, problem.sentence) for problem in fidelity.problems(report)] == [
        (ProblemKind.FAULT, f"a fault was injected for a test: {fault}"),
        (ProblemKind.CAPTURE, "the capture on a-eth1 lost 2 packets"),
    ]


@pytest.mark.parametrize(("latest_s", "strain"), [(0.0, 2), (0.1, 5), (0.101, 10)])
def test_an_end_that_waits_longer_than_the_host_stalls_waits_for_other_programs(latest_s: float, strain: float) -> None:
    """Other programs caused half of a stall of 200 ms among 20 s: four times the limit, halved. 1 % of the segments are
    late by 10 times the limit, up to `latest_s`."""
    stalls = {"count": 1, "total_s": 0.2, "longest_s": 0.2, "queued_s": 0.1}
    late = {"p50": 0.0, "p99": 0.02 if latest_s else 0.0, "max": latest_s}
    fields = {"duration_s": 20, "driver": {"stalls": stalls}, "flows": {"f": {"receive": {"lateness_s": late}}}}
    assert fidelity.worst_limit_ratio(Report.read({"t0_epoch_ns": 0, **fields})) == pytest.approx(strain)


def run_report(**changes: Any) -> Report:
    ordinary = {"rate_error": 0.0001, "lateness_s": {"p99": 0.0002}, "lost_before_the_link": 0}
    counters = ordinary | changes.pop("counters", {})
    stalls = {"count": 3, "total_s": 0.02, "longest_s": 0.018} | changes.pop("stalls", {})
    document = {
        "t0_epoch_ns": 0,
        "driver": {"links": {"line": {"forward": counters, "reverse": counters}}, "stalls": stalls},
        "duration_s": 20.0,
        "captures": [
            {
                "node": "a", "interface": "a-eth0", "path": "a-eth0.pcap", "captured": 10, "received": 10,
                "dropped": changes.pop("dropped", 0),
            }
        ],
        "flows": {
            "bulk": {
                "send": {
                    "lateness_s": {"p50": 2e-5, "p99": 3e-4, "max": 0.01} | changes.pop("sender", {}),
                    "started_late_s": changes.pop("started_late_s", 0.0001),
                },
                "receive": {"payload_ok": changes.pop("payload_ok", True)},
            },
            "idle": {"send": {"lateness_s": dict.fromkeys(("p50", "p99", "max"))}, "receive": {"payload_ok": True}},
        },
        "armed_late_s": changes.pop("armed_late_s", 0.0),
    }  # fmt: skip
    return Report.read(document)


@pytest.mark.parametrize(
    ("changes", "strain"),
    [
        ({}, 0.36),
        ({"counters": {"rate_error": None, "lateness_s": {"p99": None}}}, 0.36),
        ({"counters": {"rate_error": -0.01}}, 2.0),
        # 2 % of the time in stalls, and none longer than 20 ms; then a single long one.
        ({"stalls": {"total_s": 0.4, "longest_s": 0.02}}, 2.0),
        ({"stalls": {"total_s": 0.1, "longest_s": 0.1}}, 2.0),
        ({"counters": {"lateness_s": {"p99": 0.003}}}, 1.5),
        ({"counters": {"lateness_s": {"p99": 0.003}}, "stalls": {"queued_s": 0.002}}, 0.15),
        ({"counters": {"rate_error": -0.01}, "stalls": {"queued_s": 0.02}}, 2.0),
        ({"stalls": {"longest_s": 0.2, "total_s": 0.2, "queued_s": 0.15}}, 3.0),
        ({"stalls": {"longest_s": 0.2, "total_s": 0.2, "queued_s": 0.0}}, 0.0),
        ({"counters": {"lost_before_the_link": 7}, "stalls": {"queued_s": 0.0}}, 2.0),
        ({"counters": {"lost_before_the_link": None}, "stalls": {"queued_s": 0.0}}, 2.0),
        ({"dropped": 2, "stalls": {"queued_s": 0.0}}, 2.0),
        ({"payload_ok": False, "stalls": {"queued_s": 0.0}}, 0.0),
        ({"sender": {"p99": 0.003}}, 1.5),
        ({"sender": {"max": 0.1}}, 2.0),
        # The emulator hardly stood still, and not for others: the sender waited for others all the same.
        ({"sender": {"p99": 0.02, "max": 0.2}, "stalls": {"queued_s": 0.001}}, 10.0),
        ({"started_late_s": 0.1, "stalls": {"queued_s": 0.0}}, 2.0),
        # The host took the CPUs from the emulator for as long as the sender was late.
        ({"sender": {"p99": 0.02, "max": 0.2}, "stalls": {"longest_s": 0.2, "total_s": 0.2, "queued_s": 0.0}}, 0.0),
        ({"counters": {"refused_by_interface": 1}, "stalls": {"queued_s": 0.0}}, 2.0),
        ({"armed_late_s": 0.02, "stalls": {"queued_s": 0.0}}, 2.0),
    ],
)
def test_strain_measures_the_effect_of_other_programs(changes: dict[str, Any], strain: float) -> None:
    assert fidelity.worst_limit_ratio(run_report(**changes)) == pytest.approx(strain, rel=0.01)


def test_a_scenario_may_set_its_own_limits() -> None:
    assert fidelity.problems(run_report()) == fidelity.problems(run_report(counters={"rate_error": None})) == []
    late = run_report(counters={"lateness_s": {"p99": 0.003}, "rate_error": 0.004})
    assert len(fidelity.problems(late)) == 2
    assert fidelity.problems(late, Limits(lateness_p99_s=0.004)) == []
    assert len(fidelity.problems(late, Limits(rate=0.003))) == 4
    assert fidelity.worst_limit_ratio(late, Limits(lateness_p99_s=0.03)) < fidelity.worst_limit_ratio(late)
    lost, wide = run_report(dropped=2), Limits(rate=1, delay_s=10, lateness_p99_s=10, stall_s=10, stalled_share=1)
    assert fidelity.problems(lost, wide) == fidelity.problems(lost) != []


def test_stalls_have_no_share_of_a_run_without_a_duration() -> None:
    stalls = {"count": 1, "total_s": 0.04, "longest_s": 0.04}
    report = Report.read({"t0_epoch_ns": 0, "driver": {"stalls": stalls}})
    assert (fidelity.problems(report), fidelity.worst_limit_ratio(report)) == ([], pytest.approx(0.8))
