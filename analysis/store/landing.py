"""How a run lands in the store: its files, then one transaction."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from analysis.results import MetricValue
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
        StoreError: the files have no place.
    """
    files = [_describe(path, landing.folder) for path in sorted(landing.folder.rglob("*")) if path.is_file()]
    values = {
        "id": landing.run_id,
        "backend": landing.backend,
        "seed": landing.documents.scenario_document["seed"],
        "duration_s": landing.documents.scenario_document["duration_s"],
        "state": "invalid" if landing.problems else "valid",
        "problems": list(landing.problems),
        "attempt": landing.attempt,
        "landed": time.time(),
        "scenario": dict(landing.documents.scenario_document),
        "manifest": dict(landing.documents.manifest_document),
    }
    # Two machines may land one run.
    with database.writing(landing.run_id) as connection:
        before = connection.execute(sa.select(run.c.state, run.c.landed).where(run.c.id == landing.run_id)).first()
        known = None if before is None else before.state
        if landing.measured_again is not None and (before is None or before.landed != landing.measured_again):
            # Somebody made the run again meanwhile.
            shutil.rmtree(landing.folder, ignore_errors=True)
            return False
        if landing.problems and landing.measured_again is None:
            carried = {row.metric: row.value for row in landing.metrics if not row.subject}.get("aggregate_throughput")
            note_attempt(connection, landing.run_id, landing.attempt, "invalid", landing.problems, carried)
        if known == "valid" and (landing.problems or not replaces):
            shutil.rmtree(landing.folder, ignore_errors=True)
            return False
        if known == "valid":
            _keep_values(connection, landing.run_id, values["landed"])
        if known is not None:
            connection.execute(sa.delete(run).where(run.c.id == landing.run_id))
        connection.execute(sa.insert(run).values(values))
        rows: list[dict[str, Value]] = [
            {"run_id": landing.run_id, "name": row.metric, "subject": row.subject, "value": row.value,
             "unit": row.unit}
            for row in landing.metrics if math.isfinite(row.value)
        ]  # fmt: skip
        database.insert(connection, metric, rows)
        database.insert(connection, file, [{"run_id": landing.run_id, **row} for row in files])
        # Inside the transaction: a row without its files can then never be seen, and a folder without its row is
        # simply replaced by the next landing.
        try:
            stale = artefacts.put(landing.run_id, landing.folder, str(values["landed"]))
        except ArtefactError as error:
            raise StoreError(str(error)) from error
    # The earlier files are needed until the row with the new version counts.
    artefacts.discard(landing.run_id, stale)
    if not landing.problems:
        try:
            artefacts.remove_failed(landing.run_id)
        except ArtefactError as error:
            raise StoreError(str(error)) from error
    return True


def _keep_values(connection: sa.Connection, run_id: str, until: float) -> None:
    """Notes what a result said that is about to be replaced."""
    replaced_values = sa.select(
        run.c.id, run.c.landed, metric.c.name, metric.c.subject, sa.literal(until), run.c.seed, metric.c.value,
        metric.c.unit,
    ).join(metric, metric.c.run_id == run.c.id).where(run.c.id == run_id)  # fmt: skip
    columns = ["run_id", "landed", "name", "subject", "until", "seed", "value", "unit"]
    connection.execute(sa.insert(replaced).from_select(columns, replaced_values))


def note_attempt(
    connection: sa.Connection, run_id: str, number: int, outcome: str, problems: Sequence[str],
    throughput_bps: float | None = None,
) -> None:  # fmt: skip
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


def _describe(path: Path, folder: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": digest}
