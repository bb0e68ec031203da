#!/usr/bin/python
"""A folder in memory for packet captures."""

from __future__ import annotations

DOCUMENTATION = """
module: capture_folder
short_description: Folder in memory for packet captures
description:
  - Mounts a memory file system over O(folder), now and at every boot, for an account of its own.
  - Runs C(tcpdump) once with that account's privileges, so that a confined C(tcpdump) fails here and not during a run.
  - With O(state=absent) it removes mount, line of C(/etc/fstab), folder, and the account if a role created it.
options:
  folder:
    type: path
    required: true
    description: The agent's folder.
  memory_mb:
    type: int
    default: 256
    description: Size of the memory file system in MiB; 0 leaves the folder on disk.
  user:
    type: str
    required: true
    description: The agent's account, created if it does not exist.
author: Backchannel (@backchannel)
extends_documentation_fragment: [backchannel.testbed.host, backchannel.testbed.host.state]
"""

EXAMPLES = """
- name: Capture to 512 MiB of memory
  backchannel.testbed.capture_folder:
    folder: /var/lib/backchannel/run
    memory_mb: 512
    user: backchannel
"""

RETURN = """# """

from ansible_collections.backchannel.testbed.plugins.module_utils.accounts import (
    add_account,
    identity,
    leave_account,
    set_folder,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    STATE_ARGUMENT,
    read,
    refuse_if_held,
    remove_tree,
    run,
    run_module,
    set_file,
)

FSTAB = "/etc/fstab"
ARGUMENTS = {
    "state": STATE_ARGUMENT,
    "folder": {"type": "path", "required": True},
    "memory_mb": {"type": "int", "default": 256},
    "user": {"type": "str", "required": True},
}


def apply(parameters, changes):
    """Brings the folder to the requested state."""
    refuse_if_held()
    folder, user, memory_mb = parameters["folder"], parameters["user"], parameters["memory_mb"]
    present = parameters["state"] == "present"
    options = None
    if present:
        add_account(changes, user, "capture")
        uid, gid = identity(user, changes.check_mode)
        if memory_mb:
            options = f"size={memory_mb}m,mode=0700,uid={uid},gid={gid},nosuid,nodev"
    set_fstab(changes, folder, options)
    mounted = mount_options(folder)
    size = f"size={memory_mb << 10}k"
    if mounted is not None and (options is None or size not in mounted):
        if changes.add(f"{folder}: {mounted}", f"{folder}: not mounted" if options is None else ""):
            run(["umount", folder])
        mounted = None
    if not present:
        if mounted is None or not changes.check_mode:
            remove_tree(changes, folder)
        leave_account(changes, user, "capture")
        return
    set_folder(changes, folder, user, 0o700)
    if options and mounted is None and changes.add(f"{folder}: on disk", f"{folder}: in memory, {size}"):
        run(["mount", "-t", "tmpfs", "-o", options, "backchannel", folder])
    if not changes.check_mode:
        test_capture(uid, gid)


def set_fstab(changes, folder, options):
    """Sets or removes the folder's line of /etc/fstab."""
    old = (read(FSTAB) or "").splitlines()
    lines = [line for line in old if line.split()[:2] != ["backchannel", folder]]
    if options is not None:
        lines.append(f"backchannel {folder} tmpfs {options} 0 0")
    if lines != old:
        set_file(changes, FSTAB, "".join(line + "\n" for line in lines))


def mount_options(folder):
    """Options of the file system that is mounted on the folder, or None."""
    for line in (read("/proc/mounts") or "").splitlines():
        words = line.split()
        if words[1] == folder:
            return words[3]
    return None


def test_capture(uid, gid):
    """Captures on the loopback interface for 50 ms with CAP_NET_RAW only."""
    run(
        ["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups"]
        + ["--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw"]
        + ["timeout", "0.05", "tcpdump", "-i", "lo", "-w", "/dev/null"],
        good=(0, 124),
    )


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
