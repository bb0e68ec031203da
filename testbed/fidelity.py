"""The fidelity verdict: whether an emulated run met what its scenario declares.

A run that did not is `invalid`: kept, shown as such, out of every mean, and run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What a run may deviate."""

    #: Achieved rate of a busy direction against the declared one.
    rate: float = 0.005
    #: How late the 99th of 100 packets may leave against its ideal time, in seconds.
    lateness_p99_s: float = 0.002
    #: Longest time in which the emulator did not run, in seconds: packets sent in it entered their link late.
    stall_s: float = 0.05
    #: All such time over the run's duration.
    stalled_share: float = 0.01
    #: Traffic programs that were started after the run's zero make every start time wrong, in seconds.
    armed_late_s: float = 0.0


LIMITS = Limits()


def problems(report: Mapping[str, Any], limits: Limits = LIMITS) -> list[str]:
    """Everything that makes a run invalid, as sentences; empty for a valid run.

    Args:
        report: as testbed.emulated.EmulatedTestbed.run returns it.
        limits: what is allowed.
    """
    found: list[str] = []
    for name, link in report["driver"]["links"].items():
        for direction, counters in link.items():
            found += _direction_problems(f"{name} {direction}", counters, limits)
    found += _stall_problems(report, limits)
    found += _capture_problems(report["captures"])
    found += _flow_problems(report["flows"])
    late_s = float(report.get("armed_late_s", 0.0))
    if late_s > limits.armed_late_s:
        found.append(f"the senders were ready {late_s * 1e3:.0f} ms after the run's zero")
    return found


def strain(report: Mapping[str, Any], limits: Limits = LIMITS) -> float:
    """How near a run came to being invalid for the machine's sake: the worst of its deviations over what is allowed.

    Only what a busy machine causes is counted: late packets, and an emulator that was not scheduled. Above 1 the run is
    invalid; 0 where nothing was measured.
    """
    found = [0.0]
    for link in report["driver"]["links"].values():
        for direction in ("forward", "reverse"):
            p99_s = link[direction]["lateness_s"]["p99"]
            found.append((p99_s or 0.0) / limits.lateness_p99_s)
            if link[direction].get("lost_before_the_link"):
                found.append(2.0)
    stalls = report["driver"].get("stalls")
    if stalls is not None:
        found.append(stalls["longest_s"] / limits.stall_s)
        found.append(stalls["total_s"] / report["duration_s"] / limits.stalled_share)
    return max(found)


def _direction_problems(where: str, counters: Mapping[str, Any], limits: Limits) -> list[str]:
    found = []
    lost = counters.get("lost_before_the_link")
    if lost:
        found.append(f"{where}: the kernel dropped {lost} packets before the emulator read them")
    error = counters.get("rate_error")
    if error is not None and abs(error) > limits.rate:
        found.append(f"{where}: the rate was off by {error * 100:.2f} %; at most {limits.rate * 100:g} % is allowed")
    p99_s = counters["lateness_s"]["p99"]
    if p99_s is not None and p99_s > limits.lateness_p99_s:
        found.append(
            f"{where}: one packet in a hundred left {p99_s * 1e3:.2f} ms late or more; "
            f"at most {limits.lateness_p99_s * 1e3:g} ms is allowed"
        )
    return found


def _stall_problems(report: Mapping[str, Any], limits: Limits) -> list[str]:
    stalls = report["driver"].get("stalls")
    if stalls is None:  # virtual time does not stall
        return []
    found = []
    if stalls["longest_s"] > limits.stall_s:
        found.append(
            f"the emulator did not run for {stalls['longest_s'] * 1e3:.0f} ms; "
            f"at most {limits.stall_s * 1e3:g} ms is allowed"
        )
    share = stalls["total_s"] / report["duration_s"]
    if share > limits.stalled_share:
        found.append(
            f"the emulator did not run for {share * 100:.1f} % of the time; "
            f"at most {limits.stalled_share * 100:g} % is allowed"
        )
    return found


def _capture_problems(captures: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"the capture on {capture['interface']} lost {capture['dropped']} packets"
        for capture in captures
        if capture["dropped"]
    ]


def _flow_problems(flows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"flow {name}: the bytes received are not the bytes sent"
        for name, flow in flows.items()
        if not flow["receive"]["payload_ok"]
    ]
