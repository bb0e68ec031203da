#!/usr/bin/python
"""What a person wants to see of a host after something went wrong, as one archive."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time

DOCUMENTATION = """
module: backchannel_collect
short_description: A host's logs, leftover captures and network state in one archive
description:
  - Writes the archive and nothing else.
options:
  path:
    type: path
    required: true
    description: Where the archive is written.
  folders:
    type: list
    elements: str
    default: []
    description: Files and folders that go in whole.
author: Backchannel
"""

COMMANDS = {
    "addresses.txt": ["ip", "-details", "-statistics", "address"],
    "routes.txt": ["ip", "route", "show", "table", "all"],
    "neighbours.txt": ["ip", "neighbour"],
    "sockets.txt": ["ss", "-tinmp"],
    "kernel.txt": ["uname", "-a"],
    "settings.txt": ["sysctl", "-a", "--pattern", r"^net\\.(ipv4|core)"],
    "processes.txt": ["ps", "-ef"],
    "disks.txt": ["df", "-h"],
    "clock.txt": ["chronyc", "tracking"],
    "journal.txt": ["journalctl", "-u", "backchannel-*", "-n", "2000", "--no-pager"],
}


def converge(wanted, report):
    """Writes the archive; says what is in it."""
    if report.check:
        return report.as_result(members=[])
    os.makedirs(os.path.dirname(wanted["path"]), exist_ok=True)
    with tarfile.open(wanted["path"], "w:gz", compresslevel=3) as packed:
        for name, words in COMMANDS.items():
            add(packed, name, said(words))
        for folder in wanted["folders"]:
            if os.path.lexists(folder):
                packed.add(folder, arcname=folder.lstrip("/"), filter=plain)
        members = packed.getnames()
    os.chmod(wanted["path"], 0o600)
    return report.as_result(members=members)


def plain(entry):
    """Sockets and devices stay."""
    return entry if entry.isfile() or entry.isdir() or entry.issym() else None


def said(words):
    """What a program says, errors included; a missing one is told in its file."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return b"%s is not installed here\n" % words[0].encode()
    except subprocess.TimeoutExpired:
        return b"it did not answer within 20 s\n"
    return done.stdout + done.stderr


def add(packed, name, content):
    """One file of the archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mtime = int(time.time())
    packed.addfile(entry, io.BytesIO(content))
