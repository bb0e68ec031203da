"""Requirements of the emulated backend on a machine, and the remedy for each that it lacks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from testbed import node_binary
from testbed.errors import Unavailable

PROGRAMS = {
    "mnexec": "mininet",
    "tcpdump": "tcpdump",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
    "ping": "iputils-ping",
}

#: Capabilities that root in a container may lack: the bit in linux/capability.h, and what needs it.
CAPABILITIES = {
    "SYS_ADMIN": (21, "namespaces and mounts of cells"),
    "NET_ADMIN": (12, "interfaces, addresses and routes"),
    "NET_RAW": (13, "captures"),
    "SYS_CHROOT": (18, "programs that enter a node's mount namespace"),
    "SYS_NICE": (23, "the real-time class, without which packets are late"),
    "SETUID": (7, "tcpdump"),
    "SETGID": (6, "tcpdump"),
}


#: Settings by which kernels forbid user namespaces to ordinary users: the value that does, and one that allows them.
USER_NAMESPACES = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),  # Ubuntu
    "kernel.unprivileged_userns_clone": ("0", "1"),  # Debian until 10
    "user.max_user_namespaces": ("0", "10000"),
}

#: Shown before an emulated run of an ordinary user.
WITHOUT_ROOT = (
    "you are not root: the emulated network is made in a user namespace, without the real-time class. Runs that are "
    "late are repeated; sudo makes fewer of them late."
)


def lacking(status: str) -> list[str]:
    """Capabilities of CAPABILITIES that a process lacks, from the text of its /proc/PID/status."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    effective = int(fields["CapEff"], 16)
    return [name for name, (bit, _) in CAPABILITIES.items() if not effective >> bit & 1]


def has_rights() -> bool:
    """Whether this process may build networks of real interfaces: root, with all of CAPABILITIES."""
    return os.geteuid() == 0 and not lacking(Path("/proc/self/status").read_text())


def cell_words() -> list[str]:
    """The command that makes a cell, without its own options and command: inside a user namespace without root.

    Raises:
        Unavailable: the node binary is not built.
    """
    return [node_binary.path(), "cell", *([] if os.geteuid() == 0 else ["--user-namespace"])]


def has_ipv6() -> bool:
    """Whether the kernel has IPv6, for hosts of the emulated backend."""
    return Path("/proc/sys/net/ipv6").exists()


def missing_for_emulation() -> list[str]:
    """One sentence for each missing requirement, with its remedy; empty when the backend can run.

    An ordinary user can run it where the kernel lets users make user namespaces.
    """
    missing = []
    is_root = os.geteuid() == 0
    if not is_root:
        if reason := _refused_cell():
            missing.append(
                "it needs root, or user namespaces of ordinary users, to make network namespaces and interfaces, and "
                f"{forbidding(Path('/proc/sys')) or reason}: run it with sudo, or with --backend virtual-kernel, which "
                "needs neither"
            )
    elif lacks := lacking(Path("/proc/self/status").read_text()):
        needs = ", ".join(f"CAP_{name} for {CAPABILITIES[name][1]}" for name in lacks)
        missing.append(
            f"root lacks {needs}: let the container add what testbed/container/job.yaml lists, or use "
            "--backend virtual-kernel, which needs none"
        )
    tun = Path("/dev/net/tun")
    if not tun.exists():
        missing.append("/dev/net/tun does not exist: 'modprobe tun', or give the container that device")
    elif not os.access(tun, os.R_OK | os.W_OK):
        missing.append("/dev/net/tun is not open to you: 'sudo chmod 666 /dev/net/tun'")
    missing += missing_programs()
    if is_root and not missing and (reason := _refused_cell()):
        missing.append(reason)
    return missing


def works_without_root() -> bool:
    """Whether this process is an ordinary user's, and the emulated backend can run nevertheless."""
    return os.geteuid() != 0 and not missing_for_emulation()


def _refused_cell() -> str | None:
    """Why a cell cannot be made; None if one was."""
    probe = subprocess.run([*cell_words(), "--", "true"], capture_output=True, text=True, check=False, timeout=30)
    if probe.returncode == 0:
        return None
    return probe.stderr.strip().removeprefix("error: ") or "the kernel refused namespaces"


def forbidding(sysctls: Path) -> str | None:
    """The setting of /proc/sys by which a kernel forbids user namespaces to ordinary users, and its remedy; or None."""
    for name, (forbids, allows) in USER_NAMESPACES.items():
        file = sysctls / name.replace(".", "/")
        if file.exists() and file.read_text().strip() == forbids:
            return f"{name} is {forbids} here ('sudo sysctl {name}={allows}' allows them)"
    return None


def lacked(is_realtime: bool, locked_bytes: int, uid_map: str) -> list[str]:
    """What an emulator ran without, a sentence each, for the run's manifest.

    Args:
        is_realtime: it was in the real-time class.
        locked_bytes: memory that is never paged out.
        uid_map: text of /proc/self/uid_map of its user namespace.
    """
    sentences = []
    if len(rows := uid_map.splitlines()) != 1 or rows[0].split() != ["0", "0", str(2**32 - 1)]:
        sentences.append(
            "no root: the network was made in a user namespace, and socket buffers have the kernel's usual limits"
        )
    if not is_realtime:
        sentences.append("no real-time class: other programs could make packets late")
    if locked_bytes == 0:
        sentences.append("no locked memory: the emulator could be paged out")
    return sentences


def missing_programs() -> list[str]:
    """The same of programs and libraries, which a network on Linux in virtual time needs too."""
    packages = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if packages:
        return [f"programs are missing: apt-get install {' '.join(packages)}"]
    if importlib.util.find_spec("mininet") is None:
        return [
            "Python cannot import Mininet: apt-get install mininet, then run any ./backchannel command, which finds it"
        ]
    return []


def require_emulation() -> None:
    """Checks that the emulated backend can run here.

    Raises:
        Unavailable: with all missing requirements in one message.
    """
    _require(missing_for_emulation())


def require_root_emulation(purpose: str) -> None:
    """The same for a command that acts on this machine's own namespaces too, which only root can.

    Raises:
        Unavailable: with all missing requirements in one message.
    """
    if os.geteuid() != 0:
        raise Unavailable(f"{purpose} needs root, because it enters namespaces of this machine: run it with sudo")
    _require(missing_for_emulation())


def _require(missing: list[str]) -> None:
    if missing:
        raise Unavailable("the emulated backend cannot run here: " + "; ".join(missing))
