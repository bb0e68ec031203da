"""The option of Accurate ECN (RFC 9768 3.2.3) between the research stack and Linux in virtual time, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.language import source
from experiments.language.campaign import expand
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine
from tests.support.traces.readers import tshark_fields

SYN, ACK = 0x02, 0x10
CE = 3
#: Research stack, Linux.
OURS, LINUX = "s", "c"
QUEUE = "{policy: dualpi2, classify: any-ect}"
CAMPAIGN = f"""
name: accurate-ecn
backend: virtual-kernel
network:
  nodes:
    - {{name: {OURS}, kind: host, stack: {{name: modern-dctcp, ecn: accurate, ecn_option: true}}}}
    - {{name: r1, kind: router}}
    - {{name: r2, kind: router}}
    - {{name: {LINUX}, kind: host, stack: {{name: dctcp, ecn: accecn}}}}
  links:
    - {{name: s-access, ends: [{OURS}, r1], kind: kernel, forward: {{delay: 0 ms}}}}
    - name: line
      ends: [r1, r2]
      kind: kernel
      forward: {{rate: 10 Mbit/s, delay: 5 ms, queue: {QUEUE}}}
      reverse: {{rate: 10 Mbit/s, delay: 5 ms, queue: {QUEUE}}}
    - {{name: c-access, ends: [r2, {LINUX}], kind: kernel, forward: {{delay: 0 ms}}}}
workload:
  - {{name: flow, from: SENDER, to: RECEIVER}}
capture: {{snaplen: 96 B, at: ["{OURS}:s-access", "{LINUX}:c-access"]}}
duration: 3 s
seed: 51
"""
FIELDS = (
    "ip.src", "tcp.flags", "tcp.len", "ip.dsfield.ecn", "tcp.options.acc_ecn.ee0b", "tcp.options.acc_ecn.eceb",
    "tcp.options.acc_ecn.ee1b",
)  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """A segment as tshark reads it; `counters`: of the option, absent ones None."""

    source: str
    flags: int
    payload_bytes: int
    ecn: int
    counters: tuple[int | None, ...]


def read(path: Path) -> list[Segment]:
    return [
        Segment(
            row[0], int(row[1], 16), int(row[2]), int(row[3]), tuple(int(word) if word else None for word in row[4:])
        )
        for row in tshark_fields(path, FIELDS, "-Y", "tcp")
    ]


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [(LINUX, OURS), pytest.param(OURS, LINUX, marks=pytest.mark.slow("here Linux writes the option"))],
)
def test_each_ack_has_the_bytes_that_arrived_marked(kernel: Kernel, tmp_path: Path, sender: str, receiver: str) -> None:
    text = CAMPAIGN.replace("SENDER", sender).replace("RECEIVER", receiver)
    report = VirtualMachine(kernel).run(expand(source.parse("c.yaml", text)).runs[0].scenario, tmp_path, lambda _: None)
    assert report.flows["flow"].receive.bytes * 8 / 3 > 5e6
    (capture,) = (tmp_path / "captures").glob(f"{receiver}-*.pcap")
    segments = read(capture)
    from_sender = segments[0].source
    syn_ack = next(segment for segment in segments if segment.flags & (SYN | ACK) == SYN | ACK)
    first_ack = next(segment for segment in segments if segment.source == from_sender and not segment.flags & SYN)
    assert syn_ack.counters == first_ack.counters == (1, 0, 1)
    marked_bytes, reported = 0, []
    for segment in segments:
        if segment.source == from_sender:
            marked_bytes += segment.payload_bytes if segment.ecn == CE else 0
        elif segment.counters[1] is not None:
            reported.append((segment.counters[1], marked_bytes))
    # What arrives between an ack's making and its sending is in the next one.
    assert all(before <= counter <= arrived for (_, before), (counter, arrived) in pairwise(reported))
    assert reported[-1][0] > 50_000
