"""The kernels that run in virtual time: built once from Debian's source packages, kept in the user's cache.

A kernel is identified by Linux's version, its configuration and the library that is loaded into it. Debian's
version of the source and the digest of what was built are in its `release`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed import build_cache
from testbed.errors import TestbedError, Unavailable

HERE = Path(__file__).parent
CONFIG = HERE / "kernel.config"
#: Sources of the library that is loaded into it: entropy from a seed, and processors with wider registers.
PRELOADED = (HERE / "seeded.c", HERE / "wide_registers.c")
#: Versions that are known to boot, the default first.
VERSIONS = ("6.12", "6.1")
#: What a version needs beside the common configuration.
MORE_CONFIG: Mapping[str, tuple[str, ...]] = {
    # The default allocator of Linux 6.1 (SLOB) aligns memory to 8 bytes, and the compiler writes some of it with
    # instructions that need 16.
    "6.1": ("CONFIG_SLUB=y",),
}
#: Programs that a build needs, and the Debian package of each.
PROGRAMS = {
    "make": "make", "gcc": "gcc", "flex": "flex", "bison": "bison", "bc": "bc", "xz": "xz-utils", "tar": "tar",
    "apt-get": "apt", "dpkg-deb": "dpkg",
}  # fmt: skip
#: The build's date and place are in the kernel's version, which Linux mixes into its entropy.
MAKE = (
    "make", "ARCH=um", "KBUILD_BUILD_TIMESTAMP=2000-01-01", "KBUILD_BUILD_USER=backchannel",
    "KBUILD_BUILD_HOST=backchannel", "KBUILD_BUILD_VERSION=1",
)  # fmt: skip
#: Lines of output of a whole build, about; for the progress only.
BUILD_LINES = 1000
#: Free space that a build needs.
ROOM_BYTES = 4 << 30

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kernel:
    """A built kernel."""

    version: str
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
    def release(self) -> str:
        """Debian's version of the source package, and the digest of binary and library."""
        return (self.folder / "release").read_text().strip()


def built() -> list[Kernel]:
    """The kernels in the cache that this version of the software would build."""
    return [kernel for version in VERSIONS if (kernel := _kernel(version)).binary.exists()]


def name(version: str) -> str:
    """What identifies a kernel on every machine: its version, and the digest of its configuration and library."""
    return f"linux-{version}-{_digest(version, MORE_CONFIG.get(version, ()), CONFIG, *PRELOADED)}"


@cache
def _digest(version: str, more: tuple[str, ...], *files: Path) -> str:
    parts = [version.encode(), *(file.read_bytes() for file in files), *(option.encode() for option in more)]
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:12]


def _config(version: str) -> str:
    return "".join([CONFIG.read_text(), *(f"{option}\n" for option in MORE_CONFIG.get(version, ()))])


def named(kernel_name: str) -> Kernel:
    """A built kernel, by its `name`.

    Raises:
        Unavailable: it is not built, with the command that builds it.
        TestbedError: this version of the software does not build that kernel.
    """
    version = next((version for version in VERSIONS if name(version) == kernel_name), None)
    if version is None:
        raise TestbedError(f"this version of Backchannel has no kernel '{kernel_name}'")
    kernel = _kernel(version)
    if not kernel.binary.exists():
        raise Unavailable(
            f"there is no Linux {version} for virtual time yet: './backchannel kernel build --version {version}' "
            "builds it from Debian's source, once, in some minutes"
        )
    return kernel


def build(version: str, say: Say) -> Kernel:
    """The kernel from the cache, or a new one.

    Args:
        version: one of VERSIONS.
        say: receives lines about the progress.

    Raises:
        Unavailable: a program that the build needs is missing.
        TestbedError: the build failed; the message names the log.
    """
    if version not in VERSIONS:
        raise TestbedError(f"there is no Linux {version} to build; there are: {', '.join(VERSIONS)}")
    kernel = _kernel(version)
    log = kernel.folder.with_name(f"build-{version}.log")

    def make(new: Path) -> None:
        _require()
        _build(version, new, log, say)

    build_cache.build_once(kernel.folder, f"lock-{version}", "building a kernel", ROOM_BYTES, make)
    return kernel


def _kernel(version: str) -> Kernel:
    return Kernel(version, build_cache.place("kernels") / name(version))


def _require() -> None:
    lacking = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if lacking:
        raise Unavailable(f"building a kernel needs programs that are missing: apt-get install {' '.join(lacking)}")


def _build(version: str, folder: Path, log: Path, say: Say) -> None:
    log.write_bytes(b"")
    made = folder / build_cache.BUILT
    say(f"fetching the source of Linux {version}")
    # Not installed, so that no privilege is needed.
    download = ["apt-get", "-q", "download", f"linux-source-{version}"]
    try:
        build_cache.logged(download, log, cwd=folder)
    except TestbedError:
        if os.geteuid() != 0:
            raise
        # The package lists may be missing, or name a version that the archive has replaced.
        build_cache.logged(["apt-get", "-q", "update"], log, cwd=folder)
        build_cache.logged(download, log, cwd=folder)
    package = next(folder.glob("linux-source-*.deb"))
    build_cache.logged(["dpkg-deb", "-x", package.name, "package"], log, cwd=folder)
    archive = next((folder / "package" / "usr" / "src").glob("linux-source-*.tar.xz"))
    say("unpacking it")
    build_cache.logged(["tar", "-xf", str(archive)], log, cwd=folder)
    shutil.rmtree(folder / "package")
    tree = folder / f"linux-source-{version}"
    _configure(tree, _config(version), log)
    _make(tree, log, say)
    shutil.copy2(tree / "linux", made / "linux")
    build_cache.logged(["strip", str(made / "linux")], log, cwd=folder)
    preloaded = made / "preloaded.so"
    build_cache.logged(["gcc", "-O2", "-shared", "-fPIC", "-o", str(preloaded), *map(str, PRELOADED)], log, cwd=folder)
    digest = hashlib.sha256((made / "linux").read_bytes() + preloaded.read_bytes()).hexdigest()
    debian = package.name.split("_")[1]
    (made / "release").write_text(f"{debian} sha256:{digest}\n")


def _configure(tree: Path, wanted: str, log: Path) -> None:
    build_cache.logged([*MAKE, "tinyconfig"], log, cwd=tree)
    config = tree / ".config"
    config.write_text(config.read_text() + wanted)
    build_cache.logged([*MAKE, "olddefconfig"], log, cwd=tree)
    missing = lacking_options(wanted.splitlines(), config.read_text().splitlines())
    if missing:
        raise TestbedError(f"{tree.name} does not have the options {', '.join(missing)}, which {CONFIG.name} asks for")


def lacking_options(wanted: Iterable[str], configured: Iterable[str]) -> list[str]:
    """Options that are asked for (CONFIG_X=y) and not configured so."""
    present = set(configured)
    return [line.removesuffix("=y") for line in wanted if line.startswith("CONFIG_") and line not in present]


def _make(tree: Path, log: Path, say: Say) -> None:
    started, told_s, lines = time.monotonic(), 0.0, 0
    words = [*MAKE, f"-j{os.cpu_count() or 1}", "linux"]
    with log.open("ab") as file, subprocess.Popen(
        words, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            lines += 1
            passed_s = time.monotonic() - started
            if passed_s - told_s >= 20:
                told_s = passed_s
                share = min(lines / BUILD_LINES, 0.99)
                left_min = max(1, round(passed_s * (1 - share) / share / 60))
                say(f"building: {share:.0%}, about {left_min} min left")
    if process.returncode != 0:
        raise build_cache.failure(words, log)
