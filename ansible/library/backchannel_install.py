#!/usr/bin/python
"""A release of Backchannel on a host, under the name of its hash."""

from __future__ import annotations

import os
import shutil
import tarfile

from ansible.module_utils.backchannel import Trouble, refuse_if_held

DOCUMENTATION = """
module: backchannel_install
short_description: Agent, node binary, or the whole of Backchannel on a host
description:
  - Releases lie under O(path)/releases; C(current) points at the one in use. Older ones go when a newer one is there.
options:
  what:
    choices: [agent, whole]
    default: agent
    type: str
    description: Agent and node binary, or everything (workers and the results site). Read by the action plugin.
  path:
    type: path
    default: /opt/backchannel
    description: Where releases lie.
  state:
    choices: [present, absent]
    default: present
    type: str
    description: Whether there is one.
  release:
    type: str
    description: Set by the action plugin.
  archive:
    type: path
    description: Set by the action plugin, when the host has asked for it.
author: Backchannel
"""


def converge(wanted, report):
    """Says whether the release is wanted, or unpacks it."""
    refuse_if_held()
    top = wanted["path"]
    current = os.path.join(top, "current")
    old = os.path.basename(os.readlink(current)) if os.path.islink(current) else None
    if wanted["state"] == "absent":
        if os.path.isdir(top) and report.note("%s: %s" % (top, old), ""):
            shutil.rmtree(top)
        return report.as_result()
    new = wanted["release"]
    if old == new and os.path.isdir(os.path.join(top, "releases", new)):
        return report.as_result(wanted=False, release=new)
    first = report.note("%s: %s" % (current, old or "(absent)"), "%s: %s" % (current, new))
    if not first or wanted["archive"] is None:
        return report.as_result(wanted=True, release=new)
    unpack(wanted["archive"], os.path.join(top, "releases", new))
    link = current + ".new"
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(os.path.join("releases", new), link)
    os.replace(link, current)
    for other in os.listdir(os.path.join(top, "releases")):
        if other != new:
            shutil.rmtree(os.path.join(top, "releases", other))
    return report.as_result(wanted=False, release=new)


def unpack(archive, target):
    """Whole or not at all."""
    new = target + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    size = 0
    try:
        with tarfile.open(archive) as packed:
            size = sum(entry.size for entry in packed.getmembers())
            if hasattr(tarfile, "data_filter"):
                packed.extractall(new, filter="data")
            else:
                packed.extractall(new)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if error.errno == 28:
            raise Trouble("the disk of %s is full: a release takes %d MB; make room" % (target, size >> 20)) from None
        raise
    os.chmod(new, 0o755)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(new, target)
