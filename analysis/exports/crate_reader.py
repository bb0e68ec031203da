"""Reads a bundle that `analysis.exports.crate` wrote, and stores its campaign.

Reading trusts nothing. The store changes only after every file has its checksum, every value its type and range, every
run the id of its scenario, and every run with captures was measured again from them. What is stored are the values that
were measured here; only runs without captures keep those of the bundle, and their manifests say so.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from agents.typed_json import MistypedValue
from analysis.errors import AnalysisError
from analysis.exports import unpack
from analysis.exports.crate import OF_CAMPAIGN, VERSION
from analysis.exports.unpack import CAMPAIGN, MOST_METADATA_BYTES, BundleError, json_object
from analysis.metrics import Measured
from analysis.results import RENAMED, MetricValue, line_name
from analysis.store import PendingRun, Store, StoreError
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from testbed import confined
from testbed.documents import Bounds, Document, DocumentError, Matches, Model
from testbed.errors import TestbedError
from testbed.report import Report
from testbed.scenario import Scenario

#: What a database's column holds.
Count = Annotated[int, Bounds(0, 2**63 - 1)]
Name = Annotated[str, Matches(r"[^\0]{1,1000}", "a text of 1 to 1000 characters")]
RunId = Annotated[str, Matches("[0-9A-Za-z_-]{3,64}", "the id of a run")]
#: Files are named after flows and interfaces.
FILE_NAME = Matches(r"(?!\.)[^/\\\0\n]{1,200}", "a file name")


class BundledCampaign(Model):
    """A campaign in a bundle: the fields of `NewCampaign`."""

    id: Annotated[str, Matches("[0-9A-Za-z_:.-]{1,128}", "the id of a campaign")]
    name: Name
    title: str
    file: str
    text: str
    overrides: Mapping[str, str]
    backend: Name
    seed: Count
    repetitions: Count


class BundledMetric(Model):
    """A value of a run."""

    metric: Name
    subject: str
    value: float
    unit: str


class BundledFile(Model):
    """A file of a run."""

    path: Name
    bytes: Count
    sha256: Annotated[str, Matches("[0-9a-f]{64}", "a SHA-256")]


class BundledRun(Model):
    """A run in a bundle."""

    id: RunId
    backend: Name
    seed: Count
    duration_s: float
    state: Literal["valid", "invalid"]
    problems: tuple[str, ...]
    attempt: Count
    scenario: Document
    manifest: Document
    metrics: tuple[BundledMetric, ...]
    files: tuple[BundledFile, ...]


class BundleDocument(Model):
    """campaign.json of a bundle."""

    version: int
    campaign: BundledCampaign
    #: (field, value) pairs of each parameter combination.
    points: tuple[tuple[tuple[Name, str], ...], ...]
    #: Combination, repetition and run.
    members: tuple[tuple[Count, Count, RunId], ...]
    runs: tuple[BundledRun, ...]


@dataclass(frozen=True)
class Bundle:
    """A bundled campaign that was imported."""

    #: Id and name of its campaign.
    id: str
    name: str
    #: Files whose checksum was verified.
    files: int
    runs: int
    #: Valid runs that the store did not have.
    landed: int
    #: New runs that were measured again from their captures.
    measured: int
    #: Those of them whose values in the bundle were others.
    corrected: int


@dataclass(frozen=True)
class Rules:
    """What the layer above knows of runs."""

    #: The id that a run on a backend must have; None: any.
    identity: Callable[[str, Scenario, Document, Report], str | None]
    #: Measures a run from the captures in its folder; None: it has none.
    measure: Callable[[Path, Scenario, Report], Measured | None]


def read(store: Store, path: Path, rules: Rules) -> Bundle:
    """Verifies a bundle, then stores its campaign.

    Valid runs that the store has already stay as they are, and so does a campaign.

    Raises:
        AnalysisError: it is not a bundle, or something in it is not what its metadata say; the store is as it was.
    """
    scratch = store.staging_folder("bundle")
    try:
        described = _unpacked(path, scratch)
        document = _checked(_load(scratch / CAMPAIGN), described)
        return _store(store, document, scratch, len(described), rules)
    except BundleError as error:
        raise AnalysisError(f"{path}: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise AnalysisError(f"{path} cannot be read: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpacked(path: Path, folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file of a bundle, which a confined process wrote below a folder."""
    script, room_bytes = str(unpack.__file__), shutil.disk_usage(folder).free
    words = [sys.executable, "-I", script, str(path), str(folder), str(room_bytes)]
    readable = [str(path), script, sys.prefix, sys.base_prefix]
    done = subprocess.run(
        confined.words(words, read=readable, write=[folder]), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"reading it ended with status {done.returncode}"]
        raise BundleError(reason[0].removeprefix("error: "))
    return {name: (size, digest) for name, (size, digest) in json.loads(done.stdout).items()}


def _load(file: Path) -> dict[str, Any]:
    if file.stat().st_size > MOST_METADATA_BYTES:
        raise BundleError(f"{file.name} is too large")
    return json_object(file.read_bytes(), file.name)


def _checked(document: dict[str, Any], described: Mapping[str, tuple[int, str]]) -> BundleDocument:
    """The campaign's document, checked for the form that `crate` writes and against the files of the bundle."""
    version = document.get("version")
    if version != VERSION:
        raise BundleError(f"unsupported bundle version {version} (supported: {VERSION})")
    try:
        typed = BundleDocument.read(document)
    except DocumentError as error:
        raise BundleError(f"{CAMPAIGN} does not match the schema: {error}") from None
    problem = next(_problems(typed, described), None)
    if problem:
        raise BundleError(problem)
    return typed


def _problems(document: BundleDocument, described: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    ids = {run.id for run in document.runs}
    if len(ids) < len(document.runs):
        yield "a run occurs twice"
    for run in document.runs:
        if (run.state == "valid") == bool(run.problems):
            yield f"the state of run {run.id} contradicts its list of problems"
        if len({(row.metric, row.subject) for row in run.metrics}) < len(run.metrics):
            yield f"a metric of run {run.id} occurs twice"
        declared = {f"runs/{run.id}/{file.path}": (file.bytes, file.sha256) for file in run.files}
        listed = {name: its for name, its in described.items() if name.startswith(f"runs/{run.id}/")}
        if declared != listed:
            yield f"the files of run {run.id} do not match their description in the bundle"
    if len({(point, repetition) for point, repetition, _ in document.members}) < len(document.members):
        yield "a repetition of a parameter combination occurs twice"
    for point, _, run_id in document.members:
        if point >= len(document.points):
            yield f"run {run_id} belongs to a parameter combination that is missing"
    if unowned := ids - {run_id for _, _, run_id in document.members}:
        yield f"run {min(unowned)} belongs to no parameter combination"


def _store(store: Store, document: BundleDocument, scratch: Path, files: int, rules: Rules) -> Bundle:
    campaign = NewCampaign.of(document.campaign)
    _compare(store, campaign, document)
    stored = store.valid_runs([run.id for run in document.runs])
    new = [run for run in document.runs if run.id not in stored]
    prepared = [_prepare(run, scratch / "runs" / run.id, rules) for run in new]
    pending_runs = []
    for pending, _ in prepared:
        folder = store.staging_folder(pending.run_id)
        folder.rmdir()
        pending.folder.rename(folder)
        pending_runs.append(replace(pending, folder=folder))
    points = [[(field, value) for field, value in pairs] for pairs in document.points]
    try:
        landed = store.commit_campaign(campaign, points, document.members, pending_runs)
    except StoreError as error:
        for pending in pending_runs:
            shutil.rmtree(pending.folder, ignore_errors=True)
        raise BundleError(str(error)) from None
    verdicts = [verdict for _, verdict in prepared if verdict is not None]
    return Bundle(campaign.id, campaign.name, files, len(document.runs), landed, len(verdicts), sum(verdicts))


def _compare(store: Store, campaign: NewCampaign, document: BundleDocument) -> None:
    """Raises BundleError if the store has a campaign of this id that is another one."""
    here = store.campaign(campaign.id)
    if here is None:
        return
    same = all(getattr(here, key) == getattr(campaign, key) for key in OF_CAMPAIGN if key != "file")
    members = {(point.number, member.repetition, member.run_id) for point in here.points for member in point.members}
    points = [tuple(point.parameters) for point in here.points]
    if not same or members != set(document.members) or points != list(document.points):
        raise BundleError(
            f"these results have a campaign {here.name} ({here.id}) with other settings or runs, which a bundle does "
            "not replace; import it into another folder with --results"
        )


def _prepare(run: BundledRun, folder: Path, rules: Rules) -> tuple[PendingRun, bool | None]:
    """What is stored of a run, and whether its values differ from the bundle's; None: it has no captures."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = Documents(run.scenario, run.manifest)
    try:
        scenario = Scenario.read(run.scenario)
        report, manifest = documents.report, documents.manifest
        for flow in scenario.workload:
            FILE_NAME.read(flow.name)
        for capture in report.captures:
            FILE_NAME.read(capture.path)
    except (MistypedValue, TestbedError, AnalysisError, StoreError) as error:
        raise BundleError(f"run {run.id}: {error}") from None
    try:
        expected_id = rules.identity(run.backend, scenario, run.scenario, report)
    except Exception as error:  # noqa: BLE001 (options of mechanisms may be anything)
        raise BundleError(f"run {run.id}: this version cannot run its scenario: {error}") from None
    if expected_id not in (None, run.id):
        raise BundleError(
            f"run {run.id}: its id does not match its scenario: another version wrote it, or it was modified"
        )
    if (run.seed, run.duration_s) != (scenario.seed, scenario.duration_s):
        raise BundleError(f"run {run.id}: its seed or duration does not match its scenario")
    bundled = _values(run.metrics)
    try:
        measured = rules.measure(folder, scenario, report)
    except Exception as error:  # noqa: BLE001 (so may captures that contradict the report)
        raise BundleError(f"run {run.id} cannot be measured again: {error}") from None
    if measured is None:
        values = bundled
        documents = Documents(run.scenario, manifest.replace(values_from_bundle=True).as_json())
    else:
        values = list(measured.rows)
    documents.write(folder)
    pending = PendingRun(run.id, run.backend, documents, values, run.problems, run.attempt, folder)
    # This version may have more metrics than the one that made the bundle.
    return pending, None if measured is None else not _by_key(bundled).items() <= _by_key(values).items()


def _by_key(values: Sequence[MetricValue]) -> dict[tuple[str, str], float]:
    return {(value.metric, value.subject): value.value for value in values if math.isfinite(value.value)}


def _values(rows: Sequence[BundledMetric]) -> list[MetricValue]:
    """Metrics under today's names. Where an earlier version wrote one quantity under two names, the first is kept."""
    by_name: dict[tuple[str, str], MetricValue] = {}
    for row in rows:
        name, subject = RENAMED.get(row.metric, row.metric), line_name(row.subject)
        by_name.setdefault((name, subject), MetricValue(name, subject, row.value, row.unit))
    return list(by_name.values())
