#!/usr/bin/python
"""Interfaces, addresses, neighbours and routes of a testbed's host."""

from __future__ import annotations

DOCUMENTATION = """
module: network
short_description: Interfaces of an experiment, restored on removal
description:
  - Brings interfaces, addresses, permanent neighbours and routes to what a topology needs. All commands of
    one host are one batch of C(ip), which stops at the first error.
  - Turns segmentation and checksum offloads off on the experiment's interfaces. Disables IPv6 there, or gives the
    interface its O(interfaces[].address6) and no other, without router discovery and link-local addresses.
  - Makes the host answer ARP for an address only on the interface that has it.
  - Records what it found on each interface (hardware address, state, offloads, kernel settings; addresses with their
    lifetimes, permanent neighbours and routes of all tables, of IPv4 and IPv6). With O(state=absent) it restores that.
  - Grants the agent the use of the interfaces, with a file in C(/etc/backchannel/agent.d).
  - Touches no other interface. Rejects those by which the host reaches the controller, and those that NetworkManager,
    systemd-networkd or a DHCP client manages.
options:
  role:
    type: str
    required: true
    description: Part of the host that owns these settings. Several parts can own interfaces of one host.
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
      address6:
        type: str
        description: IPv6 address with prefix length; without it IPv6 is disabled.
      mac:
        type: str
        description: Hardware address; unchanged by default, and where the interface has none (PPP, SLIP, TUN).
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
    description:
      - Permanent neighbours of IPv4 and IPv6, so that no ARP shares a slow link with the traffic under study.
      - Ignored on interfaces without hardware addresses.
    suboptions:
      address:
        type: str
        required: true
        description: IPv4 or IPv6 address.
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
    description:
      - Queue policies before real interfaces, each behind a TAP, or a TUN where the interface has no link-layer header.
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
  lines:
    type: list
    elements: str
    default: []
    description: Interfaces that the roles C(ppp) and C(slip) create. In check mode they may be missing.
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
import time

from ansible_collections.backchannel.testbed.plugins.module_utils.accounts import add_account, leave_account
from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    CONFIGURATION,
    STATE_ARGUMENT,
    HostError,
    Originals,
    read,
    refuse_if_held,
    remove_empty_configuration,
    run,
    run_module,
    set_file,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.interface_state import (
    FAMILIES,
    KernelState,
    address_lines,
    described,
    flush_lines,
    lasting,
    route_lines,
    route_words,
    run_batch,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.management import rejection_reasons
from ansible_collections.backchannel.testbed.plugins.module_utils.sysctls import (
    apply_sysctls,
    of_interface,
    path_of,
    restore_sysctl,
    restore_sysctls,
    write_sysctl,
)

#: Every host answers ARP for an address only on the interface that has it.
HOST_SYSCTLS = {"net.ipv4.conf.all.arp_ignore": 1, "net.ipv4.conf.all.arp_announce": 2}
#: An interface of the experiment with IPv6 makes no address itself, looks for no router, takes no time to test
#: addresses, and reports its group memberships at once.
QUIET = {
    "addr_gen_mode": 1,
    "accept_ra": 0,
    "router_solicitations": 0,
    "accept_dad": 0,
    # A number of milliseconds that kernels with any usual rate of ticks keep.
    "mldv1_unsolicited_report_interval": 20,
    "mldv2_unsolicited_report_interval": 20,
}
#: Forwarding of IPv6, which the kernel has for all interfaces only.
FORWARDING_V6 = "net.ipv6.conf.all.forwarding"
#: Longest wait for IPv6's duplicate address detection.
DETECTION_S = 5.0
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
    "interfaces": dicts(
        name=text(required=True), address=text(), address6=text(), mac=text(), queue={"type": "bool"}, link=text()
    ),
    "neighbours": dicts(address=text(required=True), mac=text(required=True), interface=text(required=True)),
    "routes": dicts(subnet=text(required=True), via=text(required=True), interface=text(required=True)),
    "sysctls": {"type": "dict", "default": {}},
    "links": dicts(link=text(required=True), interfaces={"type": "list", "elements": "str", "required": True}),
    "queues": dicts(link=text(required=True), tap=text(required=True), interface=text(required=True)),
    "lines": {"type": "list", "elements": "str", "default": []},
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
    predicted = set(parameters["lines"]) - set(live.links) if changes.check_mode else set()
    grants = expand(parameters, live, predicted)
    interfaces = {interface["name"]: interface for interface in parameters["interfaces"]}
    present = [name for name, interface in interfaces.items() if not is_to_come(live, interface, predicted)]
    problems = rejection_reasons(live, present, [route["subnet"] for route in parameters["routes"]])
    if problems:
        raise HostError("; ".join(problems))
    if parameters["queues"]:
        add_account(changes, user, role)
    # Everything is recorded before anything changes, because a route may use several interfaces.
    if not changes.check_mode:
        for name in present:
            record_interface(originals, live, name)
    if parameters["sysctls"].get(FORWARDING_V6):
        keep_router_discovery(changes, originals, set(interfaces))
    batch = []
    for interface in interfaces.values():
        batch += interface_commands(changes, originals, live, interface, parameters)
    if not changes.check_mode:
        run_batch("inet", batch)
    batch = []
    for name in present:
        if interfaces[name].get("address6"):
            batch += ipv6_commands(changes, originals, live.state(name), interfaces[name], parameters)
    if not changes.check_mode:
        run_batch("inet6", batch)
    apply_sysctls(changes, originals, {**HOST_SYSCTLS, **parameters["sysctls"]})
    set_file(changes, grant_file, json.dumps(grants, indent=1, sort_keys=True) + "\n")


def is_to_come(live, interface, predicted):
    """Whether this module, or in check mode a role before or after it, creates the interface."""
    is_created = interface.get("tap") or interface.get("queue") or interface["name"] in predicted
    return interface["name"] not in live.links and bool(is_created)


def expand(parameters, live, predicted):
    """Adds the interfaces of links and queues to the others. Returns what the agent may use.

    Those that are `predicted` have no kernel settings yet.
    """
    links = {link["link"]: link["interfaces"] for link in parameters["links"]}
    parameters["interfaces"] = parameters["interfaces"] + [{"name": name} for names in links.values() for name in names]
    for queue in parameters["queues"]:
        tap, name = queue["tap"], queue["interface"]
        links[queue["link"]] = [tap, name]
        # The TAP has the real interface's hardware address, because a radio sends with no other, and its MTU.
        mac, mtu = (live.state(name)["mac"], live.links[name]["mtu"]) if name in live.links else (None, None)
        # The agent takes packets from the real interface, and the kernel receives them too. Its strict reverse-path
        # filter drops its copies because the route back leads over the TAP.
        if name not in predicted:
            parameters["sysctls"][of_interface("ipv4", name, "rp_filter")] = 1
        parameters["interfaces"] += [{"name": name}, {"name": tap, "tap": parameters["user"], "mac": mac, "mtu": mtu}]
    return {
        "interfaces": [interface["name"] for interface in parameters["interfaces"]],
        "links": links,
        "taps": [queue["tap"] for queue in parameters["queues"]],
    }


def interface_commands(changes, originals, live, interface, parameters):
    """Lines for `ip -batch` that bring one interface to the requested state. Creates a TAP or TUN at once."""
    name, tap = interface["name"], interface.get("tap")
    is_new = name not in live.links
    if is_new:
        if not tap:
            if not changes.check_mode:
                raise HostError(
                    f"interface '{name}' does not exist; the role interfaces creates it with kind queue_policy"
                )
            if interface.get("address"):
                changes.add("", f"{name}: address {interface['address']}")
            return []
        mode = "tap" if interface["mac"] else "tun"
        if not changes.add("", f"interface {name}: a {mode.upper()} of user {tap}"):
            return []
        originals.record("tap " + name, mode)
        run(["ip", "tuntap", "add", "dev", name, "mode", mode, "user", tap])
        live.links[name] = KernelState().links[name]
        record_interface(originals, live, name)
    state = live.state(name)
    # The role that knows the topology sets a TAP's addresses and routes.
    wanted = state if tap else requested(interface, parameters)
    # On a wire, that role also chooses the hardware address.
    mac = state["mac"] if tap and not is_new else interface.get("mac") or state["mac"]
    if not state["mac"]:
        mac, wanted = None, {**wanted, "neighbours": {"inet": [], "inet6": []}}
    wanted = {**wanted, "mac": mac, "up": True}
    lines = rebuilt(changes, name, state, wanted, 0.0)
    mtu = live.links[name]["mtu"]
    if tap and changes.add(f"{name}: MTU {mtu}", f"{name}: MTU {interface['mtu'] or mtu}"):
        run(["ip", "link", "set", name, "mtu", str(interface["mtu"])])
    if os.path.exists("/proc/sys/net/ipv6/conf/" + name) and not interface.get("address6"):
        for line in described(state, name, "inet6"):
            changes.add(f"{name}: {line}", "")
        apply_sysctls(changes, originals, {of_interface("ipv6", name, "disable_ipv6"): 1})
    if not tap:
        on = offloads_on(name)
        names = " ".join(on)
        if on and changes.add(f"{name}: offloads {names} on", f"{name}: offloads {names} off"):
            set_offloads(name, on, "off")
    return lines + route_lines(wanted["routes"]["inet"] if lines else [])


def ipv6_commands(changes, originals, state, interface, parameters):
    """Lines for `ip -6 -batch` that give an interface its IPv6 state and no other. Applies settings at once."""
    name = interface["name"]
    if not os.path.exists("/proc/sys/net/ipv6/conf/" + name):
        raise HostError("the kernel has no IPv6, and the campaign has flows over it; use 'ip: 4'")
    wanted = requested(interface, parameters)
    if not state["mac"]:
        wanted = {**wanted, "neighbours": {"inet": [], "inet6": []}}
    before, after = described(state, name, "inet6"), described(wanted, name, "inet6")
    # A new hardware address took the interface down, and its IPv6 state with it.
    present = before if changes.check_mode else described(KernelState().state(name), name, "inet6")
    if present == after:
        return []
    add_lines(changes, name, before, after)
    setting = of_interface("ipv6", name, "disable_ipv6")
    if not changes.check_mode:
        originals.record("sysctl " + setting, read(path_of(setting)).strip())
        # The kernel forgets all that the interface has.
        write_sysctl(setting, 1)
    apply_sysctls(changes, originals, {of_interface("ipv6", name, key): value for key, value in QUIET.items()})
    if changes.check_mode:
        return []
    write_sysctl(setting, 0)
    return address_lines(name, wanted, "inet6", 0.0) + route_lines(wanted["routes"]["inet6"])


def keep_router_discovery(changes, originals, own):
    """Lets other interfaces accept router advertisements while the host forwards, as they did before."""
    if (read(path_of(FORWARDING_V6)) or "").strip() != "0":
        return
    folder = "/proc/sys/net/ipv6/conf"
    names = set(os.listdir(folder)) - {"all", "default", "lo", *own} if os.path.isdir(folder) else set()
    for name in sorted(names):
        found = {key: (read(f"{folder}/{name}/{key}") or "").strip() for key in ("accept_ra", "forwarding")}
        if found["forwarding"] == "0" and found["accept_ra"] == "1":
            apply_sysctls(changes, originals, {of_interface("ipv6", name, "accept_ra"): 2})
        elif found["forwarding"] == "1" and not changes.check_mode:
            # The end of forwarding takes it from every interface.
            originals.record("sysctl " + of_interface("ipv6", name, "forwarding"), "1")


def record_interface(originals, live, name):
    """Records the original state of an interface."""
    state = {**live.state(name), "recorded_s": since_boot_s(), "offloads": offloads_on(name)}
    originals.record("interface " + name, state)


def since_boot_s():
    """Seconds since boot. The wall clock may be set while the testbed has the interfaces."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def requested(interface, parameters):
    """The requested state of an interface, as `KernelState.state` has it."""
    name = interface["name"]
    state = {key: {family: [] for family in FAMILIES} for key in ("addresses", "neighbours", "routes")}
    for family, key in (("inet", "address"), ("inet6", "address6")):
        if interface.get(key):
            local, _, prefix = interface[key].partition("/")
            flags = {"nodad": True} if family == "inet6" else {}
            address = {"family": family, "local": local, "prefixlen": int(prefix), "scope": "global", **flags}
            state["addresses"][family].append(address)
    for entry in parameters["neighbours"]:
        if entry["interface"] == name:
            neighbour = {"dst": entry["address"], "lladdr": entry["mac"], "dev": name}
            state["neighbours"][family_of(entry["address"])].append(neighbour)
    for entry in parameters["routes"]:
        if entry["interface"] == name:
            family = family_of(entry["via"])
            # What the kernel adds to a route over IPv6.
            usual = {"metric": 1024, "pref": "medium"} if family == "inet6" else {}
            route = {
                "dst": entry["subnet"].removesuffix("/32").removesuffix("/128"),
                "gateway": entry["via"],
                "dev": name,
                "table": "main",
                "protocol": "boot",
                "scope": "global",
                **usual,
            }
            state["routes"][family].append(route)
    return state


def family_of(address):
    """The family of an address."""
    return "inet6" if ":" in address else "inet"


def rebuilt(changes, name, state, wanted, passed_s):
    """Lines that give an interface all of its IPv4 state again, without routes; none if only IPv6 differs."""
    before, after = described(state, name, "inet"), described(wanted, name, "inet")
    differs = [state[key] != wanted[key] for key in ("mac", "up")]
    if before == after and not any(differs):
        return []
    add_lines(changes, name, before, after)
    lines = flush_lines(name, state)
    if state["mac"] != wanted["mac"]:
        changes.add(f"{name}: mac {state['mac']}", f"{name}: mac {wanted['mac']}")
        # Most drivers reject a new hardware address while the interface is up.
        lines += [f"link set {name} down", f"link set {name} address {wanted['mac']}"]
    if state["up"] != wanted["up"]:
        words = {True: "up", False: "down"}
        changes.add(f"{name}: {words[state['up']]}", f"{name}: {words[wanted['up']]}")
    lines.append(f"link set {name} {'up' if wanted['up'] else 'down'}")
    return lines + address_lines(name, wanted, "inet", passed_s)


def add_lines(changes, name, before, after):
    """Adds the lines of an interface's state that only one side has."""
    for line in before:
        changes.add("" if line in after else f"{name}: {line}", "")
    for line in after:
        changes.add("", "" if line in before else f"{name}: {line}")


def offloads_on(name):
    """Those of OFFLOADS that are on and can be turned off."""
    output = run(["ethtool", "-k", name])
    state = dict(line.strip().split(": ", 1) for line in output.splitlines() if ": " in line)
    return [short for short, long in OFFLOADS.items() if state.get(long, "off").strip() == "on"]


def set_offloads(name, offloads, value):
    """Turns offloads on or off."""
    run(["ethtool", "-K", name, *(word for offload in offloads for word in (offload, value))])


def restore_interfaces(changes, originals):
    """Removes TAPs and TUNs and restores the recorded state of the other interfaces."""
    live = KernelState()
    recorded = {}
    for key, original in sorted(originals.values.items()):
        kind, _, name = key.partition(" ")
        if name not in live.links:
            continue
        if kind == "tap" and changes.add(f"interface {name}", ""):
            # Releases before TUNs recorded True.
            run(["ip", "tuntap", "delete", "dev", name, "mode", original if original == "tun" else "tap"])
        if kind == "interface" and "tap " + name not in originals.values:
            recorded[name] = original
    passed_s = {name: max(0.0, since_boot_s() - original["recorded_s"]) for name, original in recorded.items()}
    lines, routes, down_again = [], [], []
    for name, original in recorded.items():
        own = rebuilt(changes, name, live.state(name), original, passed_s[name])
        lines += own
        if own:
            routes += original["routes"]["inet"]
        if own and not original["up"] and original["routes"]["inet"]:
            # The dead next hop of a route over other interfaces too. The kernel takes it while the interface is up.
            lines.append(f"link set {name} up")
            down_again.append(f"link set {name} down")
    if not changes.check_mode:
        run_batch("inet", lines + route_lines(routes) + down_again)
    for name, original in recorded.items():
        off = [offload for offload in original["offloads"] if offload not in offloads_on(name)]
        names = " ".join(off)
        if off and changes.add(f"{name}: offloads {names} off", f"{name}: offloads {names} on"):
            set_offloads(name, off, "on")
        forget_ipv6(changes, originals, live.state(name), original, name)
        restore_sysctl(changes, originals, of_interface("ipv6", name, "disable_ipv6"))
    restore_ipv6(changes, recorded, passed_s)


def forget_ipv6(changes, originals, state, original, name):
    """Removes what this module and agents gave an interface over IPv6, with the settings that kept it quiet."""
    setting = of_interface("ipv6", name, "disable_ipv6")
    before, after = described(state, name, "inet6"), described(original, name, "inet6")
    if "sysctl " + setting in originals.values and (read(path_of(setting)) or "").strip() == "0" and before != after:
        for line in before:
            changes.add("" if line in after else f"{name}: {line}", "")
        if not changes.check_mode:
            write_sysctl(setting, 1)
    for key in QUIET:
        restore_sysctl(changes, originals, of_interface("ipv6", name, key))


def restore_ipv6(changes, recorded, passed_s):
    """Restores IPv6 addresses, neighbours and routes. The kernel has removed them while IPv6 was disabled."""
    live = KernelState()
    lines, routes = [], []
    for name, original in recorded.items():
        present = described(live.state(name), name, "inet6")
        missing = [line for line in described(original, name, "inet6") if line not in present]
        if not missing or not original["up"]:
            continue
        for line in missing:
            changes.add("", f"{name}: {line}")
        lines += address_lines(name, original, "inet6", passed_s[name])
        routes += [
            route
            for route in original["routes"]["inet6"]
            if f"route {' '.join(route_words(lasting(route)))}" not in present
        ]
    if changes.check_mode:
        return
    run_batch("inet6", lines)
    if any("prefsrc" in route for route in routes):
        await_addresses(list(recorded))
    run_batch("inet6", route_lines(routes))


def await_addresses(names):
    """Waits until duplicate address detection has ended, because a route's source address must be usable."""
    deadline = time.monotonic() + DETECTION_S
    while time.monotonic() < deadline:
        links = KernelState().links
        if not any(entry.get("tentative") for name in names for entry in links[name]["addr_info"]):
            return
        time.sleep(0.1)


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
