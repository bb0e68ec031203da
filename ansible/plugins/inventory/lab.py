"""Hosts of a lab, from its inventory file and the topology of a campaign."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible_collections.backchannel.testbed.plugins.plugin_utils import checkout

from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = """
name: lab
short_description: Hosts of a Backchannel lab
description:
  - Reads a lab's inventory file (docs/physical.md) and the topology of a campaign, and assigns a node with addresses,
    routes and links to each host.
  - The groups are endpoints, routers, base_stations, link_boxes, queues, workers and results_sites, and set_NAME for
    each of several sets of hosts. The groups ppp_hosts, slip_hosts and wifi_hosts have the hosts with variables of
    these roles.
options:
  plugin:
    description: Name of this plugin.
    type: str
    required: true
    choices: [backchannel, backchannel.testbed.lab]
  campaign:
    description: Campaign file with the topology, relative to the inventory file.
    type: path
    env:
      - name: BACKCHANNEL_CAMPAIGN
author: Backchannel (@backchannel)
"""

EXAMPLES = """
plugin: backchannel
campaign: six.yaml
connection: ssh
ssh: {key: lab_key, known_hosts: lab_known_hosts}
hosts:
  pc1: {address: 192.0.2.1, interfaces: {line: eth1}}
  pc2: {address: 192.0.2.2, interfaces: {line: eth1}}
links:
  line: {real: wire}
"""

#: Kinds of the role `interfaces` by group, in the order of their installation.
KINDS = {
    "queues": "queue_policy",
    "endpoints": "endpoint",
    "routers": "router",
    "base_stations": "base_station",
}


class InventoryModule(BaseInventoryPlugin):
    """Reads YAML files with C(plugin: backchannel)."""

    NAME = "backchannel.testbed.lab"

    def verify_file(self, path):
        """Whether the file may be a lab's inventory; `parse` validates it."""
        return super().verify_file(path) and path.endswith((".yml", ".yaml")) and "plugin:" in Path(path).read_text()

    def parse(self, inventory, loader, path, cache=True):
        """Adds hosts, groups and variables."""
        super().parse(inventory, loader, path, cache)
        root = checkout.importable()
        try:
            from experiments import inventory as lab
            from experiments.language import campaign, problems
            from testbed import errors, placement, tunnels
            from testbed.lab import processes as lab_processes
        except ImportError as error:
            raise AnsibleParserError(f"run this with the Python of {root}/.venv: {error}") from error
        try:
            lab_inventory = lab.read(Path(path))
            topology = os.environ.get("BACKCHANNEL_CAMPAIGN") or lab_inventory.campaign
            if topology is None:
                raise AnsibleParserError(f"{path}: 'campaign' is missing; it names the campaign file with the topology")
            runs = campaign.load(Path(topology)).runs
            scenario = runs[0].scenario
            with_ipv6 = any(run.scenario.uses_ipv6 for run in runs)
            sets = lab.placements(lab_inventory, scenario.nodes, scenario.links)
        except (problems.CampaignError, errors.TestbedError, errors.Unavailable) as error:
            raise AnsibleParserError(str(error)) from None
        # Hosts without a process of the lab have named namespaces.
        processes, ssh_options = lab_processes(), ssh_words(lab_inventory, tunnels)
        for group in lab.HARDWARE_GROUPS.values():
            inventory.add_group(group)
        for placed in sets.values():
            groups = placement.groups(placed)
            if placed.set:
                groups[f"set_{placed.set.replace('-', '_')}"] = placed.members()
            for group, members in groups.items():
                inventory.add_group(group)
                for name in members:
                    inventory.add_host(name, group=group)
            members = [*placed.members(), *(name for name, host in placed.hosts.items() if host.also)]
            for name in dict.fromkeys(members):
                is_member = name in placed.members()
                topology_vars = placement.host_vars(placed, scenario.links, name, with_ipv6) if is_member else {}
                variables = {
                    **topology_vars,
                    "backchannel_kinds": interface_kinds(name, groups, topology_vars),
                    "backchannel_lines": [interface for _, interface in lab.serial_lines(lab_inventory, [name])],
                    **connection_vars(lab_inventory, placed.hosts[name], processes, ssh_options),
                    **lab.host_variables(lab_inventory, name),
                }
                for variable, group in lab.HARDWARE_GROUPS.items():
                    if variables.get(variable):
                        inventory.add_host(name, group=group)
                for key, value in variables.items():
                    inventory.set_variable(name, key, value)


def interface_kinds(name, groups, topology_vars):
    """Kinds of the role `interfaces` on a host, in the order of their installation; none outside the topology."""
    of_node = [kind for group, kind in KINDS.items() if name in groups[group]]
    return of_node + sorted(topology_vars.get("backchannel_links", {}))


def ssh_words(inventory, tunnels):
    """Options of ssh for known hosts and the host in between, as a shell would read them."""
    options, known_hosts = [], inventory.resolved(inventory.file.ssh.known_hosts)
    if known_hosts is not None:
        options.append(tunnels.known_hosts_option(known_hosts))
    jump = tunnels.jump_command(inventory.ssh_options())
    if jump is not None:
        options.append(f"ProxyCommand={jump}")
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def connection_vars(inventory, host, processes, ssh_options):
    """Variables of the connection to a host."""
    if inventory.file.connection == "namespace":
        where = f"pid:{processes[host.name]}" if host.name in processes else host.name
        # Namespaces share their machine's clock.
        return {
            "ansible_connection": "backchannel.testbed.namespace",
            "ansible_namespace": where,
            "common_clock": "none",
        }
    ssh = inventory.file.ssh
    variables = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": ssh.user,
        "ansible_become": ssh.user != "root",
        "ansible_ssh_timeout": math.ceil(ssh.connect_timeout),
        # Runs log in to the agent's account, which must own what the agent opens.
        **dict.fromkeys(("agent_user", "capture_user", "interfaces_user"), ssh.agent_user),
    }
    if host.name in processes:
        # A rehearsal's hosts share the clock of this machine too.
        variables["common_clock"] = "none"
    if ssh.key is not None:
        variables["ansible_ssh_private_key_file"] = str(inventory.resolved(ssh.key))
        public = Path(f"{inventory.resolved(ssh.key)}.pub")
        if public.is_file():
            variables["agent_keys"] = [public.read_text().strip()]
    if ssh_options:
        variables["ansible_ssh_common_args"] = ssh_options
    return variables
