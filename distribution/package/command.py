"""The command `backchannel` of an installation; `./backchannel` is that of a checkout."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from testbed import build_cache, node_binary
from testbed.errors import TestbedError

#: Commands of the launcher that need what only a checkout has: tests, benchmarks, sources.
OF_A_CHECKOUT = frozenset({"bench", "build", "docs", "screenshots", "test"})
#: Where Debian installs Python packages. Of them only Mininet is used, which has no other home.
DEBIAN = Path("/usr/lib/python3/dist-packages")


def main() -> NoReturn:
    """Runs a command."""
    if (word := "".join(sys.argv[1:2])) in OF_A_CHECKOUT:
        sys.stderr.write(
            f"backchannel: '{word}' needs a checkout of the repository, with sources and tests; an installation has "
            "neither\n"
        )
        sys.exit(2)
    # Debian has some programs outside of the PATH of users.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    # For Ansible, whose plugins run in a process that does not know this package.
    os.environ["BACKCHANNEL_ROOT"] = str(node_binary.ROOT)
    # A user whose cache cannot be written has every command but those with Mininet.
    with suppress(OSError, TestbedError):
        show_mininet(build_cache.place("libraries"))
    importlib.import_module(f"{node_binary.PACKAGE}experiments.__main__")
    raise AssertionError("the command line exits")


def show_mininet(folder: Path, debian: Path = DEBIAN) -> None:
    """Makes Debian's Mininet, and nothing else of Debian's Python packages, visible to this process and its children.

    Args:
        folder: for a link to it.
        debian: the folder of Debian's Python packages.
    """
    if importlib.util.find_spec("mininet") is not None or not (debian / "mininet" / "net.py").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "mininet").symlink_to(debian / "mininet")
    sys.path.append(str(folder))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{before}{os.pathsep}{folder}" if before else str(folder)


if __name__ == "__main__":
    main()
