"""The benchmark of ack filters: what is recorded is replayed to the packet, and the filters do what their names say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.ack_filter import Ack, kinds, record_acks, replay, staleness_s
from testbed.virtual_kernel.kernels import Kernel


def ack(at_s: float, number: int) -> Ack:
    return Ack(at_s, bytes(28) + number.to_bytes(4) + bytes([0x80, 0x10]) + bytes(6))


def test_a_number_is_known_with_the_first_departure_that_reaches_it() -> None:
    acks = [ack(0.0, 100), ack(1.0, 2**32 - 1), ack(2.0, 5), ack(3.0, 9)]
    acks[0] = ack(0.0, 2**32 - 9)
    # The second one was filtered; the third told its number 3 s later, the last one 1.5 s after its arrival.
    departures = [(0.0, acks[0].data), (4.0, acks[2].data), (4.5, acks[3].data)]
    assert staleness_s(acks, departures) == pytest.approx((0 + 3 + 2 + 1.5) / 4)


def test_recorded_acks_pass_a_droptail_queue_and_each_filter_takes_its_own(kernel: Kernel, tmp_path: Path) -> None:
    acks = record_acks(tmp_path, 7, kernel)
    kind = kinds(acks)
    assert len(kind) == len(acks) > 500
    everyone = Counter(kind.values())
    assert everyone["with SACK"] > 100

    departures = replay(tmp_path, acks, "droptail", 24_000, kernel)
    assert [data for _, data in departures] == [ack.data for ack in acks]
    # 24 kbit/s are 3000 bytes a second, and the queue is never empty once it has filled.
    carried = sum(len(ack.data) for ack in acks[1:])
    assert departures[-1][0] == pytest.approx(carried / 3000, rel=0.02)

    paper = Counter(kind[data] for _, data in replay(tmp_path, acks, "ours", 24_000, kernel))
    sack = Counter(kind[data] for _, data in replay(tmp_path, acks, "ours, SACK", 24_000, kernel))
    assert paper["with SACK"] == everyone["with SACK"] > 3 * sack["with SACK"] > 0
    assert paper["advances"] < sack["advances"] < everyone["advances"]
