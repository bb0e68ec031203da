"""Commits runs to the store: the files first, then one transaction."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from analysis.results import MetricValue
from analysis.store import checksums, damage
from analysis.store.artefacts import ArtefactError, Artefacts
from analysis.store.database import Database, StoreError, Value
from analysis.store.documents import Documents
from analysis.store.schema import attempt, file, metric, replaced, run


@dataclass(frozen=True)
class PendingRun:
    """A finished run that is not in the store yet."""

    run_id: str
    backend: str
    documents: Documents
    metrics: Sequence[MetricValue]
    #: Why it is invalid; empty: it is valid.
    problems: Sequence[str]
    attempt: int
    #: Its files; the folder moves into the store.
    folder: Path
    #: When the result was committed whose captures were measured again for this one; None: this is a new run.
    measured_again: float | None = None


def commit_runs(
    database: Database,
    artefacts: Artefacts,
    pending_runs: Sequence[PendingRun],
    replaces: bool = False,
    also: Callable[[sa.Connection], None] = lambda connection: None,
) -> list[bool]:
    """Stores runs, all of them or none: files first, then one transaction. They are not visible before; a crash leaves
    nothing visible.

    An invalid run is kept until a valid one with the same id replaces it. It never replaces a valid one. A run that was
    measured again replaces only the result that was measured.

    Args:
        database: of the store.
        artefacts: of the store.
        pending_runs: the runs.
        replaces: whether a valid run replaces a valid one.
        also: further writes at the end of the transaction.

    Returns:
        Whether each run is in the store now.

    Raises:
        StoreError: the files cannot be stored. The store is unchanged.
    """
    prepared = [(pending, _rows(pending)) for pending in pending_runs]
    #: Of each committed run: its version, and the stale versions of its files.
    moved: dict[str, tuple[str, Sequence[str]]] = {}
    try:
        # Two machines may commit the same run.
        with database.writing(*sorted(pending.run_id for pending in pending_runs)) as connection:
            for pending, rows in prepared:
                if not _enter(connection, database, pending, rows, replaces):
                    shutil.rmtree(pending.folder, ignore_errors=True)
                    continue
                # Inside the transaction: a row without its files can then never be seen, and a folder without its row
                # is simply replaced by the next commit.
                version = str(rows.run["landed"])
                moved[pending.run_id] = (version, artefacts.put(pending.run_id, pending.folder, version))
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
        # Readers need the earlier files until the row with the new version is visible.
        artefacts.discard(run_id, stale)
    for pending in pending_runs:
        if pending.run_id in moved and not pending.problems:
            artefacts.remove_failed(pending.run_id)
    return [pending.run_id in moved for pending in pending_runs]


class _Rows(NamedTuple):
    """What is inserted for a run."""

    run: dict[str, Any]
    metrics: list[dict[str, Value]]
    files: list[dict[str, Value]]


def _rows(pending: PendingRun) -> _Rows:
    """The rows of a run, with their checksums."""
    metrics, metrics_sum = list[dict[str, Value]](), 0
    for value in pending.metrics:
        if math.isfinite(value.value):
            # Plain types: NumPy's have another ascii(), and so another checksum.
            row = (pending.run_id, str(value.metric), str(value.subject), float(value.value), str(value.unit))
            metrics.append({**_named(checksums.OF_METRIC, row), "checksum": (checksum := checksums.of(*row))})
            metrics_sum += checksum
    files = [
        (pending.run_id, *_described(path, pending.folder))
        for path in sorted(pending.folder.rglob("*"))
        if path.is_file()
    ]
    scenario = dict(pending.documents.scenario_document)
    manifest = dict(pending.documents.manifest_document)
    values = (
        str(pending.backend),
        scenario["seed"],
        float(scenario["duration_s"]),
        "invalid" if pending.problems else "valid",
        list(pending.problems),
        pending.attempt,
        time.time(),
        checksums.of_documents(scenario, manifest),
        metrics_sum,
        sum(checksums.of(*row) for row in files),
    )
    run_row = {
        "id": pending.run_id,
        **_named(checksums.OF_RUN, values),
        "scenario": scenario,
        "manifest": manifest,
        "checksum": checksums.of_run(pending.run_id, values),
    }
    return _Rows(run_row, metrics, [_named(checksums.OF_FILE, row) for row in files])


def _named(columns: Sequence[sa.Column[Any]], values: Sequence[Any]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def _enter(connection: sa.Connection, database: Database, pending: PendingRun, rows: _Rows, replaces: bool) -> bool:
    """Writes the rows of a run, unless what is there stays. Returns whether they were written."""
    before = connection.execute(sa.select(run.c.state, run.c.landed).where(run.c.id == pending.run_id)).first()
    state_before = None if before is None else before.state
    if pending.measured_again is not None and (before is None or before.landed != pending.measured_again):
        # The run was repeated meanwhile.
        return False
    if pending.problems and pending.measured_again is None:
        carried = {row.metric: row.value for row in pending.metrics if not row.subject}.get("aggregate_throughput")
        note_attempt(connection, pending.run_id, pending.attempt, "invalid", pending.problems, carried)
    if state_before == "valid" and (pending.problems or not replaces):
        return False
    if state_before == "valid":
        _keep_values(connection, database, pending.run_id, rows.run["landed"])
    if state_before is not None:
        connection.execute(sa.delete(run).where(run.c.id == pending.run_id))
    connection.execute(sa.insert(run).values(rows.run))
    database.insert(connection, metric, rows.metrics)
    database.insert(connection, file, rows.files)
    return True


def _keep_values(connection: sa.Connection, database: Database, run_id: str, until: float) -> None:
    """Keeps the values of a result that is about to be replaced, without those whose checksum is wrong."""
    landed, seed = connection.execute(sa.select(run.c.landed, run.c.seed).where(run.c.id == run_id)).one()
    rows = connection.execute(sa.select(*checksums.OF_METRIC, metric.c.checksum).where(metric.c.run_id == run_id))
    kept: list[dict[str, Value]] = []
    for *values, checksum in rows:
        if checksums.of(*values) == checksum:
            fields = _named(checksums.OF_METRIC, values) | {"landed": landed, "until": until, "seed": seed}
            row = {column.name: fields[column.name] for column in checksums.OF_REPLACED}
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
    """Records an attempt without a valid result, with its aggregate throughput if that was measured."""
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
    return str(path.relative_to(folder)), path.stat().st_size, damage.digest(path)
