"""Mininet's words for an emulated link."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.mininet_link import common_fields, link_spec
from testbed.errors import TestbedError
from testbed.scenario import LinkSpec

WHERE = "the link a-b"


def spec(profile: str | None = None, forward: dict[str, Any] | None = None, **words: Any) -> LinkSpec:
    parameters = {name: words.get(name) for name in ("bw", "delay", "jitter", "loss", "max_queue_size", "policy")}
    common = common_fields(WHERE, **parameters)
    return link_spec(WHERE, "l", ("a", "b"), profile, None, {**common, **(forward or {})}, common)


def test_tclinks_parameters_mean_what_they_mean_there() -> None:
    made = spec(bw=10, delay="5ms", jitter="1ms", loss=2, max_queue_size=50)
    for _, direction in made.directions():
        assert direction.rate_bps == 10_000_000
        assert (direction.delay_s, direction.jitter_s, direction.keep_order) == (0.005, 0.001, False)
        assert direction.queue.as_json() == {"name": "droptail", "options": {"limit_packets": 50}}
        assert [error.options["probability"] for error in direction.errors] == [0.02]


def test_a_profile_and_a_campaigns_words_go_together() -> None:
    made = spec("adsl", {"rate": "8 Mbit/s"}, policy="codel", max_queue_size=30)
    assert (made.forward.rate_bps, made.reverse.rate_bps) == (8_000_000, 756_000)
    assert made.reverse.queue.name == "codel"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"bw": "fast"}, "the link a-b: bw='fast' is not a number of Mbit/s; it must be more than 0"),
        ({"bw": 0}, "the link a-b: bw=0 is not a number of Mbit/s; it must be more than 0"),
        ({"loss": 120}, "the link a-b: loss=120 is not a number of percent; it must be from 0 to 100"),
        ({"delay": 5}, "the link a-b: delay=5 has no unit; write a time like '5ms'"),
        ({"delay": "5ms", "jitter": 1}, "the link a-b: jitter=1 has no unit; write a time like '5ms'"),
        ({"delay": "5ms", "jitter": "6ms"}, "the jitter of 6 ms exceeds the delay of 5 ms; a packet cannot"),
        ({"delay": "5ms", "forward": {"keep_order": True}}, "'keep_order' needs a 'jitter'"),
        ({"max_queue_size": 0}, "the link a-b: max_queue_size=0 is not a number of packets; it must be 1 or more"),
        ({"policy": "codle"}, "codel"),
        ({"profile": "adsll"}, "adsl"),
        ({"forward": {"rat": "1 Mbit/s"}}, "rate"),
        ({"delay": "5 parsec"}, "forward.delay"),
    ],
)
def test_a_bad_parameter_is_explained(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TestbedError) as caught:
        spec(**words)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(WHERE)
