"""Labs: Ansible's playbooks, and rehearsals in namespaces or virtual machines.

python -m experiments.lab namespaces|machines INVENTORY CAMPAIGN -- COMMAND...     first program of a rehearsal's cell
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from agents.client import AgentClient
from agents.errors import AgentError
from experiments import inventory
from experiments.language import campaign
from experiments.language.campaign import Plan
from experiments.language.problems import CampaignError, Problem
from experiments.testbeds import TestbedFactory
from testbed import image, node_binary
from testbed.cell import topology_key
from testbed.cellmain import FOLDER, private_memory_folder
from testbed.collection import ANSIBLE, link_collection
from testbed.errors import TestbedError, Unavailable
from testbed.host_agents import HostAccess
from testbed.host_testbed import HostTestbed
from testbed.installation import Installation
from testbed.lab import Lab, SshFiles, processes
from testbed.local_folders import ScratchFolder
from testbed.machines import Machines
from testbed.placement import Placement
from testbed.scenario import Scenario
from testbed.tunnels import SshOptions, SshTunnel

#: Options of ssh (ansible/ansible.cfg) without connections that are kept or shared.
FRESH_CONNECTIONS = "-o ControlMaster=no -o ControlPath=none -o BatchMode=yes -o ServerAliveInterval=5"
NEEDS_INVENTORY = "the physical backend needs a lab's inventory: --inventory FILE"
#: Playbooks with their effects.
PLAYBOOKS = {
    "site": "sets the hosts up; a second run changes nothing",
    "check": "reports problems of clocks, offloads, kernel, disk and reachability",
    "collect": "copies logs, leftover captures and network state of every host",
    "teardown": "removes what site installed and restores what it found",
}


def topology(inventory_: inventory.Inventory, file: Path | None) -> Path:
    """The campaign file with the topology.

    Raises:
        CampaignError: neither the command line nor the inventory names a campaign.
    """
    chosen = file or inventory_.campaign
    if chosen is None:
        raise CampaignError(
            str(inventory_.path),
            [Problem(0, "campaign", "this field is missing; it names the campaign file with the topology")],
        )
    return chosen.absolute()


def playbook(name: str, path: Path, file: Path | None, arguments: Sequence[str]) -> int:
    """Runs a playbook on a lab. Returns Ansible's exit status.

    Raises:
        CampaignError: the inventory or the campaign is wrong.
        Unavailable: Ansible is missing.
    """
    inventory_ = inventory.read(path)
    scenario = campaign.load(topology(inventory_, file)).runs[0].scenario
    inventory.placed(inventory_, scenario.nodes, scenario.links)
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        raise Unavailable(f"Ansible is not installed beside {sys.executable}; ./backchannel installs it")
    environment = {
        **os.environ,
        "BACKCHANNEL_CAMPAIGN": str(topology(inventory_, file)),
        "BACKCHANNEL_NODE": node_binary.path(),
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(link_collection()),
        "PATH": f"{program.parent}:{os.environ.get('PATH', '')}",
    }
    if name == "check":
        # A connection that an earlier playbook left would hide that nobody can log in any more.
        environment["ANSIBLE_SSH_ARGS"] = FRESH_CONNECTIONS
    words = [str(program), "--inventory", str(path.absolute()), str(ANSIBLE / "playbooks" / f"{name}.yml"), *arguments]
    status = subprocess.run(words, env=environment, cwd=ANSIBLE, check=False).returncode
    if name != "check" or status != 0:
        return status
    problems = refused_logins(path, scenario)
    for problem in problems:
        print(f"backchannel: {problem}", file=sys.stderr)
    return 1 if problems else 0


def refused_logins(path: Path, scenario: Scenario) -> list[str]:
    """Hosts whose agent the controller cannot reach with the agent's login, as a campaign would, with the remedy."""
    place, access = _access(path)
    if access.ssh is None:
        return []
    placement, problems = place(scenario), []
    with ScratchFolder() as folder:
        hosts = [placement.hosts[name] for name in dict.fromkeys(placement.members())]
        tunnels = [SshTunnel(host.name, host.address, host.port, access.ssh, folder) for host in hosts]
        for tunnel in tunnels:
            try:
                tunnel.wait()
                AgentClient(tunnel.name, tunnel.socket).health()
            except (TestbedError, AgentError) as error:
                problems.append(f"the login of the agent, {access.ssh.user}: {error}")
            finally:
                tunnel.close()
    return problems


def rehearse(path: Path, file: Path | None, command: Sequence[str], machines: bool = False) -> int:
    """Runs a command in a cell with the lab as namespaces or virtual machines. Returns its exit status.

    Raises:
        CampaignError: the inventory or the campaign is wrong.
        Unavailable, TestbedError: virtual machines cannot run here.
    """
    inventory_ = inventory.read(path)
    if machines:
        if inventory_.file.connection != "ssh":
            raise CampaignError(str(path), [Problem(0, "connection", "virtual machines need 'ssh', not 'namespace'")])
        scenario = campaign.load(topology(inventory_, file)).runs[0].scenario
        inventory.placed(inventory_, scenario.nodes, scenario.links)
        # The cell has no network to download packages.
        image.image(lambda text: print(f"backchannel: {text}", file=sys.stderr))
    words = [
        node_binary.path(), "cell", "--parent", str(os.getpid()), "--",
        sys.executable, "-m", "experiments.lab", "machines" if machines else "namespaces",
        str(path.absolute()), str(topology(inventory_, file)), "--", *command,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(node_binary.ROOT), "BACKCHANNEL_NODE": node_binary.path()}
    return subprocess.run(words, env=environment, check=False).returncode


def build(path: Path, file: Path, folder: Path, machines: bool = False) -> Lab | Machines:
    """Builds the lab of an inventory, inside a cell.

    Raises:
        CampaignError, TestbedError: it cannot be.
    """
    inventory_ = inventory.read(path)
    scenario = campaign.load(file).runs[0].scenario
    placement = inventory.placed(inventory_, scenario.nodes, scenario.links)
    ssh = None
    if inventory_.file.connection == "ssh":
        key, known_hosts = (
            inventory_.resolved(inventory_.file.ssh.key),
            inventory_.resolved(inventory_.file.ssh.known_hosts),
        )
        if key is None or known_hosts is None:
            raise TestbedError(
                f"{path}: a rehearsal creates its keys and needs 'ssh.key' and 'ssh.known_hosts' for them"
            )
        ssh = SshFiles(key, known_hosts)
        if machines:
            return Machines(placement, folder, ssh, image.image(lambda text: None))
        if shutil.which("sshd") is None and not Path("/usr/sbin/sshd").exists():
            raise Unavailable("a rehearsal with SSH needs sshd: apt-get install openssh-server")
    return Lab(placement, folder, ssh)


def in_lab(path: Path | None, plan: Plan) -> Plan:
    """A campaign on the hosts of a lab, with that lab's ids of runs.

    Connects once to the hosts of every topology: each is reachable, has an agent, is held by nobody and has the right
    time. Then releases them.

    Raises:
        CampaignError: there is no inventory, or a topology does not fit it.
        TestbedError: the first host of which that is not true, with the remedy; nothing was changed.
    """
    place, access = _access(path)
    by_topology = {topology_key(scenario): scenario for _, scenario in plan.first_scenarios()}
    for scenario in by_topology.values():
        place(scenario)
    found: dict[str, Installation] = {}
    testbed = HostTestbed(place, access, f"campaign {plan.name}")
    try:
        for key, scenario in by_topology.items():
            testbed.build(scenario)
            found[key] = testbed.installation()
    finally:
        testbed.close()
    return plan.in_lab(lambda scenario: found[topology_key(scenario)])


def cells(path: Path | None, name: str) -> TestbedFactory:
    """What makes the physical backend's cells: connections to the lab's hosts, held in the campaign's name."""
    place, access = _access(path)
    return lambda _, on_progress: HostTestbed(place, access, f"campaign {name}", on_progress)


def _access(path: Path | None) -> tuple[Callable[[Scenario], Placement], HostAccess]:
    """How scenarios are placed in a lab, and how its hosts are reached."""
    inventory_ = _given(path)
    options = inventory_.file.ssh
    ssh = SshOptions(
        options.agent_user, inventory_.resolved(options.key), inventory_.resolved(options.known_hosts),
        options.connect_timeout, options.silence,
    )  # fmt: skip
    access = HostAccess(ssh=ssh) if inventory_.file.connection == "ssh" else HostAccess(namespaces=processes())

    def place(scenario: Scenario) -> Placement:
        return inventory.placed(inventory_, scenario.nodes, scenario.links)

    return place, access


def _given(path: Path | None) -> inventory.Inventory:
    if path is None:
        raise CampaignError("--inventory", [Problem(0, "", NEEDS_INVENTORY)])
    return inventory.read(path)


def main() -> int:
    """Builds the lab and runs the command."""
    kind, path, file, _, *command = sys.argv[1:]
    try:
        private_memory_folder()
        lab = build(Path(path), Path(file), FOLDER / "lab", kind == "machines")
    except (CampaignError, TestbedError, Unavailable) as error:
        print(f"backchannel: {error}", file=sys.stderr)
        return 2 if isinstance(error, CampaignError) else 1
    try:
        # Ansible names its kept connections by address, and labs share addresses.
        environment = {**lab.environment(), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(FOLDER / "ssh")}
        return subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        print(f"backchannel: cannot run '{command[0]}': {error.strerror}", file=sys.stderr)
        return 127
    finally:
        lab.close()


if __name__ == "__main__":
    sys.exit(main())
