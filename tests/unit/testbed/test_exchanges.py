"""Joining what the two programs of a flow recorded."""

from __future__ import annotations

from testbed.exchanges import SentLine, joined


def sent(seq: int, key: int, sent_ns: int) -> SentLine:
    return {"key": key, "seq": seq, "bytes": 10, "sent_ns": sent_ns, "arrived_ns": None, "returned_ns": None}


def arrivals(lines: list[SentLine], *arrived: tuple[int, int], duration_s: float = 1.0) -> list[int | None]:
    exchanges = joined(lines, ({"key": key, "arrived_ns": at} for key, at in arrived), duration_s)
    return [exchange["arrived_ns"] for exchange in exchanges]


def test_each_exchange_gets_the_arrival_of_its_key_and_a_lost_one_gets_none() -> None:
    assert arrivals([sent(0, 7, 100), sent(1, 8, 200), sent(2, 9, 300)], (9, 350), (7, 150)) == [150, None, 350]


def test_a_duplicate_does_not_count() -> None:
    assert arrivals([sent(0, 7, 100)], (7, 150), (7, 160)) == [150]


def test_a_port_that_is_used_again_joins_its_own_transfer() -> None:
    lines = [sent(0, 7, 100), sent(1, 7, 1000)]
    assert arrivals(lines, (7, 150), (7, 1200)) == [150, 1200]
    # The first transfer never finished.
    assert arrivals(lines, (7, 1200)) == [None, 1200]
    # The second one did not.
    assert arrivals(lines, (7, 150)) == [150, None]


def test_the_key_is_not_part_of_an_exchange() -> None:
    (exchange,) = joined([sent(0, 7, 100)], [], 1.0)
    assert list(exchange) == ["seq", "bytes", "sent_ns", "arrived_ns", "returned_ns"]


def test_the_frame_of_a_packet_stays_with_it() -> None:
    (exchange,) = joined([{**sent(0, 7, 100), "frame": 3}], [{"key": 7, "arrived_ns": 150}], 1.0)
    assert (exchange["frame"], exchange["arrived_ns"]) == (3, 150)


def test_what_comes_after_the_runs_end_did_not_arrive() -> None:
    lines = [sent(0, 7, 100), sent(1, 8, 200)]
    assert arrivals(lines, (7, 1000), (8, 1001), duration_s=1e-6) == [1000, None]
    returned: list[SentLine] = [{**sent(0, 7, 100), "returned_ns": 1000}, {**sent(1, 8, 200), "returned_ns": 1001}]
    assert [exchange["returned_ns"] for exchange in joined(returned, [], 1e-6)] == [1000, None]
