#!/usr/bin/python
"""Whether a host is fit for measurements."""

from __future__ import annotations

DOCUMENTATION = """
module: fitness
short_description: Whether a host is fit for measurements
description:
  - Checks clock, offloads, kernel, disk, programs, packages, agent and reachability.
  - Changes nothing, but may update the package lists. Fails with every problem and its remedy.
options:
  clock:
    type: bool
    default: false
    description: Reject a clock whose offset from the controller's a run would reject. The action plugin compares them.
  interfaces:
    type: list
    elements: str
    default: []
    description: The experiment's interfaces. They must be up, without offloads.
  neighbours:
    type: list
    elements: str
    default: []
    description: Addresses that must answer a ping, over real links.
  programs:
    type: list
    elements: str
    default: []
    description: Programs that must be installed.
  congestion_controls:
    type: list
    elements: str
    default: []
    description: TCP congestion controls that the kernel must offer.
  kernel:
    type: str
    default: "5.10"
    description: Oldest kernel version that is accepted.
  system:
    type: bool
    default: false
    description: Reject a system other than Debian and Ubuntu, and releases older than Debian 12 and Ubuntu 24.04.
  machine:
    type: str
    description:
      - Architecture that the host must have, such as V(x86_64). The action plugin sets that of the node binary.
  mtu:
    type: int
    default: 0
    description: MTU that those of O(take) with Ethernet's header must have, in bytes. V(0) accepts any.
  unheld:
    type: bool
    default: false
    description: Reject a host that a campaign holds.
  packages:
    type: list
    elements: str
    default: []
    description: Debian packages that must be installed or installable.
  room_mb:
    type: dict
    default: {}
    description: Free space in MiB that the disk of each folder needs, by folder.
  agent:
    type: path
    description: Socket of an agent that must answer.
  take:
    type: list
    elements: str
    default: []
    description: Interfaces to take. None may lead to the controller or be managed by another program.
  destinations:
    type: list
    elements: str
    default: []
    description: Destinations of the routes that the testbed is to add. None may have a route over another interface.
  connection:
    type: str
    default: ssh
    description: Ansible's connection. Over V(ssh) the way to the controller must be known before interfaces are taken.
author: Backchannel (@backchannel)
attributes:
  check_mode:
    description: Supported; the module never changes anything.
    support: full
  diff_mode:
    description: Not supported, because nothing is changed.
    support: none
"""

EXAMPLES = """
- name: Kernel, disk and packages
  backchannel.testbed.fitness:
    unheld: true
    packages: [tcpdump, ethtool]
    room_mb: {/opt: 50}
  register: host

- name: Install what is missing
  ansible.builtin.apt:
    name: "{{ host.missing_packages }}"
  when: host.missing_packages | length > 0
"""

RETURN = """
kernel:
  description: Release of the kernel.
  returned: always
  type: str
free_mb:
  description: Free space in MiB, by folder of O(room_mb).
  returned: always
  type: dict
missing_packages:
  description: Those of O(packages) that are not installed.
  returned: always
  type: list
  elements: str
problems:
  description: Every problem with its remedy.
  returned: always
  type: list
  elements: str
clock_s:
  description: Readings of the host's clock at the start and end of the module, in seconds since 1970.
  returned: always
  type: list
  elements: float
"""

import os
import shutil
import socket
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.backchannel.testbed.plugins.module_utils.host import HostError, read, refuse_if_held, run
from ansible_collections.backchannel.testbed.plugins.module_utils.interface_state import KernelState, ip_json
from ansible_collections.backchannel.testbed.plugins.module_utils.management import rejection_reasons, ssh_connection

OFFLOADS = (
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "tx-checksumming",
    "rx-checksumming",
)
APT_SIMULATE = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends"]
APT_SIMULATE += ["--simulate"]
PROGRAM_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin"
ARGUMENTS = {
    "clock": {"type": "bool", "default": False},
    "interfaces": {"type": "list", "elements": "str", "default": []},
    "neighbours": {"type": "list", "elements": "str", "default": []},
    "programs": {"type": "list", "elements": "str", "default": []},
    "congestion_controls": {"type": "list", "elements": "str", "default": []},
    "kernel": {"type": "str", "default": "5.10"},
    "system": {"type": "bool", "default": False},
    "machine": {"type": "str"},
    "mtu": {"type": "int", "default": 0},
    "unheld": {"type": "bool", "default": False},
    "packages": {"type": "list", "elements": "str", "default": []},
    "room_mb": {"type": "dict", "default": {}},
    "agent": {"type": "path"},
    "take": {"type": "list", "elements": "str", "default": []},
    "destinations": {"type": "list", "elements": "str", "default": []},
    "connection": {"type": "str", "default": "ssh"},
}


def unheld(parameters):
    """No campaign may hold the host."""
    if parameters["unheld"]:
        refuse_if_held()
    return []


#: Oldest releases whose packages and Python the roles were run with, by the ID of os-release(5).
RELEASES = {"debian": (12, 0), "ubuntu": (24, 4)}


def system(parameters):
    """The distribution and its release."""
    if not parameters["system"]:
        return []
    text = read("/etc/os-release") or read("/usr/lib/os-release") or ""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {name: value.strip().strip("\"'") for name, value in fields.items()}
    name = fields.get("PRETTY_NAME") or fields.get("ID") or "unknown"
    needed = RELEASES.get(fields.get("ID"))
    # Debian's next release has no number yet.
    version = fields.get("VERSION_ID", "9999" if fields.get("ID") == "debian" else "0")
    parts = tuple(int(part) if part.isdigit() else 0 for part in (version + ".0").split(".")[:2])
    if needed is None or parts < needed:
        return [f"the system is {name}; the roles need Debian 12 or Ubuntu 24.04, or later"]
    return []


def machine(parameters):
    """The node binary must run here."""
    required, here = parameters["machine"], os.uname().machine
    if required in (None, here):
        return []
    return [
        f"the host's architecture is {here}, and the node binary's {required}; build it on such a machine and set "
        "$BACKCHANNEL_NODE to it"
    ]


def mtu(parameters):
    """Interfaces with Ethernet's header have one MTU, because packets of 1500 bytes cross every link of a topology."""
    required_mtu = parameters["mtu"]
    links = KernelState().links if required_mtu and parameters["take"] else {}
    return [
        f"interface {name} has an MTU of {links[name]['mtu']} bytes instead of {required_mtu}; run 'ip link set {name} "
        f"mtu {required_mtu}', or set 'common_mtu' in the inventory's 'vars'"
        for name in parameters["take"]
        if name in links and links[name].get("link_type") == "ether" and links[name]["mtu"] != required_mtu
    ]


def kernel(parameters):
    """The kernel's version, compared by number."""
    release = os.uname().release
    version = [int(part) for part in release.split("-")[0].split(".")[:2]]
    oldest = [int(part) for part in parameters["kernel"].split(".")]
    return [] if version >= oldest else [f"kernel {release} is older than {parameters['kernel']}"]


def programs(parameters):
    """Programs, in the folders of packages."""
    missing = [name for name in parameters["programs"] if shutil.which(name, path=PROGRAM_FOLDERS) is None]
    return [f"programs are missing: {', '.join(missing)}; run site.yml"] if missing else []


def missing_packages(names):
    """Packages that are not installed."""
    if not names:
        return []
    output = run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *names], good=(0, 1))
    installed = {line.split()[0] for line in output.splitlines() if line.split()[1:2] == ["ii"]}
    return [name for name in names if name not in installed]


def packages(parameters):
    """Missing packages must be installable, with updated package lists if need be."""
    missing = missing_packages(parameters["packages"])
    if not missing:
        return []
    try:
        try:
            run([*APT_SIMULATE, *missing])
        except HostError:
            run(["apt-get", "update", "-q"])
            run([*APT_SIMULATE, *missing])
    except HostError as error:
        return [f"packages are missing ({', '.join(missing)}) and cannot be installed: {error}"]
    return []


def congestion_controls(parameters):
    """Only controls that are available now count: the module does not load kernel modules."""
    available = (read("/proc/sys/net/ipv4/tcp_available_congestion_control") or "").split()
    missing = [name for name in parameters["congestion_controls"] if name not in available]
    return [f"the kernel has no {missing[0]}; 'modprobe tcp_{missing[0]}', or another stack"] if missing else []


def interfaces(parameters):
    """Interfaces exist, are up and have no offloads."""
    problems = []
    live = {link["ifname"]: link for link in ip_json(["link", "show"])}
    for name in parameters["interfaces"]:
        if name not in live:
            problems.append(f"interface {name} does not exist")
            continue
        if "UP" not in live[name]["flags"]:
            problems.append(f"interface {name} is down; run site.yml")
        output = run(["ethtool", "-k", name])
        on = [offload for offload in OFFLOADS if f"{offload}: on\n" in output]
        if on:
            problems.append(f"interface {name} has {', '.join(on)} on; run site.yml")
    return problems


def free_mb(folder):
    """Free space of the disk of a folder, or of its nearest parent, in MiB."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free >> 20


def room(parameters):
    """Releases and captures need space."""
    free = {folder: (free_mb(folder), int(needed)) for folder, needed in sorted(parameters["room_mb"].items())}
    return [
        f"the disk of {folder} has {have} MB free, of {needed} needed; free some space"
        for folder, (have, needed) in free.items()
        if have < needed
    ]


def agent(parameters):
    """The agent answers on its socket."""
    path = parameters["agent"]
    if not path:
        return []
    if not os.path.exists(path):
        return [f"no agent runs here ({path} is missing); run site.yml"]
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(path)
        connection.sendall(b'{"op": "health"}\n')
        healthy = connection.recv(64).startswith(b'{"ok": true')
    except OSError:
        healthy = False
    finally:
        connection.close()
    return [] if healthy else ["the agent does not answer; restart the service backchannel-agent"]


def neighbours(parameters):
    """Every neighbour answers a ping within 3 s; all at the same time."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    pings = [
        (address, subprocess.Popen(["ping", "-c", "1", "-W", "3", "-q", address], **quiet))
        for address in parameters["neighbours"]
    ]
    return [
        f"{address} at the other end of a wire does not answer; check the cable and the interface there"
        for address, ping in pings
        if ping.wait() != 0
    ]


def take(parameters):
    """The testbed may take the interfaces."""
    names = parameters["take"]
    if not names:
        return []
    if parameters["connection"].endswith("ssh") and ssh_connection() is None:
        return [
            "the way to the controller is unknown, because no process above this one has SSH_CONNECTION; "
            "no interface is taken"
        ]
    return rejection_reasons(KernelState(), names, parameters["destinations"])


CHECKS = (
    unheld,
    system,
    machine,
    kernel,
    programs,
    packages,
    congestion_controls,
    interfaces,
    take,
    mtu,
    room,
    agent,
    neighbours,
)


def main():
    """Entry point."""
    started_s = time.time()
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    problems = []
    for check in CHECKS:
        try:
            problems += check(module.params)
        except HostError as error:
            problems.append(str(error))
    facts = {
        "kernel": os.uname().release,
        "free_mb": {folder: free_mb(folder) for folder in module.params["room_mb"]},
        "missing_packages": missing_packages(module.params["packages"]),
        "problems": problems,
        "clock_s": [started_s, time.time()],
    }
    if problems:
        module.fail_json(msg="not fit: " + "; ".join(problems), **facts)
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
