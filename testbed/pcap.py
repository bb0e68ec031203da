"""Classic pcap files in place: new time stamps for every packet. Everything else about captures is read by
`backchannel-node trace`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from testbed.errors import TestbedError

#: Magic numbers, and nanoseconds per unit of a stamp's fraction, in this machine's byte order.
NANOSECONDS_PER_UNIT = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}
HEADER_BYTES = 24
#: Seconds, fraction, captured bytes, original bytes.
RECORD = struct.Struct("=IIII")


def restamp(path: Path, corrected_ns: Callable[[int], int]) -> None:
    """Replaces every packet's stamp, in nanoseconds since the epoch, by `corrected_ns` of it.

    Raises:
        TestbedError: the file is not a pcap file in this machine's byte order; it is left as it is.
    """
    data = bytearray(path.read_bytes())
    unit = NANOSECONDS_PER_UNIT.get(struct.unpack_from("=I", data)[0]) if len(data) >= HEADER_BYTES else None
    if unit is None:
        raise TestbedError(f"{path.name} is not a pcap file that tcpdump wrote on this kind of machine")
    at = HEADER_BYTES
    while at + RECORD.size <= len(data):
        seconds, fraction, captured, original = RECORD.unpack_from(data, at)
        stamp_ns = corrected_ns(seconds * 1_000_000_000 + fraction * unit)
        RECORD.pack_into(data, at, stamp_ns // 1_000_000_000, stamp_ns % 1_000_000_000 // unit, captured, original)
        at += RECORD.size + captured
    path.write_bytes(data)
