#!/usr/bin/python
"""What every host of a testbed has: packages, kernel settings, a disciplined clock."""

from __future__ import annotations

import os

from ansible.module_utils.backchannel import (
    Memory,
    Trouble,
    keep_file,
    keep_packages,
    keep_sysctls,
    refuse_if_held,
    restore_sysctls,
    run,
)

DOCUMENTATION = """
module: backchannel_base
short_description: Packages, kernel settings and clock of a testbed's host
description:
  - One task instead of many, since every task costs a third of a second a host.
  - Packages stay when O(state=absent); kernel settings return to what they were.
options:
  state:
    choices: [present, absent]
    default: present
    type: str
    description: Whether the host is part of a testbed.
  packages:
    type: list
    elements: str
    default: []
    description: Debian packages.
  sysctls:
    type: dict
    default: {}
    description: Kernel settings, by name.
  clock:
    choices: [chrony, none]
    default: chrony
    type: str
    description: Who keeps the clock; C(none) where the host shares the clock of another (namespaces, containers).
  time_servers:
    type: list
    elements: str
    default: []
    description: Servers for chrony; without them, those of the distribution.
author: Backchannel
"""

SYSCTL_FILE = "/etc/sysctl.d/60-backchannel.conf"
CHRONY_FILE = "/etc/chrony/conf.d/backchannel.conf"


def chrony_text(servers):
    """Fast first step, no steps later: a step in mid-run would spoil it."""
    lines = ["# Written by Ansible (role common)."]
    lines += ["server %s iburst minpoll 4 maxpoll 6" % server for server in servers]
    lines += ["makestep 0.01 3", "rtcsync"]
    return "\n".join(lines) + "\n"


def converge(wanted, report):
    """Brings the host to what is wanted."""
    refuse_if_held()
    memory = Memory("common")
    if wanted["state"] == "absent":
        keep_file(report, SYSCTL_FILE, None)
        restore_sysctls(report, memory)
        if keep_file(report, CHRONY_FILE, None) and not report.check:
            restart_chrony()
        if not report.check:
            memory.forget()
        return report.as_result()
    keep_packages(report, wanted["packages"] + (["chrony"] if wanted["clock"] == "chrony" else []))
    text = "".join("%s = %s\n" % item for item in sorted(wanted["sysctls"].items()))
    keep_sysctls(report, memory, wanted["sysctls"])
    keep_file(report, SYSCTL_FILE, "# Written by Ansible (role common).\n" + text if text else None)
    if wanted["clock"] == "chrony":
        if keep_file(report, CHRONY_FILE, chrony_text(wanted["time_servers"])) and not report.check:
            restart_chrony()
    return report.as_result()


def restart_chrony():
    """So that it reads its file."""
    if os.path.isdir("/run/systemd/system"):
        run(["systemctl", "restart", "chrony"])
    else:
        raise Trouble(
            "chrony cannot be run here, without systemd; set common_clock to none and discipline the clock otherwise"
        )
