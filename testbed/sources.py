"""The files of this software: their digest, and those that an installation or a host's release has.

Uses the standard library only, because the build of a wheel imports it (distribution/hook.py).
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from testbed import node_binary

#: Folders whose sources determine a run's result. The site only shows results.
FOLDERS = ("agents", "analysis", "experiments", "testbed")
#: File of a release or installation with the digest of its sources.
RELEASED = "sources.sha256"
#: Files of a host's agent. It needs no package besides the standard library.
AGENT = ("__init__.py", "agents/*.py", "LICENSE", "THIRD-PARTY-NOTICES")
#: Files of the whole program, which needs the packages of requirements.txt.
PROGRAM = (
    *AGENT,
    "analysis/**/*",
    "experiments/**/*",
    "testbed/*.py",
    "testbed/virtual_kernel/*",
    "web/**/*",
    "Cargo.toml",
    "pyproject.toml",
    "requirements.txt",
)
SKIPPED = {"__pycache__", "node_modules", "tests", "src"}


@cache
def digest() -> str:
    """SHA-256 of the Python and Rust sources that determine a run's result.

    A release (role worker) or an installation has it as a file, because it contains no Rust sources.
    """
    root = node_binary.ROOT
    released = root / RELEASED
    if released.is_file():
        return released.read_text().strip()
    paths = [root / "Cargo.toml", root / "Cargo.lock"]
    for folder in FOLDERS:
        paths += [path for suffix in ("py", "rs", "toml") for path in (root / folder).rglob(f"*.{suffix}")]
    result = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(root)
        if path.is_file() and "tests" not in name.parts:
            result.update(f"{name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return result.hexdigest()


def matching(root: Path, patterns: tuple[str, ...]) -> dict[str, Path]:
    """The files below a folder that these patterns match, by their relative names."""
    return {
        str(name): path
        for pattern in patterns
        for path in sorted(root.glob(pattern))
        if path.is_file() and not SKIPPED & set((name := path.relative_to(root)).parts)
    }
