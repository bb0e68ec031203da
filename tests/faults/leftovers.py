"""What a killed command has left on the machine: processes, namespaces, interfaces, mounts, sockets, folders."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from tests.emulated.test_cell import interfaces

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
        self._own_namespace = _namespace(os.getpid())
        self._namespaces: set[str] = set()

    def processes(self) -> list[int]:
        """The commands' processes, in ascending order. Their network namespaces are remembered."""
        result = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark.encode() in (entry / "environ").read_bytes():
                    result.append(int(entry.name))
            except OSError:
                continue
        self._namespaces |= {_namespace(pid) for pid in result} - {self._own_namespace, ""}
        return sorted(result)

    def left(self, patience_s: float = 10.0) -> list[str]:
        """What is still there after all commands have ended or were killed, as sentences. Folders are not included."""
        deadline = time.monotonic() + patience_s
        while True:
            result = [f"process {pid}: {' '.join(command_line(pid))[:80]}" for pid in self.processes()]
            inhabited = {_namespace(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
            result += [f"namespace {name}" for name in self._namespaces & inhabited]
            result += [f"interface {name}" for name in interfaces() - self._interfaces]
            result += [f"mount {name}" for name in _mounts() - self._mounts if self._is_ours(name)]
            result += [f"cgroup {name}" for name in _cgroups() - self._cgroups if self._is_ours(name)]
            sockets = Path("/proc/net/unix").read_text().splitlines()[1:]
            result += [f"socket {line.split()[-1]}" for line in sockets if str(self._folder) in line]
            if not result or time.monotonic() > deadline:
                return result
            time.sleep(0.05)

    def folders(self) -> list[str]:
        """What is in the temporary directory, as sentences; to be empty after a further command has ended."""
        return [f"temporary {path.name}" for path in self._tmp.iterdir()]

    def _is_ours(self, name: str) -> bool:
        return str(self._folder) in name or "backchannel" in name


def _namespace(pid: int) -> str:
    try:
        return str((Path("/proc") / str(pid) / "ns/net").readlink())
    except OSError:
        return ""


def _mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _cgroups() -> set[str]:
    return {top for top, _, _ in os.walk(CGROUPS)}
