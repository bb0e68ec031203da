"""Pairs of TUN interfaces in place of a lab's cables: what `pppd` makes of a serial line, on a kernel without PPP.

    python -m tests.support.tun_pairs MTU HOST:INTERFACE=HOST:INTERFACE...

runs inside a lab. It replaces the interfaces, gives each an address with a peer and prints `ready`. It carries packets
until it is ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x1, 0x1000, 0x40000000
MOST_BYTES = 65_536


def inside(pid: int, *words: str) -> None:
    """Runs a program in a host's network namespace."""
    subprocess.run(["nsenter", "--target", str(pid), "--net", "--", *words], check=True)


def open_tun(pid: int, name: str) -> int:
    """A TUN in the network namespace of a process; its descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    for namespace in (there, home):
        if libc.setns(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        if namespace == there:
            # The namespace of the descriptor counts, and it is that of its opening.
            tun = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        os.close(namespace)
    return tun


def main() -> None:
    """Makes the pairs and carries their packets."""
    mtu, *pairs = sys.argv[1:]
    pids = json.loads(Path(os.environ["BACKCHANNEL_LAB"]).read_text())
    other: dict[int, int] = {}
    for number, pair in enumerate(pairs):
        ends = [end.split(":") for end in pair.split("=")]
        # The cable goes with either of its ends.
        inside(pids[ends[0][0]], "ip", "link", "delete", ends[0][1])
        tuns = []
        for end, (host, name) in enumerate(ends):
            tuns.append(open_tun(pids[host], name))
            inside(pids[host], "ip", "link", "set", name, "mtu", mtu, "up")
            local, peer = (f"192.0.2.{4 * number + 1 + side}" for side in (end, 1 - end))
            inside(pids[host], "ip", "address", "add", local, "peer", peer, "dev", name)
        other |= {tuns[0]: tuns[1], tuns[1]: tuns[0]}
    # A wire waits for nobody.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
    print("ready", flush=True)
    while True:
        for tun in select.select(list(other), [], [])[0]:
            os.write(other[tun], os.read(tun, MOST_BYTES))


if __name__ == "__main__":
    main()
