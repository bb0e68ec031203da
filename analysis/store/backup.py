"""A complete copy of a results folder, which may be in use: a backup, or a store restored from one.

Rows are those of one moment, by SQLite's backup. A run's folder may be replaced between that moment and its copy. Each
copy is therefore compared with the checksums of its rows, and what differs is taken again with newer rows.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from analysis.store import damage
from analysis.store.artefacts import FAILED, LocalArtefacts
from analysis.store.database import (
    BUSY_S,
    DATABASE,
    StoreDamaged,
    StoreFailed,
    StorePlaceError,
    connect_read_only,
    is_read_only,
)
from analysis.store.location import exists, folder_of, is_url
from analysis.store.rows import FileRow

#: The copy has its database under this name until it is complete.
UNFINISHED = "unfinished.sqlite"


@dataclass(frozen=True)
class Copy:
    """What a copy has."""

    runs: int
    #: By run: why its files could not be copied. They are damaged in the source.
    damaged: dict[str, list[str]]


def copy_store(source: Path | str, target: Path | str) -> Copy:
    """Copies a results folder. After an interruption the same call continues.

    Raises:
        StorePlaceError: one of them is not a folder, the source has no store, or the target has one or cannot be made.
        StoreDamaged: the source's database cannot be read.
        StoreFailed: the source's database is locked for long, or the target cannot be written.
    """
    for where in (source, target):
        if is_url(where):
            raise StorePlaceError(
                "backup copies results folders only; of a PostgreSQL store, copy the database with pg_dump and the "
                "artefacts with the tools of their storage"
            )
    old, new = folder_of(source), folder_of(target)
    if not exists(old):
        raise StorePlaceError(f"no results in {source}")
    if exists(new):
        raise StorePlaceError(f"{target} has results already; name another folder, or move them away")
    try:
        new.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorePlaceError(f"the folder {target} cannot be made: {error.strerror}") from None
    rows: dict[str, Sequence[FileRow]] = {}
    reasons: dict[str, list[str]] = {}
    # The first two copy nearly everything. Files that differ after the third are damaged: nothing is committed then.
    for hold in (nullcontext, nullcontext, lambda: _nothing_lands(old / DATABASE)):
        with hold():
            copied = {run_id: files for run_id, files in rows.items() if run_id not in reasons}
            _copy_database(old / DATABASE, new / UNFINISHED)
            rows = dict(_files(new / UNFINISHED))
            reasons = {
                run_id: why
                for run_id, files in rows.items()
                if copied.get(run_id) != files and (why := _copy_run(run_id, files, old, new))
            }
        if not reasons:
            break
    # They have no rows, and belong to attempts that may be going on.
    for path in (old / FAILED).rglob("*"):
        if not path.is_dir():
            _copy_file(path, new / path.relative_to(old))
    (new / UNFINISHED).rename(new / DATABASE)
    return Copy(len(rows), reasons)


def _copy_database(source: Path, target: Path) -> None:
    connect = connect_read_only if is_read_only(source.parent) else sqlite3.connect
    try:
        with closing(connect(source)) as database, closing(sqlite3.connect(target)) as copy:
            database.backup(copy)
            # Opening the copy must not need files beside it, which a rename would leave behind.
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        # A full disk, say; a damaged file has another error.
        raise StoreFailed(f"{source} cannot be copied to {target}: {error}") from None
    except sqlite3.Error as error:
        raise StoreDamaged(f"{source} cannot be copied to {target}: {error}") from None


@contextmanager
def _nothing_lands(database: Path) -> Iterator[None]:
    """Holds the lock that a commit takes."""
    if is_read_only(database.parent):
        yield
        return
    with closing(sqlite3.connect(database, timeout=BUSY_S, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise StoreFailed(f"{database} cannot be locked: {error}") from None
        yield


def _files(database: Path) -> Iterator[tuple[str, Sequence[FileRow]]]:
    """Runs, each with its files."""
    with closing(sqlite3.connect(database)) as connection:
        runs: dict[str, list[FileRow]] = {run_id: [] for (run_id,) in connection.execute("SELECT id FROM run")}
        for row in connection.execute("SELECT id, run_id, path, bytes, sha256 FROM file ORDER BY id"):
            runs[row[1]].append(FileRow(*row))
    yield from runs.items()


def _copy_run(run_id: str, files: Sequence[FileRow], old: Path, new: Path) -> list[str]:
    """Copies a run's files unless the copy is right. Returns what differs from its rows.

    Raises:
        StoreFailed: the copy cannot be written.
    """
    source, target = LocalArtefacts(old).folder(run_id), LocalArtefacts(new).folder(run_id)
    if damage.differing(target, files):
        shutil.rmtree(target, ignore_errors=True)
        for file in files:
            try:
                _copy_file(source / file.path, target / file.path)
            except OSError as error:
                # Where the source is right, the disk of the copy is the cause. Otherwise the run is damaged.
                if not damage.differing(source, [file]):
                    raise StoreFailed(f"{target} cannot be written: {error.strerror}") from error
    return damage.differing(target, files)


def _copy_file(source: Path, target: Path) -> None:
    """Copies a file that may vanish meanwhile: a run or an attempt that is being replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
