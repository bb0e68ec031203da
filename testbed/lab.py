"""A lab in namespaces: each host of an inventory has address, keys and file tree.

For rehearsals, tests, and as a testbed on one machine that Ansible provisions. The lab runs inside a cell
(`./backchannel testbed rehearse`), so it ends with the command.

A host has network, mount, PID, IPC and UTS namespaces. Its file tree is the machine's, or another system's, below a
layer in memory, so changes are visible to the host only. Cables are veth pairs: from each interface of a node to the
link box, or to the node at the other end of a real link.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import node_binary
from testbed.errors import TestbedError
from testbed.placement import QUEUE_PREFIX, Host, Placement, box_interfaces
from testbed.tunnels import Jump

#: Names the file with the process id of each host, for the inventory plugin and the physical backend.
VARIABLE = "BACKCHANNEL_LAB"
#: Management interface of a host, and of the controller.
MANAGEMENT, CONTROLLER = "mgmt0", "mgmt-ctl"
#: Bridge of the hosts behind a jump host, and the name of that host.
BEHIND, JUMP = "mgmt-lan", "jump-host"
START_S = 20.0

#: Turns a cell into a host. Arguments: its folder, its name, the checkout, the file tree below its layer.
HOST = """
set -e
cd "$1"
mkdir -p upper work tree
mount -t overlay overlay -o lowerdir="$4",upperdir=upper,workdir=work,index=off tree
cd tree
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=0755 run run
# Accessible to every account, as by udev. The machine around the lab may be stricter.
mknod -m 0666 run/tun c 10 200
mount --bind run/tun dev/net/tun
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p run/sshd run/netns old-root
# The lower layer has the files of / only. A checkout on another file system is mounted.
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
Port {port}
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
    """Files for a lab's keys: the controller's private key (its public half is beside it), and the hosts' keys."""

    key: Path
    known_hosts: Path

    @property
    def paths(self) -> tuple[Path, Path]:
        """Both files."""
        return self.key, self.known_hosts

    def require_new(self) -> None:
        """Raises TestbedError if a file exists: keys of a rehearsal never replace those of a lab."""
        for path in self.paths:
            if path.exists():
                raise TestbedError(f"{path} exists; a rehearsal creates its keys, so name files that do not exist")

    def remove(self) -> None:
        """Removes what a rehearsal created."""
        for path in (self.key, Path(f"{self.key}.pub"), self.known_hosts):
            path.unlink(missing_ok=True)


class Lab:
    """Hosts and cables for the lifetime of the cell.

    Args:
        placements: assignment of nodes and links to hosts, for each set of hosts.
        folder: in the cell's memory.
        ssh: files for new keys of a server on every host; None starts no servers.
        jump: a host that is made beside them, and through which alone they are reached.
        tree: file tree of the hosts, whose changes it does not see.

    Raises:
        TestbedError: the lab could not be built.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        folder: Path,
        ssh: SshFiles | None,
        jump: Jump | None = None,
        tree: Path = Path("/"),
    ) -> None:
        self._placements = placements
        self._hosts = hosts_of(placements)
        self._tree = tree
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        #: Keys that this lab created.
        self._keys: SshFiles | None = None
        self.pids: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        names = [host.name for host in self._hosts]
        if jump is not None:
            if JUMP in names:
                raise TestbedError(f"a rehearsal names its jump host {JUMP}; rename your host")
            names.append(JUMP)
        for name in names:
            self._start(name)
        for name in names:
            self._await(name)
        self._wire()
        if ssh is not None:
            try:
                self._serve(ssh, jump)
            except BaseException:
                self.close()
                raise
        self.file = folder / "lab.json"
        self.file.write_text(json.dumps(self.pids))

    def environment(self) -> dict[str, str]:
        """Environment for programs that use the lab."""
        return {**os.environ, VARIABLE: str(self.file)}

    def inside(self, name: str, *words: str, stdin: str = "") -> str:
        """Runs a program on a host and returns its output.

        Raises:
            TestbedError: it failed.
        """
        return run([*enter(self.pids[name]), *words], stdin)

    def lose(self, name: str) -> None:
        """Ends a host at once, as a power failure does."""
        server = self._servers.pop(name, None)
        self._processes[name].kill()
        self._processes[name].wait()
        if server is not None:
            server.wait()

    def close(self) -> None:
        """Ends every host and removes the keys that were created."""
        for name in list(self._processes):
            self.lose(name)
        if self._keys is not None:
            self._keys.remove()

    def _start(self, name: str) -> None:
        folder = self._folder / name
        folder.mkdir()
        words = [
            node_binary.path(),
            "cell",
            "--parent",
            str(os.getpid()),
            "--",
            "/bin/sh",
            "-c",
            HOST,
            "host",
            str(folder),
            name,
            str(node_binary.ROOT),
            str(self._tree),
        ]
        with (folder / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )

    def _await(self, name: str) -> None:
        process = self._processes[name]
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            log = (self._folder / name / "log").read_text(errors="replace").strip().splitlines()
            raise TestbedError(f"cannot create host {name} of the lab: {log[-1] if log else 'it ended at once'}")
        # The cell's process, its process 1, then the shell that became `sleep`.
        pid = process.pid
        for _ in range(2):
            pid = _only_child(pid)
        self.pids[name] = pid

    def _wire(self) -> None:
        lines = [
            f"link add {wire[1]} netns {self.pids[wire[0]]} type veth peer name {two[1]} netns {self.pids[two[0]]}"
            for placement in self._placements
            for wire, two in wires(placement)
        ]
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def _serve(self, ssh: SshFiles, jump: Jump | None) -> None:
        addresses = [host.address for host in self._hosts]
        gateway = controller_address(addresses)
        ssh.require_new()
        self._keys = ssh
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(ssh.key)])
        public = Path(f"{ssh.key}.pub").read_text()
        bridge = CONTROLLER if jump is None else BEHIND
        controller = gateway if jump is None else _outside(jump, gateway)
        run(["ip", "link", "add", CONTROLLER, "type", "bridge"])
        run(["ip", "address", "add", f"{controller}/24", "dev", CONTROLLER])
        run(["ip", "link", "set", CONTROLLER, "up"])
        host_keys = []
        if jump is not None:
            # Only the jump host is in both networks.
            run(["ip", "link", "add", BEHIND, "type", "bridge"])
            run(["ip", "link", "set", BEHIND, "up"])
            self._attach(JUMP, "mgmt-jump", CONTROLLER, MANAGEMENT, jump.host)
            self._attach(JUMP, "mgmt-behind", BEHIND, "mgmt1", gateway)
            name = jump.host if jump.port == 22 else f"[{jump.host}]:{jump.port}"
            host_keys.append(f"{name} {self._start_sshd(JUMP, jump.host, jump.port, public)}")
        for number, host in enumerate(self._hosts):
            self._attach(host.name, f"mgmt-{number}", bridge, MANAGEMENT, host.address)
            host_keys.append(f"{host.address} {self._start_sshd(host.name, host.address, 22, public)}")
        ssh.known_hosts.write_text("\n".join(host_keys) + "\n")

    def _attach(self, name: str, port: str, bridge: str, interface: str, address: str) -> None:
        """Connects a host to a bridge."""
        run(["ip", "link", "add", port, "type", "veth", "peer", "name", interface, "netns", str(self.pids[name])])
        run(["ip", "link", "set", port, "master", bridge, "up"])
        self.inside(
            name, "ip", "-batch", "-", stdin=f"address add {address}/24 dev {interface}\nlink set {interface} up\n"
        )

    def _start_sshd(self, name: str, address: str, port: int, public: str) -> str:
        """Starts a host's server, which lets in root with the lab's key. Returns the key of the host."""
        self.inside(
            name,
            "sh",
            "-ec",
            "mkdir -p /root/.ssh && chmod 700 /root /root/.ssh && cat >/root/.ssh/authorized_keys\n"
            "rm -f /etc/ssh/lab_host_key*\n"
            "ssh-keygen -q -t ed25519 -N '' -C lab -f /etc/ssh/lab_host_key",
            stdin=public,
        )
        config = SSHD.format(address=address, port=port)
        self.inside(name, "sh", "-c", "cat >/etc/ssh/lab_config", stdin=config)
        self._servers[name] = subprocess.Popen(
            [*enter(self.pids[name]), "/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/lab_config"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / name / "sshd.log").open("wb"),
            start_new_session=True,
        )
        return " ".join(self.inside(name, "cat", "/etc/ssh/lab_host_key.pub").split()[:2])


def hosts_of(placements: Sequence[Placement]) -> list[Host]:
    """The hosts of all sets, each once."""
    return list({host.name: host for placement in placements for host in placement.hosts.values()}.values())


def _outside(jump: Jump, inside: str) -> str:
    """The controller's address in a jump host's outer /24."""
    if jump.user not in ("", "root"):
        raise TestbedError(f"hosts of a rehearsal let in root alone; write 'proxy_jump: root@{jump.host}' for it")
    controller = controller_address([jump.host])
    if ipaddress.ip_network(f"{controller}/24", strict=False) == ipaddress.ip_network(f"{inside}/24", strict=False):
        raise TestbedError(
            "in a lab of namespaces 'proxy_jump' needs an address outside the /24 of the hosts behind it"
        )
    return controller


def wires(placement: Placement) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Both ends of every cable of a lab, as (host, interface).

    Raises:
        TestbedError: a real link has more than two ends.
    """
    wires_: list[tuple[tuple[str, str], tuple[str, str]]] = []
    plan = placement.plan
    for link, ends in plan.links.items():
        spot = placement.links[link]
        near = [(placement.host_of[end.node], end.name.removeprefix(QUEUE_PREFIX)) for end in ends]
        if spot.box is not None:
            far = [(spot.box, name) for name in box_interfaces(plan, spot)]
            wires_ += list(zip(near, far, strict=True))
        elif len(near) == 2:
            wires_.append((near[0], near[1]))
        else:
            raise TestbedError(f"link '{link}' is real and has {len(near)} ends; cables of a lab have two")
    return wires_


def enter(pid: int) -> list[str]:
    """Command prefix that enters a host of the lab."""
    return ["nsenter", "--target", str(pid), "--net", "--mount", "--uts", "--ipc", "--pid", "--"]


def controller_address(addresses: list[str]) -> str:
    """A free address of the hosts' /24.

    Raises:
        TestbedError: the hosts are not in one /24.
    """
    try:
        networks = {ipaddress.ip_network(f"{address}/24", strict=False) for address in addresses}
    except ValueError as error:
        raise TestbedError(f"in a lab of namespaces every host needs an IP address: {error}") from None
    if len(networks) != 1:
        raise TestbedError("in a lab of namespaces all hosts need addresses in one /24")
    (network,) = networks
    return str(next(address for address in reversed(list(network.hosts())) if str(address) not in addresses))


def processes() -> dict[str, int]:
    """Process id by host of the surrounding lab; empty outside a lab."""
    path = os.environ.get(VARIABLE)
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
    """Runs a program and returns its output.

    Raises:
        TestbedError: the program failed; with its last line.
    """
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise TestbedError(f"'{' '.join(words[-6:])}' failed: {output[-1] if output else f'status {done.returncode}'}")
    return done.stdout
