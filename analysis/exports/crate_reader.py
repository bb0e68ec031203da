"""Reads a bundle that `analysis.exports.crate` wrote, and stores its campaign.

Reading trusts nothing. A bundle is rejected before anything enters the store if it has names that leave the folder, or
files that are missing, too long, not described, or different from their checksum.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.exports import unpack
from analysis.exports.crate import OF_CAMPAIGN, VERSION
from analysis.exports.unpack import CAMPAIGN, MOST_METADATA_BYTES, BundleError, json_object
from analysis.results import RENAMED, MetricValue, line_name
from analysis.store import Landing, Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from testbed import confined

_FLOW = re.compile(r"(?!\.)[^/\\\0\n]{1,200}")
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{3,64}")


@dataclass(frozen=True)
class Bundle:
    """A bundle that was stored."""

    #: Id and name of its campaign.
    id: str
    name: str
    #: Files whose checksum was verified.
    files: int
    runs: int
    #: Valid runs that the store did not have.
    landed: int


def read(store: Store, path: Path) -> Bundle:
    """Verifies every checksum of a bundle, then stores its campaign.

    Valid runs that the store has already stay as they are.

    Raises:
        AnalysisError: it is no bundle, or something in it is not what its metadata say; the store is as it was.
    """
    scratch = store.incoming("bundle")
    try:
        described = _unpacked(path, scratch)
        document = _checked(_load(scratch / CAMPAIGN, path), described, path)
        return _land(store, document, scratch, len(described))
    except BundleError as error:
        raise AnalysisError(str(error)) from None
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
        raise AnalysisError(reason[0].removeprefix("error: "))
    return {name: (size, digest) for name, (size, digest) in json.loads(done.stdout).items()}


def _load(file: Path, path: Path) -> dict[str, Any]:
    if file.stat().st_size > MOST_METADATA_BYTES:
        raise AnalysisError(f"{path}: {file.name} is too large")
    return json_object(file.read_bytes(), path, file.name)


def _checked(document: dict[str, Any], described: Mapping[str, tuple[int, str]], path: Path) -> dict[str, Any]:
    """The campaign's document, checked for the form that `_document` writes and against the files of the bundle."""
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
        declared = {f"runs/{run_id}/{file['path']}": (file["bytes"], file["sha256"]) for file in run["files"]}
        listed = {name: its for name, its in described.items() if name.startswith(f"runs/{run_id}/")}
        if declared != listed:
            yield f"the files of run {run_id} are not those that the bundle describes"
    if len({(point, repetition) for point, repetition, _ in document["members"]}) < len(document["members"]):
        yield "a repetition of a point is there twice"
    for point, repetition, run_id in document["members"]:
        if not 0 <= point < points or not isinstance(repetition, int) or not isinstance(run_id, str):
            yield f"run {run_id} belongs to a point that is not there"


def _land(store: Store, document: Mapping[str, Any], scratch: Path, files: int) -> Bundle:
    campaign, runs = document["campaign"], document["runs"]
    known = store.valid_runs([run["id"] for run in runs])
    landed = 0
    for run in runs:
        if run["id"] in known:
            continue
        folder = store.incoming(run["id"])
        unpacked = scratch / "runs" / run["id"]
        if unpacked.is_dir():
            folder.rmdir()
            unpacked.rename(folder)
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
    return Bundle(campaign["id"], campaign["name"], files, len(runs), landed)


def _values(rows: Sequence[Mapping[str, Any]]) -> list[MetricValue]:
    """Metrics under today's names. Where an earlier version wrote one quantity under two names, the first is kept."""
    by_name: dict[tuple[str, str], MetricValue] = {}
    for row in rows:
        name, subject = RENAMED.get(row["metric"], row["metric"]), line_name(row["subject"])
        by_name.setdefault((name, subject), MetricValue(name, subject, float(row["value"]), row["unit"]))
    return list(by_name.values())
