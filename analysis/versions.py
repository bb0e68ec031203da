"""The version of the software, and the machine, as manifests record them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tomllib
from pathlib import Path

from analysis.store import damage
from analysis.store.documents import Versions
from testbed import node_binary, sources


@node_binary.cached
def versions() -> Versions:
    """Software: commit (None outside a checkout, or without git), whether it was changed, hashes of sources and node
    binary, Python, kernel, CPUs.
    """
    commit = _git("rev-parse", "HEAD")
    return Versions(
        commit=commit,
        changed=bool(_git("status", "--porcelain", "--untracked-files=no")) if commit else None,
        sources_sha256=sources.digest(),
        node_binary_sha256=damage.digest(Path(node_binary.path())),
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
    # A checkout may be on a machine without git.
    if not (node_binary.ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(node_binary.ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
