"""The fidelity verdict: whether an emulated run met what its scenario declares.

A run that did not is `invalid`: kept, shown as such, out of every mean, and run again. A scenario may set limits of its
own, narrower or wider; what was lost is never allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What a run may deviate, and its links when they are calibrated."""

    #: Achieved rate of a busy direction against the declared one, as a share of it; in calibration too.
    rate: float = 0.005
    #: A link's delay in calibration against the declared one, in seconds.
    delay_s: float = 0.001
    #: How late the 99th of 100 packets may leave against its ideal time, or be taken up by a host whose TCP is a
    #: program of ours, in seconds.
    lateness_p99_s: float = 0.002
    #: Longest time in which the emulator, or such a host, did not run, in seconds: packets sent in it came late.
    stall_s: float = 0.05
    #: All such time over the run's duration.
    stalled_share: float = 0.01


LIMITS = Limits()
#: Strain of a run of which something was lost, or that was not ready at its zero: no measure of time says how near.
LOST_STRAIN = 2.0


def limits_of(scenario: Mapping[str, Any]) -> Limits:
    """The usual limits, or those of the scenario where it sets them."""
    return Limits(**scenario.get("fidelity", {}))


def wider(scenario: Mapping[str, Any]) -> list[str]:
    """What this scenario's limits allow beyond the usual ones, such as "delay 30 ms instead of 1 ms"."""
    usual, own = LIMITS, limits_of(scenario)
    ms, share = "{:g} ms", "{:g} %"
    rows = (
        ("rate", share, own.rate * 100, usual.rate * 100),
        ("delay", ms, own.delay_s * 1e3, usual.delay_s * 1e3),
        ("lateness", ms, own.lateness_p99_s * 1e3, usual.lateness_p99_s * 1e3),
        ("stall", ms, own.stall_s * 1e3, usual.stall_s * 1e3),
        ("stalled", share, own.stalled_share * 100, usual.stalled_share * 100),
    )
    return [
        f"{word} {form.format(value)} instead of {form.format(least)}"
        for word, form, value, least in rows
        if value > least
    ]


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
    found += _flow_problems(report["flows"], limits)
    late_s = float(report.get("armed_late_s", 0.0))
    if late_s > 0:  # every start time is wrong
        found.append(f"the senders were ready {late_s * 1e3:.0f} ms after the run's zero")
    return found


def strain(report: Mapping[str, Any], limits: Limits = LIMITS) -> float:
    """How near a run came to being invalid for the sake of what else its machine did: above 1 that made it invalid.

    The worst of its deviations over what is allowed. Of what is late, only the part counts for which other programs had
    the emulator's CPU: what a virtual machine's host takes, it takes from few cells as from many. Where the kernel does
    not tell the two apart, all of it counts.
    """
    late, lost = [0.0], bool(report.get("armed_late_s")) or any(capture["dropped"] for capture in report["captures"])
    ends, latest_s = [0.0], 0.0
    for link in report["driver"]["links"].values():
        for direction in ("forward", "reverse"):
            late.append((link[direction]["lateness_s"]["p99"] or 0.0) / limits.lateness_p99_s)
            late.append(abs(link[direction].get("rate_error") or 0.0) / limits.rate)
            lost = lost or bool(
                link[direction].get("lost_before_the_link") or link[direction].get("refused_by_interface")
            )
    for flow in report["flows"].values():
        for _, lateness_s in _ends(flow):
            ends += [lateness_s["p99"] / limits.lateness_p99_s, lateness_s["max"] / limits.stall_s]
            latest_s = max(latest_s, lateness_s["max"])
        ends.append(_started_late_s(flow) / limits.stall_s)
        latest_s = max(latest_s, _started_late_s(flow))
    stalls = report["driver"].get("stalls")
    if stalls is None:
        return LOST_STRAIN if lost else max(late + ends)
    late.append(stalls["longest_s"] / limits.stall_s)
    late.append(stalls["total_s"] / report["duration_s"] / limits.stalled_share)
    queued = _queued(stalls)
    # Links go before flows' ends, which may wait for others where no link does. What the host takes, it takes from all.
    by_host = latest_s <= stalls["longest_s"] * (1 - queued)
    return max(LOST_STRAIN if lost else 0.0, max(late) * queued, max(ends) * (queued if by_host else 1.0))


def _queued(stalls: Mapping[str, Any]) -> float:
    """The share of an emulator's stalls for which other programs had its CPU; all where the kernel does not tell."""
    queued_s, total_s = stalls.get("queued_s"), stalls["total_s"]
    return 1.0 if queued_s is None or not total_s else min(1.0, queued_s / total_s)


def _direction_problems(where: str, counters: Mapping[str, Any], limits: Limits) -> list[str]:
    found = []
    lost = counters.get("lost_before_the_link")
    if lost:
        found.append(f"{where}: the kernel dropped {lost} packets before the emulator read them")
    refused = counters.get("refused_by_interface")
    if refused:
        found.append(f"{where}: the interface at its end did not take {refused} packets")
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
    why = ""
    if stalls.get("queued_s") is not None:
        others = _queued(stalls) >= 0.5
        why = "; other programs had its CPU" if others else "; no other program had its CPU, so that its host took it"
    if stalls["longest_s"] > limits.stall_s:
        found.append(
            f"the emulator did not run for {stalls['longest_s'] * 1e3:.0f} ms; "
            f"at most {limits.stall_s * 1e3:g} ms is allowed{why}"
        )
    share = stalls["total_s"] / report["duration_s"]
    if share > limits.stalled_share:
        found.append(
            f"the emulator did not run for {share * 100:.1f} % of the time; "
            f"at most {limits.stalled_share * 100:g} % is allowed{why}"
        )
    return found


def _capture_problems(captures: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"the capture on {capture['interface']} lost {capture['dropped']} packets"
        for capture in captures
        if capture["dropped"]
    ]


def _flow_problems(flows: Mapping[str, Mapping[str, Any]], limits: Limits) -> list[str]:
    found = []
    for name, flow in flows.items():
        if not flow["receive"]["payload_ok"]:
            found.append(f"flow {name}: the bytes received are not the bytes sent")
        late_s = _started_late_s(flow)
        if late_s > limits.stall_s:
            found.append(
                f"flow {name}: its sender began {late_s * 1e3:.0f} ms late; "
                f"at most {limits.stall_s * 1e3:g} ms is allowed"
            )
        for end, lateness_s in _ends(flow):
            if lateness_s["p99"] > limits.lateness_p99_s:
                found.append(
                    f"flow {name}: its {end} took up one segment or timer in a hundred "
                    f"{lateness_s['p99'] * 1e3:.2f} ms late or more; "
                    f"at most {limits.lateness_p99_s * 1e3:g} ms is allowed"
                )
            if lateness_s["max"] > limits.stall_s:
                found.append(
                    f"flow {name}: its {end} took up a segment or timer {lateness_s['max'] * 1e3:.0f} ms late; "
                    f"at most {limits.stall_s * 1e3:g} ms is allowed"
                )
    return found


def _started_late_s(flow: Mapping[str, Mapping[str, Any]]) -> float:
    """How long after its time its sender began; 0 where nobody asked, as in virtual time."""
    return float(flow.get("send", {}).get("started_late_s", 0.0))


def _ends(flow: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, float]]]:
    """Its ends that are programs of ours and not the kernel, with how late they acted; none that had nothing to do."""
    told = [
        (name, flow.get(side, {}).get("lateness_s")) for name, side in (("sender", "send"), ("receiver", "receive"))
    ]
    return [(name, lateness_s) for name, lateness_s in told if lateness_s and lateness_s["max"] is not None]
