"""`./backchannel import`: captures and qlog files from anywhere become a run like any other.

Captures are read (docs/traces.md), matched and aligned in time (analysis/alignment.py), and measured as a
campaign's runs are. What a scenario is to a run of ours, a description of what was found is to an import: its
hosts, and a flow for every direction of data between two of them, the largest first. Of qlog files
(experiments/found_logs.py) everything is as reported by the endpoints that wrote them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from analysis import parquet, versions
from analysis.alignment import ALONE, Aligned, align, unshifted
from analysis.captures import RunData
from analysis.metrics import measure
from analysis.store import PendingRun, Store
from analysis.store.documents import Documents, ImportDescription, ImportedFile, Manifest
from experiments import collections_of_runs, found_datagrams, found_flows, found_logs, import_files
from experiments.language.problems import ImportProblem
from testbed import node_binary
from testbed.errors import TestbedError, Unavailable, no_file
from testbed.report import CaptureReport, InterfaceReport, Report
from testbed.scenario import Flow, Node, Scenario
from testbed.units import number_of

#: Part of a run's identity: raise it when the same captures come to give other results.
VERSION = 4


@dataclass(frozen=True)
class ImportRequest:
    """What to import, and how to store it."""

    files: Sequence[Path]
    #: Its name in tables beside other imports.
    label: str
    note: str
    #: Campaign that collects it.
    campaign: str
    aligned: bool = True


@dataclass(frozen=True)
class Imported:
    """The imported run."""

    run_id: str
    campaign_id: str
    #: The store had it already.
    known: bool
    description: ImportDescription
    flows: Sequence[Flow]


def import_captures(store: Store, request: ImportRequest) -> Imported:
    """Brings captures, or qlog files, into the store as one run.

    Raises:
        ImportProblem: a file cannot be read, or has nothing to measure: no TCP, UDP or echo of ICMP in any capture, no
            data of streams in any log.
    """
    for path in request.files:
        if not path.is_file():
            raise ImportProblem(no_file(path))
    labels = import_files.labels(request.files)
    digests = {label: import_files.sha256(path) for label, path in zip(labels, request.files, strict=True)}
    for (first, path), (other, again) in itertools.combinations(zip(digests, request.files, strict=True), 2):
        if digests[first] == digests[other]:
            raise ImportProblem(f"{path} and {again} have the same content; give each capture once")
    run_id = _run_id(request, digests)
    if store.valid_runs([run_id]):
        stored = store.run(run_id)
        assert stored is not None
        return _entered(store, request, run_id, stored.documents, known=True)
    store.sweep()
    folder = store.staging_folder(run_id)
    try:
        are_logs = _are_logs(request.files)
        read = _read_logs if are_logs else _read_captures
        scenario, report, files, left_out, packets_left_out = read(folder, labels, request, digests)
        metrics = measure(RunData.load(folder, scenario, report)).rows
        description = ImportDescription(
            label=request.label,
            note=request.note,
            files=files,
            flows_left_out=left_out,
            packets_left_out=packets_left_out,
            logs=are_logs,
        )
        manifest = Manifest(**versions.versions().complete(), report=report).replace(import_=description)
        documents = Documents(scenario.as_json(), manifest.as_json())
        documents.write(folder)
        store.commit_run(PendingRun(run_id, "import", documents, metrics, [], 1, folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _entered(store, request, run_id, documents, known=False)


def _entered(store: Store, request: ImportRequest, run_id: str, documents: Documents, known: bool) -> Imported:
    """Adds a stored run to its campaign."""
    title = f"Imported captures: {request.campaign}"
    collections_of_runs.enter(store, "import", request.campaign, title, ("import", request.label), run_id)
    campaign_id = collections_of_runs.campaign_id("import", request.campaign)
    description = documents.manifest.import_
    assert description is not None, "the run of an import has a description"
    return Imported(run_id, campaign_id, known, description, documents.scenario.workload)


#: Scenario, report, files, and the flows and packets that are left out.
_Read = tuple[Scenario, Report, tuple[ImportedFile, ...], int, int]


def _are_logs(files: Sequence[Path]) -> bool:
    """Whether the files are qlog files.

    Raises:
        ImportProblem: only some are.
    """
    logs = [path for path in files if found_logs.is_log(path)]
    if logs and len(logs) < len(files):
        other = next(path for path in files if path not in logs)
        raise ImportProblem(
            f"{logs[0].name} is a qlog file and {other.name} is not; import captures and logs separately"
        )
    return bool(logs)


def _read_logs(folder: Path, labels: Sequence[str], request: ImportRequest, digests: Mapping[str, str]) -> _Read:
    logs = found_logs.read(folder, labels, request.files, digests)
    return logs.scenario, logs.report, logs.files, logs.left_out, 0


def _read_captures(folder: Path, labels: Sequence[str], request: ImportRequest, digests: Mapping[str, str]) -> _Read:
    kept = import_files.keep(folder, labels, request.files)
    names = {label: path.name for label, path in zip(labels, request.files, strict=True)}
    readable = {label: import_files.readable(path, label, folder, names[label]) for label, path in kept.items()}
    aligned = _read(folder, {label: path for label, (path, _) in readable.items()}, names, request.aligned)
    summary = json.loads((folder / "summary.json").read_text())
    packets, packets_left_out = found_datagrams.read(folder)
    if packets.is_empty() and not any(file["packets"] > file["not_tcp"] for file in summary["files"]):
        raise ImportProblem(_nothing(summary, request.files, packets_left_out))
    found_flows.assign_sender(folder)
    scenario, report, left_out = _describe(folder, summary, packets, labels, aligned)
    shutil.rmtree(folder / "converted", ignore_errors=True)
    files = tuple(
        ImportedFile(
            label=label,
            path=str(path),
            sha256=digests[label],
            read_by=readable[label][1],
            clock=aligned.files[number].sentence,
            shift_ns=aligned.files[number].shift_ns,
            uncertain_ns=aligned.files[number].uncertain_ns,
            # The format of the file that was imported, not of the copy.
            format=file["format"] if path.suffix in {".gz", ".zst"} else file["format"].split(" in ")[0],
            **{key: file[key] for key in REPEATED},
        )
        for number, (label, path, file) in enumerate(zip(labels, request.files, summary["files"], strict=True))
    )
    return scenario, report, files, left_out, packets_left_out


#: Of a file's summary, what the manifest repeats.
REPEATED = (
    "packets",
    "not_tcp",
    "unreadable",
    "unfinished_fragments",
    "dropped_by_capture",
    "link_types",
    "interfaces",
    "remarks",
    "names",
    "connections_total",
    "connections_given_up",
    "damages",
    "damage",
)


def _run_id(request: ImportRequest, digests: dict[str, str]) -> str:
    identity = {
        "import": VERSION,
        "label": request.label,
        "note": request.note,
        "aligned": request.aligned,
        "files": [[label, digest] for label, digest in digests.items()],
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]


def _read(folder: Path, captures: dict[str, Path], names: dict[str, str], aligned: bool) -> Aligned:
    """Makes the tables, with all clocks as the first capture's. Messages name the files that were given."""
    words = ["trace", "--datagrams", "--out", str(folder), "--jobs", str(os.cpu_count() or 1)]
    files = [f"{label}={path}" for label, path in captures.items()]
    try:
        node_binary.call(*words, *files, timeout_s=import_files.READER_S)
        alignment_ = align(folder, len(files)) if len(files) > 1 else ALONE
        shifts = [
            f"--shift={label}={alignment_.files[number].shift_ns}"
            for number, label in enumerate(captures)
            if aligned and alignment_.files[number].shift_ns
        ]
        if not aligned:
            alignment_ = unshifted(alignment_)
        if shifts:
            node_binary.call(*words, *shifts, *files, timeout_s=import_files.READER_S)
    except Unavailable:
        raise
    except TestbedError as error:
        reason = str(error).removeprefix("backchannel-node trace: ")
        for label, path in captures.items():
            reason = reason.replace(str(path), names[label])
        raise ImportProblem(reason) from None
    return alignment_


def _nothing(summary: dict[str, Any], files: Sequence[Path], left_out: int) -> str:
    packets = sum(file["packets"] for file in summary["files"])
    unknown = sorted(
        {
            link_type["link_type"]
            for file in summary["files"]
            for link_type in file["link_types"]
            if not link_type["known"]
        }
    )
    names = ", ".join(path.name for path in files)
    if left_out:
        return (
            f"no TCP was found in {names}, and {left_out} packets of UDP and pings, where at most "
            f"{found_datagrams.MOST_PACKETS} are analysed: cut the capture, by editcap -c"
        )
    if unknown:
        kinds = ", ".join(map(str, unknown))
        return (
            f"no TCP, UDP or ping was found in {names}: of its {packets} packets some are of link type {kinds}, "
            "which is not known"
        )
    trouble = next((file["trouble"] for file in summary["files"] if file["trouble"]), None)
    found = f"no TCP, UDP or ping was found in {names}: {number_of(packets, 'packet')}"
    if cut := sum(file["unreadable"] for file in summary["files"]):
        found += (
            f", of which {cut} have headers that are cut off or contradict each other; tcpdump -s 128 keeps headers"
        )
    return f"{found}; {trouble}" if trouble else found


def _describe(
    folder: Path, summary: dict[str, Any], packets: pl.DataFrame, labels: Sequence[str], aligned: Aligned
) -> tuple[Scenario, Report, int]:
    """What was found, as a scenario and a run's report, and the number of flows that were left out."""
    connections = parquet.read(folder / "connections.parquet")
    first_ns = min(file["first_ns"] for file in summary["files"] if file["first_ns"] is not None)
    last_ns = max(file["last_ns"] for file in summary["files"] if file["last_ns"] is not None)
    seen = pl.concat(
        [
            table.select(pl.col(end).alias("host"), pl.col("file").cast(pl.Int64))
            for table, ends in ((connections, ("client", "server")), (packets, ("src", "dst")))
            for end in ends
        ]
    )
    anywhere = dict(seen.group_by("host").agg(pl.col("file").min()).iter_rows())
    at = {**anywhere, **found_datagrams.nearest(packets), **aligned.nearest}
    files = {host: [file] for host, file in at.items()}
    workload, left_out = found_datagrams.workload(folder, connections, packets, files, first_ns)
    hosts = sorted({end for flow in workload for end in (flow.from_, flow.to)})
    scenario = Scenario(
        version=1,
        seed=0,
        duration_s=(last_ns - first_ns + 1000) / 1e9,
        nodes=tuple(Node(name=host, kind="host") for host in hosts),
        links=(),
        workload=tuple(workload),
    )
    report = Report(
        t0_epoch_ns=first_ns,
        interfaces=tuple(
            InterfaceReport(node=host, interface=labels[at[host]], link="", end=0, address=host) for host in hosts
        ),
        captures=tuple(
            CaptureReport(
                interface=label,
                node="",
                path=f"{label}.pcap",
                captured=file["packets"],
                dropped=file["dropped_by_capture"],
            )
            for label, file in zip(labels, summary["files"], strict=True)
        ),
    )
    return scenario, report, left_out
