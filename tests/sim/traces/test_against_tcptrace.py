"""Our counts of every connection beside tcptrace's. They are equal, but for what a named rule explains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.traces.agreement import Tally, beside_tcptrace
from tests.support.traces.hostile import ACK, FIN, PUSH, SYN, as_pcap, segment

SYNC, SYNC_BACK = segment(True, 99, 0, SYN), segment(False, 999, 100, SYN | ACK)
OPEN, DATA = segment(True, 100, 1000, ACK), segment(True, 100, 1000, PUSH | ACK, b"x" * 500)
DONE, END, END_BACK = (
    segment(False, 1000, 600, ACK),
    segment(True, 600, 1000, FIN | ACK),
    segment(False, 1000, 601, ACK),
)


def test_connections_of_the_research_stack_agree_with_tcptrace(simulated: list[Path], tmp_path: Path) -> None:
    if shutil.which("tcptrace") is None:
        pytest.fail("there is no tcptrace: ./backchannel test installs it")
    agree(simulated, tmp_path, at_least=40)


@pytest.mark.parametrize(
    ("packets", "explained"),
    [
        # The FIN repeats the ack of the data.
        ([SYNC, SYNC_BACK, OPEN, DATA, DONE, END, END_BACK], 1),
        # The SYN-ACK is sent again and answered, before the data and after them.
        ([SYNC, SYNC_BACK, OPEN, SYNC_BACK, OPEN, DATA, DONE], 2),
        ([SYNC, SYNC_BACK, OPEN, DATA, SYNC_BACK, segment(True, 600, 1000, ACK), DONE], 2),
    ],
)
def test_what_tcptrace_makes_of_handshakes_is_a_rule(packets: list[bytes], explained: int, tmp_path: Path) -> None:
    tally = beside(as_pcap([10**9 + 10**7 * number for number in range(len(packets))], packets=packets), tmp_path)
    assert tally.unexplained == []
    assert tally.explained == {"handshakes": explained}


def test_the_mean_of_few_long_round_trips_agrees(tmp_path: Path) -> None:
    """tcptrace prints 635.5 ms for one round trip of 635.609 ms."""
    opened = 10**9 + 10**6 + 635_608_811
    times = [10**9, 10**9 + 10**6, opened, opened + 10**6, opened + 2 * 10**6]
    tally = beside(as_pcap(times, packets=[SYNC, SYNC_BACK, OPEN, DATA, DONE]), tmp_path)
    assert tally.unexplained == []


def beside(capture: bytes, folder: Path) -> Tally:
    """A capture's connections beside tcptrace's."""
    (folder / "one.pcap").write_bytes(capture)
    tally = Tally()
    beside_tcptrace(folder / "one.pcap", folder / "out", tally)
    return tally


def agree(captures: list[Path], out: Path, at_least: int) -> Tally:
    """Compares them; what came of it."""
    tally = Tally()
    for number, capture in enumerate(captures):
        beside_tcptrace(capture, out / str(number), tally)
    assert tally.unexplained == []
    # The captures must hold what the test is about.
    assert tally.captures >= at_least
    assert tally.seen["sides"] >= 2 * at_least
    assert min(tally.seen["again"], tally.seen["duplicates"], tally.seen["samples"]) > 500, tally
    # A rule that nothing needs explains nothing.
    assert tally.explained["overtaken acks"] > 0, tally
    assert tally.explained["first seen"] > 0, tally
    return tally
