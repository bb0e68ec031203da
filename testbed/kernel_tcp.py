"""The sysctls and socket options of a scenario's kernel stack.

experiments/language/registry.py declares the options. An option that is not set has the kernel's documented default,
which agents.kernel.TCP_BASE sets explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agents.kernel import available_congestion_controls
from testbed.errors import TestbedError, listed
from testbed.scenario import Named, Options

if TYPE_CHECKING:
    from agents.messages import OptionValue

#: Boolean options and the per-namespace sysctl of each.
SWITCHES = {
    "sack": "net.ipv4.tcp_sack",
    "timestamps": "net.ipv4.tcp_timestamps",
    "window_scaling": "net.ipv4.tcp_window_scaling",
    "slow_start_after_idle": "net.ipv4.tcp_slow_start_after_idle",
}
#: Values of the option `ecn` as net.ipv4.tcp_ecn has them (Documentation/networking/ip-sysctl.rst of Linux 7.3).
ECN: Mapping[bool | str, str] = {
    False: "0",
    True: "1",
    "accept": "2",
    "accecn": "3",
    "accept-accecn-request-ecn": "4",
    "accept-accecn": "5",
}
#: Those that use Accurate ECN (RFC 9768).
ACCECN = tuple(str(mode) for mode, value in ECN.items() if value in "345")
#: Options of Accurate ECN: the sysctl of each, and the kernel's default.
ACCECN_OPTIONS = {
    "ecn_option": ("net.ipv4.tcp_ecn_option", 2),
    "ecn_option_beacon": ("net.ipv4.tcp_ecn_option_beacon", 3),
}
#: Options of a socket, and the traffic programs' command-line option of each.
SOCKET_OPTIONS = {
    "send_buffer_bytes": "send-buffer-bytes",
    "receive_buffer_bytes": "receive-buffer-bytes",
    "mss_bytes": "mss-bytes",
}

#: Congestion controls of the kernel; every other stack is the research stack's. Not every kernel has all of them.
NAMES = frozenset({"reno", "cubic", "bbr", "vegas", "westwood", "hybla", "illinois", "dctcp", "prague"})
#: The stack whose option `congestion` names one that may be the user's own.
BY_NAME = "kernel"


def is_kernel_stack(name: str) -> bool:
    """Whether a stack of this name is the kernel's TCP."""
    return name in NAMES or name == BY_NAME


def congestion_control(name: str, options: Options) -> str:
    """The congestion control of a kernel stack."""
    return str(options["congestion"]) if name == BY_NAME else name


def kernel_owns(stack: Named | None) -> bool:
    """Whether the kernel holds the addresses of a node with this stack; it holds a router's."""
    return stack is None or is_kernel_stack(stack.name)


def uses_accecn(options: Options) -> bool:
    """Whether a kernel stack with these options accepts or requests Accurate ECN."""
    return options.get("ecn") in ACCECN


def option_problem(options: Options) -> str | None:
    """What is wrong with a kernel stack's options together; None if nothing."""
    useless = next((name for name in ACCECN_OPTIONS if name in options), None)
    if useless is None or uses_accecn(options):
        return None
    return f"'{useless}' needs Accurate ECN: set 'ecn' to one of {', '.join(ACCECN)}"


def lacks_accecn() -> bool:
    """Whether this machine's kernel has no Accurate ECN."""
    return not Path("/proc/sys/net/ipv4/tcp_ecn_option").exists()


def lack(name: str) -> str | None:
    """Why this machine cannot run a kernel stack, as a sentence; None where it can or where that is unknown."""
    release = os.uname().release
    try:
        available = list(available_congestion_controls())
        modules = [Path(f"/lib/modules/{release}/{file}") for file in ("modules.dep", "modules.builtin")]
        loadable = any(f"/tcp_{name}.ko" in path.read_text() for path in modules if path.exists())
    except OSError:  # not Linux, or no /proc
        return None
    if name in available or loadable:
        return None
    return f"the kernel of this machine ({release}) has no '{name}'; it has: {listed(sorted(available))}"


def sysctls(stack: Named | None) -> dict[str, str]:
    """Settings of a host's network namespace; none for a router or a research stack.

    Raises:
        TestbedError: an option that no kernel stack has.
    """
    if stack is None or not is_kernel_stack(stack.name):
        return {}
    result = {}
    for name, value in stack.options.items():
        if name in SWITCHES:
            result[SWITCHES[name]] = "1" if value else "0"
        elif name == "ecn":
            result["net.ipv4.tcp_ecn"] = ECN[value]
        elif name not in SOCKET_OPTIONS and name not in ACCECN_OPTIONS and name != "congestion":
            allowed = listed(sorted(["ecn", *SWITCHES, *SOCKET_OPTIONS, *ACCECN_OPTIONS]))
            raise TestbedError(f"kernel stack '{stack.name}' has no option '{name}'; it has: {allowed}")
    if uses_accecn(stack.options):
        # Other kernels do not have them.
        result |= {sysctl: str(stack.options.get(name, default)) for name, (sysctl, default) in ACCECN_OPTIONS.items()}
    return result


def socket_options(stack: Named, of_flow: Options) -> dict[str, OptionValue]:
    """Options of a flow's sockets for the traffic programs; the flow's options override its host's."""
    options = {**stack.options, **of_flow}
    result: dict[str, OptionValue] = {"congestion": congestion_control(of_flow.get("name", stack.name), options)}
    for name, option in SOCKET_OPTIONS.items():
        if options.get(name) is not None:
            result[option] = int(options[name])
    return result
