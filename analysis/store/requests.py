"""Requests from the site, and the runners that execute them.

The site has no privileges and runs nothing. It stores a request; `./backchannel serve runner`, started by a user with
the needed rights, executes it. Every running campaign checks for a cancel each time it writes its progress.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from analysis.store import checksums
from analysis.store.database import RowDamaged
from analysis.store.rows import RequestRow, RunnerRow
from analysis.store.schema import campaign, request, runner
from analysis.store.store import Store

#: A runner is gone if it has not updated its row for this long. It updates it every SEEN_EVERY_S.
GONE_AFTER_S = 15.0
SEEN_EVERY_S = 3.0
#: A campaign writes its progress every two seconds, also while it waits for its turn in a batch. If it has written
#: none for this long, its process is gone. The limit is long because the last captures are analysed without a progress
#: report.
SILENT_AFTER_S = 120.0
RUN, CANCEL = "run", "cancel"
WAITING, RUNNING, DONE, FAILED, WITHDRAWN = "waiting", "running", "done", "failed", "withdrawn"


def ask_run(store: Store, file: str, text: str, overrides: Sequence[str] = (), force: bool = False) -> int:
    """Requests a campaign. `file` is only a name for messages. Returns the request's number."""
    return _enter(store, kind=RUN, file=file, text=text, overrides=list(overrides), force=int(force))


def ask_cancel(store: Store, campaign_id: str) -> int:
    """Requests that a campaign stops. Runs that have landed stay."""
    return _enter(store, kind=CANCEL, file="", text="", overrides=[], force=0, campaign_id=campaign_id, state=DONE)


def withdraw(store: Store, number: int) -> bool:
    """Withdraws a waiting request. Returns False if it no longer waits."""
    with store.writing() as connection:
        changed = connection.execute(
            sa.update(request)
            .where(request.c.id == number, request.c.state == WAITING)
            .values(state=WITHDRAWN, finished=store.now(), message="withdrawn before a runner took it")
        )
        return bool(changed.rowcount)


def take(store: Store, runner_id: str) -> RequestRow | None:
    """Assigns the oldest waiting request to this runner and returns it; None if none waits."""
    oldest = sa.select(request).where(request.c.state == WAITING).order_by(request.c.id).limit(1)
    with store.writing() as connection:
        while True:
            row = connection.execute(oldest).mappings().first()
            if row is None:
                return None
            taken = connection.execute(
                sa.update(request)
                .where(request.c.id == row["id"], request.c.state == WAITING)
                .values(state=RUNNING, taken=store.now(), runner=runner_id)
            )
            # On PostgreSQL two runners can read the same request. The first to update the row gets it.
            if taken.rowcount:
                return RequestRow(**row)


def name_campaign(store: Store, number: int, campaign_id: str) -> None:
    """Stores the id of a request's campaign."""
    with store.writing() as connection:
        connection.execute(sa.update(request).where(request.c.id == number).values(campaign_id=campaign_id))


def finish(store: Store, number: int, state: str, message: str) -> None:
    """Stores a request's outcome: DONE or FAILED, with a sentence."""
    with store.writing() as connection:
        connection.execute(
            sa.update(request).where(request.c.id == number).values(state=state, message=message, finished=store.now())
        )


def stop_wanted(store: Store, campaign_ids: Sequence[str]) -> bool:
    """Whether a cancel of one of these campaigns was requested since it last started."""
    query = (
        sa.select(request.c.id)
        .join(campaign, campaign.c.id == request.c.campaign_id)
        .where(request.c.kind == CANCEL, request.c.campaign_id.in_(campaign_ids), request.c.asked >= campaign.c.started)
        .limit(1)
    )
    return bool(store.scalars(query))


def recent(store: Store, limit: int, campaign_id: str | None = None) -> list[RequestRow]:
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
    """Creates or updates a runner's row."""
    row = {"id": runner_id, "started": started, "seen": store.now(), "lacks": list(lacks)}
    with store.writing() as connection:
        store.database.upsert(connection, runner, [row])


def remove_runner(store: Store, runner_id: str) -> None:
    """Removes a runner's row."""
    with store.writing() as connection:
        connection.execute(sa.delete(runner).where(runner.c.id == runner_id))


def runners(store: Store) -> list[RunnerRow]:
    """Runners that are alive."""
    query = sa.select(runner).where(_is_alive(store)).order_by(runner.c.started)
    return store.read(query, RunnerRow)


def release_lost(store: Store) -> int:
    """Fails requests whose runner is gone and marks campaigns without a process as incomplete. Returns the number of
    both. A new request resumes such a campaign.
    """
    live_runners = sa.select(runner.c.id).where(_is_alive(store))
    lost = sa.and_(request.c.state == RUNNING, request.c.runner.not_in(live_runners))
    with store.connect() as connection:
        running = connection.execute(
            sa.select(campaign.c.id, campaign.c.progress, campaign.c.started).where(campaign.c.state == "running")
        ).all()
    # A process that was killed at once has written none.
    now = store.now()
    silent = [id_ for id_, progress, started in running if abs(progress.get("updated", started) - now) > SILENT_AFTER_S]
    if not silent and not store.scalars(sa.select(request.c.id).where(lost)):
        return 0
    with store.writing() as connection:
        campaigns = list(connection.scalars(sa.select(request.c.campaign_id).where(lost)))
        changed = connection.execute(
            sa.update(request)
            .where(lost)
            .values(state=FAILED, finished=store.now(), message="its runner ended; resume the campaign to continue")
        )
        lost_ids = {id_ for id_, *_ in running} & {*silent, *campaigns}
        for campaign_id in sorted(lost_ids):
            # A damaged one must not keep the others.
            with contextlib.suppress(RowDamaged):
                checksums.change_campaign(
                    connection, campaign_id, state="incomplete", finished=store.now(), progress={}
                )
        return int(changed.rowcount) + len(silent)


def _is_alive(store: Store) -> sa.ColumnElement[bool]:
    # A clock that was set back leaves times in the future. Whoever lives soon writes another.
    now = store.now()
    return sa.and_(runner.c.seen > now - GONE_AFTER_S, runner.c.seen < now + GONE_AFTER_S)


def _enter(store: Store, **fields: Any) -> int:
    row = {"campaign_id": None, "state": WAITING, "message": "", "asked": store.now(), **fields}
    with store.writing() as connection:
        done = connection.execute(sa.insert(request).values(row))
        key: Any = done.inserted_primary_key
        return int(key[0])
