"""A bundle for reviewers: a campaign as an RO-Crate in a zip, which crate_reader reads.

The crate follows RO-Crate 1.1 (w3id.org/ro/crate/1.1) and the profile Process Run Crate 0.5
(w3id.org/ro/wfrun/process/0.5): every run is a CreateAction whose instrument is Backchannel, whose object is the run's
scenario, and whose result is its files. The metadata lists every other file with its size and SHA-256. Points,
memberships, metrics and problems, which another installation needs to show the same campaign, are in `campaign.json`.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import mimetypes
import urllib.parse
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from analysis.errors import REPEAT, AnalysisError, writing
from analysis.exports.preview import page
from analysis.exports.tables import write as write_table
from analysis.exports.unpack import CAMPAIGN, METADATA, PREVIEW
from analysis.figures import campaign as charts
from analysis.figures.model import Figure
from analysis.store import damage
from analysis.store.rows import CampaignRow, RunRow
from testbed.local_folders import ScratchFolder, sweep

if TYPE_CHECKING:
    from analysis.handle import StoredCampaign

#: Of campaign.json.
VERSION = 1
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
SPECIFICATION = "https://w3id.org/ro/crate/1.1"
SOFTWARE, AUTHOR = "#backchannel", "#author"
#: Figures of metrics that every campaign has, where it has them.
FIGURES = ("throughput", "goodput", "direction_fairness", "completion_time", "utilisation", "queue_mean", "rtt_mean")
#: The figure that the campaign's file asks for.
OWN_FIGURE = "figures/figure"
#: The campaign's columns in campaign.json.
OF_CAMPAIGN = ("id", "name", "title", "file", "text", "overrides", "backend", "seed", "repetitions")
#: Of the folder beside it in which a bundle is made.
PREFIX = ".bundle-"
_CHUNK = 1 << 20
#: Default licence of exported results.
LICENCE = "https://creativecommons.org/licenses/by/4.0/"


def write(campaign: StoredCampaign, path: Path, author: str = "", licence: str = LICENCE) -> str:
    """Writes a campaign's bundle; equal stores give equal bundles.

    Args:
        campaign: of an open store.
        path: of the zip, which appears whole or not at all.
        author: who made the runs, a person's name; without it the bundle names no author.
        licence: under which the results are given away: a URL.

    Returns:
        The SHA-256 of the bundle.

    Raises:
        AnalysisError: none of its runs is in the store, or a file was modified.
    """
    runs = [run for run_id in campaign.run_ids if (run := campaign.store.run(run_id)) is not None]
    if not runs:
        raise AnalysisError(f"campaign {campaign.row.name} has no runs: there is nothing to bundle")
    with writing(path):
        return _write(campaign, runs, path, author, licence)


def _write(campaign: StoredCampaign, runs: Sequence[RunRow], path: Path, author: str, licence: str) -> str:
    store, row = campaign.store, campaign.row
    sweep(path.parent, PREFIX)
    with ScratchFolder(path.parent, PREFIX) as scratch:
        generated = _generated(campaign, runs, scratch)
        files = {name: (file.stat().st_size, damage.digest(file), file) for name, file in generated.items()}
        names = [*files, *(f"runs/{run.id}/{file.path}" for run in runs for file in run.files)]
        of_means = campaign.means() if any(run.state == "valid" for run in runs) else None
        preview = scratch / PREVIEW
        preview.write_text(page(row, runs, of_means, names))
        files[PREVIEW] = (preview.stat().st_size, damage.digest(preview), preview)
        for run in runs:
            # What is missing or differs shows when it is written.
            folder = store.folder_of_run(run.id)
            for stored_file in run.files:
                name = f"runs/{run.id}/{stored_file.path}"
                files[name] = (stored_file.bytes, stored_file.sha256, folder / stored_file.path)
        half = scratch / "bundle.zip"
        _zip(half, _metadata(row, runs, files, author, licence), files)
        half.replace(path)
    return damage.digest(path)


def _generated(of: StoredCampaign, runs: Sequence[RunRow], scratch: Path) -> dict[str, Path]:
    """The files that are in no run's folder: the campaign's own file, its document, its tables and its figures."""
    from analysis.figures.printed import save

    campaign = of.row
    generated = {CAMPAIGN: scratch / CAMPAIGN, "campaign.yaml": scratch / "campaign.yaml"}
    generated[CAMPAIGN].write_text(json.dumps(_document(campaign, runs), indent=1, sort_keys=True) + "\n")
    generated["campaign.yaml"].write_text(campaign.text)
    if all(run.state != "valid" for run in runs):
        return generated
    of_means = of.means()
    for name, frame in (("values", of.values()), ("means", of_means)):
        generated[f"tables/{name}.csv"] = scratch / f"{name}.csv"
        write_table(frame, generated[f"tables/{name}.csv"])
    groups: list[dict[str, Figure]] = []
    with suppress(AnalysisError):  # its file has no figure, or there is no value for it
        groups.append({OWN_FIGURE: of.plot("figure")})
    for metric in FIGURES:
        if metric in set(of_means["metric"]):
            groups.append({f"figures/{metric}": charts.bars(of_means, metric)})
            with suppress(AnalysisError):  # no swept field, or more than one, has quantities
                groups[-1][f"figures/{metric}-sweep"] = charts.sweep(of_means, metric)
    for group in groups:
        for ending, name in product(("svg", "pdf"), group):
            file = generated[f"{name}.{ending}"] = scratch / f"{Path(name).name}.{ending}"
            save(group[name], file)
    return generated


def _document(campaign: CampaignRow, runs: Sequence[RunRow]) -> dict[str, Any]:
    of_run = ("id", "backend", "seed", "duration_s", "state", "problems", "attempt")
    return {
        "version": VERSION,
        "campaign": {key: getattr(campaign, key) for key in OF_CAMPAIGN},
        "points": [point.parameters for point in campaign.points],
        "members": [
            [point.number, member.repetition, member.run_id] for point in campaign.points for member in point.members
        ],
        "runs": [
            {
                **{key: getattr(run, key) for key in of_run},
                "scenario": run.documents.scenario_document,
                "manifest": run.documents.manifest_document,
                "metrics": [
                    {"metric": metric.name, "subject": metric.subject, "value": metric.value, "unit": metric.unit}
                    for metric in run.metrics
                ],
                "files": [{key: getattr(file, key) for key in ("path", "bytes", "sha256")} for file in run.files],
            }
            for run in runs
        ],
    }


def _metadata(
    campaign: CampaignRow, runs: Sequence[RunRow], files: Mapping[str, tuple[int, str, Path]], author: str, licence: str
) -> bytes:
    ids = {name: {"@id": urllib.parse.quote(name)} for name in files}
    actions = [_action(run, campaign, ids) for run in runs]
    if author:
        for action in actions:
            action["agent"] = {"@id": AUTHOR}
    commits = sorted({run.documents.manifest.commit or "unknown" for run in runs})
    graph: list[dict[str, Any]] = [
        {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": SPECIFICATION}, "about": {"@id": "./"}},
        {
            "@id": "./",
            "@type": "Dataset",
            "conformsTo": {"@id": PROFILE},
            "name": campaign.title,
            "description": f"Captures, manifests, tables and figures of the campaign {campaign.name}, "
            f"{len(runs)} runs on the {campaign.backend} backend of Backchannel.",
            "datePublished": _moment(campaign.finished or campaign.started),
            "license": {"@id": licence},
            "hasPart": [id for name, id in ids.items() if name != PREVIEW],
            "mentions": [{"@id": action["@id"]} for action in actions],
        },
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": licence, "@type": "CreativeWork", "name": licence, "description": "The licence of these results."},
        {
            "@id": SOFTWARE,
            "@type": "SoftwareApplication",
            "name": "Backchannel",
            "version": ", ".join(commits),
            "description": "A testbed for TCP over asymmetric, lossy or half-duplex links; its version is its commit.",
        },
        *actions,
    ]
    if author:
        graph[1]["author"] = {"@id": AUTHOR}
        graph.append({"@id": AUTHOR, "@type": "Person", "name": author})
    for name, (size, digest, _) in files.items():
        kind = {"@type": "CreativeWork", "about": {"@id": "./"}} if name == PREVIEW else {"@type": "File"}
        graph.append(
            {
                **ids[name],
                **kind,
                "name": name,
                "contentSize": str(size),
                "sha256": digest,
                "encodingFormat": _format(name),
            }
        )
    context = [f"{SPECIFICATION}/context", "https://w3id.org/ro/terms/workflow-run/context"]
    return (json.dumps({"@context": context, "@graph": graph}, indent=1) + "\n").encode()


def _action(run: RunRow, campaign: CampaignRow, ids: Mapping[str, Any]) -> dict[str, Any]:
    folder = f"runs/{run.id}/"
    results = [f"{folder}{file.path}" for file in run.files]
    inputs = [name for name in (f"{folder}scenario.json", "campaign.yaml") if name in ids]
    action: dict[str, Any] = {
        "@id": f"#run-{run.id}",
        "@type": "CreateAction",
        "instrument": {"@id": SOFTWARE},
        "name": f"Run {run.id} of {campaign.name}",
        "description": f"./backchannel run {Path(campaign.file).name}: seed {run.seed}, "
        f"{run.duration_s:g} s on the {run.backend} backend",
        "object": [ids[name] for name in inputs],
        "result": [ids[name] for name in results if name not in inputs],
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "endTime": _moment(run.landed),
    }
    if run.documents.manifest.started:
        action["startTime"] = _moment(run.documents.manifest.started)
    if run.state != "valid":
        action |= {"actionStatus": "http://schema.org/FailedActionStatus", "error": "; ".join(run.problems)}
    return action


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _format(name: str) -> str:
    plain = name.removesuffix(".gz")
    mime_types = {
        ".pcap": "application/vnd.tcpdump.pcap",
        ".parquet": "application/vnd.apache.parquet",
        ".jsonl": "application/jsonl",
        ".yaml": "application/yaml",
    }
    if name != plain:
        return "application/gzip"
    return mime_types.get(PurePosixPath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _zip(path: Path, metadata: bytes, files: Mapping[str, tuple[int, str, Path]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as bundle:
        bundle.writestr(_entry(METADATA), metadata)
        for name, (size, digest, file) in files.items():
            entry = _entry(name)
            # Compressed files are stored as they are, because compressing them again saves no space.
            packed = name.endswith((".gz", ".parquet"))
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            entry.file_size = size
            seen = hashlib.sha256()
            if not file.is_file():
                raise AnalysisError(f"{file} is missing; {REPEAT}")
            with file.open("rb") as source, bundle.open(entry, "w") as target:
                while chunk := source.read(_CHUNK):
                    seen.update(chunk)
                    target.write(chunk)
            if seen.hexdigest() != digest:
                raise AnalysisError(
                    f"checksum mismatch: {file} is corrupt or was modified after its run was stored; {REPEAT}"
                )


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
