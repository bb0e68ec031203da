"""Finds the checkout of Backchannel that this collection is part of, or that BACKCHANNEL_ROOT names.

A collection that `ansible-galaxy` installed has roles and modules. Node binary, agent, inventories of labs and limits
of campaigns are in a checkout.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ansible.errors import AnsibleError

VARIABLE = "BACKCHANNEL_ROOT"


def root():
    """The checkout's folder.

    Raises:
        AnsibleError: there is none.
    """
    configured = os.environ.get(VARIABLE)
    folder = Path(configured) if configured else Path(__file__).resolve().parents[3]
    if not (folder / "experiments" / "inventory.py").is_file():
        where = f"{VARIABLE} names {configured}" if configured else "this collection is installed without one"
        raise AnsibleError(
            f"this needs a checkout of Backchannel, and {where}; set {VARIABLE} to the checkout's folder"
        )
    return folder


def importable():
    """Makes the Python packages of the checkout importable. Returns its folder.

    Raises:
        AnsibleError: there is none.
    """
    folder = root()
    # Last in the path, because the checkout's folder `ansible` must not hide the package. An installation is in it.
    if str(folder) not in sys.path and not (folder / "__init__.py").exists():
        sys.path.append(str(folder))
    return folder


def node_binary():
    """The binary that hosts get, which may not be built.

    Raises:
        AnsibleError: neither BACKCHANNEL_NODE nor a checkout names it.
    """
    named = os.environ.get("BACKCHANNEL_NODE")
    if named:
        return Path(named)
    importable()
    from testbed import node_binary as binary

    return binary.file()
