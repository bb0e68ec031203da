"""Kernel settings of one node: TCP, forwarding, offloads, routes.

Every setting that changes a result is set explicitly and read back, because defaults differ between kernels (some have
BBR and 16 MB buffers). A setting that does not take effect is an error.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agents.errors import AgentError
from agents.messages import InterfaceAddress, Neighbour

SYSCTL_ROOT = Path("/proc/sys")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

#: With any of these, a capture on a veth shows packets that no wire carries: frames of up to 64 kB, and checksums that
#: are not filled in.
OFFLOADS = ("tso", "gso", "gro", "tx", "rx")

#: TCP settings of a namespace before its stack's options: no memory of earlier connections, no automatic choices that
#: depend on the machine.
TCP_BASE: Mapping[str, str] = {
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_ecn": "0",
    "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_dsack": "1",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_syncookies": "0",
    "net.ipv4.tcp_fastopen": "0",
    "net.ipv4.tcp_mtu_probing": "0",
}

ROUTER_BASE: Mapping[str, str] = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
}


#: Of a router whose network has IPv6 too. The kernel has this setting for all interfaces only.
ROUTER_BASE_V6: Mapping[str, str] = {"net.ipv6.conf.all.forwarding": "1"}


def sysctl_path(name: str) -> Path:
    """The file behind a sysctl.

    Raises:
        AgentError: the name is not a dotted sysctl name (it could otherwise leave /proc/sys).
    """
    parts = name.split(".")
    if len(parts) < 2 or not all(part and part.replace("_", "").replace("-", "").isalnum() for part in parts):
        raise AgentError(f"'{name}' is not a sysctl name such as net.ipv4.tcp_sack")
    if parts[0] != "net":
        raise AgentError(f"'{name}' is refused: an agent changes settings below net. only")
    return SYSCTL_ROOT.joinpath(*parts)


def apply_sysctls(settings: Mapping[str, str]) -> dict[str, str]:
    """Writes each setting and returns the kernel's values, with white space folded.

    Raises:
        AgentError: a setting does not exist, is refused, or reads back differently.
    """
    result = {}
    for name, value in settings.items():
        path = sysctl_path(name)
        try:
            path.write_text(value)
            actual = path.read_text()
        except OSError as error:
            raise AgentError(f"sysctl {name} cannot be set to '{value}': {error.strerror}") from error
        if actual.split() != value.split():
            raise AgentError(f"sysctl {name} was set to '{value}' but reads '{actual.strip()}'")
        result[name] = " ".join(actual.split())
    return result


def offload_command(interface: str) -> list[str]:
    """The command that switches every offload of an interface off."""
    return ["ethtool", "-K", interface, *(word for name in OFFLOADS for word in (name, "off"))]


def available_congestion_controls() -> Sequence[str]:
    """Congestion controls of this kernel, in its order."""
    return (SYSCTL_ROOT / "net/ipv4/tcp_available_congestion_control").read_text().split()


def address_lines(interfaces: Sequence[InterfaceAddress], give: bool) -> list[str]:
    """Lines for `ip -batch` that give interfaces their addresses, or remove all they have."""
    if not give:
        return [f"address flush dev {interface.name}" for interface in interfaces]
    lines = []
    for interface in interfaces:
        address = ipaddress.ip_interface(interface.address)
        # No other node can have an address of IPv6, so it is usable at once.
        at_once = " nodad" if address.version == 6 else ""
        lines.append(f"address replace {address} dev {interface.name}{at_once}")
    return lines


def ipv6_address_lines(names: Sequence[str], table: Path = Path("/proc/thread-self/net/if_inet6")) -> list[str]:
    """Lines that give interfaces the global IPv6 addresses that they have now."""
    lines = []
    for row in table.read_text().splitlines() if table.exists() else []:
        digits, _, length, scope, _, name = row.split()
        if name in names and scope == "00":
            address = ipaddress.IPv6Interface((int(digits, 16), int(length, 16)))
            lines += address_lines([InterfaceAddress(name, str(address))], give=True)
    return lines


def neighbour_lines(neighbours: Iterable[Neighbour], give: bool) -> list[str]:
    """Lines for `ip -batch` that make neighbours permanent, or remove such entries where they exist.

    Raises:
        AgentError: a hardware address is none.
        ValueError: an address is none.
    """
    lines = []
    for neighbour in neighbours:
        address = ipaddress.IPv4Address(neighbour.address)
        if not MAC.fullmatch(neighbour.mac):
            raise AgentError(f"'{neighbour.mac}' is not a hardware address such as 02:bc:00:01:00:01")
        if give:
            lines.append(f"neighbour replace {address} lladdr {neighbour.mac} dev {neighbour.interface} nud permanent")
        else:
            lines.append(f"neighbour flush to {address} dev {neighbour.interface} nud permanent")
    return lines


def checked_line(line: str, interfaces: Sequence[str]) -> str:
    """A line for `ip -batch` that adds a neighbour or a route over one of these interfaces.

    Raises:
        AgentError: it does anything else.
    """
    match line.split():
        case ["neighbour", "replace", address, "lladdr", _, "dev", name, "nud", "permanent"] if name in interfaces:
            ipaddress.ip_address(address)
        case ["route", "replace", subnet, "via", via, "dev", name, *rest] if name in interfaces and _is_extra(rest):
            ipaddress.ip_network(subnet)
            ipaddress.ip_address(via)
        case ["route", "replace", subnet, "dev", name, "proto", "kernel", "scope", "link", *rest] if (
            name in interfaces and _is_extra(rest)
        ):
            ipaddress.IPv4Network(subnet)
        # Routes of IPv6 have no scope.
        case ["route", "replace", subnet, "dev", name, "proto", "kernel", *rest] if name in interfaces and _is_extra(
            rest
        ):
            ipaddress.IPv6Network(subnet)
        case _:
            raise AgentError(f"'{line}' is neither a neighbour nor a route of the experiment's")
    return line


def _is_extra(words: Sequence[str]) -> bool:
    """Whether the end of a route is a source address and a congestion controller, or one of them, or nothing."""
    match words:
        case []:
            return True
        case ["src", address, *rest]:
            ipaddress.ip_address(address)
            return _is_extra(rest)
        case ["congctl", name]:
            return name.isalnum()
    return False


def ip_batch(lines: Sequence[str]) -> None:
    """Runs `ip -batch`.

    Raises:
        AgentError: ip rejected a line.
    """
    text = "\n".join(lines) + "\n"
    done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise AgentError(f"the network cannot be set up: {output[0] if output else 'ip failed'}")
