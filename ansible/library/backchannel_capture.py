#!/usr/bin/python
"""A folder in memory for captures, and the proof that the agent's account can capture."""

from __future__ import annotations

from ansible.module_utils.backchannel import (
    account,
    away,
    identity,
    keep_file,
    keep_folder,
    leave_account,
    read,
    refuse_if_held,
    run,
)

DOCUMENTATION = """
module: backchannel_capture
short_description: Where captures are written while a run is under way
description:
  - Mounts a memory file system over O(folder), now and at every boot.
options:
  state:
    choices: [present, absent]
    default: present
    type: str
    description: Whether the host captures.
  folder:
    type: path
    required: true
    description: The agent's folder.
  memory_mb:
    type: int
    default: 256
    description: Size of the memory file system; 0 leaves the folder on disk.
  user:
    type: str
    required: true
    description: The agent's account.
author: Backchannel
"""

FSTAB = "/etc/fstab"


def converge(wanted, report):
    """Brings the folder to what is wanted."""
    refuse_if_held()
    folder = wanted["folder"]
    present = wanted["state"] == "present"
    options = None
    if present:
        account(report, wanted["user"], "capture")
        uid, gid = identity(wanted["user"], report.check)
        if wanted["memory_mb"]:
            options = "size=%dm,mode=0700,uid=%s,gid=%s,nosuid,nodev" % (wanted["memory_mb"], uid, gid)
    keep_fstab(report, folder, options)
    mounted = mount_of(folder)
    size = "size=%dk" % (wanted["memory_mb"] << 10)
    if mounted is not None and (options is None or size not in mounted):
        if report.note("%s: %s" % (folder, mounted), "%s: not mounted" % folder if options is None else ""):
            run(["umount", folder])
        mounted = None
    if present:
        keep_folder(report, folder, wanted["user"], 0o700)
        if options and mounted is None and report.note("%s: on disk" % folder, "%s: in memory, %s" % (folder, size)):
            run(["mount", "-t", "tmpfs", "-o", options, "backchannel", folder])
        if not report.check:
            try_capture(uid, gid)
    else:
        if mounted is None or not report.check:
            away(report, folder)
        leave_account(report, wanted["user"], "capture")
    return report.as_result()


def keep_fstab(report, folder, options):
    """Our line and no other's."""
    old = read(FSTAB) or ""
    lines = [line for line in old.splitlines() if line.split()[:2] != ["backchannel", folder]]
    if options is not None:
        lines.append("backchannel %s tmpfs %s 0 0" % (folder, options))
    if lines != old.splitlines():
        keep_file(report, FSTAB, "".join(line + "\n" for line in lines))


def mount_of(folder):
    """Options of what is mounted there; None for nothing."""
    for line in (read("/proc/mounts") or "").splitlines():
        words = line.split()
        if words[1] == folder:
            return words[3]
    return None


def try_capture(uid, gid):
    """With CAP_NET_RAW and nothing else: a tcpdump confined to another account would only fail in mid-campaign."""
    run(
        [
            "setpriv",
            "--reuid",
            str(uid),
            "--regid",
            str(gid),
            "--clear-groups",
            "--inh-caps",
            "-all,+net_raw",
            "--ambient-caps",
            "-all,+net_raw",
            "timeout",
            "0.05",
            "tcpdump",
            "-i",
            "lo",
            "-w",
            "/dev/null",
        ],
        good=(0, 124),
    )
