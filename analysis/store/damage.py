"""Whether a run's files are those that were stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from analysis.store.rows import FileRow


def absent(folder: Path, sizes: Mapping[str, int]) -> str | None:
    """The first file of a run that is missing or has another size, as a clause; None: all are there.

    Args:
        folder: of the run.
        sizes: bytes by path, as the store has them.
    """
    for name, size in sizes.items():
        try:
            actual = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} is missing ({error.strerror})"
        if actual != size:
            return f"{name} has {actual} bytes, but had {size} when the run was stored"
    return None


def differing(folder: Path, files: Iterable[FileRow]) -> list[str]:
    """Clauses on the files of a run that are missing or differ from their checksums."""
    return [reason for file in files if (reason := _difference(folder, file, _digest))]


def first_difference(folder: Path, files: Iterable[FileRow]) -> str | None:
    """A clause on the first file of a run that readers would take for another; None: there is none.

    A file is read once in a process, unless it changes. A compressed one has a checksum of its own.
    """
    for file in files:
        check = None if file.path.endswith(".gz") else _digest_kept
        if (reason := _difference(folder, file, check)) is not None:
            return reason
    return None


def _difference(folder: Path, file: FileRow, digest: Callable[[Path], str] | None) -> str | None:
    if (reason := absent(folder, {file.path: file.bytes})) is not None:
        return reason
    try:
        if digest is not None and digest(folder / file.path) != file.sha256:
            return f"{file.path} differs from its checksum"
    except OSError as error:
        # A sector of the disk, say. One file must not end a look at all runs.
        return f"{file.path} cannot be read ({error.strerror})"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_kept(path: Path) -> str:
    state = path.stat()
    return _digest_of(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=10_000)
def _digest_of(path: Path, *_state: int) -> str:
    return _digest(path)
