"""Tcpdump's counters, during a capture and at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.capture import MOST_RING_BYTES, command, parse_counts, ring_bytes
from agents.errors import AgentError
from agents.messages import CaptureCounts

START = "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 128 bytes\n"
ASKED = "tcpdump: 3 packets captured, 7 packets received by filter, 0 packets dropped by kernel\n"


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("5 packets captured\n5 packets received by filter\n0 packets dropped by kernel\n", (5, 5, 0)),
        ("1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n", (1, 1, 0)),
        # What the kernel took and nobody read is lost, too.
        ("5 packets captured\n8 packets received by filter\n2 packets dropped by kernel\n", (5, 8, 3)),
        ("5 packets captured\n5 packets received by filter\n2 packets dropped by kernel\n", (5, 5, 2)),
        (
            "5 packets captured\n5 packets received by filter\n0 packets dropped by kernel\n"
            "4 packets dropped by interface\n",
            (5, 5, 4),
        ),
    ],
)
def test_the_last_counters_are_those_of_the_file(output: str, counts: tuple[int, int, int]) -> None:
    for before in ("", ASKED, ASKED + ASKED):
        assert parse_counts("eth0", "eth0.pcap", START + before + output) == CaptureCounts("eth0", "eth0.pcap", *counts)


def test_missing_counters_are_an_error() -> None:
    with pytest.raises(AgentError, match="ended without its counters"):
        parse_counts("eth0", "eth0.pcap", START)


def test_the_ring_has_room_for_the_load() -> None:
    """A slow line needs little. A kernel that is not preemptible takes long to allocate a large ring."""
    slow, fast = ring_bytes(28_800, 128), ring_bytes(100e6, 128)
    assert slow == 1 << 20
    # Two seconds of 10 Mbit/s in packets of 500 bytes, with what libpcap keeps beside each.
    assert ring_bytes(10e6, 128) == 5000 * (128 + 96)
    assert slow < ring_bytes(20e6, 128) < fast <= MOST_RING_BYTES
    assert ring_bytes(None, 128) == MOST_RING_BYTES
    assert ring_bytes(10e6, 65_535) > ring_bytes(10e6, 128)
    words = command("eth0", Path("eth0.pcap"), 128, slow)
    assert words[words.index("-B") + 1] == "1024"


def test_a_capture_prints_in_real_time_only() -> None:
    """A line for each packet makes tcpdump read its ring sooner, which virtual time does not need."""
    assert "--print" in command("eth0", Path("eth0.pcap"), 128)
    assert "--print" not in command("eth0", Path("eth0.pcap"), 128, virtual_time=True)
