"""qlog files of every form: the same events, errors that name file, place and field, and bounded hostile ones."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

from analysis import qlog, qlog_files
from analysis.errors import AnalysisError

#: One connection as every form writes it: a packet with data, its ack after 8 ms, and the metrics of recovery.
EVENTS: list[tuple[float, str, dict[str, Any]]] = [
    (10.0, "packet_sent", {
        "header": {"packet_type": "1RTT", "packet_number": 7}, "raw": {"length": 1200},
        "frames": [{"frame_type": "stream", "stream_id": 4, "offset": 100, "length": 1000}],
    }),
    (18.0, "packet_received", {
        "header": {"packet_type": "1RTT", "packet_number": 1}, "raw": {"length": 40},
        "frames": [{"frame_type": "ack", "ack_delay": 2.5, "acked_ranges": [[0, 3], [7]]}],
    }),
    (18.0, "metrics_updated", {"smoothed_rtt": 8.0, "congestion_window": 12000}),
]  # fmt: skip


def sequence(
    head: dict[str, Any], common: dict[str, Any], rows: list[dict[str, Any]], separator: str = "\x1e"
) -> bytes:
    trace = {"vantage_point": {"type": "server"}, "common_fields": common}
    return "".join(f"{separator}{json.dumps(record)}\n" for record in [{**head, "trace": trace}, *rows]).encode()


def named(category: str, times: list[float]) -> list[dict[str, Any]]:
    return [
        {"time": time, "name": f"{category}:{name}", "data": data}
        for time, (_, name, data) in zip(times, EVENTS, strict=True)
    ]


V03, NEW = {"qlog_version": "0.3", "qlog_format": "JSON-SEQ"}, {"file_schema": "urn:ietf:params:qlog:file:sequential"}
OLD_SIZES = {"packet_sent": 1200, "packet_received": 40}
FORMS = {
    "0.3": sequence(V03, {"time_format": "relative", "reference_time": 0}, named("transport", [10, 18, 18])),
    "lines": sequence(V03, {}, named("transport", [10, 18, 18]), separator=""),
    "several lines a record": sequence(V03, {}, named("transport", [10, 18, 18])).replace(b", ", b",\n"),
    "draft-10": sequence(
        NEW, {"time_format": "relative_to_previous_event"}, named("quic", [10, 8, 0])
    ).replace(b"metrics_updated", b"recovery_metrics_updated"),
    # Stream frames without a length of their own, and times on the clock of the wall.
    "draft-11": sequence(
        NEW, {"reference_time": {"clock_type": "system", "epoch": "2026-11-29T10:00:00Z"}},
        named("quic", [10, 18, 18]),
    ).replace(b'"length": 1000', b'"raw": {"payload_length": 1000}'),
    "plain JSON": json.dumps({"qlog_version": "0.3", "traces": [
        {"vantage_point": {"type": "server"}, "events": named("transport", [10, 18, 18])},
    ]}, indent=1).encode(),
    "draft-00": json.dumps({"qlog_version": "draft-00", "traces": [
        {"error_description": "lost", "uri": "x"},
        {
            "vantage_point": {"type": "server"}, "configuration": {"time_units": "us"},
            "event_fields": ["relative_time", "category", "event", "data"],
            "events": [
                [10_000, "transport", "packet_sent", {
                    "packet_type": "1RTT", "header": {"packet_number": "7", "packet_size": 1200},
                    "frames": [{"frame_type": "stream", "id": "4", "offset": "100", "length": 1000}],
                }],
                [18_000, "transport", "packet_received", {
                    "packet_type": "1RTT", "header": {"packet_number": "1", "packet_size": 40},
                    "frames": [{"frame_type": "ack", "ack_delay": 2500, "acked_ranges": [["0", "3"], ["7"]]}],
                }],
                [18_000, "recovery", "metrics_updated", {"smoothed_rtt": 8000, "cwnd": 12000}],
            ],
        },
    ]}).encode(),
}  # fmt: skip


def events(path: Path, on_cut: Any = None) -> tuple[qlog_files.Trace, list[qlog_files.Event]]:
    ((trace, found),) = ((trace, list(trace.events)) for trace in qlog_files.traces(path, on_cut))
    return trace, found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_every_form_has_the_same_events(form: str, pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(FORMS[form]))
    log = qlog.read([path])
    assert log.sent.rows() == [(0.010, 1200)]
    assert log.received.rows() == [(0.018, 40)]
    assert log.acks.rows() == [(0.018, 0.0025, 5, 1200)]
    assert log.sent_data.rows() == [(0.010, 0, 4, 100, 1000, 0.018)]
    assert log.metrics.select("t_s", "srtt_s", "cwnd_bytes").rows() == [(0.018, 0.008, 12000.0)]
    trace, _ = events(path)
    assert trace.vantage == "server"
    assert (trace.zero_ms is not None) == (form == "draft-11")


def test_dates_count_from_the_first_event(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for form in ("absolute", "relative"):
        date = 1_795_949_862_903.5
        path.write_bytes(sequence(V03, {"time_format": form}, named("transport", [date, date + 8, date + 8])))
        trace, found = events(path)
        assert (trace.zero_ms, [event.time_ms for event in found]) == (date, [0.0, 8.0, 8.0])


def test_a_last_record_that_is_cut_off_is_an_error_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    whole = FORMS["0.3"]
    path.write_bytes(whole[:-30])
    with pytest.raises(AnalysisError, match="log, line 4: not JSON: "):
        qlog.read([path])
    cuts: list[tuple[int, int]] = []
    assert len(events(path, lambda offset, length: cuts.append((offset, length)))[1]) == 2
    assert cuts == [(whole.rindex(b"\x1e") + 1, len(whole) - 30 - whole.rindex(b"\x1e") - 1)]
    # Only the last one may be.
    path.write_bytes(whole.replace(b'"raw": {"length": 40}', b'"raw": {'))
    with pytest.raises(AnalysisError, match="line 3: not JSON"):
        events(path, lambda *_: None)


def changed(was: str, becomes: str, form: str = "0.3") -> bytes:
    text = FORMS[form].decode()
    assert was in text
    return text.replace(was, becomes, 1).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "neither with a record separator nor with '{'"),
        (b"\xd4\xc3\xb2\xa1 a capture", "neither with a record separator nor with '{'"),
        (b'{"a": 1}\n', "line 1: not the first record of a qlog file: it has no 'trace'"),
        (b'{\n"a": 1}\n', "not a qlog file: it has neither 'traces' nor 'trace'"),
        (b'\x1e{"trace": 5}\n', "line 1: trace: 5 is not an object"),
        (b'{"traces": {}}', "traces: an object is not an array"),
        (b'{"traces": [\n7,}', "line 2: not JSON"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b"\x1e" + b"[" * 100_000, "line 1: not JSON: nested too deep"),
        (changed('"time": 10', '"at": 10'), "line 2: time: the event has none"),
        (changed('"time": 10', '"time": NaN'), "line 2: not JSON: NaN is not JSON"),
        (changed('"time": 10', '"time": 1e300'), "line 2: time: 1e+300 is not between"),
        (changed('"time": 10', '"time": 4e12'), "line 2: time: 4000000000000.0 is not between"),
        (changed('"name": "transport:packet_sent"', '"name": 5'), "line 2: name: 5 is not text"),
        (changed('"packet_number": 7', '"packet_number": -1'), "line 2: data.header.packet_number: -1 is not between"),
        (changed('"length": 1200', '"length": 70000'), "line 2: data.raw.length: 70000 is not between 0 and 65535"),
        (changed('"offset": 100', '"offset": "x"'), 'line 2: data.frames[0].offset: "x" is not a whole number'),
        (changed('"offset": 100', f'"offset": {1 << 62}'), "line 2: data.frames[0].offset: the number is not between"),
        (changed('"frames": [{', '"frames": [4, {'), "line 2: data.frames[0]: 4 is not an object"),
        (changed("[[0, 3], [7]]", "[[0, 3], [9, 7]]"), "line 3: data.frames[0].acked_ranges[1]: expected one packet"),
        (changed('"ack_delay": 2.5', '"ack_delay": []'), "line 3: data.frames[0].ack_delay: an array is not a number"),
        (changed('"smoothed_rtt": 8.0', '"smoothed_rtt": true'), "line 4: data.smoothed_rtt: true is not a number"),
        (changed('"time_format": "relative"', '"time_format": "sundial"'), "line 1: trace.common_fields.time_format"),
        (changed("[10000,", '["now",', "draft-00").replace(b"[10000,", b"[]"), None),
        (changed('"time": 10,', '"time": {},', "plain JSON"), "traces[0].events[0]: time: an object is not a number"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\xff garbage", "cannot be read: "),
        (gzip.compress(FORMS["0.3"])[:-20], "cannot be read: "),
    ],
)  # fmt: skip
def test_errors_name_file_place_and_field(data: bytes, words: str | None, tmp_path: Path) -> None:
    path = tmp_path / "their.sqlog"
    path.write_bytes(data)
    with pytest.raises(AnalysisError) as caught:
        qlog.read([path])
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert words is None or words in message, message


def test_what_is_read_at_once_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "log"
    monkeypatch.setattr(qlog_files, "MOST_RECORD_BYTES", 1 << 20)
    monkeypatch.setattr(qlog_files, "MOST_DOCUMENT_BYTES", 2 << 20)
    monkeypatch.setattr(qlog_files, "MOST_EVENTS", 2)
    # A short file that unpacks to a long one.
    path.write_bytes(gzip.compress(b"\x1e" + b" " * (50 << 20)))
    with pytest.raises(AnalysisError, match="line 1: a record of more than 1 MiB"):
        qlog.read([path])
    path.write_bytes(gzip.compress(b"{" + b" " * (50 << 20)))
    with pytest.raises(AnalysisError, match=r"plain JSON of more than 2 MiB.*sqlog"):
        qlog.read([path])
    path.write_bytes(FORMS["0.3"])
    with pytest.raises(AnalysisError, match="line 4: more than 2 events"):
        qlog.read([path])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in _paths(part, (*path, key)))]


RECORDS = [json.loads(line) for line in FORMS["0.3"].decode().replace("\x1e", "").splitlines()]
PLACES = [(number, path) for number, record in enumerate(RECORDS) for path in _paths(record)]


@given(place=st.sampled_from(PLACES), value=JSON)
def test_any_value_at_any_place_is_read_or_named(place: tuple[int, tuple[Any, ...]], value: Any) -> None:
    records = json.loads(json.dumps(RECORDS))
    number, keys = place
    holder: Any = records
    for key in (number, *keys)[:-1]:
        holder = holder[key]
    holder[(number, *keys)[-1]] = value
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(b"".join(b"\x1e" + json.dumps(record).encode() + b"\n" for record in records))
        message = ""
        try:
            log = qlog.read([path])
            qlog.in_order(log.data)
            qlog.placed(log.sent_data)
        except AnalysisError as error:
            message = str(error)
    assert not message or message.startswith((f"{path}, line ", f"{path}: ")), message
    assert "\n" not in message


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=30))
def test_packets_are_acknowledged_once(ranges: list[tuple[int, int]]) -> None:
    known, found = set[int](), qlog._Ranges()
    for first, more in ranges:
        new = {number for low, high in found.add(first, first + more) for number in range(low, high + 1)}
        assert new == set(range(first, first + more + 1)) - known
        known |= new
        # Neighbours are one range.
        assert len(found._firsts) == sum(number - 1 not in known for number in known)


def test_data_have_their_place_among_all_streams_and_what_is_sent_again_its_old_one() -> None:
    rows = [(0, 0, 100), (4, 0, 50), (0, 100, 100), (4, 0, 50), (0, 150, 100), (0, 250, 0)]
    data = pl.DataFrame(
        [(float(at), 0, *row) for at, row in enumerate(rows)],
        ["t_s", "connection", "stream_id", "offset", "bytes"], orient="row",
    )  # fmt: skip
    placed = qlog.placed(data)
    assert placed["position"].to_list() == [0, 100, 150, 100, 200, 300]
    assert placed["again"].to_list() == [False, False, False, True, False, False]
