"""What the first program inside a virtual kernel does first and last: mounts file systems, ends the machine."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
#: File systems and where they are mounted.
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/run"),
)
#: Where the host's folder is, the only one that can be written.
HOST = Path("/run/host")
#: For reboot(2).
POWER_OFF = 0x4321FEDC
#: For mount(2).
BIND = 4096


def boot(folder: str) -> None:
    """Mounts what programs expect, and the host's folder, whose guest.log receives standard error."""
    for kind, place in MOUNTS:
        Path(place).mkdir(exist_ok=True)
        mount(kind, place)
    Path("/dev/net").mkdir(exist_ok=True)
    HOST.mkdir()
    mount("hostfs", str(HOST), folder)
    log = os.open(HOST / "guest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 2)


def mount(kind: str, place: str, options: str = "") -> None:
    """Mounts a file system.

    Raises:
        OSError: it cannot be mounted.
    """
    if _libc.mount(kind.encode(), place.encode(), kind.encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {kind}", place)


def show_again(folder: Path, at: Path) -> None:
    """Shows a folder at another place, too."""
    at.mkdir(parents=True, exist_ok=True)
    if _libc.mount(os.fsencode(folder), os.fsencode(at), None, BIND, None) != 0:
        raise OSError(ctypes.get_errno(), f"cannot show {folder}", str(at))


def power_off() -> None:
    """Ends the machine."""
    _libc.reboot(POWER_OFF)
