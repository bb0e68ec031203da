"""Hatchling's hook for the wheel: one package `backchannel` with the node binary in it.

`pip wheel --no-deps .`, `uv build --wheel` and `distribution/build` end here. cargo compiles the binary and zig links
it for an old glibc, so that the wheel runs on every distribution of the last years.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The oldest glibc that the binary runs with; that of the wheels of SciPy and Polars.
GLIBC = (2, 28)
#: Machines as `uname -m` and wheels name them, and as Rust does.
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Fills the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes the package's folder, which hatchling packs."""
        if version == "editable":
            raise ValueError("an editable installation has no use: ./backchannel runs this checkout")
        root = Path(self.root)
        machine = os.environ.get("BACKCHANNEL_WHEEL_MACHINE", platform.machine())
        if machine not in TARGETS:
            raise ValueError(f"no wheel for the machine '{machine}'; there are wheels for {', '.join(TARGETS)}")
        sys.path.insert(0, self.root)
        from distribution.tree import fill

        tree = root / ".cache" / "distribution" / machine
        shutil.rmtree(tree, ignore_errors=True)
        fill(root, tree)
        node = tree / "bin" / "backchannel-node"
        node.parent.mkdir()
        shutil.copy2(built_node(root, TARGETS[machine]), node)
        build_data["force_include"] = {str(tree): "backchannel"}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def built_node(root: Path, target: str) -> Path:
    """The node binary for a target, without symbols.

    Raises:
        ValueError: there is no cargo, or it fails.
    """
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise ValueError("a wheel is built from a checkout with Rust's cargo, which is missing: ./backchannel build")
    folder = root / ".cache" / "portable"
    words = [cargo, "zigbuild", "--release", "--locked", "--package", "backchannel-node"]
    words += ["--target", f"{target}.{GLIBC[0]}.{GLIBC[1]}", "--target-dir", str(folder)]
    path = os.pathsep.join([str(Path(cargo).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "CARGO_ZIGBUILD_PYTHON_PATH": sys.executable}
    if subprocess.run(words, cwd=root, env=environment, check=False).returncode != 0:
        raise ValueError(f"cargo cannot build the node binary for {target}; its messages are above")
    binary = folder / target / "release" / "backchannel-node"
    stripped = binary.with_suffix(".stripped")
    # Symbols are half of the binary.
    strip = shutil.which("strip") if target.startswith(platform.machine()) else None
    if strip is None or subprocess.run([strip, "-o", stripped, binary], check=False).returncode != 0:
        return binary
    return stripped
