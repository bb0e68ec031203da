"""Parts of DOCUMENTATION that several modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Check mode and diff mode; the option `state`."""

    DOCUMENTATION = """
notes:
  - Fails on a host that a campaign holds.
attributes:
  check_mode:
    description: Supported.
    support: full
  diff_mode:
    description: Supported.
    support: full
"""

    STATE = """
options:
  state:
    choices: [present, absent]
    default: present
    type: str
    description: With V(absent) the module removes what it created and restores what it found.
"""
