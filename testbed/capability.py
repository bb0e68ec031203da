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


def has_ipv6() -> bool:
    """Whether the kernel has IPv6, for hosts of the emulated backend."""
    return Path("/proc/sys/net/ipv6").exists()


def missing_for_emulation() -> list[str]:
    """One sentence for each missing requirement, with its remedy; empty when the backend can run."""
    missing = []
    if os.geteuid() != 0:
        missing.append(
            "it needs root, to make network namespaces and interfaces: run it with sudo, or build a kernel that needs "
            "none ('./backchannel kernel build', then --backend virtual-kernel)"
        )
    if not Path("/dev/net/tun").exists():
        missing.append("/dev/net/tun does not exist: 'modprobe tun', or give the container that device")
    packages = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if packages:
        missing.append(f"programs are missing: apt-get install {' '.join(packages)}")
    elif importlib.util.find_spec("mininet") is None:
        missing.append(
            "Python cannot import Mininet: apt-get install mininet, then run any ./backchannel command, which links it "
            "into .venv"
        )
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


def require_emulation() -> None:
    """Checks that the emulated backend can run here.

    Raises:
        Unavailable: with all missing requirements in one message.
    """
    missing = missing_for_emulation()
    if missing:
        raise Unavailable("the emulated backend cannot run here: " + "; ".join(missing))
