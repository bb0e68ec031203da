"""Hatchling's hook for the wheel: one package `backchannel` with the node binary in it.

`pip wheel --no-deps .`, `uv build --wheel` and `distribution/build` end here. cargo compiles the binary and zig links
it for an old glibc, so that the wheel runs on every distribution of the last years.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The oldest glibc that the binary runs with; that of the wheels of SciPy and Polars.
GLIBC = (2, 28)
#: A symbol's version in a binary.
SYMBOL = re.compile(rb"GLIBC_2\.(\d+)")
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
    """The node binary for a target, without symbols: the one that $BACKCHANNEL_WHEEL_NODE names, or a new one.

    Raises:
        ValueError: there is no cargo, it fails, or the binary needs a newer glibc.
    """
    if named := os.environ.get("BACKCHANNEL_WHEEL_NODE"):
        binary = Path(named)
    else:
        binary = _build(root, target)
    newest = max((int(minor) for minor in SYMBOL.findall(binary.read_bytes())), default=0)
    if newest > GLIBC[1]:
        raise ValueError(f"{binary} needs glibc 2.{newest}, and the wheel promises {GLIBC[0]}.{GLIBC[1]}")
    stripped = root / ".cache" / "portable" / f"{target}.stripped"
    # Symbols are half of the binary. Another machine's needs another strip.
    strip = shutil.which("strip") if target.startswith(platform.machine()) else None
    if strip is None or subprocess.run([strip, "-o", stripped, binary], check=False).returncode != 0:
        return binary
    return stripped


def _build(root: Path, target: str) -> Path:
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise ValueError("the node binary is built by Rust's cargo, which is missing: ./backchannel list installs it")
    folder = root / ".cache" / "portable"
    words = [cargo, "zigbuild", "--release", "--locked", "--package", "backchannel-node"]
    words += ["--target", f"{target}.{GLIBC[0]}.{GLIBC[1]}", "--target-dir", str(folder)]
    path = os.pathsep.join([str(_tools(root, folder / "tools")), str(Path(cargo).parent), os.environ["PATH"]])
    # The environment in which pip builds must not hide the tools'. The linker's scripts stay in one place, too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": path, "CARGO_ZIGBUILD_CACHE_DIR": str(folder / "scripts")}
    # Rust's own installer has the library of another processor; a distribution's cargo says what it lacks.
    if not target.startswith(platform.machine()) and (rustup := shutil.which("rustup", path=path)):
        subprocess.run([rustup, "--quiet", "target", "add", target], env=environment, check=False)
    if subprocess.run(words, cwd=root, env=environment, check=False).returncode != 0:
        raise ValueError(f"cargo cannot build the node binary for {target}; its messages are above")
    return folder / target / "release" / "backchannel-node"


def _tools(root: Path, folder: Path) -> Path:
    """The folder of zig and cargo-zigbuild. They stay in one place, because another place makes cargo build anew."""
    pinned, made = root / "distribution" / "tools.txt", folder / "tools.txt"
    if not made.exists() or made.read_bytes() != pinned.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        words = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "-r",
            str(pinned),
        ]
        subprocess.run(words, check=True)
        shutil.copy2(pinned, made)
    return folder / "bin"
