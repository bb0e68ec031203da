"""Claims: which of several runners that share a store makes a run.

A runner claims runs shortly before it makes them, and releases those that have ended. The claims of a runner that has
ended are free: in a folder at once, by its lock (analysis/store/incoming.py), and on PostgreSQL once it has not renewed
them for LAPSES_AFTER_S. A runner that stood still for that long loses its claims. Then a run may be made twice, and the
first result stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

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

    def take(self, run_ids: Sequence[str]) -> set[str]:
        """Claims runs that nobody else holds, and returns those that are this runner's now."""
        # PostgreSQL's writers do not wait for each other.
        with self._store.writing("claims") as connection:
            others = self._held(connection, run_ids)
            mine = [run_id for run_id in dict.fromkeys(run_ids) if run_id not in others]
            for some in batched(mine):
                connection.execute(sa.delete(claim).where(claim.c.run_id.in_(some)))
            seen = self._now()
            if mine:
                rows = [{"run_id": run_id, "owner": self._owner, "seen": seen} for run_id in mine]
                connection.execute(sa.insert(claim), rows)
        return set(mine)

    def held(self, run_ids: Sequence[str]) -> set[str]:
        """Those that other runners hold."""
        with self._store.connect() as connection:
            return self._held(connection, run_ids)

    def renew(self, ended: Collection[str] = ()) -> None:
        """Keeps the claims, but for runs that have ended."""
        with self._store.writing() as connection:
            for some in batched(list(ended)):
                connection.execute(sa.delete(claim).where(claim.c.run_id.in_(some), claim.c.owner == self._owner))
            connection.execute(sa.update(claim).where(claim.c.owner == self._owner).values(seen=self._now()))

    def release(self) -> None:
        """Gives up all claims, and removes those that have lapsed."""
        now = self._now()
        lapsed = ~claim.c.seen.between(now - LAPSES_AFTER_S, now + LAPSES_AFTER_S)
        with self._store.writing() as connection:
            connection.execute(sa.delete(claim).where(sa.or_(claim.c.owner == self._owner, lapsed)))

    def _held(self, connection: sa.Connection, run_ids: Sequence[str]) -> set[str]:
        now = self._now()
        rows = [
            row
            for some in batched(list(run_ids))
            for row in connection.execute(
                sa.select(claim.c.run_id, claim.c.owner).where(
                    claim.c.run_id.in_(some),
                    claim.c.owner != self._owner,
                    # A clock that was set back leaves times in the future.
                    claim.c.seen.between(now - LAPSES_AFTER_S, now + LAPSES_AFTER_S),
                )
            )
        ]
        ended = {owner: self._store.has_ended(owner) for owner in {row.owner for row in rows}}
        return {row.run_id for row in rows if not ended[row.owner]}
