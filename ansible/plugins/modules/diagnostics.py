#!/usr/bin/python
"""A host's logs, leftover captures and network state in one archive."""

from __future__ import annotations

DOCUMENTATION = """
module: diagnostics
short_description: Archive of a host's logs, captures and network state
description:
  - Writes one compressed archive and changes nothing else. It therefore never reports a change.
options:
  path:
    type: path
    required: true
    description: Where the archive is written, mode 0600.
  folders:
    type: list
    elements: str
    default: []
    description: Files and folders that the archive includes; those that do not exist are skipped.
author: Backchannel (@backchannel)
attributes:
  check_mode:
    description: Supported; it then writes nothing.
    support: full
  diff_mode:
    description: Not supported, because nothing is changed.
    support: none
"""

EXAMPLES = """
- name: Archive the agent's files
  backchannel.testbed.diagnostics:
    path: /var/tmp/backchannel.tar.gz
    folders: [/etc/backchannel, /var/lib/backchannel]
"""

RETURN = """
members:
  description: Names of the archive's members; empty in check mode.
  returned: success
  type: list
  elements: str
"""

import contextlib
import io
import os
import subprocess
import tarfile
import time

from ansible_collections.backchannel.testbed.plugins.module_utils.host import run_module

TIMEOUT_S = 20
COMMANDS = {
    "addresses.txt": ["ip", "-details", "-statistics", "address"],
    "routes.txt": ["ip", "route", "show", "table", "all"],
    "neighbours.txt": ["ip", "neighbour"],
    "sockets.txt": ["ss", "-tinmp"],
    "kernel.txt": ["uname", "-a"],
    "settings.txt": ["sysctl", "-a", "--pattern", r"^net\.(ipv4|core)"],
    "processes.txt": ["ps", "-ef"],
    "disks.txt": ["df", "-h"],
    "clock.txt": ["chronyc", "tracking"],
    "journal.txt": ["journalctl", "-u", "backchannel-*", "-n", "2000", "--no-pager"],
}
ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "folders": {"type": "list", "elements": "str", "default": []},
}


def apply(parameters, changes):
    """Writes the archive."""
    path = parameters["path"]
    if changes.check_mode:
        return {"members": []}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # A new file that nobody else can read or has prepared: its folder may be one in which everybody writes.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        for name, words in COMMANDS.items():
            add(archive, name, output(words))
        for folder in parameters["folders"]:
            for member in below(folder):
                # A campaign that goes on removes files.
                with contextlib.suppress(FileNotFoundError):
                    archive.add(member, arcname=member.lstrip("/"), recursive=False, filter=without_devices)
        return {"members": archive.getnames()}


def below(path):
    """A file or folder that exists, and everything in it."""
    if os.path.lexists(path):
        yield path
    for folder, folders, files in os.walk(path):
        yield from (os.path.join(folder, name) for name in sorted([*folders, *files]))


def without_devices(entry):
    """Excludes sockets and devices."""
    return entry if entry.isfile() or entry.isdir() or entry.issym() else None


def output(words):
    """A program's output and errors, or a line that says why there is none."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        return f"{words[0]} is not installed here\n".encode()
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s\n".encode()
    return done.stdout + done.stderr


def add(archive, name, content):
    """Adds a file."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mtime = int(time.time())
    archive.addfile(entry, io.BytesIO(content))


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
