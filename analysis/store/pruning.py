"""Deletes files of runs whose values stay, and rows of screened runs. Whole campaigns are deleted by removal.py.

Rows go before files, a transaction for each batch of runs, so that a store whose prune was killed has no row of a file
that is gone. Files without rows are ignored; the same command deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import sqlalchemy as sa

from analysis.store import checksums
from analysis.store.artefacts import Artefacts
from analysis.store.database import Database, batched
from analysis.store.removal import Removal
from analysis.store.rows import ScreenedRow
from analysis.store.schema import campaign, claim, file, membership, note, run, screened

#: What of a run's files: those that tcpdump or a simulated capture wrote, or each of them.
Files = Literal["captures", "files"]
CAPTURES = "captures/"
#: Runs whose rows go in one transaction, and whose files after it.
TOGETHER = 50
#: Screened runs that are read at a time.
ROWS = 5000


def files_of(database: Database, campaign_ids: Sequence[str], what: Files) -> dict[str, Removal]:
    """What `drop_files` would delete, by campaign. A run of several campaigns counts in the first one."""
    removals = {}
    for number, campaign_id in enumerate(campaign_ids):
        free = _free(campaign_ids).where(membership.c.campaign_id == campaign_id)
        earlier = sa.select(membership.c.run_id).where(membership.c.campaign_id.in_(campaign_ids[:number]))
        of_runs = sa.select(sa.func.count(file.c.run_id.distinct()), sa.func.sum(file.c.bytes))
        if number:
            of_runs = of_runs.where(file.c.run_id.not_in(earlier))
        ((runs, size),) = database.tuples(of_runs.where(file.c.run_id.in_(free), *_of(what)))
        mine = sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)
        stored = sa.select(sa.func.count(file.c.run_id.distinct())).where(file.c.run_id.in_(mine), *_of(what))
        removals[campaign_id] = Removal(runs, int(size or 0), database.scalars(stored)[0] - runs)
    return removals


def drop_files(
    database: Database,
    artefacts: Artefacts,
    campaign_ids: Sequence[str],
    what: Files,
    show: Callable[[int], None] = lambda done: None,
) -> None:
    """Deletes files of the campaigns' runs. Values, scenarios and manifests stay in the database.

    A run that another campaign has, or that a runner has claimed, keeps its files.

    Args:
        database: of the store.
        artefacts: of the store.
        campaign_ids: whose runs.
        what: of the files.
        show: called with the number of runs so far.

    Raises:
        StoreError: files cannot be removed.
    """
    free = database.scalars(_free(campaign_ids).order_by(membership.c.run_id).distinct())
    for start in range(0, len(free), TOGETHER):
        some = free[start : start + TOGETHER]
        # A commit of the same run waits.
        with database.writing(*some) as connection:
            still = {str(id_) for id_ in connection.scalars(_free(campaign_ids).where(membership.c.run_id.in_(some)))}
            if still:
                connection.execute(sa.delete(file).where(file.c.run_id.in_(still), *_of(what)))
                _seal_files(connection, sorted(still))
        for run_id in sorted(still):
            artefacts.remove(run_id, CAPTURES if what == "captures" else "")
        show(start + len(some))


def _free(campaign_ids: Sequence[str]) -> sa.Select[tuple[str]]:
    """Ids of the campaigns' runs that no other campaign has and nobody makes."""
    running = sa.select(campaign.c.id).where(campaign.c.state == "running")
    others = sa.select(membership.c.run_id).where(
        membership.c.campaign_id.not_in(campaign_ids) | membership.c.campaign_id.in_(running)
    )
    return sa.select(membership.c.run_id).where(
        membership.c.campaign_id.in_(campaign_ids),
        membership.c.run_id.not_in(others),
        membership.c.run_id.not_in(sa.select(claim.c.run_id)),
    )


def _of(what: Files) -> list[sa.ColumnElement[bool]]:
    return [file.c.path.startswith(CAPTURES, autoescape=True)] if what == "captures" else []


def _seal_files(connection: sa.Connection, run_ids: Sequence[str]) -> None:
    """Writes the checksums of runs whose list of files has changed, but not of a damaged run: it would hide that."""
    sums = checksums.sums(connection.execute(sa.select(*checksums.OF_FILE).where(file.c.run_id.in_(run_ids))))
    query = sa.select(run.c.id, *checksums.OF_RUN, run.c.checksum).where(run.c.id.in_(run_ids))
    for run_id, *values, checksum in connection.execute(query).all():
        if checksums.of_run(run_id, values) == checksum:
            files_sum = sums.get(run_id, 0)
            written = {"files_sum": files_sum, "checksum": checksums.of_run(run_id, [*values[:-1], files_sum])}
            connection.execute(sa.update(run).where(run.c.id == run_id).values(written))


# References --------------------------------------------------------------------------------------------------


def with_notes(database: Database) -> set[str]:
    """Ids of campaigns with a run that somebody wrote about."""
    query = sa.select(membership.c.campaign_id).join(note, note.c.run_id == membership.c.run_id)
    return set(database.scalars(query.distinct()))


def is_from_bundle(database: Database, campaign_id: str) -> bool:
    """Whether a campaign has a run that came in a bundle without captures."""
    query = sa.select(run.c.id).join(membership, membership.c.run_id == run.c.id)
    came = run.c.manifest["values_from_bundle"].as_boolean()
    return bool(database.scalars(query.where(membership.c.campaign_id == campaign_id, came).limit(1)))


# Screened runs -----------------------------------------------------------------------------------------------


def screened_rows(database: Database) -> Iterator[list[ScreenedRow]]:
    """All screened runs, in parts, by id; unchecked."""
    last = ""
    while True:
        query = sa.select(screened.c.run_id, screened.c.metrics, screened.c.problems).where(screened.c.run_id > last)
        rows = [ScreenedRow(*row) for row in database.tuples(query.order_by(screened.c.run_id).limit(ROWS))]
        if not rows:
            return
        yield rows
        last = rows[-1].run_id


def drop_screened(database: Database, run_ids: Sequence[str]) -> None:
    """Deletes rows of screened runs in one transaction."""
    with database.writing() as connection:
        for some in batched(run_ids):
            connection.execute(sa.delete(screened).where(screened.c.run_id.in_(some)))


def count_screened(database: Database) -> tuple[int, int]:
    """Screened runs, and the characters of their values."""
    size = sa.func.sum(sa.func.length(screened.c.metrics) + sa.func.length(screened.c.problems))
    ((number, characters),) = database.tuples(sa.select(sa.func.count(), size).select_from(screened))
    return number, int(characters or 0)


def compact(database: Database) -> None:
    """Gives free pages back to the disk: of SQLite, whose file never shrinks by itself. PostgreSQL does so.

    Raises:
        StoreError: another program uses the store, or the disk has no room for a copy of it.
    """
    if database.is_postgresql:
        return
    with database.engine.connect() as connection:
        connection.exec_driver_sql("VACUUM")
        # Until then the new file is in the log.
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
