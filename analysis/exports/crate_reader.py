"""Reads a bundle that `analysis.exports.crate` wrote, and brings its campaign into a store.

Reading trusts nothing. A bundle is rejected before anything enters the store if it has names that leave the folder, or
files that are missing, too long, not described, or different from their checksum.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from analysis.errors import AnalysisError
from analysis.exports.crate import CAMPAIGN, METADATA, MOST_METADATA_BYTES, OF_CAMPAIGN, PREVIEW, VERSION
from analysis.results import RENAMED, MetricValue, line_name
from analysis.store import Landing, Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign

_CHUNK = 1 << 20
_FLOW = re.compile(r"(?!\.)[^/\\\0\n]{1,200}")
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{3,64}")


def is_bundle(path: Path) -> bool:
    """Whether a file is a zip with an RO-Crate's metadata at its root."""
    try:
        with zipfile.ZipFile(path) as bundle:
            return METADATA in bundle.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def read(store: Store, path: Path) -> dict[str, Any]:
    """Brings a bundle's campaign into a store, after every checksum has been verified.

    Valid runs that the store has already stay as they are.

    Returns:
        id and name of the campaign, `files` (verified), `runs` (in the bundle), `landed` (new here).

    Raises:
        AnalysisError: it is no bundle, or something in it is not what its metadata say; the store is as it was.
    """
    scratch = store.incoming("bundle")
    try:
        with zipfile.ZipFile(path) as bundle:
            described = _described(bundle, path, shutil.disk_usage(scratch).free)
            _unpack(bundle, described, scratch, path)
        document = _checked(_load(scratch / CAMPAIGN, path), described, path)
        return _land(store, document, scratch) | {"files": len(described)}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise AnalysisError(f"{path} is no bundle, or is damaged: {error}") from None
    except OSError as error:
        raise AnalysisError(f"{path} cannot be read: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _described(bundle: zipfile.ZipFile, path: Path, free: int) -> dict[str, tuple[int, str]]:
    """Name to size and SHA-256 of every file that the metadata describe; held against what the zip lists."""
    listed = [entry for entry in bundle.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in listed]
    if METADATA not in names:
        raise AnalysisError(f"{path} is no bundle: it has no {METADATA}")
    with bundle.open(METADATA) as stream:
        text = stream.read(MOST_METADATA_BYTES + 1)
    graph = _json(text, path, METADATA).get("@graph")
    if not isinstance(graph, list):
        raise AnalysisError(f"{path}: {METADATA} has no @graph")
    found: dict[str, tuple[int, str]] = {}
    for one in graph:
        if not isinstance(one, dict) or (one.get("@type") != "File" and one.get("@id") != PREVIEW):
            continue
        name = urllib.parse.unquote(str(one.get("@id")))
        size, digest = str(one.get("contentSize")), str(one.get("sha256"))
        if not size.isdigit() or not re.fullmatch("[0-9a-f]{64}", digest):
            raise AnalysisError(f"{path}: {METADATA} tells no size and SHA-256 of {name}")
        found[name] = (int(size), digest)
    for name in (*found, *names):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or not parts:
            raise AnalysisError(f"{path}: the name '{name}' leaves the bundle's folder")
    if len(set(names)) < len(names):
        raise AnalysisError(f"{path}: a file is in it twice")
    for what, odd in (
        ("is not described in it", set(names) - {METADATA} - set(found)), ("is missing", set(found) - set(names)),
    ):  # fmt: skip
        if odd:
            raise AnalysisError(f"{path}: {min(odd)} {what}")
    if CAMPAIGN not in found:
        raise AnalysisError(f"{path} is an RO-Crate, but not of a Backchannel campaign: it has no {CAMPAIGN}")
    total = sum(size for size, _ in found.values())
    if total > free:
        raise AnalysisError(f"{path} holds {total / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    return found


def _unpack(bundle: zipfile.ZipFile, described: Mapping[str, tuple[int, str]], folder: Path, path: Path) -> None:
    """Writes every file, never more of one than its size, and verifies it."""
    for name, (size, digest) in described.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with bundle.open(name) as source, target.open("wb") as out:
            seen = _copy(source, out, size)
        if seen != digest:
            raise AnalysisError(f"{path}: {name} is not what it was: its size or checksum differs")


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> str:
    seen, left = hashlib.sha256(), size
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            return "too long"
        seen.update(chunk)
        target.write(chunk)
    return seen.hexdigest() if left == 0 else "too short"


def _load(file: Path, path: Path) -> dict[str, Any]:
    if file.stat().st_size > MOST_METADATA_BYTES:
        raise AnalysisError(f"{path}: {file.name} is too large")
    return _json(file.read_bytes(), path, file.name)


def _json(text: bytes, path: Path, name: str) -> dict[str, Any]:
    if len(text) > MOST_METADATA_BYTES:
        raise AnalysisError(f"{path}: {name} is too large")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnalysisError(f"{path}: {name} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise AnalysisError(f"{path}: {name} is no JSON object")
    return document


def _checked(document: dict[str, Any], described: Mapping[str, tuple[int, str]], path: Path) -> dict[str, Any]:
    """The campaign's document, when it is of the form that `_document` gives and tells of the files that are there."""
    version = document.get("version")
    if version != VERSION:
        raise AnalysisError(f"{path}: its version {version} is not known here; {VERSION} is. Is this one older?")
    try:
        problem = next(_problems(document, described), None)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise AnalysisError(f"{path}: {CAMPAIGN} is not of the form it must have: {error!r}") from None
    if problem:
        raise AnalysisError(f"{path}: {problem}")
    return document


def _problems(document: Mapping[str, Any], described: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    campaign = document["campaign"]
    for key in ("id", "name", "title", "file", "text", "backend"):
        if not isinstance(campaign[key], str):
            yield f"the campaign's {key} is no text"
    if not isinstance(campaign["overrides"], dict) or not all(
        isinstance(campaign[k], int) for k in ("seed", "repetitions")
    ):
        yield "the campaign's overrides, seed or repetitions are of the wrong kind"
    points, ids = len(document["points"]), set()
    for pairs in document["points"]:
        if not all(len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in pairs):
            yield "a point's parameters are no pairs of texts"
    for run in document["runs"]:
        run_id = run["id"]
        if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id) or run_id in ids:
            yield f"the run id {run_id!r} is none, or is there twice"
        ids.add(run_id)
        if run["state"] not in ("valid", "invalid") or (run["state"] == "valid") == bool(run["problems"]):
            yield f"run {run_id} is neither valid without problems nor invalid with some"
        if not isinstance(run["scenario"]["seed"], int) or not isinstance(run["manifest"], dict):
            yield f"run {run_id} has no seed or manifest"
        float(run["scenario"]["duration_s"])
        for flow in run["scenario"]["workload"]:
            # Files are named after flows.
            if not isinstance(flow["name"], str) or not _FLOW.fullmatch(flow["name"]):
                yield f"a flow of run {run_id} has a name that no file can have: {flow['name']!r}"
        if len({(row["metric"], row["subject"]) for row in run["metrics"]}) < len(run["metrics"]):
            yield f"a metric of run {run_id} is there twice"
        for row in run["metrics"]:
            float(row["value"])
            if not all(isinstance(row[key], str) for key in ("metric", "subject", "unit")):
                yield f"a metric of run {run_id} has no name, subject or unit"
        told = {f"runs/{run_id}/{one['path']}": (one["bytes"], one["sha256"]) for one in run["files"]}
        there = {name: its for name, its in described.items() if name.startswith(f"runs/{run_id}/")}
        if told != there:
            yield f"the files of run {run_id} are not those that the bundle describes"
    if len({(point, repetition) for point, repetition, _ in document["members"]}) < len(document["members"]):
        yield "a repetition of a point is there twice"
    for point, repetition, run_id in document["members"]:
        if not 0 <= point < points or not isinstance(repetition, int) or not isinstance(run_id, str):
            yield f"run {run_id} belongs to a point that is not there"


def _land(store: Store, document: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    campaign, runs = document["campaign"], document["runs"]
    known = store.valid_runs([run["id"] for run in runs])
    landed = 0
    for run in runs:
        if run["id"] in known:
            continue
        folder = store.incoming(run["id"])
        there = scratch / "runs" / run["id"]
        if there.is_dir():
            folder.rmdir()
            there.rename(folder)
        store.land(
            Landing(
                run["id"], run["backend"], Documents(run["scenario"], run["manifest"]), _values(run["metrics"]),
                run["problems"], run["attempt"], folder,
            )
        )  # fmt: skip
        landed += run["state"] == "valid"
    points = [[(str(field), str(value)) for field, value in pairs] for pairs in document["points"]]
    store.begin_campaign(
        NewCampaign(**{key: campaign[key] for key in OF_CAMPAIGN}),
        points,
        [tuple(member) for member in document["members"]],
    )
    wanted = [member[2] for member in document["members"]]
    store.end_campaign(campaign["id"], complete=len(store.valid_runs(wanted)) == len(set(wanted)))
    return {"id": campaign["id"], "name": campaign["name"], "runs": len(runs), "landed": landed}


def _values(rows: Sequence[Mapping[str, Any]]) -> list[MetricValue]:
    """Metrics under today's names. Where an earlier version wrote one quantity under two names, the first is kept."""
    found: dict[tuple[str, str], MetricValue] = {}
    for row in rows:
        name, subject = RENAMED.get(row["metric"], row["metric"]), line_name(row["subject"])
        found.setdefault((name, subject), MetricValue(name, subject, float(row["value"]), row["unit"]))
    return list(found.values())
