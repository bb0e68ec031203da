"""Requests: what a person asks for on the site, and the runners that do it.

The site has no rights and runs nothing. It enters a request; `./backchannel runner`, started by somebody with the
rights, takes it up. A campaign under way looks for a cancel whenever it tells its progress, whoever started it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from analysis.store.rows import RequestRow, RunnerRow
from analysis.store.schema import campaign, request, runner
from analysis.store.store import Store

#: A runner that was not seen for so long is gone; it shows itself every SEEN_EVERY_S.
GONE_AFTER_S = 15.0
SEEN_EVERY_S = 3.0
#: A campaign tells its progress every two seconds; one that has told nothing for so long has nobody at it. Its last
#: captures are analysed in silence, so this is long.
SILENT_AFTER_S = 120.0
RUN, CANCEL = "run", "cancel"
WAITING, RUNNING, DONE, FAILED, WITHDRAWN = "waiting", "running", "done", "failed", "withdrawn"


def ask_run(store: Store, file: str, text: str, overrides: Sequence[str] = (), force: bool = False) -> int:
    """Asks for a campaign to be run; `file` is only a name for messages. Gives the request's number."""
    return _enter(store, kind=RUN, file=file, text=text, overrides=list(overrides), force=int(force))


def ask_cancel(store: Store, campaign_id: str) -> int:
    """Asks for a campaign to stop where it is; what has landed stays."""
    return _enter(store, kind=CANCEL, file="", text="", overrides=[], force=0, campaign_id=campaign_id, state=DONE)


def withdraw(store: Store, number: int) -> bool:
    """Takes back a request that still waits; False when it no longer does."""
    with store.writing() as connection:
        changed = connection.execute(
            sa.update(request)
            .where(request.c.id == number, request.c.state == WAITING)
            .values(state=WITHDRAWN, finished=time.time(), message="withdrawn before a runner took it")
        )
        return bool(changed.rowcount)


def take(store: Store, runner_id: str) -> RequestRow | None:
    """The oldest waiting request, which is this runner's from now on; None when nothing waits."""
    oldest = sa.select(request).where(request.c.state == WAITING).order_by(request.c.id).limit(1)
    with store.writing() as connection:
        while True:
            row = connection.execute(oldest).mappings().first()
            if row is None:
                return None
            taken = connection.execute(
                sa.update(request)
                .where(request.c.id == row["id"], request.c.state == WAITING)
                .values(state=RUNNING, taken=time.time(), runner=runner_id)
            )
            # PostgreSQL lets two read the same one; the row itself goes to the first who writes it.
            if taken.rowcount:
                return RequestRow(**row)


def name_campaign(store: Store, number: int, campaign_id: str) -> None:
    """Notes which campaign a request turned out to be."""
    with store.writing() as connection:
        connection.execute(sa.update(request).where(request.c.id == number).values(campaign_id=campaign_id))


def finish(store: Store, number: int, state: str, message: str) -> None:
    """Notes how a request ended: DONE or FAILED, with a sentence."""
    with store.writing() as connection:
        connection.execute(
            sa.update(request).where(request.c.id == number).values(state=state, message=message, finished=time.time())
        )


def stop_wanted(store: Store, campaign_ids: Sequence[str]) -> bool:
    """Whether a cancel of one of these campaigns was asked for since it last began."""
    query = (
        sa.select(request.c.id)
        .join(campaign, campaign.c.id == request.c.campaign_id)
        .where(request.c.kind == CANCEL, request.c.campaign_id.in_(campaign_ids), request.c.asked >= campaign.c.started)
        .limit(1)
    )
    return bool(store.scalars(query))


def recent(store: Store, limit: int = 20, campaign_id: str | None = None) -> list[RequestRow]:
    """Requests to run, newest first, without their texts; with `campaign_id`, that campaign's."""
    columns = [column for column in request.c if column.name != "text"]
    query = sa.select(*columns).where(request.c.kind == RUN).order_by(request.c.id.desc()).limit(limit)
    if campaign_id is not None:
        query = query.where(request.c.campaign_id == campaign_id)
    return store.read(query, RequestRow)


def find(store: Store, number: int) -> RequestRow | None:
    """One request, with its text."""
    rows = store.read(sa.select(request).where(request.c.id == number, request.c.kind == RUN), RequestRow)
    return rows[0] if rows else None


def waiting(store: Store) -> int:
    """How many requests wait."""
    return int(store.scalars(sa.select(sa.func.count(request.c.id)).where(request.c.state == WAITING))[0])


def show_runner(store: Store, runner_id: str, started: float, lacks: Sequence[str]) -> None:
    """A runner says that it is there."""
    now = time.time()
    with store.writing() as connection:
        known = connection.execute(
            sa.update(runner).where(runner.c.id == runner_id).values(seen=now, lacks=list(lacks))
        )
        if not known.rowcount:
            connection.execute(sa.insert(runner).values(id=runner_id, started=started, seen=now, lacks=list(lacks)))


def remove_runner(store: Store, runner_id: str) -> None:
    """A runner leaves."""
    with store.writing() as connection:
        connection.execute(sa.delete(runner).where(runner.c.id == runner_id))


def runners(store: Store) -> list[RunnerRow]:
    """Runners that are there."""
    query = sa.select(runner).where(runner.c.seen > time.time() - GONE_AFTER_S).order_by(runner.c.started)
    return store.read(query, RunnerRow)


def release_lost(store: Store) -> int:
    """Fails requests whose runner is gone, and marks campaigns that nobody is at any more; gives how many of both. Such
    a campaign is resumed by asking again.
    """
    live_runners = sa.select(runner.c.id).where(runner.c.seen > time.time() - GONE_AFTER_S)
    lost = sa.and_(request.c.state == RUNNING, request.c.runner.not_in(live_runners))
    with store.connect() as connection:
        running = connection.execute(
            sa.select(campaign.c.id, campaign.c.progress).where(campaign.c.state == "running")
        ).all()
    # A campaign that waits for its turn in a batch has no progress yet.
    silent = [id_ for id_, progress in running if 0 < progress.get("updated", 0) < time.time() - SILENT_AFTER_S]
    if not silent and not store.scalars(sa.select(request.c.id).where(lost)):
        return 0
    with store.writing() as connection:
        campaigns = list(connection.scalars(sa.select(request.c.campaign_id).where(lost)))
        changed = connection.execute(
            sa.update(request)
            .where(lost)
            .values(state=FAILED, finished=time.time(), message="its runner went away; resume the campaign to go on")
        )
        connection.execute(
            sa.update(campaign)
            .where(
                campaign.c.id.in_([*silent, *(campaign for campaign in campaigns if campaign)]),
                campaign.c.state == "running",
            )
            .values(state="incomplete", finished=time.time(), progress={})
        )
        return int(changed.rowcount) + len(silent)


def _enter(store: Store, **fields: Any) -> int:
    row = {"campaign_id": None, "state": WAITING, "message": "", "asked": time.time(), **fields}
    with store.writing() as connection:
        done = connection.execute(sa.insert(request).values(row))
        key: Any = done.inserted_primary_key
        return int(key[0])
