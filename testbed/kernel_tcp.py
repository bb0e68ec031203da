"""A host's kernel TCP from a scenario's stack: which sysctls and which socket options say the same.

experiments/language/registry.py declares the options. An option that is not set has the kernel's documented default,
which agents.kernel.TCP_BASE sets explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.kernel import available_congestion_controls
from testbed.errors import TestbedError

#: Boolean options and the per-namespace sysctl of each.
SWITCHES = {
    "sack": "net.ipv4.tcp_sack",
    "timestamps": "net.ipv4.tcp_timestamps",
    "window_scaling": "net.ipv4.tcp_window_scaling",
    "ecn": "net.ipv4.tcp_ecn",
    "slow_start_after_idle": "net.ipv4.tcp_slow_start_after_idle",
}
#: Options of each socket and their names on the traffic programs' command line.
SOCKET_OPTIONS = {
    "send_buffer_bytes": "send-buffer-bytes",
    "receive_buffer_bytes": "receive-buffer-bytes",
    "mss_bytes": "mss-bytes",
}


#: Stacks that are the kernel's; every other is the research stack's. Kernels differ in what they have beyond Reno.
NAMES = frozenset({"reno", "cubic", "bbr", "vegas", "westwood", "hybla", "illinois"})


def is_kernels(stack: Mapping[str, Any] | None) -> bool:
    """Whether a host with this stack leaves TCP to the kernel; a router does."""
    return stack is None or stack["name"] in NAMES


def lack(name: str) -> str | None:
    """What is wrong with one of these stacks on this machine, as a sentence; None where its kernel has it."""
    release = os.uname().release
    try:
        there = list(available_congestion_controls())
        modules = [Path(f"/lib/modules/{release}/{file}") for file in ("modules.dep", "modules.builtin")]
        loadable = any(f"/tcp_{name}.ko" in path.read_text() for path in modules if path.exists())
    except OSError:  # not Linux, or a /proc without it: runs will tell
        return None
    if name in there or loadable:
        return None
    return f"the kernel of this machine ({release}) has no '{name}'; it has: {', '.join(sorted(there))}"


def sysctls(stack: Mapping[str, Any] | None) -> dict[str, str]:
    """Per-namespace settings of a host; a router has no stack and none.

    Raises:
        TestbedError: an option that no kernel stack has.
    """
    if stack is None or not is_kernels(stack):
        return {}
    result = {}
    for name, value in (stack.get("options") or {}).items():
        if name in SWITCHES:
            result[SWITCHES[name]] = "1" if value else "0"
        elif name not in SOCKET_OPTIONS:
            allowed = ", ".join(sorted([*SWITCHES, *SOCKET_OPTIONS]))
            raise TestbedError(f"kernel stack '{stack['name']}' has no option '{name}'; it has: {allowed}")
    return result


def socket_options(stack: Mapping[str, Any] | None, of_flow: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a flow's sockets for the traffic programs; those of the flow win over its host's."""
    if stack is None:
        raise TestbedError("traffic needs a host with a stack at both ends")
    options = {**(stack.get("options") or {}), **of_flow}
    result: dict[str, Any] = {"congestion": of_flow.get("name", stack["name"])}
    for name, word in SOCKET_OPTIONS.items():
        if options.get(name) is not None:
            result[word] = int(options[name])
    return result
