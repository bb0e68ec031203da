"""The kernels that run in virtual time, kept in the user's cache where `build` makes them, or in an installed package.

A kernel is one of SERIES, or one that the user built from a source tree and named. Its full name, which is part of a
run's id, has a digest: of the configuration and the preloaded library for a series, which is the same on every machine,
and of what was built for a tree. `release` has the exact version of the source and the digest of what was built.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed import build_cache
from testbed.errors import TestbedError, Unavailable

HERE = Path(__file__).parent
CONFIG = HERE / "kernel.config"
#: Sources of the library that is loaded into it: entropy from a seed, processors with wider registers, no interrupt
#: by the end of a process, memory without a file system.
PRELOADED = tuple(HERE / f"{name}.c" for name in ("seeded", "wide_registers", "quiet_children", "memory"))
#: Options of what campaigns can ask of a kernel and not every kernel has, by the campaign's word for it.
DUALPI2, FQ_PIE, ACCECN = "dualpi2", "fq_pie", "accecn"
#: Interception of system calls by seccomp, which costs a third less than by ptrace.
SECCOMP = "seccomp"
#: File of a kernel with the user's code in it: kind and name of each part (own_code).
ADDED = "added"
#: A congestion control that no series has.
PRAGUE = "prague"


@dataclass(frozen=True)
class Series:
    """A series of Linux whose source Debian packages."""

    #: As campaigns name it.
    name: str
    #: Suite of Debian's archive that has it, where the machine's own package lists do not.
    suite: str | None = None
    #: Version of the package that results of this version of the software were made with, and its SHA-256. None: the
    #: machine's newest.
    pinned: tuple[str, str] | None = None
    #: What it lacks of DUALPI2, FQ_PIE, ACCECN, SECCOMP and PRAGUE.
    lacks: frozenset[str] = frozenset({PRAGUE})


#: Those that are known to boot, the default first.
SERIES = (
    Series(
        "7.3",
        "trixie-backports",
        ("7.3.4-1~bpo13+1", "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3"),
    ),
    Series("6.12", lacks=frozenset({DUALPI2, ACCECN, SECCOMP, PRAGUE})),
    Series("6.1", lacks=frozenset({DUALPI2, ACCECN, SECCOMP, PRAGUE})),
)
DEFAULT = SERIES[0].name
#: The package with a built kernel (distribution/kernel), and its folder of kernels.
PACKAGE, PACKAGED = "backchannel_kernel", "kernels"
#: Names that a user may give a kernel; none is mistaken for a version.
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True)
class Kernel:
    """A built kernel."""

    #: As campaigns name it.
    name: str
    #: Its folder in the cache.
    folder: Path

    @property
    def binary(self) -> Path:
        """User-Mode Linux, an ordinary program."""
        return self.folder / "linux"

    @property
    def preloaded(self) -> Path:
        """The library that is loaded into it."""
        return self.folder / "preloaded.so"

    @property
    def lacks(self) -> frozenset[str]:
        """What it lacks of DUALPI2, FQ_PIE, ACCECN, SECCOMP and PRAGUE."""
        found = series(self.name)
        return found.lacks if found is not None else frozenset((self.folder / "lacks").read_text().split())

    @property
    def added(self) -> frozenset[tuple[str, str]]:
        """Kind (congestion, qdisc) and name of what the user's code in it adds."""
        path = self.folder / ADDED
        lines = path.read_text().splitlines() if path.exists() else []
        return frozenset((kind, name) for kind, name in (line.split(" ", 1) for line in lines))

    @property
    def release(self) -> str:
        """Version of the source, and the digest of binary and library."""
        return (self.folder / "release").read_text().strip()


def series(name: str) -> Series | None:
    """The series of that name."""
    return next((series for series in SERIES if series.name == name), None)


def names() -> list[str]:
    """Names that campaigns may use on this machine: every series, and the user's own kernels."""
    return [*(series.name for series in SERIES), *(kernel.name for kernel in _own())]


def unknown(name: str) -> str:
    """The message for a kernel that does not exist."""
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return (
        f"unknown kernel '{name}': {hint}this machine knows {', '.join(names())}; "
        "'./backchannel kernel build --source FOLDER --name NAME' adds one from a source tree"
    )


def built() -> list[Kernel]:
    """The kernels in the cache that this version of the software would use, the default first."""
    return [kernel for kernel in (*map(_of_series, SERIES), *_own()) if kernel.binary.exists()]


def full_name(name: str) -> str:
    """What identifies a kernel in a run's id.

    Args:
        name: as campaigns name it.

    Raises:
        TestbedError: unknown kernel.
    """
    return find(name).folder.name


def find(name: str) -> Kernel:
    """A kernel by its campaigns' name; a series need not be built.

    Raises:
        TestbedError: unknown kernel.
    """
    if (found := series(name)) is not None:
        return _of_series(found)
    own = next((kernel for kernel in _own() if kernel.name == name), None)
    if own is None:
        raise TestbedError(unknown(name))
    return own


def named(full: str) -> Kernel:
    """A built kernel, by its `full_name`.

    Raises:
        Unavailable: it is not built, with the command that builds it.
        TestbedError: this version of the software does not build that kernel.
    """
    found = next((series for series in SERIES if _of_series(series).folder.name == full), None)
    if found is None:
        name = full.removeprefix("linux-").rpartition("-")[0]
        kernel = Kernel(name, build_cache.place("kernels") / full)
        if NAME.fullmatch(name) is None:
            raise TestbedError(f"this version of Backchannel has no kernel '{full}'")
        if not kernel.binary.exists():
            raise Unavailable(
                f"this machine has no kernel '{full}': build it from the same source tree with "
                f"'./backchannel kernel build --source FOLDER --name {name}'"
            )
        return kernel
    kernel = _of_series(found)
    if not kernel.binary.exists():
        raise Unavailable(
            f"Linux {found.name} for virtual time is not built yet: './backchannel kernel build --version "
            f"{found.name}' builds it from Debian's source, once, in some minutes; the package backchannel-kernel "
            "of this version has it built"
        )
    return kernel


def _of_series(found: Series) -> Kernel:
    name = f"linux-{found.name}-{_digest(found.name)}"
    kernel = Kernel(found.name, build_cache.place("kernels") / name)
    return (
        kernel if (installed := _installed(name)) is None or kernel.binary.exists() else Kernel(found.name, installed)
    )


@cache
def _installed(name: str) -> Path | None:
    """The folder of an installed package with a kernel of this full name."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(place) / PACKAGED / name for place in (spec and spec.submodule_search_locations) or ()]
    return next((folder for folder in folders if folder.is_dir()), None)


def _digest(series_name: str) -> str:
    return _digest_of(series_name, CONFIG, *PRELOADED)


@cache
def _digest_of(series_name: str, *files: Path) -> str:
    parts = [series_name.encode(), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:12]


def pointer(name: str) -> Path:
    """The link to the folder of a user's kernel; a new build of the same name replaces it."""
    return build_cache.place("kernels") / f"named-{name}"


def _own() -> Iterable[Kernel]:
    for link in sorted(build_cache.place("kernels").glob("named-*")):
        if (folder := link.resolve()).is_dir():
            yield Kernel(link.name.removeprefix("named-"), folder)
