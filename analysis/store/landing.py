"""How a run lands in the store: its files, then one transaction."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from analysis.results import MetricValue
from analysis.store import checksums
from analysis.store.artefacts import ArtefactError, Artefacts
from analysis.store.database import Database, StoreError, Value
from analysis.store.documents import Documents
from analysis.store.schema import attempt, file, metric, replaced, run


@dataclass(frozen=True)
class Landing:
    """A finished run on its way into the store."""

    run_id: str
    backend: str
    documents: Documents
    metrics: Sequence[MetricValue]
    #: What makes it invalid; empty: it is valid.
    problems: Sequence[str]
    attempt: int
    #: Its files; the folder moves into the store.
    folder: Path
    #: When the result landed that was measured again to give this one; None: the run was made.
    measured_again: float | None = None


def land(database: Database, artefacts: Artefacts, landing: Landing, replaces: bool = False) -> bool:
    """Stores a run: files first, then one transaction. It is not visible before; a crash leaves nothing visible.

    An invalid run is kept until a valid one with the same id takes its place; it never replaces a valid one. With
    `replaces`, a valid one takes the place of a valid one. A run that was measured again takes the place of the result
    that was measured, and of no other.

    Returns:
        Whether the run is in the store now.

    Raises:
        StoreError: the files have no place. The store is as it was.
    """
    return land_together(database, artefacts, [landing], replaces)[0]


def land_together(
    database: Database,
    artefacts: Artefacts,
    landings: Sequence[Landing],
    replaces: bool = False,
    also: Callable[[sa.Connection], None] = lambda connection: None,
) -> list[bool]:
    """Stores runs as `land` does, all of them or none.

    Args:
        database: of the store.
        artefacts: of the store.
        landings: the runs.
        replaces: as for `land`.
        also: what else the transaction writes, at its end.
    """
    prepared = [(landing, _rows(landing)) for landing in landings]
    #: Of each landed run: its version, and the stale versions of its files.
    moved: dict[str, tuple[str, Sequence[str]]] = {}
    try:
        # Two machines may land one run.
        with database.writing(*sorted(landing.run_id for landing in landings)) as connection:
            for landing, rows in prepared:
                if not _enter(connection, database, landing, rows, replaces):
                    shutil.rmtree(landing.folder, ignore_errors=True)
                    continue
                # Inside the transaction: a row without its files can then never be seen, and a folder without its row
                # is simply replaced by the next landing.
                version = str(rows.run["landed"])
                moved[landing.run_id] = (version, artefacts.put(landing.run_id, landing.folder, version))
            also(connection)
    except BaseException as error:
        for run_id, (version, stale) in moved.items():
            artefacts.revert(run_id, version, stale)
        if isinstance(error, ArtefactError | OSError):
            raise StoreError(
                f"the files of a run cannot be stored: {getattr(error, 'strerror', None) or error}"
            ) from error
        raise
    for run_id, (_, stale) in moved.items():
        # The earlier files are needed until the row with the new version counts.
        artefacts.discard(run_id, stale)
    for landing in landings:
        if landing.run_id in moved and not landing.problems:
            try:
                artefacts.remove_failed(landing.run_id)
            except ArtefactError as error:
                raise StoreError(str(error)) from error
    return [landing.run_id in moved for landing in landings]


class _Rows(NamedTuple):
    """What is inserted for a run."""

    run: dict[str, Any]
    metrics: list[dict[str, Value]]
    files: list[dict[str, Value]]


def _rows(landing: Landing) -> _Rows:
    """The rows of a run, with their checksums."""
    metrics, metrics_sum = list[dict[str, Value]](), 0
    for value in landing.metrics:
        if math.isfinite(value.value):
            # Plain types: ascii() of others is another one.
            row = (landing.run_id, str(value.metric), str(value.subject), float(value.value), str(value.unit))
            metrics.append({**_named(checksums.OF_METRIC, row), "checksum": (checksum := checksums.of(*row))})
            metrics_sum += checksum
    files = [
        (landing.run_id, *_described(path, landing.folder))
        for path in sorted(landing.folder.rglob("*"))
        if path.is_file()
    ]
    scenario = dict(landing.documents.scenario_document)
    manifest = dict(landing.documents.manifest_document)
    values = (
        str(landing.backend),
        scenario["seed"],
        float(scenario["duration_s"]),
        "invalid" if landing.problems else "valid",
        list(landing.problems),
        landing.attempt,
        time.time(),
        checksums.of_documents(scenario, manifest),
        metrics_sum,
        sum(checksums.of(*row) for row in files),
    )
    run_row = {
        "id": landing.run_id,
        **_named(checksums.OF_RUN, values),
        "scenario": scenario,
        "manifest": manifest,
        "checksum": checksums.of_run(landing.run_id, values),
    }
    return _Rows(run_row, metrics, [_named(checksums.OF_FILE, row) for row in files])


def _named(columns: Sequence[sa.Column[Any]], values: Sequence[Any]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def _enter(connection: sa.Connection, database: Database, landing: Landing, rows: _Rows, replaces: bool) -> bool:
    """Writes the rows of a run, unless what is there stays. Returns whether they were written."""
    before = connection.execute(sa.select(run.c.state, run.c.landed).where(run.c.id == landing.run_id)).first()
    known = None if before is None else before.state
    if landing.measured_again is not None and (before is None or before.landed != landing.measured_again):
        # Somebody made the run again meanwhile.
        return False
    if landing.problems and landing.measured_again is None:
        carried = {row.metric: row.value for row in landing.metrics if not row.subject}.get("aggregate_throughput")
        note_attempt(connection, landing.run_id, landing.attempt, "invalid", landing.problems, carried)
    if known == "valid" and (landing.problems or not replaces):
        return False
    if known == "valid":
        _keep_values(connection, database, landing.run_id, rows.run["landed"])
    if known is not None:
        connection.execute(sa.delete(run).where(run.c.id == landing.run_id))
    connection.execute(sa.insert(run).values(rows.run))
    database.insert(connection, metric, rows.metrics)
    database.insert(connection, file, rows.files)
    return True


def _keep_values(connection: sa.Connection, database: Database, run_id: str, until: float) -> None:
    """Notes what a result said that is about to be replaced. What is damaged is not kept."""
    landed, seed = connection.execute(sa.select(run.c.landed, run.c.seed).where(run.c.id == run_id)).one()
    rows = connection.execute(sa.select(*checksums.OF_METRIC, metric.c.checksum).where(metric.c.run_id == run_id))
    kept: list[dict[str, Value]] = []
    for *values, checksum in rows:
        if checksums.of(*values) == checksum:
            given = _named(checksums.OF_METRIC, values) | {"landed": landed, "until": until, "seed": seed}
            row = {column.name: given[column.name] for column in checksums.OF_REPLACED}
            kept.append(row | {"checksum": checksums.of(*row.values())})
    database.insert(connection, replaced, kept)


def note_attempt(
    connection: sa.Connection,
    run_id: str,
    number: int,
    outcome: str,
    problems: Sequence[str],
    throughput_bps: float | None = None,
) -> None:
    """Notes an attempt that gave no valid result, with its aggregate throughput if that was measured."""
    row = {
        "run_id": run_id,
        "number": number,
        "at": time.time(),
        "outcome": outcome,
        "problems": list(problems),
        "throughput_bps": throughput_bps,
    }
    connection.execute(sa.insert(attempt).values(row))


def _described(path: Path, folder: Path) -> tuple[str, int, str]:
    """A file's path below the run's folder, its bytes and its SHA-256."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return str(path.relative_to(folder)), path.stat().st_size, digest
