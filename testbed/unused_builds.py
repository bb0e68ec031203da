"""Builds in the user's cache that were not used for a while: nodes, kernels and their trees, compiled modules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed import build_cache
from testbed.local_folders import ScratchFolder
from testbed.virtual_kernel import kernels

#: A build that was used within this time is never removed, because a program may be about to start it; in s.
LEAST_S = 3600.0
#: Kinds of builds, each a folder of the cache.
KINDS = ("nodes", "kernels", "trees", "bytecode")
#: Objects that all nodes share, and the log of the last build with them.
OBJECTS, LOG = "target", "build.log"


@dataclass(frozen=True)
class Build:
    """A build in the cache."""

    #: One of KINDS.
    kind: str
    folder: Path
    bytes: int
    #: Seconds since the epoch.
    used: float


def find(older_than_s: float, now: float | None = None) -> list[Build]:
    """Builds that were last used longer ago than this, and that no name leads to.

    Args:
        older_than_s: at least LEAST_S.
        now: seconds since the epoch; None: this moment.
    """
    before = (time.time() if now is None else now) - max(older_than_s, LEAST_S)
    return [build for kind in KINDS for build in _builds(kind) if build.used < before]


def by_kind(builds: Sequence[Build]) -> dict[str, list[Build]]:
    """Builds of each kind that has some."""
    kinds: dict[str, list[Build]] = {}
    for build in builds:
        kinds.setdefault(build.kind, []).append(build)
    return kinds


def remove(build: Build) -> None:
    """Deletes a build, unless it was used meanwhile. A build that is being made is waited for. A kill leaves the build,
    or a scratch folder that the next build of its kind removes.
    """
    place = build.folder.parent
    with build_cache.locked(place, _lock_of(build)):
        if not build.folder.is_dir() or _used(build.folder) > build.used:
            return
        with ScratchFolder(place, build_cache.PREFIX) as gone:
            build.folder.rename(gone / build_cache.BUILT)


def _builds(kind: str) -> Iterator[Build]:
    place = build_cache.place(kind)
    kept = {kernel.folder.name for kernel in kernels.built()} if kind == "kernels" else set()
    for folder in sorted(place.iterdir()) if place.is_dir() else ():
        is_build = folder.is_dir() and not folder.is_symlink() and not folder.name.startswith(build_cache.PREFIX)
        if is_build and folder.name not in kept:
            # A build that goes on meanwhile, or another `prune`, removes files.
            with suppress(FileNotFoundError):
                yield Build(kind, folder, _bytes(folder), _used(folder))


def _bytes(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.lstat().st_size
    return size


def _used(folder: Path) -> float:
    log = folder.parent / LOG
    return (log if folder.name == OBJECTS and log.exists() else folder).stat().st_mtime


def _lock_of(build: Build) -> str:
    match build.kind:
        case "nodes":
            return "lock"
        case "bytecode":
            return f"lock-{build.folder.name}"
    # linux-NAME-DIGEST
    return f"lock-{build.folder.name.removeprefix('linux-').rpartition('-')[0]}"
