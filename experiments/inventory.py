"""The inventory file of a lab (docs/physical.md): reads it and assigns a campaign's topology to its hosts.

Ansible reads the same file through ansible/plugins/inventory/lab.py, which calls `read` and `placed` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from ruamel.yaml import YAML

from experiments.language import registry, source
from experiments.language.fields import dotted
from experiments.language.messages import message
from experiments.language.problems import CampaignError, Problem
from experiments.language.quantities import Model, Seconds
from testbed import node_binary
from testbed.errors import TestbedError
from testbed.placement import Host, LinkPlacement, Placement, place
from testbed.scenario import LinkSpec, Node
from testbed.tunnels import CONNECT_S, SILENCE_S

HostName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
InterfaceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]+$", max_length=15)]


class Ssh(Model):
    """SSH connections."""

    user: str = Field("root", description="login of Ansible: root, or an account with password-free sudo")
    agent_user: str = Field("backchannel", description="account of the agent and login of the controller")
    key: Path | None = Field(None, description="private key; default: that of ssh")
    known_hosts: Path | None = Field(None, description="host keys; default: those of the user and the system")
    connect_timeout: Seconds = Field(CONNECT_S, gt=0, description="maximum time until the first reply of a host")
    # Less than the lease, after which a host stops its run.
    silence: Seconds = Field(SILENCE_S, ge=2, le=20, description="time without a reply until a host counts as lost")


class HostEntry(Model):
    """One host."""

    plays: str | None = None
    address: str = ""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    interfaces: dict[str, InterfaceName] = {}
    also: list[Literal["worker", "results-site"]] = []


class LinkEntry(Model):
    """The place of one link: a link box, or a real link."""

    box: str | None = None
    interfaces: list[InterfaceName] = []
    real: Literal["wire", "modem", "radio"] | None = None
    queue_at: str | None = None


class InventoryFile(Model):
    """The inventory file."""

    plugin: Literal["backchannel", "backchannel.testbed.lab"]
    campaign: Path | None = Field(None, description="campaign file with the topology, relative to this file")
    connection: Literal["ssh", "namespace"] = "ssh"
    addresses: str = "10.0.0.0/8"
    ssh: Ssh = Ssh()  # type: ignore[call-arg]
    hosts: dict[HostName, HostEntry] = Field(min_length=1)
    links: dict[str, LinkEntry] = {}
    vars: dict[str, Any] = Field({}, description="variables for Ansible's roles")


#: Types of argument specifications: description, and Python types.
TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "str": ("a text", (str, int, float)),
    "path": ("a path", (str,)),
    "int": ("a whole number", (int,)),
    "bool": ("true or false", (bool,)),
    "list": ("a list, such as [a, b]", (list,)),
    "dict": ("a mapping, such as {a: b}", (dict,)),
}


@dataclass(frozen=True)
class Inventory:
    """A lab's file with its path."""

    path: Path
    file: InventoryFile

    @property
    def campaign(self) -> Path | None:
        """The campaign file, or None."""
        return None if self.file.campaign is None else self.path.parent / self.file.campaign

    def resolved(self, path: Path | None) -> Path | None:
        """Resolves a path that is relative to the file."""
        return None if path is None else (self.path.parent / path.expanduser()).absolute()


def read(path: Path) -> Inventory:
    """Reads an inventory file.

    Raises:
        CampaignError: with every error and its line.
    """
    document = source.read(path)
    try:
        file = InventoryFile.model_validate(document.values)
    except ValidationError as error:
        problems = []
        for details in error.errors(include_url=False):
            place = tuple(part for part in details["loc"] if part != "[key]")
            problems.append(document.problem(place, dotted(place), message(dict(details), InventoryFile, place, ())))
        raise CampaignError(document.name, problems) from None
    reasons = {name: wrong_variable(name, value) for name, value in file.vars.items()}
    problems = [document.problem(("vars", name), f"vars.{name}", why) for name, why in reasons.items() if why]
    if problems:
        raise CampaignError(document.name, problems)
    return Inventory(path, file)


@cache
def role_options() -> dict[str, dict[str, dict[str, Any]]]:
    """Options of each role, from its argument specification."""
    options = {}
    for path in sorted((node_binary.ROOT / "ansible" / "roles").glob("*/meta/argument_specs.yml")):
        options[path.parts[-3]] = YAML(typ="safe").load(path.read_text())["argument_specs"]["main"]["options"]
    return options


def wrong_variable(name: str, value: object) -> str | None:
    """Why a role's variable is invalid. None for valid ones and for variables of other roles."""
    role = next((role for role in role_options() if name.startswith(f"{role}_")), None)
    if role is None:
        return None
    options = role_options()[role]
    if name not in options:
        return registry.unknown(f"variable of role {role}", name, options)
    if isinstance(value, str) and "{{" in value:
        return None  # Ansible evaluates it
    spec = options[name]
    words, types = TYPES[spec["type"]]
    if not _is(value, types):
        return f"'{value}' is not {words}: {spec['description']}"
    each, elements = TYPES[spec.get("elements", "str")]
    wrong = [item for item in value if not _is(item, elements)] if isinstance(value, list) else []
    if wrong:
        return f"'{wrong[0]}' in it is not {each}: {spec['description']}"
    if "choices" in spec and value not in spec["choices"]:
        return f"'{value}' is not one of {', '.join(spec['choices'])}"
    return None


def _is(value: object, types: tuple[type, ...]) -> bool:
    # In Python True is an int.
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def placed(
    inventory: Inventory,
    nodes: Sequence[Node | Mapping[str, Any]],
    links: Sequence[LinkSpec | Mapping[str, Any]],
) -> Placement:
    """Assigns a topology to the lab's hosts.

    Raises:
        CampaignError: they do not fit.
    """
    file = inventory.file
    boxes = {entry.box for entry in file.links.values()}
    names = [Node.model_validate(node).name for node in nodes]
    hosts = [
        Host(
            name=name, address=entry.address or name, port=entry.port, interfaces=entry.interfaces,
            # A host with the name of a node plays it, unless it is a link box.
            plays=entry.plays or (name if name in names and name not in boxes else None), also=tuple(entry.also),
        )
        for name, entry in file.hosts.items()
    ]  # fmt: skip
    places = [
        LinkPlacement(link, entry.box, tuple(entry.interfaces), entry.real, entry.queue_at)
        for link, entry in file.links.items()
    ]
    try:
        return place(hosts, places, nodes, links, file.addresses)
    except TestbedError as error:
        raise CampaignError(str(inventory.path), [Problem(0, "", str(error))]) from None
