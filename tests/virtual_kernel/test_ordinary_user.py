"""`run` for a user without privileges: another UID, no capability, a home of its own, and the kernel in its cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import node_binary
from testbed.virtual_kernel.kernels import Kernel

#: A UID that nobody has.
UID = 47_110
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
RESEARCH_STACK = """
name: ordinary
backend: virtual-kernel
network:
  topology: line
  forward: {rate: 1 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 50 packets}}
  reverse: {rate: 1 Mbit/s, delay: 10 ms, queue: {policy: droptail, limit: 50 packets}}
stack: newreno
workload: [{name: bulk, from: left, to: right}]
duration: 3 s
"""


def readable_by_all(path: Path) -> bool:
    """Whether another user can read a file."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path.resolve(), *path.resolve().parents))


def python() -> str:
    """An interpreter of this version that another user can start."""
    debian = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    return next(str(path) for path in (Path(sys.executable), debian) if path.exists() and readable_by_all(path))


@pytest.fixture
def home(kernel: Kernel) -> Iterator[Path]:
    """The user's home, with the kernel in its cache."""
    if not readable_by_all(node_binary.ROOT):
        pytest.skip(f"no other user can read {node_binary.ROOT}")
    with tempfile.TemporaryDirectory(prefix="ordinary-") as name:
        home = Path(name)
        cached = home / ".cache/backchannel/kernels" / kernel.folder.name
        shutil.copytree(kernel.folder, cached)
        for path in (home, *home.rglob("*")):
            os.chown(path, UID, UID)
        yield home


def run(home: Path, campaign: str) -> subprocess.CompletedProcess[str]:
    """`run`, as that user."""
    (home / "ordinary.yaml").write_text(campaign)
    user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all")  # fmt: skip
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(node_binary.ROOT), sysconfig.get_path("purelib"), DEBIAN]),
        "BACKCHANNEL_NODE": node_binary.path(),
        "BACKCHANNEL_ROOT": str(node_binary.ROOT),
    }
    words = [*user, python(), "-m", "experiments", "run", "ordinary.yaml", "--results", "results"]
    return subprocess.run(
        words, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=400
    )  # fmt: skip


@pytest.mark.parametrize(
    ("campaign", "announced"),
    [
        # Nothing names a backend: without root it is the virtual kernel.
        (KERNEL_TCP, "real interfaces need root; the campaign runs on Linux"),
        (RESEARCH_STACK, ""),
    ],
    ids=["kernel TCP", "research stack"],
)
def test_a_campaign_runs_for_an_ordinary_user(campaign: str, announced: str, kernel: Kernel, home: Path) -> None:
    done = run(home, campaign)
    assert done.returncode == 0, done.stdout + done.stderr
    assert announced in done.stderr
    (manifest,) = (json.loads(path.read_text()) for path in (home / "results").rglob("manifest.json"))
    assert manifest["virtual_kernel"] == kernel.release
    assert not manifest.get("problems")
    captures = list((home / "results").rglob("*.pcap.gz"))
    assert captures
    assert {path.stat().st_uid for path in captures} == {UID}
