"""rtnetlink(7) for queueing disciplines: dualpi2, which tc(8) of Debian 13 and before cannot set up, and statistics.

    python -m agents.netlink qdisc add dev eth0 root dualpi2 target 15000us

Numbers are those of Linux 7.3's include/uapi/linux: netlink.h, rtnetlink.h, pkt_sched.h and gen_stats.h. Integers have
the machine's byte order. Standard library only, like the rest of the agent.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

from agents.errors import AgentError

# struct nlmsghdr: length, type, flags, sequence number, port.
_HEADER = struct.Struct("=IHHII")
#: struct tcmsg: family, interface, handle, parent, info.
TC_MESSAGE = struct.Struct("=BxxxiIII")
# struct nlattr: length, type.
_ATTRIBUTE = struct.Struct("=HH")
# struct tc_sizespec: cell_log, size_log, cell_align, overhead, linklayer, mpu, mtu, tsize.
_SIZES = struct.Struct("=BBhiIIII")

_ERROR, _DONE = 2, 3
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
_REQUEST, _ACK, _DUMP, _CREATE_NEW = 0x1, 0x4, 0x300, 0x600
_CAPPED_ACK_TLVS, _ERROR_TEXT = 0x200, 1
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
#: Flag of an attribute that has attributes, and the bits without flags.
_NESTED, _TYPE_BITS = 0x8000, 0x3FFF

TC_ROOT = 0xFFFFFFFF
TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCA_STAB = 1, 2, 7, 8
_STAB_BASE, _LINKLAYER_ETHERNET = 1, 1

#: Options of dualpi2 in the words of tc: the attribute's number, and the value's unit.
DUALPI2 = {
    "limit": (1, "number"),
    "memlimit": (2, "number"),
    "target": (3, "us"),
    "tupdate": (4, "us"),
    "alpha": (5, "hz"),
    "beta": (6, "hz"),
    "step_packets": (7, "number"),
    "step_thresh": (8, "us"),
    "min_qlen_step": (9, "number"),
    "coupling_factor": (10, "byte"),
    "classic_protection": (13, "byte"),
}
#: Words of dualpi2 without a value: the attribute's number, and its value.
DUALPI2_WORDS = {
    "overflow": (11, 0),
    "drop_on_overload": (11, 1),
    "drop_dequeue": (12, 0),
    "drop_enqueue": (12, 1),
    "l4s_ect": (14, 1),
    "any_ect": (14, 3),
}
#: Attribute of dualpi2's coupling factor, in a dump too.
DUALPI2_COUPLING = 10
#: Alpha and beta are in units of 1/256 Hz.
_DUALPI2_HZ = 256


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute with its padding."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= length <= len(data):
            raise ValueError(f"an attribute of {length} bytes in {len(data)}")
        yield kind & _TYPE_BITS, data[_ATTRIBUTE.size : length]
        data = data[length + -length % 4 :]


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, flags and payload of each message of a datagram."""
    while len(data) >= _HEADER.size:
        length, kind, flags, _, _ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            raise ValueError(f"a message of {length} bytes in {len(data)}")
        yield kind, flags, data[_HEADER.size : length]
        data = data[length + -length % 4 :]


def message(kind: int, flags: int, payload: bytes) -> bytes:
    """A message with its header."""
    return _HEADER.pack(_HEADER.size + len(payload), kind, flags | _REQUEST, 1, 0) + payload


def dualpi2(words: Sequence[str]) -> bytes:
    """The value of TCA_OPTIONS for arguments of tc: "limit 1000 target 15000us any_ect".

    Raises:
        AgentError: an unknown word, or a value that is not a number in the word's unit.
    """
    result, rest = b"", list(words)
    while rest:
        word = rest.pop(0)
        if word in DUALPI2_WORDS:
            number, value = DUALPI2_WORDS[word]
            result += attribute(number, struct.pack("=B", value))
            continue
        if word not in DUALPI2 or not rest:
            raise AgentError(f"unknown option '{word}' of dualpi2, or its value is missing")
        number, unit = DUALPI2[word]
        text = rest.pop(0)
        try:
            value = round(float(text) * _DUALPI2_HZ) if unit == "hz" else int(text.removesuffix("us"))
            result += attribute(number, struct.pack("=B" if unit == "byte" else "=I", value))
        except (ValueError, OverflowError, struct.error):
            raise AgentError(f"'{text}' is not a value of dualpi2's '{word}'") from None
    # The kernel requires options, even if there is nothing to set.
    return result or attribute(DUALPI2["limit"][0], struct.pack("=I", 10_000))


def new_qdisc(index: int, words: Sequence[str]) -> bytes:
    """The message that adds a dualpi2 to an interface.

    Args:
        index: of the interface.
        words: arguments of tc from "root" or "parent" on: "parent 1:1 handle 10: dualpi2 limit 1000".

    Raises:
        AgentError: anything else.
    """
    at = words.index("dualpi2") if "dualpi2" in words else len(words)
    parent, handle, stab = 0, 0, b""
    match list(words[:at]):
        case ["root", *rest]:
            parent = TC_ROOT
        case ["parent", name, *rest]:
            parent = _handle(name)
        case _:
            raise AgentError(f"'{' '.join(words)}' does not add dualpi2")
    match rest:
        case ["handle", name, *rest]:
            handle = _handle(name)
    match rest:
        case ["stab", "overhead", overhead, "linklayer", "ethernet"]:
            # tc sends no table of sizes for Ethernet without a least size.
            sizes = _SIZES.pack(0, 0, 0, int(overhead), _LINKLAYER_ETHERNET, 0, 0, 0)
            stab = attribute(TCA_STAB | _NESTED, attribute(_STAB_BASE, sizes))
        case [] if at < len(words):
            pass
        case _:
            raise AgentError(f"'{' '.join(words)}' does not add dualpi2")
    payload = TC_MESSAGE.pack(socket.AF_UNSPEC, index, handle, parent, 0) + attribute(TCA_KIND, b"dualpi2\0") + stab
    payload += attribute(TCA_OPTIONS | _NESTED, dualpi2(words[at + 1 :]))
    return message(RTM_NEWQDISC, _ACK | _CREATE_NEW, payload)


def _handle(name: str) -> int:
    major, _, minor = name.partition(":")
    try:
        return int(major, 16) << 16 | int(minor or "0", 16)
    except ValueError:
        raise AgentError(f"'{name}' is not a handle such as 1:1") from None


class RouteSocket:
    """A socket of this network namespace. The kernel answers at once, so nothing waits for anyone."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)

    def __enter__(self) -> RouteSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def request(self, content: bytes) -> None:
        """Sends a message that asks for an acknowledgment.

        Raises:
            AgentError: the kernel refused, with its text.
        """
        self._socket.send(content)
        for kind, flags, payload in messages(self._socket.recv(1 << 16)):
            if kind == _ERROR:
                _raise_error(flags, payload)

    def qdiscs(self) -> Iterator[bytes]:
        """The payload of every discipline's message, of all interfaces.

        Raises:
            AgentError: the kernel refused.
        """
        self._socket.send(message(RTM_GETQDISC, _DUMP, TC_MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)))
        while True:
            for kind, flags, payload in messages(self._socket.recv(1 << 17)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    _raise_error(flags, payload)
                yield payload


def _raise_error(flags: int, payload: bytes) -> None:
    """Raises AgentError for a message of NLMSG_ERROR that is not an acknowledgment."""
    (number,) = struct.unpack_from("=i", payload)
    if number == 0:
        return
    texts: Mapping[int, bytes] = {}
    if flags & _CAPPED_ACK_TLVS:
        texts = dict(attributes(payload[4 + _HEADER.size :]))
    text = texts.get(_ERROR_TEXT, b"").rstrip(b"\0").decode(errors="replace") or os.strerror(-number)
    if -number == errno.ENOENT and "kind" in text:
        text = "this kernel has no dualpi2"
    raise AgentError(text.rstrip("."))


def add(words: Sequence[str]) -> None:
    """Does what `tc qdisc add dev NAME ... dualpi2 ...` would do, whose arguments the words are.

    Raises:
        AgentError: they are others, or the kernel refused.
    """
    match list(words):
        case ["qdisc", "add", "dev", name, *rest]:
            try:
                index = socket.if_nametoindex(name)
            except OSError:
                raise AgentError(f"this host has no interface '{name}'") from None
            with RouteSocket() as route:
                route.request(new_qdisc(index, rest))
        case _:
            raise AgentError(f"'{' '.join(words)}' does not add dualpi2")


if __name__ == "__main__":
    try:
        add(sys.argv[1:])
    except AgentError as error_:
        sys.exit(str(error_))
