"""Archived and deleted campaigns, and runs that are deleted from a collection.

An archived campaign is in no list, and everything else about it stays. A deleted one can be restored for UNDO_S; then
its runs go with their files, unless another campaign has them. Files go before rows: what a crash leaves is deleted by
the next sweep. A run of a collection (imports, sessions) is archived or deleted as a campaign of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from analysis.errors import AnalysisError
from analysis.store import checksums
from analysis.store.artefacts import Artefacts
from analysis.store.database import Database
from analysis.store.schema import (
    aside,
    attempt,
    campaign,
    claim,
    file,
    membership,
    metric,
    note,
    point,
    replaced,
    request,
    run,
)

#: How long a deleted campaign can be restored, in s.
UNDO_S = 24 * 3600.0
#: The override of a deleted run's own campaign that names the collection.
RUN_OF = "run of"

State = Literal["archived", "deleted"]


class RemovalError(AnalysisError):
    """It cannot be deleted, archived or restored; the message is a sentence."""


@dataclass(frozen=True)
class Removal:
    """What goes if a campaign is deleted."""

    #: Runs in the store that no other campaign has, and what their files take.
    runs: int
    bytes: int
    #: Runs that stay, because other campaigns have them.
    shared: int


def would_go(database: Database, campaign_id: str, after: Sequence[str] = ()) -> Removal:
    """What deleting a campaign would delete, once the campaigns `after` are deleted."""
    gone = [campaign_id, *after]
    mine = sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)
    others = sa.select(membership.c.run_id).where(membership.c.campaign_id.not_in(gone))
    stored = sa.select(sa.func.count(run.c.id)).where(run.c.id.in_(mine))
    (total,) = database.scalars(stored)
    (alone,) = database.scalars(stored.where(run.c.id.not_in(others)))
    sizes = sa.select(sa.func.sum(file.c.bytes)).where(file.c.run_id.in_(mine), file.c.run_id.not_in(others))
    return Removal(alone, int(database.scalars(sizes)[0] or 0), total - alone)


def set_aside(database: Database, campaign_id: str, state: State) -> None:
    """Archives or deletes a campaign.

    Raises:
        RemovalError: it is running.
    """
    with database.writing() as connection:
        of_campaign = sa.select(campaign.c.state).where(campaign.c.id == campaign_id)
        if connection.scalar(of_campaign) == "running":
            raise RemovalError("this campaign is running: cancel it first")
        connection.execute(sa.delete(aside).where(aside.c.campaign_id == campaign_id))
        connection.execute(sa.insert(aside).values(campaign_id=campaign_id, state=state, since=time.time()))


def set_run_aside(database: Database, run_id: str, state: State) -> str:
    """Takes a run out of its collections and archives or deletes it as a campaign of its own, whose id it returns.

    Raises:
        RemovalError: a campaign's file asks for the run.
    """
    with database.writing(run_id) as connection:
        places = connection.execute(
            sa.select(campaign, membership.c.point, point.c.parameters)
            .join(membership, membership.c.campaign_id == campaign.c.id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id == run_id)
        ).all()
        planned = [place.name for place in places if place.text]
        if planned or not places:
            raise RemovalError(
                f"campaign {planned[0]} asks for this run: delete the campaign, or repeat the run with "
                f"'run FILE --force --only {run_id[:12]}'"
                if planned
                else "no collection has this run"
            )
        for place in places:
            checksums.checked_campaign(connection, place.id)
        collection = places[0]
        own = f"{collection.id[:8]}-{run_id[:12]}"
        columns = {column.name: getattr(collection, column.name) for column in campaign.c}
        connection.execute(
            sa.insert(campaign).values(columns | {"id": own, "overrides": {RUN_OF: collection.id}, "repetitions": 1})
        )
        pairs = [list(pair) for pair in collection.parameters]
        connection.execute(sa.insert(point).values(campaign_id=own, number=0, parameters=pairs))
        connection.execute(sa.delete(membership).where(membership.c.run_id == run_id))
        connection.execute(sa.insert(membership).values(campaign_id=own, point=0, repetition=0, run_id=run_id))
        for place in places:
            # A collection is there as long as it has runs.
            left = sa.select(membership.c.run_id).where(membership.c.campaign_id == place.id)
            if connection.execute(left).first() is None:
                connection.execute(sa.delete(campaign).where(campaign.c.id == place.id))
        for campaign_id in (own, *(place.id for place in places)):
            checksums.seal_campaign(connection, campaign_id)
    set_aside(database, own, state)
    return own


def restore(database: Database, campaign_id: str) -> None:
    """Lists a campaign again. A run goes back to its collection by `Store.restore`."""
    with database.writing() as connection:
        connection.execute(sa.delete(aside).where(aside.c.campaign_id == campaign_id))


def purge(database: Database, artefacts: Artefacts, now: float, only: Sequence[str] | None = None) -> int:
    """Deletes the runs and files of campaigns that were deleted longer ago than UNDO_S; returns how many campaigns.

    Args:
        database: of the store.
        artefacts: of the store.
        now: seconds since the epoch.
        only: ids of deleted campaigns that go at once; None: those whose time is over.

    Raises:
        StoreError: files cannot be removed.
    """
    condition = aside.c.campaign_id.in_(only) if only is not None else aside.c.since < now - UNDO_S
    gone = database.scalars(sa.select(aside.c.campaign_id).where(aside.c.state == "deleted", condition))
    for campaign_id in gone:
        members = sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)
        for run_id in dict.fromkeys(database.scalars(members)):
            _purge_run(database, artefacts, campaign_id, run_id)
        with database.writing() as connection:
            if _is_deleted(connection, campaign_id):
                connection.execute(sa.delete(request).where(request.c.campaign_id == campaign_id))
                connection.execute(sa.delete(campaign).where(campaign.c.id == campaign_id))
    return len(gone)


def _purge_run(database: Database, artefacts: Artefacts, campaign_id: str, run_id: str) -> None:
    # A commit of the same run waits.
    with database.writing(run_id) as connection:
        others = sa.select(membership.c.run_id).where(
            membership.c.run_id == run_id, membership.c.campaign_id != campaign_id
        )
        if not _is_deleted(connection, campaign_id) or connection.execute(others).first() is not None:
            return
        artefacts.remove(run_id)
        artefacts.remove_failed(run_id)
        for table in (metric, file, attempt, replaced, claim, note):
            connection.execute(sa.delete(table).where(table.c.run_id == run_id))
        connection.execute(sa.delete(run).where(run.c.id == run_id))


def _is_deleted(connection: sa.Connection, campaign_id: str) -> bool:
    """Whether it was not restored, or run again, meanwhile."""
    query = sa.select(aside.c.state).where(aside.c.campaign_id == campaign_id)
    return connection.scalar(query) == "deleted"
