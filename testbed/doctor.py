"""What a machine has and lacks, for `doctor`: the machine, its kernel, rights and clock.

Readings of /proc and /sys are arguments of the functions that judge them.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import capability
from testbed.units import number_of

#: Machines that the node binary is built for.
MACHINES = ("x86_64", "aarch64")
#: Sources of time that a processor reads itself, in some tens of nanoseconds. Others take a microsecond or more.
QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen")
#: adjtimex(2): no program keeps the clock right.
STA_UNSYNC = 0x40
#: Sleeps by which lateness is measured, and the length of each in s.
SLEEPS, SLEEP_S = 100, 0.001
#: An emulated run's default limit: one packet in a hundred may leave later than this, in s.
LATE_S = 0.002
#: What of the kernel only some features need: words that try it in namespaces of their own, and who needs it.
FEATURES = {
    "netem": (
        "tc qdisc add dev lo root netem delay 1ms",
        "links of the kind 'kernel' with delay or loss (docs/links.md)",
        "modprobe sch_netem; kernels such as WSL 2's do not have it: use Backchannel's own links",
    ),
    "bridge": ("ip link add type bridge", "hosts of one emulated network segment", "modprobe bridge"),
}


@dataclass(frozen=True)
class Finding:
    """What was found about one subject."""

    subject: str
    #: None: nothing that works or does not.
    works: bool | None
    detail: str
    #: A sentence for each thing that is missing, with the command that provides it.
    missing: tuple[str, ...] = ()


def machine(machine_name: str, cpus: int, meminfo: str, os_release: str, where: str) -> Finding:
    """The machine.

    Args:
        machine_name: as `uname -m` names it.
        cpus: that this process may use.
        meminfo: text of /proc/meminfo.
        os_release: text of /etc/os-release.
        where: as `surroundings` names it.
    """
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    memory_gb = int(fields["MemTotal"].split()[0]) * 1024 / 1e9
    system = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    name = system.get("PRETTY_NAME", "an unknown distribution").strip('"')
    detail = f"{machine_name}, {number_of(cpus, 'CPU')}, {memory_gb:.1f} GB, {name}{where}"
    known = machine_name in MACHINES
    return Finding("machine", known, detail, () if known else (f"supported are {' and '.join(MACHINES)}",))


def surroundings(osrelease: str, cpuinfo: str, is_container: bool) -> str:
    """What the machine is part of, for a sentence.

    Args:
        osrelease: of the kernel.
        cpuinfo: text of /proc/cpuinfo.
        is_container: whether a container's marks are there.
    """
    parts = []
    if "microsoft" in osrelease.lower():
        parts.append("WSL 2")
    elif " hypervisor" in cpuinfo:
        parts.append("a virtual machine")
    if is_container:
        parts.append("a container")
    return f" ({', in '.join(parts)})" if parts else ""


def kernel(release: str, refuses: Callable[[str], str | None]) -> Finding:
    """The kernel, and the features that some campaigns need.

    Args:
        release: as `uname -r` prints it.
        refuses: what the kernel says against a command in namespaces of its own; None if it does it.
    """
    if (reason := refuses("true")) is not None:
        detail = f"Linux {release}; its features are not known, because it makes no namespaces here: {reason}"
        return Finding("kernel", None, detail)
    missing = [
        f"{name}, for {purpose}: {remedy}" for name, (words, purpose, remedy) in FEATURES.items() if refuses(words)
    ]
    has = ", ".join(name for name in FEATURES if not any(line.startswith(f"{name},") for line in missing))
    return Finding("kernel", not missing, f"Linux {release}{f' with {has}' if has else ''}", tuple(missing))


def rights(euid: int, status: str) -> Finding:
    """What this process may do.

    Args:
        euid: effective user id.
        status: text of /proc/self/status.
    """
    if euid != 0:
        return Finding("rights", None, "an ordinary user: everything but gateway, shell and rehearsals of labs")
    lacks = capability.lacking(status)
    if not lacks:
        return Finding("rights", True, "root with all capabilities")
    words = ", ".join(f"CAP_{name}" for name in lacks)
    return Finding(
        "rights", False, "root in a container", (f"let the container add {words} (testbed/container/job.yaml)",)
    )


def clock(source: str, is_synchronised: bool, lateness_s: Sequence[float]) -> Finding:
    """The clock.

    Args:
        source: the kernel's clock source.
        is_synchronised: whether a program keeps it right.
        lateness_s: by how much sleeps were too long, in s.
    """
    late_s = sorted(lateness_s)[math.ceil(0.99 * len(lateness_s)) - 1]
    detail = f"{source}, {'' if is_synchronised else 'not '}synchronised; sleeps end {late_s * 1e3:.2g} ms late (p99)"
    missing = []
    if source not in QUICK_CLOCKS:
        missing.append(f"reading {source} is slow: choose another in /sys/devices/system/clocksource/clocksource0")
    if late_s > LATE_S:
        missing.append(
            f"emulated runs need {LATE_S * 1e3:g} ms (p99) and would be repeated: stop other programs, or use "
            "--backend virtual-kernel, where nothing is late"
        )
    if not is_synchronised:
        missing.append("real hosts need synchronised clocks: apt-get install chrony")
    return Finding("clock", not missing, detail, tuple(missing))


def of_this_machine() -> list[Finding]:
    """The findings about this machine."""
    where = surroundings(platform.release(), _text("/proc/cpuinfo"), _is_container())
    cpus = len(os.sched_getaffinity(0))
    return [
        machine(platform.machine(), cpus, _text("/proc/meminfo"), _text("/etc/os-release"), where),
        kernel(platform.release(), _refused),
        rights(os.geteuid(), _text("/proc/self/status")),
        clock(
            _text("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip() or "an unknown source",
            is_synchronised(),
            [_late_s() for _ in range(SLEEPS)],
        ),
    ]


def is_synchronised() -> bool:
    """Whether a program keeps this machine's clock right, as adjtimex(2) reports it."""
    # Larger than any `struct timex`, whose int `status` follows `modes` and four longs. All zero reads only.
    timex = (ctypes.c_char * 512)()
    libc = ctypes.CDLL(None)
    if libc.adjtimex(timex) < 0:
        return False
    status = ctypes.c_int.from_buffer(timex, 5 * ctypes.sizeof(ctypes.c_long))
    return not status.value & STA_UNSYNC


def _late_s() -> float:
    before_s = time.monotonic()
    time.sleep(SLEEP_S)
    return time.monotonic() - before_s - SLEEP_S


def _refused(words: str) -> str | None:
    """What the kernel says against a command as root of namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    try:
        done = subprocess.run(
            ["unshare", *user, "--net", "--", "sh", "-c", words],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or "it failed"


def _is_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
