"""The records of qlog files: two containers and the field names of several drafts, as events of one form.

Containers are JSON text sequences (RFC 7464; `.sqlog`), their kin with a record a line, and plain JSON with `traces`
(`.qlog`). Versions are 0.3, the drafts of draft-ietf-quic-qlog-main-schema after it (`file_schema`), and draft-00 to
-02, whose events are lists under `event_fields`. Files may come from anyone: what is read at once has a limit.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, NoReturn

from analysis.errors import AnalysisError

#: Bytes of a record, and of a file in plain JSON, which is read at once.
MOST_RECORD_BYTES, MOST_DOCUMENT_BYTES = 16 << 20, 256 << 20
#: Events of a file.
MOST_EVENTS = 5_000_000
#: Greatest number that a field may have: that of RFC 9000's integers.
MOST = (1 << 62) - 1
#: Times beyond, in ms, are dates and no times since a start: three years. No time and no date is later than 2065, so
#: that sums of them have room in 64 bits of ns.
LEAST_DATE_MS, MOST_MS = 1e11, 3e12
SEPARATOR = b"\x1e"
_DELTA, _ABSOLUTE = ("delta", "relative_to_previous_event"), "absolute"
_FORMATS = ("relative", "relative_to_epoch", *_DELTA, _ABSOLUTE)
#: Names of an event's time and name; the last ones are those of `event_fields`.
_TIMES = ("time", "relative_time", "delta_time", "reference_time")
_NAMES = ("name", "event", "event_type")


class Wrong(Exception):
    """A field has a value that it cannot have."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(field, why)
        self.field, self.why = field, why

    def inside(self, field: str) -> Wrong:
        """The same, seen from the value that has `field`."""
        return Wrong(f"{field}.{self.field}" if self.field else field, self.why)


@dataclass(frozen=True)
class Event:
    """One event."""

    #: Where it is in its file: "line 3", or "traces[0].events[2]".
    place: str
    #: ms since the trace's zero, with the offset that the trace states.
    time_ms: float
    #: With its category, if the file has one: "transport:packet_sent".
    name: str
    data: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The name without the category."""
        return self.name.rpartition(":")[2]


@dataclass(frozen=True)
class Trace:
    """The events that one end of one connection, or a place between, recorded."""

    place: str
    #: "client" or "server", or what else the file says; "" without a word.
    vantage: str
    #: Id that the logs of both ends share; "" without one.
    group: str
    #: Version of the format, as the file states it.
    version: str
    #: ms in a unit of the times in events' data.
    unit_ms: float
    #: Date of the trace's zero in ms since 1970; None where it is not known.
    zero_ms: float | None
    #: All events, in the file's order.
    events: Iterator[Event]


def traces(path: Path, on_cut: Callable[[int, int], None] | None = None) -> Iterator[Trace]:
    """The traces of a file. The events of one are to be read before the next is asked for.

    Args:
        path: of the file, plain or compressed by gzip.
        on_cut: is called with offset and length in bytes of a last record that is cut off, as programs leave it that
            are killed; without it such a record is an error.

    Raises:
        AnalysisError: the file cannot be read, is not a qlog file, or has a field that is wrong: with file, line or
            event, and field.
    """
    try:
        with path.open("rb") as packed:
            is_packed = packed.read(2) == b"\x1f\x8b"
            packed.seek(0)
            plain: IO[bytes] = gzip.GzipFile(fileobj=packed) if is_packed else packed  # type: ignore[assignment]
            yield from _File(path, io.BufferedReader(plain, 1 << 16), on_cut).traces()  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise AnalysisError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def number(value: Any, field: str, *, least: float = -1e18) -> float:
    """A finite number; drafts before 0.3 have some in quotes.

    Raises:
        Wrong: it is none.
    """
    if isinstance(value, str) and len(value) <= 32:
        try:
            value = float(value)
        except ValueError:
            raise Wrong(field, f"{value!r} is not a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(field, f"{_shown(value)} is not a number")
    if not least <= value <= 1e18:
        raise Wrong(field, f"{_shown(value)} is not between {least:g} and 1e+18")
    return float(value)


def whole(value: Any, field: str, *, most: int = MOST) -> int:
    """A whole number, by default of at most 62 bits.

    Raises:
        Wrong: it is none.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(field, f"{_shown(value)} is not a whole number")
    if not 0 <= value <= most:
        raise Wrong(field, f"{_shown(value)} is not between 0 and {most}")
    return value


def _time(value: Any, field: str, unit_ms: float = 1.0) -> float:
    """A time in ms."""
    time_ms = number(value, field) * unit_ms
    if abs(time_ms) > MOST_MS:
        raise Wrong(field, f"{_shown(value)} is not between -{MOST_MS:g} and {MOST_MS:g} ms")
    return time_ms


def mapping(value: Any, field: str) -> Mapping[str, Any]:
    """An object of JSON; an empty one for null.

    Raises:
        Wrong: it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Wrong(field, f"{_shown(value)} is not an object")
    return value


def sequence(value: Any, field: str) -> list[Any]:
    """An array of JSON; an empty one for null.

    Raises:
        Wrong: it is none.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise Wrong(field, f"{_shown(value)} is not an array")
    return value


def _shown(value: Any) -> str:
    """A value in a message: not the whole of a long one."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return "the number"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parsed(text: bytes) -> Any:
    """JSON of RFC 8259.

    Raises:
        ValueError: it is none, or nested too deep.
    """
    try:
        return json.loads(text, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


class _File:
    """A file that is being read."""

    def __init__(self, path: Path, stream: io.BufferedReader, on_cut: Callable[[int, int], None] | None) -> None:
        self._path, self._stream, self._on_cut = path, stream, on_cut
        self._events = 0

    def _error(self, place: str, why: str) -> AnalysisError:
        return AnalysisError(f"{self._path}, {place}: {why}" if place else f"{self._path}: {why}")

    def _wrong(self, place: str, wrong: Wrong) -> AnalysisError:
        return self._error(place, f"{wrong.field}: {wrong.why}" if wrong.field else wrong.why)

    def traces(self) -> Iterator[Trace]:
        start = self._stream.peek(64)[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] not in (SEPARATOR, b"{"):
            raise self._error("", "not a qlog file: it begins neither with a record separator nor with '{'")
        if start[:1] == SEPARATOR:
            yield self._sequence(self._separated())
            return
        first = self._stream.readline(MOST_RECORD_BYTES)
        try:
            header = _parsed(first.lstrip(b"\xef\xbb\xbf"))
        except ValueError:
            header = None
        trace = header.get("trace") if isinstance(header, dict) else None
        if isinstance(header, dict) and "traces" not in header and not (isinstance(trace, dict) and "events" in trace):
            yield self._sequence(self._of_lines(first))
            return
        yield from self._document(first)

    # Records ---------------------------------------------------------------------------------------------------

    def _line(self, room: int, place: str) -> bytes:
        line = self._stream.readline(room + 1)
        if len(line) > room:
            raise self._error(place, f"a record of more than {MOST_RECORD_BYTES >> 20} MiB")
        return line

    def _separated(self) -> Iterator[tuple[int, int, bytes]]:
        """Number of the first line, offset and text of every record behind a separator; its JSON may have lines."""
        at, line_number, record, begun = 0, 0, b"", (1, 0)
        while True:
            line = self._line(MOST_RECORD_BYTES - len(record), f"line {line_number + 1}")
            line_number += 1
            *before, last = line.split(SEPARATOR)
            # A separator ends the record before it, wherever in the line it is.
            for part in before:
                record += part
                if record.strip():
                    yield *begun, record
                at += len(part) + 1
                record, begun = b"", (line_number, at)
            record, at = record + last, at + len(last)
            if not line:
                break
        if record.strip():
            yield *begun, record

    def _of_lines(self, first: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The same of a record a line."""
        at, line_number, line = 0, 1, first
        while line:
            if line.strip():
                yield line_number, at, line
            at, line_number = at + len(line), line_number + 1
            line = self._line(MOST_RECORD_BYTES, f"line {line_number}")

    def _sequence(self, records: Iterator[tuple[int, int, bytes]]) -> Trace:
        number_, _, text = next(records, (1, 0, b""))
        try:
            header = mapping(_parsed(text.lstrip(b"\xef\xbb\xbf")), "")
            if "trace" not in header:
                raise self._error(f"line {number_}", "not the first record of a qlog file: it has no 'trace'")
            trace = mapping(header["trace"], "trace")
        except ValueError as error:
            raise self._error(f"line {number_}", f"not JSON: {_json_error(error)}") from None
        except Wrong as wrong:
            raise self._wrong(f"line {number_}", wrong) from None

        def values() -> Iterator[tuple[str, Any]]:
            for line, at, record in records:
                try:
                    value = _parsed(record)
                except ValueError as error:
                    if self._on_cut is not None and next(records, None) is None:
                        self._on_cut(at, len(record))
                        return
                    raise self._error(f"line {line}", f"not JSON: {_json_error(error)}") from None
                yield f"line {line}", value

        return self._trace(f"line {number_}", header, trace, values())

    # Plain JSON ------------------------------------------------------------------------------------------------

    def _document(self, first: bytes) -> Iterator[Trace]:
        text = first + self._stream.read(MOST_DOCUMENT_BYTES + 1 - len(first))
        if len(text) > MOST_DOCUMENT_BYTES:
            raise self._error(
                "",
                f"plain JSON of more than {MOST_DOCUMENT_BYTES >> 20} MiB, which would be read at once; let the "
                "program write JSON text sequences (.sqlog), which have no such limit",
            )
        try:
            document = mapping(_parsed(text.lstrip(b"\xef\xbb\xbf")), "")
        except json.JSONDecodeError as error:
            raise self._error(f"line {error.lineno}", f"not JSON: {error.msg} (column {error.colno})") from None
        except ValueError as error:
            raise self._error("", f"not JSON: {_json_error(error)}") from None
        del text
        try:
            if "traces" not in document and "trace" not in document:
                raise Wrong("", "not a qlog file: it has neither 'traces' nor 'trace'")
            listed = sequence(document["traces"], "traces") if "traces" in document else [document["trace"]]
        except Wrong as wrong:
            raise self._wrong("", wrong) from None
        for index, value in enumerate(listed):
            place = f"traces[{index}]"
            try:
                trace = mapping(value, "")
                # A file of draft-00 to -02 lists traces that were not converted as errors.
                if "error_description" in trace:
                    continue
                events = sequence(trace.get("events"), "events")
            except Wrong as wrong:
                raise self._wrong(place, wrong) from None
            values = ((f"{place}.events[{number_}]", event) for number_, event in enumerate(events))
            yield self._trace(place, document, trace, values)

    # Both ------------------------------------------------------------------------------------------------------

    def _trace(
        self, place: str, header: Mapping[str, Any], trace: Mapping[str, Any], values: Iterator[tuple[str, Any]]
    ) -> Trace:
        try:
            common = mapping(trace.get("common_fields"), "common_fields")
            names = [_text(name) for name in sequence(trace.get("event_fields"), "event_fields")]
            configuration = mapping(trace.get("configuration"), "configuration")
            unit_ms = _unit_ms(configuration.get("time_units"))
            offset_ms = _time(configuration.get("time_offset") or 0, "configuration.time_offset")
            form = _text(common.get("time_format")) or ("delta" if "delta_time" in names else "relative")
            if form not in _FORMATS:
                raise Wrong("common_fields.time_format", f"{form!r} is not one of {', '.join(_FORMATS)}")
            vantage = _text(mapping(trace.get("vantage_point"), "vantage_point").get("type"))
            zero_ms = _epoch_ms(common.get("reference_time"))
        except Wrong as wrong:
            raise self._wrong(place, wrong.inside("trace") if place.startswith("line") else wrong) from None
        records = self._records(values, names, unit_ms)
        first = next(records, None)
        start_ms = 0.0
        if first is not None and (form == _ABSOLUTE or abs(first[1]) > LEAST_DATE_MS):
            zero_ms = start_ms = first[1]
        return Trace(
            place=place,
            vantage=vantage,
            group=_text(common.get("group_id") or common.get("ODCID")),
            version=_text(header.get("qlog_version")) or _text(header.get("file_schema")).rpartition(":")[2],
            unit_ms=unit_ms,
            zero_ms=zero_ms,
            events=self._timed(
                chain([] if first is None else [first], records), offset_ms - start_ms, is_delta=form in _DELTA
            ),
        )

    def _records(
        self, values: Iterator[tuple[str, Any]], names: list[str], unit_ms: float
    ) -> Iterator[tuple[str, float, str, Mapping[str, Any]]]:
        """Place, time in ms as it is written, name and data of every event."""
        for place, value in values:
            self._events += 1
            if self._events > MOST_EVENTS:
                raise self._error(place, f"more than {MOST_EVENTS} events in a file; split it")
            try:
                is_list = names and isinstance(value, list)
                event = dict(zip(names, value, strict=False)) if is_list else mapping(value, "")
                time = next((event[key] for key in _TIMES if key in event), None)
                if time is None:
                    raise Wrong("time", "the event has none")
                name = next((event[key] for key in _NAMES if key in event), None)
                if not isinstance(name, str):
                    raise Wrong("name", "the event has none" if name is None else f"{_shown(name)} is not text")
                category = event.get("category")
                full = f"{category}:{name}" if isinstance(category, str) else name
                yield place, _time(time, "time", unit_ms), full, mapping(event.get("data"), "data")
            except Wrong as wrong:
                raise self._wrong(place, wrong) from None

    def _timed(
        self, records: Iterable[tuple[str, float, str, Mapping[str, Any]]], offset_ms: float, *, is_delta: bool
    ) -> Iterator[Event]:
        now_ms = offset_ms
        for place, time_ms, name, data in records:
            now_ms = time_ms + (now_ms if is_delta else offset_ms)
            if abs(now_ms) > MOST_MS:
                raise self._error(place, "time: more than 95 years from the trace's zero")
            yield Event(place, now_ms, name, data)


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _unit_ms(unit: Any) -> float:
    if unit not in (None, "ms", "us"):
        raise Wrong("configuration.time_units", f'{_shown(unit)} is neither "ms" nor "us"')
    return 1e-3 if unit == "us" else 1.0


def _epoch_ms(reference: Any) -> float | None:
    """The date of a reference time in ms since 1970; None if it is on a clock of another zero."""
    if isinstance(reference, dict):
        reference = reference.get("wall_clock_time") or reference.get("epoch")
        try:
            date = datetime.fromisoformat(_text(reference))
            date_ms = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1e3
        except (ValueError, OverflowError):
            return None
    else:
        date_ms = number(reference or 0, "common_fields.reference_time")
    return date_ms if LEAST_DATE_MS < date_ms <= MOST_MS else None


def _json_error(error: ValueError) -> str:
    return f"{error.msg} (column {error.colno})" if isinstance(error, json.JSONDecodeError) else str(error)
