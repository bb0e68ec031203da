"""The store's operations. One method is one transaction; a run lands whole or not at all.

On disk: `results.sqlite`, `runs/AB/ABCD.../` with a run's files, and `incoming/` where runs are put together before
they land. Several processes may read and write at once (WAL); a landing waits for another's for up to 30 s.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects.sqlite import insert

from analysis.store.schema import attempt, campaign, file, membership, metric, point, run

MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_S = 30


class StoreError(Exception):
    """The store cannot be used; the message is a sentence."""


@dataclass(frozen=True)
class Landing:
    """A finished run on its way into the store."""

    run_id: str
    backend: str
    scenario: Mapping[str, Any]
    manifest: Mapping[str, Any]
    #: Rows of analysis.metrics.measure.
    metrics: Sequence[Mapping[str, Any]]
    #: What makes it invalid; empty: it is valid.
    problems: Sequence[str]
    attempt: int
    #: Its files; the folder moves into the store.
    folder: Path


class Store:
    """An open store."""

    def __init__(self, engine: sa.Engine, folder: Path) -> None:
        self._engine = engine
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Opens the store of a folder, making and migrating it as needed.

        Raises:
            StoreError: the folder cannot be used, or a newer version made the store.
        """
        try:
            (folder / "runs").mkdir(parents=True, exist_ok=True)
            (folder / "incoming").mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"the results folder {folder} cannot be used: {error.strerror}") from None
        engine = sa.create_engine(f"sqlite:///{folder / 'results.sqlite'}", connect_args={"timeout": BUSY_S})
        sa.event.listen(engine, "connect", _on_connect)
        store = cls(engine, folder)
        try:
            # One at a time: SQLite does not wait for another's switch to WAL, as it does for any other lock.
            with (folder / "store.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                store._migrate()
        except sa.exc.DatabaseError as error:
            raise StoreError(f"the results store {folder / 'results.sqlite'} cannot be opened: {error.orig}") from None
        return store

    def close(self) -> None:
        """Lets go of the database."""
        self._engine.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        script = ScriptDirectory.from_config(config)
        with self._engine.connect() as connection:
            now = MigrationContext.configure(connection).get_current_revision()
            if now == script.get_current_head():
                return
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with self._writing() as connection:
            if now is not None and now not in {revision.revision for revision in script.walk_revisions()}:
                raise StoreError(f"the results store in {self.folder} was made by a newer version of Backchannel")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            # The write lock is taken at once: a transaction that began reading could not be upgraded.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    # Campaigns -----------------------------------------------------------------------------------------------

    def begin_campaign(
        self,
        fields: Mapping[str, Any],
        points: Sequence[Sequence[tuple[str, str]]],
        members: Sequence[tuple[int, int, str]],
    ) -> None:
        """Enters a campaign as running, or marks a known one so.

        Args:
            fields: id, name, title, file, text, overrides, backend, seed, repetitions.
            points: per point its (field, value) pairs.
            members: (point, repetition, run id) of every run.
        """
        now = time.time()
        row = {**fields, "state": "running", "started": now, "finished": None, "progress": {}}
        with self._writing() as connection:
            statement = insert(campaign).values(row)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id"], set_={key: statement.excluded[key] for key in row if key != "id"}
                )
            )
            connection.execute(sa.delete(point).where(point.c.campaign_id == fields["id"]))
            connection.execute(sa.delete(membership).where(membership.c.campaign_id == fields["id"]))
            rows = [
                {"campaign_id": fields["id"], "number": number, "parameters": [list(pair) for pair in pairs]}
                for number, pairs in enumerate(points)
            ]
            connection.execute(sa.insert(point), rows)
            rows = [
                {"campaign_id": fields["id"], "point": at, "repetition": repetition, "run_id": run_id}
                for at, repetition, run_id in members
            ]
            connection.execute(sa.insert(membership), rows)

    def tell_progress(self, campaign_id: str, progress: Mapping[str, Any]) -> None:
        """Notes what a running campaign is doing."""
        with self._writing() as connection:
            connection.execute(
                sa.update(campaign)
                .where(campaign.c.id == campaign_id)
                .values(progress={**progress, "updated": time.time()})
            )

    def end_campaign(self, campaign_id: str, complete: bool) -> None:
        """Marks it complete, or incomplete when runs are missing."""
        state = "complete" if complete else "incomplete"
        with self._writing() as connection:
            connection.execute(
                sa.update(campaign)
                .where(campaign.c.id == campaign_id)
                .values(state=state, finished=time.time(), progress={})
            )

    def campaigns(self) -> list[dict[str, Any]]:
        """Every campaign, newest first, with `runs` asked for and `valid` ones."""
        counted = (
            sa.select(
                membership.c.campaign_id,
                sa.func.count().label("runs"),
                sa.func.count(run.c.id).filter(run.c.state == "valid").label("valid"),
            )
            .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
            .group_by(membership.c.campaign_id)
            .subquery()
        )
        query = (
            sa.select(campaign, counted.c.runs, counted.c.valid)
            .join(counted, counted.c.campaign_id == campaign.c.id)
            .order_by(campaign.c.started.desc())
        )
        return self._rows(query)

    def campaign(self, campaign_id: str) -> dict[str, Any] | None:
        """One campaign as `campaigns` gives it, with `points`: number, parameters and `members`.

        A member is a run asked for: repetition, run_id, state (valid, invalid or missing), problems.
        """
        found = [row for row in self.campaigns() if row["id"] == campaign_id]
        if not found:
            return None
        points = self._rows(sa.select(point).where(point.c.campaign_id == campaign_id).order_by(point.c.number))
        members = self._rows(
            sa.select(
                membership.c.point,
                membership.c.repetition,
                membership.c.run_id,
                sa.func.coalesce(run.c.state, "missing").label("state"),
                run.c.problems,
            )
            .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
            .where(membership.c.campaign_id == campaign_id)
            .order_by(membership.c.point, membership.c.repetition)
        )
        for one in points:
            one["members"] = [member for member in members if member["point"] == one["number"]]
        return {**found[0], "points": points}

    def table(self, campaign_id: str) -> list[dict[str, Any]]:
        """Means over a point's valid runs: point, name, subject, unit, n, mean, sd (sample; None for n < 2), values."""
        query = (
            sa.select(membership.c.point, metric.c.name, metric.c.subject, metric.c.unit, metric.c.value)
            .join(run, run.c.id == membership.c.run_id)
            .join(metric, metric.c.run_id == run.c.id)
            .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
            .order_by(membership.c.point, metric.c.name, metric.c.subject, membership.c.repetition)
        )
        groups: dict[tuple[int, str, str, str], list[float]] = {}
        for row in self._rows(query):
            groups.setdefault((row["point"], row["name"], row["subject"], row["unit"]), []).append(row["value"])
        return [
            {
                "point": number, "name": name, "subject": subject, "unit": unit, "n": len(values),
                "mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
            }
            for (number, name, subject, unit), values in groups.items()
        ]  # fmt: skip

    # Runs ----------------------------------------------------------------------------------------------------

    def valid_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that are in the store and valid."""
        found: set[str] = set()
        with self._engine.connect() as connection:
            for start in range(0, len(run_ids), 500):
                query = sa.select(run.c.id).where(run.c.state == "valid", run.c.id.in_(run_ids[start : start + 500]))
                found.update(connection.scalars(query))
        return found

    def incoming(self, run_id: str) -> Path:
        """An empty folder to put a run together in, on the store's own file system."""
        folder = self.folder / "incoming" / f"{run_id}-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def sweep_incoming(self) -> None:
        """Removes what runners that are gone have left half-made."""
        for folder in (self.folder / "incoming").iterdir():
            pid = folder.name.rpartition("-")[2]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)

    def land(self, landing: Landing) -> None:
        """Takes a run in: files first, then one transaction. Nobody sees it before; a crash leaves nothing visible.

        An invalid run is kept until a valid one with the same id takes its place; it never replaces a valid one.
        """
        files = [_describe(path, landing.folder) for path in sorted(landing.folder.rglob("*")) if path.is_file()]
        target = self.run_folder(landing.run_id)
        values = {
            "id": landing.run_id,
            "backend": landing.backend,
            "seed": landing.scenario["seed"],
            "duration_s": landing.scenario["duration_s"],
            "state": "invalid" if landing.problems else "valid",
            "problems": list(landing.problems),
            "attempt": landing.attempt,
            "landed": time.time(),
            "scenario": dict(landing.scenario),
            "manifest": dict(landing.manifest),
        }
        with self._writing() as connection:
            known = connection.execute(sa.select(run.c.state).where(run.c.id == landing.run_id)).scalar()
            if landing.problems:
                self._note_attempt(connection, landing.run_id, landing.attempt, "invalid", landing.problems)
            if known == "valid":
                shutil.rmtree(landing.folder, ignore_errors=True)
                return
            connection.execute(sa.delete(run).where(run.c.id == landing.run_id))
            connection.execute(sa.insert(run).values(values))
            rows = [
                {"run_id": landing.run_id, "name": row["metric"], "subject": row["subject"], "value": row["value"],
                 "unit": row["unit"]}
                for row in landing.metrics if math.isfinite(row["value"])
            ]  # fmt: skip
            if rows:
                connection.execute(sa.insert(metric), rows)
            if files:
                connection.execute(sa.insert(file), [{"run_id": landing.run_id, **row} for row in files])
            # Inside the transaction: a row without its files can then never be seen, and a folder without its row is
            # simply replaced by the next landing.
            if target.exists():
                shutil.rmtree(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            landing.folder.rename(target)

    def forget(self, run_ids: Sequence[str]) -> None:
        """Removes runs with their files, so that they can be run again."""
        with self._writing() as connection:
            for run_id in run_ids:
                connection.execute(sa.delete(run).where(run.c.id == run_id))
                shutil.rmtree(self.run_folder(run_id), ignore_errors=True)

    def note_failure(self, run_id: str, number: int, problem: str) -> None:
        """Notes a try that gave no result at all."""
        with self._writing() as connection:
            self._note_attempt(connection, run_id, number, "failed", [problem])

    def _note_attempt(
        self, connection: sa.Connection, run_id: str, number: int, outcome: str, problems: Sequence[str]
    ) -> None:
        row = {
            "run_id": run_id,
            "number": number,
            "at": time.time(),
            "outcome": outcome,
            "problems": list(problems),
        }
        connection.execute(sa.insert(attempt).values(row))

    def run(self, run_id: str) -> dict[str, Any] | None:
        """One run with its `metrics`, `files`, `attempts` and the `campaigns` it belongs to."""
        found = self._rows(sa.select(run).where(run.c.id == run_id))
        if not found:
            return None
        of_run = found[0]
        of_run["metrics"] = self._rows(
            sa.select(metric).where(metric.c.run_id == run_id).order_by(metric.c.name, metric.c.subject)
        )
        of_run["files"] = self._rows(sa.select(file).where(file.c.run_id == run_id).order_by(file.c.path))
        of_run["attempts"] = self._rows(sa.select(attempt).where(attempt.c.run_id == run_id).order_by(attempt.c.at))
        of_run["campaigns"] = self._rows(
            sa.select(
                campaign.c.id, campaign.c.name, campaign.c.title, membership.c.point, membership.c.repetition,
                point.c.parameters,
            )
            .join(membership, membership.c.campaign_id == campaign.c.id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id == run_id)
            .order_by(campaign.c.started.desc())
        )  # fmt: skip
        return of_run

    def run_folder(self, run_id: str) -> Path:
        """Where a run's files lie."""
        return self.folder / "runs" / run_id[:2] / run_id

    def rows(self, query: Any) -> list[dict[str, Any]]:
        """What a query finds."""
        return self._rows(query)

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that writes; no other writer is in one meanwhile."""
        return self._writing()

    def connect(self) -> sa.Connection:
        """A connection of the caller's own, to be closed by it."""
        return self._engine.connect()

    def _rows(self, query: Any) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def _describe(path: Path, folder: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": digest}


def _on_connect(connection: Any, _: Any) -> None:
    # SQLAlchemy's own handling of BEGIN for sqlite3 would begin too late; the store says BEGIN itself.
    connection.isolation_level = None
    for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
