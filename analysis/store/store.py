"""The store's operations. Each method is one transaction: a run is committed completely or not at all.

The store is a folder: `results.sqlite`, `runs/AB/ABCD.../` with a run's files, `incoming/` where runs are assembled
before they are committed, and `failed/` with the files of attempts without a result. Several processes may read and
write at once (WAL). A commit waits up to 30 s for another one.

Or it is a PostgreSQL URL with an artefact URL beside it, for a team and for workers on several machines. `runs` and
`failed` are then behind the artefact URL. Each machine has its own folder with `incoming` and the files that it read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from analysis.errors import REPEAT
from analysis.store import checksums, damage, pruning, removal
from analysis.store.artefacts import BEFORE, REASON
from analysis.store.commit import PendingRun, commit_runs, note_attempt
from analysis.store.database import Database, StoreError, StorePlaceError, Value, batched
from analysis.store.location import Location, folder_of, is_url, open_folder, open_postgresql
from analysis.store.queries import MEMBER, Queries
from analysis.store.rows import FileRow, NewCampaign, ProgressRow
from analysis.store.schema import aside, campaign, file, membership, point, run
from analysis.store.staging import StagingArea


class Store(Queries):
    """An open store."""

    def __init__(self, location: Location) -> None:
        super().__init__(location.database)
        self._artefacts = location.artefacts
        #: On this machine: everything, or with PostgreSQL only runs that are being assembled and copies of files.
        self.folder = location.folder
        self._staging = StagingArea(location.folder)

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
            raise StorePlaceError(
                "an artefact URL belongs to a PostgreSQL store; a results folder keeps its files itself"
            )
        return cls(open_folder(folder_of(where)))

    def close(self) -> None:
        """Closes the database, and abandons runs that are being assembled."""
        self._staging.close()
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
        self, new: NewCampaign, points: Sequence[Sequence[tuple[str, str]]], members: Sequence[tuple[int, int, str]]
    ) -> None:
        """Enters a campaign as running, or marks a known one so.

        Args:
            new: the campaign.
            points: per point its (field, value) pairs.
            members: (point, repetition, run id) of every run.
        """
        with self._database.writing() as connection:
            self._begin(connection, new, points, members, state="running", finished=None)

    def _begin(
        self,
        connection: sa.Connection,
        new: NewCampaign,
        points: Sequence[Sequence[tuple[str, str]]],
        members: Sequence[tuple[int, int, str]],
        **fields: Any,
    ) -> None:
        self._enter(connection, new, started=self.now(), **fields)
        # Who runs it again wants to see it.
        connection.execute(sa.delete(aside).where(aside.c.campaign_id == new.id))
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
        checksums.seal_campaign(connection, new.id)

    def add_member(self, new: NewCampaign, parameters: Sequence[tuple[str, str]], run_id: str) -> None:
        """Adds a run to a campaign that nobody planned: a point for each combination of parameters, a repetition for
        each run. Several machines may add to one campaign at once.

        Args:
            new: the campaign, whose repetitions are counted here.
            parameters: (field, value) pairs of the run's point.
            run_id: of the run.
        """
        now, pairs = self.now(), [list(pair) for pair in parameters]
        # Each reads what the one before it has added.
        with self._database.writing(f"members of {new.id}") as connection:
            of_points = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == new.id)
            numbers = {row.parameters: row.number for row in connection.execute(of_points)}
            number = numbers.get(tuple(parameters), len(numbers))
            of_members = sa.select(*MEMBER).where(membership.c.campaign_id == new.id)
            members = [tuple(row) for row in connection.execute(of_members)]
            checksums.checked_campaign(connection, new.id)
            at = max((member[1] for member in members if member[0] == number), default=-1) + 1
            is_new = all((member[0], member[2]) != (number, run_id) for member in members)
            most = max([member[1] for member in members] + ([at] if is_new else [])) + 1
            self._enter(connection, replace(new, repetitions=most), state="complete", started=now, finished=now)
            connection.execute(sa.delete(aside).where(aside.c.campaign_id == new.id))
            if number == len(numbers):
                connection.execute(sa.insert(point).values(campaign_id=new.id, number=number, parameters=pairs))
            if is_new:
                row = {"campaign_id": new.id, "point": number, "repetition": at, "run_id": run_id}
                connection.execute(sa.insert(membership).values(row))
            checksums.seal_campaign(connection, new.id)

    def _enter(self, connection: sa.Connection, new: NewCampaign, **fields: Any) -> None:
        self._database.upsert(connection, campaign, [{**vars(new), "progress": {}, "checksum": 0, **fields}])

    def set_progress(self, campaign_id: str, progress: ProgressRow) -> None:
        """Records the progress of a running campaign."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(campaign)
                .where(campaign.c.id == campaign_id)
                .values(progress={**progress, "updated": self.now()})
            )

    def set_waiting(self, campaign_ids: Sequence[str]) -> None:
        """Records that running campaigns wait for their turn in a batch whose process is alive."""
        with self._database.writing() as connection:
            for some in batched(campaign_ids):
                statement = sa.update(campaign).where(campaign.c.id.in_(some))
                connection.execute(statement.values(progress={"updated": self.now()}))

    def end_campaign(self, campaign_id: str, complete: bool) -> None:
        """Marks it complete, or incomplete when runs are missing."""
        state = "complete" if complete else "incomplete"
        with self._database.writing() as connection:
            checksums.change_campaign(connection, campaign_id, state=state, finished=self.now(), progress={})

    # Runs ----------------------------------------------------------------------------------------------------

    def staging_folder(self, run_id: str) -> Path:
        """An empty folder in which to assemble one attempt of a run, on the file system of the store."""
        return self._staging.make(run_id)

    def sweep(self) -> None:
        """Removes runs that ended processes left half-assembled, and deleted campaigns whose retention time is over."""
        self._staging.sweep(self._put_back)
        removal.purge(self._database, self._artefacts, self.now())

    def _put_back(self, abandoned: Path) -> None:
        """Restores the files of a run whose replacement was killed between the files and the row."""
        if not abandoned.name.startswith(BEFORE):
            return
        run_id = abandoned.name.removeprefix(BEFORE).rsplit("-", 3)[0]
        # No commit of the run meanwhile.
        with self._database.writing(run_id):
            files = self._database.read(sa.select(file).where(file.c.run_id == run_id), FileRow)
            place = self._artefacts.folder(run_id)
            if damage.differing(place, files) and not damage.differing(abandoned, files):
                shutil.rmtree(place, ignore_errors=True)
                abandoned.rename(place)

    # Archived and deleted --------------------------------------------------------------------------------------

    def would_go(self, campaign_id: str, after: Sequence[str] = ()) -> removal.Removal:
        """What deleting a campaign would delete, once the campaigns `after` are deleted."""
        return removal.would_go(self._database, campaign_id, after)

    def set_aside(self, campaign_id: str, state: removal.State) -> None:
        """Archives or deletes a campaign, which can be restored.

        Raises:
            RemovalError: it is running.
        """
        removal.set_aside(self._database, campaign_id, state)

    def set_run_aside(self, run_id: str, state: removal.State) -> str:
        """Archives or deletes a run of a collection; returns the id of its own campaign, which can be restored.

        Raises:
            RemovalError: a campaign's file asks for the run.
        """
        return removal.set_run_aside(self._database, run_id, state)

    def restore(self, campaign_id: str) -> str:
        """Lists an archived or deleted campaign again, and returns its id; of a run, that of its collection."""
        row = self.campaign(campaign_id)
        removal.restore(self._database, campaign_id)
        if row is None or removal.RUN_OF not in row.overrides:
            return campaign_id
        (of_run,) = row.points
        new = NewCampaign.of(row, id=row.overrides[removal.RUN_OF], overrides={})
        self.add_member(new, of_run.parameters, of_run.members[0].run_id)
        with self._database.writing() as connection:
            connection.execute(sa.delete(campaign).where(campaign.c.id == campaign_id))
        return new.id

    def purge(self, campaign_id: str) -> None:
        """Deletes the runs and files of a deleted campaign at once.

        Raises:
            StoreError: files cannot be removed.
        """
        removal.purge(self._database, self._artefacts, self.now(), [campaign_id])

    def files_of(self, campaign_ids: Sequence[str], what: pruning.Files) -> dict[str, removal.Removal]:
        """What `drop_files` would delete, by campaign."""
        return pruning.files_of(self._database, campaign_ids, what)

    def drop_files(
        self, campaign_ids: Sequence[str], what: pruning.Files, show: Callable[[int], None] = lambda done: None
    ) -> None:
        """Deletes files of runs, whose values stay (pruning.py).

        Raises:
            StoreError: files cannot be removed.
        """
        pruning.drop_files(self._database, self._artefacts, campaign_ids, what, show)

    @property
    def database(self) -> Database:
        """For the modules of the store."""
        return self._database

    def now(self) -> float:
        """Seconds since the UNIX epoch by the database's clock, because the clocks of a team's hosts may differ."""
        return self._database.now()

    @property
    def owner(self) -> str:
        """A token of this open store."""
        return self._staging.owner

    def has_ended(self, owner: str) -> bool:
        """Whether the process that opened the store with this token has ended, as far as can be told from here: the
        locks of other hosts on a team's database cannot be seen.
        """
        return not self._database.is_postgresql and not self._staging.is_alive(owner)

    def commit_run(self, pending: PendingRun, replaces: bool = False) -> bool:
        """Stores a run (commit.commit_runs), whose folder moves into the store. Returns whether it is there now.

        Raises:
            StoreError: the files cannot be stored.
        """
        return commit_runs(self._database, self._artefacts, [pending], replaces)[0]

    def commit_campaign(
        self,
        new: NewCampaign,
        points: Sequence[Sequence[tuple[str, str]]],
        members: Sequence[tuple[int, int, str]],
        pending_runs: Sequence[PendingRun],
    ) -> int:
        """Stores a campaign with its runs, everything or nothing. A campaign that is there keeps its rows.

        Returns:
            Number of valid runs that were committed.

        Raises:
            StoreError: it cannot be stored. The store is unchanged.
        """

        def enter(connection: sa.Connection) -> None:
            state = connection.scalar(sa.select(campaign.c.state).where(campaign.c.id == new.id))
            # The runner of a running campaign sets its state at the end.
            if state == "running":
                return
            planned = {run_id for _, _, run_id in members}
            valid = sa.select(run.c.id).where(run.c.state == "valid")
            stored = {
                id_ for some in batched(sorted(planned)) for id_ in connection.scalars(valid.where(run.c.id.in_(some)))
            }
            fields = {"state": "complete" if stored == planned else "incomplete", "finished": self.now()}
            if state is None:
                self._begin(connection, new, points, members, **fields)
            else:
                # Who imports it again wants to see it, and not to lose it when the time to restore it is over.
                connection.execute(sa.delete(aside).where(aside.c.campaign_id == new.id))
                checksums.change_campaign(connection, new.id, **fields)

        landed = commit_runs(self._database, self._artefacts, pending_runs, also=enter)
        return sum(stored and not pending.problems for pending, stored in zip(pending_runs, landed, strict=True))

    def note_failure(self, run_id: str, number: int, problem: str, folder: Path | None = None) -> None:
        """Records an attempt without a result, and keeps its files in `folder` until the run has a valid result.

        Raises:
            StoreError: the files cannot be stored.
        """
        if folder is not None and folder.exists():
            (folder / REASON).write_text(f"attempt {number}: {problem}\n")
            self._artefacts.put_failed(run_id, folder)
        with self._database.writing() as connection:
            note_attempt(connection, run_id, number, "failed", [problem])

    def run_folder(self, run_id: str, path: str = "") -> Path:
        """A local folder with a run's files, all of them.

        Args:
            run_id: the run.
            path: the only file that is wanted; "": each of them.

        Raises:
            StoreError: they cannot be brought here, or one is missing, cut off or damaged.
        """
        folder = self.folder_of_run(run_id)
        query = sa.select(file).where(file.c.run_id == run_id, *([file.c.path == path] if path else []))
        files = self._database.read(query, FileRow)
        if (reason := damage.first_difference(folder, files)) is not None:
            raise StoreError(f"run {run_id}: {reason}; {REPEAT}; './backchannel verify' checks all runs")
        return folder

    def integrity(self) -> list[str]:
        """What the database says is wrong with itself; empty: nothing. PostgreSQL checks itself."""
        if self._database.is_postgresql:
            return []
        said = self._database.scalars(sa.text("PRAGMA integrity_check"))
        broken = self._database.tuples(sa.text("PRAGMA foreign_key_check"))
        return [
            *(str(line) for line in said if line != "ok"),
            *(f"a row of table {row[0]} refers to a missing row" for row in broken),
        ]

    def folder_of_run(self, run_id: str) -> Path:
        """A local folder with what there is of a run's files.

        Raises:
            StoreError: they cannot be brought here.
        """
        if not self._database.is_postgresql:
            return self._artefacts.folder(run_id)
        # Another machine may have landed it anew since its files were brought here.
        landed = self._database.scalars(sa.select(run.c.landed).where(run.c.id == run_id))
        return self._artefacts.folder(run_id, str(landed[0]) if landed else "0", lambda: self._sizes(run_id))

    def _sizes(self, run_id: str) -> dict[str, int]:
        """Bytes of a run's files, by their paths below its folder."""
        return dict(self._database.tuples(sa.select(file.c.path, file.c.bytes).where(file.c.run_id == run_id)))

    def failed_folder(self, run_id: str) -> str | None:
        """Place of the files (captures, logs, reason.txt) of the last attempt without a result: a path, or a URL below
        that of the artefacts; None without any.

        Raises:
            StoreError: the place does not say.
        """
        return self._artefacts.failed(run_id)

    def writing(self, *locks: str) -> AbstractContextManager[sa.Connection]:
        """A transaction that writes; SQLite has one at a time, and PostgreSQL one with each of these locks."""
        return self._database.writing(*locks)
