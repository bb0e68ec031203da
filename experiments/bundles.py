"""Bundles from elsewhere: the ids that their runs must have, and their metrics measured again from the captures."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from analysis.captures.tables import DATAGRAMS
from analysis.errors import AnalysisError
from analysis.exports import crate_reader
from analysis.metrics import Measured
from analysis.store import Store
from experiments.engine.execution import analyse
from experiments.language.backends import Backend
from experiments.language.identity import run_identity
from testbed.documents import Document
from testbed.installation import Installation
from testbed.report import Report
from testbed.scenario import Scenario

#: Tables that `backchannel-node trace` makes of captures.
TABLES = ("connections.parquet", "datagrams.parquet", "sacks.parquet", "segments.parquet", "summary.json")


def read(store: Store, path: Path) -> crate_reader.Bundle:
    """Verifies a bundle, then stores its campaign.

    Raises:
        AnalysisError: it is not a bundle, or something in it is not what its metadata say; the store is as it was.
    """
    return crate_reader.read(store, path, crate_reader.Rules(_identity, _measure))


def _identity(backend: str, scenario: Scenario, document: Document, report: Report) -> str | None:
    if backend not in list(Backend):
        return None
    made_by = None if report.installation is None else Installation.read(report.installation)
    return run_identity(backend, document, None if made_by is None else made_by.identity().as_json())


def _measure(folder: Path, scenario: Scenario, report: Report) -> Measured | None:
    packed = sorted((folder / "captures").glob("*.pcap.gz"))
    if not packed:
        return None
    others = (folder / DATAGRAMS).is_file()
    for name in TABLES:
        (folder / name).unlink(missing_ok=True)
    # A short file may unpack to a disk full of zeros.
    room_bytes = shutil.disk_usage(folder).free // 2
    for path in packed:
        with gzip.open(path) as stream, path.with_suffix("").open("wb") as out:
            while chunk := stream.read(1 << 20):
                room_bytes -= len(chunk)
                if room_bytes < 0:
                    raise AnalysisError("its captures do not fit on the disk")
                out.write(chunk)
        path.unlink()
    return analyse(folder, scenario, report, others=others)
