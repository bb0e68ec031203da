"""The store's operations. One method is one transaction; a run lands whole or not at all.

A folder: `results.sqlite`, `runs/AB/ABCD.../` with a run's files, `incoming/` where runs are put together before they
land, `failed/` with what tries left that gave no result. Several processes may read and write at once (WAL); a landing
waits for another's for up to 30 s.

Or a PostgreSQL URL with an artefact URL beside it, for a team and for workers on several machines; `runs` and `failed`
are then behind the latter, `incoming` and files that were read in a folder of each machine's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import math
import os
import shutil
import statistics
import tempfile
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
from sqlalchemy.dialects import postgresql, sqlite

from analysis.store.artefacts import REASON, ArtefactError, Artefacts, LocalArtefacts, RemoteArtefacts
from analysis.store.schema import attempt, campaign, file, membership, metric, point, replaced, run

#: Where a run stands in a campaign.
MEMBER = (membership.c.point, membership.c.repetition, membership.c.run_id)
MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_S = 30
#: Machine-local files of a store that is a database: below it, one folder for each store.
LOCAL = Path(os.environ.get("BACKCHANNEL_LOCAL", Path(tempfile.gettempdir()) / f"backchannel-{os.getuid()}"))
POSTGRESQL = "postgresql"
#: Numbers of the folders in which this process puts runs together.
_tries = itertools.count()
#: Key of the advisory lock under which one process at a time migrates.
MIGRATION_LOCK = 0x6261636B


#: On which every transaction that writes to PostgreSQL says so, as it is committed.
CHANNEL = "backchannel"


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

    def __init__(self, engine: sa.Engine, folder: Path, artefacts: Artefacts, where: str) -> None:
        self._engine = engine
        #: Of this machine: everything, or what is being put together.
        self.folder = folder
        #: As people name it, without a password.
        self.where = where
        self._artefacts = artefacts

    @classmethod
    def open(cls, where: Path | str, artefacts: str | None = None) -> Store:
        """Opens a store, making and migrating it as needed.

        Args:
            where: a folder, or a PostgreSQL URL.
            artefacts: the fsspec URL that a PostgreSQL store keeps files at; None: $BACKCHANNEL_ARTEFACTS.

        Raises:
            StoreError: it cannot be used, or a newer version made it.
        """
        if is_url(where):
            return cls._open_postgresql(str(where), artefacts or os.environ.get("BACKCHANNEL_ARTEFACTS", ""))
        folder = Path(where)
        if artefacts:
            raise StoreError("an artefact URL belongs to a PostgreSQL store; a results folder keeps its files itself")
        try:
            (folder / "runs").mkdir(parents=True, exist_ok=True)
            (folder / "incoming").mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"the results folder {folder} cannot be used: {error.strerror}") from None
        engine = sa.create_engine(f"sqlite:///{folder / 'results.sqlite'}", connect_args={"timeout": BUSY_S})
        sa.event.listen(engine, "connect", _on_connect)
        store = cls(engine, folder, LocalArtefacts(folder), str(folder))
        try:
            # One at a time: SQLite does not wait for another's switch to WAL, as it does for any other lock.
            with (folder / "store.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                store._migrate()
        except sa.exc.DatabaseError as error:
            raise StoreError(f"the results store {folder / 'results.sqlite'} cannot be opened: {error.orig}") from None
        return store

    @classmethod
    def _open_postgresql(cls, where: str, artefacts: str) -> Store:
        try:
            url = sa.make_url(where)
        except sa.exc.ArgumentError:
            raise StoreError("a PostgreSQL store is named like postgresql://user@host/database") from None
        shown = url.render_as_string(hide_password=True)
        if url.get_backend_name() != POSTGRESQL:
            raise StoreError(f"{shown} is no store: there are results folders, and postgresql://user@host/database")
        if not artefacts:
            raise StoreError(
                f"the store {shown} needs a place for captures and tables: --artefacts URL, or $BACKCHANNEL_ARTEFACTS "
                "(a folder that every machine sees, s3://bucket/path, sftp://host/path, ...)"
            )
        own = LOCAL / hashlib.sha256(f"{shown} {artefacts}".encode()).hexdigest()[:16]
        try:
            (own / "incoming").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the folder {own} of this machine cannot be used: {error.strerror}") from None
        try:
            files = RemoteArtefacts(artefacts, own / "cache")
        except ArtefactError as error:
            raise StoreError(str(error)) from None
        engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        store = cls(engine, own, files, shown)
        try:
            store._migrate()
        except sa.exc.DatabaseError as error:
            said = " ".join(str(error.orig).split())
            raise StoreError(f"the results store {shown} cannot be opened: {said}") from None
        return store

    def close(self) -> None:
        """Lets go of the database."""
        self._engine.dispose()

    @property
    def _is_postgresql(self) -> bool:
        return self._engine.dialect.name == POSTGRESQL

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        script = ScriptDirectory.from_config(config)
        with self._engine.connect() as connection:
            now = MigrationContext.configure(connection).get_current_revision()
            if now == script.get_current_head():
                return
            if not self._is_postgresql:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with self._writing() as connection:
            if self._is_postgresql:
                # Another may have migrated while this one waited.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
                now = MigrationContext.configure(connection).get_current_revision()
            if now is not None and now not in {revision.revision for revision in script.walk_revisions()}:
                raise StoreError(f"the results store in {self.where} was made by a newer version of Backchannel")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        if self._is_postgresql:
            with self._engine.begin() as connection:
                yield connection
                connection.execute(sa.select(sa.func.pg_notify(CHANNEL, "")))
            return
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
            statement = (postgresql if self._is_postgresql else sqlite).insert(campaign).values(row)
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

    def set_progress(self, campaign_id: str, progress: Mapping[str, Any]) -> None:
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

    def campaigns(self, only: str = "") -> list[dict[str, Any]]:
        """Every campaign, newest first, with `runs` asked for and `valid` ones; or only one, by its id."""
        counted = (
            sa.select(
                membership.c.campaign_id,
                sa.func.count().label("runs"),
                sa.func.count(run.c.id).filter(run.c.state == "valid").label("valid"),
            )
            .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
            .where(*([membership.c.campaign_id == only] if only else []))
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
        found = self.campaigns(campaign_id)
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
        of_point: dict[int, list[dict[str, Any]]] = {one["number"]: [] for one in points}
        for member in members:
            of_point[member["point"]].append(member)
        for one in points:
            one["members"] = of_point[one["number"]]
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

    def values(self, campaign_id: str) -> list[dict[str, Any]]:
        """Every metric of every valid run: point, repetition, run_id, seed, name, subject, unit, value."""
        return self._rows(
            _values_of(campaign_id).order_by(
                membership.c.point, metric.c.name, metric.c.subject, membership.c.repetition
            )
        )

    def values_at(self, campaign_id: str, moment: float) -> list[dict[str, Any]]:
        """As `values`, with `landed`, of the results that were there at a moment.

        Args:
            campaign_id: of a campaign, whenever it was begun.
            moment: seconds since the UNIX epoch.
        """
        now = _values_of(campaign_id).add_columns(run.c.landed).where(run.c.landed <= moment)
        past = replaced.c
        earlier = (
            sa.select(*MEMBER, past.seed, past.name, past.subject, past.unit, past.value, past.landed)
            .join(replaced, past.run_id == membership.c.run_id)
            .where(membership.c.campaign_id == campaign_id, past.landed <= moment, past.until > moment)
        )
        rows = self._rows(sa.union_all(now, earlier))
        return sorted(rows, key=lambda row: (row["point"], row["name"], row["subject"], row["repetition"]))

    # Runs ----------------------------------------------------------------------------------------------------

    def valid_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that are in the store and valid."""
        found: set[str] = set()
        with self._engine.connect() as connection:
            for start in range(0, len(run_ids), 500):
                query = sa.select(run.c.id).where(run.c.state == "valid", run.c.id.in_(run_ids[start : start + 500]))
                found.update(connection.scalars(query))
        return found

    def run_ids(self, beginning: str) -> list[str]:
        """Ids of the runs that begin so, sorted."""
        with self._engine.connect() as connection:
            query = sa.select(run.c.id).where(run.c.id.startswith(beginning, autoescape=True)).order_by(run.c.id)
            return list(connection.scalars(query))

    def tried_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that were tried and have no valid result."""
        found: set[str] = set()
        with self._engine.connect() as connection:
            for start in range(0, len(run_ids), 500):
                some = run_ids[start : start + 500]
                found.update(connection.scalars(sa.select(attempt.c.run_id).where(attempt.c.run_id.in_(some))))
        return found - self.valid_runs(run_ids)

    def history(self, backend: str, most: int = 400) -> list[dict[str, Any]]:
        """What the latest valid runs of a backend took: scenario, batch (of the manifest), took_s, bytes."""
        latest = self._rows(
            sa.select(run.c.id, run.c.scenario, run.c.manifest)
            .where(run.c.backend == backend, run.c.state == "valid")
            .order_by(run.c.landed.desc())
            .limit(most)
        )
        sizes = {
            row["run_id"]: int(row["bytes"])
            for row in self._rows(
                sa.select(file.c.run_id, sa.func.sum(file.c.bytes).label("bytes"))
                .where(file.c.run_id.in_([row["id"] for row in latest]))
                .group_by(file.c.run_id)
            )
        }
        return [
            {
                "scenario": row["scenario"], "batch": row["manifest"].get("batch") or {},
                "took_s": row["manifest"].get("took_s"), "bytes": sizes.get(row["id"], 0),
            }
            for row in latest
        ]  # fmt: skip

    def incoming(self, run_id: str) -> Path:
        """An empty folder to put a run together in, on the store's own file system: another one for each try, as one
        that was given up may still be at work in this process.
        """
        folder = self.folder / "incoming" / f"{run_id}-{next(_tries)}-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def sweep_incoming(self) -> None:
        """Removes what runners that are gone have left half-made."""
        for folder in (self.folder / "incoming").iterdir():
            pid = folder.name.rpartition("-")[2]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)

    def land(self, landing: Landing, replaces: bool = False) -> None:
        """Takes a run in: files first, then one transaction. Nobody sees it before; a crash leaves nothing visible.

        An invalid run is kept until a valid one with the same id takes its place; it never replaces a valid one. With
        `replaces`, a valid one takes the place of a valid one.

        Raises:
            StoreError: the files have no place.
        """
        files = [_describe(path, landing.folder) for path in sorted(landing.folder.rglob("*")) if path.is_file()]
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
            if self._is_postgresql:
                # Two machines may land one run; SQLite has one writer anyway.
                key = int.from_bytes(hashlib.sha256(landing.run_id.encode()).digest()[:8], "big", signed=True)
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            known = connection.execute(sa.select(run.c.state).where(run.c.id == landing.run_id)).scalar()
            if landing.problems:
                self._note_attempt(connection, landing.run_id, landing.attempt, "invalid", landing.problems)
            if known == "valid" and (landing.problems or not replaces):
                shutil.rmtree(landing.folder, ignore_errors=True)
                return
            if known == "valid":
                self._keep_values(connection, landing.run_id, values["landed"])
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
            try:
                self._artefacts.put(landing.run_id, landing.folder)
            except ArtefactError as error:
                raise StoreError(str(error)) from error
        if not landing.problems:
            try:
                self._artefacts.remove_failed(landing.run_id)
            except ArtefactError as error:
                raise StoreError(str(error)) from error

    def forget(self, run_ids: Sequence[str]) -> None:
        """Removes runs with their files, so that they can be run again."""
        with self._writing() as connection:
            for run_id in run_ids:
                connection.execute(sa.delete(run).where(run.c.id == run_id))
                self._artefacts.remove(run_id)

    def _keep_values(self, connection: sa.Connection, run_id: str, until: float) -> None:
        """Notes what a result said that is about to be replaced."""
        said = sa.select(
            run.c.id, run.c.landed, metric.c.name, metric.c.subject, sa.literal(until), run.c.seed, metric.c.value,
            metric.c.unit,
        ).join(metric, metric.c.run_id == run.c.id).where(run.c.id == run_id)  # fmt: skip
        columns = ["run_id", "landed", "name", "subject", "until", "seed", "value", "unit"]
        connection.execute(sa.insert(replaced).from_select(columns, said))

    def note_failure(self, run_id: str, number: int, problem: str, folder: Path | None = None) -> None:
        """Notes a try that gave no result, and keeps what it left in `folder` until the run has a valid one.

        Raises:
            StoreError: the files have no place.
        """
        if folder is not None and folder.exists():
            (folder / REASON).write_text(f"try {number}: {problem}\n")
            try:
                self._artefacts.put_failed(run_id, folder)
            except ArtefactError as error:
                raise StoreError(str(error)) from error
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
        """A local folder with a run's files.

        Raises:
            StoreError: they cannot be brought here.
        """
        try:
            if not self._is_postgresql:
                return self._artefacts.folder(run_id)
            # Another machine may have landed it anew since its files were brought here.
            landed = self._rows(sa.select(run.c.landed).where(run.c.id == run_id))
            return self._artefacts.folder(run_id, str(landed[0]["landed"]) if landed else "0")
        except ArtefactError as error:
            raise StoreError(str(error)) from error

    def failed_folder(self, run_id: str) -> str | None:
        """Where that is which the last try without a result left (captures, logs, reason.txt): a path, or a URL below
        that of the artefacts; None: there is nothing.

        Raises:
            StoreError: the place does not say.
        """
        try:
            return self._artefacts.failed(run_id)
        except ArtefactError as error:
            raise StoreError(str(error)) from error

    def last_problems(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """Why the last try of each of these runs gave no valid result."""
        found: dict[str, list[str]] = {}
        for start in range(0, len(run_ids), 500):
            some = run_ids[start : start + 500]
            query = sa.select(attempt.c.run_id, attempt.c.problems).where(attempt.c.run_id.in_(some))
            found |= {row["run_id"]: row["problems"] for row in self._rows(query.order_by(attempt.c.at))}
        return found

    def rows(self, query: Any) -> list[dict[str, Any]]:
        """What a query finds."""
        return self._rows(query)

    def tuples(self, query: Any) -> list[tuple[Any, ...]]:
        """What a query finds, as the database's driver gives it: for columns of text and numbers, many rows of them."""
        with self._engine.connect() as connection:
            cursor = connection.execute(query).cursor
            return [] if cursor is None else list(cursor.fetchall())

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that writes; no other writer is in one meanwhile."""
        return self._writing()

    def connect(self) -> sa.Connection:
        """A connection of the caller's own, to be closed by it."""
        return self._engine.connect()

    def _rows(self, query: Any) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            found = connection.execute(query)
            names = tuple(found.keys())
            return [dict(zip(names, row, strict=True)) for row in found]


def _values_of(campaign_id: str) -> sa.Select[Any]:
    """Every metric of a campaign's valid runs."""
    return (
        sa.select(*MEMBER, run.c.seed, metric.c.name, metric.c.subject, metric.c.unit, metric.c.value)
        .join(run, run.c.id == membership.c.run_id)
        .join(metric, metric.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
    )


def is_url(where: Path | str) -> bool:
    """Whether a store is named by a URL, and not by a folder."""
    return isinstance(where, str) and "://" in where


def _describe(path: Path, folder: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": digest}


def _on_connect(connection: Any, _: Any) -> None:
    # SQLAlchemy's own handling of BEGIN for sqlite3 would begin too late; the store says BEGIN itself.
    connection.isolation_level = None
    for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
