"""The disk of a lab's virtual machines: a small Debian with its own kernel, made once and kept outside the repository.

It is what a lab's machine is before anything of ours: systemd, sshd, Python. What the roles install lies in apt's
cache, not installed, since the machines have no network but the lab's. Every machine boots from one disk and writes
to a layer of its own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed import build_cache
from testbed.errors import TestbedError, Unavailable

#: Debian's kernel for virtual machines has few drivers, and all queueing disciplines and congestion controls.
CLOUD_KERNEL = "linux-image-cloud-amd64"
#: Debian's kernel for hardware has PPP, SLIP and radios, simulated ones too.
HARDWARE_KERNEL = "linux-image-amd64"
#: Without dbus, `shutdown` and Ansible's `reboot` fail. systemd-container runs hosts that share a machine.
#: Ansible needs python3-apt, and would look for it in the network.
INSTALLED = (
    "initramfs-tools",
    "systemd-sysv",
    "systemd-container",
    "dbus",
    "udev",
    "kmod",
    "openssh-server",
    "python3",
    "python3-apt",
    "iproute2",
    "iw",
)
#: Packages of the roles `common`, `ppp`, `slip` and `wifi`, and chrony.
CACHED = (
    "ethtool",
    "tcpdump",
    "iputils-ping",
    "util-linux",
    "chrony",
    "ppp",
    "net-tools",
    "iw",
    "wireless-regdb",
    "hostapd",
    "wpasupplicant",
)
#: Drivers before the root file system. The default, drivers of all hardware, would take most of the boot to unpack.
BOOT_DRIVERS = ("virtio_pci", "virtio_blk", "ext4")
#: Release on machines without Debian.
SUITE = "bookworm"
DISK_BYTES = 3 << 30
#: Space for the unpacked system, its archive and its disk.
ROOM_BYTES = 5 << 30
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs"}

#: Runs when the disks are mounted. The second disk has the machine's own files (testbed.machines).
UNIT = """
[Unit]
Description=Name, keys and addresses of this machine
DefaultDependencies=no
After=local-fs.target systemd-udevd.service
Before=network-pre.target ssh.service
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'tar -x -C / -f /dev/vdb && exec /bin/sh /usr/local/sbin/machine-setup'

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Image:
    """Kernel, initial file system and disk of a machine."""

    disk: Path
    kernel: Path
    initrd: Path


def require() -> None:
    """Checks that virtual machines can run here.

    Raises:
        Unavailable: with everything that is missing.
    """
    troubles = []
    if platform.machine() != "x86_64":
        troubles.append(f"this machine is {platform.machine()}, and the image is made for x86_64")
    if os.geteuid() != 0:
        troubles.append("it needs root, to make a Debian system and interfaces: run it with sudo")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    packages = [package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None]
    if packages:
        troubles.append(f"programs are missing: apt-get install {' '.join(packages)}")
    if troubles:
        raise Unavailable("virtual machines cannot run here: " + "; ".join(troubles))


def image(say: Callable[[str], None], kernel: str = CLOUD_KERNEL) -> Image:
    """Returns the image with a kernel, a package of Debian, from the cache, or makes it.

    Raises:
        Unavailable, TestbedError: it cannot be made.
    """
    require()
    suite = _suite()
    key = hashlib.sha256(repr((suite, kernel, INSTALLED, CACHED, BOOT_DRIVERS, UNIT, DISK_BYTES)).encode()).hexdigest()[
        :12
    ]
    cache = build_cache.place("machines")
    folder = cache / f"{suite}-{key}"

    def make(new: Path) -> None:
        say(f"making the machines' disk in {cache} (Debian {suite}, {kernel}; some minutes, once)")
        _make(suite, kernel, new, cache / "log")

    build_cache.build_once(folder, "lock", "making the machines' disk", ROOM_BYTES, make)
    return Image(folder / "disk", folder / "vmlinuz", folder / "initrd")


def _suite() -> str:
    """The Debian release of this machine, which has the C library of the node binary."""
    values = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", SUITE).strip('"') if values.get("ID") == "debian" else SUITE


def _make(suite: str, kernel: str, folder: Path, log: Path) -> None:
    tree, built = folder / "tree", folder / build_cache.BUILT
    initramfs = "usr/share/initramfs-tools"
    # Before the packages that read these files are installed.
    early = f"""mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/{initramfs}/modules.d"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/machines"
printf '%s\\n' {" ".join(BOOT_DRIVERS)} >"$1/{initramfs}/modules.d/machines\""""
    (folder / "machine-setup.service").write_text(UNIT)
    hooks = [
        f'copy-in "{folder / "machine-setup.service"}" /etc/systemd/system',
        'chroot "$1" systemctl enable machine-setup.service',
        # Each machine gets keys and a name; these would be the same on all.
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname; : >"$1/etc/machine-id"; : >"$1/etc/fstab"',
        f'chroot "$1" apt-get clean; chroot "$1" apt-get install -q -y --download-only --no-install-recommends '
        f"{' '.join(CACHED)}",
    ]
    words = [
        "mmdebstrap",
        "--variant=minbase",
        "--skip=cleanup/apt",
        f"--include={','.join((kernel, *INSTALLED))}",
        f"--essential-hook={early}",
        *(f"--customize-hook={hook}" for hook in hooks),
        suite,
        str(tree),
    ]
    build_cache.logged(words, log, "is there a network, and an archive that serves this Debian?")
    for name in ("vmlinuz", "initrd"):
        files = sorted((tree / "boot").glob(f"{name}*"))
        if not files:
            raise TestbedError(f"the new system has no {name} in /boot; see {log}")
        shutil.copy(files[-1], built / name)
    with (built / "disk").open("wb") as disk:
        disk.truncate(DISK_BYTES)
    build_cache.logged(["mkfs.ext4", "-q", "-F", "-d", str(tree), str(built / "disk")], log, "is the disk full?")
