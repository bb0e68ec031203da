"""The kernel that runs in virtual time: tests that hold numbers use it, because no busy machine can be late there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import node_binary
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build

#: A UID that nobody has.
UID = 47_110
#: What a run reads of the checkout.
PACKAGES = ("agents", "analysis", "experiments", "testbed", "web")


@pytest.fixture(scope="session")
def kernel() -> kernels.Kernel:
    """Built when it is first needed."""
    return build(kernels.DEFAULT, print)


@pytest.fixture(scope="session")
def world() -> Iterator[Path]:
    """A copy of the program, its libraries and the interpreter that every user can read. Those of a checkout in
    somebody's home are readable to nobody else.
    """
    with tempfile.TemporaryDirectory(prefix="world-") as name:
        world = Path(name)
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__", "*.rs", "node_modules")
            shutil.copytree(node_binary.ROOT / package, world / "checkout" / package, ignore=ignored)
        shutil.copy(node_binary.path(), world / "checkout/node")
        for path in (world, *world.rglob("*")):
            path.chmod(0o755)
        for folder in ("python", "libraries"):
            (world / folder).mkdir()
        yield world


@pytest.fixture
def home(kernel: kernels.Kernel) -> Iterator[Path]:
    """The user's home, with the kernel in its cache."""
    with tempfile.TemporaryDirectory(prefix="ordinary-") as name:
        home = Path(name)
        cached = home / ".cache/backchannel/kernels" / kernel.folder.name
        shutil.copytree(kernel.folder, cached)
        for path in (home, *home.rglob("*")):
            os.chown(path, UID, UID)
        yield home
