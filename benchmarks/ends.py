"""Two namespaces with an interface each, for benchmarks of what joins them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from testbed import node_binary

MACS = ("02:bc:00:00:00:01", "02:bc:00:00:00:02")
ADDRESSES = ("10.9.0.1", "10.9.0.2")
PORT = 5001
#: A bulk flow of more than a benchmark carries. It has a size so that the receiver ends when the sender does.
FLOW = '{"name":"bulk","kind":"bulk","from":"a","to":"b","port":5001,"bytes":1000000000000000}'


def bulk_sender(address: str, peer: str, stop_ns: int) -> list[str]:
    """The program that sends from an address until an instant of CLOCK_MONOTONIC."""
    times = [f"--run-begins-ns={time.monotonic_ns()}", f"--stop-at-ns={stop_ns}"]
    ends = [f"--listen={address}:{PORT}", f"--to={peer}:{PORT}", "--telemetry=/dev/null"]
    return [node_binary.path(), "load", "send", f"--flow={FLOW}", "--seed=7", *ends, *times]


def bulk_receiver(address: str, peer: str) -> list[str]:
    """The program that receives at an address."""
    ends = [f"--listen={address}:{PORT}", f"--sender={peer}:{PORT}"]
    return [node_binary.path(), "load", "receive", f"--flow={FLOW}", "--seed=7", *ends]


def run_in_cell() -> NoReturn:
    """Runs this benchmark again in a cell, with --inside, where nothing can reach the machine's own network."""
    words = [node_binary.path(), "cell", "--", sys.executable, *sys.argv, "--inside"]
    raise SystemExit(subprocess.run(words, check=False).returncode)


class Ends:
    """Two network namespaces, each kept by a process that waits."""

    def __init__(self) -> None:
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in ADDRESSES]
        own = Path("/proc/self/ns/net").readlink()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{holder.pid}/ns/net").readlink() == own for holder in self.holders):
            if time.monotonic() > deadline:
                raise SystemExit("no network namespace was made: this benchmark needs root")
            time.sleep(0.01)

    def run(self, end: int, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a program in one of them."""
        return subprocess.Popen([*self.inside(end), *words], text=True, **options)

    def inside(self, end: int) -> list[str]:
        """The words before a program in one of them."""
        return ["nsenter", "--net", "--target", str(self.holders[end].pid)]

    def add_veth(self) -> None:
        """Adds the interfaces tap0 and tap1 as a pair of the kernel's."""
        near, far = (str(holder.pid) for holder in self.holders)
        words = ["ip", "link", "add", "tap0", "netns", near, "type", "veth", "peer", "name", "tap1", "netns", far]
        subprocess.run(words, check=True)

    def configure(self, kernels: tuple[bool, bool] = (True, True)) -> None:
        """Brings the interfaces tap0 and tap1 up; the kernel holds the address only where it is to answer."""
        for end in (0, 1):
            # Router solicitations would take the line's time.
            self.run(end, "sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/tap{end}/disable_ipv6").wait()
            lines = [f"link set tap{end} address {MACS[end]}", f"link set tap{end} up"]
            if kernels[end]:
                lines += [
                    f"address replace {ADDRESSES[end]}/24 dev tap{end}",
                    f"neighbour replace {ADDRESSES[1 - end]} lladdr {MACS[1 - end]} dev tap{end} nud permanent",
                ]
            batch = self.run(end, "ip", "-batch", "-", stdin=subprocess.PIPE)
            batch.communicate("\n".join(lines) + "\n")
            if batch.returncode:
                raise SystemExit("an interface could not be set up")

    def close(self) -> None:
        """Ends the holders; the namespaces go with them."""
        for holder in self.holders:
            holder.kill()
            holder.wait()
