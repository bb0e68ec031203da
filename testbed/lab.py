"""A lab in a cell: every host of an inventory as a set of namespaces, with address, keys and file tree of its own.

For rehearsals before machines are touched, for tests, and as a testbed on one machine that Ansible provisions.
It runs inside a cell (`./backchannel lab`), so nothing of it outlives the command.

Each host has network, mount, PID, IPC and UTS namespaces. Its file tree is the machine's, with a layer of its own in
memory on top: what is installed or written on a host is seen by it alone. Wires are veth pairs: from every interface of
a node to the link box, or to the node at the other end where the link is real.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import node_binary
from testbed.errors import TestbedError
from testbed.placement import QUEUE_PREFIX, Placement, box_interfaces

#: Says where the file with each host's process is: the inventory plugin and the physical backend read it.
VARIABLE = "BACKCHANNEL_LAB"
#: The interface by which hosts of a lab with SSH are reached, and the controller's own.
MANAGEMENT, CONTROLLER = "mgmt0", "mgmt-ctl"
START_S = 20.0

#: Becomes a host: $1 is its folder, $2 its name.
HOST = """
set -e
cd "$1"
mkdir -p upper work tree
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work,index=off tree
cd tree
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=0755 run run
# For every account, as udev has it; the machine around the lab may be stricter.
mknod -m 0666 run/tun c 10 200
mount --bind run/tun dev/net/tun
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p run/sshd run/netns old-root
# What lies on another file system than / is not in the layer below.
path=$3
if [ "$path" ]; then
    [ -e "./$path/." ] && [ -n "$(ls -A "./$path")" ] || { mkdir -p "./$path"; mount --rbind "$path" "./$path"; }
fi
pivot_root . old-root
umount -l /old-root
rmdir /old-root
hostname "$2"
: >/etc/fstab
echo ready
exec sleep infinity
"""

SSHD = """
ListenAddress {address}
HostKey /etc/ssh/lab_host_key
PidFile /run/sshd.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile .ssh/authorized_keys
ClientAliveInterval 2
ClientAliveCountMax 3
LogLevel ERROR
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class SshFiles:
    """The lab's keys: the controller's private one (its public half beside it), and the hosts' public ones."""

    key: Path
    known_hosts: Path

    def require_new(self) -> None:
        """Raises TestbedError where a file is there: keys of a rehearsal never replace those of a lab."""
        for path in (self.key, self.known_hosts):
            if path.exists():
                raise TestbedError(
                    f"{path} exists: a rehearsal makes keys of its own; name files that do not exist yet"
                )


class Lab:
    """Hosts and wires, as long as the cell lives.

    Args:
        placement: who plays what, and where links are.
        folder: of this cell's own memory.
        ssh: start a server on every host, with fresh keys that are written there; None for hosts without one.

    Raises:
        TestbedError: it could not be built.
    """

    def __init__(self, placement: Placement, folder: Path, ssh: SshFiles | None) -> None:
        self._placement = placement
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.pids: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for name in placement.hosts:
            self._start(name)
        for name in placement.hosts:
            self._await(name)
        self._wire()
        if ssh is not None:
            self._serve(ssh)
        self.file = folder / "lab.json"
        self.file.write_text(json.dumps(self.pids))

    def environment(self) -> dict[str, str]:
        """For programs that are to find the lab."""
        return {**os.environ, VARIABLE: str(self.file)}

    def inside(self, name: str, *words: str, stdin: str = "") -> str:
        """Runs a program on a host; what it says.

        Raises:
            TestbedError: it failed.
        """
        return run([*enter(self.pids[name]), *words], stdin)

    def lose(self, name: str) -> None:
        """A host loses its power."""
        server = self._servers.pop(name, None)
        self._processes[name].kill()
        self._processes[name].wait()
        if server is not None:
            server.wait()

    def close(self) -> None:
        """Every host."""
        for name in list(self._processes):
            self.lose(name)

    def _start(self, name: str) -> None:
        folder = self._folder / name
        folder.mkdir()
        words = [
            node_binary.path(), "cell", "--parent", str(os.getpid()), "--",
            "/bin/sh", "-c", HOST, "host", str(folder), name, str(node_binary.ROOT),
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )

    def _await(self, name: str) -> None:
        process = self._processes[name]
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            said = (self._folder / name / "log").read_text(errors="replace").strip().splitlines()
            raise TestbedError(f"host {name} of the lab cannot be made: {said[-1] if said else 'it ended at once'}")
        # The cell's own process, its process 1, then the shell that became `sleep`.
        pid = process.pid
        for _ in range(2):
            pid = _only_child(pid)
        self.pids[name] = pid

    def _wire(self) -> None:
        lines = [
            f"link add {one[1]} netns {self.pids[one[0]]} type veth peer name {two[1]} netns {self.pids[two[0]]}"
            for one, two in wires(self._placement)
        ]
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def _serve(self, ssh: SshFiles) -> None:
        hosts = list(self._placement.hosts.values())
        own = controller_address([host.address for host in hosts])
        ssh.require_new()
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(ssh.key)])
        public = Path(f"{ssh.key}.pub").read_text()
        run(["ip", "link", "add", CONTROLLER, "type", "bridge"])
        run(["ip", "address", "add", f"{own}/24", "dev", CONTROLLER])
        run(["ip", "link", "set", CONTROLLER, "up"])
        known = []
        for number, host in enumerate(hosts):
            pid, port = self.pids[host.name], f"mgmt-{number}"
            run(["ip", "link", "add", port, "type", "veth", "peer", "name", MANAGEMENT, "netns", str(pid)])
            run(["ip", "link", "set", port, "master", CONTROLLER, "up"])
            self.inside(
                host.name, "ip", "-batch", "-",
                stdin=f"address add {host.address}/24 dev {MANAGEMENT}\nlink set {MANAGEMENT} up\n",
            )  # fmt: skip
            self.inside(
                host.name, "sh", "-ec",
                "mkdir -p /root/.ssh && chmod 700 /root /root/.ssh && cat >/root/.ssh/authorized_keys\n"
                "rm -f /etc/ssh/lab_host_key*\n"
                "ssh-keygen -q -t ed25519 -N '' -C lab -f /etc/ssh/lab_host_key",
                stdin=public,
            )  # fmt: skip
            self.inside(host.name, "sh", "-c", "cat >/etc/ssh/lab_config", stdin=SSHD.format(address=host.address))
            host_key = " ".join(self.inside(host.name, "cat", "/etc/ssh/lab_host_key.pub").split()[:2])
            known.append(f"{host.address} {host_key}")
            self._servers[host.name] = subprocess.Popen(
                [*enter(pid), "/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/lab_config"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=(self._folder / host.name / "sshd.log").open("wb"), start_new_session=True,
            )  # fmt: skip
        ssh.known_hosts.write_text("\n".join(known) + "\n")


def wires(placement: Placement) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Every cable of a lab: (host, interface) at each of its ends.

    Raises:
        TestbedError: a real link with more than two ends.
    """
    found: list[tuple[tuple[str, str], tuple[str, str]]] = []
    plan = placement.plan
    for link, ends in plan.links.items():
        spot = placement.links[link]
        near = [(placement.host_of[end.node], end.name.removeprefix(QUEUE_PREFIX)) for end in ends]
        if spot.box is not None:
            far = [(spot.box, name) for name in box_interfaces(plan, spot)]
            found += list(zip(near, far, strict=True))
        elif len(near) == 2:
            found.append((near[0], near[1]))
        else:
            raise TestbedError(f"link '{link}' is real and has {len(near)} ends; a lab has wires with two")
    return found


def enter(pid: int) -> list[str]:
    """The words before a command that runs on a host of the lab."""
    return ["nsenter", "--target", str(pid), "--net", "--mount", "--uts", "--ipc", "--pid", "--"]


def controller_address(addresses: list[str]) -> str:
    """A free address in the hosts' own /24.

    Raises:
        TestbedError: the hosts are not all in one.
    """
    try:
        networks = {ipaddress.ip_network(f"{address}/24", strict=False) for address in addresses}
    except ValueError as error:
        raise TestbedError(f"in a lab of namespaces every host has an address of its own: {error}") from None
    if len(networks) != 1:
        raise TestbedError("in a lab of namespaces all hosts have addresses in one /24")
    (network,) = networks
    return str(next(one for one in reversed(list(network.hosts())) if str(one) not in addresses))


def processes(environment: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Host to process of the lab that this program runs in; empty outside of one."""
    path = environment.get(VARIABLE)
    return {} if path is None else dict(json.loads(Path(path).read_text()))


def _only_child(pid: int) -> int:
    deadline = time.monotonic() + START_S
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        if time.monotonic() > deadline:
            raise TestbedError("a host of the lab has no process")
        time.sleep(0.005)


def run(words: list[str], stdin: str = "") -> str:
    """A program's output.

    Raises:
        TestbedError: it failed, with its last line.
    """
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said: Any = (done.stderr or done.stdout).strip().splitlines()
        raise TestbedError(f"'{' '.join(words[-6:])}' failed: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout
