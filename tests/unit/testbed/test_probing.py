"""The arithmetic of calibration and of the fidelity verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from testbed import fidelity, kernel_links, probing
from testbed.report import Arrival, DirectionReport, Measurement, Problem, ProblemKind, Report
from testbed.scenario import DirectionSpec, Limits, LinkSpec, Named


def link(rate_bps: int | None = 28_800, delay_s: float = 0.05, **options: Any) -> LinkSpec:
    direction = DirectionSpec(rate_bps=rate_bps, delay_s=delay_s, queue=Named(name="droptail"), options=options)
    return LinkSpec(name="line", kind="point-to-point", ends=("a", "b"), forward=direction, reverse=direction)


def arrivals(train: probing.Train, rate_bps: float, delay_s: float, lost: tuple[int, ...] = ()) -> list[Arrival]:
    """A train on an exact line."""
    packet_s = train.size_bytes * 8 / rate_bps
    packets = []
    for seq in range(train.total):
        if seq < train.burst:
            sent, received = 0.0, (seq + 1) * packet_s + delay_s
        else:
            sent = train.burst * packet_s + (seq - train.burst + 1) * train.interval_s
            received = sent + packet_s + delay_s
        if seq not in lost:
            packets.append(Arrival(seq=seq, sent_ns=round(sent * 1e9), received_ns=round(received * 1e9)))
    return packets


def report(train: probing.Train, error_losses: int = 0) -> DirectionReport:
    return DirectionReport(
        error_losses=error_losses,
        transmitted_packets=train.total,
        transmitted_wire_bytes=train.total * train.size_bytes,
    )


def measure(real_bps: float, real_delay_s: float, lost: tuple[int, ...] = (), taken: int = 0) -> Measurement:
    declared = link()
    train = probing.train_for(declared, "forward")
    received = arrivals(train, real_bps, real_delay_s, lost)
    return probing.measurement(probing.Probe(declared, "forward", train, received), report(train, taken))


def test_an_exact_line_passes() -> None:
    result = measure(28_800, 0.05)
    assert result.problems == ()
    assert result.measured_rate_bps == pytest.approx(28_800)
    assert result.measured_delay_s == pytest.approx(0.05)


def test_one_percent_of_rate_is_too_much() -> None:
    assert "rate 28512" in measure(28_512, 0.05).problems[0]


def test_two_milliseconds_of_delay_are_too_much() -> None:
    assert measure(28_800, 0.052).problems == ("delay 52.00 ms instead of 50.00 ms",)


def test_a_lost_packet_is_reported_unless_the_error_model_took_it() -> None:
    assert measure(28_800, 0.05, lost=(3,)).problems == ("1 of 14 packets lost, 0 of them by the error model",)
    assert measure(28_800, 0.05, lost=(3,), taken=1).problems == ()


def test_a_deviating_link_is_measured_again_and_reported_after_the_last_round() -> None:
    """'shaken' deviates once, 'wrong' always. 'good' is measured once."""
    rounds: list[set[str]] = []

    def measured(links: set[str]) -> list[Measurement]:
        rounds.append(links)
        off = {"wrong"} if len(rounds) > 1 else {"wrong", "shaken"}
        return [
            measure(28_800, 0.05).replace(
                link=name, direction=way, sent=len(rounds), problems=("off",) if name in off else ()
            )
            for name in sorted(links)
            for way in ("forward", "reverse")
        ]

    result = probing.in_rounds({"good", "shaken", "wrong"}, measured)
    assert rounds == [{"good", "shaken", "wrong"}, {"shaken", "wrong"}, {"wrong"}]
    assert [(entry.link, entry.sent, entry.problems) for entry in result] == [
        ("good", 1, ()), ("good", 1, ()), ("shaken", 2, ()), ("shaken", 2, ()), ("wrong", 3, ("off",)),
        ("wrong", 3, ("off",)),
    ]  # fmt: skip


@pytest.mark.parametrize("rate_bps", [9_600, 28_800, 1_000_000, 10_000_000, 100_000_000, None])
def test_a_train_fits_its_line(rate_bps: int | None) -> None:
    train = probing.train_for(link(rate_bps), "forward")
    assert probing.MIN_BURST <= train.burst <= probing.MAX_BURST
    assert train.patience_s < 30


@pytest.mark.parametrize(
    ("rate_bps", "mtu_bytes", "size"), [(1_000_000, 552, 552), (9_600, 552, 500), (None, None, 1500)]
)
def test_a_train_fits_the_mtu(rate_bps: int | None, mtu_bytes: int | None, size: int) -> None:
    assert probing.train_for(link(rate_bps), "forward", mtu_bytes).size_bytes == size


@pytest.mark.parametrize("framing", ["none", "slip", "ppp"])
@pytest.mark.parametrize("bits_per_byte", [8, 10])
def test_calibration_accounts_for_framing_and_start_and_stop_bits(framing: str, bits_per_byte: int) -> None:
    """An exact line passes when packets take framing, start and stop bits, and one more delimiter after idle time."""
    probed = probing.for_probing(link(rate_bps=9_600, framing=framing, bits_per_byte=bits_per_byte))
    assert probed.forward.options.get("accm") == (0 if framing == "ppp" else None)
    train = probing.train_for(probed, "forward")
    framed = train.size_bytes + {"none": 0, "slip": 1, "ppp": 7}[framing]
    byte_s = bits_per_byte / 9_600
    idle, free, wire, packets = int(framing != "none"), 0.0, 0, []
    for seq in range(train.total):
        at = 0.0 if seq < train.burst else train.pause_s + (seq - train.burst) * train.interval_s
        length = framed + (idle if at >= free else 0)
        assert seq == 0 or seq < train.burst or at >= free, "the line is idle when a single packet comes"
        free = max(at, free) + length * byte_s
        wire += length
        packets.append(Arrival(seq=seq, sent_ns=round(at * 1e9), received_ns=round((free + 0.05) * 1e9)))
    counters = DirectionReport(transmitted_packets=train.total, transmitted_wire_bytes=wire * bits_per_byte / 8)
    result = probing.measurement(probing.Probe(probed, "forward", train, packets), counters)
    assert result.problems == ()
    assert result.measured_delay_s == pytest.approx(0.05, abs=1e-5)


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


def texts(problems: list[Problem]) -> list[str]:
    return [problem.sentence for problem in problems]


def test_a_good_run_is_valid() -> None:
    assert fidelity.problems(run_report()) == []


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"counters": {"rate_error": -0.006}}, ProblemKind.RATE, "rate was off by -0.60 %"),
        ({"counters": {"lateness_s": {"p99": 0.003}}}, ProblemKind.LATE, "left 3.00 ms late"),
        ({"counters": {"lost_before_the_link": 7}}, ProblemKind.LOST, "dropped 7 packets before"),
        (
            {"counters": {"lost_before_the_link": None}},
            ProblemKind.LOST,
            "may have dropped packets (the interface is gone)",
        ),
        ({"stalls": {"longest_s": 0.2}}, ProblemKind.STALLED, "did not run for 200 ms"),
        ({"stalls": {"total_s": 0.5}}, ProblemKind.STALLED, "did not run for 2.5 % of the time"),
        ({"dropped": 2}, ProblemKind.CAPTURE, "lost 2 packets"),
        ({"payload_ok": False}, ProblemKind.PAYLOAD, "not the bytes sent"),
        ({"armed_late_s": 1.25}, ProblemKind.LATE, "1250 ms after the run's zero"),
        (
            {"sender": {"p99": 0.004}},
            ProblemKind.LATE,
            "flow bulk: its sender handled one segment or timer in a hundred 4.00 ms late",
        ),
        ({"sender": {"max": 0.2}}, ProblemKind.LATE, "flow bulk: its sender handled a segment or timer 200 ms late"),
        (
            {"started_late_s": 0.06},
            ProblemKind.LATE,
            "flow bulk: its sender started 60 ms late; at most 50 ms is allowed",
        ),
        (
            {"counters": {"refused_by_interface": 3}},
            ProblemKind.LOST,
            "line forward: the receiving interface did not take 3 packets",
        ),
    ],
)
def test_each_fault_makes_a_run_invalid(changes: dict[str, Any], kind: ProblemKind, text: str) -> None:
    problems = fidelity.problems(run_report(**changes))
    assert {problem.kind for problem in problems} == {kind}
    assert any(text in problem.sentence for problem in problems)


@pytest.mark.parametrize(
    ("changes", "strain"),
    [
        ({}, 0.36),
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
    late = run_report(counters={"lateness_s": {"p99": 0.003}, "rate_error": 0.004})
    assert len(fidelity.problems(late)) == 2
    assert fidelity.problems(late, Limits(lateness_p99_s=0.004)) == []
    assert len(fidelity.problems(late, Limits(rate=0.003))) == 4
    assert fidelity.worst_limit_ratio(late, Limits(lateness_p99_s=0.03)) < fidelity.worst_limit_ratio(late)
    lost = run_report(dropped=2)
    assert (
        fidelity.problems(lost, Limits(rate=1, delay_s=10, lateness_p99_s=10, stall_s=10, stalled_share=1))
        == fidelity.problems(lost)
        != []
    )
    declared = link()
    train = probing.train_for(declared, "forward")
    probed = probing.Probe(declared, "forward", train, arrivals(train, 28_512, 0.07))
    assert len(probing.measurement(probed, report(train)).problems) == 2
    assert probing.measurement(probed, report(train), Limits(rate=0.02, delay_s=0.03)).problems == ()


def test_the_message_names_the_cause_of_a_stall() -> None:
    stalled = {"longest_s": 0.2, "total_s": 0.2}
    assert texts(fidelity.problems(run_report(stalls=stalled | {"queued_s": 0.15})))[0].endswith(
        "other programs used its CPU"
    )
    assert texts(fidelity.problems(run_report(stalls=stalled | {"queued_s": 0.02})))[0].endswith(
        "the hypervisor took it"
    )


def test_a_direction_without_a_busy_period_has_no_rate_problem() -> None:
    assert fidelity.problems(run_report(counters={"rate_error": None})) == []


@given(
    rate_bps=st.integers(2_400, 1_000_000_000),
    off=st.sampled_from([0.99, 1.0, 1.01]),
    burst_bytes=st.sampled_from([None, 4_000, 40_000]),
    shaper=st.sampled_from(["htb", "tbf", "cake", "netem"]),
)
def test_the_burst_of_a_token_bucket_does_not_count_towards_the_rate(
    rate_bps: int, off: float, burst_bytes: int | None, shaper: str
) -> None:
    """A bucket passes a packet while it is not overdrawn, counted in bytes. Netem delays each packet by its time."""
    options = {"shaper": shaper} | ({"burst_bytes": burst_bytes} if burst_bytes else {})
    declared = link(rate_bps).replace(kind="kernel", options=options)
    train = probing.train_for(declared, "forward")
    held = kernel_links.burst_bytes(rate_bps, options)
    byte_s, tokens, at, free, packets = 8 / (rate_bps * off), float(held), 0.0, 0.0, []
    for seq in range(train.total):
        sent = 0.0 if seq < train.burst else train.pause_s + (seq - train.burst) * train.interval_s
        leaves = max(sent, free)
        tokens = min(held, tokens + (leaves - at) / byte_s)
        at = leaves
        if held == 0:
            leaves = free = leaves + train.size_bytes * byte_s
        else:
            tokens -= train.size_bytes
            free = at + max(0.0, -tokens) * byte_s
        packets.append(Arrival(seq=seq, sent_ns=round(sent * 1e9), received_ns=round((leaves + 0.05) * 1e9)))
    result = probing.measurement(probing.Probe(declared, "forward", train, packets), report(train))
    assert result.measured_rate_bps == pytest.approx(rate_bps * off, rel=1e-3)
    assert bool(result.problems) == (off != 1.0)
