"""Claims: which of several runners that share a store makes a run.

A runner claims runs shortly before it makes them, and releases those that have ended. The claims of a runner that has
ended are free: in a folder at once, by its lock (analysis/store/staging.py), and on PostgreSQL once it has not renewed
them for LAPSES_AFTER_S. A runner that stood still for that long loses its claims. Then a run may be made twice, and the
first result stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from analysis.store.database import batched
from analysis.store.requests import GONE_AFTER_S
from analysis.store.schema import claim
from analysis.store.store import Store

#: A claim that was not renewed for this long is free: its runner is taken for gone.
LAPSES_AFTER_S = GONE_AFTER_S


class Claims:
    """The claims of one runner.

    Args:
        store: that it shares.
        now: seconds since the epoch; None: by the store.
    """

    def __init__(self, store: Store, now: Callable[[], float] | None = None) -> None:
        self._store = store
        self._owner = store.owner
        self._now = store.now if now is None else now
        #: Runs whose claims are to be deleted.
        self._ended: set[str] = set()

    def take(self, run_ids: Sequence[str]) -> set[str]:
        """Claims runs that nobody else holds. Returns those without a valid result: this runner makes them."""
        # PostgreSQL's writers do not wait for each other.
        with self._store.writing("claims") as connection:
            others = self._held(connection, run_ids)
            free = [run_id for run_id in dict.fromkeys(run_ids) if run_id not in others]
            self._delete(connection, free)
            seen = self._now()
            if free:
                rows = [{"run_id": run_id, "owner": self._owner, "seen": seen} for run_id in free]
                connection.execute(sa.insert(claim), rows)
        # A run lands before its claim is released, so that a claim and no result mean that nobody has made it.
        completed = self._store.valid_runs(free)
        self._ended |= completed
        return set(free) - completed

    def end(self, run_id: str) -> None:
        """Gives up the claim on a run that has ended, at the next `renew`."""
        self._ended.add(run_id)

    def renew(self) -> None:
        """Keeps the claims on what has not ended."""
        ended, self._ended = self._ended, set()
        with self._store.writing() as connection:
            self._delete(connection, list(ended), claim.c.owner == self._owner)
            connection.execute(sa.update(claim).where(claim.c.owner == self._owner).values(seen=self._now()))

    def settled(self, run_ids: Sequence[str]) -> tuple[set[str], set[str]]:
        """Of runs at other runners: those that have a valid result now, and those that are free again."""
        # In this order: a run that lands in between is held, and seen the next time.
        with self._store.connect() as connection:
            held = self._held(connection, run_ids)
        completed = self._store.valid_runs(list(run_ids))
        return completed, set(run_ids) - held - completed

    def release(self) -> None:
        """Gives up all claims, and removes those that have lapsed."""
        with self._store.writing() as connection:
            connection.execute(sa.delete(claim).where(sa.or_(claim.c.owner == self._owner, ~self._is_kept())))

    def _delete(self, connection: sa.Connection, run_ids: Sequence[str], *conditions: sa.ColumnElement[bool]) -> None:
        for some in batched(run_ids):
            connection.execute(sa.delete(claim).where(claim.c.run_id.in_(some), *conditions))

    def _held(self, connection: sa.Connection, run_ids: Sequence[str]) -> set[str]:
        of_others = sa.select(claim.c.run_id, claim.c.owner).where(claim.c.owner != self._owner, self._is_kept())
        rows = [
            row
            for some in batched(list(run_ids))
            for row in connection.execute(of_others.where(claim.c.run_id.in_(some)))
        ]
        ended = {owner: self._store.has_ended(owner) for owner in {row.owner for row in rows}}
        return {row.run_id for row in rows if not ended[row.owner]}

    def _is_kept(self) -> sa.ColumnElement[bool]:
        """Whether a claim has not lapsed."""
        # A clock that was set back leaves times in the future.
        now = self._now()
        return claim.c.seen.between(now - LAPSES_AFTER_S, now + LAPSES_AFTER_S)
