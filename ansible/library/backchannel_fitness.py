#!/usr/bin/python
"""Whether a host is fit for measurements: clock, offloads, kernel, disk, programs, reachability."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time

from ansible.module_utils.backchannel import Trouble, read, refuse_if_held, require_packages, run

DOCUMENTATION = """
module: backchannel_fitness
short_description: Whether a host is fit for measurements
description:
  - Changes nothing, but may have apt read its lists anew. Fails with every problem found, each with its remedy.
options:
  clock:
    type: bool
    default: false
    description: Whether a clock that a run would refuse makes a host unfit. Held by the action plugin.
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
  unheld:
    type: bool
    default: false
    description: Whether a host that a campaign holds is unfit.
  packages:
    type: list
    elements: str
    default: []
    description: Debian packages that must be there, or to be had.
  room_mb:
    type: dict
    default: {}
    description: Free space that the disks of some folders need, by folder.
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


def converge(wanted, report):
    """Every problem; nothing is changed."""
    began_s = time.time()
    problems = []
    for check in (unheld, kernel, programs, packages, congestion_controls, interfaces, room, agent, neighbours):
        try:
            problems += check(wanted)
        except Trouble as trouble:
            problems.append(str(trouble))
    facts = {
        "kernel": os.uname().release,
        "free_mb": {folder: free_mb(folder) for folder in wanted["room_mb"]},
        "problems": problems,
        "clock_s": [began_s, time.time()],
    }
    if problems:
        return {"failed": True, "msg": "not fit: " + "; ".join(problems), **facts}
    return report.as_result(**facts)


def unheld(wanted):
    """What is set up now would change under a run."""
    if wanted["unheld"]:
        refuse_if_held()
    return []


def packages(wanted):
    """There, or to be had."""
    require_packages(wanted["packages"])
    return []


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
    """Releases and captures need it."""
    lacking = [(folder, int(mb)) for folder, mb in sorted(wanted["room_mb"].items()) if free_mb(folder) < int(mb)]
    return ["the disk of %s has %d MB free, of %d needed; make room" % (one, free_mb(one), mb) for one, mb in lacking]


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
