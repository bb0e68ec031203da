"""qlog files: what one end of a QUIC connection reports of itself.

The events are those of draft-ietf-quic-qlog-quic-events, under the names that its drafts have given them since 2019;
`analysis/qlog_files.py` reads the files.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from analysis.errors import AnalysisError
from analysis.qlog_files import MOST, Event, Trace, Wrong, mapping, number, sequence, traces, whole

#: Folder of a run's qlog files, and the end of their names; `.gz` follows where they are compressed.
FOLDER = "qlog"
SUFFIX = ".sqlog"
#: Key logs of single connections beside them, and what has the keys of all of a run's.
KEYS, ALL_KEYS = ".keys", "tls-keys.log"
#: Bytes of a packet: those of a datagram of UDP.
MOST_PACKET_BYTES = 65_535
#: Metrics of recovery: names in files, column, and whether it is a time.
_METRICS: Sequence[tuple[tuple[str, ...], str, bool]] = (
    (("congestion_window", "cwnd"), "cwnd_bytes", False),
    (("ssthresh",), "ssthresh_bytes", False),
    (("bytes_in_flight",), "in_flight_bytes", False),
    (("smoothed_rtt",), "srtt_s", True),
    (("latest_rtt",), "rtt_s", True),
    (("min_rtt",), "min_rtt_s", True),
    (("rtt_variance",), "rttvar_s", True),
    (("pto_count",), "pto_count", False),
)


@dataclass(frozen=True)
class Log:
    """The events of one or several connections, seen at one end. Times are seconds since the log's zero."""

    #: Packets sent: `t_s`, `bytes` (null where unknown).
    sent: pl.DataFrame
    #: Packets received: the same.
    received: pl.DataFrame
    #: Packets that the end declared lost: `t_s`.
    lost: pl.DataFrame
    #: ACK frames received: `t_s`, `ack_delay_s` as the peer states it, and `packets` that were not acknowledged before,
    #: with the `bytes` of those that were logged when they were sent.
    acks: pl.DataFrame
    #: Metrics of recovery whenever one changed: `t_s`, `cwnd_bytes`, `ssthresh_bytes`, `in_flight_bytes`, `srtt_s`,
    #: `rtt_s` (the latest sample), `min_rtt_s`, `rttvar_s`, `pto_count`. Null until a metric was reported.
    metrics: pl.DataFrame
    #: Data received on streams: `t_s`, `connection`, `stream_id`, `offset`, `bytes`.
    data: pl.DataFrame
    #: Data sent on streams: the same, and `acked_s`, when an ACK frame of the packet came; null if none did.
    sent_data: pl.DataFrame


@dataclass
class Rows:
    """The columns of a `Log` while it is read."""

    sent: list[tuple[float, int | None]] = field(default_factory=list)
    received: list[tuple[float, int | None]] = field(default_factory=list)
    lost: list[tuple[float]] = field(default_factory=list)
    acks: list[tuple[float, float | None, int, int]] = field(default_factory=list)
    metrics: list[tuple[float | None, ...]] = field(default_factory=list)
    data: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    sent_data: list[tuple[float, int, int, int, int, float | None]] = field(default_factory=list)


def read(paths: Sequence[Path]) -> Log:
    """The events of files, in order of time; each trace is a connection.

    Raises:
        AnalysisError: a file is not a qlog file, or damaged; it names file, line or event, and field.
    """
    rows, connections = Rows(), 0
    for path in paths:
        for trace in traces(path):
            reader = TraceReader(path, trace, connections, rows)
            for event in trace.events:
                reader.take(event)
            reader.finish()
            connections += 1
    times = {"t_s": pl.Float64}

    def frame(lines: Sequence[Any], columns: dict[str, Any]) -> pl.DataFrame:
        return pl.DataFrame(lines, {**times, **columns}, orient="row").sort("t_s", maintain_order=True)

    data = {"connection": pl.Int64, "stream_id": pl.Int64, "offset": pl.Int64, "bytes": pl.Int64}
    return Log(
        sent=frame(rows.sent, {"bytes": pl.Int64}),
        received=frame(rows.received, {"bytes": pl.Int64}),
        lost=frame(rows.lost, {}),
        acks=frame(rows.acks, {"ack_delay_s": pl.Float64, "packets": pl.Int64, "bytes": pl.Int64}),
        metrics=frame(rows.metrics, {column: pl.Float64 for _, column, _ in _METRICS}),
        data=frame(rows.data, data),
        sent_data=frame(rows.sent_data, {**data, "acked_s": pl.Float64}),
    )


class TraceReader:
    """Takes the events of one trace."""

    def __init__(self, path: Path, trace: Trace, connection: int, rows: Rows) -> None:
        self._path, self._connection, self._unit_s, self._rows = path, connection, trace.unit_ms / 1e3, rows
        self._state: list[float | None] = [None] * len(_METRICS)
        #: By packet number space: what was acknowledged; and packets that were not, with their bytes and the places of
        #: their stream data in what follows.
        self._acknowledged: dict[str, _Ranges] = {}
        self._outstanding: dict[str, dict[int, tuple[int, tuple[int, ...]]]] = {}
        #: Sent data, of which acks are yet to come.
        self._sent_data: list[tuple[float, int, int, int]] = []
        self._acked_s: list[float | None] = []
        #: Data of streams, the same ones again included.
        self.sent_bytes = self.received_bytes = 0

    def take(self, event: Event) -> None:
        """Takes an event.

        Raises:
            AnalysisError: a field is wrong; it names file, line or event, and field.
        """
        try:
            self._take(event)
        except Wrong as wrong:
            wrong = wrong.inside("data")
            raise AnalysisError(f"{self._path}, {event.place}: {wrong.field}: {wrong.why}") from None

    def _take(self, event: Event) -> None:
        t_s, data = event.time_ms / 1e3, event.data
        match event.kind:
            case "packet_sent":
                size = _size(data)
                self._rows.sent.append((t_s, size))
                self._on_sent(t_s, data, size)
            case "packet_received":
                self._rows.received.append((t_s, _size(data)))
                self._on_received(t_s, data)
            case "packet_lost":
                self._rows.lost.append((t_s,))
            case "metrics_updated" | "recovery_metrics_updated":
                for place, (names, _, is_time) in enumerate(_METRICS):
                    for name in names:
                        if name in data:
                            self._state[place] = number(data[name], name) * (self._unit_s if is_time else 1.0)
                self._rows.metrics.append((t_s, *self._state))

    def finish(self) -> None:
        """No more events come."""
        rows = zip(self._sent_data, self._acked_s, strict=True)
        self._rows.sent_data += [
            (t_s, self._connection, stream, offset, length, acked_s) for (t_s, stream, offset, length), acked_s in rows
        ]

    def _on_sent(self, t_s: float, data: Mapping[str, Any], size: int | None) -> None:
        header = mapping(data.get("header"), "header")
        places = []
        for place, frame in enumerate(sequence(data.get("frames"), "frames")):
            stream = _frame(_stream, frame, place, "stream")
            if stream is not None:
                places.append(len(self._sent_data))
                self._sent_data.append((t_s, *stream))
                self._acked_s.append(None)
                self.sent_bytes += stream[2]
        packet = header.get("packet_number", data.get("packet_number"))
        if packet is not None:
            outstanding = self._outstanding.setdefault(_space(data, header), {})
            outstanding[whole(packet, "header.packet_number")] = (size or 0, tuple(places))

    def _on_received(self, t_s: float, data: Mapping[str, Any]) -> None:
        header = mapping(data.get("header"), "header")
        for place, frame in enumerate(sequence(data.get("frames"), "frames")):
            stream = _frame(_stream, frame, place, "stream")
            if stream is not None:
                self._rows.data.append((t_s, self._connection, *stream))
                self.received_bytes += stream[2]
            ack = _frame(_ack, frame, place, "ack")
            if ack is not None:
                delay, ranges = ack
                packets, size = self._on_ack(t_s, _space(data, header), ranges)
                self._rows.acks.append((t_s, None if delay is None else delay * self._unit_s, packets, size))

    def _on_ack(self, t_s: float, space: str, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Packets that are newly acknowledged, and their bytes."""
        acknowledged = self._acknowledged.setdefault(space, _Ranges())
        outstanding = self._outstanding.get(space, {})
        packets = size = 0
        for first, last in ranges:
            for low, high in acknowledged.add(first, last):
                packets += high - low + 1
                # A peer may acknowledge more than was sent.
                few = high - low < len(outstanding)
                for number_ in range(low, high + 1) if few else [sent for sent in outstanding if low <= sent <= high]:
                    bytes_, places = outstanding.pop(number_, (0, ()))
                    size += bytes_
                    for place in places:
                        self._acked_s[place] = t_s
        return packets, size


def _frame(read: Any, frame: Any, place: int, kind: str) -> Any:
    """What `read` finds in a frame of a kind; None for others."""
    try:
        known = mapping(frame, "")
        return read(known) if known.get("frame_type") == kind else None
    except Wrong as wrong:
        raise wrong.inside(f"frames[{place}]") from None


def _stream(frame: Mapping[str, Any]) -> tuple[int, int, int]:
    """Stream, offset and length."""
    raw = mapping(frame.get("raw"), "raw")
    length = next(
        (value[key] for value, key in ((frame, "length"), (raw, "payload_length"), (raw, "length")) if key in value),
        None,
    )
    if length is None:
        raise Wrong("length", "the frame has none")
    offset = whole(frame.get("offset", 0), "offset")
    length = whole(length, "length")
    # RFC 9000 19.8.
    whole(offset + length, "offset + length")
    return whole(frame.get("stream_id", frame.get("id")), "stream_id"), offset, length


def _ack(frame: Mapping[str, Any]) -> tuple[float | None, list[tuple[int, int]]]:
    """Delay in the log's unit, and ranges of packet numbers."""
    delay = frame.get("ack_delay")
    ranges = []
    for place, bounds in enumerate(sequence(frame.get("acked_ranges"), "acked_ranges")):
        where = f"acked_ranges[{place}]"
        ends = [whole(end, where) for end in sequence(bounds, where)]
        if len(ends) not in (1, 2) or ends[0] > ends[-1]:
            raise Wrong(where, "expected one packet number, or two in ascending order")
        ranges.append((ends[0], ends[-1]))
    return None if delay is None else number(delay, "ack_delay", least=0.0), ranges


def _space(data: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """Packet number space, by the packet's type."""
    kind = header.get("packet_type", data.get("packet_type"))
    kind = kind.lower() if isinstance(kind, str) else ""
    return kind if kind in ("initial", "handshake") else "application"


def _size(data: Mapping[str, Any]) -> int | None:
    """Bytes of a packet; None where unknown."""
    header, raw = mapping(data.get("header"), "header"), mapping(data.get("raw"), "raw")
    places = ((header, "header.length"), (raw, "raw.length"), (header, "header.packet_size"), (data, "packet_size"))
    for values, name in places:
        value = values.get(name.rpartition(".")[2])
        if value is not None:
            return whole(value, name, most=MOST_PACKET_BYTES)
    return None


class _Ranges:
    """Whole numbers, as ranges without overlap in their order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> list[tuple[int, int]]:
        """Adds a range. Returns the parts of it that were not there."""
        # Those that overlap or touch it: they become one.
        begin, end = bisect_left(self._lasts, first - 1), bisect_left(self._firsts, last + 2)
        missing, at = [], first
        for low, high in zip(self._firsts[begin:end], self._lasts[begin:end], strict=True):
            if at < low:
                missing.append((at, min(low - 1, last)))
            at = max(at, high + 1)
        if at <= last:
            missing.append((at, last))
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end], self._lasts[begin:end] = [first], [last]
        return missing


def in_order(data: pl.DataFrame) -> pl.DataFrame:
    """When data became deliverable in order: `t_s`, and `bytes` that did.

    Args:
        data: `Log.data`, in order of time.
    """
    grown: list[tuple[float, int]] = []
    waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
    top: dict[tuple[int, int], int] = {}
    for t_s, connection, stream, offset, length in data.iter_rows():
        key = (connection, stream)
        parts, before = waiting.setdefault(key, []), top.get(key, 0)
        heapq.heappush(parts, (offset, offset + length))
        end = before
        while parts and parts[0][0] <= end:
            end = max(end, heapq.heappop(parts)[1])
        if end > before:
            grown.append((t_s, end - before))
        top[key] = end
    return pl.DataFrame(grown, {"t_s": pl.Float64, "bytes": pl.Int64}, orient="row")


def placed(data: pl.DataFrame) -> pl.DataFrame:
    """Stream data with `position`, the place of its first byte among all bytes of all streams in the order in which
    these were first seen, and `again`, whether all of its bytes were seen before, or were passed over.

    Of one stream the position is the offset.

    Args:
        data: `Log.data` or `Log.sent_data`.

    Raises:
        AnalysisError: the streams have more bytes than a number of 62 bits.
    """
    #: By stream: the offsets at which it grew, and their positions.
    grown: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    tops: dict[tuple[int, int], int] = {}
    total = 0
    positions, again = [], []
    for key, offset, length in zip(
        data.select("connection", "stream_id").iter_rows(), data["offset"], data["bytes"], strict=True
    ):
        offsets, at = grown.setdefault(key, ([], []))
        top, end = tops.get(key, 0), offset + length
        again.append(length > 0 and end <= top)
        if end > top or not offsets:
            offsets.append(top)
            at.append(total)
            total += end - top
            tops[key] = end
            if total > MOST:
                raise AnalysisError("the streams of this log have more bytes than 2^62")
        place = bisect_right(offsets, offset) - 1
        positions.append(at[place] + offset - offsets[place])
    return data.with_columns(pl.Series("position", positions, pl.Int64), pl.Series("again", again, pl.Boolean))


def join_keys(folder: Path) -> None:
    """Joins the key logs of a run's connections to one file, which other programs take (`SSLKEYLOGFILE`)."""
    parts = sorted((folder / FOLDER).glob(f"*{KEYS}"))
    if parts:
        (folder / ALL_KEYS).write_bytes(b"".join(path.read_bytes() for path in parts))
    for path in parts:
        path.unlink()
