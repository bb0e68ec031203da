"""Whether a run's files are those that were stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
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
            found = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} is missing ({error.strerror})"
        if found != size:
            return f"{name} has {found} bytes, and had {size} when the run landed"
    return None


def differing(folder: Path, files: Iterable[FileRow]) -> list[str]:
    """Clauses on the files of a run that are missing or differ from their checksums."""
    result = []
    for file in files:
        reason = absent(folder, {file.path: file.bytes})
        if reason is None:
            with (folder / file.path).open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                    reason = f"{file.path} differs from its checksum"
        if reason is not None:
            result.append(reason)
    return result
