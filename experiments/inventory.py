"""The inventory file of a lab (docs/physical.md): read, checked, and held against a campaign's topology.

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
from experiments.language.problems import CampaignError, Problem
from experiments.language.schema import Model, Seconds
from testbed import node_binary
from testbed.errors import TestbedError
from testbed.placement import Host, LinkPlacement, Placement, place
from testbed.scenario import LinkSpec, Node
from testbed.tunnels import CONNECT_S, SILENCE_S

HostName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
InterfaceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]+$", max_length=15)]


class Ssh(Model):
    """How hosts are reached."""

    user: str = Field("root", description="whom Ansible logs in as; needs root, or sudo without a password")
    agent_user: str = Field("backchannel", description="whom the controller logs in as, to reach the agent")
    key: Path | None = Field(None, description="private key; without it, what ssh itself finds")
    known_hosts: Path | None = Field(None, description="host keys; without it, those of the user and the system")
    connect_timeout: Seconds = Field(CONNECT_S, gt=0, description="what a host may take to answer at first")
    # Less than the lease, which a host ends by itself.
    silence: Seconds = Field(SILENCE_S, ge=2, le=20, description="a host that says nothing for so long is lost")


class HostEntry(Model):
    """One host."""

    plays: str | None = None
    address: str = ""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    interfaces: dict[str, InterfaceName] = {}
    also: list[Literal["worker", "results-site"]] = []


class LinkEntry(Model):
    """Where one link is."""

    box: str | None = None
    interfaces: list[InterfaceName] = []
    real: Literal["wire", "modem", "radio"] | None = None
    queue_at: str | None = None


class InventoryFile(Model):
    """A whole file."""

    plugin: Literal["backchannel", "backchannel.testbed.lab"]
    campaign: Path | None = Field(None, description="whose topology Ansible sets up; relative to this file")
    connection: Literal["ssh", "namespace"] = "ssh"
    addresses: str = "10.0.0.0/8"
    ssh: Ssh = Ssh()  # type: ignore[call-arg]
    hosts: dict[HostName, HostEntry] = Field(min_length=1)
    links: dict[str, LinkEntry] = {}
    vars: dict[str, Any] = Field({}, description="variables for Ansible's roles")


#: Types of argument specs: in words, and what YAML makes of them.
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
    """A lab as its file says."""

    path: Path
    file: InventoryFile

    @property
    def campaign(self) -> Path | None:
        """The campaign that the file names."""
        return None if self.file.campaign is None else self.path.parent / self.file.campaign

    def own(self, path: Path | None) -> Path | None:
        """A path of the file, which is relative to it."""
        return None if path is None else (self.path.parent / path.expanduser()).absolute()


def read(path: Path) -> Inventory:
    """Reads an inventory file.

    Raises:
        CampaignError: with every mistake and its line.
    """
    found = source.read(path)
    try:
        file = InventoryFile.model_validate(found.values)
    except ValidationError as error:
        problems = [_problem(found, dict(one)) for one in error.errors(include_url=False)]
        raise CampaignError(found.name, problems) from None
    told = {name: wrong_variable(name, value) for name, value in file.vars.items()}
    problems = [found.problem(("vars", name), f"vars.{name}", why) for name, why in told.items() if why]
    if problems:
        raise CampaignError(found.name, problems)
    return Inventory(path, file)


@cache
def role_options() -> dict[str, dict[str, dict[str, Any]]]:
    """What each of our roles can be told, by its argument spec."""
    found = {}
    for path in sorted((node_binary.ROOT / "ansible" / "roles").glob("*/meta/argument_specs.yml")):
        found[path.parts[-3]] = YAML(typ="safe").load(path.read_text())["argument_specs"]["main"]["options"]
    return found


def wrong_variable(name: str, value: object) -> str | None:
    """What is wrong with a variable of one of our roles; None for a good one, and for those of others."""
    role = next((one for one in role_options() if name.startswith(f"{one}_")), None)
    if role is None:
        return None
    options = role_options()[role]
    if name not in options:
        return registry.unknown(f"variable of role {role}", name, options)
    if isinstance(value, str) and "{{" in value:
        return None  # Ansible's to work out
    spec = options[name]
    words, types = TYPES[spec["type"]]
    if not _is(value, types):
        return f"'{value}' is not {words}: {spec['description']}"
    each, elements = TYPES[spec.get("elements", "str")]
    wrong = [one for one in value if not _is(one, elements)] if isinstance(value, list) else []
    if wrong:
        return f"'{wrong[0]}' in it is not {each}: {spec['description']}"
    if "choices" in spec and value not in spec["choices"]:
        return f"'{value}' is not possible; there are: {', '.join(spec['choices'])}"
    return None


def _is(value: object, types: tuple[type, ...]) -> bool:
    # In Python true is a number, too.
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def placed(
    inventory: Inventory,
    nodes: Sequence[Node | Mapping[str, Any]],
    links: Sequence[LinkSpec | Mapping[str, Any]],
) -> Placement:
    """The lab held against a topology.

    Raises:
        CampaignError: they do not fit.
    """
    file = inventory.file
    boxes = {entry.box for entry in file.links.values()}
    names = [Node.model_validate(node).name for node in nodes]
    hosts = [
        Host(
            name=name, address=entry.address or name, port=entry.port, interfaces=entry.interfaces,
            # A host that is called as a node is, and is no box, plays it.
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


def _problem(found: source.Source, error: Mapping[str, Any]) -> Problem:
    path = tuple(part for part in error["loc"] if part != "[key]")
    field = ".".join(map(str, path))
    match error["type"]:
        case "extra_forbidden":
            message = registry.unknown("field", str(path[-1]), _fields(path))
        case "missing":
            message = "this field is missing"
        case "literal_error":
            message = f"'{error['input']}' is not one of {error['ctx']['expected']}"
        case "string_pattern_mismatch":
            message = f"'{error['input']}' is not a name that can stand here"
        case _:
            message = f"{error['msg'][0].lower()}{error['msg'][1:]} (it is '{error['input']}')"
    return found.problem(path, field, message)


def _fields(path: Sequence[str | int]) -> list[str]:
    models: dict[str, type[Model]] = {"ssh": Ssh, "hosts": HostEntry, "links": LinkEntry}
    model = models.get(str(path[0]), InventoryFile) if len(path) > 1 else InventoryFile
    return list(model.model_fields)
