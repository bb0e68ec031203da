"""The arithmetic of calibration and of the fidelity verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import fidelity, kernel_links, probing


def link(rate_bps: int | None = 28_800, delay_s: float = 0.05) -> dict[str, Any]:
    direction = {"rate_bps": rate_bps, "delay_s": delay_s, "queue": {"name": "droptail", "options": {}}}
    return {"name": "line", "kind": "point-to-point", "options": {}, "forward": direction, "reverse": direction}


def arrivals(train: probing.Train, rate_bps: float, delay_s: float, lost: tuple[int, ...] = ()) -> dict[str, Any]:
    """What an exact line would do with a train."""
    packet_s = train.size_bytes * 8 / rate_bps
    packets = []
    for seq in range(train.total):
        if seq < train.burst:
            sent, received = 0.0, (seq + 1) * packet_s + delay_s
        else:
            sent = train.burst * packet_s + (seq - train.burst + 1) * train.interval_s
            received = sent + packet_s + delay_s
        if seq not in lost:
            packets.append({"seq": seq, "sent_ns": round(sent * 1e9), "received_ns": round(received * 1e9)})
    return {"packets": packets}


def report(train: probing.Train, error_losses: int = 0) -> dict[str, Any]:
    counters = {
        "error_losses": error_losses,
        "transmitted_packets": train.total,
        "transmitted_wire_bytes": train.total * train.size_bytes,
    }
    return {"links": {"line": {"forward": counters, "reverse": counters}}}


def measure(real_bps: float, real_delay_s: float, lost: tuple[int, ...] = (), taken: int = 0) -> probing.Measurement:
    declared = link()
    train = probing.train_for(declared, "forward")
    received = arrivals(train, real_bps, real_delay_s, lost)
    return probing.hold_against(probing.Probed(declared, "forward", train, received), report(train, taken))


def test_an_exact_line_passes() -> None:
    result = measure(28_800, 0.05)
    assert result.problems == ()
    assert result.measured_rate_bps == pytest.approx(28_800)
    assert result.measured_delay_s == pytest.approx(0.05)


def test_one_percent_of_rate_is_too_much() -> None:
    assert "rate 28512" in measure(28_512, 0.05).problems[0]


def test_two_milliseconds_of_delay_are_too_much() -> None:
    assert measure(28_800, 0.052).problems == ("delay 52.00 ms instead of 50.00 ms",)


def test_a_lost_packet_is_told_unless_the_error_model_took_it() -> None:
    assert measure(28_800, 0.05, lost=(3,)).problems == ("1 of 14 packets lost, 0 of them by the error model",)
    assert measure(28_800, 0.05, lost=(3,), taken=1).problems == ()


def test_what_seems_off_is_measured_again_and_believed_in_the_end() -> None:
    """'shaken' is off once, 'wrong' always; 'good' is measured once."""
    rounds: list[set[str]] = []

    def measured(links: set[str]) -> list[dict[str, Any]]:
        rounds.append(links)
        off = {"wrong"} if len(rounds) > 1 else {"wrong", "shaken"}
        return [
            {"link": name, "direction": way, "round": len(rounds), "problems": ("off",) if name in off else ()}
            for name in sorted(links)
            for way in ("forward", "reverse")
        ]

    found = probing.in_rounds({"good", "shaken", "wrong"}, measured)
    assert rounds == [{"good", "shaken", "wrong"}, {"shaken", "wrong"}, {"wrong"}]
    assert [(one["link"], one["round"], one["problems"]) for one in found] == [
        ("good", 1, ()), ("good", 1, ()), ("shaken", 2, ()), ("shaken", 2, ()), ("wrong", 3, ("off",)),
        ("wrong", 3, ("off",)),
    ]  # fmt: skip


@pytest.mark.parametrize("rate_bps", [9_600, 28_800, 1_000_000, 10_000_000, 100_000_000, None])
def test_a_train_fits_its_line(rate_bps: int | None) -> None:
    train = probing.train_for(link(rate_bps), "forward")
    assert probing.MIN_BURST <= train.burst <= probing.MAX_BURST
    assert train.patience_s < 30


@pytest.mark.parametrize("framing", ["none", "slip", "ppp"])
@pytest.mark.parametrize("bits_per_byte", [8, 10])
def test_a_serial_line_is_given_the_time_of_its_bits(framing: str, bits_per_byte: int) -> None:
    """An exact line passes, whose packets take framing, start and stop bits, and a delimiter more where it was idle."""
    declared = link(rate_bps=9_600)
    declared["forward"]["options"] = {"framing": framing, "bits_per_byte": bits_per_byte}
    probed = probing.for_probing(declared)
    assert probed["forward"]["options"].get("accm") == (0 if framing == "ppp" else None)
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
        packets.append({"seq": seq, "sent_ns": round(at * 1e9), "received_ns": round((free + 0.05) * 1e9)})
    counters = {
        "error_losses": 0, "transmitted_packets": train.total, "transmitted_wire_bytes": wire * bits_per_byte / 8,
    }  # fmt: skip
    report = {"links": {"line": {"forward": counters}}}
    result = probing.hold_against(probing.Probed(probed, "forward", train, {"packets": packets}), report)
    assert result.problems == ()
    assert result.measured_delay_s == pytest.approx(0.05, abs=1e-5)


def run_report(**changes: Any) -> dict[str, Any]:
    ordinary = {"rate_error": 0.0001, "lateness_s": {"p99": 0.0002}, "lost_before_the_link": 0}
    counters = ordinary | changes.pop("counters", {})
    stalls = {"count": 3, "total_s": 0.02, "longest_s": 0.018} | changes.pop("stalls", {})
    return {
        "driver": {"links": {"line": {"forward": counters, "reverse": counters}}, "stalls": stalls},
        "duration_s": 20.0,
        "captures": [{"interface": "a-eth0", "dropped": changes.pop("dropped", 0)}],
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
    }


def test_a_good_run_is_valid() -> None:
    assert fidelity.problems(run_report()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counters": {"rate_error": -0.006}}, "rate was off by -0.60 %"),
        ({"counters": {"lateness_s": {"p99": 0.003}}}, "left 3.00 ms late"),
        ({"counters": {"lost_before_the_link": 7}}, "dropped 7 packets before"),
        ({"stalls": {"longest_s": 0.2}}, "did not run for 200 ms"),
        ({"stalls": {"total_s": 0.5}}, "did not run for 2.5 % of the time"),
        ({"dropped": 2}, "lost 2 packets"),
        ({"payload_ok": False}, "not the bytes sent"),
        ({"armed_late_s": 0.02}, "20 ms after the run's zero"),
        ({"sender": {"p99": 0.004}}, "flow bulk: its sender took up one segment or timer in a hundred 4.00 ms late"),
        ({"sender": {"max": 0.2}}, "flow bulk: its sender took up a segment or timer 200 ms late"),
        ({"started_late_s": 0.06}, "flow bulk: its sender began 60 ms late; at most 50 ms is allowed"),
        ({"counters": {"refused_by_interface": 3}}, "line forward: the interface at its end did not take 3 packets"),
    ],
)
def test_each_fault_makes_a_run_invalid(changes: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in fidelity.problems(run_report(**changes)))


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
def test_the_strain_of_a_run_is_what_other_programs_did_to_it(changes: dict[str, Any], strain: float) -> None:
    assert fidelity.strain(run_report(**changes)) == pytest.approx(strain, rel=0.01)


def test_a_scenario_may_set_limits_of_its_own() -> None:
    late = run_report(counters={"lateness_s": {"p99": 0.003}, "rate_error": 0.004})
    assert len(fidelity.problems(late)) == 2
    assert fidelity.problems(late, fidelity.limits_of({"fidelity": {"lateness_p99_s": 0.004}})) == []
    assert len(fidelity.problems(late, fidelity.limits_of({"fidelity": {"rate": 0.003}}))) == 4
    assert fidelity.strain(late, fidelity.limits_of({"fidelity": {"lateness_p99_s": 0.03}})) < fidelity.strain(late)
    lost = run_report(dropped=2)
    assert fidelity.problems(lost, fidelity.Limits(1, 10, 10, 10, 1)) == fidelity.problems(lost) != []
    declared = link()
    train = probing.train_for(declared, "forward")
    probed = probing.Probed(declared, "forward", train, arrivals(train, 28_512, 0.07))
    assert len(probing.hold_against(probed, report(train)).problems) == 2
    assert probing.hold_against(probed, report(train), fidelity.Limits(rate=0.02, delay_s=0.03)).problems == ()


def test_who_had_the_cpu_is_said() -> None:
    stalled = {"longest_s": 0.2, "total_s": 0.2}
    assert fidelity.problems(run_report(stalls=stalled | {"queued_s": 0.15}))[0].endswith("other programs had its CPU")
    assert fidelity.problems(run_report(stalls=stalled | {"queued_s": 0.02}))[0].endswith("so that its host took it")


def test_a_direction_without_a_busy_period_is_no_yardstick_for_its_rate() -> None:
    assert fidelity.problems(run_report(counters={"rate_error": None})) == []


@given(
    rate_bps=st.integers(2_400, 1_000_000_000),
    off=st.sampled_from([0.99, 1.0, 1.01]),
    burst_bytes=st.sampled_from([None, 4_000, 40_000]),
    shaper=st.sampled_from(["htb", "tbf", "cake", "netem"]),
)
def test_what_a_kernels_bucket_lets_pass_at_once_is_no_part_of_its_rate(
    rate_bps: int, off: float, burst_bytes: int | None, shaper: str
) -> None:
    """A bucket lets a packet go while it is not overdrawn, counted by the byte; netem keeps each for its time."""
    options = {"shaper": shaper} | ({"burst_bytes": burst_bytes} if burst_bytes else {})
    declared = link(rate_bps) | {"kind": "kernel", "options": options}
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
        packets.append({"seq": seq, "sent_ns": round(sent * 1e9), "received_ns": round((leaves + 0.05) * 1e9)})
    result = probing.hold_against(probing.Probed(declared, "forward", train, {"packets": packets}), report(train))
    assert result.measured_rate_bps == pytest.approx(rate_bps * off, rel=1e-3)
    assert bool(result.problems) == (off != 1.0)
