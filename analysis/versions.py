"""The version of the software, and the machine, as manifests record them."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tomllib
from functools import cache
from pathlib import Path

from analysis.store.documents import Versions
from testbed import node_binary

#: Folders whose sources determine a run's result. The site only shows results.
FOLDERS = ("agents", "analysis", "experiments", "testbed")
#: File of a release with the digest of its sources.
RELEASED = "sources.sha256"


@cache
def sources() -> str:
    """Digest of the Python and Rust sources that determine a run's result.

    A release (role worker) has it as a file, because a release contains no Rust sources.
    """
    released = node_binary.ROOT / RELEASED
    if released.is_file():
        return released.read_text().strip()
    paths = [node_binary.ROOT / "Cargo.toml", node_binary.ROOT / "Cargo.lock"]
    for folder in FOLDERS:
        paths += [path for suffix in ("py", "rs", "toml") for path in (node_binary.ROOT / folder).rglob(f"*.{suffix}")]
    digest = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(node_binary.ROOT)
        if path.is_file() and "tests" not in name.parts:
            digest.update(f"{name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@node_binary.cached
def versions() -> Versions:
    """Software: commit (None outside a checkout), whether it was changed, hashes of sources and node binary, Python,
    kernel, CPUs.
    """
    commit = _git("rev-parse", "HEAD")
    with Path(node_binary.path()).open("rb") as binary:
        digest = hashlib.file_digest(binary, "sha256").hexdigest()
    return Versions(
        commit=commit,
        changed=bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None,
        sources_sha256=sources(),
        node_binary_sha256=digest,
        python=platform.python_version(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpus=os.cpu_count(),
    )


def version() -> str:
    """Version of the release, and the commit in a checkout."""
    release = tomllib.loads((node_binary.ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    commit = _git("rev-parse", "--short=10", "HEAD")
    return release if commit is None else f"{release}, commit {commit}"


def _git(*words: str) -> str | None:
    done = (
        subprocess.run(["git", "-C", str(node_binary.ROOT), *words], capture_output=True, text=True, check=False)
        if (node_binary.ROOT / ".git").exists()
        else None
    )
    return done.stdout.strip() if done is not None and done.returncode == 0 else None
