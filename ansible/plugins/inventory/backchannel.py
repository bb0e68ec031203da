"""The hosts of a lab, from its inventory file and the topology of a Backchannel campaign."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

from ansible.errors import AnsibleParserError

from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = """
name: backchannel
short_description: Hosts of a Backchannel lab
description:
  - Reads a lab's inventory file (docs/physical.md) and the topology of a campaign, and says which host plays which
    node, with which addresses, routes and links.
  - Hosts come in the groups endpoints, routers, base_stations, link_boxes, queues, workers and results_sites.
options:
  plugin:
    description: Must be C(backchannel).
    required: true
    choices: [backchannel]
  campaign:
    description: The campaign file whose topology is set up, relative to the inventory file.
    type: path
    env:
      - name: BACKCHANNEL_CAMPAIGN
author: Backchannel
"""

ROOT = Path(__file__).resolve().parents[3]


class InventoryModule(BaseInventoryPlugin):
    """Reads any YAML file that says C(plugin: backchannel)."""

    NAME = "backchannel"

    def verify_file(self, path):
        """Whether a file can be one of ours; its content is read later."""
        return super().verify_file(path) and path.endswith((".yml", ".yaml")) and "plugin:" in Path(path).read_text()

    def parse(self, inventory, loader, path, cache=True):
        """Enters hosts, groups and variables."""
        super().parse(inventory, loader, path, cache)
        # At the end: this repository has a folder called ansible, which must not hide the package.
        if str(ROOT) not in sys.path:
            sys.path.append(str(ROOT))
        try:
            from experiments.language import campaign, problems
            from experiments import inventory as lab
            from testbed import errors, placement
        except ImportError as error:
            raise AnsibleParserError(f"run this with the Python of {ROOT}/.venv: {error}") from error
        try:
            found = lab.read(Path(path))
            topology = os.environ.get("BACKCHANNEL_CAMPAIGN") or found.campaign
            if topology is None:
                raise AnsibleParserError(f"{path}: 'campaign' is missing: the file whose topology is to be set up")
            scenario = campaign.load(Path(topology)).runs[0].scenario
            placed = lab.placed(found, scenario["nodes"], scenario["links"])
        except (problems.CampaignError, errors.TestbedError, errors.Unavailable) as error:
            raise AnsibleParserError(str(error)) from None
        for group, members in placement.groups(placed).items():
            inventory.add_group(group)
            for name in members:
                inventory.add_host(name, group=group)
        namespaces = _namespaces()
        members = [*placed.members(), *(name for name, host in placed.hosts.items() if host.also)]
        for name in dict.fromkeys(members):
            told = placement.host_vars(placed, scenario["links"], name) if name in placed.members() else {}
            for key, value in {**told, **_reach(found, placed.hosts[name], namespaces), **found.file.vars}.items():
                inventory.set_variable(name, key, value)


def _namespaces():
    """Host to process, as testbed.lab wrote it down; a host that is not in it has a named namespace."""
    known = os.environ.get("BACKCHANNEL_LAB")
    return json.loads(Path(known).read_text()) if known else {}


def _reach(found, host, namespaces):
    """How a host is reached."""
    if found.file.connection == "namespace":
        where = f"pid:{namespaces[host.name]}" if host.name in namespaces else host.name
        # Namespaces share the clock of their machine.
        return {"ansible_connection": "namespace", "ansible_namespace": where, "common_clock": "none"}
    ssh = found.file.ssh
    told = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": ssh.user,
        "ansible_become": ssh.user != "root",
        "ansible_ssh_timeout": math.ceil(ssh.connect_timeout),
        # Runs log in as this account, and it is the agent's: what the agent reaches must be its own.
        **dict.fromkeys(("agent_user", "capture_user", "queue_policy_user"), ssh.agent_user),
    }
    if ssh.key is not None:
        told["ansible_ssh_private_key_file"] = str(found.own(ssh.key))
        public = Path(f"{found.own(ssh.key)}.pub")
        if public.is_file():
            told["agent_keys"] = [public.read_text().strip()]
    if ssh.known_hosts is not None:
        told["ansible_ssh_common_args"] = f"-o UserKnownHostsFile={found.own(ssh.known_hosts)}"
    return told
