"""Whether anything in a store has changed, for live pages and caches."""

from __future__ import annotations

import contextlib
from typing import Any

import sqlalchemy as sa

from analysis.store.database import CHANNEL, POSTGRESQL, StoreError
from analysis.store.store import Store


class Pulse:
    """Detects changes of the store since the last call, at the cost of one small read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection = self._connect()
        self._last: Any = None

    def changed(self) -> bool:
        """True on the first call, and after another connection has written."""
        if self._connection.dialect.name == POSTGRESQL:
            return self._notified()
        # SQLite's counter of changes that other connections made to the file.
        now = self._connection.exec_driver_sql("PRAGMA data_version").scalar()
        before, self._last = self._last, now
        return bool(before != now)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _connect(self) -> sa.Connection:
        connection = self._store.connect()
        if connection.dialect.name == POSTGRESQL:
            # Outside any transaction, so that the server sends notifications at once.
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        return connection

    def _notified(self) -> bool:
        """Listens for the notification that every writing transaction sends at its commit (Store.writing)."""
        try:
            driver: Any = self._connection.connection.driver_connection
            before, self._last = self._last, True
            # Reads all pending notifications, so that a change is reported once.
            return len(list(driver.notifies(timeout=0))) > 0 or before is None
        except Exception:  # noqa: BLE001 (psycopg's own, if it is there; what was missed meanwhile is unknown)
            # While the server is unreachable, the last connection may never have been opened.
            with contextlib.suppress(sa.exc.SQLAlchemyError, StoreError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = self._connect()
            return True
