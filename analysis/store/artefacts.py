"""Storage of runs' files: a folder, or an fsspec URL (an S3 bucket, an SFTP server, a share).

A run's files are in `runs/AB/ABCD.../`, and in remote storage in a folder for each version there. The run's row has the
version that counts. Files are written before the row, and files without a row are ignored. A run whose machine died
during the write is therefore simply written again, and until then its earlier version is read. The files of a failed
attempt are in `failed/ABCD.../`.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from analysis.store.database import StoreError
from testbed.local_folders import ScratchFolder, sweep

#: Bytes of a failed attempt that remote storage keeps. Its captures are not compressed.
MOST_FAILED_BYTES = 100_000_000
#: Folder of failed attempts, and the file in it with the reason.
FAILED, REASON = "failed", "reason.txt"
#: Beginning of the folder of a run's files that others are about to replace, beside where those were assembled.
BEFORE = "before-"
#: Beginning of the folder of a version of a run's files; no file of a run is called so.
VERSION = "version-"
#: How long a remote place may take for an answer, in s, and the slowest transfer of a file beyond that, in bytes/s.
ANSWER_S, SLOWEST_BYTES_PER_S = 120.0, 50_000.0

T = TypeVar("T")


class ArtefactError(StoreError):
    """The storage of runs' files cannot be used."""


class Artefacts(Protocol):
    """The files of runs."""

    def put(self, run_id: str, folder: Path, version: str = "0") -> Sequence[str]:
        """Moves a run's folder into the storage. Returns the other versions, for `discard` once the new one counts."""

    def discard(self, run_id: str, stale: Sequence[str]) -> None:
        """Deletes what `put` returned."""

    def revert(self, run_id: str, version: str, stale: Sequence[str]) -> None:
        """Deletes a version that was put and does not count, so that the storage is as before."""

    def folder(self, run_id: str, version: str = "0", sizes: Callable[[], Mapping[str, int]] = dict) -> Path:
        """A local, read-only folder with the run's files of one version (commit). Fetched files must have these sizes,
        in bytes.
        """

    def remove(self, run_id: str, below: str = "") -> None:
        """Deletes a run's files, if there are any: those in this folder of it, or all."""

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Moves the files of a failed attempt into the storage; they replace those of an earlier one."""

    def failed(self, run_id: str) -> str | None:
        """Location of the files of a failed attempt; None without any."""

    def remove_failed(self, run_id: str) -> None:
        """Deletes the files of a failed attempt, if there are any."""


class IoDeadline:
    """How long a call of a file system may take from now on."""

    def __init__(self) -> None:
        self.renew()

    def renew(self, size: int = 0) -> None:
        """A call begins that transfers so many bytes."""
        self.limit_s = ANSWER_S + size / SLOWEST_BYTES_PER_S
        self._ends_s = time.monotonic() + self.limit_s

    def left_s(self) -> float:
        """Time that the call has left; at most 0 if it takes too long."""
        return self._ends_s - time.monotonic()


def _below(run_id: str) -> str:
    return f"runs/{run_id[:2]}/{run_id}"


class LocalArtefacts:
    """A folder of this machine; runs are moved into it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, run_id: str, folder: Path, version: str = "0") -> Sequence[str]:
        """Moves a run's folder into the storage; it replaces an earlier one, which stays beside where it came from."""
        target, before = self.folder(run_id), folder.with_name(f"{BEFORE}{folder.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        stale = [str(target.rename(before))] if target.exists() else []
        try:
            folder.rename(target)
        except OSError:
            self.revert(run_id, version, stale)
            raise
        return stale

    def discard(self, run_id: str, stale: Sequence[str]) -> None:
        """Deletes the earlier folder."""
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)

    def revert(self, run_id: str, version: str, stale: Sequence[str]) -> None:
        """Deletes the run's folder, and puts the earlier one back."""
        self.remove(run_id)
        for path in stale:
            Path(path).rename(self.folder(run_id))

    def folder(self, run_id: str, version: str = "0", sizes: Callable[[], Mapping[str, int]] = dict) -> Path:
        """A local, read-only folder with the run's files of one version (commit)."""
        return self._folder / _below(run_id)

    def remove(self, run_id: str, below: str = "") -> None:
        """Deletes a run's files, if there are any: those in this folder of it, or all."""
        shutil.rmtree(self.folder(run_id) / below, ignore_errors=True)

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Moves the files of a failed attempt into the storage; they replace those of an earlier one."""
        kept = self._failed(run_id)
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(kept)

    def failed(self, run_id: str) -> str | None:
        """Location of the files of a failed attempt; None without any."""
        kept = self._failed(run_id)
        return str(kept) if kept.exists() else None

    def remove_failed(self, run_id: str) -> None:
        """Deletes the files of a failed attempt, if there are any."""
        shutil.rmtree(self._failed(run_id), ignore_errors=True)

    def _failed(self, run_id: str) -> Path:
        return self._folder / FAILED / run_id


class RemoteArtefacts:
    """Storage behind an fsspec URL, with a local folder as the cache of reads.

    The place is not trusted: it may be silent, and what it takes or gives may be cut.

    Raises:
        ArtefactError: fsspec does not know the URL, or lacks the package that serves it.
    """

    def __init__(self, url: str, cache: Path) -> None:
        import fsspec

        self.url = url
        self._cache = cache
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ArtefactError(f"the artefacts cannot be stored at {url}: {error}") from None

    def put(self, run_id: str, folder: Path, version: str = "0") -> Sequence[str]:
        """Moves a run's folder into the storage, beside its other versions. Returns these, for `discard`.

        Raises:
            ArtefactError: the place does not take it.
        """
        with _using(self.url, "put to"):
            stale = self._entries(self._at(run_id))
        target = f"{self._at(run_id)}/{VERSION}{version}"
        self._put(target, folder, sorted(path for path in folder.rglob("*") if path.is_file()))
        shutil.rmtree(self._cache / _below(run_id), ignore_errors=True)
        return [entry for entry in stale if entry.rpartition("/")[2] != VERSION + version]

    def discard(self, run_id: str, stale: Sequence[str]) -> None:
        """Deletes versions that do not count any more. What the place does not delete costs its space only."""
        with contextlib.suppress(Exception):
            for entry in stale:
                _answer(partial(self._clear, entry))

    def revert(self, run_id: str, version: str, stale: Sequence[str]) -> None:
        """Deletes a version that was put and does not count."""
        self.discard(run_id, [f"{self._at(run_id)}/{VERSION}{version}"])

    def folder(self, run_id: str, version: str = "0", sizes: Callable[[], Mapping[str, int]] = dict) -> Path:
        """A local, read-only folder with the run's files. Each version is fetched at its first use.

        Raises:
            ArtefactError: the place does not give them, or not all of their bytes.
        """
        here = self._cache / _below(run_id) / version
        if here.exists():
            return here
        with _using(self.url, "read from"):
            top = f"{self._at(run_id)}/{VERSION}{version}"
            if not _answer(lambda _: self._files.exists(top)):
                # A release before versions put the files there.
                top = self._at(run_id)
                if not _answer(lambda _: self._files.exists(top)):
                    return here
        here.parent.mkdir(parents=True, exist_ok=True)
        sweep(here.parent, "part-")
        # Several processes may fetch the same run at once.
        with ScratchFolder(here.parent, "part-") as making:
            with _using(self.url, "read from"):
                expected = sizes()
                _answer(partial(self._fetch, top, making, expected))
                for name, size in expected.items():
                    file = making / name
                    _check(name, file.stat().st_size if file.exists() else 0, size)
            # Fails if another process was faster.
            with contextlib.suppress(OSError):
                making.rename(here)
        for other in here.parent.iterdir():
            if other != here and not other.name.startswith("part-"):
                shutil.rmtree(other, ignore_errors=True)
        return here

    def remove(self, run_id: str, below: str = "") -> None:
        """Deletes a run's files, if there are any: those in this folder of it, or all."""
        if below:
            for version in self._entries(self._at(run_id)):
                self._remove(f"{version}/{below.rstrip('/')}")
        else:
            self._remove(self._at(run_id))
        shutil.rmtree(self._cache / _below(run_id), ignore_errors=True)

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Stores the files of a failed attempt in place of those of an earlier one: the small files first, until
        `MOST_FAILED_BYTES` are reached; what is left out, the reason names.

        Raises:
            ArtefactError: the place does not take it.
        """
        taken, left_out, room = [], [], MOST_FAILED_BYTES
        paths = [path for path in folder.rglob("*") if path.is_file()]
        for path in sorted(paths, key=lambda path: (path.name != REASON, path.stat().st_size, path)):
            size = path.stat().st_size
            room -= size
            if room >= 0:
                taken.append(path)
            else:
                left_out.append(f"not kept: {path.relative_to(folder)}, {size} bytes\n")
        if left_out:
            with (folder / REASON).open("a") as reason:
                reason.writelines(left_out)
        self._put(self._failed(run_id), folder, taken)

    def failed(self, run_id: str) -> str | None:
        """Location of the files of a failed attempt; None without any.

        Raises:
            ArtefactError: the place does not say.
        """
        with _using(self.url, "read from"):
            exists = _answer(lambda _: self._files.exists(self._failed(run_id)))
        return f"{self.url.rstrip('/')}/{FAILED}/{run_id}" if exists else None

    def remove_failed(self, run_id: str) -> None:
        """Deletes the files of a failed attempt, if there are any."""
        self._remove(self._failed(run_id))

    def _put(self, target: str, folder: Path, paths: Sequence[Path]) -> None:
        """Uploads a folder's files in place of those at `target`, and deletes the folder."""
        with _using(self.url, "put to"):
            targets = {f"{target}/{path.relative_to(folder).as_posix()}": path for path in paths}
            _answer(partial(self._upload, target, targets))
        shutil.rmtree(folder, ignore_errors=True)

    def _remove(self, target: str) -> None:
        with _using(self.url, "removed at"):
            _answer(partial(self._clear, target))

    # Each of these calls the place several times, and announces each call.

    def _upload(self, target: str, paths: Mapping[str, Path], deadline: IoDeadline) -> None:
        self._clear(target, deadline)
        folders = set()
        for at, path in paths.items():
            above = at.rpartition("/")[0]
            if above not in folders:
                folders.add(above)
                deadline.renew()
                self._files.makedirs(above, exist_ok=True)
            deadline.renew(path.stat().st_size)
            self._files.put_file(str(path), at)
        self._files.invalidate_cache()
        for at, path in paths.items():
            deadline.renew()
            _check(at, self._files.size(at), path.stat().st_size)

    def _fetch(self, top: str, folder: Path, sizes: Mapping[str, int], deadline: IoDeadline) -> None:
        for path in self._files.find(top):
            name = path[len(top) :].lstrip("/")
            if name.startswith(VERSION):
                continue
            to = folder / name
            to.parent.mkdir(parents=True, exist_ok=True)
            deadline.renew(sizes.get(name, 0))
            self._files.get_file(path, str(to))

    def _clear(self, target: str, deadline: IoDeadline) -> None:
        deadline.renew()
        if self._files.exists(target):
            deadline.renew()
            self._files.rm(target, recursive=True)

    def _entries(self, folder: str) -> list[str]:
        """Paths of what is directly in a folder."""
        self._files.invalidate_cache()
        try:
            return list(_answer(lambda _: self._files.ls(folder, detail=False)))
        except FileNotFoundError:
            return []

    def _at(self, run_id: str) -> str:
        return f"{self._root.rstrip('/')}/{_below(run_id)}"

    def _failed(self, run_id: str) -> str:
        return f"{self._root.rstrip('/')}/{FAILED}/{run_id}"


@contextlib.contextmanager
def _using(url: str, purpose: str) -> Iterator[None]:
    """Raises ArtefactError for whatever a place raises of which files are read, or to which they are put."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (every file system has errors of its own)
        raise ArtefactError(f"the artefacts of a run cannot be {purpose} {url}: {_error_text(error)}") from error


def _answer(work: Callable[[IoDeadline], T]) -> T:
    """The result of calls of a file system.

    Args:
        work: announces each of its calls but the first. It goes on in its thread if one takes too long, because nothing
            can end it.

    Raises:
        TimeoutError: a call took longer than ANSWER_S, and than SLOWEST_BYTES_PER_S allows for.
    """
    results: list[T] = []
    errors: list[Exception] = []
    deadline = IoDeadline()

    def attempt() -> None:
        try:
            results.append(work(deadline))
        except Exception as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    # One thread for all calls: a commit makes dozens.
    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    while thread.is_alive() and (left_s := deadline.left_s()) > 0:
        thread.join(left_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {deadline.limit_s:.0f} s")
    return results[0]


def _check(name: str, size: int | None, expected: int) -> None:
    if size is not None and size != expected:
        raise ArtefactError(f"{name} has {size} bytes there instead of {expected}")


def _error_text(error: Exception) -> Any:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
