"""Places that the processes of a machine share, as locks on files: the kernel frees those of a process that dies."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from pathlib import Path

from testbed.errors import TestbedError

#: Where they meet: a folder of this machine alone, whatever else a worker was told.
FOLDER = Path(tempfile.gettempdir()) / f"backchannel-{os.getuid()}"
#: Seconds between two looks for a free place.
LOOK_S = 0.05


class Slots:
    """As many places of one name, for one thread each. Entered, it waits for one.

    Args:
        name: what they are for.
        count: how many there are.
        stop: when this is set, nobody waits any more, and goes on without a place.
        folder: where the processes meet; None: FOLDER.

    Raises:
        TestbedError: the folder cannot be used; by every method.
    """

    def __init__(self, name: str, count: int, stop: threading.Event, folder: Path | None = None) -> None:
        folder = folder or FOLDER
        self._paths = [folder / f"{name}-{number}.lock" for number in range(count)]
        self._stop = stop
        self._own = threading.local()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(folder, error) from None

    def __enter__(self) -> None:
        while not self.take() and not self._stop.wait(LOOK_S):
            pass

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def take(self) -> bool:
        """Takes a place if one is free; whether this thread has one now."""
        if getattr(self._own, "file", None) is not None:
            return True
        for path in self._paths:
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise _unusable(path, error) from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self._own.file = file
            return True
        return False

    def let_go(self) -> None:
        """Frees this thread's place, if it has one."""
        file, self._own.file = getattr(self._own, "file", None), None
        if file is not None:
            os.close(file)


def _unusable(path: Path, error: OSError) -> TestbedError:
    return TestbedError(f"{path}, where the processes of this machine meet, cannot be used: {error.strerror}")
