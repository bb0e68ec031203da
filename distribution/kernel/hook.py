"""Hatchling's hook for the kernel's wheel: the built kernel, its licence, and what its build was controlled by."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The checkout.
ROOT = Path(__file__).resolve().parents[2]
#: Symbols of glibc that a program or library names with their versions.
VERSION = re.compile(rb"GLIBC_2\.(\d+)")


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Fills the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files of the default series' kernel, which must be built."""
        del version
        sys.path.insert(0, str(ROOT))
        from testbed.virtual_kernel import build, kernels

        kernel = kernels.find(kernels.DEFAULT)
        if not kernel.binary.exists():
            raise ValueError("the kernel is not built: ./backchannel kernel build")
        folder = f"{kernels.PACKAGE}/{kernels.PACKAGED}/{kernel.folder.name}"
        files = {path: f"{folder}/{path.name}" for path in kernel.folder.iterdir()}
        for path in (kernels.CONFIG, *kernels.PRELOADED, Path(build.__file__)):
            files[path] = f"{kernels.PACKAGE}/source/{path.name}"
        files[Path(self.root) / "README.md"] = f"{kernels.PACKAGE}/README.md"
        files[Path(self.root) / "package.py"] = f"{kernels.PACKAGE}/__init__.py"
        build_data["force_include"] = {str(path): name for path, name in files.items()}
        build_data["pure_python"] = False
        newest = max(
            int(minor) for path in (kernel.binary, kernel.preloaded) for minor in VERSION.findall(path.read_bytes())
        )
        build_data["tag"] = f"py3-none-manylinux_2_{newest}_{platform.machine()}"
