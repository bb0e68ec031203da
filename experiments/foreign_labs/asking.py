"""Asks hosts over SSH how they call their interfaces."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from experiments.foreign_labs.lent import LentHost, Nic, hardware_address
from experiments.foreign_labs.matching import named
from testbed.errors import TestbedError
from testbed.tunnels import Login, SshOptions, login_words, meaning

#: Hosts that are asked at once.
AT_ONCE = 16
COMMAND = "ip -json address"


def with_names(hosts: Sequence[LentHost], options: SshOptions) -> list[LentHost]:
    """Hosts with the names of their interfaces.

    Raises:
        TestbedError: a host cannot be asked; with the remedy.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda host: named(host, _ask(host, options)), hosts))


def _ask(host: LentHost, options: SshOptions) -> list[Nic]:
    words = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        f"ConnectTimeout={math.ceil(options.connect_s)}",
        *login_words(options),
        "-p",
        str(host.port),
        f"{options.user}@{host.address}",
        COMMAND,
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=3 * options.connect_s
        )
    except subprocess.TimeoutExpired:
        raise TestbedError(
            f"host {host.name}: it does not answer at {host.address} (is it on, is the network there?)"
        ) from None
    if done.returncode != 0:
        login = Login.of(options, host.address, host.port)
        raise TestbedError(f"host {host.name}: {meaning(done.stderr, login, Login.of_jump(options))}")
    try:
        return answers(done.stdout)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TestbedError(
            f"host {host.name}: it did not answer '{COMMAND}' with interfaces; install iproute2"
        ) from None


def answers(text: str) -> list[Nic]:
    """The interfaces in the output of `ip -json address`, one for each address.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is something else.
    """
    found = []
    for entry in json.loads(text):
        mac = hardware_address(str(entry.get("address", "")))
        addresses = [info["local"] for info in entry.get("addr_info", []) if info.get("family") == "inet"]
        found += [Nic("", str(entry["ifname"]), mac, address) for address in addresses or [None]]
    return found
