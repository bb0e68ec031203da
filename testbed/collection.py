"""The Ansible collection's own Python modules, for parts of the testbed that look at a machine as its roles do."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed import node_binary

#: An installation has the collection where Ansible looks for it.
_INSTALLED = node_binary.ROOT / "ansible_collections" / "backchannel" / "testbed"
ANSIBLE = _INSTALLED if _INSTALLED.exists() else node_binary.ROOT / "ansible"


def link_collection() -> Path:
    """Links the folder `ansible` as the collection backchannel.testbed. Returns an entry of Ansible's search path."""
    if ANSIBLE == _INSTALLED:
        return node_binary.ROOT
    collections = node_binary.ROOT / ".cache" / "collections"
    link = collections / "ansible_collections" / "backchannel" / "testbed"
    # A copied checkout has a link to the original's folder.
    if link.resolve() != ANSIBLE.resolve():
        link.unlink(missing_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(ANSIBLE)
    return collections


def ansible_playbook() -> Path:
    """The program, beside the Python that runs this; it may not be installed."""
    return Path(sys.executable).with_name("ansible-playbook")


def python_module(name: str) -> Any:
    """A Python module of the collection's `plugins`, such as "module_utils.management".

    Ansible's loader is not needed: the collection's folders are namespace packages.
    """
    path = str(link_collection())
    if path not in sys.path:
        sys.path.append(path)
    return importlib.import_module(f"ansible_collections.backchannel.testbed.plugins.{name}")
