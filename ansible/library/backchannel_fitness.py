#!/usr/bin/python
"""Whether a host is fit for measurements: clock, offloads, kernel, disk, programs, reachability."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.backchannel import Trouble, read, run

DOCUMENTATION = """
module: backchannel_fitness
short_description: Whether a host is fit for measurements
description:
  - Changes nothing. Fails with every problem found, each with its remedy.
options:
  controller_time:
    type: float
    required: true
    description: Seconds since 1970 on the controller, as the task began.
  clock_limit_s:
    type: float
    default: 5.0
    description: By how much the two clocks may differ, the way there included.
  interfaces:
    type: list
    elements: str
    default: []
    description: The experiment's interfaces.
  neighbours:
    type: list
    elements: str
    default: []
    description: Addresses that must answer a ping, over links that are real.
  programs:
    type: list
    elements: str
    default: []
    description: Programs that must be there.
  congestion_controls:
    type: list
    elements: str
    default: []
    description: The kernel's TCP variants that campaigns need.
  kernel:
    type: str
    default: "5.10"
    description: Oldest kernel that serves.
  folder:
    type: path
    default: /var/lib/backchannel
    description: Where captures are written.
  room_mb:
    type: int
    default: 500
    description: Free space that its disk needs.
  agent:
    type: path
    description: The agent's socket; it must answer.
author: Backchannel
"""

OFFLOADS = (
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "tx-checksumming",
    "rx-checksumming",
)


def main():
    """One host."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "controller_time": {"type": "float", "required": True},
            "clock_limit_s": {"type": "float", "default": 5.0},
            "interfaces": names,
            "neighbours": names,
            "programs": names,
            "congestion_controls": names,
            "kernel": {"default": "5.10"},
            "folder": {"type": "path", "default": "/var/lib/backchannel"},
            "room_mb": {"type": "int", "default": 500},
            "agent": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    problems = []
    for check in (clock, kernel, programs, congestion_controls, interfaces, room, agent, neighbours):
        try:
            problems += check(wanted)
        except Trouble as trouble:
            problems.append(str(trouble))
    facts = {
        "kernel": os.uname().release,
        "clock_offset_s": round(time.time() - wanted["controller_time"], 3),
        "free_mb": free_mb(wanted["folder"]),
        "problems": problems,
    }
    if problems:
        module.fail_json(msg="not fit: " + "; ".join(problems), **facts)
    module.exit_json(changed=False, **facts)


def clock(wanted):
    """Hours off is a wrong time zone or no battery; a run measures what is left of it."""
    offset_s = time.time() - wanted["controller_time"]
    if abs(offset_s) <= wanted["clock_limit_s"]:
        return []
    return ["the clock is %+.0f s off the controller's; set it ('chronyc makestep'), then check again" % offset_s]


def kernel(wanted):
    """Compared number by number."""
    release = os.uname().release
    have = [int(part) for part in release.split("-")[0].split(".")[:2]]
    need = [int(part) for part in wanted["kernel"].split(".")]
    return [] if have >= need else ["kernel %s is older than %s" % (release, wanted["kernel"])]


def programs(wanted):
    """Where a package puts them."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    lacking = [name for name in wanted["programs"] if shutil.which(name, path=path) is None]
    return ["programs are missing: %s; run site.yml" % ", ".join(lacking)] if lacking else []


def congestion_controls(wanted):
    """Modules can be loaded, so what is available counts."""
    there = (read("/proc/sys/net/ipv4/tcp_available_congestion_control") or "").split()
    lacking = [name for name in wanted["congestion_controls"] if name not in there]
    return ["the kernel has no %s; 'modprobe tcp_%s', or another stack" % (lacking[0], lacking[0])] if lacking else []


def interfaces(wanted):
    """There, up, and without offloads."""
    found = []
    live = {one["ifname"]: one for one in json.loads(run(["ip", "-json", "link", "show"]) or "[]")}
    for name in wanted["interfaces"]:
        if name not in live:
            found.append("there is no interface %s" % name)
            continue
        if "UP" not in live[name]["flags"]:
            found.append("interface %s is down; run site.yml" % name)
        said = run(["ethtool", "-k", name])
        on = [one for one in OFFLOADS if "%s: on\n" % one in said]
        if on:
            found.append("interface %s has %s on; run site.yml" % (name, ", ".join(on)))
    return found


def free_mb(folder):
    """Of the disk that holds a folder, or the nearest one above it."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free >> 20


def room(wanted):
    """Captures need it."""
    free = free_mb(wanted["folder"])
    if free >= wanted["room_mb"]:
        return []
    return [
        "the disk of %s has %d MB free, of %d that runs need; make room" % (wanted["folder"], free, wanted["room_mb"])
    ]


def agent(wanted):
    """Asked over its socket, as a controller does."""
    if not wanted["agent"]:
        return []
    if not os.path.exists(wanted["agent"]):
        return ["no agent runs here (%s is missing); run site.yml" % wanted["agent"]]
    asked = socket.socket(socket.AF_UNIX)
    asked.settimeout(5)
    try:
        asked.connect(wanted["agent"])
        asked.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        answered = asked.recv(64).split()[1:2] == [b"200"]
    except OSError:
        answered = False
    finally:
        asked.close()
    return [] if answered else ["the agent does not answer; restart the service backchannel-agent"]


def neighbours(wanted):
    """One ping each, all at once."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    pings = [
        (address, subprocess.Popen(["ping", "-c", "1", "-W", "3", "-q", address], **quiet))
        for address in wanted["neighbours"]
    ]
    return [
        "%s at the other end of a wire does not answer; is the cable in, and is it up there?" % address
        for address, ping in pings
        if ping.wait() != 0
    ]


if __name__ == "__main__":
    main()
