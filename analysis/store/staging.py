"""Folders in which runs are assembled before they are committed, and the removal of abandoned ones.

A store that assembles runs holds a lock on a file of its own, `assembling/OWNER.lock`, and names its folders
`incoming/RUN-OWNER-NUMBER-PID`. The kernel releases the lock when the process ends, on whichever host it ran. So a
folder whose owner's lock is free has been abandoned, also where several hosts share the results folder.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class StagingArea:
    """The folders of one open store.

    Args:
        folder: of the store, on the file system of its runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._staging = folder / "incoming"
        self._locks = folder / "assembling"
        self._numbers = itertools.count()
        self._owner = secrets.token_hex(6)
        self._held: TextIO | None = None
        self._threads = threading.Lock()

    @property
    def owner(self) -> str:
        """Token of this open store. Its lock is held from here on."""
        with self._threads:
            return self._locked()

    def make(self, run_id: str) -> Path:
        """An empty folder for one attempt of a run. An earlier attempt may still be using another one."""
        with self._threads:
            self._locked()
            # The site finds the folder of a process that it started by the id at the end.
            folder = self._staging / f"{run_id}-{self._owner}-{next(self._numbers)}-{os.getpid()}"
        folder.mkdir(parents=True)
        return folder

    def sweep(self, rescue: Callable[[Path], None] = lambda folder: None) -> None:
        """Removes the folders of processes that have ended.

        Args:
            rescue: called with each of them before; may move it away.
        """
        with self._exclusively():
            alive: dict[str, bool] = {}
            for folder in self._staging.iterdir():
                owner = folder.name.split("-")[-3] if folder.name.count("-") >= 3 else ""
                if owner not in alive:
                    alive[owner] = self.is_alive(owner)
                if not alive[owner]:
                    rescue(folder)
                    shutil.rmtree(folder, ignore_errors=True)
            for path in self._locks.glob("*.lock"):
                if not alive.get(path.stem, True) or not self.is_alive(path.stem):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Gives up what is not finished."""
        with self._threads:
            if self._held is not None:
                self._lock_of(self._owner).unlink(missing_ok=True)
                self._held.close()
                self._held = None

    def _locked(self) -> str:
        if self._held is None:
            with self._exclusively():
                self._locks.mkdir(exist_ok=True)
                self._held = self._lock_of(self._owner).open("w")
                fcntl.flock(self._held, fcntl.LOCK_EX)
        return self._owner

    def _lock_of(self, owner: str) -> Path:
        return self._locks / f"{owner}.lock"

    def is_alive(self, owner: str) -> bool:
        """Whether the process with this token has not ended."""
        try:
            with self._lock_of(owner).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except (BlockingIOError, PermissionError):
            # Another user's lock cannot be tried; the folder is not ours to remove either.
            return True
        return False

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """No other store sweeps, or creates its lock, meanwhile."""
        with (self._folder / "incoming.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
