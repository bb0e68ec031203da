"""Where a store is: a results folder, or a PostgreSQL server with a folder of this machine beside it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from analysis.store.artefacts import ArtefactError, Artefacts, LocalArtefacts, RemoteArtefacts
from analysis.store.database import DATABASE, POSTGRESQL, Database, StorePlaceError, is_read_only
from analysis.store.schema import metadata
from testbed.errors import TestbedError
from testbed.local_folders import shared_parent_folder


@dataclass(frozen=True)
class Location:
    """An open store's parts."""

    database: Database
    #: On this machine: everything, or with PostgreSQL only runs that are being assembled and copies of files.
    folder: Path
    artefacts: Artefacts


def is_url(where: Path | str) -> bool:
    """Whether a store is named by a URL, and not by a folder."""
    return isinstance(where, str) and "://" in where


def folder_of(where: Path | str) -> Path:
    """The folder of a store that is none of PostgreSQL. It need not exist.

    Raises:
        StorePlaceError: there can be no such folder.
    """
    folder = Path(where)
    try:
        str(where).encode()
        if folder.exists() and not folder.is_dir():
            raise StorePlaceError(f"results need a folder, but {where} is a file")
    except UnicodeEncodeError:
        raise StorePlaceError(f"the name of a results folder is a UTF-8 text, which {str(where)!r} is not") from None
    except OSError as error:
        raise StorePlaceError(f"the results folder {where} cannot be used: {error.strerror}") from None
    return folder


def exists(where: Path | str) -> bool:
    """Whether a folder has a store; what a URL names is known when it is opened.

    Raises:
        StorePlaceError: there can be no such folder.
    """
    return is_url(where) or (folder_of(where) / DATABASE).is_file()


def shown(where: Path | str) -> str:
    """A store's name for people, without a password."""
    if not is_url(where):
        return str(where)
    try:
        return sa.make_url(str(where)).render_as_string(hide_password=True)
    except (sa.exc.ArgumentError, ValueError):
        return str(where)


def open_folder(folder: Path) -> Location:
    """Opens a results folder, creating and migrating it as needed. One that cannot be written is opened for reading.

    Raises:
        StorePlaceError: the place cannot be used.
        StoreError: its database cannot be opened, or a newer version made it.
    """
    if is_read_only(folder):
        return Location(Database.open_read_only(folder), folder, LocalArtefacts(folder))
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        (folder / "incoming").mkdir(exist_ok=True)
    except OSError as error:
        raise StorePlaceError(f"the results folder {folder} cannot be used: {error.strerror}") from None
    return Location(Database.open_sqlite(folder, metadata), folder, LocalArtefacts(folder))


def open_postgresql(where: str, artefacts: str) -> Location:
    """Opens a PostgreSQL store, migrating it as needed.

    Raises:
        StorePlaceError: the place cannot be used.
        StoreError: its database cannot be opened, or a newer version made it.
    """
    try:
        url = sa.make_url(where)
    except (sa.exc.ArgumentError, ValueError):
        raise StorePlaceError("a PostgreSQL store is named like postgresql://user@host/database") from None
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() != POSTGRESQL:
        raise StorePlaceError(f"{shown} is not a store; allowed: a results folder, or postgresql://user@host/database")
    if not artefacts:
        raise StorePlaceError(
            f"the store {shown} needs a place for captures and tables: --artefacts URL, or $BACKCHANNEL_ARTEFACTS "
            "(a folder that every machine sees, s3://bucket/path, sftp://host/path, ...)"
        )
    try:
        local = Path(os.environ.get("BACKCHANNEL_LOCAL") or shared_parent_folder())
    except TestbedError as error:
        raise StorePlaceError(str(error)) from None
    # One for each store.
    folder = local / hashlib.sha256(f"{shown} {artefacts}".encode()).hexdigest()[:16]
    try:
        (folder / "incoming").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorePlaceError(f"the folder {folder} of this machine cannot be used: {error.strerror}") from None
    try:
        files = RemoteArtefacts(artefacts, folder / "cache")
    except ArtefactError as error:
        raise StorePlaceError(str(error)) from None
    return Location(Database.open_postgresql(url, metadata), folder, files)
