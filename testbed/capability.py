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


def lacking(status: str) -> list[str]:
    """Capabilities of CAPABILITIES that a process lacks, from the text of its /proc/PID/status."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    effective = int(fields["CapEff"], 16)
    return [name for name, (bit, _) in CAPABILITIES.items() if not effective >> bit & 1]


def has_rights() -> bool:
    """Whether this process may build networks of real interfaces: root, with all of CAPABILITIES."""
    return os.geteuid() == 0 and not lacking(Path("/proc/self/status").read_text())


def has_ipv6() -> bool:
    """Whether the kernel has IPv6, for hosts of the emulated backend."""
    return Path("/proc/sys/net/ipv6").exists()


def missing_for_emulation() -> list[str]:
    """One sentence for each missing requirement, with its remedy; empty when the backend can run."""
    missing = []
    if os.geteuid() != 0:
        missing.append(
            "it needs root, to make network namespaces and interfaces: run it with sudo, or with --backend "
            "virtual-kernel, which needs none"
        )
    else:
        lacks = lacking(Path("/proc/self/status").read_text())
        if lacks:
            needs = ", ".join(f"CAP_{name} for {CAPABILITIES[name][1]}" for name in lacks)
            missing.append(
                f"root lacks {needs}: let the container add what testbed/container/job.yaml lists, or use "
                "--backend virtual-kernel, which needs none"
            )
    if not Path("/dev/net/tun").exists():
        missing.append("/dev/net/tun does not exist: 'modprobe tun', or give the container that device")
    missing += missing_programs()
    if os.geteuid() == 0 and not missing:
        probe = subprocess.run(
            [node_binary.path(), "cell", "--", "true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if probe.returncode != 0:
            missing.append(probe.stderr.strip().removeprefix("error: ") or "the kernel refused namespaces")
    return missing


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
    missing = missing_for_emulation()
    if missing:
        raise Unavailable("the emulated backend cannot run here: " + "; ".join(missing))
