"""The traffic of a capture in simulation, with an ack filter before the uplink and without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from analysis.metrics import title_of
from analysis.question import better_of
from analysis.results import Quantity, Values, of_subject
from analysis.statistics import LEVEL, MARGIN, Compared, judged
from experiments.language import campaign, source

if TYPE_CHECKING:
    from experiments.language.campaign import Plan
    from experiments.uplink.seen import Shape

#: The queue before both directions of the line, below the filter. CAKE shapes, so the line itself is twice as fast.
QUEUES: Mapping[str, str] = {
    "cake": "{{policy: cake, rate: {rate_bps} bit/s}}",
    "fq-codel": "{{policy: fq-codel, target: {target_ms:g} ms}}",
    "droptail": "{{policy: droptail, limit: {limit} packets}}",
}
#: Bits that a run carries at most, and its length, in s.
MOST_BITS, LONGEST_S, WARM_UP_S = 2e9, 20.0, 5.0
#: Metrics that are compared, with their subjects.
COMPARED = (("packet_throughput", "download"), ("packet_throughput", "upload"), ("latency_p95", "ping"))
OFF, ON = "off", "on"
#: A ping that grows counts from this on, in s: with the half of it, a frame and a jitter buffer of 60 ms, speech takes
#: 130 ms from mouth to ear, where ITU-T G.114 allows 150. A line that carries more has a queue where it had none.
NOTICED_S = 0.1
#: Seconds between pings, and the share of the uplink that they take at most: on a slow link they would be its load.
PING_S, PING_SHARE = 0.05, 0.05
#: A ping at the network layer.
PING_BYTES = 64

TEXT = """# What {capture} shows of a link, simulated with an ack filter before its uplink and without: written by
# ./backchannel ack-filter.
name: ack-filter-trial
title: {title}
backend: sim
network:
  topology: asymmetric-path
  forward: {{rate: {down_line_bps} bit/s, delay: {delay_ms:g} ms, queue: {down_queue}}}
  reverse: {{rate: {up_line_bps} bit/s, delay: {delay_ms:g} ms, queue: {queue}}}
  access: {{rate: {access_bps} bit/s, delay: 0.1 ms, queue: {{policy: droptail, limit: 100000 packets}}}}
stack: {{name: modern, receive_buffer: 16 MB}}
workload:
{flows}  - name: ping
    kind: probe
    from: client
    to: server
    start: [0 s, 0.1 s]
    options: {{protocol: icmp, interval: {ping_ms:g} ms}}
duration: {duration_s:g} s
warm_up: {warm_up_s:g} s
repetitions: {repetitions}
seed: 58
capture: {{at: [none], counters: {{every: 0.5 s, at: [bottleneck]}}}}
sweep:
  axes:
    filter:
      "off": {{network.reverse.queue: {queue}}}
      "on": {{network.reverse.queue: {{policy: ack-filtering, filter_sack: true, child: {queue}}}}}
question: {{metric: packet_throughput, of: {asked}}}
"""
FLOW = "  - {{name: {name}, from: {sender}, to: {receiver}, count: {count}, start: [0 s, 1 s]{stack}}}\n"

Advice = Literal["on", "off", "mixed", "no difference", "cannot tell", "nothing to filter"]


@dataclass(frozen=True)
class Effect:
    """What the filter changes."""

    quantity: Quantity
    off: Values
    on: Values
    #: On less off; all effects share the error.
    compared: Compared

    @property
    def is_better(self) -> bool | None:
        """Whether the filter is better or worse by this; None where it is the same or nobody can tell."""
        if self.compared.verdict != "different":
            return None
        grows = self.compared.difference.value > 0
        return grows == (better_of(self.quantity.metric) == "more")

    @property
    def counts(self) -> bool | None:
        """The same, without a longer ping that nobody notices."""
        is_short = self.quantity.unit == "time" and self.compared.difference.mean_second <= NOTICED_S
        return None if is_short and self.is_better is False else self.is_better


def plan(capture: str, shape: Shape, up_bps: float, down_bps: float, queue: str, repetitions: int) -> Plan:
    """The campaign.

    Args:
        capture: name of the capture, for its title.
        shape: what flows it has.
        up_bps: rate of the uplink.
        down_bps: rate of the downlink.
        queue: of QUEUES.
        repetitions: runs with and without the filter.
    """
    kinds = (
        ("download", "server", "client", shape.downloads, ""),
        ("quic", "server", "client", shape.quic_downloads, ", stack: {name: quic, receive_buffer: 16 MB}"),
        ("upload", "client", "server", shape.uploads, ""),
    )
    flows = [FLOW.format(name=n, sender=s, receiver=r, count=c, stack=stack) for n, s, r, c, stack in kinds if c]
    line = 2 if queue == "cake" else 1
    text = TEXT.format(
        capture=capture.replace("\n", " "),
        title=json.dumps(f"An ack filter on the link of {capture}"),
        up_line_bps=round(up_bps * line),
        down_line_bps=round(down_bps * line),
        queue=_queue(queue, up_bps),
        down_queue=_queue(queue, down_bps),
        access_bps=round(10 * max(up_bps, down_bps)),
        delay_ms=max(0.0, 500 * shape.rtt_s - 0.2),
        flows="".join(flows),
        ping_ms=1e3 * max(PING_S, 8 * PING_BYTES / (PING_SHARE * up_bps)),
        duration_s=WARM_UP_S + min(LONGEST_S, max(5.0, MOST_BITS / max(up_bps, down_bps))),
        warm_up_s=WARM_UP_S,
        repetitions=repetitions,
        asked="download" if shape.downloads else "upload",
    )
    return campaign.expand(source.parse("ack-filter-trial.yaml", text))


def _queue(name: str, rate_bps: float) -> str:
    """A queue as campaigns have it, for a line of a rate."""
    packet_s = 8 * 1514 / rate_bps
    return QUEUES[name].format(
        rate_bps=round(rate_bps),
        target_ms=1e3 * max(0.005, 1.5 * packet_s),
        # A tenth of a second, as modems without queue management have at least.
        limit=max(20, round(0.1 * rate_bps / 8 / 1500)),
    )


def effects(values: Mapping[int, Mapping[Quantity, Values]], points: Mapping[int, str]) -> list[Effect]:
    """What the filter changes.

    Args:
        values: of the campaign's points.
        points: OFF or ON, by the number of the point.
    """
    sides = {label: values.get(number, {}) for number, label in points.items()}
    found = [
        (quantity, off, sides[ON][quantity])
        for quantity, off in sides[OFF].items()
        if (quantity.metric, quantity.subject) in COMPARED and quantity in sides[ON]
    ]
    found.sort(key=lambda each: COMPARED.index((each[0].metric, each[0].subject)))
    return [Effect(quantity, off, on, judged(off, on, LEVEL, MARGIN, len(found))) for quantity, off, on in found]


def advice(effects: list[Effect]) -> Advice:
    """On or off: what is better by something and worse by nothing."""
    signs = {effect.counts for effect in effects}
    if {True, False} <= signs:
        return "mixed"
    if True in signs:
        return "on"
    if False in signs:
        return "off"
    return "no difference" if {effect.compared.verdict for effect in effects} == {"same"} else "cannot tell"


def title(quantity: Quantity) -> str:
    """A quantity for people."""
    return of_subject(title_of(quantity.metric), quantity.subject)
