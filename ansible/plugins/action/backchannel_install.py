"""Brings a release of Backchannel to a host: asks by its hash whether it is there, and sends it only where not."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import action_loader

ROOT = Path(__file__).resolve().parents[3]
#: What an agent needs: the standard library does the rest.
AGENT = ("agents/*.py",)
#: What a worker or the site needs.
WHOLE = (
    "agents/*.py",
    "analysis/**/*",
    "experiments/**/*",
    "testbed/*.py",
    "web/**/*",
    "Cargo.toml",
    "requirements.txt",
    "backchannel",
    "pyproject.toml",
)
SKIPPED = {"__pycache__", "node_modules", "tests", "src"}


class ActionModule(action_loader.get("backchannel_module", class_only=True)):
    """The controller's half; the host's is library/backchannel_install.py."""

    TRANSFERS_FILES = True

    def on_host(self, wanted, task_vars):
        """Asks first, and sends the archive where it is asked for."""
        if wanted["state"] == "absent":
            return super().on_host(wanted, task_vars)
        archive, release = _archive(wanted["what"])
        wanted["release"] = release
        told = super().on_host(wanted, task_vars)
        if told.get("failed") or not told.get("wanted") or self._task.check_mode:
            return told
        folder = self._make_tmp_path()
        try:
            wanted["archive"] = self._connection._shell.join_path(folder, "release.tar.gz")
            self._transfer_file(str(archive), wanted["archive"])
            self._fixup_perms2((folder, wanted["archive"]))
            return super().on_host(wanted, task_vars)
        finally:
            self._remove_tmp_path(folder)


def _archive(what):
    """A release as a file of this machine, and its hash; made once for all hosts."""
    binary = Path(os.environ.get("BACKCHANNEL_NODE", ROOT / "target/release/backchannel-node"))
    if not binary.is_file():
        raise AnsibleActionFail(f"the node binary is not built ({binary} does not exist); run ./backchannel list once")
    files = {
        str(path.relative_to(ROOT)): path
        for pattern in (AGENT if what == "agent" else WHOLE)
        for path in sorted(ROOT.glob(pattern))
        if path.is_file() and not SKIPPED & set(path.relative_to(ROOT).parts)
    }
    files["bin/backchannel-node"] = binary
    texts = _told() if what == "whole" else {}
    digest = hashlib.sha256(repr(texts).encode())
    for name, path in files.items():
        digest.update(f"{name} {path.stat().st_mode & 0o111} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    release = digest.hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "backchannel"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{what}-{release}.tar.gz"
    # Every host has a process of its own here; one of them makes the archive.
    with (folder / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in folder.glob(f"{what}-*.tar.gz"):
                old.unlink()
            _pack(archive, files, texts)
    return archive, release


def _told():
    """What a release says of the checkout it was made from: a worker is held against it by the runner."""
    # At the end: this repository has a folder called ansible, which must not hide the package.
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from experiments.engine import machine

    return {machine.RELEASED: machine.sources() + "\n"}


def _pack(archive, files, texts):
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        stripped = Path(folder) / "backchannel-node"
        # Half of the binary is symbols, and every host would get them.
        done = subprocess.run(["strip", "-o", str(stripped), str(files["bin/backchannel-node"])], capture_output=True)
        new = archive.with_suffix(".new")
        with tarfile.open(new, "w:gz", compresslevel=1) as packed:
            for name, text in texts.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                packed.addfile(entry, io.BytesIO(text.encode()))
            for name, path in files.items():
                source = stripped if name == "bin/backchannel-node" and done.returncode == 0 else path
                entry = packed.gettarinfo(str(source), name)
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = "root"
                entry.mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
                with source.open("rb") as content:
                    packed.addfile(entry, content)
        new.rename(archive)
