"""What a machine must have for the emulated backend, and what to do about what it lacks."""

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


def missing_for_emulation() -> list[str]:
    """Each thing that is missing, as a sentence with its remedy; empty when the backend can run."""
    troubles = []
    if os.geteuid() != 0:
        troubles.append("it needs root, to make network namespaces and interfaces: run it with sudo")
    if not Path("/dev/net/tun").exists():
        troubles.append("/dev/net/tun does not exist: 'modprobe tun', or give the container that device")
    packages = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if packages:
        troubles.append(f"programs are missing: apt-get install {' '.join(packages)}")
    elif importlib.util.find_spec("mininet") is None:
        troubles.append(
            "Python cannot import Mininet: apt-get install mininet, then run any ./backchannel command, which links it "
            "into .venv"
        )
    if os.geteuid() == 0 and not troubles:
        probe = subprocess.run(
            [node_binary.path(), "cell", "--", "true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if probe.returncode != 0:
            said = probe.stderr.strip().removeprefix("error: ") or "the kernel refused namespaces"
            troubles.append(said)
    return troubles


def require_emulation() -> None:
    """Refuses in one message when the emulated backend cannot run here.

    Raises:
        Unavailable: with everything that is missing.
    """
    troubles = missing_for_emulation()
    if troubles:
        raise Unavailable("the emulated backend cannot run here: " + "; ".join(troubles))
