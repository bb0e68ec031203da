"""pcap files in Python (draft-ietf-opsawg-pcap): read, write, and change times in place.

For small files: corrected clocks, pictures, tests. Analysis reads captures with `backchannel-node trace`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

#: Link types: Ethernet, raw IP.
ETHERNET, RAW = 1, 101
_HEADER_BYTES, _RECORD_BYTES = 24, 16
#: Nanoseconds of a time stamp's unit, by the magic number.
_UNITS = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}
#: Greatest time of a record in s: its field has 32 bits.
LAST_S = (1 << 32) - 1


@dataclass(frozen=True)
class Header:
    """What a pcap file says about all its records."""

    link_type: int
    #: Nanoseconds of a time stamp's unit: 1 or 1000.
    unit_ns: int = 1
    #: Byte order of the file, as `struct` writes it.
    order: str = "<"
    snaplen: int = 262_144


@dataclass(frozen=True)
class Record:
    """One captured frame."""

    time_ns: int
    data: bytes
    #: Bytes the frame had on the wire.
    wire_len: int
    #: Where its header begins in the file, in bytes.
    offset: int = 0


def header(data: bytes | bytearray) -> Header:
    """The header of a pcap file.

    Raises:
        ValueError: the data do not begin like a pcap file.
    """
    if len(data) >= _HEADER_BYTES:
        for order in "<>":
            magic, _, _, _, _, snaplen, link_type = struct.unpack_from(order + "IHHiIII", data)
            if unit_ns := _UNITS.get(magic):
                return Header(link_type, unit_ns, order, snaplen)
    raise ValueError("not a pcap file")


def records(data: bytes | bytearray) -> Iterator[Record]:
    """The records of a pcap file. A last one that is cut off is left out.

    Raises:
        ValueError: the data do not begin like a pcap file.
    """
    head = header(data)
    at = _HEADER_BYTES
    while at + _RECORD_BYTES <= len(data):
        seconds, fraction, kept, wire_len = struct.unpack_from(head.order + "IIII", data, at)
        end = at + _RECORD_BYTES + kept
        if end > len(data):
            return
        time_ns = seconds * 1_000_000_000 + fraction * head.unit_ns
        yield Record(time_ns, bytes(data[at + _RECORD_BYTES : end]), wire_len, at)
        at = end


def written(head: Header, frames: Iterable[Record]) -> bytes:
    """A pcap file with these records."""
    magic = next(magic for magic, unit_ns in _UNITS.items() if unit_ns == head.unit_ns)
    parts = [struct.pack(head.order + "IHHiIII", magic, 2, 4, 0, 0, head.snaplen, head.link_type)]
    for frame in frames:
        seconds, rest_ns = divmod(frame.time_ns, 1_000_000_000)
        fields = (seconds, rest_ns // head.unit_ns, len(frame.data), frame.wire_len)
        parts += (struct.pack(head.order + "IIII", *fields), frame.data)
    return b"".join(parts)


def change_times(data: bytearray, changed_ns: Callable[[int], int]) -> None:
    """Replaces each record's time by `changed_ns` of it, in place.

    Raises:
        ValueError: the data do not begin like a pcap file, or a new time does not fit into a record.
    """
    head = header(data)
    for record in records(data):
        seconds, rest_ns = divmod(changed_ns(record.time_ns), 1_000_000_000)
        if not 0 <= seconds <= LAST_S:
            raise ValueError(
                f"the record at byte {record.offset} has the time {record.time_ns / 1e9:.3f} s, which the correction "
                f"of its clock would make {seconds} s: was the clock set during the run?"
            )
        struct.pack_into(head.order + "II", data, record.offset, seconds, rest_ns // head.unit_ns)
