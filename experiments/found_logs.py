"""Connections that qlog files contain and no scenario declared, for imports.

A trace is one end of a connection; two traces of one id, a client's and a server's, are both ends. Each direction in
which a log has data of streams is a flow. Logs are kept as JSON text sequences with the run's times.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import qlog, qlog_files
from analysis.errors import AnalysisError
from analysis.store.documents import Damage, ImportedFile
from experiments import import_files
from experiments.found_flows import MOST_FLOWS
from experiments.language.problems import ImportProblem
from testbed import node_binary
from testbed.report import Report
from testbed.scenario import Flow, Node, Scenario

ENDS = ("client", "server")
#: A capture without packets, of which the tables are those of no segments.
NO_PACKETS = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000065000000")
#: Connections of an import. More have no names of their own in any table.
MOST_CONNECTIONS = 10_000


@dataclass
class _Trace:
    """One end of a connection."""

    label: str
    vantage: str
    group: str
    body: Path
    zero_ms: float | None
    unit_ms: float
    version: str
    first_ms: float
    last_ms: float
    #: Data of streams that it sent and received.
    sent_bytes: int
    received_bytes: int
    #: Number of its connection, from 1, and what is added to its times.
    connection: int = 0
    offset_ms: float = 0.0


@dataclass(frozen=True)
class Found:
    """What an import of logs contains."""

    scenario: Scenario
    report: Report
    files: tuple[ImportedFile, ...]
    #: Flows beyond those that are measured.
    left_out: int


def is_log(path: Path) -> bool:
    """Whether a file, plain or compressed by gzip, begins like a qlog file."""
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            with gzip.GzipFile(fileobj=plain) if packed else plain as stream:
                return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (qlog_files.SEPARATOR, b"{")
    except (OSError, EOFError):
        return False


def read(folder: Path, labels: Sequence[str], files: Sequence[Path], digests: Mapping[str, str]) -> Found:
    """Keeps the logs in the run's folder, each connection's end in a file, and describes what they contain.

    Raises:
        ImportProblem: a file cannot be read, or has no connection with data.
    """
    (folder / qlog.FOLDER).mkdir()
    traces: list[_Trace] = []
    imported = []
    for label, path in zip(labels, files, strict=True):
        damage: list[Damage] = []
        try:
            events, others, of_file = _traces(folder, label, path, damage)
        except AnalysisError as error:
            raise ImportProblem(str(error)) from None
        traces += of_file
        version = of_file[0].version if of_file else ""
        remark = f"{others} traces of neither end left out" if others else "not aligned"
        imported.append(
            ImportedFile(
                label=label,
                path=str(path),
                sha256=digests[label],
                format=f"qlog {version}".strip(),
                read_by="backchannel",
                clock=remark,
                packets=events,
                not_tcp=events,
                connections_total=len(of_file),
                damages=len(damage),
                damage=tuple(damage),
            )
        )
    if not traces:
        raise ImportProblem(f"no trace of a client or server was found in {_names(files)}")
    connections = _connections(traces)
    start_epoch_ms = _align(traces)
    for trace in traces:
        _keep(folder, trace)
    workload = _flows(connections)
    if not workload:
        raise ImportProblem(f"no data of streams was found in {_names(files)}: events of packets with their frames")
    _write_no_segments(folder)
    scenario = Scenario(
        version=1,
        seed=0,
        duration_s=max(flow.stop_s or 0.0 for flow in workload),
        nodes=tuple(Node(name=end, kind="host") for end in ENDS),
        links=(),
        workload=tuple(workload[:MOST_FLOWS]),
    )
    report = Report(t0_epoch_ns=int(start_epoch_ms * 1e6))
    return Found(scenario, report, tuple(imported), max(len(workload) - MOST_FLOWS, 0))


def _names(files: Sequence[Path]) -> str:
    return ", ".join(path.name for path in files)


def _traces(folder: Path, label: str, path: Path, damage: list[Damage]) -> tuple[int, int, list[_Trace]]:
    """The events of a file, its traces of other places than the ends, and those of the ends, with their events kept."""
    events, others = 0, 0
    found: list[_Trace] = []

    def on_cut(offset: int, length: int) -> None:
        damage.append(Damage(offset=offset, reason="the last record is cut off", bytes=length))

    for trace in qlog_files.traces(path, on_cut):
        if trace.vantage not in ENDS:
            others += 1
        if len(found) == MOST_CONNECTIONS:
            raise AnalysisError(f"{path}, {trace.place}: more than {MOST_CONNECTIONS} traces; split the file")
        body = folder / qlog.FOLDER / f"{label}-{len(found) + 1}.body"
        first_ms, last_ms, count = 0.0, 0.0, 0
        reader = qlog.TraceReader(path, trace, 0, qlog.Rows())
        with gzip.GzipFile(body, "wb", compresslevel=1, mtime=0) as out:
            for event in trace.events:
                first_ms = min(first_ms, event.time_ms) if count else event.time_ms
                last_ms = max(last_ms, event.time_ms) if count else event.time_ms
                count += 1
                if trace.vantage in ENDS:
                    reader.take(event)
                    record = {"time": event.time_ms / trace.unit_ms, "name": event.name, "data": event.data}
                    out.write(b"\x1e" + json.dumps(record, separators=(",", ":")).encode() + b"\n")
        events += count
        if trace.vantage not in ENDS or not count:
            body.unlink()
            continue
        found.append(
            _Trace(
                label,
                trace.vantage,
                trace.group,
                body,
                trace.zero_ms,
                trace.unit_ms,
                trace.version,
                first_ms,
                last_ms,
                reader.sent_bytes,
                reader.received_bytes,
            )
        )
    return events, others, found


def _connections(traces: Sequence[_Trace]) -> list[list[_Trace]]:
    """The traces of each connection: one, or a client's and a server's of the same id."""
    of_group: dict[str, list[_Trace]] = {}
    for trace in traces:
        of_group.setdefault(trace.group, []).append(trace)
    connections: list[list[_Trace]] = []
    for trace in traces:
        if trace.connection:
            continue
        pair = of_group[trace.group] if trace.group else []
        both = sorted(other.vantage for other in pair) == list(ENDS)
        connections.append(pair if both else [trace])
        for other in connections[-1]:
            other.connection = len(connections)
    return connections


def _align(traces: Sequence[_Trace]) -> float:
    """Sets what is added to the times of each trace in ms, so that the first event of all is at 0. Returns the date of
    that event in ms since 1970; 0 where no trace has dates. Traces without dates begin with the first date.
    """
    first_date_ms = min((trace.zero_ms for trace in traces if trace.zero_ms is not None), default=0.0)
    for trace in traces:
        trace.offset_ms = 0.0 if trace.zero_ms is None else trace.zero_ms - first_date_ms
    start_ms = min(trace.first_ms + trace.offset_ms for trace in traces)
    for trace in traces:
        trace.offset_ms -= start_ms
    return max(first_date_ms + start_ms, 0.0)


def _keep(folder: Path, trace: _Trace) -> None:
    """Writes a trace as a log of the run: a new header, with the run's zero, and the events as they were kept."""
    header = {
        "qlog_version": "0.3",
        "qlog_format": "JSON-SEQ",
        "title": trace.version,
        "trace": {
            "vantage_point": {"type": trace.vantage},
            "common_fields": {"time_format": "relative", "reference_time": 0, "group_id": trace.group},
            "configuration": {"time_offset": trace.offset_ms, "time_units": "us" if trace.unit_ms < 1 else "ms"},
        },
    }
    kept = folder / qlog.FOLDER / f"{trace.label}-{trace.connection}-{trace.vantage}{qlog.SUFFIX}.gz"
    with kept.open("wb") as out:
        # Members of gzip in a row are one file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as first:
            first.write(b"\x1e" + json.dumps(header).encode() + b"\n")
        with trace.body.open("rb") as body:
            shutil.copyfileobj(body, out, 1 << 20)
    trace.body.unlink()


def _flows(connections: Sequence[Sequence[_Trace]]) -> list[Flow]:
    """Each direction of each connection that has data, that of most bytes first."""
    found: list[tuple[int, Flow]] = []
    for number, connection in enumerate(connections, 1):
        first_ms = min(trace.first_ms + trace.offset_ms for trace in connection)
        last_ms = max(trace.last_ms + trace.offset_ms for trace in connection)
        for sender, receiver in (ENDS, ENDS[::-1]):
            of_ends = (trace.sent_bytes if trace.vantage == sender else trace.received_bytes for trace in connection)
            size = max(of_ends)
            if size == 0 or last_ms <= first_ms:
                continue
            flow = Flow.read(
                {
                    "name": f"{sender}-{receiver}:{number}",
                    "kind": "bulk",
                    "from": sender,
                    "to": receiver,
                    "port": number,
                    "stack": {"name": "quic"},
                    "start_s": first_ms / 1e3,
                    # Just after its last event.
                    "stop_s": last_ms / 1e3 + 1e-6,
                }
            )
            found.append((size, flow))
    return [flow for _, flow in sorted(found, key=lambda one: -one[0])]


def _write_no_segments(folder: Path) -> None:
    """The tables of a run without captures."""
    empty = folder / "none.pcap"
    empty.write_bytes(NO_PACKETS)
    node_binary.call("trace", "--out", str(folder), f"none={empty}", timeout_s=import_files.READER_S)
    empty.unlink()
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "files": []}))
