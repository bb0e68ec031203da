"""The queueing discipline that a link asks for is the one that its interface gets, or the agent refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# In a network namespace. Its kernel has HTB and plain queues, as every one on which links are emulated.
CONFIGURE = """
import subprocess, sys
from agents.errors import AgentError
from agents.shaping import Shaping
subprocess.run(["ip", "link", "add", "eth7", "type", "ifb"], check=True)
lines = [
    "qdisc add dev eth7 root htb",
    "qdisc add dev d-eth7 root bfifo limit 5000",
]
try:
    Shaping().configure("eth7", lines)
except AgentError as error:
    sys.exit(str(error))
"""


def said(folder: Path, exchange: str) -> str:
    """Why an agent refuses what its kernel has, with a tc whose arguments a sed script changes."""
    tc = shutil.which("tc")
    assert tc, "iproute2 has tc"
    other = folder / "tc"
    other.write_text(f"#!/bin/sh\nexec {tc} $(echo \"$*\" | sed '{exchange}')\n")
    other.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    # /sys lists the interfaces of the namespace in which it was mounted.
    shell = ["sh", "-c", 'mount -t sysfs sys /sys && exec "$@"', "sh", sys.executable, "-c", CONFIGURE]
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount", *shell]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stderr.strip()


def test_the_disciplines_that_are_asked_for_are_taken(tmp_path: Path) -> None:
    assert not said(tmp_path, "")


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ("s/htb.*/pfifo/", "the kernel has pfifo at eth7 in place of htb"),
        ("s/bfifo.*/pfifo/", "the kernel has pfifo at d-eth7 in place of bfifo"),
    ],
)
def test_another_one_is_refused(tmp_path: Path, exchange: str, message: str) -> None:
    assert said(tmp_path, exchange) == message
