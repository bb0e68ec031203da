"""Whether a run's files are those that were stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from analysis.store.rows import FileRow


def differing(folder: Path, files: Iterable[FileRow]) -> list[str]:
    """Clauses on the files of a run that are missing or differ from their checksums."""
    return [reason for file in files if (reason := _difference(folder, file, digest))]


def first_difference(folder: Path, files: Iterable[FileRow]) -> str | None:
    """A clause on the first file of a run that readers would take for another; None: there is none.

    A file is read once in a process, unless it changes. A compressed one has a checksum of its own.
    """
    for file in files:
        check = None if file.path.endswith(".gz") else _digest_kept
        if (reason := _difference(folder, file, check)) is not None:
            return reason
    return None


def _difference(folder: Path, file: FileRow, digest_of: Callable[[Path], str] | None) -> str | None:
    try:
        actual = (folder / file.path).stat().st_size
    except OSError as error:
        return f"{file.path} is missing ({error.strerror})"
    if actual != file.bytes:
        return f"{file.path} has {actual} bytes, but had {file.bytes} when the run was stored"
    try:
        if digest_of is not None and digest_of(folder / file.path) != file.sha256:
            return f"{file.path} differs from its checksum"
    except OSError as error:
        # A sector of the disk, say. One file must not end a look at all runs.
        return f"{file.path} cannot be read ({error.strerror})"
    return None


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_kept(path: Path) -> str:
    state = path.stat()
    return _digest_of(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=10_000)
def _digest_of(path: Path, *_state: int) -> str:
    return digest(path)
