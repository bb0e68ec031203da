"""Where the files of runs lie: a folder, or any place that an fsspec URL names (an S3 bucket, an SFTP server, a share).

A run's files are `runs/AB/ABCD.../` below it. They are put there before the run's row is, and nobody looks at files
without a row; so a run that was being put when its machine died is simply put again. What a try without a result left
is `failed/ABCD.../`.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.local_folders import ScratchFolder, sweep

#: Bytes that are kept of what a try without a result left, where that has a way to go: its captures are not compressed.
MOST_FAILED_BYTES = 100_000_000
#: Its folder, and the file in it that says why there was none.
FAILED, REASON = "failed", "reason.txt"


class ArtefactError(Exception):
    """The place cannot be used; the message is a sentence."""


class Artefacts(Protocol):
    """The files of runs."""

    def put(self, run_id: str, folder: Path) -> None:
        """Takes a run's folder in, in place of an earlier one."""

    def remove(self, run_id: str) -> None:
        """Forgets a run's files, if there are any."""

    def folder(self, run_id: str, version: str = "0") -> Path:
        """A local folder with the run's files, which are only to be read; another version is another landing."""

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Takes in what a try without a result left, in place of an earlier one's."""

    def failed(self, run_id: str) -> str | None:
        """Where that is; None: there is nothing."""

    def remove_failed(self, run_id: str) -> None:
        """Forgets it, if there is anything."""


def _below(run_id: str) -> str:
    return f"runs/{run_id[:2]}/{run_id}"


class LocalArtefacts:
    """A folder of this machine; runs are moved into it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, run_id: str, folder: Path) -> None:
        """Takes a run's folder in, in place of an earlier one."""
        target = self.folder(run_id)
        if target.exists():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)

    def remove(self, run_id: str) -> None:
        """Forgets a run's files, if there are any."""
        shutil.rmtree(self.folder(run_id), ignore_errors=True)

    def folder(self, run_id: str, version: str = "0") -> Path:
        """A local folder with the run's files, which are only to be read; another version is another landing."""
        return self._folder / _below(run_id)

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Takes in what a try without a result left, in place of an earlier one's."""
        kept = self._failed(run_id)
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(kept)

    def failed(self, run_id: str) -> str | None:
        """Where that is; None: there is nothing."""
        kept = self._failed(run_id)
        return str(kept) if kept.exists() else None

    def remove_failed(self, run_id: str) -> None:
        """Forgets it, if there is anything."""
        shutil.rmtree(self._failed(run_id), ignore_errors=True)

    def _failed(self, run_id: str) -> Path:
        return self._folder / FAILED / run_id


class RemoteArtefacts:
    """A place behind an fsspec URL; what is read is kept in a local folder.

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
            raise ArtefactError(f"the artefacts cannot be kept at {url}: {error}") from None

    def put(self, run_id: str, folder: Path) -> None:
        """Takes a run's folder in, in place of an earlier one.

        Raises:
            ArtefactError: the place does not take it.
        """
        self._put(self._at(run_id), folder, sorted(path for path in folder.rglob("*") if path.is_file()))
        shutil.rmtree(self._cache / _below(run_id), ignore_errors=True)

    def remove(self, run_id: str) -> None:
        """Forgets a run's files, if there are any."""
        self._remove(self._at(run_id))
        shutil.rmtree(self._cache / _below(run_id), ignore_errors=True)

    def folder(self, run_id: str, version: str = "0") -> Path:
        """A local folder with the run's files, only to be read: each version is brought here when first asked for.

        Raises:
            ArtefactError: the place does not give them.
        """
        here = self._cache / _below(run_id) / version
        if here.exists():
            return here
        try:
            if not self._files.exists(self._at(run_id)):
                return here
        except Exception as error:  # noqa: BLE001
            raise ArtefactError(f"the artefacts of a run cannot be read from {self.url}: {_said(error)}") from error
        here.parent.mkdir(parents=True, exist_ok=True)
        sweep(here.parent, "part-")
        # Several processes may fetch the same run at once.
        with ScratchFolder(here.parent, "part-") as making:
            try:
                top = self._at(run_id)
                for path in self._files.find(top):
                    to = making / path[len(top) :].lstrip("/")
                    to.parent.mkdir(parents=True, exist_ok=True)
                    self._files.get_file(path, str(to))
            except Exception as error:  # noqa: BLE001
                raise ArtefactError(f"the artefacts of a run cannot be read from {self.url}: {_said(error)}") from error
            # Fails if another process was faster.
            with contextlib.suppress(OSError):
                making.rename(here)
        for other in here.parent.iterdir():
            if other != here and not other.name.startswith("part-"):
                shutil.rmtree(other, ignore_errors=True)
        return here

    def put_failed(self, run_id: str, folder: Path) -> None:
        """Takes in what a try without a result left, in place of an earlier one's: the small files first, until
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
        """Where that is; None: there is nothing.

        Raises:
            ArtefactError: the place does not say.
        """
        try:
            exists = self._files.exists(self._failed(run_id))
        except Exception as error:  # noqa: BLE001
            raise ArtefactError(f"the artefacts of a run cannot be read from {self.url}: {_said(error)}") from error
        return f"{self.url.rstrip('/')}/{FAILED}/{run_id}" if exists else None

    def remove_failed(self, run_id: str) -> None:
        """Forgets it, if there is anything."""
        self._remove(self._failed(run_id))

    def _put(self, target: str, folder: Path, paths: Sequence[Path]) -> None:
        """Puts files of a folder, which goes then, in place of what is at `target`."""
        try:
            if self._files.exists(target):
                self._files.rm(target, recursive=True)
            for path in paths:
                at = f"{target}/{path.relative_to(folder).as_posix()}"
                self._files.makedirs(at.rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(path), at)
        except Exception as error:  # noqa: BLE001 (every file system has errors of its own)
            raise ArtefactError(f"the artefacts of a run cannot be put to {self.url}: {_said(error)}") from error
        shutil.rmtree(folder, ignore_errors=True)

    def _remove(self, target: str) -> None:
        try:
            if self._files.exists(target):
                self._files.rm(target, recursive=True)
        except Exception as error:  # noqa: BLE001
            raise ArtefactError(f"the artefacts of a run cannot be removed at {self.url}: {_said(error)}") from error

    def _at(self, run_id: str) -> str:
        return f"{self._root.rstrip('/')}/{_below(run_id)}"

    def _failed(self, run_id: str) -> str:
        return f"{self._root.rstrip('/')}/{FAILED}/{run_id}"


def _said(error: Exception) -> Any:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
