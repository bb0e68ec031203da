"""From a capture to advice on an ack filter: which side is local, how many transfers, and when the filter helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.results import Quantity
from analysis.statistics import RunKey
from experiments.uplink import trial
from experiments.uplink.answer import Answer, LinkRates, conclusion
from experiments.uplink.seen import Direction, Replayed, Seen, Shape, _Pair, at_once, local_side

DOWN = Quantity("packet_throughput", "download", "rate")
PING = Quantity("latency_p95", "ping", "time")


def test_private_addresses_are_local_where_they_talk_to_public_ones() -> None:
    pairs = [
        _Pair("192.168.1.4", "192.0.2.9", 10**6),
        # Documentation addresses are not public; 1.1.1.1 is.
        _Pair("1.1.1.1", "192.168.1.4", 10**7),
        _Pair("192.168.1.4", "1.1.1.1", 10**5),
        _Pair("100.64.0.7", "8.8.8.8", 10),
        _Pair("192.168.1.4", "192.168.1.1", 500),
        # Neither of these uses the line.
        _Pair("192.168.1.8", "192.168.1.9", 10**9),
    ]
    assert local_side(pairs) == (["100.64.0.7", "192.168.1.4"], "private addresses")


def test_otherwise_the_host_that_receives_most_is_local_with_its_prefix() -> None:
    pairs = [_Pair("10.1.0.2", "10.3.0.2", 10**6), _Pair("10.3.0.2", "10.1.0.2", 10**4)]
    assert local_side(pairs) == (["10.3.0.2"], "the host that receives most")
    pairs = [
        _Pair("2a00:1::1", "2a02:8::5", 10**6),
        _Pair("2a02:8::5", "2a00:1::1", 10**4),
        _Pair("2a02:8::6", "2a00:1::1", 10**4),
    ]
    assert local_side(pairs) == (["2a02:8::5", "2a02:8::6"], "the host that receives most")


def test_large_transfers_at_the_same_time_are_counted() -> None:
    mb = 10**6
    assert at_once([(0, 10, mb), (5, 15, mb), (12, 20, mb)]) == 2
    # One ends as the next begins: both may have been there.
    assert at_once([(0, 10, mb), (10, 20, mb)]) == 2
    assert at_once([(0, 10, 100 * mb), (0, 10, mb)]) == 1
    assert at_once([(0, 10, 2000), (0, 10, 3000)]) == 0
    assert at_once([(0, 10, mb)] * 12) == 8
    assert at_once([]) == 0


def test_a_capture_shorter_than_a_second_has_the_rate_of_all_of_it() -> None:
    way = Direction(100, 16_000, 100, 4_000, 4_000, 0, 0, 16_000)
    seen = Seen((), "", 0.2, way, way, 0, (), Shape(1, 0, 0, 0.04, True))
    assert seen.busiest_bps(way) == 640_000
    assert replace(seen, duration_s=20.0).busiest_bps(way) == 128_000


@pytest.mark.parametrize(("up_bps", "interval_s"), [(2e6, 0.05), (25_600, 0.4)])
def test_pings_take_a_twentieth_of_the_uplink_at_most(up_bps: float, interval_s: float) -> None:
    plan = trial.plan("c.pcap", Shape(1, 0, 0, 0.04, True), up_bps, 1e6, "cake", 3)
    (ping,) = (flow for flow in plan.runs[0].scenario.workload if flow.name == "ping")
    assert ping.options is not None
    assert ping.options["interval_s"] == pytest.approx(interval_s)


def effect(quantity: Quantity, off: list[float], on: list[float]) -> trial.Effect:
    sides = [{quantity: {RunKey(number, number): value for number, value in enumerate(side)}} for side in (off, on)]
    (found,) = trial.effects(dict(enumerate(sides)), {0: trial.OFF, 1: trial.ON})
    return found


BETTER = effect(DOWN, [5.0, 5.1, 5.2, 5.05], [9.0, 9.1, 9.3, 9.0])
WORSE = effect(PING, [0.020, 0.021, 0.022, 0.0205], [0.140, 0.141, 0.142, 0.1411])
LONGER = effect(PING, [0.020, 0.021, 0.022, 0.0205], [0.040, 0.041, 0.042, 0.0411])
SAME = effect(DOWN, [5.0, 5.1, 5.2, 5.05], [5.001, 5.101, 5.199, 5.05])
UNSURE = effect(DOWN, [5.0, 7.1, 3.2, 5.05], [6.0, 3.1, 7.3, 5.0])


@pytest.mark.parametrize(
    ("effects", "advice"),
    [
        ([BETTER], "on"),
        ([BETTER, SAME, UNSURE], "on"),
        ([WORSE, SAME], "off"),
        # A longer ping below 100 ms decides nothing by itself.
        ([BETTER, LONGER], "on"),
        ([LONGER, SAME], "cannot tell"),
        ([BETTER, WORSE], "mixed"),
        ([SAME], "no difference"),
        ([SAME, UNSURE], "cannot tell"),
        ([], "cannot tell"),
    ],
)
def test_advice_is_better_by_something_and_worse_by_nothing(effects: list[trial.Effect], advice: str) -> None:
    assert trial.advice(effects) == advice


def test_without_a_valid_run_nothing_is_called_the_same() -> None:
    queue = Replayed(1, 1, 1, 0, 0, 0.0, 0.0)
    direction = Direction(1, 1, 1, 1, 1, 0, 0, 1)
    traffic = Seen(["a"], "", 1.0, direction, direction, 0, (), Shape(0, 0, 0, 0.04, rtt_is_measured=False))
    without = Answer(traffic, LinkRates(1e6, 1e6, False, False), (queue, queue), advice="no difference")
    assert conclusion(without).startswith("Nothing was simulated: ")
    assert conclusion(replace(without, campaign="c", advice="cannot tell")).startswith("No simulated run is valid")
    assert conclusion(replace(without, campaign="c", effects=[SAME])).startswith("It does not matter")


@pytest.mark.parametrize("queue", trial.QUEUES)
def test_the_campaign_has_the_captures_shape_and_differs_in_the_filter_alone(queue: str) -> None:
    plan = trial.plan("home 'line'.pcap: 1", Shape(2, 1, 1, 0.03, rtt_is_measured=True), 2e6, 100e6, queue, 4)
    off, on = (scenario for _, scenario in plan.first_scenarios())
    names = [flow.name for flow in off.workload]
    assert names == ["download-1", "download-2", "quic", "upload", "ping"]
    assert [flow.stack["name"] for flow in off.workload if flow.stack] == ["quic"]
    line, other = (next(link for link in each.links if link.name == "bottleneck") for each in (off, on))
    assert line.reverse is not None
    assert other.reverse is not None
    assert line.forward == other.forward
    assert other.reverse.queue.name == "ack-filtering"
    child = other.reverse.queue.options["child"]
    assert (child["name"], child["options"]) == (line.reverse.queue.name, line.reverse.queue.options)
    assert plan.repetitions == 4
