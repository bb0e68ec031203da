#!/usr/bin/python
"""A release of Backchannel on a host, stored under its hash."""

from __future__ import annotations

DOCUMENTATION = """
module: release
short_description: Agent and node binary, or all of Backchannel, on a host
description:
  - Releases are stored in O(path)/releases, each under the hash of its content. C(current) links to the one in use.
  - The archive is transferred only to hosts that do not have the release. Older releases are then removed.
options:
  what:
    choices: [agent, whole]
    default: agent
    type: str
    description: Agent and node binary, or everything that workers and the results site need.
  path:
    type: path
    default: /opt/backchannel
    description: Folder of the releases.
  release:
    type: str
    description: Hash of the release. The action plugin sets it.
  archive:
    type: path
    description: Archive on the host. The action plugin sets it.
author: Backchannel (@backchannel)
extends_documentation_fragment: [backchannel.testbed.host, backchannel.testbed.host.state]
"""

EXAMPLES = """
- name: Install agent and node binary
  backchannel.testbed.release:
    path: /opt/backchannel

- name: Remove every release
  backchannel.testbed.release:
    path: /opt/backchannel
    state: absent
"""

RETURN = """
release:
  description: Hash of the release.
  returned: when O(state=present)
  type: str
"""

import os
import shutil
import tarfile

from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    ENOSPC,
    STATE_ARGUMENT,
    HostError,
    refuse_if_held,
    run_module,
)

ARGUMENTS = {
    "what": {"type": "str", "choices": ["agent", "whole"], "default": "agent"},
    "path": {"type": "path", "default": "/opt/backchannel"},
    "state": STATE_ARGUMENT,
    "release": {"type": "str"},
    "archive": {"type": "path"},
}


def apply(parameters, changes):
    """Installs the release from the archive, or removes every release."""
    refuse_if_held()
    top, release = parameters["path"], parameters["release"]
    current = os.path.join(top, "current")
    old = os.path.basename(os.readlink(current)) if os.path.islink(current) else None
    if parameters["state"] == "absent":
        if os.path.isdir(top) and changes.add(f"{top}: {old}", ""):
            shutil.rmtree(top)
        return None
    releases = os.path.join(top, "releases")
    present = old == release and os.path.isdir(os.path.join(releases, release))
    if present or not changes.add(f"{current}: {old or '(absent)'}", f"{current}: {release}"):
        return {"release": release}
    unpack(parameters["archive"], os.path.join(releases, release))
    link = current + ".new"
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(os.path.join("releases", release), link)
    os.replace(link, current)
    for other in os.listdir(releases):
        if other != release:
            shutil.rmtree(os.path.join(releases, other))
    return {"release": release}


def unpack(archive, target):
    """Unpacks an archive atomically."""
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
        if error.errno == ENOSPC:
            raise HostError(
                f"the disk of {target} is full: a release needs {size >> 20} MiB; free some space"
            ) from None
        raise
    os.chmod(new, 0o755)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(new, target)


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
