"""Programs that read foreign bytes, without privileges, network or other files (agents/node/src/confined.rs)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed import node_binary


def words(
    command: Sequence[str], read: Iterable[Path | str] = (), write: Iterable[Path | str] = (), *, traces: bool = False
) -> list[str]:
    """The command line that confines a command.

    Args:
        command: the program and its arguments.
        read: files and folders that it may read, beside the system's programs and libraries.
        write: files and folders that it may also write.
        traces: it may trace and signal the processes that it starts.

    Raises:
        Unavailable: the node binary is not built.
    """
    allowed = [f"--read={path}" for path in read] + [f"--write={path}" for path in write]
    return [node_binary.path(), "confined", *allowed, *(["--traces"] if traces else []), "--", *command]
