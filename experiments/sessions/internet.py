"""The way from a session's network to the machine's own: passt's `pasta`, which forwards connections by sockets.

Pasta runs in the machine's network namespace and in the cell's process namespace, so that it ends with the cell, and
creates an interface in the gateway node. It needs no forwarding, no address translation and no firewall rule here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from experiments.sessions.outside import add_routes, process_in
from experiments.sessions.plan import SessionPlan
from testbed.errors import TestbedError, Unavailable
from testbed.local_folders import ScratchFolder
from testbed.report import SessionHost

#: Address that hosts use as their name server; pasta passes lookups on to the machine's own.
NAME_SERVER = "192.0.2.53"
#: Name of pasta's interface in the gateway node, its address and pasta's own (RFC 5737).
INTERFACE, ADDRESS, PEER = "uplink", "192.0.2.2", "192.0.2.1"
#: Longest time until the interface is there.
START_S = 5.0


class Internet:
    """The way by pasta (experiments.sessions.outside.Uplink).

    Raises:
        Unavailable: pasta is not installed.
    """

    name_server = NAME_SERVER

    def __init__(self) -> None:
        if shutil.which("pasta") is None:
            raise Unavailable("--internet needs pasta: apt-get install passt")
        self._scratch: ScratchFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, cell_pid: int, hosts: Mapping[str, SessionHost], plan: SessionPlan) -> None:
        """Starts pasta in the gateway node.

        Raises:
            TestbedError: it did not start.
        """
        add_routes(hosts, plan)
        outside = process_in(hosts[plan.gateway])
        self._scratch = ScratchFolder()
        log = self._scratch.path / "pasta.log"
        # As a descriptor, because pasta gives up the right to look into other processes before it opens the path.
        space = os.open(f"/proc/{outside}/ns/net", os.O_RDONLY)
        words = [
            "nsenter",
            f"--pid=/proc/{cell_pid}/ns/pid_for_children",
            "--",
            "pasta",
            "--foreground",
            "--quiet",
            "--runas",
            "0",
            "--config-net",
            "--ipv4-only",
            "--tcp-ports",
            "none",
            "--udp-ports",
            "none",
            "--tcp-ns",
            "none",
            "--udp-ns",
            "none",
            "--mtu",
            "1500",
            "--ns-ifname",
            INTERFACE,
            "--address",
            ADDRESS,
            "--netmask",
            "24",
            "--gateway",
            PEER,
            "--dns-forward",
            NAME_SERVER,
            "--netns-only",
            "--netns",
            f"/proc/self/fd/{space}",
        ]
        with log.open("wb") as stream:
            self._process = process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True, pass_fds=[space]
            )
        os.close(space)
        deadline = time.monotonic() + START_S
        while INTERFACE not in Path(f"/proc/{outside}/net/dev").read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip().splitlines()
                self.close()
                reason = said[-1] if said else f"it had no interface after {START_S:g} s"
                raise TestbedError(f"pasta, the way to the machine's network, did not start: {reason}")
            time.sleep(0.01)

    def close(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._scratch is not None:
            self._scratch.close()

    def problem(self) -> str | None:
        """None: it has no condition that could fail for good."""
        return None
