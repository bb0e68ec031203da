#!/usr/bin/python
"""Interfaces, addresses, neighbours and routes of a testbed's host, as the topology has them."""

from __future__ import annotations

import json
import os

from ansible.module_utils.backchannel import (
    CONFIGURATION,
    Memory,
    Trouble,
    account,
    keep_file,
    keep_sysctls,
    leave_account,
    refuse_if_held,
    restore_sysctls,
    run,
    tidy,
)

DOCUMENTATION = """
module: backchannel_network
short_description: The experiment's interfaces of a host
description:
  - Touches the named interfaces and nothing else. An interface by which the host is reached is refused.
  - What an interface had before (hardware address, offloads, whether it was up) is put back by O(state=absent).
options:
  state:
    choices: [present, absent]
    default: present
    type: str
    description: Whether the host is part of a testbed.
  role:
    type: str
    required: true
    description: Whose settings these are; several roles can hold interfaces of one host.
  interfaces:
    type: list
    elements: dict
    default: []
    description: Each with C(name); C(address) (CIDR) and C(mac) if it is to have them; C(queue) for the TAP of a queue.
  neighbours:
    type: list
    elements: dict
    default: []
    description: C(address), C(mac), C(interface).
  routes:
    type: list
    elements: dict
    default: []
    description: C(subnet), C(via), C(interface).
  sysctls:
    type: dict
    default: {}
    description: Kernel settings of the role.
  links:
    type: list
    elements: dict
    default: []
    description: Emulated links, each C(link) and C(interfaces); these interfaces get no address.
  queues:
    type: list
    elements: dict
    default: []
    description: Queues of ours before real interfaces, each C(link), C(tap) and C(interface).
  user:
    type: str
    default: backchannel
    description: The agent's account, which serves the TAPs.
author: Backchannel
"""

OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "tx": "tx-checksumming",
    "rx": "rx-checksumming",
}
PROMISC = 0x100


def converge(wanted, report):
    """Brings the host to what is wanted."""
    refuse_if_held()
    memory = Memory(wanted["role"])
    grant = "%s/agent.d/%s.json" % (CONFIGURATION, wanted["role"])
    if wanted["state"] == "absent":
        remove(report, memory)
        keep_file(report, grant, None)
        if wanted["role"] == "queue_policy":
            leave_account(report, wanted["user"], wanted["role"])
        restore_sysctls(report, memory)
        if not report.check:
            memory.forget()
            tidy()
        return report.as_result()
    live = Live()
    granted = expand(wanted, live)
    live.refuse_management([one["name"] for one in wanted["interfaces"]])
    if wanted["queues"]:
        account(report, wanted["user"], wanted["role"])
    batch = []
    for one in wanted["interfaces"]:
        batch += interface(report, memory, live, one)
    batch += neighbours(report, live, wanted)
    batch += routes(report, live, wanted)
    if batch and not report.check:
        # All or nothing: the first refusal stops the batch, and the message names the line.
        run(["ip", "-batch", "-"], stdin="\n".join(batch) + "\n")
    keep_sysctls(report, memory, wanted["sysctls"])
    keep_file(report, grant, json.dumps(granted, indent=1, sort_keys=True) + "\n")
    return report.as_result()


def expand(wanted, live):
    """Enters the interfaces of links and queues among the others; what the agent may use, for its folder of grants."""
    links = {one["link"]: one["interfaces"] for one in wanted["links"]}
    wanted["interfaces"] = wanted["interfaces"] + [{"name": name} for names in links.values() for name in names]
    for one in wanted["queues"]:
        links[one["link"]] = [one["tap"], one["interface"]]
        # With the address that the far end knows: a radio sends with no other.
        mac = live.links.get(one["interface"], {}).get("address")
        # What arrives at the real interface is taken by the agent. The kernel sees it too, and would take it a second
        # time: its strict filter drops it, since the way back leads over the TAP.
        wanted["sysctls"]["net.ipv4.conf.%s.rp_filter" % one["interface"]] = 1
        wanted["interfaces"] += [{"name": one["interface"]}, {"name": one["tap"], "tap": wanted["user"], "mac": mac}]
    return {"interfaces": [one["name"] for one in wanted["interfaces"]], "links": links}


class Live:
    """What the kernel says now."""

    def __init__(self):
        self.links = {one["ifname"]: one for one in json.loads(run(["ip", "-json", "address", "show"]) or "[]")}
        self.neighbours = json.loads(run(["ip", "-4", "-json", "neighbour", "show", "nud", "permanent"]) or "[]")
        #: Interfaces that go down for a moment, and lose their routes and neighbours by it.
        self.fallen = set()
        self.routes = json.loads(run(["ip", "-4", "-json", "route", "show"]) or "[]")

    def addresses(self, name):
        """CIDR of each IPv4 address of an interface."""
        return [
            "%s/%d" % (one["local"], one["prefixlen"])
            for one in self.links[name]["addr_info"]
            if one["family"] == "inet"
        ]

    def refuse_management(self, names):
        """The interface under this very SSH session is not the experiment's."""
        server = os.environ.get("SSH_CONNECTION", "").split()[2:3]
        for name in names:
            if name in self.links and server and server[0] in [one.split("/")[0] for one in self.addresses(name)]:
                raise Trouble(
                    "interface %s has %s, by which this host is reached; name another one in 'interfaces'"
                    % (name, server[0])
                )


def interface(report, memory, live, one):
    """Lines for `ip -batch` that bring one interface to what is wanted."""
    name, lines = one["name"], []
    if name not in live.links:
        if one.get("queue") and report.check:
            # The role queue_policy would have made it by now.
            report.note("", "%s: address %s" % (name, one["address"]))
            return lines
        if not one.get("tap"):
            known = ", ".join(sorted(set(live.links) - {"lo"})) or "none"
            raise Trouble(
                "there is no interface '%s' here; there are: %s; name the right one in the inventory" % (name, known)
            )
        if report.note("", "interface %s: a TAP of user %s" % (name, one["tap"])):
            memory.keep("tap " + name, True)
            run(["ip", "tuntap", "add", "dev", name, "mode", "tap", "user", one["tap"]])
            fresh = Live()
            live.links[name] = fresh.links[name]
        else:
            return lines
    link = live.links[name]
    up = "UP" in link["flags"]
    if not report.check:
        memory.keep(
            "interface " + name,
            {
                "mac": link.get("address"),
                "up": up,
                "addresses": live.addresses(name),
                "offloads": [] if one.get("tap") else offloads_on(name),
            },
        )
    mac = one.get("mac")
    if mac and link.get("address") != mac:
        report.note("%s: mac %s" % (name, link.get("address")), "%s: mac %s" % (name, mac))
        # Most drivers refuse while the interface is up.
        lines += ["link set %s down" % name] if up else []
        live.fallen.add(name)
        lines.append("link set %s address %s" % (name, mac))
        up = False
    keep_sysctls(
        report,
        memory,
        {"net.ipv6.conf.%s.disable_ipv6" % name: 1} if os.path.exists("/proc/sys/net/ipv6/conf/" + name) else {},
    )
    wanted = [one["address"]] if one.get("address") else []
    there = live.addresses(name)
    # A TAP's address is the business of the role that knows the topology.
    for address in [] if one.get("tap") else sorted(set(there) - set(wanted)):
        report.note("%s: address %s" % (name, address), "")
        lines.append("address delete %s dev %s" % (address, name))
    for address in sorted(set(wanted) - set(there)):
        report.note("", "%s: address %s" % (name, address))
        lines.append("address add %s dev %s" % (address, name))
    if not up:
        if "UP" not in link["flags"]:
            report.note("%s: down" % name, "%s: up" % name)
        lines.append("link set %s up" % name)
    if not one.get("tap"):
        on = offloads_on(name)
        if on and report.note(
            "%s: offloads %s on" % (name, " ".join(on)), "%s: offloads %s off" % (name, " ".join(on))
        ):
            set_offloads(name, on, "off")
    return lines


def offloads_on(name):
    """Those of OFFLOADS that are on and can be switched."""
    said = run(["ethtool", "-k", name])
    state = dict(line.strip().split(": ", 1) for line in said.splitlines() if ": " in line)
    return [short for short, long in OFFLOADS.items() if state.get(long, "off").strip() == "on"]


def set_offloads(name, offloads, value):
    """Switches them."""
    run(["ethtool", "-K", name, *(word for one in offloads for word in (one, value))])


def neighbours(report, live, wanted):
    """Neighbours entered by hand: no ARP shares a slow line with the traffic under study."""
    names = [one["name"] for one in wanted["interfaces"]]
    there = {(one["dst"], one["lladdr"], one["dev"]) for one in live.neighbours if one["dev"] in names}
    asked = {(one["address"], one["mac"], one["interface"]) for one in wanted["neighbours"]}
    # In this order a host that got another hardware address keeps the new one.
    lines = []
    for address, mac, name in sorted(there - asked):
        report.note("neighbour %s is %s on %s" % (address, mac, name), "")
        if address not in [one[0] for one in asked]:
            lines.append("neighbour delete %s dev %s" % (address, name))
    for address, mac, name in sorted(asked):
        if (address, mac, name) in there:
            if name in live.fallen:
                lines.append("neighbour replace %s lladdr %s dev %s nud permanent" % (address, mac, name))
            continue
        report.note("", "neighbour %s is %s on %s" % (address, mac, name))
        lines.append("neighbour replace %s lladdr %s dev %s nud permanent" % (address, mac, name))
    return lines


def routes(report, live, wanted):
    """Routes over the experiment's interfaces."""
    names = [one["name"] for one in wanted["interfaces"]]
    there = {
        (one["dst"], one.get("gateway", ""), one["dev"])
        for one in live.routes
        if one.get("dev") in names and one.get("protocol") != "kernel"
    }
    asked = {(one["subnet"], one["via"], one["interface"]) for one in wanted["routes"]}
    lines = []
    for subnet, via, name in sorted(there - asked):
        report.note("route %s via %s dev %s" % (subnet, via, name), "")
        lines.append("route delete %s dev %s" % (subnet, name))
    for subnet, via, name in sorted(asked):
        if (subnet, via, name) in there:
            if name in live.fallen:
                lines.append("route replace %s via %s dev %s" % (subnet, via, name))
            continue
        report.note("", "route %s via %s dev %s" % (subnet, via, name))
        lines.append("route replace %s via %s dev %s" % (subnet, via, name))
    return lines


def remove(report, memory):
    """Puts every interface back to what it was before."""
    live = Live()
    for key, old in sorted(memory.values.items()):
        kind, _, name = key.partition(" ")
        if kind == "tap" and name in live.links and report.note("interface %s" % name, ""):
            run(["ip", "tuntap", "delete", "dev", name, "mode", "tap"])
        if kind != "interface" or name not in live.links or "tap " + name in memory.values:
            continue
        link, lines = live.links[name], []
        for address in sorted(set(live.addresses(name)) - set(old["addresses"])):
            report.note("%s: address %s" % (name, address), "")
            lines.append("address delete %s dev %s" % (address, name))
        for one in live.neighbours:
            if one["dev"] == name:
                report.note("neighbour %s on %s" % (one["dst"], name), "")
                lines.append("neighbour delete %s dev %s" % (one["dst"], name))
        for one in live.routes:
            if one.get("dev") == name and one.get("protocol") != "kernel":
                report.note("route %s dev %s" % (one["dst"], name), "")
                lines.append("route delete %s dev %s" % (one["dst"], name))
        # Routes go before the addresses that they lean on.
        lines.sort(key=lambda line: line.startswith("address"))
        if old["mac"] and link.get("address") != old["mac"]:
            report.note("%s: mac %s" % (name, link.get("address")), "%s: mac %s" % (name, old["mac"]))
            lines += ["link set %s down" % name, "link set %s address %s" % (name, old["mac"])]
            lines += ["link set %s up" % name] if old["up"] else []
        if "UP" in link["flags"] and not old["up"]:
            report.note("%s: up" % name, "%s: down" % name)
            lines.append("link set %s down" % name)
        for address in sorted(set(old["addresses"]) - set(live.addresses(name))):
            report.note("", "%s: address %s" % (name, address))
            lines.append("address add %s dev %s" % (address, name))
        if lines and not report.check:
            run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
        off = [one for one in old["offloads"] if one not in offloads_on(name)]
        if off and report.note(
            "%s: offloads %s off" % (name, " ".join(off)), "%s: offloads %s on" % (name, " ".join(off))
        ):
            set_offloads(name, off, "on")
