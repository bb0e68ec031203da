"""A lab of virtual machines: each host of an inventory has kernel, clock, disk and systemd.

The lab runs inside a cell (`./backchannel testbed rehearse --vm`) and ends with it. The controller is in the cell's
network, which reaches only the machines. Cables are pairs of TAPs, each pair with a bridge, or serial cables between
UARTs. Radios are simulated by the kernel of a machine (mac80211_hwsim), so the hosts that hear each other share it:
each is a container with systemd, network and file tree.

QEMU interprets every instruction without KVM, so such a lab shows function and not timing.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import TestbedError
from testbed.image import Image
from testbed.lab import CONTROLLER, MANAGEMENT, SshFiles, controller_address, hosts_of, run, wires
from testbed.placement import Host, Placement
from testbed.serial_cables import SerialCable, SerialEnd
from testbed.tunnels import known_hosts_option

MEMORY_MIB = 512
#: For each further host in a machine, which has its changed files in memory.
SHARED_MIB = 384
#: Memory per machine in addition: translated code, and QEMU itself.
CODE_MIB, OVERHEAD_MIB = 128, 128
#: Memory of this machine that stays free.
SPARE_MIB = 1024
#: On shared processors the kernel's check of its timer is too slow and would stop the boot.
KERNEL_WORDS = (
    "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off no_timer_check nowatchdog "
    "rcupdate.rcu_cpu_stall_suppress=1"
)
#: Several interpreted machines boot together on a busy machine.
BOOT_S = 1800.0

#: Waits for an interface with a hardware address and prints its name.
FIND_INTERFACE = """
set -e
# What fails is the last line on the console, which the lab reports.
exec >/dev/console 2>&1
hostname -F /etc/hostname
find_interface() {
    for tries in $(seq 200); do
        found=$(ip -o link | grep -F "link/ether $1 " | cut -d : -f 2 | cut -d @ -f 1 | tr -d ' ')
        [ -n "$found" ] && { echo "$found"; return 0; }
        sleep 0.1
    done
    echo "no interface $1" >&2
    return 1
}
"""
#: Runs on every host before its network (testbed.image). The file has a line for each interface: address, name.
SETUP = """
# A container's /sys may be of the network that started it. Its cgroups stay where they are.
if systemd-detect-virt --quiet --container; then
    mkdir -p /run/own-sys
    mount -t sysfs sysfs /run/own-sys
    for folder in class devices; do mount --bind "/run/own-sys/$folder" "/sys/$folder"; done
fi
# Two steps, because a new name may be another interface's old one.
number=0
while read -r address name; do
    interface=$(find_interface "$address")
    ip link set "$interface" down
    ip link set "$interface" name "new$number"
    number=$((number + 1))
done </usr/local/etc/machine-interfaces
number=0
while read -r address name; do
    ip link set "new$number" name "$name"
    number=$((number + 1))
done </usr/local/etc/machine-interfaces
ip link set lo up
ip address add @ADDRESS@/24 dev @MANAGEMENT@
ip link set @MANAGEMENT@ up
"""
#: Runs on a machine that hosts share, in place of SETUP. The file has a line for each interface: address, host. The
#: layer of a host's changes cannot be on the disk that is below it.
SHARED_SETUP = """
modprobe tun
[ @RADIOS@ = 0 ] || modprobe mac80211_hwsim radios=@RADIOS@
for host in @HOSTS@; do ip netns add "$host"; done
while read -r address host; do
    interface=$(find_interface "$address")
    radio=/sys/class/net/$interface/phy80211/name
    if [ -e "$radio" ]; then iw phy "$(cat "$radio")" set netns name "$host"
    else ip link set "$interface" netns "$host"
    fi
done </usr/local/etc/machine-interfaces
for host in @HOSTS@; do
    mkdir -p "/run/hosts/$host"
    mount -t tmpfs -o size=@SHARED_MIB@m hosts "/run/hosts/$host"
    cd "/run/hosts/$host"
    mkdir upper work tree
    mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work,index=off hosts tree
    systemd-run --no-block --unit="host-$host" -p Delegate=yes -p KillMode=mixed \\
        -p StandardOutput=journal+console -p StandardError=journal+console \\
        -p Environment=SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 systemd-nspawn --quiet --keep-unit --register=no \\
        --directory="/run/hosts/$host/tree" --network-namespace-path="/run/netns/$host" --capability=CAP_NET_ADMIN \\
        --bind-ro="/usr/local/share/hosts/$host.tar:/dev/vdb" --boot @WORDS@
done
"""
#: Words of the kernel's command line that a container's systemd obeys too. These units take most of the boot time and
#: are useless to a machine that lives for an hour.
MASKED = tuple(
    f"systemd.mask={unit}" for unit in ("e2scrub_reap.service", "apt-daily.timer", "apt-daily-upgrade.timer")
)


@dataclass(frozen=True)
class SpecialInterfaces:
    """Interfaces of a lab's hosts that are no Ethernet, by host and interface."""

    #: Serial devices behind interfaces.
    serial: Mapping[tuple[str, str], SerialEnd] = field(default_factory=dict)
    radios: Set[tuple[str, str]] = frozenset()


@dataclass
class _Machine:
    """What a machine gets before it boots."""

    name: str
    hosts: list[Host]
    #: Its interfaces: TAP, hardware address, host, name there. A radio has no TAP.
    interfaces: list[tuple[str | None, str, Host, str]] = field(default_factory=list)
    #: Number of the UART and socket of its cable.
    uarts: list[tuple[int, Path]] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        return any(host.machine for host in self.hosts)

    @property
    def memory_mib(self) -> int:
        return MEMORY_MIB + SHARED_MIB * (len(self.hosts) - 1)

    @property
    def radios(self) -> int:
        return sum(tap is None for tap, *_ in self.interfaces)


class Machines:
    """Hosts and cables for the lifetime of the cell.

    Args:
        placements: who plays what, and where links are, for each set of hosts.
        folder: of this cell's own memory.
        ssh: the lab's keys, which are written there.
        image: what the machines boot from.
        special: interfaces that are no Ethernet.

    Raises:
        TestbedError: they could not be made.
    """

    def __init__(
        self, placements: Sequence[Placement], folder: Path, ssh: SshFiles, image: Image, special: SpecialInterfaces
    ) -> None:
        self._placements = placements
        self._special = special
        self._serial_cables: list[SerialCable] = []
        self._hosts = hosts_of(placements)
        #: Keys that this lab created.
        self._keys: SshFiles | None = None
        self._folder = folder
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        names = dict.fromkeys(host.machine or host.name for host in self._hosts)
        #: By name.
        self._machines = {
            name: _Machine(name, [host for host in self._hosts if (host.machine or host.name) == name])
            for name in names
        }
        for machine in self._machines.values():
            if machine.is_shared and not all(host.machine for host in machine.hosts):
                raise TestbedError(f"'{machine.name}' is a host and the machine of others; give one another name")
        _require_memory([machine.memory_mib for machine in self._machines.values()])
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._build(ssh)
        except BaseException:
            self.close()
            raise

    def environment(self) -> dict[str, str]:
        """Environment for programs that use the lab, by SSH."""
        return dict(os.environ)

    def close(self) -> None:
        """Ends every machine at once and removes the keys that were created."""
        if self._keys is not None:
            self._keys.remove()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        for cable in self._serial_cables:
            cable.close()

    def _build(self, ssh: SshFiles) -> None:
        hosts = self._hosts
        controller = controller_address([host.address for host in hosts])
        ssh.require_new()
        self._keys = ssh
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(ssh.key)])
        lines = [f"link add {CONTROLLER} type bridge", f"address add {controller}/24 dev {CONTROLLER}"]
        lines += [f"link set {CONTROLLER} up"]
        machine_of = {host.name: self._machines[host.machine or host.name] for host in hosts}
        by_name = {host.name: host for host in hosts}

        def attach(host: str, interface: str, tap: str) -> None:
            machine = machine_of[host]
            number = list(self._machines).index(machine.name)
            mac = f"52:54:00:{number:02x}:00:{len(machine.interfaces):02x}"
            machine.interfaces.append((tap, mac, by_name[host], interface))

        for number, host in enumerate(hosts):
            tap = f"tm{number}"
            attach(host.name, MANAGEMENT, tap)
            lines += [f"tuntap add {tap} mode tap", f"link set {tap} master {CONTROLLER} up"]
        cables = [ends for placement in self._placements for ends in wires(placement)]
        for number, ends in enumerate(cables):
            if any(end in self._special.serial for end in ends):
                for end, path in zip(ends, self._serial_cable(number, ends), strict=True):
                    machine_of[end[0]].uarts.append((self._special.serial[end].index, path))
                continue
            if any(end in self._special.radios for end in ends):
                self._require_one_air(ends)
                for end_host, interface in ends:
                    machine = machine_of[end_host]
                    # The address that the driver gives its radios, by their number.
                    mac = f"02:00:00:00:{machine.radios:02x}:00"
                    machine.interfaces.append((None, mac, by_name[end_host], interface))
                continue
            # A bridge that forgets addresses at once forwards like a cable.
            lines += [f"link add tw{number} type bridge ageing_time 0 mcast_snooping 0", f"link set tw{number} up"]
            for side, (host_name, name) in enumerate(ends):
                tap = f"t{number}-{side}"
                attach(host_name, name, tap)
                lines += [f"tuntap add {tap} mode tap", f"link set {tap} master tw{number} up"]
        # The cell sends no packets of its own on the cables.
        for setting in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6").write_text("1")
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        known = [line for machine in self._machines.values() for line in self._start(machine, ssh)]
        ssh.known_hosts.write_text("\n".join(known) + "\n")
        deadline = time.monotonic() + BOOT_S
        for host in hosts:
            self._await(host.machine or host.name, host.address, ssh, deadline)

    def _serial_cable(self, number: int, ends: Sequence[tuple[str, str]]) -> list[Path]:
        """Makes a serial cable. Returns the socket of each end.

        Raises:
            TestbedError: an end is not serial, or the cable cannot be made.
        """
        serial = self._special.serial
        for host, interface in ends:
            if (host, interface) not in serial:
                raise TestbedError(
                    f"interface '{interface}' of host {host} is not a serial line, but its other end is; add it to the "
                    "'ppp_lines' or 'slip_lines' of the host"
                )
        shared = [host.name for host in self._hosts if host.machine and host.name in (ends[0][0], ends[1][0])]
        if shared:
            raise TestbedError(
                f"host {shared[0]} shares a machine and has no serial devices there; remove its 'machine'"
            )
        cable = SerialCable(self._folder / f"serial{number}", [serial[end] for end in ends])
        self._serial_cables.append(cable)
        return cable.paths

    def _require_one_air(self, ends: Sequence[tuple[str, str]]) -> None:
        """Raises TestbedError unless both ends of a link are radios of one shared machine."""
        machines = {host.machine for host in self._hosts if host.name in (ends[0][0], ends[1][0])}
        for host, interface in ends:
            if (host, interface) not in self._special.radios:
                raise TestbedError(
                    f"interface '{interface}' of host {host} is not a radio, but its other end is; add it to the "
                    "'wifi_interfaces' of the host"
                )
        if len(machines) != 1 or "" in machines:
            raise TestbedError(
                f"the radios of hosts {ends[0][0]} and {ends[1][0]} are simulated by one kernel; give both hosts one "
                "'machine', such as 'machine: air'"
            )

    def _start(self, machine: _Machine, ssh: SshFiles) -> list[str]:
        """Boots a machine. Returns the lines of its hosts for ssh's known hosts."""
        folder = self._folder / machine.name
        folder.mkdir()
        keys, seeds = [], {}
        for host in machine.hosts:
            key = folder / f"{host.name}.key"
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(key)])
            keys.append(f"{host.address} {' '.join(Path(f'{key}.pub').read_text().split()[:2])}")
            setup = SETUP.replace("@ADDRESS@", host.address).replace("@MANAGEMENT@", MANAGEMENT)
            named = [f"{mac} {name}" for _, mac, owner, name in machine.interfaces if owner == host]
            seeds[host.name] = _packed(
                {
                    **_identity(host.name, named, setup),
                    "etc/ssh/ssh_host_ed25519_key": (key.read_bytes(), 0o600),
                    "etc/ssh/ssh_host_ed25519_key.pub": (Path(f"{key}.pub").read_bytes(), 0o644),
                    "root/.ssh/authorized_keys": (Path(f"{ssh.key}.pub").read_bytes(), 0o600),
                }
            )
        if machine.is_shared:
            setup = SHARED_SETUP.replace("@RADIOS@", str(machine.radios)).replace("@WORDS@", " ".join(MASKED))
            setup = setup.replace("@HOSTS@", " ".join(seeds)).replace("@SHARED_MIB@", str(SHARED_MIB))
            owned = [f"{mac} {owner.name}" for _, mac, owner, _ in machine.interfaces]
            inner = {f"usr/local/share/hosts/{name}.tar": (seed, 0o600) for name, seed in seeds.items()}
            seed = _packed({**_identity(machine.name, owned, setup), **inner})
        else:
            (seed,) = seeds.values()
        (folder / "seed.tar").write_bytes(seed)
        words = [
            "qemu-system-x86_64",
            "-name",
            machine.name,
            "-nodefaults",
            "-no-user-config",
            "-machine",
            "q35",
            "-accel",
            f"tcg,tb-size={CODE_MIB}",
            "-cpu",
            "max",
            "-smp",
            "1",
            "-m",
            str(machine.memory_mib),
            "-display",
            "none",
            "-serial",
            f"file:{folder / 'console'}",
            "-kernel",
            str(self._image.kernel),
            "-initrd",
            str(self._image.initrd),
            "-append",
            " ".join((KERNEL_WORDS, *MASKED)),
            "-drive",
            f"file={self._image.disk},format=raw,if=virtio,snapshot=on",
            "-drive",
            f"file={folder / 'seed.tar'},format=raw,if=virtio,readonly=on",
            "-object",
            "rng-random,id=rng,filename=/dev/urandom",
            "-device",
            "virtio-rng-pci,rng=rng",
        ]
        for place, (tap, mac, *_) in enumerate(machine.interfaces):
            if tap is not None:
                words += ["-netdev", f"tap,id=n{place},ifname={tap},script=no,downscript=no"]
                words += ["-device", f"virtio-net-pci,netdev=n{place},mac={mac},romfile="]
        for index, path in machine.uarts:
            words += ["-chardev", f"socket,id=u{index},path={path}"]
            words += ["-device", f"isa-serial,chardev=u{index},index={index}"]
        with (folder / "log").open("wb") as log:
            self._processes[machine.name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return keys

    def _await(self, name: str, address: str, ssh: SshFiles, deadline: float) -> None:
        words = [
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=60",
            "-o",
            known_hosts_option(ssh.known_hosts),
            "-o",
            "GlobalKnownHostsFile=/dev/null",
            "-o",
            "IdentitiesOnly=yes",
            "-i",
            str(ssh.key),
            f"root@{address}",
            "systemctl is-system-running --wait || systemctl --failed --no-legend",
        ]
        while True:
            if self._processes[name].poll() is not None:
                reason = self._last(name, "log") or "qemu said nothing"
                shown = self._last(name, "console")
                raise TestbedError(
                    f"machine {name} ended as it booted: {reason}; the last line on its console: {shown}"
                )
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            if "Kernel panic" in self._last(name, "console"):
                raise TestbedError(f"machine {name} does not boot: {self._last(name, 'console')}")
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"machine {name} was not reached by SSH within {BOOT_S:g} s: {done.stderr.strip()}; the last line "
                    f"on its console: {self._last(name, 'console')}"
                )
            time.sleep(1.0)

    def _last(self, name: str, file: str) -> str:
        lines = (self._folder / name / file).read_text(errors="replace").strip().splitlines()
        return next((line for line in lines if "Kernel panic" in line), lines[-1] if lines else "")


def _require_memory(machines_mib: Sequence[int]) -> None:
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available_mib = int(memory["MemAvailable"].split()[0]) >> 10
    wanted_mib = sum(machines_mib) + len(machines_mib) * (CODE_MIB + OVERHEAD_MIB) + SPARE_MIB
    if available_mib < wanted_mib:
        raise TestbedError(
            f"{len(machines_mib)} virtual machines need {wanted_mib} MiB of memory, and {available_mib} MiB are free: "
            "end other programs, or take an inventory with fewer hosts"
        )


def _identity(name: str, interfaces: Sequence[str], setup: str) -> dict[str, tuple[bytes, int]]:
    """Name, interfaces and first program of a machine or host."""
    files = {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n",
        "usr/local/etc/machine-interfaces": "".join(f"{line}\n" for line in interfaces),
        "usr/local/sbin/machine-setup": FIND_INTERFACE + setup,
    }
    return {path: (text.encode(), 0o644) for path, text in files.items()}


def _packed(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """A tar archive of files with their modes."""
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as packed:
        for folder, mode in (("root", 0o700), ("root/.ssh", 0o700)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            packed.addfile(entry)
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            packed.addfile(entry, io.BytesIO(content))
    return result.getvalue()
