#!/usr/bin/python
"""Debian packages that a role needs beside those of every host."""

from __future__ import annotations

from ansible.module_utils.backchannel import keep_packages, refuse_if_held

DOCUMENTATION = """
module: backchannel_packages
short_description: Debian packages
description:
  - Packages that are there are not asked of apt. They stay when a role goes: taking one away may take others with it.
options:
  names:
    type: list
    elements: str
    required: true
    description: Of the packages.
author: Backchannel
"""


def converge(wanted, report):
    """Brings what is missing."""
    refuse_if_held()
    keep_packages(report, wanted["names"])
    return report.as_result()
