"""What became of one transmission of a segment: where it was lost, and when and why it was sent again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Times of one packet at two ends of a wire that are equal but for rounding differ by less, in s.
ROUNDING_S = 2e-9


@dataclass(frozen=True)
class Sent:
    """A transmission of the segment, at its sender."""

    t_s: float
    #: "fast retransmission", "timeout", "retransmission"; empty of the first transmission.
    kind: str


@dataclass(frozen=True)
class Lost:
    """Where a transmission was lost."""

    #: (link, node at which it entered); both ends were captured.
    link: str
    node: str
    #: When it entered the link.
    t_s: float


@dataclass(frozen=True)
class TransmissionOutcome:
    """What became of a transmission."""

    sent: Sent
    #: When it reached the receiver; None if it did not, or if that was not captured.
    arrived_s: float | None
    #: None if it arrived, or if the captures do not show where it was lost.
    lost: Lost | None
    #: The next transmission.
    again: Sent | None
    #: Duplicate acks that the sender had got for the segment when it was sent again.
    duplicate_acks: int


def fate(
    sent: Sequence[Sent],
    at: float,
    seen: Mapping[tuple[str, str], Sequence[float]],
    path: Sequence[tuple[str, str, str]],
    acks: Sequence[float],
) -> TransmissionOutcome | None:
    """What became of the transmission that left at a time; None if there is none.

    Args:
        sent: every transmission of the segment, in order.
        at: the time of one of them, in s, as precise as 1 us.
        seen: (node, link) to the times at which the segment was seen at that interface, ascending. An interface that
            was not captured is absent.
        path: hops (node, link, next node) from the sender to the receiver.
        acks: times of acks, at the sender, that ask for the segment.
    """
    number = next((number for number, packet in enumerate(sent) if abs(packet.t_s - at) < 1e-6), None)
    if number is None:
        return None
    transmission, again = sent[number], sent[number + 1] if number + 1 < len(sent) else None
    now_s, lost, arrived_s = transmission.t_s, None, None
    for node, link, following in path:
        entries, exits = seen.get((node, link)), seen.get((following, link))
        if entries is None or exits is None:
            break
        place = bisect_left(entries, now_s - ROUNDING_S)
        if place == len(entries):
            break
        arrival = matched(entries, exits)[place]
        if arrival is None:
            lost = Lost(link, node, entries[place])
            break
        now_s = arrival
    else:
        arrived_s = now_s if path else None
    duplicates = 0 if again is None else max(bisect_right(acks, again.t_s) - 1, 0)
    return TransmissionOutcome(transmission, arrived_s, lost, again, duplicates)


def matched(entries: Sequence[float], exits: Sequence[float]) -> list[float | None]:
    """The arrival of each transmission over a link; None of a lost one.

    Copies differ only in time: the last arrival belongs to the latest transmission before it, and so on backwards.
    """
    exits_s: list[float | None] = [None] * len(entries)
    end = len(entries)
    for exit_s in reversed(exits):
        end = min(bisect_right(entries, exit_s + ROUNDING_S), end)
        if not end:
            break
        end -= 1
        exits_s[end] = exit_s
    return exits_s
