"""Builds a kernel for virtual time: a series from Debian's source package, or a tree that the user has.

Nothing is installed and no privilege is needed. A build fills a scratch folder and appears in the cache as a whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from testbed import build_cache
from testbed.errors import BadRequest, TestbedError, Unavailable
from testbed.units import number_of
from testbed.virtual_kernel import kernels, own_code
from testbed.virtual_kernel.kernels import Kernel, Series

#: Programs that a build needs, and the Debian package of each.
PROGRAMS = {
    "make": "make",
    "gcc": "gcc",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "tar": "tar",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
#: The build's date and place are in the kernel's version, which Linux mixes into its entropy.
MAKE = (
    "make",
    "ARCH=um",
    "KBUILD_BUILD_TIMESTAMP=2000-01-01",
    "KBUILD_BUILD_USER=backchannel",
    "KBUILD_BUILD_HOST=backchannel",
    "KBUILD_BUILD_VERSION=1",
)
#: About, of a whole build: lines of output, and seconds of CPU time of the reference machine. For the progress only.
BUILD_LINES, BUILD_CPU_S = 1150, 430
#: Free space that a build needs.
ROOM_BYTES = 3 << 30
#: Folders that a build reads of the source's 90,000 files, whose removal would take longer than the build on some file
#: systems; and every Kconfig and Makefile.
FOLDERS = (
    "[A-Z]*",
    "arch/um",
    "arch/x86",
    "block",
    "certs",
    "crypto/*.[ch]",
    "drivers/base",
    "drivers/char/*.[ch]",
    "drivers/net/*.[ch]",
    "drivers/tty",
    "fs/*.[ch]",
    "fs/devpts",
    "fs/hostfs",
    "fs/iomap",
    "fs/kernfs",
    "fs/notify",
    "fs/proc",
    "fs/ramfs",
    "fs/sysfs",
    "include",
    "init",
    "io_uring",
    "ipc",
    "kernel",
    "lib",
    "mm",
    "net/*.[ch]",
    "net/core",
    "net/ethernet",
    "net/ethtool",
    "net/ipv4",
    "net/ipv6",
    "net/netlink",
    "net/packet",
    "net/sched",
    "net/unix",
    "scripts",
    "security/*.[ch]",
    "tools/include",
    "usr",
    "virt",
)
ANYWHERE = ("*/Kconfig*", "*/Makefile*", "*/Kbuild*", "*.include")
#: The same for tar, whose wildcards match slashes or not.
UNPACKED = (
    "--wildcards",
    "--wildcards-match-slash",
    *ANYWHERE,
    "--no-wildcards-match-slash",
    *(f"*/{part}" for part in FOLDERS),
)
#: Keys of Debian's archive, for a suite that the machine's own lists do not have.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: In the folder of a kept tree: the version of its source, once it is built.
COMPLETE = "complete"
#: Follows an option of the configuration that not every tree has.
OPTIONAL = "# optional"

Say = Callable[[str], None]


def build(name: str, say: Say) -> Kernel:
    """A series' kernel from the cache, or a new one.

    Args:
        name: of a series.
        say: receives lines about the progress.

    Raises:
        Unavailable: a program that the build needs is missing.
        BadRequest: unknown series.
        TestbedError: the build failed; the message names the log.
    """
    series = _series(name)
    kernel = kernels.find(name)
    if kernel.binary.exists():
        return kernel
    log = _log(name)

    def make(scratch: Path) -> None:
        _require(PROGRAMS)
        _announce(f"Linux {name}", say)
        log.write_bytes(b"")
        version, tree = _debian_source(series, scratch, log, say)
        _compile(tree, scratch, log, say, f"Debian {version}")

    build_cache.build_once(kernel.folder, f"lock-{name}", "building a kernel", ROOM_BYTES, make)
    return kernel


def build_for_runs(full: str, say: Say) -> Kernel:
    """The kernel of runs, by the full name that their ids have; a series that the machine lacks is built.

    Raises:
        Unavailable: it is one of the user's, and not here; or a program that the build needs is missing.
        TestbedError: this version of the software does not build that kernel, or the build failed.
    """
    series = next((series for series in kernels.SERIES if kernels.full_name(series.name) == full), None)
    return kernels.named(full) if series is None else build(series.name, say)


def build_own(
    name: str, say: Say, *, tree: Path | None, version: str = kernels.DEFAULT, hz: int | None = None
) -> Kernel:
    """A kernel of the user's. Replaces the one of that name when it is built.

    Args:
        name: by which campaigns will choose it.
        say: receives lines about the progress.
        tree: source of Linux, without objects of a build of its own; it is only read. None: Debian's source.
        version: the series of Debian's source.
        hz: timer interrupts a second; None: User-Mode Linux's own, 100.

    Raises:
        Unavailable: a program that the build needs is missing.
        BadRequest: the name, the series or the tree is not usable.
        TestbedError: the build failed; the message names the log.
    """
    _require_name(name)
    if tree is None:
        series, what = _series(version), f"Linux {version}"
    else:
        tree = tree.resolve()
        what = f"Linux {linux_version(tree)}"
        if (tree / ".config").exists() or (tree / "include" / "config").exists():
            raise BadRequest(
                f"{tree} has a build of its own, which mixes with this one: run 'make mrproper' in it first"
            )
    _require(
        PROGRAMS if tree is None else {program: PROGRAMS[program] for program in ("make", "gcc", "flex", "bison", "bc")}
    )
    place, log = build_cache.place("kernels"), _log(name)
    with (
        build_cache.locked(place, f"lock-{name}"),
        build_cache.scratch(place, "building a kernel", ROOM_BYTES) as scratch,
    ):
        _announce(what if tree is None else f"{what} from {tree}", say)
        log.write_bytes(b"")
        if tree is None:
            package, tree = _debian_source(series, scratch, log, say)
            what = f"Debian {package}"
        made = _compile(tree, scratch, log, say, what if hz is None else f"{what} HZ={hz}", hz)
        _publish(made, scratch, name)
    return kernels.find(name)


def _publish(made: Path, scratch: Path, name: str) -> None:
    """Puts a build into the cache, as the user's kernel of that name."""
    digest = hashlib.sha256((made / "release").read_bytes()).hexdigest()[:12]
    folder = build_cache.place("kernels") / f"linux-{name}-{digest}"
    if not folder.exists():
        made.rename(folder)
    link = scratch / "link"
    link.symlink_to(folder.name)
    link.rename(kernels.pointer(name))


def _require_name(name: str) -> None:
    if kernels.NAME.fullmatch(name) is None:
        raise BadRequest(
            f"'{name}' is not a name for a kernel: use up to 40 lower-case letters, digits and hyphens, and a letter "
            "first, with --name NAME"
        )


def build_with(files: Sequence[Path], name: str, say: Say) -> Kernel:
    """The default series with C files compiled in: congestion controls (`tcp_*.c`) and qdiscs (`sch_*.c`).

    The series' source and objects stay in the user's cache, so that a further build compiles the files and links. A
    build replaces the user's kernel of that name.

    Raises:
        Unavailable: a program that the build needs is missing.
        BadRequest: the name or a file is not usable, or a file does not compile.
        TestbedError: the build failed otherwise; the message names the log.
    """
    _require_name(name)
    parts = [own_code.read(file) for file in files]
    series = kernels.SERIES[0]
    place, log = build_cache.place("kernels"), _log(name)
    tree = _kept_tree(series)
    with (
        build_cache.locked(tree.parent, f"lock-{series.name}"),
        build_cache.scratch(place, "building a kernel", ROOM_BYTES) as scratch,
    ):
        _require(PROGRAMS)
        log.write_bytes(b"")
        if not (tree / COMPLETE).exists():
            _announce(f"Linux {series.name}, whose objects are kept for further builds,", say)
            shutil.rmtree(tree, ignore_errors=True)
            (tree / "objects").mkdir(parents=True)
            version, source = _debian_source(series, scratch, log, say)
            shutil.move(source, tree / "source")
            make = _make_words(tree / "source", tree / "objects", tree)
            _configure(make, tree / "objects", log)
            _make(make, log, say)
            (tree / COMPLETE).write_text(version)
        version = (tree / COMPLETE).read_text()
        build_cache.used(tree)
        say(f"compiling {' and '.join(part.file for part in parts)} into Linux {series.name}")
        make = _make_words(tree / "source", tree / "objects", tree)
        with own_code.placed(tree / "source", parts):
            try:
                _make(make, log, lambda _: None)
            except TestbedError:
                raise BadRequest(own_code.errors(log.read_text(errors="replace"), files)) from None
        digest = hashlib.sha256("".join(part.text for part in parts).encode()).hexdigest()
        origin = f"Debian {version} with {' '.join(part.file for part in parts)} sha256:{digest}"
        made = _collect(tree / "source", tree / "objects", scratch, log, origin)
        (made / kernels.ADDED).write_text("".join(f"{part.kind} {part.name}\n" for part in parts))
        _publish(made, scratch, name)
    return kernels.find(name)


def _kept_tree(series: Series) -> Path:
    """The folder of a series' source and objects, which are built where they stay: make keeps paths in them."""
    return build_cache.place("trees") / kernels.find(series.name).folder.name


def linux_version(tree: Path) -> str:
    """The version of a source tree, such as 7.3.4 or 7.4.0-rc2.

    Raises:
        BadRequest: it is not Linux, or has no User-Mode Linux for this machine.
    """
    try:
        text = (tree / "Makefile").read_text(errors="replace")
    except OSError:
        text = ""
    fields = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *(\S*)$", text, re.MULTILINE))
    if "PATCHLEVEL" not in fields or not (tree / "arch" / "um").is_dir():
        raise BadRequest(f"{tree} is not a source tree of Linux: it has no Makefile with a version and no arch/um")
    return "{VERSION}.{PATCHLEVEL}.{SUBLEVEL}{EXTRAVERSION}".format(**{"SUBLEVEL": "0", "EXTRAVERSION": "", **fields})


def _series(name: str) -> Series:
    series = kernels.series(name)
    if series is None:
        allowed = ", ".join(series.name for series in kernels.SERIES)
        raise BadRequest(
            f"unknown version of Linux '{name}': Debian's sources are built for {allowed}; --source FOLDER builds "
            "another tree"
        )
    return series


def _log(name: str) -> Path:
    return build_cache.place("kernels") / f"build-{name}.log"


def _announce(what: str, say: Say) -> None:
    cpus = len(os.sched_getaffinity(0))
    minutes = max(1, round(BUILD_CPU_S / cpus / 60))
    say(f"building {what} for virtual time, once: about {minutes} min on {number_of(cpus, 'CPU')}")


def _require(programs: dict[str, str]) -> None:
    lacking = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if lacking:
        raise Unavailable(f"building a kernel needs programs that are missing: apt-get install {' '.join(lacking)}")


# The source ----------------------------------------------------------------------------------------------------------


def _debian_source(series: Series, scratch: Path, log: Path, say: Say) -> tuple[str, Path]:
    """Fetches and unpacks the source of a series. Returns the package's version and the tree."""
    if series.suite is None:
        package = f"linux-source-{series.name}"
        deb = _download(("apt-get", "-q"), package, scratch, log, may_update=True)
    else:
        apt = _apt_of(series.suite, scratch, log)
        package = _newest(series, apt)
        deb = _download(apt, package, scratch, log)
    version = deb.name.split("_")[1].replace("%3a", ":")
    _check_pin(series, deb, version, say)
    build_cache.logged(["dpkg-deb", "-x", deb.name, "package"], log, cwd=scratch)
    archive = next((scratch / "package" / "usr" / "src").glob("linux-source-*.tar.xz"))
    build_cache.logged(["tar", "-xf", str(archive), *UNPACKED], log, cwd=scratch)
    tree = scratch / archive.name.removesuffix(".tar.xz")
    shutil.rmtree(scratch / "package")
    deb.unlink()
    return version, tree


def _download(apt: Iterable[str], package: str, scratch: Path, log: Path, may_update: bool = False) -> Path:
    words = [*apt, "download", package]
    try:
        build_cache.logged(words, log, cwd=scratch)
    except TestbedError:
        if not may_update or os.geteuid() != 0:
            raise
        # The package lists may be missing, or name a version that the archive has replaced.
        build_cache.logged([*apt, "update"], log, cwd=scratch)
        build_cache.logged(words, log, cwd=scratch)
    return next(scratch.glob("linux-source-*.deb"))


def _apt_of(suite: str, scratch: Path, log: Path) -> tuple[str, ...]:
    """apt-get with lists of its own: one suite of the Debian archive that this machine uses."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    archive = next((uri for uri in targets.stdout.split() if uri.rstrip("/").endswith("/debian")), None)
    if archive is None or not KEYRING.exists():
        raise Unavailable(
            f"this machine's package sources have no Debian archive with the suite {suite}: build a source tree of "
            "your own with './backchannel kernel build --source FOLDER --name NAME'"
        )
    apt = scratch / "apt"
    (apt / "lists" / "partial").mkdir(parents=True)
    (apt / "list").write_text(f"deb [signed-by={KEYRING}] {archive} {suite} main\n")
    options = {
        "Dir::Etc::sourcelist": apt / "list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
    }
    words = ("apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}")))
    build_cache.logged([*words, "update"], log, cwd=scratch)
    return words


def _newest(series: Series, apt: tuple[str, ...]) -> str:
    """The package to download: the pinned version, or else the newest of the series, or of a later one."""
    listed = subprocess.run(
        ["apt-cache", *apt[2:], "search", "--names-only", r"^linux-source-[0-9.]+$"],
        capture_output=True,
        text=True,
        check=False,
    )
    major, minor = (int(part) for part in series.name.split("."))
    names = {line.split()[0].removeprefix("linux-source-") for line in listed.stdout.splitlines() if line.strip()}
    later = sorted(
        (tuple(map(int, name.split("."))) for name in names if re.fullmatch(rf"{major}\.\d+", name)), reverse=True
    )
    if series.name in names:
        package = f"linux-source-{series.name}"
    elif later and later[0][1] > minor:
        package = f"linux-source-{later[0][0]}.{later[0][1]}"
    else:
        raise TestbedError(
            f"the suite {series.suite} of this machine's Debian archive has no linux-source-{series.name}"
        )
    if series.pinned is None:
        return package
    offered = subprocess.run(["apt-cache", *apt[2:], "madison", package], capture_output=True, text=True, check=False)
    versions = [line.split("|")[1].strip() for line in offered.stdout.splitlines() if line.count("|") == 2]
    return f"{package}={series.pinned[0]}" if series.pinned[0] in versions else package


def _check_pin(series: Series, deb: Path, version: str, say: Say) -> None:
    if series.pinned is None:
        return
    pinned, digest = series.pinned
    if version != pinned:
        say(f"Debian's archive has replaced Linux {pinned}; taking {version}")
    elif hashlib.sha256(deb.read_bytes()).hexdigest() != digest:
        raise TestbedError(f"{deb.name} does not have the SHA-256 {digest} that {Path(__file__).parent.name} pins")


# The build -----------------------------------------------------------------------------------------------------------


def _compile(tree: Path, scratch: Path, log: Path, say: Say, source: str, hz: int | None = None) -> Path:
    """Builds a tree in a scratch folder. Returns the folder with what belongs in the cache."""
    objects = scratch / "objects"
    objects.mkdir()
    make = _make_words(tree, objects, scratch)
    if hz is not None:
        first = scratch / "Kconfig"
        first.write_text(with_ticks((tree / "Kconfig").read_text(), hz))
        make = (*make, f"KBUILD_KCONFIG={first}")
    _configure(make, objects, log)
    _make(make, log, say)
    return _collect(tree, objects, scratch, log, source)


def _make_words(tree: Path, objects: Path, base: Path) -> tuple[str, ...]:
    # The base folder makes paths relative, so that a build in another scratch folder finds what this one compiled.
    ccache = ["CC=ccache gcc"] if shutil.which("ccache") else []
    return ("env", f"CCACHE_BASEDIR={base}", *MAKE, "-C", str(tree), f"O={objects}", *ccache)


def _collect(tree: Path, objects: Path, scratch: Path, log: Path, source: str) -> Path:
    """The folder with what of a build belongs in the cache."""
    made = scratch / build_cache.BUILT
    shutil.copy2(objects / "linux", made / "linux")
    build_cache.logged(["strip", str(made / "linux")], log, cwd=scratch)
    preloaded = made / "preloaded.so"
    words = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(preloaded), *map(str, kernels.PRELOADED)]
    build_cache.logged(words, log, cwd=scratch)
    digest = hashlib.sha256((made / "linux").read_bytes() + preloaded.read_bytes()).hexdigest()
    (made / "release").write_text(f"{source} sha256:{digest}\n")
    has = (objects / ".config").read_text()
    lacks = [
        feature
        for feature, present in {
            kernels.DUALPI2: "CONFIG_NET_SCH_DUALPI2=y" in has,
            kernels.FQ_PIE: "CONFIG_NET_SCH_FQ_PIE=y" in has,
            kernels.PRAGUE: "CONFIG_TCP_CONG_PRAGUE=y" in has,
            kernels.ACCECN: (tree / "include" / "net" / "tcp_ecn.h").exists(),
            kernels.SECCOMP: "seccomp=" in (tree / "arch" / "um" / "os-Linux" / "start_up.c").read_text(),
        }.items()
        if not present
    ]
    (made / "lacks").write_text("".join(f"{feature}\n" for feature in lacks))
    return made


def _configure(make: tuple[str, ...], objects: Path, log: Path) -> None:
    build_cache.logged([*make, "tinyconfig"], log)
    config = objects / ".config"
    text = kernels.CONFIG.read_text()
    asked = re.sub(rf" *{OPTIONAL}.*", "", text)
    config.write_text(config.read_text() + asked)
    build_cache.logged([*make, "olddefconfig"], log)
    missing = lacking_options(text, config.read_text())
    if missing:
        raise TestbedError(
            f"this tree does not have the options {', '.join(missing)}, which {kernels.CONFIG.name} needs"
        )


def with_ticks(options: str, hz: int) -> str:
    """A tree's first file of options with its own HZ, since an option's first default counts."""
    return options.replace("source ", f"config HZ\n\tint\n\tdefault {hz}\n\nsource ", 1)


def lacking_options(wanted: str, configured: str) -> list[str]:
    """Options that a configuration asks for (CONFIG_X=y) without OPTIONAL behind it, and does not have."""
    present = set(configured.splitlines())
    required = [line for line in wanted.splitlines() if line.startswith("CONFIG_") and OPTIONAL not in line]
    return [line.removesuffix("=y") for line in required if line not in present]


def _make(make: tuple[str, ...], log: Path, say: Say) -> None:
    started, told_s = time.monotonic(), 0.0
    words = [*make, f"-j{len(os.sched_getaffinity(0))}", "linux"]
    for number, _ in enumerate(build_cache.lines(words, log), 1):
        passed_s = time.monotonic() - started
        if passed_s - told_s >= 20:
            told_s = passed_s
            share = min(number / BUILD_LINES, 0.99)
            left_min = max(1, round(passed_s * (1 - share) / share / 60))
            say(f"building: {share:.0%}, about {left_min} min left")
