#!/usr/bin/python
"""Interfaces, addresses, neighbours and routes of a testbed's host."""

from __future__ import annotations

DOCUMENTATION = """
module: network
short_description: Interfaces of an experiment, restored on removal
description:
  - Brings interfaces, addresses, permanent neighbours and routes to what a topology needs. All commands of
    one host are one batch of C(ip), which stops at the first error.
  - Turns segmentation and checksum offloads off and disables IPv6 on the experiment's interfaces.
  - Makes the host answer ARP for an address only on the interface that has it.
  - Records what it found on each interface (hardware address, state, IPv4 addresses, offloads, kernel settings).
    With O(state=absent) it restores that.
  - Grants the agent the use of the interfaces, with a file in C(/etc/backchannel/agent.d).
  - Touches no other interface, and rejects the one that carries the SSH connection.
options:
  role:
    type: str
    required: true
    description: Role that owns these settings. Several roles can own interfaces of one host.
  interfaces:
    type: list
    elements: dict
    default: []
    description: Interfaces with an address.
    suboptions:
      name:
        type: str
        required: true
        description: Name of the interface.
      address:
        type: str
        description: IPv4 address with prefix length.
      mac:
        type: str
        description: Hardware address; unchanged by default.
      queue:
        type: bool
        description: Whether O(queues) creates the interface.
      link:
        type: str
        description: Link of the topology, for people.
  neighbours:
    type: list
    elements: dict
    default: []
    description: Permanent neighbours, so that no ARP shares a slow link with the traffic under study.
    suboptions:
      address:
        type: str
        required: true
        description: IPv4 address.
      mac:
        type: str
        required: true
        description: Hardware address.
      interface:
        type: str
        required: true
        description: Name of the interface.
  routes:
    type: list
    elements: dict
    default: []
    description: Routes.
    suboptions:
      subnet:
        type: str
        required: true
        description: Destination with prefix length.
      via:
        type: str
        required: true
        description: Address of the next hop.
      interface:
        type: str
        required: true
        description: Name of the interface.
  sysctls:
    type: dict
    default: {}
    description: Kernel settings of the role, by name.
  links:
    type: list
    elements: dict
    default: []
    description: Emulated links. Their interfaces get no address.
    suboptions:
      link:
        type: str
        required: true
        description: Name of the link.
      interfaces:
        type: list
        elements: str
        required: true
        description: Names of the interfaces, one per end.
  queues:
    type: list
    elements: dict
    default: []
    description: Queue policies before real interfaces, each behind a TAP.
    suboptions:
      link:
        type: str
        required: true
        description: Name of the link.
      tap:
        type: str
        required: true
        description: Name of the TAP.
      interface:
        type: str
        required: true
        description: Name of the real interface.
  user:
    type: str
    default: backchannel
    description: The agent's account, which owns the TAPs.
author: Backchannel (@backchannel)
extends_documentation_fragment: [backchannel.testbed.host, backchannel.testbed.host.state]
"""

EXAMPLES = """
- name: Address, neighbour and route of an end system
  backchannel.testbed.network:
    role: endpoint
    interfaces:
      - {name: eth1, address: 10.1.0.1/24}
    neighbours:
      - {address: 10.1.0.2, mac: "02:00:00:00:00:02", interface: eth1}
    routes:
      - {subnet: 10.2.0.0/24, via: 10.1.0.2, interface: eth1}

- name: Two bare interfaces of an emulated link
  backchannel.testbed.network:
    role: emulated_modem
    links:
      - {link: bottleneck, interfaces: [eth1, eth2]}

- name: Restore what was found
  backchannel.testbed.network:
    role: endpoint
    state: absent
"""

RETURN = """# """

import json
import os

from ansible_collections.backchannel.testbed.plugins.module_utils.accounts import add_account, leave_account
from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    CONFIGURATION,
    STATE_ARGUMENT,
    HostError,
    Originals,
    refuse_if_held,
    remove_empty_configuration,
    run,
    run_module,
    set_file,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.sysctls import apply_sysctls, restore_sysctls

#: Every host answers ARP for an address only on the interface that has it.
HOST_SYSCTLS = {"net.ipv4.conf.all.arp_ignore": 1, "net.ipv4.conf.all.arp_announce": 2}
#: Names that `ethtool -K` takes and `ethtool -k` prints.
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "tx": "tx-checksumming",
    "rx": "rx-checksumming",
}


def text(required=False):
    """Specification of a text."""
    return {"type": "str", "required": True} if required else {"type": "str"}


def dicts(**options):
    """Specification of a list of dictionaries."""
    return {"type": "list", "elements": "dict", "default": [], "options": options}


ARGUMENTS = {
    "state": STATE_ARGUMENT,
    "role": text(required=True),
    "interfaces": dicts(name=text(required=True), address=text(), mac=text(), queue={"type": "bool"}, link=text()),
    "neighbours": dicts(address=text(required=True), mac=text(required=True), interface=text(required=True)),
    "routes": dicts(subnet=text(required=True), via=text(required=True), interface=text(required=True)),
    "sysctls": {"type": "dict", "default": {}},
    "links": dicts(link=text(required=True), interfaces={"type": "list", "elements": "str", "required": True}),
    "queues": dicts(link=text(required=True), tap=text(required=True), interface=text(required=True)),
    "user": {"type": "str", "default": "backchannel"},
}


def apply(parameters, changes):
    """Brings the host to the requested state."""
    refuse_if_held()
    role, user = parameters["role"], parameters["user"]
    originals = Originals(role)
    grant_file = f"{CONFIGURATION}/agent.d/{role}.json"
    if parameters["state"] == "absent":
        restore_interfaces(changes, originals)
        set_file(changes, grant_file, None)
        if role == "queue_policy":
            leave_account(changes, user, role)
        restore_sysctls(changes, originals)
        if not changes.check_mode:
            originals.forget()
            remove_empty_configuration()
        return
    live = KernelState()
    grants = expand(parameters, live)
    live.refuse_management([interface["name"] for interface in parameters["interfaces"]])
    if parameters["queues"]:
        add_account(changes, user, role)
    batch = []
    for interface in parameters["interfaces"]:
        batch += interface_commands(changes, originals, live, interface)
    names = [interface["name"] for interface in parameters["interfaces"]]
    neighbours = {(entry["address"], entry["mac"], entry["interface"]) for entry in parameters["neighbours"]}
    routes = {(entry["subnet"], entry["via"], entry["interface"]) for entry in parameters["routes"]}
    batch += entry_commands(changes, live, "neighbour", neighbours_of(live, names), neighbours)
    batch += entry_commands(changes, live, "route", routes_of(live, names), routes)
    run_batch(changes, batch)
    apply_sysctls(changes, originals, {**HOST_SYSCTLS, **parameters["sysctls"]})
    set_file(changes, grant_file, json.dumps(grants, indent=1, sort_keys=True) + "\n")


def expand(parameters, live):
    """Adds the interfaces of links and queues to the others. Returns what the agent may use."""
    links = {link["link"]: link["interfaces"] for link in parameters["links"]}
    parameters["interfaces"] = parameters["interfaces"] + [{"name": name} for names in links.values() for name in names]
    for queue in parameters["queues"]:
        tap, name = queue["tap"], queue["interface"]
        links[queue["link"]] = [tap, name]
        # The TAP has the real interface's hardware address: a radio sends with no other.
        mac = live.links.get(name, {}).get("address")
        # The agent takes packets from the real interface, and the kernel receives them too. Its strict reverse-path
        # filter drops its copies because the route back leads over the TAP.
        parameters["sysctls"][f"net.ipv4.conf.{name}.rp_filter"] = 1
        parameters["interfaces"] += [{"name": name}, {"name": tap, "tap": parameters["user"], "mac": mac}]
    return {"interfaces": [interface["name"] for interface in parameters["interfaces"]], "links": links}


class KernelState:
    """The kernel's present state."""

    def __init__(self):
        self.links = {link["ifname"]: link for link in json.loads(run(["ip", "-json", "address", "show"]) or "[]")}
        self.neighbours = json.loads(run(["ip", "-4", "-json", "neighbour", "show", "nud", "permanent"]) or "[]")
        self.routes = json.loads(run(["ip", "-4", "-json", "route", "show"]) or "[]")
        #: Interfaces that the batch takes down for a moment. They lose their routes and neighbours.
        self.restarted = set()

    def addresses(self, name):
        """IPv4 addresses of an interface, with prefix lengths."""
        return [
            f"{address['local']}/{address['prefixlen']}"
            for address in self.links[name]["addr_info"]
            if address["family"] == "inet"
        ]

    def refuse_management(self, names):
        """Raises HostError if one of the interfaces carries this SSH connection."""
        server = os.environ.get("SSH_CONNECTION", "").split()[2:3]
        for name in names:
            if name in self.links and server and server[0] in [cidr.split("/")[0] for cidr in self.addresses(name)]:
                raise HostError(
                    f"interface {name} has {server[0]}, the address of this SSH connection; "
                    "choose another one in the inventory's 'interfaces'"
                )


def run_batch(changes, lines):
    """Runs lines of `ip -batch`, which stops at the first error and names its line."""
    if lines and not changes.check_mode:
        run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def interface_commands(changes, originals, live, interface):
    """Lines for `ip -batch` that bring one interface to the requested state. Creates a TAP at once."""
    name, tap = interface["name"], interface.get("tap")
    if name not in live.links:
        if interface.get("queue") and changes.check_mode:
            # Outside of check mode the role queue_policy has created it by now.
            changes.add("", f"{name}: address {interface['address']}")
            return []
        if not tap:
            known = ", ".join(sorted(set(live.links) - {"lo"})) or "none"
            raise HostError(f"interface '{name}' does not exist; interfaces are: {known}; correct the inventory")
        if not changes.add("", f"interface {name}: a TAP of user {tap}"):
            return []
        originals.record("tap " + name, True)
        run(["ip", "tuntap", "add", "dev", name, "mode", "tap", "user", tap])
        live.links[name] = KernelState().links[name]
    if not changes.check_mode:
        record_interface(originals, live, name, tap)
    lines = link_commands(changes, live, interface)
    if os.path.exists("/proc/sys/net/ipv6/conf/" + name):
        apply_sysctls(changes, originals, {f"net.ipv6.conf.{name}.disable_ipv6": 1})
    if not tap:
        on = offloads_on(name)
        names = " ".join(on)
        if on and changes.add(f"{name}: offloads {names} on", f"{name}: offloads {names} off"):
            set_offloads(name, on, "off")
    return lines


def record_interface(originals, live, name, tap):
    """Records the original state of an interface."""
    link = live.links[name]
    state = {
        "mac": link.get("address"),
        "up": "UP" in link["flags"],
        "addresses": live.addresses(name),
        "offloads": [] if tap else offloads_on(name),
    }
    originals.record("interface " + name, state)


def link_commands(changes, live, interface):
    """Lines that set hardware address and IPv4 address and bring the interface up."""
    name, mac = interface["name"], interface.get("mac")
    link, lines = live.links[name], []
    up = "UP" in link["flags"]
    if mac and link.get("address") != mac:
        changes.add(f"{name}: mac {link.get('address')}", f"{name}: mac {mac}")
        # Most drivers reject a new hardware address while the interface is up.
        lines += [f"link set {name} down"] if up else []
        live.restarted.add(name)
        lines.append(f"link set {name} address {mac}")
        up = False
    requested = {interface["address"]} if interface.get("address") else set()
    present = set(live.addresses(name))
    # The role that knows the topology sets a TAP's address.
    for address in [] if interface.get("tap") else sorted(present - requested):
        changes.add(f"{name}: address {address}", "")
        lines.append(f"address delete {address} dev {name}")
    for address in sorted(requested - present):
        changes.add("", f"{name}: address {address}")
        lines.append(f"address add {address} dev {name}")
    if not up:
        if "UP" not in link["flags"]:
            changes.add(f"{name}: down", f"{name}: up")
        lines.append(f"link set {name} up")
    return lines


def offloads_on(name):
    """Those of OFFLOADS that are on and can be turned off."""
    output = run(["ethtool", "-k", name])
    state = dict(line.strip().split(": ", 1) for line in output.splitlines() if ": " in line)
    return [short for short, long in OFFLOADS.items() if state.get(long, "off").strip() == "on"]


def set_offloads(name, offloads, value):
    """Turns offloads on or off."""
    run(["ethtool", "-K", name, *(word for offload in offloads for word in (offload, value))])


#: Description and `ip` arguments of an entry (destination, hardware address or next hop, interface), by object.
ENTRIES = {
    "neighbour": ("neighbour {} is {} on {}", "neighbour replace {} lladdr {} dev {} nud permanent"),
    "route": ("route {} via {} dev {}", "route replace {} via {} dev {}"),
}


def neighbours_of(live, names):
    """Permanent neighbours on these interfaces, as entries."""
    return {(entry["dst"], entry["lladdr"], entry["dev"]) for entry in live.neighbours if entry["dev"] in names}


def routes_of(live, names):
    """(destination, gateway, interface) of each route over these interfaces that the kernel did not add itself."""
    return {
        (route["dst"], route.get("gateway", ""), route["dev"])
        for route in live.routes
        if route.get("dev") in names and route.get("protocol") != "kernel"
    }


def entry_commands(changes, live, kind, present, requested):
    """Lines that bring the neighbours or routes of the experiment's interfaces to the requested ones."""
    description, replace = ENTRIES[kind]
    replaced = {(destination, name) for destination, _, name in requested}
    lines = []
    for entry in sorted(present - requested):
        changes.add(description.format(*entry), "")
        if (entry[0], entry[2]) not in replaced:
            lines.append(f"{kind} delete {entry[0]} dev {entry[2]}")
    for entry in sorted(requested):
        if entry not in present:
            changes.add("", description.format(*entry))
        elif entry[2] not in live.restarted:
            continue
        lines.append(replace.format(*entry))
    return lines


def restore_interfaces(changes, originals):
    """Removes TAPs and restores the recorded state of the other interfaces."""
    live = KernelState()
    for key, original in sorted(originals.values.items()):
        kind, _, name = key.partition(" ")
        if name not in live.links:
            continue
        if kind == "tap" and changes.add(f"interface {name}", ""):
            run(["ip", "tuntap", "delete", "dev", name, "mode", "tap"])
        if kind == "interface" and "tap " + name not in originals.values:
            restore_interface(changes, live, name, original)


def restore_interface(changes, live, name, original):
    """Restores one interface."""
    link, lines = live.links[name], []
    present, addresses = set(live.addresses(name)), set(original["addresses"])
    # Routes and neighbours first because routes depend on addresses.
    lines += entry_commands(changes, live, "neighbour", neighbours_of(live, [name]), set())
    lines += entry_commands(changes, live, "route", routes_of(live, [name]), set())
    for address in sorted(present - addresses):
        changes.add(f"{name}: address {address}", "")
        lines.append(f"address delete {address} dev {name}")
    if original["mac"] and link.get("address") != original["mac"]:
        changes.add(f"{name}: mac {link.get('address')}", f"{name}: mac {original['mac']}")
        lines += [f"link set {name} down", f"link set {name} address {original['mac']}"]
        lines += [f"link set {name} up"] if original["up"] else []
    if "UP" in link["flags"] and not original["up"]:
        changes.add(f"{name}: up", f"{name}: down")
        lines.append(f"link set {name} down")
    for address in sorted(addresses - present):
        changes.add("", f"{name}: address {address}")
        lines.append(f"address add {address} dev {name}")
    run_batch(changes, lines)
    off = [offload for offload in original["offloads"] if offload not in offloads_on(name)]
    names = " ".join(off)
    if off and changes.add(f"{name}: offloads {names} off", f"{name}: offloads {names} on"):
        set_offloads(name, off, "on")


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
