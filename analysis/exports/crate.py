"""A reviewer's bundle: a campaign with its captures, manifests and figures as an RO-Crate in a zip, written and read.

The crate follows RO-Crate 1.1 (w3id.org/ro/crate/1.1) and the profile Process Run Crate 0.5
(w3id.org/ro/wfrun/process/0.5): every run is a CreateAction whose instrument is Backchannel, whose object is the run's
scenario, and whose result is the files that it left. Every file but the metadata itself stands in it with its size and
SHA-256. What another installation needs to show the campaign as this one does (points, memberships, metrics, problems)
is in `campaign.json`.

Reading trusts nothing: names that leave the folder, files that are not described, are missing, too long or differ from
their checksum are refused before anything enters the store.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import mimetypes
import re
import shutil
import tempfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from analysis.errors import AnalysisError
from analysis.exports.preview import page
from analysis.figures import published
from analysis.frames import find_campaign, means, values
from analysis.store import Landing, Store

METADATA = "ro-crate-metadata.json"
CAMPAIGN = "campaign.json"
#: The page for people; the specification has it in no list of data.
PREVIEW = "ro-crate-preview.html"
#: Of campaign.json.
VERSION = 1
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
SPECIFICATION = "https://w3id.org/ro/crate/1.1"
SOFTWARE, AUTHOR = "#backchannel", "#author"
#: Neither file can be larger: campaigns of tens of thousands of runs stay below.
MOST_METADATA_BYTES = 1 << 28
#: Figures of metrics that every campaign has, where it has them.
FIGURES = ("throughput", "goodput", "fairness_index", "completion_time", "utilisation", "queue_mean", "rtt_mean")
#: The figure that the campaign's file asks for.
OWN_FIGURE = "figures/figure"
#: What campaign.json tells of the campaign.
OF_CAMPAIGN = ("id", "name", "title", "file", "text", "overrides", "backend", "seed", "repetitions")
_CHUNK = 1 << 20
_FLOW = re.compile(r"(?!\.)[^/\\\0\n]{1,200}")
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{3,64}")
#: Under which results are given away unless told otherwise.
LICENCE = "https://creativecommons.org/licenses/by/4.0/"


def write(store: Store, campaign: str, path: Path, experiments: Path, author: str = "", licence: str = LICENCE) -> str:
    """Writes a campaign's bundle; equal stores give equal bundles.

    Args:
        store: that has it.
        campaign: its name or id.
        path: of the zip, which appears whole or not at all.
        experiments: the folder with each paper's targets, which stand in the campaign's own figure.
        author: who made the runs, a person's name; the bundle names nobody without it.
        licence: under which the results are given away: a URL.

    Returns:
        The SHA-256 of the bundle.

    Raises:
        AnalysisError: there is no such campaign, none of its runs is in the store, or a file is not what it was.
    """
    found = find_campaign(store, campaign)
    runs = [run for run_id in _run_ids(found) if (run := store.run(run_id)) is not None]
    if not runs:
        raise AnalysisError(f"campaign {found['name']} has no runs: there is nothing to bundle")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _write(store, found, runs, path, experiments, author, licence)
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror or error}") from None


def _write(
    store: Store,
    found: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    path: Path,
    experiments: Path,
    author: str,
    licence: str,
) -> str:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        made = _generated(store, found, runs, experiments, Path(scratch))
        files = {name: (file.stat().st_size, _sha256(file), file) for name, file in made.items()}
        names = [*files, *(f"runs/{run['id']}/{one['path']}" for run in runs for one in run["files"])]
        of_means = means(found["id"], store) if any(run["state"] == "valid" for run in runs) else None
        preview = Path(scratch) / PREVIEW
        preview.write_text(page(found, runs, of_means, names))
        files[PREVIEW] = (preview.stat().st_size, _sha256(preview), preview)
        for run in runs:
            for one in run["files"]:
                name = f"runs/{run['id']}/{one['path']}"
                files[name] = (one["bytes"], one["sha256"], store.run_folder(run["id"]) / one["path"])
        half = Path(scratch) / "bundle.zip"
        _zip(half, _metadata(found, runs, files, author, licence), files)
        half.replace(path)
    return _sha256(path)


def _run_ids(campaign: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(member["run_id"] for point in campaign["points"] for member in point["members"]))


def _generated(
    store: Store, campaign: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], experiments: Path, scratch: Path
) -> dict[str, Path]:
    """The files that are in no run's folder: the campaign's own file, its document, its tables and its figures."""
    from analysis.exports.tables import write as write_table
    from analysis.figures.campaign import bars, sweep
    from analysis.figures.printed import save

    made = {CAMPAIGN: scratch / CAMPAIGN, "campaign.yaml": scratch / "campaign.yaml"}
    made[CAMPAIGN].write_text(json.dumps(_document(campaign, runs), indent=1, sort_keys=True) + "\n")
    made["campaign.yaml"].write_text(campaign["text"])
    if all(run["state"] != "valid" for run in runs):
        return made
    of_means = means(campaign["id"], store)
    for name, frame in (("values", values(campaign["id"], store)), ("means", of_means)):
        made[f"tables/{name}.csv"] = scratch / f"{name}.csv"
        write_table(frame, made[f"tables/{name}.csv"])
    own = published.of_campaign(store, campaign["id"], campaign["text"], experiments)
    if own is not None and not own.is_empty:
        for ending in ("svg", "pdf"):
            made[f"{OWN_FIGURE}.{ending}"] = scratch / f"own.{ending}"
            save(own.figure(), made[f"{OWN_FIGURE}.{ending}"])
    for metric in FIGURES:
        if metric in set(of_means["metric"]):
            for ending in ("svg", "pdf"):
                made[f"figures/{metric}.{ending}"] = scratch / f"{metric}.{ending}"
                save(bars(of_means, metric), made[f"figures/{metric}.{ending}"])
                try:
                    over = sweep(of_means, metric)
                except AnalysisError:  # no swept field, or more than one, has quantities
                    continue
                made[f"figures/{metric}-sweep.{ending}"] = scratch / f"{metric}-sweep.{ending}"
                save(over, made[f"figures/{metric}-sweep.{ending}"])
    return made


def _document(campaign: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    of_run = ("id", "backend", "seed", "duration_s", "state", "problems", "attempt", "scenario", "manifest")
    return {
        "version": VERSION,
        "campaign": {key: campaign[key] for key in OF_CAMPAIGN},
        "points": [one["parameters"] for one in campaign["points"]],
        "members": [
            [point["number"], member["repetition"], member["run_id"]]
            for point in campaign["points"]
            for member in point["members"]
        ],
        "runs": [
            {
                **{key: run[key] for key in of_run},
                "metrics": [
                    {"metric": one["name"], "subject": one["subject"], "value": one["value"], "unit": one["unit"]}
                    for one in run["metrics"]
                ],
                "files": [{key: one[key] for key in ("path", "bytes", "sha256")} for one in run["files"]],
            }
            for run in runs
        ],
    }


def _metadata(
    campaign: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    files: Mapping[str, tuple[int, str, Path]],
    author: str,
    licence: str,
) -> bytes:
    ids = {name: {"@id": urllib.parse.quote(name)} for name in files}
    actions = [_action(run, campaign, ids) for run in runs]
    if author:
        for action in actions:
            action["agent"] = {"@id": AUTHOR}
    commits = sorted({str(run["manifest"].get("commit") or "unknown") for run in runs})
    graph: list[dict[str, Any]] = [
        {
            "@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": SPECIFICATION}, "about": {"@id": "./"},
        },
        {
            "@id": "./", "@type": "Dataset", "conformsTo": {"@id": PROFILE}, "name": campaign["title"],
            "description": f"Captures, manifests, tables and figures of the campaign {campaign['name']}, "
            f"{len(runs)} runs on the {campaign['backend']} backend of Backchannel.",
            "datePublished": _moment(campaign["finished"] or campaign["started"]), "license": {"@id": licence},
            "hasPart": [one for name, one in ids.items() if name != PREVIEW],
            "mentions": [{"@id": action["@id"]} for action in actions],
        },
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": licence, "@type": "CreativeWork", "name": licence, "description": "The licence of these results."},
        {
            "@id": SOFTWARE, "@type": "SoftwareApplication", "name": "Backchannel", "version": ", ".join(commits),
            "description": "A testbed for TCP over asymmetric, lossy or half-duplex links; its version is its commit.",
        },
        *actions,
    ]  # fmt: skip
    if author:
        graph[1]["author"] = {"@id": AUTHOR}
        graph.append({"@id": AUTHOR, "@type": "Person", "name": author})
    for name, (size, digest, _) in files.items():
        kind = {"@type": "CreativeWork", "about": {"@id": "./"}} if name == PREVIEW else {"@type": "File"}
        graph.append({
            **ids[name], **kind, "name": name, "contentSize": str(size), "sha256": digest,
            "encodingFormat": _format(name),
        })  # fmt: skip
    context = [f"{SPECIFICATION}/context", "https://w3id.org/ro/terms/workflow-run/context"]
    return (json.dumps({"@context": context, "@graph": graph}, indent=1) + "\n").encode()


def _action(run: Mapping[str, Any], campaign: Mapping[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    folder = f"runs/{run['id']}/"
    own = [name for name in ids if name.startswith(folder)]
    inputs = [name for name in (f"{folder}scenario.json", "campaign.yaml") if name in ids]
    action: dict[str, Any] = {
        "@id": f"#run-{run['id']}", "@type": "CreateAction", "instrument": {"@id": SOFTWARE},
        "name": f"Run {run['id']} of {campaign['name']}",
        "description": f"./backchannel run {Path(campaign['file']).name}: seed {run['seed']}, "
        f"{run['duration_s']:g} s on the {run['backend']} backend",
        "object": [ids[name] for name in inputs], "result": [ids[name] for name in own if name not in inputs],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "endTime": _moment(run["landed"]),
    }  # fmt: skip
    if run["manifest"].get("started"):
        action["startTime"] = _moment(float(run["manifest"]["started"]))
    if run["state"] != "valid":
        action |= {
            "actionStatus": "http://schema.org/FailedActionStatus", "error": "; ".join(run["problems"]),
        }  # fmt: skip
    return action


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _format(name: str) -> str:
    plain = name.removesuffix(".gz")
    known = {
        ".pcap": "application/vnd.tcpdump.pcap", ".parquet": "application/vnd.apache.parquet",
        ".jsonl": "application/jsonl", ".yaml": "application/yaml",
    }  # fmt: skip
    if name != plain:
        return "application/gzip"
    return known.get(PurePosixPath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _zip(path: Path, metadata: bytes, files: Mapping[str, tuple[int, str, Path]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as bundle:
        bundle.writestr(_entry(METADATA), metadata)
        for name, (size, digest, file) in files.items():
            entry = _entry(name)
            # What is packed already is stored: packing it again costs time and gives nothing.
            packed = name.endswith((".gz", ".parquet"))
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            entry.file_size = size
            seen = hashlib.sha256()
            with file.open("rb") as source, bundle.open(entry, "w") as target:
                while chunk := source.read(_CHUNK):
                    seen.update(chunk)
                    target.write(chunk)
            if seen.hexdigest() != digest:
                raise AnalysisError(f"{file} is not what it was when its run landed: its checksum differs")


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# Reading ---------------------------------------------------------------------------------------------------------


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
                run["id"], run["backend"], run["scenario"], run["manifest"], run["metrics"], run["problems"],
                run["attempt"], folder,
            )
        )  # fmt: skip
        landed += run["state"] == "valid"
    points = [[(str(field), str(value)) for field, value in pairs] for pairs in document["points"]]
    store.begin_campaign(
        {key: campaign[key] for key in OF_CAMPAIGN}, points, [tuple(member) for member in document["members"]]
    )
    wanted = [member[2] for member in document["members"]]
    store.end_campaign(campaign["id"], complete=len(store.valid_runs(wanted)) == len(set(wanted)))
    return {"id": campaign["id"], "name": campaign["name"], "runs": len(runs), "landed": landed}
