"""The fidelity verdict: whether a run with real packets did what its scenario declares.

A run that did not is `invalid`: it is stored and shown, left out of every mean, and repeated. A scenario may set its
own limits (testbed.scenario.Limits), narrower or wider. Loss that the scenario does not declare is never within them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from testbed.report import DirectionAudit, DirectionReport, FlowReport, Problem, ProblemKind, Report
from testbed.scenario import Limits
from testbed.units import number_of

LIMITS = Limits()
#: Ratio of a run that lost packets or was not ready at its zero: no measure of time says how near it was to the limit.
LOST_RATIO = 2.0
#: A transit time may be less than possible by this much, because two clocks stamp packets and one is steered.
CLOCK_S = 1e-4
#: The least of many transit times is this much closer to the declared delay than a single probe's, whose limit is
#: `Limits.delay_s`.
LEAST_OF_MANY = 0.2
#: A packet that was read late and written late may leave this much after the longest stall.
AFTER_STALL_S = 0.01
#: Problems that the real-time class prevents where other programs run.
OF_TIME = (ProblemKind.LATE, ProblemKind.STALLED)
#: Share of a queue's drops that may contradict its limit, because their times are uncertain.
WRONG_DROPS = 0.1


def wider(limits: Limits) -> list[str]:
    """Limits that exceed the usual ones, such as "delay 30 ms instead of 1 ms"."""
    ms, share = "{:g} ms", "{:g} %"
    rows = (
        ("rate", share, limits.rate * 100, LIMITS.rate * 100),
        ("delay", ms, limits.delay_s * 1e3, LIMITS.delay_s * 1e3),
        ("lateness", ms, limits.lateness_p99_s * 1e3, LIMITS.lateness_p99_s * 1e3),
        ("stall", ms, limits.stall_s * 1e3, LIMITS.stall_s * 1e3),
        ("stalled", share, limits.stalled_share * 100, LIMITS.stalled_share * 100),
    )
    return [
        f"{name} {unit.format(value)} instead of {unit.format(usual)}"
        for name, unit, value, usual in rows
        if value > usual
    ]


def problems(report: Report, limits: Limits = LIMITS) -> list[Problem]:
    """Every reason for which a run is invalid; empty for a valid run."""
    reasons: list[Problem] = []
    for link, direction, counters in report.directions():
        reasons += _of(f"{link} {direction}", _direction_problems(counters, limits))
    for link, directions in (report.audit or {}).items():
        for direction, audit in directions.items():
            reasons += _of(f"{link} {direction}", _audit_problems(audit, limits))
    reasons += _of("", _stall_problems(report, limits))
    if report.driver.fault is not None:
        fault = report.driver.fault.as_json()
        reasons.append(Problem(ProblemKind.FAULT, "", f"a fault was injected for a test: {fault}"))
    for capture in report.captures:
        if capture.dropped:
            sentence = f"the capture on {capture.interface} lost {number_of(capture.dropped, 'packet')}"
            reasons.append(Problem(ProblemKind.CAPTURE, capture.interface, sentence))
    for name, flow in report.flows.items():
        reasons += _of(name, _flow_problems(flow, limits), "flow ")
    if report.armed_late_s > 0:  # every start time is wrong
        sentence = f"the senders were ready {report.armed_late_s * 1e3:.0f} ms after the run's zero"
        reasons.append(Problem(ProblemKind.LATE, "", sentence))
    if report.driver.realtime is False:
        reasons = [_without_realtime(problem) if problem.kind in OF_TIME else problem for problem in reasons]
    return reasons


def _of(subject: str, sentences: Iterable[tuple[ProblemKind, str]], what: str = "") -> list[Problem]:
    """Problems of a subject, whose kind and name their sentences begin with."""
    begin = f"{what}{subject}: " if subject else ""
    return [Problem(kind, subject, f"{begin}{sentence}") for kind, sentence in sentences]


def _without_realtime(problem: Problem) -> Problem:
    return replace(problem, sentence=f"{problem.sentence}; the emulator had no real-time class")


def _direction_problems(counters: DirectionReport, limits: Limits) -> Iterator[tuple[ProblemKind, str]]:
    unread = counters.lost_before_the_link
    if unread is None or unread > 0:
        lost = (
            f"dropped {number_of(unread, 'packet')}" if unread else "may have dropped packets (the interface is gone)"
        )
        yield ProblemKind.LOST, f"the kernel {lost} before the emulator read them"
    if count := counters.refused_by_interface:
        yield ProblemKind.LOST, f"the receiving interface did not take {number_of(count, 'packet')}"
    error = counters.rate_error
    if error is not None and abs(error) > limits.rate:
        yield (
            ProblemKind.RATE,
            f"the rate was off by {error * 100:.2f} %; at most {limits.rate * 100:g} % is allowed",
        )
    p99_s = counters.lateness_s.p99
    if p99_s is not None and p99_s > limits.lateness_p99_s:
        yield (
            ProblemKind.LATE,
            f"one packet in a hundred left {p99_s * 1e3:.2f} ms late or more; "
            f"at most {limits.lateness_p99_s * 1e3:g} ms is allowed",
        )


def _audit_problems(audit: DirectionAudit, limits: Limits) -> Iterator[tuple[ProblemKind, str]]:
    """What the captures at both ends of a direction contradict."""
    for count, kind, what in (
        (audit.swallowed_packets, ProblemKind.LOST, "entered, did not leave and were not reported as dropped"),
        (audit.changed_packets, ProblemKind.LOST, "left with another checksum and were not reported as damaged"),
        (audit.invented_packets, ProblemKind.ORDER, "left that had not entered"),
        (audit.reordered_packets, ProblemKind.ORDER, "left after packets that had entered later"),
        (
            audit.jitter_unexplained_packets,
            ProblemKind.DELAY,
            "had a jitter that the link did not report, or more than it declares",
        ),
    ):
        if count:
            yield kind, f"{number_of(count, 'packet')} {what}"
    error, more_bytes = audit.rate_error, audit.rate_error_bytes
    if error is not None and abs(error) > limits.rate:
        size = "" if more_bytes is None else f", as by {more_bytes:+.1f} bytes a packet"
        yield (
            ProblemKind.RATE,
            f"the captures show a rate that was off by {error * 100:.2f} %{size}; "
            f"at most {limits.rate * 100:g} % is allowed",
        )
    excess_s, allowed_s = audit.least_excess_s, LEAST_OF_MANY * limits.delay_s
    if excess_s is not None and not -CLOCK_S <= excess_s <= allowed_s:
        yield (
            ProblemKind.DELAY,
            f"every packet took {excess_s * 1e3:.2f} ms longer than rate and delay allow, or more; "
            f"at most {allowed_s * 1e3:g} ms is allowed"
            if excess_s > 0
            else f"a packet arrived {-excess_s * 1e3:.2f} ms before rate and delay allow",
        )
    latest_s = audit.lateness_s.max
    if latest_s is not None and latest_s > limits.stall_s + AFTER_STALL_S:
        yield (
            ProblemKind.STALLED,
            f"the captures show a packet that left {latest_s * 1e3:.0f} ms late; "
            f"at most {(limits.stall_s + AFTER_STALL_S) * 1e3:g} ms is allowed",
        )
    limit, longest = audit.queue_limit_packets, audit.longest_queue_packets
    if limit is not None and longest is not None and longest > limit:
        yield ProblemKind.QUEUE, f"the queue held {longest} packets; its limit is {limit}"
    for drops, where in (
        (audit.drops_beyond_limit, "by a queue longer than its limit"),
        (audit.drops_before_limit, "by a queue shorter than its limit"),
    ):
        if drops > WRONG_DROPS * audit.drops_checked:
            share = f"{drops} of {audit.drops_checked} packets"
            yield ProblemKind.QUEUE, f"{share} were dropped {where} of {limit} packets"


def _stall_problems(report: Report, limits: Limits) -> Iterator[tuple[ProblemKind, str]]:
    stalls = report.driver.stalls
    if stalls is None:  # virtual time does not stall
        return
    cause = ""
    if stalls.queued_s is not None:
        cause = (
            "; other programs used the CPU"
            if stalls.queued_share >= 0.5
            else "; no other program used the CPU, so the hypervisor took the time"
        )
    share = _stalled_share(report)
    for exceeded, measured, limit in (
        (stalls.longest_s > limits.stall_s, f"{stalls.longest_s * 1e3:.0f} ms", f"{limits.stall_s * 1e3:g} ms"),
        (share > limits.stalled_share, f"{share * 100:.1f} % of the time", f"{limits.stalled_share * 100:g} %"),
    ):
        if exceeded:
            yield (
                ProblemKind.STALLED,
                f"the emulator was not scheduled for {measured}; at most {limit} is allowed{cause}",
            )


def _stalled_share(report: Report) -> float:
    stalls = report.driver.stalls
    return stalls.total_s / report.duration_s if stalls is not None and report.duration_s else 0.0


def _flow_problems(flow: FlowReport, limits: Limits) -> Iterator[tuple[ProblemKind, str]]:
    if not flow.receive.payload_ok:
        yield ProblemKind.PAYLOAD, "the bytes received are not the bytes sent"
    stall = f"at most {limits.stall_s * 1e3:g} ms is allowed"
    late_s = flow.send.started_late_s
    if late_s > limits.stall_s:
        yield ProblemKind.LATE, f"its sender started {late_s * 1e3:.0f} ms late; {stall}"
    for end, p99_s, max_s in flow.lateness_of_ends():
        if p99_s > limits.lateness_p99_s:
            yield (
                ProblemKind.LATE,
                f"its {end} handled one segment or timer in a hundred {p99_s * 1e3:.2f} ms late or more; "
                f"at most {limits.lateness_p99_s * 1e3:g} ms is allowed",
            )
        if max_s > limits.stall_s:
            yield ProblemKind.LATE, f"its {end} handled a segment or timer {max_s * 1e3:.0f} ms late; {stall}"


def worst_limit_ratio(report: Report, limits: Limits = LIMITS) -> float:
    """How near other work on this machine brought a run to being invalid; above 1 it made the run invalid.

    The greatest deviation divided by its limit. Lateness counts only for the share of the stalls that other programs
    caused, because time stolen by the machine's host does not depend on the number of cells. Where the kernel does not
    report that share, all lateness counts.
    """
    late, lost = [0.0], bool(report.armed_late_s) or any(capture.dropped for capture in report.captures)
    for _, _, counters in report.directions():
        late.append((counters.lateness_s.p99 or 0.0) / limits.lateness_p99_s)
        late.append(abs(counters.rate_error or 0.0) / limits.rate)
        lost = lost or counters.lost_before_the_link != 0 or counters.refused_by_interface > 0
    ends, latest_s = [0.0], 0.0
    for flow in report.flows.values():
        for _, p99_s, max_s in flow.lateness_of_ends():
            ends += [p99_s / limits.lateness_p99_s, max_s / limits.stall_s]
            latest_s = max(latest_s, max_s)
        ends.append(flow.send.started_late_s / limits.stall_s)
        latest_s = max(latest_s, flow.send.started_late_s)
    stalls = report.driver.stalls
    if stalls is None:
        return LOST_RATIO if lost else max(late + ends)
    late.append(stalls.longest_s / limits.stall_s)
    late.append(_stalled_share(report) / limits.stalled_share)
    queued = stalls.queued_share
    # Emulators run at a higher priority than flows' endpoints, which may wait while no link does. The host's share is
    # taken from all alike.
    by_host = latest_s <= stalls.longest_s * (1 - queued)
    return max(LOST_RATIO if lost else 0.0, max(late) * queued, max(ends) * (queued if by_host else 1.0))
