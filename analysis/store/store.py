"""The store's operations. One method is one transaction; a run lands whole or not at all.

A folder: `results.sqlite`, `runs/AB/ABCD.../` with a run's files, `incoming/` where runs are put together before they
land, `failed/` with what tries left that gave no result. Several processes may read and write at once (WAL); a landing
waits for another's for up to 30 s.

Or a PostgreSQL URL with an artefact URL beside it, for a team and for workers on several machines; `runs` and `failed`
are then behind the latter, `incoming` and files that were read in a folder of each machine's own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from analysis.results import ValueRow
from analysis.store.artefacts import REASON, ArtefactError
from analysis.store.database import Row, StoreError, Value, batched
from analysis.store.documents import Batch, Documents
from analysis.store.incoming import Incoming
from analysis.store.landing import Landing, land, note_attempt
from analysis.store.location import Location, is_url, open_folder, open_postgresql
from analysis.store.rows import (
    AttemptRow,
    CampaignOfRun,
    CampaignRow,
    FileRow,
    HistoryRow,
    LandedValueRow,
    MemberRow,
    MetricRow,
    NewCampaign,
    PointRow,
    ProgressRow,
    RunRow,
    TableRow,
)
from analysis.store.schema import attempt, campaign, file, membership, metric, point, replaced, run
from testbed.scenario import Document, ScenarioDocument

#: Runs that the expected time of others is taken from: the latest.
MOST_HISTORY = 400

#: A run's position in a campaign.
MEMBER = (membership.c.point, membership.c.repetition, membership.c.run_id)


class Store:
    """An open store."""

    def __init__(self, location: Location) -> None:
        self._database = location.database
        self._artefacts = location.artefacts
        #: On this machine: everything, or with PostgreSQL only runs that are being assembled and copies of files.
        self.folder = location.folder
        self._incoming = Incoming(location.folder)

    @classmethod
    def open(cls, where: Path | str, artefacts: str | None = None) -> Store:
        """Opens a store, creating and migrating it as needed.

        Args:
            where: a folder, or a PostgreSQL URL.
            artefacts: fsspec URL of the files beside a PostgreSQL store; None: $BACKCHANNEL_ARTEFACTS.

        Raises:
            StoreError: it cannot be used, or a newer version made it.
        """
        if is_url(where):
            return cls(open_postgresql(str(where), artefacts or os.environ.get("BACKCHANNEL_ARTEFACTS", "")))
        if artefacts:
            raise StoreError("an artefact URL belongs to a PostgreSQL store; a results folder keeps its files itself")
        return cls(open_folder(Path(where)))

    def close(self) -> None:
        """Closes the database, and gives up what is being assembled."""
        self._incoming.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def where(self) -> str:
        """Its name for people, without a password."""
        return self._database.where

    # Campaigns -----------------------------------------------------------------------------------------------

    def begin_campaign(
        self,
        new: NewCampaign,
        points: Sequence[Sequence[tuple[str, str]]],
        members: Sequence[tuple[int, int, str]],
    ) -> None:
        """Enters a campaign as running, or marks a known one so.

        Args:
            new: the campaign.
            points: per point its (field, value) pairs.
            members: (point, repetition, run id) of every run.
        """
        now = time.time()
        row = {**vars(new), "state": "running", "started": now, "finished": None, "progress": {}}
        with self._database.writing() as connection:
            statement = (postgresql if self._database.is_postgresql else sqlite).insert(campaign).values(row)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id"], set_={key: statement.excluded[key] for key in row if key != "id"}
                )
            )
            connection.execute(sa.delete(point).where(point.c.campaign_id == new.id))
            connection.execute(sa.delete(membership).where(membership.c.campaign_id == new.id))
            rows: list[dict[str, Value]] = [
                {"campaign_id": new.id, "number": number, "parameters": [list(pair) for pair in pairs]}
                for number, pairs in enumerate(points)
            ]
            self._database.insert(connection, point, rows)
            rows = [
                {"campaign_id": new.id, "point": at, "repetition": repetition, "run_id": run_id}
                for at, repetition, run_id in members
            ]
            self._database.insert(connection, membership, rows)

    def set_progress(self, campaign_id: str, progress: ProgressRow) -> None:
        """Notes what a running campaign is doing."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(campaign)
                .where(campaign.c.id == campaign_id)
                .values(progress={**progress, "updated": time.time()})
            )

    def end_campaign(self, campaign_id: str, complete: bool) -> None:
        """Marks it complete, or incomplete when runs are missing."""
        state = "complete" if complete else "incomplete"
        with self._database.writing() as connection:
            connection.execute(
                sa.update(campaign)
                .where(campaign.c.id == campaign_id)
                .values(state=state, finished=time.time(), progress={})
            )

    def campaigns(self, only: str = "") -> list[CampaignRow]:
        """Every campaign, newest first, with `runs` asked for, `valid` and `invalid` ones; or only one, by its id."""
        states = [sa.func.count(run.c.id).filter(run.c.state == state).label(state) for state in ("valid", "invalid")]
        counted = (
            sa.select(membership.c.campaign_id, sa.func.count().label("runs"), *states)
            .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
            .where(*([membership.c.campaign_id == only] if only else []))
            .group_by(membership.c.campaign_id)
            .subquery()
        )
        query = (
            sa.select(campaign, counted.c.runs, counted.c.valid, counted.c.invalid)
            .join(counted, counted.c.campaign_id == campaign.c.id)
            .order_by(campaign.c.started.desc())
        )
        return self._database.read(query, CampaignRow)

    def campaign(self, campaign_id: str) -> CampaignRow | None:
        """One campaign, with its points and their members."""
        rows = self.campaigns(campaign_id)
        if not rows:
            return None
        of_points = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id)
        points = self._database.read(of_points.order_by(point.c.number), PointRow)
        query = (
            sa.select(*MEMBER, sa.func.coalesce(run.c.state, "missing").label("state"), run.c.problems)
            .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
            .where(membership.c.campaign_id == campaign_id)
            .order_by(membership.c.point, membership.c.repetition)
        )
        members: dict[int, list[MemberRow]] = {row.number: [] for row in points}
        for member in self._database.read(query, MemberRow):
            members[member.point].append(member)
        return replace(rows[0], points=[replace(row, members=members[row.number]) for row in points])

    def table(self, campaign_id: str, numbers: Sequence[int] | None = None) -> list[TableRow]:
        """Means over a point's valid runs, by point, name and subject.

        Args:
            campaign_id: of a campaign.
            numbers: of the points wanted; None: all.
        """
        query = (
            sa.select(membership.c.point, metric.c.name, metric.c.subject, metric.c.unit, metric.c.value)
            .join(run, run.c.id == membership.c.run_id)
            .join(metric, metric.c.run_id == run.c.id)
            .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
            .order_by(membership.c.point, metric.c.name, metric.c.subject, membership.c.repetition)
        )
        if numbers is not None:
            query = query.where(membership.c.point.in_(numbers))
        groups: dict[tuple[Any, ...], list[float]] = {}
        for *key, value in self._database.tuples(query):
            groups.setdefault(tuple(key), []).append(value)
        return [
            TableRow(
                number, name, subject, unit, n=len(values), mean=statistics.fmean(values),
                sd=statistics.stdev(values) if len(values) > 1 else None, values=values,
            )
            for (number, name, subject, unit), values in groups.items()
        ]  # fmt: skip

    def values(
        self, campaign_id: str, numbers: Sequence[int] | None = None, only: Sequence[tuple[str, str]] | None = None
    ) -> list[ValueRow]:
        """Every metric of every valid run.

        Args:
            campaign_id: of a campaign.
            numbers: of the points wanted; None: all.
            only: (name, subject) of the metrics wanted; None: all.
        """
        order = (membership.c.point, metric.c.name, metric.c.subject, membership.c.repetition)
        query = _values_of(campaign_id)
        if numbers is not None:
            query = query.where(membership.c.point.in_(numbers))
        if only is not None:
            wanted = [(metric.c.name == name) & (metric.c.subject == subject) for name, subject in only]
            query = query.where(sa.or_(sa.false(), *wanted))
        return self._database.read(query.order_by(*order), ValueRow)

    def values_at(self, campaign_id: str, moment: float) -> list[LandedValueRow]:
        """Every metric of the results that were valid at an earlier time.

        Args:
            campaign_id: id of the campaign.
            moment: seconds since the UNIX epoch.
        """
        now = _values_of(campaign_id).add_columns(run.c.landed).where(run.c.landed <= moment)
        past = replaced.c
        earlier = (
            sa.select(*MEMBER, past.seed, past.name, past.subject, past.unit, past.value, past.landed)
            .join(replaced, past.run_id == membership.c.run_id)
            .where(membership.c.campaign_id == campaign_id, past.landed <= moment, past.until > moment)
        )
        rows = self._database.read(sa.union_all(now, earlier), LandedValueRow)
        return sorted(rows, key=lambda row: (row.point, row.name, row.subject, row.repetition))

    # Runs ----------------------------------------------------------------------------------------------------

    def valid_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that are in the store and valid."""
        valid = sa.select(run.c.id).where(run.c.state == "valid")
        return {
            run_id for some in batched(run_ids) for run_id in self._database.scalars(valid.where(run.c.id.in_(some)))
        }

    def run_ids(self, beginning: str, limit: int | None = None) -> list[str]:
        """Ids of the runs that begin so, sorted."""
        query = sa.select(run.c.id).where(run.c.id.startswith(beginning, autoescape=True))
        return self._database.scalars(query.order_by(run.c.id).limit(limit))

    def tried_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that were tried and have no valid result."""
        query, of_run = sa.select(attempt.c.run_id), attempt.c.run_id
        tried = {
            run_id for some in batched(run_ids) for run_id in self._database.scalars(query.where(of_run.in_(some)))
        }
        return tried - self.valid_runs(run_ids)

    def history(self, backend: str) -> list[HistoryRow]:
        """What the latest valid runs of a backend took."""
        query = (
            sa.select(run.c.id, run.c.scenario, run.c.manifest)
            .where(run.c.backend == backend, run.c.state == "valid")
            .order_by(run.c.landed.desc())
            .limit(MOST_HISTORY)
        )
        with self._database.engine.connect() as connection:
            latest = connection.execute(query).all()
        sizes = dict(
            self._database.tuples(
                sa.select(file.c.run_id, sa.func.sum(file.c.bytes))
                .where(file.c.run_id.in_([run_id for run_id, _, _ in latest]))
                .group_by(file.c.run_id)
            )
        )
        return [
            HistoryRow(
                ScenarioDocument(scenario), Batch.model_validate(manifest.get("batch") or {}), manifest.get("took_s"),
                int(sizes.get(run_id, 0)), manifest.get("analysed_s"),
            )
            for run_id, scenario, manifest in latest
        ]  # fmt: skip

    def incoming(self, run_id: str) -> Path:
        """An empty folder in which to assemble one attempt of a run, on the file system of the store."""
        return self._incoming.make(run_id)

    def sweep_incoming(self) -> None:
        """Removes what processes that have ended left half-assembled."""
        self._incoming.sweep()

    @property
    def owner(self) -> str:
        """A token of this open store."""
        return self._incoming.owner

    def has_ended(self, owner: str) -> bool:
        """Whether the process that opened the store with this token has ended, as far as can be told from here: the
        locks of other hosts on a team's database cannot be seen.
        """
        return not self._database.is_postgresql and not self._incoming.is_alive(owner)

    def land(self, landing: Landing, replaces: bool = False) -> bool:
        """Stores a run. It is visible only once it is complete; a crash leaves nothing visible.

        An invalid run is kept until a valid one with the same id replaces it; it never replaces a valid one.

        Args:
            landing: the run; its folder moves into the store.
            replaces: a valid run replaces a valid one.

        Returns:
            Whether the run is in the store now.

        Raises:
            StoreError: the files cannot be stored.
        """
        return land(self._database, self._artefacts, landing, replaces)

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
        with self._database.writing() as connection:
            note_attempt(connection, run_id, number, "failed", [problem])

    def run(self, run_id: str) -> RunRow | None:
        """One run with its metrics, files and attempts, and the campaigns that contain it."""
        read = self._database.read
        rows = read(sa.select(run).where(run.c.id == run_id), _run_row)
        if not rows:
            return None
        metrics = sa.select(metric).where(metric.c.run_id == run_id).order_by(metric.c.name, metric.c.subject)
        files = sa.select(file).where(file.c.run_id == run_id).order_by(file.c.path)
        attempts = sa.select(attempt).where(attempt.c.run_id == run_id).order_by(attempt.c.at)
        campaigns = (
            sa.select(
                campaign.c.id, campaign.c.name, campaign.c.title, membership.c.point, membership.c.repetition,
                point.c.parameters,
            )
            .join(membership, membership.c.campaign_id == campaign.c.id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id == run_id)
            .order_by(campaign.c.started.desc())
        )  # fmt: skip
        return replace(
            rows[0],
            metrics=read(metrics, MetricRow),
            files=read(files, FileRow),
            attempts=read(attempts, AttemptRow),
            campaigns=read(campaigns, CampaignOfRun),
        )

    def run_folder(self, run_id: str) -> Path:
        """A local folder with a run's files.

        Raises:
            StoreError: they cannot be brought here.
        """
        try:
            if not self._database.is_postgresql:
                return self._artefacts.folder(run_id)
            # Another machine may have landed it anew since its files were brought here.
            landed = self._database.scalars(sa.select(run.c.landed).where(run.c.id == run_id))
            return self._artefacts.folder(run_id, str(landed[0]) if landed else "0", lambda: self._sizes(run_id))
        except ArtefactError as error:
            raise StoreError(str(error)) from error

    def _sizes(self, run_id: str) -> dict[str, int]:
        """Bytes of a run's files, by their paths below its folder."""
        return dict(self._database.tuples(sa.select(file.c.path, file.c.bytes).where(file.c.run_id == run_id)))

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

    def read(self, query: Any, row: Callable[..., Row]) -> list[Row]:
        """The rows of a query; `row` takes its columns by name."""
        return self._database.read(query, row)

    def scalars(self, query: Any) -> list[Any]:
        """The first column of a query."""
        return self._database.scalars(query)

    def tuples(self, query: Any) -> list[tuple[Any, ...]]:
        """The rows of a query as the driver returns them, without JSON columns: fast, for many rows."""
        return self._database.tuples(query)

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that writes; SQLite has one at a time."""
        return self._database.writing()

    def connect(self) -> sa.Connection:
        """A connection, which the caller closes."""
        return self._database.engine.connect()


def _run_row(scenario: Document, manifest: Document, **columns: Any) -> RunRow:
    return RunRow(**columns, documents=Documents(scenario, manifest))


def _values_of(campaign_id: str) -> sa.Select[Any]:
    """Every metric of a campaign's valid runs."""
    return (
        sa.select(*MEMBER, run.c.seed, metric.c.name, metric.c.subject, metric.c.unit, metric.c.value)
        .join(run, run.c.id == membership.c.run_id)
        .join(metric, metric.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
    )
