"""packetdrill's scripts on a virtual kernel: each in a machine of its own, in virtual time, without root.

packetdrill is a program of its own (github.com/google/packetdrill), which Debian 12 does not have: whoever runs its
scripts has its source with them, and builds it there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from testbed import build_cache
from testbed.errors import BadRequest, TestbedError, Unavailable
from testbed.local_folders import ScratchFolder
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine, inside_environment, reason


class Version(StrEnum):
    """How a script's sockets and packets speak IP."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"
    MAPPED = "ipv4-mapped-ipv6"


#: Addresses and words of each, as the scripts' own runners have them: cookies of TCP Fast Open depend on addresses.
_OF_IPV4 = (
    "--local_ip=192.168.0.1",
    "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0",
    "--remote_ip=192.0.2.1",
    "--define",
    "TFO_COOKIE=3021b9d889017eeb",
    "--define",
    "TFO_COOKIE_ZERO=b7c12350a90dc8f5",
    "--define",
    "CODE=host_unreachable",
)
_ERRORS_OF_IPV6 = ("--define", "CMSG_LEVEL_IP=SOL_IPV6", "--define", "CMSG_TYPE_RECVERR=IPV6_RECVERR")
ARGUMENTS: dict[Version, tuple[str, ...]] = {
    Version.IPV4: (*_OF_IPV4, "--define", "CMSG_LEVEL_IP=SOL_IP", "--define", "CMSG_TYPE_RECVERR=IP_RECVERR"),
    Version.MAPPED: (*_OF_IPV4, *_ERRORS_OF_IPV6),
    Version.IPV6: (
        "--mtu=1520",
        "--local_ip=fd3d:0a0b:17d6::1",
        "--gateway_ip=fd3d:0a0b:17d6:8888::1",
        "--remote_ip=fd3d:fa7b:d17d::1",
        "--define",
        "TFO_COOKIE=c1d1e9742a47a9bc",
        "--define",
        "TFO_COOKIE_ZERO=82af1a8f9a205c34",
        "--define",
        "CODE=addr_unreachable",
        *_ERRORS_OF_IPV6,
    ),
}
#: packetdrill in a checkout of its source, from the checkout's root.
BUILT = Path("gtests", "net", "packetdrill", "packetdrill")
#: A script that speaks one version only says so on a line of its own, or by its name.
OWN_VERSION = re.compile(r"^--ip_version=(\S+)", re.MULTILINE)
#: Of the entropy inside: every run of a script is the same.
SEED = 1
#: The first program inside.
FIRST = Path(__file__).with_name("scripted.py")
TICKS = Path(__file__).with_name("ticks.c")
#: Most of a script's output that is kept, in bytes.
OUTPUT_BYTES = 1 << 20
#: What packetdrill says of a failure: "FILE:LINE: what".
COMPLAINT = re.compile(r"^\S+\.pkt:(\d+): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of a script."""

    script: Path
    version: Version
    passed: bool
    #: packetdrill's sentence, or why it did not run; "" if it passed.
    reason: str
    #: All that it printed.
    output: str


def scripts(paths: Iterable[Path]) -> list[Path]:
    """The scripts that are named, and those of folders.

    Raises:
        BadRequest: a file does not exist, or a folder has no script.
    """
    paths_found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.pkt"))
            if not inside:
                raise BadRequest(f"{path} has no packetdrill script, which would be a file *.pkt")
            paths_found += inside
        elif path.is_file():
            paths_found.append(path)
        else:
            raise BadRequest(f"{path} does not exist")
    return [path.resolve() for path in paths_found]


def versions(script: Path, chosen: Sequence[Version]) -> list[Version]:
    """Those of the chosen versions that a script is for: the one that it states, or by its name, or all."""
    stated = OWN_VERSION.findall(script.read_text(errors="replace"))
    if stated:
        return [version for version in chosen if version in stated]
    if script.stem.endswith("v6"):
        return [version for version in chosen if version == Version.IPV6]
    if script.stem.endswith("v4"):
        return [version for version in chosen if version != Version.IPV6]
    return list(chosen)


def program(named: Path | None, scripts: Iterable[Path]) -> Path:
    """packetdrill: the named one, that of the checkout which the scripts are in, or the one in PATH.

    Raises:
        Unavailable: there is none.
    """
    if named is not None:
        if not named.is_file():
            raise BadRequest(f"program {named} does not exist")
        return named.resolve()
    checkouts = [folder for script in scripts for folder in script.parents if (folder / BUILT).parent.is_dir()]
    for folder in checkouts:
        if (folder / BUILT).is_file():
            return folder / BUILT
    if installed := shutil.which("packetdrill"):
        return Path(installed)
    source = checkouts[0] if checkouts else Path("CHECKOUT")
    raise Unavailable(
        f"packetdrill was not found: build it with 'cd {source / BUILT.parent} && ./configure && make', or name it "
        "with --program FILE. Its source is the repository google/packetdrill; it needs gcc, make, flex and bison"
    )


def preload() -> Path:
    """The library that lets packetdrill find a tick, from the cache or compiled.

    Raises:
        Unavailable: it has to be compiled, and there is no gcc.
        TestbedError: it cannot be compiled.
    """
    place = build_cache.place("packetdrill")
    folder = place / hashlib.sha256(TICKS.read_bytes()).hexdigest()[:12]
    library = "ticks.so"

    def build(scratch: Path) -> None:
        if shutil.which("gcc") is None:
            raise Unavailable("running packetdrill needs gcc: apt-get install gcc")
        words = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(scratch / build_cache.BUILT / library), str(TICKS)]
        build_cache.logged(words, place / "build.log")

    build_cache.build_once(folder, "lock", "compiling a library", 1 << 20, build)
    return folder / library


def run(script: Path, version: Version, kernel: Kernel, program: Path, more: Sequence[str] = ()) -> Verdict:
    """Runs a script.

    Args:
        script: its file.
        version: of IP.
        kernel: that it tests.
        program: packetdrill.
        more: arguments of packetdrill, behind ours.

    Raises:
        Unavailable: the machine lacks something that every script needs.
        TestbedError: the machine cannot be confined.
    """
    library = preload()
    with ScratchFolder() as scratch:
        folder = scratch / "host"
        folder.mkdir()
        request = {
            "program": str(program),
            "folder": str(script.parent),
            "preload": str(library),
            "arguments": [f"--ip_version={version}", *ARGUMENTS[version], *more, script.name],
        }
        (folder / "request.json").write_text(json.dumps(request))
        environment = inside_environment()
        # Scripts call programs in Python, and the first python3 in PATH may be a wrapper in a folder that is hidden.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        VirtualMachine(kernel).boot(
            (sys.executable, "-S", "-P", str(FIRST), str(folder)),
            environment,
            SEED,
            scratch,
            scratch / "kernel.log",
            (_root(script), program, library),
        )
        return _verdict(script, version, folder, scratch / "kernel.log")


def _verdict(script: Path, version: Version, folder: Path, log: Path) -> Verdict:
    output, status = (folder / name for name in ("output", "status"))
    with output.open("rb") if output.exists() else io.BytesIO() as file:
        said = file.read(OUTPUT_BYTES).decode(errors="replace")
    if not status.exists():
        raise TestbedError(f"{script}: the virtual kernel ended before its script: {reason(folder / 'guest.log', log)}")
    passed = status.read_text() == "0"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    complaint = COMPLAINT.search(said)
    why = (
        "line {}: {}".format(*complaint.groups())
        if complaint
        else lines[-1]
        if lines
        else f"exit status {status.read_text()}"
    )
    return Verdict(script, version, passed, "" if passed else why, said)


def _root(script: Path) -> Path:
    """What a script may read: its checkout, or else the folder above its own."""
    above = script.parents
    roots = (folder for folder in above if (folder / ".git").exists() or (folder / BUILT).parent.is_dir())
    return next(roots, above[min(1, len(above) - 1)])
