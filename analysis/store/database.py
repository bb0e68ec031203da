"""The database behind a store: opening, migrating and writing, for SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Row = TypeVar("Row")
Item = TypeVar("Item")
#: What a column of an inserted row may have: JSON's types.
Value = str | int | float | bool | None | Sequence["Value"]

#: File of an SQLite store in its folder.
DATABASE = "results.sqlite"
POSTGRESQL = "postgresql"
#: PostgreSQL notifies this channel of every transaction that wrote, as it is committed.
CHANNEL = "backchannel"
MIGRATIONS = Path(__file__).with_name("migrations")
#: The table in which Alembic keeps the revision.
ALEMBIC = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
#: How long SQLite waits for another writer, in s.
BUSY_S = 30
#: Ids in one query.
IDS_AT_ONCE = 500


class StoreError(Exception):
    """The store cannot be used; the message is a sentence."""


class StorePlaceError(StoreError):
    """What names the store does not name one that can be used."""


class StoreFailed(StoreError):
    """The database of an open store failed: its disk is full or damaged, say, or its server is away."""


class StoreDamaged(StoreFailed):
    """The file of an SQLite store is damaged."""


class RowDamaged(StoreDamaged):
    """A row is not what was stored.

    Args:
        message: a sentence with what to do.
        run_id: the run that it belongs to; "" where it is not one run.
        reason: what is wrong with it, as a clause; "": the message.
    """

    def __init__(self, message: str, run_id: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.reason = reason or message


class Database:
    """An open database. Its connections raise StoreFailed where the driver reports a failure of operation.

    Args:
        engine: of SQLAlchemy.
        where: its name for people, without a password.
    """

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self.engine = engine
        self.where = where
        self._thread = threading.local()
        sa.event.listen(engine, "handle_error", _of_operation)

    @classmethod
    def open_sqlite(cls, folder: Path, tables: sa.MetaData) -> Database:
        """Opens the file DATABASE in a folder, creating and migrating it as needed.

        Args:
            folder: of the file.
            tables: of a new store.

        Raises:
            StoreDamaged: its file is damaged.
            StoreError: it cannot be opened, or a newer version made it.
        """
        file = folder / DATABASE
        url = sa.URL.create("sqlite", database=str(file))
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_S}, json_deserializer=_json)
        sa.event.listen(engine, "connect", _on_connect)
        database = cls(engine, str(folder))
        try:
            # One process at a time: SQLite does not wait while another switches to WAL, as it does for other locks.
            with (folder / "store.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                database._migrate(tables)
        except StoreDamaged as error:
            raise StoreDamaged(f"the results store {file} cannot be opened: {_cause(error)}") from None
        except (StoreFailed, sa.exc.DatabaseError) as error:
            raise StoreError(f"the results store {file} cannot be opened: {_cause(error)}") from None
        except OSError as error:
            raise StoreError(f"the results store {file} cannot be opened: {error.strerror}") from None
        return database

    @classmethod
    def open_read_only(cls, folder: Path) -> Database:
        """Opens the file DATABASE in a folder that cannot be written, such as a snapshot.

        Raises:
            StoreError: it cannot be read so.
        """
        file = folder / DATABASE
        engine = sa.create_engine("sqlite://", creator=lambda: connect_read_only(file), json_deserializer=_json)
        sa.event.listen(engine, "connect", _on_connect)
        database = cls(engine, str(folder))
        try:
            with engine.connect() as connection:
                is_current = _revision(connection) == revisions_of(MIGRATIONS)[-1]
        except (StoreFailed, sa.exc.DatabaseError) as error:
            raise StoreError(f"the results store {file} cannot be opened: {_cause(error)}") from None
        if not is_current:
            raise StoreError(
                f"the results store {file} was made by another version of Backchannel and cannot be written; copy the "
                "folder to a place that can be written"
            )
        return database

    @classmethod
    def open_postgresql(cls, url: sa.URL, tables: sa.MetaData) -> Database:
        """Opens a PostgreSQL database, migrating it as needed.

        Args:
            url: of the database.
            tables: of a new store.

        Raises:
            StoreError: it cannot be opened, or a newer version made it.
        """
        where = url.render_as_string(hide_password=True)
        database = cls(sa.create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True), where)
        try:
            database._migrate(tables)
        except (StoreFailed, sa.exc.DatabaseError) as error:
            raise StoreError(f"the results store {where} cannot be opened: {_cause(error)}") from None
        return database

    def close(self) -> None:
        """Closes its connections."""
        self.engine.dispose()

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL, and not SQLite."""
        return self.engine.dialect.name == POSTGRESQL

    def now(self) -> float:
        """Seconds since the UNIX epoch by the database's clock; SQLite's is this host's."""
        if not self.is_postgresql:
            return time.time()
        return float(self.scalars(sa.select(sa.extract("epoch", sa.func.clock_timestamp())))[0])

    @contextmanager
    def writing(self, *locks: str) -> Iterator[sa.Connection]:
        """A transaction that writes. SQLite has one at a time; others wait.

        Args:
            locks: names of locks of which PostgreSQL, too, has one transaction at a time, in an order that all share.
        """
        if self.is_postgresql:
            with self.engine.begin() as connection:
                for lock in locks:
                    key = int.from_bytes(hashlib.sha256(lock.encode()).digest()[:8], "big", signed=True)
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
                yield connection
                connection.execute(sa.select(sa.func.pg_notify(CHANNEL, "")))
            return
        with self.engine.connect() as connection:
            # Takes the write lock at once: a transaction that began by reading could not be upgraded.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                # SQLite itself has rolled back if the disk is full.
                with contextlib.suppress(StoreFailed):
                    connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def insert(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Value]]) -> None:
        """Inserts rows that have values for the same columns."""
        if not rows:
            return
        if not self.is_postgresql:
            connection.execute(sa.insert(table), rows)
            return
        # The server would otherwise execute one statement a row, which takes most of a commit.
        columns = [table.c[name] for name in rows[0]]
        table_of_rows = sa.func.json_to_recordset(sa.bindparam("rows", list(rows), sa.JSON)).table_valued(
            *(sa.column(column.name, column.type) for column in columns), name="given"
        )
        query = sa.select(*table_of_rows.render_derived(with_types=True).c)
        connection.execute(sa.insert(table).from_select([column.name for column in columns], query))

    def upsert(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts rows that have values for the same columns, or changes the rows that have their primary keys."""
        statement = (postgresql if self.is_postgresql else sqlite).insert(table)
        keys = [column.name for column in table.primary_key]
        changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), rows)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What this thread reads inside is of one moment, whatever others write meanwhile; `kept` is empty at first."""
        if getattr(self._thread, "connection", None) is not None:
            yield
            return
        with self.engine.connect() as connection:
            if self.is_postgresql:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            else:
                connection.exec_driver_sql("BEGIN")
            self._thread.connection, self._thread.kept = connection, {}
            try:
                yield
            finally:
                self._thread.connection = self._thread.kept = None
                if not self.is_postgresql:
                    # A damaged file may have ended it.
                    with contextlib.suppress(StoreFailed):
                        connection.exec_driver_sql("ROLLBACK")

    @property
    def kept(self) -> dict[Hashable, Any]:
        """What this thread read in the snapshot that it is in, for those who ask again."""
        kept: dict[Hashable, Any] = self._thread.kept
        return kept

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that reads: that of the snapshot, inside one."""
        connection = getattr(self._thread, "connection", None)
        if connection is not None:
            yield connection
            return
        with self.engine.connect() as connection:
            yield connection

    def read(self, query: Any, row: Callable[..., Row]) -> list[Row]:
        """The rows of a query; `row` takes its columns by name."""
        with self.reading() as connection:
            result = connection.execute(query)
            names = tuple(result.keys())
            return [row(**dict(zip(names, values, strict=True))) for values in result]

    def scalars(self, query: Any) -> list[Any]:
        """The first column of a query."""
        with self.reading() as connection:
            return list(connection.scalars(query))

    def tuples(self, query: Any) -> list[tuple[Any, ...]]:
        """The rows of a query as the driver returns them, without JSON columns: fast, for many rows."""
        return [row for rows in self.chunks(query) for row in rows]

    def chunks(self, query: Any, size: int | None = None) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The same by so many rows at a time; all, without a size."""
        with self.reading() as connection:
            cursor = connection.execute(query).cursor
            try:
                while cursor is not None and (rows := cursor.fetchmany(size) if size else cursor.fetchall()):
                    yield rows
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                # SQLAlchemy does not see what the driver raises here.
                raise StoreDamaged(f"the results store failed: {error}") from error

    def _migrate(self, tables: sa.MetaData) -> None:
        revisions = revisions_of(MIGRATIONS)
        with self.engine.connect() as connection:
            if _revision(connection) == revisions[-1]:
                return
            if not self.is_postgresql:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with self.writing("migration") as connection:
            # Another process may have migrated while this one waited.
            now = _revision(connection)
            if now is not None and now not in revisions:
                raise StoreError(f"the results store in {self.where} was made by a newer version of Backchannel")
            if now is None:
                # The declared tables are what the migrations lead to, at a quarter of their time.
                tables.create_all(connection, checkfirst=False)
                ALEMBIC.create(connection)
                connection.execute(sa.insert(ALEMBIC).values(version_num=revisions[-1]))
            else:
                upgrade(connection)


def upgrade(connection: sa.Connection) -> None:
    """Applies the migrations that a database lacks."""
    # Most commands open a store that needs no migration, and importing this takes a tenth of a second.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def is_read_only(folder: Path) -> bool:
    """Whether the file DATABASE in a folder can be read and not written."""
    return not os.access(folder, os.W_OK) and (folder / DATABASE).is_file()


def connect_read_only(file: Path) -> sqlite3.Connection:
    """A connection that makes no files beside the database's.

    Raises:
        StoreError: a program was using the database when it became read-only.
    """
    # SQLite can do without only where nothing changes the file, and then it does not read its log.
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"the results store {file} cannot be written, and a program was using it when it was copied; copy the "
            "folder to a place that can be written"
        )
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def revisions_of(migrations: Path) -> list[str]:
    """Alembic's revisions, the oldest first: the names of their files."""
    return sorted(file.stem for file in migrations.glob("versions/*.py"))


def _revision(connection: sa.Connection) -> str | None:
    """The revision of a database; None of an empty one."""
    if not sa.inspect(connection).has_table(ALEMBIC.name):
        return None
    revision: str | None = connection.scalar(sa.select(ALEMBIC.c.version_num))
    return revision


def _of_operation(context: sa.engine.ExceptionContext) -> StoreFailed | None:
    """SQLAlchemy raises what this returns in place of its own error."""
    error = context.sqlalchemy_exception
    if isinstance(context.original_exception, UnicodeDecodeError):
        # As in _on_connect.
        return StoreDamaged(f"the results store failed: {context.original_exception}")
    # A damaged file is a plain DatabaseError. The other kinds are mistakes in a statement.
    if type(error) is sa.exc.DatabaseError:
        return StoreDamaged(f"the results store failed: {_cause(error)}")
    is_failure = isinstance(error, sa.exc.OperationalError)
    return StoreFailed(f"the results store failed: {_cause(error)}") if is_failure and error else None


def _cause(error: Exception) -> str:
    """What the driver said, in one line."""
    driver = error.__cause__ if isinstance(error, StoreFailed) else getattr(error, "orig", None)
    return " ".join(str(driver or error).split())


def _json(text: str) -> Any:
    """The value of a JSON column."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreDamaged(f"the results store failed: a value in it is not JSON: {error}") from None


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


def _on_connect(connection: Any, _: Any) -> None:
    # SQLAlchemy's own handling of BEGIN for sqlite3 would begin too late; Database.writing issues BEGIN itself.
    connection.isolation_level = None
    # SQLite's own knows ASCII only, so a search for a title would not find its umlauts.
    connection.create_function("lower", 1, _lower, deterministic=True)
    for pragma in ("foreign_keys=ON", "synchronous=NORMAL", "cell_size_check=ON"):
        try:
            connection.execute(f"PRAGMA {pragma}")
        except UnicodeDecodeError as error:
            # Of the driver, about a damaged name in SQLite's message.
            raise sqlite3.DatabaseError(f"its schema is damaged: {error}") from None


def batched(ids: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Parts short enough for one query: SQLite limits the number of parameters."""
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield ids[start : start + IDS_AT_ONCE]
