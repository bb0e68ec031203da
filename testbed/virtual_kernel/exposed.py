"""What a run in virtual time sees of the machine's files: programs, libraries, this software, and nothing of users."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed import node_binary

#: Folders below the root with files of users and services. Everything else there are programs and libraries, wherever
#: the system keeps them.
PRIVATE = frozenset(
    {"boot", "dev", "etc", "home", "lost+found", "media", "mnt", "proc", "root", "run", "srv", "sys", "tmp", "var"}
)
#: Files of /etc with secrets, and folders that have some among other files.
SECRET = frozenset({"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "private"})
MIXED = frozenset({"ssh", "ssl"})
#: Of devices and of the kernel's own files: what User-Mode Linux reads when it starts.
STARTS_WITH = ("/proc", "/dev/random", "/dev/urandom", "/dev/zero")
#: Names more folders and files, divided by colons: for programs that keep what they need in a home.
MORE = "BACKCHANNEL_VIRTUAL_KERNEL_READS"


def readable(kernel: Path, root: Path = Path("/")) -> list[Path]:
    """Files and folders that a run may read.

    Args:
        kernel: the folder of the kernel.
        root: of the machine's files.
    """
    system = [entry for entry in sorted(root.iterdir()) if entry.name not in PRIVATE]
    python = (sys.prefix, sys.base_prefix, *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    programs = os.environ.get("PATH", os.defpath).split(os.pathsep)
    more = os.environ.get(MORE, "").split(os.pathsep)
    software = (node_binary.ROOT, Path(node_binary.path()), kernel)
    return [
        *system,
        *_without_secrets(root / "etc"),
        *map(Path, STARTS_WITH),
        *software,
        *(Path(path) for path in (*python, *programs, *more) if path),
    ]


def _without_secrets(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.name in MIXED:
            yield from _without_secrets(entry)
        elif entry.name not in SECRET and not entry.name.endswith("_key"):
            yield entry


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()
