"""The program that changes this machine for a gateway, and changes it back when its starter ends, however it ends.

    python -m testbed.gateway_daemon

It serves the requests of GatewayDaemon on standard input and output (agents.rpc).

At the end of its input the program restores the machine. What it changed is in a file first, from which the next
gateway restores if this program was killed too. Interfaces end with the namespaces of the line, and firewall rules with
the `nft` process that owns them.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agents.rpc import Dispatcher, method, standard_streams
from testbed import addressing, gateway_rules as rules
from testbed.collection import python_module
from testbed.errors import TestbedError
from testbed.gateway_rules import DEVICES, UPLINK
from testbed.local_folders import runtime_folder

#: Settings of IPv6 by interface. Forwarding of it is the kernel's for all interfaces only.
CONF_V6 = Path("/proc/sys/net/ipv6/conf")
FORWARDING_V6 = CONF_V6 / "all/forwarding"
#: Longest time until the rules are in force, in s.
RULES_S = 5.0


@dataclass(frozen=True)
class Taken:
    """What a gateway needs of this machine."""

    #: Networks of the devices, and between this machine and the line, as CIDR.
    devices: str
    link: str
    #: Interfaces by which the machine reaches the internet.
    uplinks: tuple[str, ...]
    #: Why devices get no IPv6; None: they do.
    without_ipv6: str | None
    #: Chains of the machine's firewall that may drop the devices' packets.
    firewall: tuple[str, ...]


class GatewayDaemon:
    """The machine's part of one gateway."""

    def __init__(self) -> None:
        # Of the machine, or of a namespace that plays one.
        name = f"gateway-{Path('/proc/self/ns/net').stat().st_ino}"
        self._record = runtime_folder() / f"{name}.json"
        self._lock_path = runtime_folder() / f"{name}.lock"
        self._lock: int | None = None
        self._nft: subprocess.Popen[str] | None = None
        self._interface = ""
        self._networks: rules.Networks | None = None
        self._with_ipv6 = False
        #: The line's namespace of the devices' side, which stays as long as this is open.
        self._near: int | None = None

    @method
    def take(self, interface: str, subnet: str | None, dhcp: bool) -> Taken:
        """Checks and locks the interface, and makes what the gateway needs of this machine.

        Raises:
            TestbedError: it failed; what was changed so far is restored by `close`.
        """
        self._take_lock(interface)
        # Left by a gateway whose daemon was killed.
        self._restore()
        state = python_module("module_utils.interface_state").KernelState()
        management = python_module("module_utils.management")
        routes = state.routes["inet"]
        link = state.links.get(interface)
        ssh = management.management_interfaces(state.links, management.ssh_connection(), management.interface_towards)
        manager = None if link is None else management.manager(interface, link["ifindex"])
        if problem := rules.rejection_reason(interface, state.links, routes, ssh, manager, dhcp):
            raise TestbedError(problem)
        assert link is not None
        ways = rules.uplinks(routes)
        if not ways:
            raise TestbedError("this machine has no default route, so devices would reach nothing through it")
        self._interface, self._networks = interface, rules.choose_networks(routes, subnet)
        lack = rules.without_ipv6(state.routes["inet6"], self._networks.devices, dhcp)
        self._with_ipv6 = lack is None
        firewall = rules.dropping_chains(json.loads(_run(["nft", "--json", "list", "chains"])), self._with_ipv6)
        off = [name for name in ways if _forwarding(name).read_text().strip() == "0"]
        turns_v6_on = self._with_ipv6 and _read(FORWARDING_V6) == "0"
        self._change(
            interface, "UP" in link["flags"], {name: state.links[name]["ifindex"] for name in off}, turns_v6_on
        )
        self._add_rules(off, turns_v6_on)
        if turns_v6_on:
            # Last, because it makes the machine forward between all of its interfaces, but for the rules.
            FORWARDING_V6.write_text("1")
        return Taken(str(self._networks.devices), str(self._networks.link), tuple(ways), lack, tuple(firewall))

    def _take_lock(self, interface: str) -> None:
        file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
            os.close(file)
            raise TestbedError(
                f"this machine has a gateway already ({holder}); a second one starts when that has ended. "
                "Several devices can share one interface through a switch"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"on {interface}, process {os.getppid()}".encode())
        self._lock = file

    def _change(self, interface: str, was_up: bool, off: dict[str, int], turns_v6_on: bool) -> None:
        """Changes settings, after they were recorded.

        Args:
            interface: of the devices.
            was_up: its state.
            off: interfaces without forwarding, with their indices.
            turns_v6_on: forwarding of IPv6 is turned on later.
        """
        accepting, forwarding = _by_router_settings() if turns_v6_on else ({}, {})
        record = {
            "down": {} if was_up else {interface: _index(interface)},
            "forwarding": off,
            "lro": [name for name in off if _has_lro(name)],
            "forwards_v6": not turns_v6_on,
            "accepting": accepting,
            "forwarding_v6": forwarding,
        }
        new = self._record.with_suffix(".new")
        new.write_text(json.dumps(record))
        new.rename(self._record)
        if not was_up:
            _run(["ip", "link", "set", interface, "up"])
        for name in off:
            _forwarding(name).write_text("1")
        for name in accepting:
            # A host that forwards accepts no advertisements otherwise, and loses its routes.
            (CONF_V6 / name / "accept_ra").write_text("2")

    def _add_rules(self, turned_on: list[str], turns_v6_on: bool) -> None:
        assert self._networks is not None
        # The program keeps the connection to the kernel that owns the rules.
        self._nft = subprocess.Popen(
            ["nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._nft.stdin is not None
        self._nft.stdin.write(rules.table(self._networks, turned_on))
        if self._with_ipv6:
            self._nft.stdin.write(rules.table_v6(self._networks, turns_v6_on))
        self._nft.stdin.flush()
        deadline = time.monotonic() + RULES_S
        wanted = {"ip", "ip6"} if self._with_ipv6 else {"ip"}
        while not all(f"table {family} {rules.TABLE}" in _run(["nft", "list", "tables"]) for family in wanted):
            if time.monotonic() > deadline:
                said = self._nft.communicate()[0].strip().splitlines()
                self._nft = None
                raise TestbedError(f"nft did not add the gateway's rules: {said[0] if said else 'without a message'}")
            time.sleep(0.01)

    @method
    def attach(self, near: int, far: int) -> None:
        """Connects the interface to the network namespace of process `near`, and this machine to that of `far`; over
        IPv6 too unless there is a reason against it.

        Raises:
            TestbedError: it failed.
        """
        assert self._networks is not None
        devices, link = self._networks.devices, self._networks.link
        self._near = os.open(f"/proc/{near}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _run(f"ip link add link {self._interface} name {DEVICES} netns {near} type macvlan mode private".split())
        _run(["ip", "link", "add", rules.LINK, "type", "veth", "peer", "name", UPLINK, "netns", str(far)])
        _run(["ip", "address", "add", f"{link[1]}/{link.prefixlen}", "dev", rules.LINK])
        _run(["ip", "link", "set", rules.LINK, "up"])
        _run(["ip", "route", "add", str(devices), "via", str(link[2]), "dev", rules.LINK])
        # Packets from the devices arrive here, whatever the machine does with others.
        _forwarding(rules.LINK).write_text("1")
        for pid, name, address in (
            (near, DEVICES, f"{devices[1]}/{devices.prefixlen}"),
            (far, UPLINK, f"{link[2]}/{link.prefixlen}"),
        ):
            lines = f"address add {address} dev {name}\nlink set {name} up\n"
            lines += f"route replace default via {link[1]} dev {UPLINK}\n" if pid == far else ""
            _run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"], lines)
        if self._with_ipv6:
            self._attach_ipv6(near, far)

    def _attach_ipv6(self, near: int, far: int) -> None:
        """The same addresses and routes over IPv6."""
        assert self._networks is not None
        devices, link = self._networks.devices, self._networks.link
        own, opposite, gateway = (addressing.ipv6_of(str(address)) for address in (link[1], link[2], devices[1]))
        length = addressing.PREFIX_LENGTH_V6
        (CONF_V6 / rules.LINK / "accept_ra").write_text("0")
        _run(["ip", "address", "add", f"{own}/{length}", "dev", rules.LINK, "nodad"])
        _run(["ip", "route", "add", self._networks.over_ipv6()[0], "via", opposite, "dev", rules.LINK])
        for pid, name, address in ((near, DEVICES, gateway), (far, UPLINK, opposite)):
            inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
            # Router advertisements need a link-local address, which is usable at once.
            enable = (
                f"cd /proc/sys/net/ipv6/conf/{name} && echo 0 >accept_dad && echo 0 >accept_ra && echo 0 >disable_ipv6"
            )
            _run([*inside, "sh", "-c", enable])
            lines = f"address add {address}/{length} dev {name} nodad\n"
            lines += f"route replace ::/0 via {own} dev {UPLINK}\n" if pid == far else ""
            _run([*inside, "ip", "-batch", "-"], lines)

    def close(self) -> None:
        """Restores the machine."""
        if self._lock is None:
            return
        gone = [["ip", "link", "delete", rules.LINK]]
        if self._near is not None:
            # With its namespace the kernel would remove it too, but later, and then the devices' interface, which is
            # down by then, would stay promiscuous.
            gone.append(["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._near}", "ip", "link", "delete", DEVICES])
        for words in gone:
            subprocess.run(words, capture_output=True, check=False)
        if self._near is not None:
            os.close(self._near)
            self._near = None
        if self._nft is not None:
            self._nft.communicate()
        self._restore()
        os.ftruncate(self._lock, 0)
        os.close(self._lock)
        self._lock = None

    def _restore(self) -> None:
        """Restores what the record names, on interfaces that are still the same, and removes the record."""
        try:
            record = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return
        for name, index in record["forwarding"].items():
            if _index(name) == index:
                _forwarding(name).write_text("0")
                if name in record["lro"]:
                    subprocess.run(["ethtool", "-K", name, "lro", "on"], capture_output=True, check=False)
        # Records of earlier releases have nothing of IPv6.
        if not record.get("forwards_v6", True):
            FORWARDING_V6.write_text("0")
            for key, value, names in (
                ("accept_ra", "1", record["accepting"]),
                ("forwarding", "1", record["forwarding_v6"]),
            ):
                for name, index in names.items():
                    if _index(name) == index:
                        (CONF_V6 / name / key).write_text(value)
        for name, index in record["down"].items():
            if _index(name) == index:
                subprocess.run(["ip", "link", "set", name, "down"], capture_output=True, check=False)
        self._record.unlink()


def _forwarding(interface: str) -> Path:
    return Path(f"/proc/sys/net/ipv4/conf/{interface}/forwarding")


def _by_router_settings() -> tuple[dict[str, int], dict[str, int]]:
    """Interfaces that accept router advertisements only as hosts, and those that forward, with their indices."""
    accepting, forwarding = {}, {}
    for folder in sorted(CONF_V6.iterdir()):
        index = _index(folder.name)
        if index is None or folder.name == "lo":
            continue
        if _read(folder / "forwarding") == "1":
            forwarding[folder.name] = index
        elif _read(folder / "accept_ra") == "1":
            accepting[folder.name] = index
    return accepting, forwarding


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _index(interface: str) -> int | None:
    """None without such an interface."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        return None


def _has_lro(interface: str) -> bool:
    """Whether large receive offload is on. The kernel turns it off for an interface that forwards."""
    done = subprocess.run(["ethtool", "-k", interface], capture_output=True, text=True, check=False)
    return "large-receive-offload: on" in done.stdout


def _run(words: list[str], stdin: str = "") -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise TestbedError(f"'{' '.join(words)}' failed: {reason[-1] if reason else f'status {done.returncode}'}")
    return done.stdout


def main() -> int:
    """Serves until the end of its input."""
    daemon = GatewayDaemon()
    try:
        Dispatcher("the gateway's daemon", GatewayDaemon, daemon, (TestbedError,)).serve(standard_streams())
    finally:
        daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
