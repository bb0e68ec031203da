"""A machine, a phone behind an interface of it, and an internet behind another one, in namespaces of one cell."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from testbed import node_binary
from tests.support.faults.leftovers import command_line
from tests.support.processes import marked
from tests.support.waiting import wait_until

#: The phone's interface of the machine, which is down at first, and the one with the default route.
LAN, UPLINK = "lan0", "up0"
#: A host of the internet, and the machine's own address there.
SERVER, MACHINE = "198.51.100.7", "203.0.113.2"
#: The same host over IPv6.
SERVER_V6 = "2600:db9::7"

SCRIPT = f"""
set -e
unshare --net sleep infinity & internet=$!
unshare --net sleep infinity & phone=$!
for other in $internet $phone; do
    until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
done
ip link add {UPLINK} type veth peer name wan netns $internet
ip link add {LAN} type veth peer name eth0 netns $phone
plain() {{ ethtool -K "$1" tso off gso off gro off tx off rx off >/dev/null; }}
plain {UPLINK}; plain {LAN}
ip address add {MACHINE}/24 dev {UPLINK}
ip link set {UPLINK} up
# It was up once: that leaves traces, such as a queueing discipline.
ip link set {LAN} up; ip link set {LAN} down
export -f plain
nsenter --net=/proc/$internet/ns/net bash -ec 'plain wan; ip link set lo up; ip link set wan up
ip address add 203.0.113.1/24 dev wan; ip address add {SERVER}/32 dev lo'
nsenter --net=/proc/$phone/ns/net bash -ec 'plain eth0; ip link set lo up; ip link set eth0 up'
ip route add default via 203.0.113.1
if [ "$1" = ipv6 ]; then
    ip address add 2600::2/64 dev {UPLINK} nodad; ip route add default via 2600::1 dev {UPLINK}
    nsenter --net=/proc/$internet/ns/net bash -ec 'ip address add 2600::1/64 dev wan nodad
    ip address add {SERVER_V6}/128 dev lo nodad'
fi
echo 0 >/proc/sys/net/ipv4/conf/{UPLINK}/forwarding
echo $internet $phone
exec sleep infinity
"""
#: What udhcpc does with an address.
LEASED = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add $ip/$mask dev $interface
ip route add default via $router
echo "dns $dns"
"""
STATE = f"""
ip -details link; ip address; ip route show table all; ip -6 route show table all; ip rule; ip neighbour show proxy
nft list ruleset; ethtool -k {UPLINK}; ethtool -k {LAN}
cd /proc/sys/net; grep -rs . ipv4/conf ipv6/conf ipv4/ip_forward
"""


class World:
    """The three. `folder` has files of the phone. With `with_ipv6` the machine has a default route of IPv6 too."""

    def __init__(self, folder: Path, with_ipv6: bool = False) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._cell = subprocess.Popen(
            [node_binary.path(), "cell", "--parent", str(os.getpid()), "--", "bash", "-c", SCRIPT,
             "bash", "ipv6" if with_ipv6 else ""],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._cell.stdout is not None
        internet, phone = map(int, self._cell.stdout.readline().split())
        self._inside = {"internet": internet, "phone": phone}
        self.settle()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cell.kill()
        self._cell.wait()
        for process in self._started:
            process.wait()
        assert self._cell.stdout is not None
        self._cell.stdout.close()

    def words(self, where: str, *command: str) -> list[str]:
        """The command line that runs a command on `machine`, `phone` or `internet`."""
        spaces = f"/proc/{self._cell.pid}/ns"
        words = ["nsenter", f"--pid={spaces}/pid_for_children", f"--mount={spaces}/mnt", f"--net={spaces}/net", "--"]
        if where in self._inside:
            words += ["nsenter", f"--net=/proc/{self._inside[where]}/ns/net", "--"]
        # A new mount namespace starts in /.
        return [*words, "env", "-C", str(node_binary.ROOT), *command]

    def run(self, where: str, *command: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return subprocess.run(
            self.words(where, *command), capture_output=True, text=True, check=False, timeout=timeout_s,
        )  # fmt: skip

    def settle(self) -> None:
        """Waits until the machine's kernel has tested its new IPv6 addresses."""
        wait_until(lambda: "tentative" not in self.run("machine", "ip", "address").stdout, "the machine's addresses")

    def start(self, where: str, *command: str) -> None:
        """Starts a command, which ends with the world."""
        self._started.append(
            subprocess.Popen(self.words(where, *command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def state(self) -> list[str]:
        """Interfaces, addresses, routes, firewall and settings of the machine."""
        return self.run("machine", "bash", "-c", STATE).stdout.splitlines()

    def lease(self) -> str:
        """The phone asks for an address. Returns its name server."""
        script = self._folder / "leased"
        script.write_text(LEASED)
        script.chmod(0o755)
        done = self.run("phone", "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-t", "10", "-s", str(script))
        assert done.returncode == 0, done.stderr
        return done.stdout.split("dns ")[1].strip()

    def gateway(self, *more: str, interface: str = LAN, **variables: str) -> Gateway:
        """Starts `./backchannel gateway` on the machine."""
        return Gateway(self, [interface, "--results", str(self._folder / "results"), *more], variables)


class Gateway:
    """A running gateway."""

    def __init__(self, world: World, arguments: Sequence[str], variables: dict[str, str]) -> None:
        self._mark = f"gateway-{next(_numbers)}-{os.getpid()}"
        self._process = subprocess.Popen(
            world.words("machine", sys.executable, "-m", "experiments", "gateway", *arguments),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **variables, "BACKCHANNEL_TEST_MARK": self._mark},
        )  # fmt: skip

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL, "experiments")
        self.wait()

    def first_note(self) -> str:
        """What it shows first: that devices can connect, or why not."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def note(self) -> str:
        """The next sentence."""
        return self.first_note().removeprefix("backchannel: ").strip()

    def open(self) -> None:
        """Waits until devices can connect."""
        note = self.first_note()
        is_open = "they get addresses of 192.168.77.1/24 by DHCP" in note
        assert is_open, note + self.wait()[1]

    def pid(self, module: str) -> int:
        """Of the command (module `experiments`) or its daemon (`testbed.gateway_daemon`)."""
        (found,) = (pid for pid in marked(self._mark) if command_line(pid)[1:3] == ["-m", module])
        return found

    def session(self) -> str:
        """Name of its session: the process as the machine's own namespace of processes numbers it."""
        status = Path(f"/proc/{self.pid('experiments')}/status").read_text()
        return next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]

    def signal(self, number: int, *modules: str) -> None:
        """Sends a signal to them, as good as at once."""
        for pid in [self.pid(module) for module in modules]:
            os.kill(pid, number)

    def wait(self, within_s: float = 60.0) -> tuple[int, str]:
        """Waits for the end of all of it. Returns the exit status, and what it showed since."""
        _, shown = self._process.communicate(timeout=within_s)
        wait_until(lambda: not marked(self._mark), "the end of the gateway's processes")
        return self._process.returncode, shown


_numbers = itertools.count(1)
