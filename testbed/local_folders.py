"""Folders of one user on this machine: scratch folders, which the next command removes if their owner dies, and the
folder of locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from testbed.errors import TestbedError

#: Prefix of scratch folders in the temporary directory, and how the names of all of them end, after eight characters of
#: `mkdtemp`: a sweep must take no folder of the user's for one.
PREFIX, ENDING = "backchannel.", ".tmp"


class ScratchFolder:
    """A new folder with mode 0700. Its lock, which the kernel releases when the process dies, protects it from `sweep`.

    Args:
        parent: of the folder; None: the temporary directory.
        prefix: of its name.

    Raises:
        TestbedError: `parent` cannot be written.
    """

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        while True:
            try:
                self.path = Path(tempfile.mkdtemp(ENDING, prefix, parent))
            except OSError as error:
                # Without a temporary directory that can be written, Python's message lists those that it tried.
                reason = error.strerror or error
                raise TestbedError(
                    f"no folder can be created in {parent or os.environ.get('TMPDIR') or '/tmp'}: {reason}"
                ) from None
            lock = _lock(self.path)
            if lock is not None:
                self._lock = lock
                return

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the folder and its contents."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        # An owner that was not constructed completely cannot close it.
        with contextlib.suppress(AttributeError, TypeError):
            self.close()


def sweep(parent: Path | None = None, prefix: str = PREFIX) -> int:
    """Removes this user's scratch folders whose owner has ended. Returns their number."""
    removed = 0
    name = re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}{re.escape(ENDING)}")
    try:
        paths = [Path(entry) for entry in os.scandir(parent or tempfile.gettempdir()) if name.fullmatch(entry.name)]
    except OSError:
        return 0
    for path in paths:
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            removed += 1
    return removed


def _lock(path: Path) -> int | None:
    """Locks an existing folder of this user; None if that is impossible, or another process has it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, present = os.fstat(file), path.lstat()
        # Another process may have removed the folder before it was locked.
        if opened.st_uid == os.geteuid() and opened.st_ino == present.st_ino:
            return file
    except OSError:
        pass
    os.close(file)
    return None


def runtime_folder() -> Path:
    """The folder of this user's locks on this machine; it is created.

    It does not depend on the environment where /run has a place for the user, because all processes of a user must
    find the same locks.

    Raises:
        TestbedError: it cannot be used, or other users could write to it.
    """
    user = os.geteuid()
    if user == 0 and os.access("/run", os.W_OK):
        return private_folder(Path("/run/backchannel-locks"))
    for name in (f"/run/user/{user}", os.environ.get("XDG_RUNTIME_DIR")):
        if name and os.access(name, os.W_OK):
            return private_folder(Path(name) / "backchannel")
    return shared_parent_folder()


def shared_parent_folder() -> Path:
    """The user's folder in the temporary directory, where any user can create one of that name first.

    Raises:
        TestbedError: as `private_folder`.
    """
    try:
        temporary = tempfile.gettempdir()
    except OSError as error:
        raise TestbedError(f"this machine has no folder for temporary files: {error.strerror}") from None
    return private_folder(Path(temporary) / f"backchannel-{os.geteuid()}")


def private_folder(path: Path) -> Path:
    """Creates a folder with mode 0700, or checks that an existing one belongs to this user alone.

    Raises:
        TestbedError: it cannot be created, is a link, belongs to another user, or is open to others.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
        status = path.lstat()
    except OSError as error:
        raise TestbedError(f"the folder {path} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise TestbedError(f"{path} is not a folder. Remove it, Backchannel creates the folder itself")
    if status.st_uid != os.geteuid():
        raise TestbedError(
            f"the folder {path} belongs to user {status.st_uid}, not to user {os.geteuid()}, and is not used. "
            "Remove it, or set TMPDIR to a folder of your own"
        )
    if status.st_mode & 0o077:
        raise TestbedError(
            f"the folder {path} is open to other users (mode {stat.S_IMODE(status.st_mode):o}) and is not used. "
            f"Check what it contains, then remove it or run 'chmod 700 {path}'"
        )
    return path
