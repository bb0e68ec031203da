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
for before in sys.argv[1:]:
    subprocess.run(before.split(), check=True)
lines = [
    "qdisc add dev eth7 root htb",
    "qdisc add dev eth7 handle ffff: ingress",
    "qdisc add dev d-eth7 root bfifo limit 5000",
]
try:
    Shaping().configure("eth7", lines)
except AgentError as error:
    sys.exit(str(error))
"""


def said(folder: Path, exchange: str, *before: str) -> str:
    """Why an agent refuses what its kernel has, with a tc whose lines a sed script changes, after some commands."""
    tc = shutil.which("tc")
    assert tc, "iproute2 has tc"
    other = folder / "tc"
    other.write_text(f"#!/bin/sh\nsed '{exchange}' | {tc} \"$@\"\n")
    other.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    # /sys lists the interfaces of the namespace in which it was mounted.
    shell = ["sh", "-c", 'mount -t sysfs sys /sys && exec "$@"', "sh", sys.executable, "-c", CONFIGURE, *before]
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount", *shell]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stderr.strip()


def test_the_disciplines_that_are_asked_for_are_taken(tmp_path: Path) -> None:
    assert not said(tmp_path, "")


@pytest.mark.parametrize(
    "before",
    ["tc qdisc add dev eth7 root handle 5: pfifo", "ip link add d-eth7 type ifb", "tc qdisc add dev eth7 ingress"],
)
def test_what_an_interface_has_already_is_replaced(tmp_path: Path, before: str) -> None:
    assert not said(tmp_path, "", before.replace("tc", shutil.which("tc") or "tc", 1))


def test_the_line_that_fails_is_named(tmp_path: Path) -> None:
    message = said(tmp_path, "s/bfifo/nosuch/")
    assert message.startswith("'tc qdisc add dev d-eth7 root bfifo limit 5000' failed: ")
    assert "nosuch" in message or "kind" in message


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ("s/htb.*/pfifo/", "the kernel has ingress, pfifo at eth7 in place of htb"),
        ("s/bfifo.*/pfifo/", "the kernel has pfifo at d-eth7 in place of bfifo"),
    ],
)
def test_another_one_is_refused(tmp_path: Path, exchange: str, message: str) -> None:
    assert said(tmp_path, exchange) == message
