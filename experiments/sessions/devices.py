"""Devices behind a real interface of this machine, as the near end of a session's line.

The kernel carries their packets: the near node has a macvlan interface on the real one, and the machine forwards for
the far node. `testbed.gateway_daemon` changes the machine and restores it. DHCP is dnsmasq's.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.rpc import TIMEOUT_S, ChildProcess
from experiments.sessions.outside import add_routes, enable_ipv6, process_in, run_batch
from experiments.sessions.plan import SessionPlan
from testbed import addressing, gateway_rules, node_binary
from testbed.errors import TestbedError, Unavailable
from testbed.gateway_daemon import GatewayDaemon
from testbed.gateway_rules import DEVICES
from testbed.local_folders import ScratchFolder
from testbed.report import SessionHost

#: Programs with Debian's package of each.
PROGRAMS = {"nft": "nftables", "dnsmasq": "dnsmasq-base"}
#: Time for which a device keeps its address, in s; it may outlive the gateway by that.
LEASE_S = 300
#: Addresses of the devices' network that the gateway does not give away.
FIRST_LEASED = 10
#: dnsmasq's line for an address that a device accepted: address, hardware address, and perhaps a name.
_LEASED = re.compile(rf"DHCPACK\({DEVICES}\) (\S+) (\S+)(?: (\S+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Device:
    """A device that the gateway gave an address."""

    address: str
    mac: str
    #: As it calls itself; empty if it does not.
    name: str

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.address} {self.mac} {self.name}".rstrip()


class DeviceGateway:
    """An interface of this machine that devices are connected to (experiments.sessions.outside.Uplink).

    Args:
        interface: its name.
        subnet: network of the devices, as CIDR; None: one that the machine does not use.
        name_server: that devices are told to use; None: the machine's own.
        dhcp: whether devices get addresses, and over IPv6 router advertisements.

    Raises:
        Unavailable: a program is missing.
        TestbedError: the machine or the interface cannot be used; nothing has changed.
    """

    def __init__(self, interface: str, subnet: str | None, name_server: str | None, dhcp: bool) -> None:
        needed = [name for name in PROGRAMS if dhcp or name != "dnsmasq"]
        if missing := [PROGRAMS[name] for name in needed if shutil.which(name) is None]:
            raise Unavailable(f"a gateway needs more programs: apt-get install {' '.join(missing)}")
        self.interface = interface
        self.name_server = name_server or _own_name_server()
        self._dhcp = dhcp
        self._dnsmasq: subprocess.Popen[bytes] | None = None
        self._scratch = ScratchFolder()
        environment = {**os.environ, "PYTHONPATH": node_binary.python_path()}
        self._daemon = ChildProcess(
            "the gateway's daemon",
            node_binary.module("testbed.gateway_daemon"),
            self._scratch.path / "daemon.log",
            TestbedError,
            env=environment,
        )
        try:
            taken = self._daemon.call(TIMEOUT_S, GatewayDaemon.take, interface, subnet, dhcp)
            self._index = socket.if_nametoindex(interface)
        except BaseException:
            self.close()
            raise
        #: Network of the devices. The gateway has its first address.
        self.network = ipaddress.IPv4Network(taken.devices)
        #: Interfaces by which the machine reaches the internet.
        self.uplinks: Sequence[str] = taken.uplinks
        #: Why devices get no IPv6; None: they do.
        self.without_ipv6: str | None = taken.without_ipv6
        #: Chains of the machine's firewall that may drop the devices' packets, by this interface of the machine.
        self.firewall_interface = gateway_rules.LINK
        self.firewall: Sequence[str] = taken.firewall

    def open(self, cell_pid: int, hosts: Mapping[str, SessionHost], plan: SessionPlan) -> None:
        """Joins interface and machine to the nodes, and starts DHCP.

        Raises:
            TestbedError: it failed.
        """
        near = process_in(hosts[plan.host])
        if self.without_ipv6 is None:
            enable_ipv6(hosts, plan)
        self._daemon.call(TIMEOUT_S, GatewayDaemon.attach, near, process_in(hosts[plan.gateway]))
        add_routes(hosts, plan, with_ipv6=self.without_ipv6 is None)
        # The near node's own packets have an address to which the machine has a route.
        run_batch(near, [f"route change default via {_hop(plan)} src {self.network[1]}"])
        if self._dhcp:
            self._start_dnsmasq(cell_pid, near)

    def _start_dnsmasq(self, cell_pid: int, near: int) -> None:
        first, last = self.network[FIRST_LEASED if self.network.prefixlen <= 27 else 2], self.network[-2]
        words = [
            # In the cell's process namespace it ends with the cell.
            "nsenter",
            f"--pid=/proc/{cell_pid}/ns/pid_for_children",
            f"--net=/proc/{near}/ns/net",
            "--",
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--port=0",
            "--user=nobody",
            f"--interface={DEVICES}",
            "--bind-interfaces",
            "--dhcp-authoritative",
            "--leasefile-ro",
            "--log-facility=-",
            "--no-ping",
            f"--dhcp-range={first},{last},{LEASE_S}",
            f"--dhcp-option=option:router,{self.network[1]}",
            f"--dhcp-option=option:dns-server,{self.name_server}",
        ]
        if self.without_ipv6 is None:
            network, _, length = self.network_v6.partition("/")
            words += ["--enable-ra", f"--dhcp-range={network},ra-only,{length},{LEASE_S}"]
        with self._log.open("wb") as log:
            self._dnsmasq = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def network_v6(self) -> str:
        """Network of the devices over IPv6, as CIDR."""
        return gateway_rules.network_v6(self.network)

    @property
    def _log(self) -> Path:
        return self._scratch.path / "dnsmasq.log"

    def devices(self) -> list[Device]:
        """Devices that got an address, in order of their first one."""
        if self._dnsmasq is None:
            return []
        found: dict[str, Device] = {}
        for address, mac, name in _LEASED.findall(self._log.read_text(errors="replace")):
            found[mac] = Device(address, mac, name or "")
        return list(found.values())

    def problem(self) -> str | None:
        """Why devices are no longer connected."""
        try:
            if socket.if_nametoindex(self.interface) != self._index:
                return f"the interface {self.interface} was replaced by another one"
        except OSError:
            return f"the interface {self.interface} is gone"
        if self._dnsmasq is not None and self._dnsmasq.poll() is not None:
            said = self._log.read_text(errors="replace").strip().splitlines()
            return f"dnsmasq, which gives addresses to devices, has ended: {said[-1] if said else 'without a message'}"
        return None

    def close(self) -> None:
        """Restores the machine."""
        if self._dnsmasq is not None:
            self._dnsmasq.kill()
            self._dnsmasq.wait()
            self._dnsmasq = None
        self._daemon.close()
        self._scratch.close()


def _own_name_server() -> str:
    texts = [Path(name).read_text(errors="replace") for name in gateway_rules.RESOLV_CONF if Path(name).is_file()]
    if found := gateway_rules.name_servers(texts):
        return found[0]
    raise TestbedError(
        f"{gateway_rules.RESOLV_CONF[0]} has no IPv4 name server that other hosts can use; name one with --name-server"
    )


def _hop(plan: SessionPlan) -> str:
    """Address to which the near node sends what leaves."""
    network = addressing.make_plan(plan.scenario.nodes, plan.scenario.links)
    return addressing.next_hop(network, plan.host, network.nodes[plan.gateway].address)[1].address
