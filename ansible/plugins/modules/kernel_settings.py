#!/usr/bin/python
"""Kernel settings of a testbed's host, restored on removal."""

from __future__ import annotations

DOCUMENTATION = """
module: kernel_settings
short_description: Kernel settings that are restored on removal
description:
  - Sets live kernel settings and writes them to a file of C(/etc/sysctl.d) for the next boot.
  - Records the original value of each setting. With O(state=absent) it restores them and removes the file.
options:
  settings:
    type: dict
    default: {}
    description: Value of each setting, by its name as in C(sysctl).
  file:
    type: path
    default: /etc/sysctl.d/60-backchannel.conf
    description: File that sets them at boot.
author: Backchannel (@backchannel)
extends_documentation_fragment: [backchannel.testbed.host, backchannel.testbed.host.state]
"""

EXAMPLES = """
- name: Answer ARP only on the interface that has the address
  backchannel.testbed.kernel_settings:
    settings:
      net.ipv4.conf.all.arp_ignore: 1
      net.ipv4.conf.all.arp_announce: 2

- name: Restore the original values
  backchannel.testbed.kernel_settings:
    state: absent
"""

RETURN = """# """

from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    STATE_ARGUMENT,
    Originals,
    refuse_if_held,
    run_module,
    set_file,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.sysctls import (
    apply_sysctls,
    restore_sysctls,
)

ARGUMENTS = {
    "state": STATE_ARGUMENT,
    "settings": {"type": "dict", "default": {}},
    "file": {"type": "path", "default": "/etc/sysctl.d/60-backchannel.conf"},
}


def apply(parameters, changes):
    """Brings the settings to the requested state."""
    refuse_if_held()
    originals = Originals("common")
    if parameters["state"] == "absent":
        set_file(changes, parameters["file"], None)
        restore_sysctls(changes, originals)
        if not changes.check_mode:
            originals.forget()
        return
    settings = parameters["settings"]
    apply_sysctls(changes, originals, settings)
    lines = [f"{name} = {value}\n" for name, value in sorted(settings.items())]
    set_file(changes, parameters["file"], "# Written by Ansible.\n" + "".join(lines) if lines else None)


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
