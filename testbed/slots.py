"""A machine-wide semaphore, as locks on files: the kernel releases those of a process that dies."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from testbed.errors import TestbedError
from testbed.local_folders import runtime_folder

#: Interval between two attempts to take a slot, in s.
LOOK_S = 0.05


class Slots:
    """A number of slots with one name; each thread takes at most one. `with` waits for a slot.

    Args:
        name: shared by all processes that use them.
        count: number of slots.
        stop: once set, waiting ends and threads continue without a slot.
        folder: of the locks; None: this user's on this machine.

    Raises:
        TestbedError: the folder cannot be used. All methods raise it.
    """

    def __init__(self, name: str, count: int, stop: threading.Event, folder: Path | None = None) -> None:
        folder = folder or runtime_folder()
        self._paths = [folder / f"{name}-{number}.lock" for number in range(count)]
        self._stop = stop
        self._own = threading.local()

    def __enter__(self) -> None:
        while not self.take() and not self._stop.wait(LOOK_S):
            pass

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> bool:
        """Takes a slot if one is free. Returns whether this thread has one."""
        if getattr(self._own, "file", None) is not None:
            return True
        for number, path in enumerate(self._paths):
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise _unusable(path, error) from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self._own.file, self._own.number = file, number
            return True
        return False

    @property
    def number(self) -> int:
        """Which of the slots this thread has, from 0."""
        return int(self._own.number)

    def release(self) -> None:
        """Releases this thread's slot, if it has one."""
        file, self._own.file = getattr(self._own, "file", None), None
        if file is not None:
            os.close(file)


def _unusable(path: Path, error: OSError) -> TestbedError:
    return TestbedError(f"{path}, which holds this machine's locks, cannot be used: {error.strerror}")
