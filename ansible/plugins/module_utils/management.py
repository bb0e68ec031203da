"""Interfaces that a testbed must not take: they lead to the controller, or another program manages them."""

from __future__ import annotations

import os
import shutil

from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    HostError,
    read,
    run,
    taken_interfaces,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.interface_state import (
    ip_json,
    route_words,
    routes_over,
)

#: Programs that lease addresses.
DHCP_CLIENTS = ("dhclient", "dhcpcd", "udhcpc")
#: Lines of systemd-networkd's state files for interfaces that it leaves alone.
UNMANAGED = ("ADMIN_STATE=unmanaged", "ADMIN_STATE=pending", "ADMIN_STATE=initialized")


def ssh_connection(proc="/proc"):
    """(the controller's address, this host's) of the SSH connection; None without one.

    sudo drops SSH_CONNECTION, but its own process and those above it still have it.
    """
    pid = str(os.getpid())
    while pid not in ("", "0"):
        try:
            with open(f"{proc}/{pid}/environ", "rb") as file:
                environment = file.read().decode(errors="replace").split("\0")
            with open(f"{proc}/{pid}/stat") as file:
                pid = file.read().rpartition(")")[2].split()[1]
        except OSError:
            return None
        for variable in environment:
            name, _, value = variable.partition("=")
            if name == "SSH_CONNECTION" and len(value.split()) == 4:
                return value.split()[0], value.split()[2]
    return None


def management_interfaces(links, connection, interface_to):
    """Interfaces that carry the SSH connection: with its address, on the way to the controller, and those below them.

    Args:
        links: of KernelState.
        connection: of `ssh_connection`.
        interface_to: the interface by which packets to an address leave (`interface_towards`).
    """
    if connection is None:
        return set()
    controller, server = (address.removeprefix("::ffff:") for address in connection)
    names = {
        name
        for name, link in links.items()
        for entry in link["addr_info"]
        if entry["local"] == server.partition("%")[0] and ("%" not in server or name == server.partition("%")[2])
    }
    towards = controller.partition("%")[2] or interface_to(controller)
    names |= {towards} if towards else set()
    while True:
        lower = {links[name]["link"] for name in names if name in links and is_above(links[name])}
        ports = {name for name, link in links.items() if link.get("master") in names}
        if lower | ports <= names:
            return names
        names |= lower | ports


def is_above(link):
    """Whether an interface, such as a VLAN, sends through another one of this host. A veth's `link` is its peer."""
    return bool(link.get("link")) and link.get("linkinfo", {}).get("info_kind") != "veth"


def interface_towards(address):
    """The interface by which packets to an address leave; None without a route."""
    try:
        return ip_json(["route", "get", address])[0].get("dev")
    except (HostError, IndexError):
        return None


def dhcp_client(name):
    """(program, process id) of a DHCP client of an interface, or None."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        program = os.path.basename(words[0]).rstrip(":")
        if program in DHCP_CLIENTS and name in words[1:]:
            return program, pid
    return None


def manager(name, index):
    """Why an interface belongs to another program, with the remedy; None for one that is free.

    Such a program would change the interface back during a run. netplan configures one of the first two.
    """
    netplan = "; if netplan configures it, take it out of /etc/netplan and run 'netplan apply'"
    networkd = read(f"/run/systemd/netif/links/{index}")
    if networkd is not None and not any(line in UNMANAGED for line in networkd.splitlines()):
        return (
            f"systemd-networkd manages interface {name}; give it a .network file with 'Unmanaged=yes' and run "
            f"'networkctl reload'{netplan}"
        )
    if os.path.exists("/run/NetworkManager") and shutil.which("nmcli"):
        try:
            answer = run(["nmcli", "--get-values", "GENERAL.NM-MANAGED", "device", "show", name]).strip()
        except HostError:  # NetworkManager does not run, or does not have the interface
            answer = "no"
        if answer == "yes":
            return (
                f"NetworkManager manages interface {name}; run 'nmcli device set {name} managed no', and for good list "
                f"it in unmanaged-devices{netplan}"
            )
    client = dhcp_client(name)
    if client:
        return f"{client[0]} (process {client[1]}) leases addresses for interface {name}; end it first"
    return None


def rejection_reasons(live, names, destinations=()):
    """Why the testbed must not take these interfaces; empty if it can.

    Args:
        live: the kernel's state.
        names: of the interfaces.
        destinations: of the experiment's routes. One that another interface has would be replaced.
    """
    connection = ssh_connection()
    management = management_interfaces(live.links, connection, interface_towards)
    problems = []
    for name in names:
        link = live.links.get(name)
        if link is None:
            known = ", ".join(sorted(set(live.links) - {"lo"})) or "none"
            problems.append(f"interface '{name}' does not exist; interfaces are: {known}; correct the inventory")
            continue
        if name in management:
            problems.append(
                f"interface {name} carries the SSH connection to the controller ({connection[0]}); "
                "choose another one in the inventory's 'interfaces'"
            )
            continue
        if link.get("master"):
            problems.append(f"interface {name} is a port of {link['master']}; take it out first")
        managed = manager(name, link["ifindex"])
        problems += [managed] if managed else []
        for routes in live.routes.values():
            for route in routes_over(routes, name):
                try:
                    route_words(route)
                except HostError as error:
                    problems.append(f"interface {name}: {error}")
    own = {*names, *taken_interfaces()}
    for route in live.routes["inet"]:
        elsewhere = route.get("dev") not in own and not route.get("metric")
        if route["dst"] in destinations and route.get("table", "main") == "main" and elsewhere:
            problems.append(
                f"a route to {route['dst']} exists over {route.get('dev', 'several interfaces')}; "
                "set another range in the inventory's 'addresses'"
            )
    return problems
