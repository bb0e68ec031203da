"""What takes minutes to build is built once and kept in the user's cache, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import TestbedError, Unavailable
from testbed.local_folders import ScratchFolder, shared_parent_folder, sweep

#: Of scratch folders beside what is built.
PREFIX = "new-"
#: What a build fills in its scratch folder.
BUILT = "built"
#: Less free space than this means that a build failed because the disk is full.
FULL_BYTES = 16 << 20


def place(kind: str) -> Path:
    """The folder of the user's builds of one kind.

    Raises:
        TestbedError: the user has no home folder, and none in the temporary directory can be used.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "backchannel" / kind
    try:
        return Path.home() / ".cache" / "backchannel" / kind
    except RuntimeError:
        # A user that the system does not know, as in a container.
        return shared_parent_folder() / "cache" / kind


def build_once(folder: Path, lock: str, what: str, room_bytes: int, build: Callable[[Path], None]) -> None:
    """Builds a folder unless it exists. Of concurrent callers with one lock, one builds.

    Args:
        folder: a child of `place`.
        lock: name of the lock in the same folder.
        what: is built, for the message about missing room.
        room_bytes: free space that building needs.
        build: called with a scratch folder; leaves the result in its child BUILT.

    Raises:
        TestbedError: there is not enough room, or `build` failed.
    """
    with locked(folder.parent, lock):
        if not folder.exists():
            with scratch(folder.parent, what, room_bytes) as new:
                build(new)
                (new / BUILT).rename(folder)
        used(folder)


def used(folder: Path) -> None:
    """Notes that a build is used now, so that `prune caches` leaves it. A build in a package cannot be pruned."""
    with suppress(OSError):
        os.utime(folder)


@contextmanager
def locked(parent: Path, lock: str) -> Iterator[None]:
    """Waits for the lock of that name in a folder of builds, which is created.

    Raises:
        Unavailable: the folder cannot be written.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        file = (parent / lock).open("w")
    except OSError as error:
        raise Unavailable(
            f"{parent}, a folder of your cache, cannot be written: {error.strerror}; name another place with "
            "XDG_CACHE_HOME"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch(parent: Path, what: str, room_bytes: int) -> Iterator[Path]:
    """A folder for a build, with an empty child BUILT; it is removed at the end.

    Raises:
        TestbedError: there is not enough room, or it ran out.
    """
    sweep(parent, PREFIX)
    free = shutil.disk_usage(parent).free
    if free < room_bytes:
        raise TestbedError(
            f"{what} needs {room_bytes >> 30} GiB in {parent}, where {free >> 30} GiB are free: make room, or name "
            "another place with XDG_CACHE_HOME"
        )
    with ScratchFolder(parent, PREFIX) as new:
        try:
            (new / BUILT).mkdir()
            yield new
        except (TestbedError, OSError):
            if shutil.disk_usage(parent).free < FULL_BYTES:
                raise TestbedError(f"{what} filled the disk of {parent}: make {room_bytes >> 30} GiB of room") from None
            raise


def logged(words: Sequence[str], log: Path, question: str = "", cwd: Path | None = None) -> None:
    """Runs a program whose output goes to a log.

    Raises:
        TestbedError: it failed; the message has its last line, the question and the log.
    """
    for _ in lines(words, log, question, cwd):
        pass


def lines(words: Sequence[str], log: Path, question: str = "", cwd: Path | None = None) -> Generator[bytes]:
    """Runs a program and yields the lines of its output, which goes to a log as well. However this ends, the program
    and what it started end too.

    Raises:
        TestbedError: it failed; the message has its last line, the question and the log.
    """
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}
    with log.open("ab") as file:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                yield line
            process.wait()
        finally:
            process.stdout.close()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    if process.returncode != 0:
        raise failure(words, log, question)


def failure(words: Sequence[str], log: Path, question: str = "") -> TestbedError:
    """The error of a program that failed."""
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    return TestbedError(f"{words[0]} failed: {''.join(last)} ({f'{question} ' if question else ''}full output: {log})")
