"""The arithmetic of calibration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from testbed import kernel_links, probing
from testbed.report import Arrival, DirectionReport, Measurement
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


def test_a_line_passes_with_its_rate_delay_and_packets_only() -> None:
    result = measure(28_800, 0.05)
    assert result.problems == measure(28_800, 0.05, lost=(3,), taken=1).problems == ()
    assert result.measured_rate_bps == pytest.approx(28_800)
    assert result.measured_delay_s == pytest.approx(0.05)
    assert "rate 28512" in measure(28_512, 0.05).problems[0]
    assert measure(28_800, 0.052).problems == ("delay 52.00 ms instead of 50.00 ms",)
    assert measure(28_800, 0.05, lost=(3,)).problems == ("1 of 14 packets lost, 0 of them by the error model",)


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


def test_wider_limits_pass_a_measurement() -> None:
    declared = link()
    train = probing.train_for(declared, "forward")
    probed = probing.Probe(declared, "forward", train, arrivals(train, 28_512, 0.07))
    assert len(probing.measurement(probed, report(train)).problems) == 2
    assert probing.measurement(probed, report(train), Limits(rate=0.02, delay_s=0.03)).problems == ()


@given(
    rate_bps=st.integers(2_400, 1_000_000_000),
    off=st.sampled_from([0.99, 1.0, 1.01]),
    burst_bytes=st.sampled_from([None, 4_000, 40_000]),
    shaper=st.sampled_from(["htb", "tbf", "cake", "netem"]),
)
def test_the_rate_is_without_a_buckets_burst(rate_bps: int, off: float, burst_bytes: int | None, shaper: str) -> None:
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
