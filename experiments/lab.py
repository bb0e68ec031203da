"""Labs: Ansible's playbooks, and rehearsals in namespaces or virtual machines.

python -m experiments.lab namespaces|machines INVENTORY CAMPAIGN TREE -- COMMAND...: first program of a rehearsal's cell
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.client import AgentClient
from agents.errors import AgentError
from experiments import exits, inventory
from experiments.language import campaign
from experiments.language.campaign import Plan
from experiments.language.problems import CampaignError, Problem
from experiments.testbeds import OnProgress, TestbedFactory
from testbed import image, node_binary
from testbed.cell import topology_key
from testbed.cellmain import FOLDER, private_memory_folder
from testbed.collection import ANSIBLE, ansible_playbook, link_collection
from testbed.errors import HostLost, TestbedError, Unavailable
from testbed.host_agents import HostAccess
from testbed.host_testbed import HostTestbed
from testbed.installation import Installation, difference
from testbed.lab import Lab, SshFiles, processes
from testbed.leases import HostLease
from testbed.local_folders import ScratchFolder
from testbed.machines import Machines, SpecialInterfaces
from testbed.placement import Placement
from testbed.scenario import Scenario
from testbed.tunnels import SshTunnel

#: Options of ssh (ansible/ansible.cfg) without connections that are kept or shared.
FRESH_CONNECTIONS = "-o ControlMaster=no -o ControlPath=none -o BatchMode=yes -o ServerAliveInterval=5"
NEEDS_INVENTORY = "the physical backend needs a lab's inventory: --inventory FILE"


def topology(inventory_: inventory.Inventory, file: Path | None) -> Path:
    """The campaign file with the topology.

    Raises:
        CampaignError: neither the command line nor the inventory names a campaign.
    """
    chosen = file or inventory_.campaign
    if chosen is None:
        raise inventory_.error("this field is missing; it names the campaign file with the topology", "campaign")
    return chosen.absolute()


def playbook(name: str, path: Path, file: Path | None, arguments: Sequence[str]) -> int:
    """Runs a playbook on a lab. Returns Ansible's exit status.

    Raises:
        CampaignError: the inventory or the campaign is wrong.
        Unavailable: Ansible is missing.
    """
    inventory_ = inventory.read(path)
    scenario = campaign.load(topology(inventory_, file)).runs[0].scenario
    inventory.placements(inventory_, scenario.nodes, scenario.links)
    program = ansible_playbook()
    if not program.exists():
        raise Unavailable(
            f"Ansible is not installed beside {sys.executable}; ./backchannel installs it; elsewhere: pip install "
            "'backchannel[lab]'"
        )
    environment = {
        **os.environ,
        "BACKCHANNEL_CAMPAIGN": str(topology(inventory_, file)),
        "BACKCHANNEL_NODE": node_binary.path(),
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(link_collection()),
        "PATH": f"{program.parent}:{os.environ.get('PATH', '')}",
        # Ansible refuses other encodings, and locales that this machine does not have, as ssh hands them on.
        "LC_ALL": "C.UTF-8",
    }
    if name == "check":
        # A connection that an earlier playbook left would hide that nobody can log in any more.
        environment["ANSIBLE_SSH_ARGS"] = FRESH_CONNECTIONS
    words = [str(program), "--inventory", str(path.absolute()), str(ANSIBLE / "playbooks" / f"{name}.yml"), *arguments]
    status = subprocess.run(words, env=environment, cwd=ANSIBLE, check=False).returncode
    if name != "check":
        return status
    lent = lease(inventory_)
    if lent is not None:
        print(f"backchannel: {lent.state(time.time())}", file=sys.stderr)
    if status != 0:
        return status
    problems = refused_logins(path, scenario)
    if lent is not None and lent.left_s(time.time()) <= 0:
        problems.append("no run begins after the end of the lease; extend it and its 'lease_ends' in the inventory")
    for problem in problems:
        print(f"backchannel: {problem}", file=sys.stderr)
    return 1 if problems else 0


def refused_logins(path: Path, scenario: Scenario) -> list[str]:
    """Hosts whose agent the controller cannot reach with the agent's login, as a campaign would, with the remedy."""
    access, problems = _access(path), []
    ssh = access.hosts.ssh
    if ssh is None:
        return []
    with ScratchFolder() as folder:
        hosts = [
            placement.hosts[name]
            for placement in access.places(scenario).values()
            for name in dict.fromkeys(placement.members())
        ]
        tunnels = [SshTunnel(host.name, host.address, host.port, ssh, folder) for host in hosts]
        for tunnel in tunnels:
            try:
                tunnel.wait()
                AgentClient(tunnel.name, tunnel.socket).health()
            except (TestbedError, AgentError) as error:
                problems.append(f"the login of the agent, {ssh.user}: {error}")
            finally:
                tunnel.close()
    return problems


def rehearse(
    path: Path, file: Path | None, command: Sequence[str], machines: bool = False, tree: Path = Path("/")
) -> int:
    """Runs a command in a cell with the lab as namespaces, with this file tree, or virtual machines. Returns its exit
    status.

    Raises:
        CampaignError: the inventory or the campaign is wrong.
        Unavailable, TestbedError: virtual machines cannot run here.
    """
    inventory_ = inventory.read(path)
    if machines:
        if inventory_.file.connection != "ssh":
            raise inventory_.error("virtual machines need 'ssh', not 'namespace'", "connection")
        if inventory_.file.ssh.proxy_jump is not None:
            raise inventory_.error("a jump host can be rehearsed in namespaces only, without '--vm'", "ssh.proxy_jump")
        scenario = campaign.load(topology(inventory_, file)).runs[0].scenario
        inventory.placements(inventory_, scenario.nodes, scenario.links)
        special = _special_interfaces(inventory_)
        if (special.serial or special.radios) and inventory_.file.machine_kernel == image.CLOUD_KERNEL:
            raise inventory_.error(
                f"'{image.CLOUD_KERNEL}' has no PPP, SLIP and radios; set 'machine_kernel: {image.HARDWARE_KERNEL}'",
                "machine_kernel",
            )
        # The cell has no network to download packages.
        image.image(lambda text: print(f"backchannel: {text}", file=sys.stderr), inventory_.file.machine_kernel)
    words = [
        node_binary.path(),
        "cell",
        "--parent",
        str(os.getpid()),
        "--",
        *node_binary.module("experiments.lab"),
        "machines" if machines else "namespaces",
        str(path.absolute()),
        str(topology(inventory_, file)),
        str(tree.absolute()),
        "--",
        *command,
    ]
    environment = {**os.environ, "PYTHONPATH": node_binary.python_path(), "BACKCHANNEL_NODE": node_binary.path()}
    with _keys_removed(_ssh_files(inventory_)):
        return exits.of_process(subprocess.run(words, env=environment, check=False).returncode)


@contextmanager
def _keys_removed(files: SshFiles | None) -> Iterator[None]:
    """Removes the keys of a rehearsal that a signal ends. Its cell ends at once then and removes nothing."""
    are_ours = files is not None and not any(path.exists() for path in files.paths)
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: sys.exit(128 + number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        if files is not None and are_ours:
            files.remove()


def _ssh_files(inventory_: inventory.Inventory) -> SshFiles | None:
    """Files for the keys of a rehearsal; None where it needs none, or the inventory does not name them."""
    ssh = inventory_.file.ssh
    key, known_hosts = inventory_.resolved(ssh.key), inventory_.resolved(ssh.known_hosts)
    if inventory_.file.connection != "ssh" or key is None or known_hosts is None:
        return None
    return SshFiles(key, known_hosts)


def build(path: Path, file: Path, folder: Path, machines: bool = False, tree: Path = Path("/")) -> Lab | Machines:
    """Builds the lab of an inventory, inside a cell.

    Raises:
        CampaignError, TestbedError: it cannot be.
    """
    inventory_ = inventory.read(path)
    scenario = campaign.load(file).runs[0].scenario
    placements = list(inventory.placements(inventory_, scenario.nodes, scenario.links).values())
    ssh = _ssh_files(inventory_)
    if inventory_.file.connection == "ssh":
        if ssh is None:
            raise TestbedError(
                f"{path}: a rehearsal creates its keys and needs 'ssh.key' and 'ssh.known_hosts' for them"
            )
        if machines:
            disk = image.image(lambda text: None, inventory_.file.machine_kernel)
            return Machines(placements, folder, ssh, disk, _special_interfaces(inventory_))
        if not (tree / "usr/sbin/sshd").exists():
            raise Unavailable("a rehearsal with SSH needs sshd: apt-get install openssh-server")
    return Lab(placements, folder, ssh, inventory_.ssh_options().jump if ssh is not None else None, tree)


def _special_interfaces(inventory_: inventory.Inventory) -> SpecialInterfaces:
    """The lab's interfaces that are no Ethernet."""
    file = inventory_.file
    hosts = [*file.hosts, *(name for host_set in file.sets.values() for name in host_set.hosts)]
    return SpecialInterfaces(inventory.serial_lines(inventory_, hosts), inventory.radios(inventory_, hosts))


def in_lab(path: Path | None, plans: Sequence[Plan], warn: Callable[[str], None]) -> list[Plan]:
    """Campaigns on the hosts of a lab, with that lab's ids of runs.

    Connects once to the hosts of every topology: each is reachable, has an agent, is held by nobody and has the right
    time. Then releases them. In a lab with several sets of hosts, a set that does not answer is passed to `warn` as a
    sentence, as long as another does: runs may begin without it.

    Raises:
        CampaignError: there is no inventory, or a topology does not fit it.
        TestbedError: the first host of which that is not true, with the remedy, or sets that are not alike; nothing was
            changed.
    """
    access = _access(path)
    by_topology = {topology_key(scenario): scenario for plan in plans for _, scenario in plan.first_scenarios()}
    for scenario in by_topology.values():
        access.places(scenario)
    found: dict[str, dict[str, Installation]] = {}
    lost: list[HostLost] = []
    lent = lease(access.inventory)
    if lent is not None and lent.left_s(time.time()) <= 0:
        raise TestbedError(f"{lent.state(time.time())}; extend it and its 'lease_ends' in the inventory")
    for name in access.sets:
        testbed = access.testbed(name, f"campaign {plans[0].name}")
        try:
            described = {}
            for key, scenario in by_topology.items():
                testbed.build(scenario)
                described[key] = testbed.installation()
            found[name] = described
        except HostLost as error:
            lost.append(error)
            if len(lost) == len(access.sets):
                raise lost[0] from None
            warn(f"set {name} does not take part until it answers: {error}")
        finally:
            testbed.close()
    first, *others = found.values()
    for other in others:
        for key in by_topology:
            if why := difference(first[key], other[key]):
                raise TestbedError(
                    f"the sets of hosts are not alike: {why}; results of unlike hosts are never mixed, so make them "
                    "alike, or give each kind of hosts its own inventory"
                )
    return [plan.in_lab(lambda scenario: first[topology_key(scenario)].identity()) for plan in plans]


def require_fit(path: Path, plan: Plan) -> None:
    """Nothing, if every topology of a campaign fits a lab. Connects to no host.

    Raises:
        CampaignError: one does not, or the inventory is wrong.
    """
    inventory_ = inventory.read(path)
    for _, scenario in plan.first_scenarios():
        inventory.placements(inventory_, scenario.nodes, scenario.links)


def cells(path: Path | None, name: str) -> dict[str, TestbedFactory]:
    """What makes the physical backend's cells, by set of hosts: connections to them, held in the campaign's name."""
    access = _access(path)
    lent = lease(access.inventory)

    def factory(set_name: str) -> TestbedFactory:
        return lambda _, on_progress: access.testbed(set_name, f"campaign {name}", on_progress, lent)

    return {set_name: factory(set_name) for set_name in access.sets}


@dataclass(frozen=True)
class _Access:
    """How scenarios are placed in a lab, and how its hosts are reached."""

    inventory: inventory.Inventory
    hosts: HostAccess

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the lab's sets of hosts; one empty name without sets."""
        return tuple(self.inventory.file.sets) or ("",)

    def places(self, scenario: Scenario) -> dict[str, Placement]:
        """The scenario in each set."""
        return inventory.placements(self.inventory, scenario.nodes, scenario.links)

    def testbed(
        self, set_name: str, holder: str, on_progress: OnProgress | None = None, lent: HostLease | None = None
    ) -> HostTestbed:
        """The hosts of one set."""
        return HostTestbed(lambda scenario: self.places(scenario)[set_name], self.hosts, holder, on_progress, lent)


def _access(path: Path | None) -> _Access:
    if path is None:
        raise CampaignError("--inventory", [Problem(0, "", NEEDS_INVENTORY)])
    inventory_ = inventory.read(path)
    hosts = (
        HostAccess(ssh=inventory_.ssh_options())
        if inventory_.file.connection == "ssh"
        else HostAccess(namespaces=processes())
    )
    return _Access(inventory_, hosts)


def lease(inventory_: inventory.Inventory) -> HostLease | None:
    """The lease of a lab's hosts; None: they stay."""
    ends = inventory_.file.lease_ends
    return None if ends is None else HostLease(ends)


def main() -> int:
    """Builds the lab and runs the command."""
    kind, path, file, tree, _, *command = sys.argv[1:]
    try:
        private_memory_folder()
        lab = build(Path(path), Path(file), FOLDER / "lab", kind == "machines", Path(tree))
    except (CampaignError, TestbedError, Unavailable) as error:
        print(f"backchannel: {error}", file=sys.stderr)
        return 2 if isinstance(error, CampaignError) else 1
    try:
        # Ansible names its kept connections by address, and labs share addresses.
        environment = {**lab.environment(), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(FOLDER / "ssh")}
        return exits.of_process(subprocess.run(command, env=environment, check=False).returncode)
    except OSError as error:
        print(f"backchannel: cannot run '{command[0]}': {error.strerror}", file=sys.stderr)
        return 127
    finally:
        lab.close()


if __name__ == "__main__":
    sys.exit(main())
