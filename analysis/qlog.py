"""qlog files: what one end of a QUIC connection reports of itself.

They are JSON text sequences (RFC 7464) of draft-ietf-quic-qlog-main-schema, with the events of
draft-ietf-quic-qlog-quic-events. Version 0.3 of the format calls an event `transport:packet_sent` and newer drafts
`quic:packet_sent`; the part behind the colon decides here. Times in files are in ms.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from analysis.errors import AnalysisError

#: Folder of a run's qlog files, and the end of their names; `.gz` follows where they are compressed.
FOLDER = "qlog"
SUFFIX = ".sqlog"
_METRICS = {
    "congestion_window": 1.0, "ssthresh": 1.0, "bytes_in_flight": 1.0, "smoothed_rtt": 1e-3, "latest_rtt": 1e-3,
    "min_rtt": 1e-3, "rtt_variance": 1e-3, "pto_count": 1.0,
}  # fmt: skip
_COLUMNS = {
    "congestion_window": "cwnd_bytes", "ssthresh": "ssthresh_bytes", "bytes_in_flight": "in_flight_bytes",
    "smoothed_rtt": "srtt_s", "latest_rtt": "rtt_s", "min_rtt": "min_rtt_s", "rtt_variance": "rttvar_s",
    "pto_count": "pto_count",
}  # fmt: skip


@dataclass(frozen=True)
class Log:
    """The events of one or several connections, seen at one end. Times are seconds since the log's zero."""

    #: Packets sent: `t_s`, `bytes` (null where unknown).
    sent: pl.DataFrame
    #: Packets received: `t_s`.
    received: pl.DataFrame
    #: Packets that the end declared lost: `t_s`.
    lost: pl.DataFrame
    #: ACK frames received: `t_s`, `ack_delay_s` as the peer states it, and `packets` that were not acknowledged before.
    acks: pl.DataFrame
    #: Metrics of recovery whenever one changed: `t_s`, `cwnd_bytes`, `ssthresh_bytes`, `in_flight_bytes`, `srtt_s`,
    #: `rtt_s` (the latest sample), `min_rtt_s`, `rttvar_s`, `pto_count`. Null until a metric was reported.
    metrics: pl.DataFrame
    #: Data received on streams: `t_s`, `connection`, `stream_id`, `offset`, `bytes`.
    data: pl.DataFrame


@dataclass
class _Rows:
    sent: list[tuple[float, int | None]] = field(default_factory=list)
    received: list[tuple[float]] = field(default_factory=list)
    lost: list[tuple[float]] = field(default_factory=list)
    acks: list[tuple[float, float | None, int]] = field(default_factory=list)
    metrics: list[tuple[float | None, ...]] = field(default_factory=list)
    data: list[tuple[float, int, int, int, int]] = field(default_factory=list)


def read(paths: Sequence[Path]) -> Log:
    """The events of files, each of one connection, in order of time.

    Raises:
        AnalysisError: a file is not a qlog file of this form, or damaged.
    """
    rows = _Rows()
    for number, path in enumerate(paths):
        try:
            _read(path, number, rows)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise AnalysisError(f"{path} cannot be read: {error}") from None
    times = {"t_s": pl.Float64}

    def frame(lines: Sequence[Any], columns: dict[str, Any]) -> pl.DataFrame:
        return pl.DataFrame(lines, {**times, **columns}, orient="row").sort("t_s", maintain_order=True)

    return Log(
        sent=frame(rows.sent, {"bytes": pl.Int64}),
        received=frame(rows.received, {}),
        lost=frame(rows.lost, {}),
        acks=frame(rows.acks, {"ack_delay_s": pl.Float64, "packets": pl.Int64}),
        metrics=frame(rows.metrics, {_COLUMNS[name]: pl.Float64 for name in _METRICS}),
        data=frame(rows.data, {"connection": pl.Int64, "stream_id": pl.Int64, "offset": pl.Int64, "bytes": pl.Int64}),
    )


def _lines(path: Path) -> Iterator[str]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from file
    else:
        with path.open(encoding="utf-8") as file:
            yield from file


def _read(path: Path, connection: int, rows: _Rows) -> None:
    acknowledged = _Acknowledged()
    state: dict[str, float | None] = dict.fromkeys(_METRICS)
    now_ms, is_delta, zero_ms = 0.0, False, None
    for number, line in enumerate(_lines(path), 1):
        try:
            record = json.loads(line.lstrip("\x1e"))
            if number == 1:
                fields = record["trace"].get("common_fields", {})
                form = fields.get("time_format", "relative")
                is_delta = form in ("delta", "relative_to_previous_event")
                zero_ms = None if form == "absolute" else 0.0
                continue
            if zero_ms is None:
                zero_ms = float(record["time"])
            now_ms = now_ms + record["time"] if is_delta else record["time"] - zero_ms
            _take(record, now_ms / 1e3, connection, rows, state, acknowledged)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AnalysisError(
                f"{path}, line {number}: not a record of a qlog file in JSON text sequences ({error!r})"
            ) from None


def _take(
    record: Any, t_s: float, connection: int, rows: _Rows, state: dict[str, float | None], acknowledged: _Acknowledged
) -> None:
    event, data = record["name"].rpartition(":")[2], record.get("data", {})
    if event == "packet_sent":
        header = data.get("header", {})
        size = header.get("length", data.get("raw", {}).get("length"))
        rows.sent.append((t_s, size))
    elif event == "packet_received":
        rows.received.append((t_s,))
        space = data.get("header", {}).get("packet_type", "")
        for frame in data.get("frames") or ():
            if frame["frame_type"] == "ack":
                delay_ms = frame.get("ack_delay")
                new = acknowledged.add(space, frame["acked_ranges"])
                rows.acks.append((t_s, None if delay_ms is None else delay_ms / 1e3, new))
            elif frame["frame_type"] == "stream":
                rows.data.append((t_s, connection, frame["stream_id"], frame["offset"], frame["length"]))
    elif event == "packet_lost":
        rows.lost.append((t_s,))
    elif event in ("metrics_updated", "recovery_metrics_updated"):
        for name, factor in _METRICS.items():
            if name in data:
                state[name] = data[name] * factor
        rows.metrics.append((t_s, *state.values()))


class _Acknowledged:
    """Packet numbers that were acknowledged, by packet number space: ranges without overlap."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, space: str, ranges: Sequence[Sequence[int]]) -> int:
        """The number of packets in these ranges that were not in earlier ones."""
        new = 0
        for bounds in ranges:
            first, last = bounds[0], bounds[-1]
            apart: list[tuple[int, int]] = []
            known = 0
            for low, high in self._ranges.get(space, ()):
                if high < first - 1 or low > last + 1:
                    apart.append((low, high))
                else:
                    first, last, known = min(first, low), max(last, high), known + high - low + 1
            self._ranges[space] = [*apart, (first, last)]
            new += last - first + 1 - known
        return new


def in_order(data: pl.DataFrame) -> pl.DataFrame:
    """When data became deliverable in order: `t_s`, and `bytes` that did.

    Args:
        data: `Log.data`, in order of time.
    """
    grown: list[tuple[float, int]] = []
    waiting: dict[tuple[int, int], dict[int, int]] = {}
    top: dict[tuple[int, int], int] = {}
    for t_s, connection, stream, offset, length in data.iter_rows():
        key = (connection, stream)
        parts, end = waiting.setdefault(key, {}), top.get(key, 0)
        parts[offset] = max(parts.get(offset, 0), offset + length)
        before = end
        while ready := [start for start in parts if start <= end]:
            end = max(end, *(parts.pop(start) for start in ready))
        if end > before:
            grown.append((t_s, end - before))
        top[key] = end
    return pl.DataFrame(grown, {"t_s": pl.Float64, "bytes": pl.Int64}, orient="row")
