"""What a killed command has left on the machine: processes, namespaces, interfaces, mounts, sockets, folders."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def command_line(pid: int) -> list[str]:
    """The words of a process; empty if it has ended."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def parent(pid: int) -> int:
    """The parent's process id; 0 if the process has ended."""
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def state(pid: int) -> str:
    """State of a process as ps(1) has it, such as R for runnable; empty if it has ended."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def interfaces() -> set[str]:
    """Network interfaces of this process's namespace."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def processes() -> Iterator[int]:
    """All processes of this machine."""
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def descendants(pid: int) -> list[int]:
    """A process and everything below it."""
    children: dict[int, list[int]] = {}
    for child in processes():
        children.setdefault(parent(child), []).append(child)
    result = [pid]
    for above in result:
        result += children.get(above, [])
    return result


class Watch:
    """The commands that are started with `environment`, and what they leave.

    Args:
        folder: of their files. Its `tmp` is their temporary directory.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = f"BACKCHANNEL_FAULTS={secrets.token_hex(8)}"
        self._tmp = folder / "tmp"
        self._tmp.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        name, _, value = self._mark.partition("=")
        self.environment = {**os.environ, name: value, "TMPDIR": str(self._tmp)}
        self._interfaces = interfaces()
        self._mounts = _mounts()
        self._cgroups = _cgroups()
        self._own_namespace = _namespace("self")
        #: Network namespaces of the commands, each with an open descriptor: the kernel gives the number of a namespace
        #: that has gone to the next one that anybody makes.
        self._namespaces: dict[str, int] = {}
        self._exempt: set[int] = set()

    def exempt(self, pid: int) -> None:
        """A process that may stay although it has the environment."""
        self._exempt.add(pid)

    def processes(self) -> list[int]:
        """The commands' processes, in ascending order. Their network namespaces are remembered."""
        result = []
        for pid in processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 (this is called 500 times a second)
                    if self._mark.encode() in file.read() and pid not in self._exempt:
                        result.append(pid)
            except OSError:
                continue
        for pid in result:
            self._remember_namespace(pid)
        return sorted(result)

    def _remember_namespace(self, pid: int) -> None:
        if _namespace(pid) in {self._own_namespace, "", *self._namespaces}:
            return
        with suppress(OSError):
            file = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            name = str(Path(f"/proc/self/fd/{file}").readlink())
            if name == self._own_namespace or name in self._namespaces:
                os.close(file)
            else:
                self._namespaces[name] = file

    def left(self, patience_s: float = 10.0) -> list[str]:
        """What is still there after all commands have ended or were killed, as sentences. Folders are not included."""
        deadline = time.monotonic() + patience_s
        while True:
            result = self._left()
            if not result or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        for file in self._namespaces.values():
            os.close(file)
        self._namespaces.clear()
        return result

    def _left(self) -> list[str]:
        result = [f"process {pid}: {' '.join(command_line(pid))[:80]}" for pid in self.processes()]
        inhabited = {_namespace(pid) for pid in processes()} if self._namespaces else set()
        result += [f"namespace {name}" for name in self._namespaces.keys() & inhabited]
        result += [f"interface {name}" for name in interfaces() - self._interfaces]
        result += [f"mount {name}" for name in _mounts() - self._mounts if self._is_ours(name)]
        result += [f"cgroup {name}" for name in _cgroups() - self._cgroups if self._is_ours(name)]
        sockets = Path("/proc/net/unix").read_text().splitlines()[1:]
        return result + [f"socket {line.split()[-1]}" for line in sockets if str(self._folder) in line]

    def folders(self) -> list[str]:
        """What is in the temporary directory, as sentences; to be empty after a further command has ended."""
        return [f"temporary {path.name}" for path in self._tmp.iterdir()]

    def _is_ours(self, name: str) -> bool:
        return str(self._folder) in name or "backchannel" in name


@contextmanager
def nothing_left(folder: Path) -> Iterator[dict[str, str]]:
    """Fails after the block if the commands that it started with the environment that it gets have left anything.

    Args:
        folder: for their temporary directory.
    """
    watch, ended = Watch(folder), threading.Event()

    def observe() -> None:
        # Namespaces can only be found while a command lives in them.
        while not ended.wait(0.05):
            watch.processes()

    observer = threading.Thread(target=observe)
    observer.start()
    try:
        yield watch.environment
    finally:
        ended.set()
        observer.join()
    left = watch.left(20.0) + watch.folders()
    assert not left, "; ".join(left)


def _namespace(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def _mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _cgroups() -> set[str]:
    return {top for top, _, _ in os.walk(CGROUPS)}
