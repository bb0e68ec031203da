"""Whether anything in a store has changed, for live pages and caches."""

from __future__ import annotations

import contextlib
from typing import Any

import sqlalchemy as sa

from analysis.store.database import CHANNEL, POSTGRESQL, StoreError
from analysis.store.store import Store


class Pulse:
    """Tells whether anything in the store has changed since it was last asked; costs next to nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection = self._connect()
        self._last: Any = None

    def changed(self) -> bool:
        """True at first, and after any other connection wrote."""
        if self._connection.dialect.name == POSTGRESQL:
            return self._notified()
        # A number that SQLite keeps: it changes when another connection has changed the file.
        now = self._connection.exec_driver_sql("PRAGMA data_version").scalar()
        before, self._last = self._last, now
        return bool(before != now)

    def close(self) -> None:
        """Lets go of the connection."""
        self._connection.close()

    def _connect(self) -> sa.Connection:
        connection = self._store.connect()
        if connection.dialect.name == POSTGRESQL:
            # Outside of any transaction, so that the server tells at once and keeps nothing back for this one's sake.
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        return connection

    def _notified(self) -> bool:
        """Every transaction that writes tells so as it is committed (Store.writing)."""
        try:
            driver: Any = self._connection.connection.driver_connection
            before, self._last = self._last, True
            # All of them are taken in, so that one change is told once.
            return len(list(driver.notifies(timeout=0))) > 0 or before is None
        except Exception:  # noqa: BLE001 (psycopg's own, if it is there; what was missed meanwhile is unknown)
            # As long as the server is away, what was opened last may never have been.
            with contextlib.suppress(sa.exc.SQLAlchemyError, StoreError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = self._connect()
            return True
