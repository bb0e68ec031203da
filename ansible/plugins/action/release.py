"""Makes a release of this checkout and transfers it to hosts that do not have it."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible_collections.backchannel.testbed.plugins.plugin_utils import checkout

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Transfers the archive if the host does not have the release."""

    TRANSFERS_FILES = True

    def run(self, tmp=None, task_vars=None):
        """Runs the module on one host that needs it."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "present") == "absent":
            return self._execute_module(module_args=arguments, task_vars=task_vars)
        archive, release = make_archive(arguments.get("what", "agent"))
        # A shell command takes a tenth of the CPU time of a module.
        top = arguments.get("path", "/opt/backchannel")
        words = ["test", "-d", f"{top}/releases/{release}", "&&", "readlink", f"{top}/current"]
        command = " ".join(word if word == "&&" else shlex.quote(word) for word in words)
        if self._low_level_execute_command(command)["stdout"].strip() == f"releases/{release}":
            return {"changed": False, "release": release}
        arguments["release"] = release
        if self._task.check_mode:
            return self._execute_module(module_args=arguments, task_vars=task_vars)
        folder = self._make_tmp_path()
        try:
            arguments["archive"] = self._connection._shell.join_path(folder, "release.tar.gz")
            self._transfer_file(str(archive), arguments["archive"])
            self._fixup_perms2((folder, arguments["archive"]))
            return self._execute_module(module_args=arguments, task_vars=task_vars)
        finally:
            self._remove_tmp_path(folder)


def make_archive(what):
    """Returns the path and hash of a release. The first host's process creates the archive.

    A whole one has the digest of the sources, by which a runner recognizes workers with other sources.
    """
    root, binary = checkout.root(), checkout.node_binary()
    if not binary.is_file():
        raise AnsibleActionFail(f"the node binary is not built: {binary} does not exist; run './backchannel list' once")
    checkout.importable()
    from testbed import sources

    # An installation's modules have names in the package `backchannel`, here as on the host.
    top = root.parent if (root / "__init__.py").exists() else root
    patterns = sources.AGENT if what == "agent" else sources.PROGRAM
    files = {str(path.relative_to(top)): path for path in sources.matching(root, patterns).values()}
    files["bin/backchannel-node"] = binary
    released = str((root / sources.RELEASED).relative_to(top))
    texts = {released: sources.digest() + "\n"} if what == "whole" else {}
    digest = hashlib.sha256(repr(texts).encode())
    for name, path in files.items():
        digest.update(f"{name} {path.stat().st_mode & 0o111} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    release = digest.hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "backchannel"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{what}-{release}.tar.gz"
    # Ansible runs one process per host; the lock lets one of them create the archive.
    with (folder / "archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in folder.glob(f"{what}-*.tar.gz"):
                old.unlink()
            pack(archive, files, texts)
    return archive, release


def pack(archive, files, texts):
    """Writes the archive atomically, with the node binary stripped. The caller holds the lock."""
    folder = archive.parent / "packing"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        stripped = folder / "backchannel-node"
        # Symbols are half of the binary.
        done = subprocess.run(["strip", "-o", str(stripped), str(files["bin/backchannel-node"])], capture_output=True)
        new = folder / archive.name
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
