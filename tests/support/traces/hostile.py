"""Small captures whose time stamps are hostile: years apart, jumping back, at the ends of what a format can hold."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from testbed import pcap

SENDER, RECEIVER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
#: Seconds of a year, and the last second that a pcap file can hold.
YEAR_S, LAST_S = 31_557_600, 2**32 - 1


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(total ^ 0xFFFF)


def segment(is_data: bool, seq: int, ack: int, flags: int, payload: bytes = b"") -> bytes:
    """An IPv4 packet with a TCP segment from the sender of the data, or from the receiver."""
    source, target = (SENDER, RECEIVER) if is_data else (RECEIVER, SENDER)
    ports = (40000, 80) if is_data else (80, 40000)
    tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, 5 << 4, flags, 65535, 0, 0) + payload
    tcp_sum = checksum(source + target + struct.pack(">HH", 6, len(tcp)) + tcp)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + target
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + tcp[:16] + struct.pack(">H", tcp_sum) + tcp[18:]


def transfer(segments: int) -> list[bytes]:
    """A handshake and data segments of 500 bytes, each acknowledged."""
    packets = [
        segment(True, 99, 0, SYN), segment(False, 999, 100, SYN | ACK), segment(True, 100, 1000, ACK),
    ]  # fmt: skip
    for number in range(segments):
        seq = 100 + 500 * number
        packets += [segment(True, seq, 1000, PUSH | ACK, b"x" * 500), segment(False, 1000, seq + 500, ACK)]
    return packets


def as_pcap(times_ns: Sequence[int], packets: Sequence[bytes] | None = None) -> bytes:
    """A pcap file of packets with these times; without packets, of a transfer."""
    given = transfer((len(times_ns) - 3) // 2) if packets is None else packets
    records = (pcap.Record(at, data, len(data)) for at, data in zip(times_ns, given, strict=True))
    return pcap.written(pcap.Header(pcap.RAW, 1), records)


def as_pcapng(ticks: Sequence[int], resolution: int) -> bytes:
    """A pcapng file of a transfer whose packets have these 64-bit times.

    Args:
        ticks: the times.
        resolution: the option if_tsresol: decimal digits, or with the highest bit set binary ones.
    """

    def block(kind: int, body: bytes) -> bytes:
        body += b"\0" * (-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    result = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    options = struct.pack("<HHB3xHH", 9, 1, resolution, 0, 0)
    result += block(1, struct.pack("<HHI", pcap.RAW, 0, 262_144) + options)
    for at, data in zip(ticks, transfer((len(ticks) - 3) // 2), strict=True):
        lengths = struct.pack("<III", at & 0xFFFFFFFF, len(data), len(data))
        result += block(6, struct.pack("<II", 0, at >> 32) + lengths + data)
    return result


def _seconds(*times_s: float) -> bytes:
    return as_pcap([round(at * 1e9) for at in times_s])


START_S = 1_700_000_000
#: Captures by what is wrong with them.
CAPTURES: Mapping[str, Callable[[], bytes]] = {
    "years-apart": lambda: _seconds(0, 0.01, 0.02, 1, 1.1, 2, 2.1, START_S, START_S + 1, LAST_S, LAST_S),
    "one-late-packet": lambda: _seconds(*(START_S + n / 10 for n in range(24)), START_S + 60 * YEAR_S),
    "jumps-back": lambda: _seconds(*(START_S + n / 10 for n in range(9)), *(n / 10 for n in range(8))),
    "back-and-forth": lambda: _seconds(*(START_S * (n % 2) + n for n in range(21))),
    "first-and-last-second": lambda: _seconds(0, 0, 0, 0, LAST_S),
    "backwards": lambda: _seconds(*(START_S - n * 3600 for n in range(21))),
    "days-of-data": lambda: _seconds(*(START_S + n * 100 for n in range(2003))),
    "pcapng-far": lambda: as_pcapng([0, 1, 2, 3, 4, 2**60, 2**60 + 1, 2**63 - 1, 2**63 - 1], 9),
    "pcapng-beyond-64-bits": lambda: as_pcapng([0, 1, 2, 3, 4, 2**63, 2**64 - 1], 9),
    "pcapng-whole-seconds": lambda: as_pcapng([0, 1, 2, 3, 4, 2**40, 2**63, 2**64 - 2, 2**64 - 1], 0),
    "pcapng-binary-seconds": lambda: as_pcapng([0, 1, 2, 3, 4, 2**40, 2**62, 2**63, 2**64 - 1], 0x80),
    "pcapng-coarsest": lambda: as_pcapng([0, 1, 2, 3, 4, 2**64 - 2, 2**64 - 1], 0xFF),
    "pcapng-finest": lambda: as_pcapng([0, 1, 2, 3, 4, 2**64 - 2, 2**64 - 1], 0x7F),
}  # fmt: skip
