"""Links of every kind in campaign files: packet radio, one-way cable, traces, profiles, and what validation refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from experiments.language import registry, topologies
from experiments.language.network import Network
from testbed.scenario import LinkSpec
from tests.conftest import backchannel
from tests.support.campaign_texts import one_line
from tests.support.simulated import means

RADIO = """
name: radio
backend: sim
network:
  topology: packet-radio
  link: {kind: ricochet, hops: 1}
  forward: {rate: 100 kbit/s, delay: 10 ms, queue: {policy: droptail, limit: 10 packets}}
stack: {name: reno-ns, timestamps: false, ack_every: 1, packet: 1000 B, receive_buffer: 32 kB}
workload:
  - {name: bulk, from: server, to: mobile, start: [0 s, 1 s]}
duration: 100 s
capture: {telemetry: false}
repetitions: 3
"""
LINE = one_line("line", "", duration="10 s", stack="reno-ns")


def throughputs(text: str, tmp_path: Path) -> list[float]:
    """Mean bit/s of the flow `bulk` at each point."""
    return [point["throughput", "bulk"] for point in means(tmp_path, text)]


def refusal(text: str, tmp_path: Path) -> str:
    """What validation says to a file."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    done = backchannel("validate", file)
    assert done.returncode != 0
    return done.stderr + done.stdout


def test_each_hop_of_packet_radio_costs_more_than_its_share(tmp_path: Path) -> None:
    """asym table 5: throughput falls with the hops, faster than with 1/h for two; a frame and its ack bound one hop."""
    entry, two, three = throughputs(RADIO + "sweep: {network.link.hops: [1, 2, 3]}\n", tmp_path)
    assert 30_000 < entry < 64_000
    assert two < entry / 1.9
    assert three < two


def test_acks_gather_before_a_radio_so_that_filtering_them_helps(tmp_path: Path) -> None:
    """asym table 5: while the gateway's queue lasts the mobile cannot speak; each ack that it need not send is air."""
    droptail, filtering = (f"{{policy: {name}, limit: 10 packets}}" for name in ("droptail", "ack-filtering"))
    back = f"  reverse: {{rate: 100 kbit/s, delay: 10 ms, queue: {droptail}}}\nstack:"
    sweep = f"sweep: {{network.reverse.queue: [{droptail}, {filtering}]}}\n"
    text = RADIO.replace("stack:", back) + sweep
    reno, filtered = throughputs(text, tmp_path)
    assert filtered > 1.05 * reno


def test_several_mobiles_share_one_poletop(tmp_path: Path) -> None:
    """Three downloads get together what one gets, less the turns that the poletop changes between them."""
    text = RADIO.replace("  link:", "  mobiles: 3\n  link:").replace("to: mobile,", "to: mobile, count: 3,")
    (entry,) = throughputs(RADIO, tmp_path)
    (all_three,) = throughputs(text, tmp_path)
    assert 0.85 * entry < all_three < entry


def test_cable_down_and_radio_back_is_far_above_either_way_of_the_radio(tmp_path: Path) -> None:
    """20 times the radio's throughput, because only acks cross it (0.89 Mbit/s and 44 kbit/s)."""
    text = RADIO.replace("packet-radio", "hybrid").replace("to: mobile", "to: client")
    text = text.replace(
        "forward: {rate: 100 kbit/s", "forward: {rate: 10 Mbit/s, delay: 5 ms}\n  reverse: {rate: 100 kbit/s"
    )
    (radio,) = throughputs(RADIO, tmp_path)
    (hybrid,) = throughputs(text.replace("100 s", "20 s"), tmp_path)
    assert 16 * radio < hybrid < 25 * radio


def test_a_trace_gives_its_mean_rate_and_recorded_losses_take_theirs(tmp_path: Path) -> None:
    # One opportunity of 1504 bytes in 4 ms: 3 Mbit/s.
    (tmp_path / "cell.trace").write_text("".join(f"{ms}\n" for ms in range(4, 1001, 4)))
    (tmp_path / "loss.txt").write_text("0" * 499 + "1  # one in five hundred\n")
    traced = LINE.replace(
        "topology: line, forward: {rate: 1 Mbit/s,", "topology: line, link: mahimahi, forward: {trace: cell.trace,"
    )
    traced = traced.replace("delay: 10 ms}", "delay: 10 ms}, reverse: {trace: cell.trace}") + "variation: none\n"
    (clean,) = throughputs(traced, tmp_path)
    # Less headers and slow start.
    assert 0.85 * 3_008_000 < clean < 3_008_000 * 1460 / 1504
    (lossy,) = throughputs(
        traced.replace("delay: 10 ms}, rev", "delay: 10 ms, errors: [{model: recorded, trace: loss.txt}]}, rev"),
        tmp_path,
    )
    assert lossy < clean


def test_jitter_that_lets_packets_overtake_costs_tcp_more_than_jitter_in_order(tmp_path: Path) -> None:
    text = LINE.replace("1 Mbit/s, delay: 10 ms", "20 Mbit/s, delay: 10 ms, jitter: 5 ms, keep_order: false")
    text += "sweep: {network.forward.jitter: [0 ms, 5 ms], network.forward.keep_order: [true, false]}\n"
    none, none_too, ordered, overtaking = throughputs(text, tmp_path)
    assert none == none_too
    assert overtaking < ordered / 2 < none / 2


def test_a_profile_fills_in_what_the_file_leaves_out(tmp_path: Path) -> None:
    text = LINE.replace("forward: {rate: 1 Mbit/s, delay: 10 ms}", "profile: isdn-64, forward: {delay: 1 ms}")
    slow, fast = throughputs(text + "sweep: {network.profile: [dialup-9.6, isdn-128]}\n", tmp_path)
    assert slow < 9_600 < fast < 128_000


def test_a_profile_sets_the_options_of_its_kind_and_the_file_overrides_single_ones() -> None:
    def link(**fields: object) -> LinkSpec:
        network = Network.model_validate({"topology": "line", "profile": "docsis-3.0-200-20", **fields})
        return topologies.build(network, (), random.Random(0))[1][0]

    preset = registry.find("profile", "docsis-3.0-200-20").spec
    assert preset is not None
    assert link().kind == "grant"
    assert link(link="grant").options == link().options == preset.options
    for cycle in ("cycle", "cycle_s"):
        assert link(link={"kind": "grant", cycle: "1 ms"}).options == {**preset.options, "cycle_s": 0.001}
    other = link(link="point-to-point")
    assert (other.kind, other.options, other.reverse) == ("point-to-point", {}, preset.reverse)


@pytest.mark.parametrize("name", sorted(entry.name for entry in registry.of_kind("profile")))
def test_every_profile_is_a_link_of_a_campaign_file_as_declared(name: str) -> None:
    network = Network.model_validate({"topology": "line", "profile": name})
    (link,) = topologies.build(network, (), random.Random(0))[1]
    preset = registry.find("profile", name).spec
    assert preset is not None
    assert link == preset.replace(name="line", ends=("left", "right"))


def test_an_uplink_that_waits_for_grants_delays_a_ping_by_the_closed_form(tmp_path: Path) -> None:
    """Requests and MAPs of 2 ms, 4 ms to a grant: from 4 to 6 ms, 64 bytes at 122.88 Mbit/s, and 2 ms of delay."""
    grant = "link: {kind: grant, cycle: 2 ms, grant_delay: 4 ms, channel_rate: 122.88 Mbit/s}"
    text = LINE.replace("topology: line, forward: {rate: 1", f"topology: line, {grant}, forward: {{rate: 10")
    text = text.replace("delay: 10 ms", "delay: 1 ms").replace("duration: 10 s", "duration: 60 s")
    ping = "{name: ping, kind: probe, from: right, to: left, options: {protocol: icmp, interval: 10.01 ms}}"
    (point,) = means(tmp_path, text.replace("{name: bulk, from: left, to: right}", ping) + "variation: none\n")
    assert point["latency_p50", "ping"] == pytest.approx(0.005 + 0.002, abs=0.0002)


@pytest.mark.parametrize(
    "change", [("topology: line,", "topology: line, link: wavelan,"), ("delay: 10 ms", "delay: 10 ms, jitter: 10 ms")]
)
def test_links_at_the_bounds_of_what_is_valid_run(change: tuple[str, str], tmp_path: Path) -> None:
    assert throughputs(LINE.replace(*change), tmp_path)


def test_a_trace_that_is_missing_is_named(tmp_path: Path) -> None:
    text = LINE.replace("rate: 1 Mbit/s,", "rate: 1 Mbit/s, errors: [{model: recorded, trace: nix.txt}],")
    assert "nix.txt cannot be read" in refusal(text, tmp_path)


def test_a_line_with_a_clock_sends_at_ticks_and_real_packets_have_none(tmp_path: Path) -> None:
    clock = LINE.replace("delay: 10 ms", "delay: 10 ms, clock_tick: 10 ms")
    clock = clock.replace("1 Mbit/s", "800 kbit/s")
    # A packet of 1500 bytes takes 15 ms, two ticks: three quarters of the rate.
    with_clock, without = throughputs(clock, tmp_path), throughputs(clock.replace(", clock_tick: 10 ms", ""), tmp_path)
    assert with_clock[0] == pytest.approx(without[0] * 0.75, rel=0.01)
    real = clock.replace("backend: sim", "backend: emulated").replace("stack: reno-ns", "stack: cubic")
    assert "link 'line' forward: 'clock_tick' is for the backend sim" in refusal(real, tmp_path)
    device = clock.replace("clock_tick: 10 ms", "clock_tick: 10 ms, device_buffer: 1 KiB")
    assert "device_buffer_bytes (of a modem) exclude each other" in refusal(device, tmp_path)
