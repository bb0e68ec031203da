"""`run` for a user without privileges: another UID, no capability, a home of its own, and the kernel in its cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testbed.virtual_kernel.kernels import Kernel
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S
from tests.virtual_kernel.conftest import UID

#: Debian's modules, of which Mininet is one.
DEBIAN = "/usr/lib/python3/dist-packages"

KERNEL_TCP = """
name: ordinary
network:
  topology: asymmetric-path
  forward: {rate: 1 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 30 packets}}
  reverse: {rate: 28.8 kbit/s, delay: 20 ms, queue: {policy: acks-first, limit: 10 packets}}
stack: reno
workload: [{name: forward, from: server, to: client}, {name: reverse, from: client, to: server, start: 1 s}]
duration: 4 s
"""
RESEARCH_STACK = one_line("ordinary", "", duration="3 s", backend="virtual-kernel")


#: Shows the interpreter and its libraries at the places of `world`, and starts a program there.
MOUNTED = """
mount --bind "$1" "$0/python" && mount --bind "$2" "$0/libraries" && cd "$3" && shift 3 && exec "$@"
"""


def run(world: Path, home: Path, campaign: str) -> subprocess.CompletedProcess[str]:
    """`run`, as that user."""
    (home / "ordinary.yaml").write_text(campaign)
    checkout = world / "checkout"
    user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all")  # fmt: skip
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(checkout), str(world / "libraries"), DEBIAN]),
        "BACKCHANNEL_NODE": str(checkout / "node"),
        "BACKCHANNEL_ROOT": str(checkout),
    }
    interpreter = Path(sys.executable).resolve().relative_to(sys.base_prefix)
    words: list[str | Path] = ["unshare", "--mount", "sh", "-c", MOUNTED, world, sys.base_prefix]
    words += [sysconfig.get_path("purelib"), home, *user, world / "python" / interpreter]
    words += ["-m", "experiments", "run", "ordinary.yaml", "--results", "results"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=HANGS_S)


@pytest.mark.parametrize(
    ("campaign", "announced"),
    [
        # Nothing names a backend: without root it is the virtual kernel.
        (KERNEL_TCP, "you are not root; the campaign runs on Linux"),
        pytest.param(RESEARCH_STACK, "", marks=pytest.mark.slow("another stack, as the same user")),
    ],
    ids=["kernel TCP", "research stack"],
)
def test_ordinary_users_run_campaigns(campaign: str, announced: str, kernel: Kernel, world: Path, home: Path) -> None:
    done = run(world, home, campaign)
    assert done.returncode == 0, done.stdout + done.stderr
    assert announced in done.stderr
    (manifest,) = (json.loads(path.read_text()) for path in (home / "results").rglob("manifest.json"))
    assert manifest["virtual_kernel"] == kernel.release
    assert not manifest.get("problems")
    captures = list((home / "results").rglob("*.pcap.gz"))
    assert captures
    assert {path.stat().st_uid for path in captures} == {UID}
