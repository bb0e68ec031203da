"""A lab of virtual machines: each host of an inventory has kernel, clock, disk and systemd.

The lab runs inside a cell (`./backchannel lab --vm`) and ends with it. The controller is in the cell's network, which
reaches only the machines. Cables are pairs of TAPs, each pair with a bridge, or serial cables between UARTs.

QEMU interprets every instruction without KVM, so such a lab shows function and not timing.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.errors import TestbedError
from testbed.image import Image
from testbed.lab import CONTROLLER, MANAGEMENT, SshFiles, controller_address, hosts_of, run, wires
from testbed.placement import Placement
from testbed.serial_cables import SerialCable, SerialEnd

MEMORY_MIB = 512
#: Memory per machine in addition: translated code, and QEMU itself.
CODE_MIB, OVERHEAD_MIB = 128, 128
#: Memory of this machine that stays free.
SPARE_MIB = 1024
#: On shared processors the kernel's check of its timer is too slow and would stop the boot.
KERNEL_WORDS = (
    "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off no_timer_check nowatchdog "
    "rcupdate.rcu_cpu_stall_suppress=1 "
    # They take most of the boot time and are useless to a machine that lives for an hour.
    + " ".join(
        f"systemd.mask={unit}" for unit in ("e2scrub_reap.service", "apt-daily.timer", "apt-daily-upgrade.timer")
    )
)
#: Several interpreted machines boot together on a busy machine.
BOOT_S = 1800.0

#: Runs on every machine before its network (testbed.image); @RENAMES@ has a line for each interface: address, name.
SETUP = """
set -e
hostname -F /etc/hostname
find_interface() {
    for one in /sys/class/net/*; do
        [ "$(cat "$one/address")" = "$1" ] && { echo "${one##*/}"; return 0; }
    done
    return 1
}
# Two steps, because a new name may be another interface's old one.
number=0
while read -r address name; do
    tries=0
    until interface=$(find_interface "$address"); do
        tries=$((tries + 1)); [ "$tries" -lt 200 ] || { echo "no interface $address" >&2; exit 1; }
        sleep 0.1
    done
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


class Machines:
    """Hosts and cables for the lifetime of the cell.

    Args:
        placements: who plays what, and where links are, for each set of hosts.
        folder: of this cell's own memory.
        ssh: the lab's keys, which are written there.
        image: what the machines boot from.
        serial: devices behind the interfaces whose cables are serial, by host and interface.

    Raises:
        TestbedError: they could not be made.
    """

    def __init__(
        self, placements: Sequence[Placement], folder: Path, ssh: SshFiles, image: Image,
        serial: Mapping[tuple[str, str], SerialEnd],
    ) -> None:  # fmt: skip
        self._placements = placements
        self._serial = serial
        self._serial_cables: list[SerialCable] = []
        self._hosts = hosts_of(placements)
        #: Keys that this lab created.
        self._keys: SshFiles | None = None
        self._folder = folder
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        _require_memory(len(self._hosts))
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
        interfaces: dict[str, list[tuple[str, str]]] = {}
        for number, host in enumerate(hosts):
            tap = f"tm{number}"
            interfaces[host.name] = [(tap, MANAGEMENT)]
            lines += [f"tuntap add {tap} mode tap", f"link set {tap} master {CONTROLLER} up"]
        cables = [ends for placement in self._placements for ends in wires(placement)]
        uarts: dict[str, list[tuple[int, Path]]] = {host.name: [] for host in hosts}
        for number, ends in enumerate(cables):
            if any(end in self._serial for end in ends):
                for end, path in zip(ends, self._serial_cable(number, ends), strict=True):
                    uarts[end[0]].append((self._serial[end].index, path))
                continue
            # A bridge that forgets addresses at once forwards like a cable.
            lines += [f"link add tw{number} type bridge ageing_time 0 mcast_snooping 0", f"link set tw{number} up"]
            for side, (host_name, name) in enumerate(ends):
                tap = f"t{number}-{side}"
                interfaces[host_name].append((tap, name))
                lines += [f"tuntap add {tap} mode tap", f"link set {tap} master tw{number} up"]
        # The cell sends no packets of its own on the cables.
        for setting in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6").write_text("1")
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        known = []
        for number, host in enumerate(hosts):
            key = self._start(number, host.name, host.address, interfaces[host.name], uarts[host.name], ssh)
            known.append(f"{host.address} {key}")
        ssh.known_hosts.write_text("\n".join(known) + "\n")
        deadline = time.monotonic() + BOOT_S
        for host in hosts:
            self._await(host.name, host.address, ssh, deadline)

    def _serial_cable(self, number: int, ends: Sequence[tuple[str, str]]) -> list[Path]:
        """Makes a serial cable. Returns the socket of each end.

        Raises:
            TestbedError: an end is not serial, or the cable cannot be made.
        """
        for host, interface in ends:
            if (host, interface) not in self._serial:
                raise TestbedError(
                    f"interface '{interface}' of host {host} is no serial line, but its other end is; add it to the "
                    "'ppp_lines' or 'slip_lines' of the host"
                )
        cable = SerialCable(self._folder / f"serial{number}", [self._serial[end] for end in ends])
        self._serial_cables.append(cable)
        return cable.paths

    def _start(
        self, number: int, name: str, address: str, interfaces: list[tuple[str, str]], uarts: list[tuple[int, Path]],
        ssh: SshFiles,
    ) -> str:  # fmt: skip
        """Boots a machine. Returns its public host key."""
        folder = self._folder / name
        folder.mkdir()
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / "host_key")])
        macs = [f"52:54:00:{number:02x}:00:{place:02x}" for place in range(len(interfaces))]
        setup = SETUP.replace("@ADDRESS@", address).replace("@MANAGEMENT@", MANAGEMENT)
        named = [f"{mac} {interface}\n" for mac, (_, interface) in zip(macs, interfaces, strict=True)]
        _pack(
            folder / "seed.tar",
            {
                "etc/hostname": (f"{name}\n", 0o644),
                "etc/hosts": (f"127.0.0.1 localhost\n127.0.1.1 {name}\n", 0o644),
                "etc/ssh/ssh_host_ed25519_key": ((folder / "host_key").read_text(), 0o600),
                "etc/ssh/ssh_host_ed25519_key.pub": ((folder / "host_key.pub").read_text(), 0o644),
                "root/.ssh/authorized_keys": (Path(f"{ssh.key}.pub").read_text(), 0o600),
                "usr/local/etc/machine-interfaces": ("".join(named), 0o644),
                "usr/local/sbin/machine-setup": (setup, 0o644),
            },
        )
        words = [
            "qemu-system-x86_64", "-name", name, "-nodefaults", "-no-user-config",
            "-machine", "q35", "-accel", f"tcg,tb-size={CODE_MIB}", "-cpu", "max", "-smp", "1",
            "-m", str(MEMORY_MIB), "-display", "none",
            "-serial", f"file:{folder / 'console'}",
            "-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd),
            "-append", KERNEL_WORDS,
            "-drive", f"file={self._image.disk},format=raw,if=virtio,snapshot=on",
            "-drive", f"file={folder / 'seed.tar'},format=raw,if=virtio,readonly=on",
            "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
        ]  # fmt: skip
        for place, (mac, (tap, _)) in enumerate(zip(macs, interfaces, strict=True)):
            words += ["-netdev", f"tap,id=n{place},ifname={tap},script=no,downscript=no"]
            words += ["-device", f"virtio-net-pci,netdev=n{place},mac={mac},romfile="]
        for index, path in uarts:
            words += ["-chardev", f"socket,id=u{index},path={path}"]
            words += ["-device", f"isa-serial,chardev=u{index},index={index}"]
        with (folder / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return " ".join((folder / "host_key.pub").read_text().split()[:2])

    def _await(self, name: str, address: str, ssh: SshFiles, deadline: float) -> None:
        words = [
            "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "-o", f"UserKnownHostsFile={ssh.known_hosts}",
            "-o", "GlobalKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-i", str(ssh.key),
            f"root@{address}", "systemctl is-system-running --wait || systemctl --failed --no-legend",
        ]  # fmt: skip
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


def _require_memory(machines: int) -> None:
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available_mib = int(memory["MemAvailable"].split()[0]) >> 10
    wanted_mib = machines * (MEMORY_MIB + CODE_MIB + OVERHEAD_MIB) + SPARE_MIB
    if available_mib < wanted_mib:
        raise TestbedError(
            f"{machines} virtual machines need {wanted_mib} MiB of memory, and {available_mib} MiB are free: end other "
            "programs, or take an inventory with fewer hosts"
        )


def _pack(path: Path, files: dict[str, tuple[str, int]]) -> None:
    with tarfile.open(path, "w") as packed:
        for folder, mode in (("root", 0o700), ("root/.ssh", 0o700)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            packed.addfile(entry)
        for name, (text, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), mode
            packed.addfile(entry, io.BytesIO(text.encode()))
