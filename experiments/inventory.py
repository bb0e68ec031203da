"""The inventory file of a lab (docs/physical.md): reads it and assigns a campaign's topology to its hosts.

Ansible reads the same file through ansible/plugins/inventory/lab.py, which calls `read` and `placements` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from ruamel.yaml import YAML

from experiments.language import registry, source
from experiments.language.messages import rejected
from experiments.language.problems import CampaignError, Problem
from experiments.language.quantities import Model, Seconds
from experiments.language.yaml_text import FieldPath
from testbed.collection import ANSIBLE
from testbed.errors import TestbedError
from testbed.placement import Host, LinkPlacement, Placement, place
from testbed.scenario import LinkSpec, Node
from testbed.serial_cables import SerialEnd
from testbed.tunnels import CONNECT_S, SILENCE_S, Jump, SshOptions

HostName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
InterfaceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]+$", max_length=15)]
#: Fields that set what Ansible's variables of the same meaning would set for Ansible alone.
CONNECTION_FIELDS = {
    "ansible_connection": "connection",
    "ansible_host": "hosts.NAME.address",
    "ansible_port": "hosts.NAME.port",
    "ansible_user": "ssh.user",
    "ansible_ssh_user": "ssh.user",
    "ansible_ssh_private_key_file": "ssh.key",
    "ansible_private_key_file": "ssh.key",
    "ansible_ssh_common_args": "ssh.proxy_jump and ssh.known_hosts",
}


def _instant(value: object) -> datetime:
    """An instant with its offset from UTC.

    Raises:
        ValueError: it is none.
    """
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ValueError(f"'{value}' is not a time with its offset from UTC; write it as '2026-03-01T18:00:00+00:00'")
    return instant


def _jump(value: object) -> str:
    Jump.parse(str(value))
    return str(value)


class Ssh(Model):
    """SSH connections."""

    user: str = Field("root", description="login of Ansible: root, or an account with password-free sudo")
    agent_user: str = Field("backchannel", description="account of the agent and login of the controller")
    key: Path | None = Field(None, description="private key; default: that of ssh")
    known_hosts: Path | None = Field(None, description="host keys; default: those of the user and the system")
    proxy_jump: Annotated[str, BeforeValidator(_jump)] | None = Field(
        None, description="[USER@]HOST[:PORT] of the host through which all others are reached; default: none"
    )
    proxy_key: Path | None = Field(None, description="private key for proxy_jump; default: key")
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
    vars: dict[str, Any] = Field({}, description="variables for Ansible's roles on this host")
    machine: HostName | None = Field(None, description="virtual machine that hosts of a lab of virtual machines share")


class LinkEntry(Model):
    """The place of one link: a link box, or a real link."""

    box: str | None = None
    interfaces: list[InterfaceName] = []
    real: Literal["wire", "modem", "radio"] | None = None
    queue_at: str | None = None


class SetEntry(Model):
    """A set of hosts that plays the whole topology."""

    hosts: dict[HostName, HostEntry] = Field(min_length=1)
    links: dict[str, LinkEntry] = {}


class InventoryFile(Model):
    """The inventory file."""

    plugin: Literal["backchannel", "backchannel.testbed.lab"]
    campaign: Path | None = Field(None, description="campaign file with the topology, relative to this file")
    connection: Literal["ssh", "namespace"] = "ssh"
    addresses: str = "10.0.0.0/8"
    ssh: Ssh = Ssh()  # type: ignore[call-arg]
    hosts: dict[HostName, HostEntry] = {}
    links: dict[str, LinkEntry] = {}
    sets: dict[HostName, SetEntry] = Field({}, description="disjoint sets of hosts, each of which plays the topology")
    machine_kernel: Literal["linux-image-cloud-amd64", "linux-image-amd64"] = Field(
        "linux-image-cloud-amd64", description="Debian's package of the kernel in a lab of virtual machines"
    )
    lease_ends: Annotated[datetime, BeforeValidator(_instant)] | None = Field(
        None, description="when the hosts are taken away; no run begins that would not end before"
    )
    vars: dict[str, Any] = Field({}, description="variables for Ansible's roles")


#: Variables with the serial lines of a host, and with its radios.
LINE_VARIABLES, RADIO_VARIABLE = ("ppp_lines", "slip_lines"), "wifi_interfaces"
#: Variables of roles that create or prepare interfaces, and the group of the hosts that have them.
HARDWARE_GROUPS = {name: f"{name.partition('_')[0]}_hosts" for name in (*LINE_VARIABLES, RADIO_VARIABLE)}
#: Roles that became kinds of the role `interfaces`.
FORMER_ROLES = ("endpoint", "router", "base_station", "emulated_modem", "emulated_radio", "queue_policy")
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

    def error(self, why: str, field: str = "") -> CampaignError:
        """An error of the file that no line of it shows."""
        return CampaignError(str(self.path), [Problem(0, field, why)])

    def ssh_options(self) -> SshOptions:
        """How the controller reaches the hosts."""
        ssh = self.file.ssh
        return SshOptions(
            ssh.agent_user,
            self.resolved(ssh.key),
            self.resolved(ssh.known_hosts),
            ssh.connect_timeout,
            ssh.silence,
            None if ssh.proxy_jump is None else Jump.parse(ssh.proxy_jump),
            self.resolved(ssh.proxy_key),
        )


def read(path: Path) -> Inventory:
    """Reads an inventory file.

    Raises:
        CampaignError: with every error and its line.
    """
    document = source.read(path)
    try:
        file = InventoryFile.model_validate(document.values)
    except ValidationError as error:
        problems = [document.problem(*rejection) for rejection in rejected(error, InventoryFile)]
        raise CampaignError(document.name, problems) from None
    problems = [document.problem(*mistake) for mistake in _mistakes(file)]
    if problems:
        raise CampaignError(document.name, problems)
    return Inventory(path, file)


def _mistakes(file: InventoryFile) -> Iterator[tuple[FieldPath, str]]:
    """Fields that are wrong beside others, each with the reason."""
    if not file.hosts and not file.sets:
        yield ("hosts",), "this field is missing; add it with the lab's hosts, or 'sets' with several sets of hosts"
    for name, entry in file.hosts.items():
        if file.sets and (entry.plays or entry.interfaces or not entry.also):
            yield ("hosts", name), "with 'sets', a host outside of them has 'also' and plays nothing; move it to a set"
    groups: list[tuple[FieldPath, Mapping[str, HostEntry]]] = [(("hosts",), file.hosts)]
    groups += [(("sets", name, "hosts"), entry.hosts) for name, entry in file.sets.items()]
    variables: list[tuple[FieldPath, Mapping[str, Any]]] = [(("vars",), file.vars)]
    variables += [((*path, name, "vars"), entry.vars) for path, hosts in groups for name, entry in hosts.items()]
    for path, values in variables:
        for name, value in values.items():
            if why := wrong_variable(name, value):
                yield (*path, name), why


@cache
def role_options() -> dict[str, dict[str, dict[str, Any]]]:
    """Options of each role, from its argument specification."""
    options = {}
    for path in sorted((ANSIBLE / "roles").glob("*/meta/argument_specs.yml")):
        options[path.parts[-3]] = YAML(typ="safe").load(path.read_text())["argument_specs"]["main"]["options"]
    return options


def wrong_variable(name: str, value: object) -> str | None:
    """Why a role's variable is invalid. None for valid ones and for variables of other roles."""
    if name in CONNECTION_FIELDS:
        return f"a campaign's own connections would not follow it; set '{CONNECTION_FIELDS[name]}' instead"
    if former := next((role for role in FORMER_ROLES if name.startswith(f"{role}_")), None):
        current = "interfaces_" + name.removeprefix(f"{former}_")
        current = current if current in role_options()["interfaces"] else "interfaces_addresses"
        return f"the role {former} is a kind of the role interfaces now; write '{current}'"
    role = next((role for role in role_options() if name.startswith(f"{role}_")), None)
    if role is None:
        return None
    options = role_options()[role]
    if name not in options:
        return registry.unknown(f"variable of role {role}", name, options)
    return _wrong_value(value, options[name])


def _wrong_value(value: object, spec: Mapping[str, Any]) -> str | None:
    """Why a value does not fit its argument specification."""
    if isinstance(value, str) and "{{" in value:
        return None  # Ansible evaluates it
    words, types = TYPES[spec["type"]]
    if not _is(value, types):
        return f"'{value}' is not {words}: {spec['description']}"
    each, elements = TYPES[spec.get("elements", "str")]
    wrong = [item for item in value if not _is(item, elements)] if isinstance(value, list) else []
    if wrong:
        return f"'{wrong[0]}' in it is not {each}: {spec['description']}"
    if "choices" in spec and value not in spec["choices"]:
        return f"'{value}' is not one of {', '.join(map(str, spec['choices']))}"
    entries: list[Any] = value if isinstance(value, list) else [value]
    fields = spec.get("options", {})
    return next((why for entry in entries if fields for why in _wrong_fields(entry, fields)), None)


def _wrong_fields(entry: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Mistakes in a mapping whose fields have specifications."""
    for name in entry:
        if name not in fields:
            yield registry.unknown("field", name, fields)
        elif why := _wrong_value(entry[name], fields[name]):
            yield f"field '{name}': {why}"
    for name, spec in fields.items():
        if spec.get("required") and name not in entry:
            yield f"field '{name}' is missing: {spec['description']}"


def _is(value: object, types: tuple[type, ...]) -> bool:
    # In Python True is an int.
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def placements(inventory: Inventory, nodes: Sequence[Node], links: Sequence[LinkSpec]) -> dict[str, Placement]:
    """Assigns a topology to each of the lab's sets of hosts, by the name of the set; "" in a lab without sets.

    Raises:
        CampaignError: they do not fit, or two sets share a host.
    """
    file = inventory.file
    if not file.sets:
        return {"": _placed(inventory, "", file.hosts, file.links, nodes, links)}
    found = {
        name: _placed(inventory, name, {**file.hosts, **entry.hosts}, {**file.links, **entry.links}, nodes, links)
        for name, entry in file.sets.items()
    }
    names: dict[str, str] = {}
    addresses: dict[tuple[str, int], tuple[str, str]] = {}
    for name, placement in found.items():
        outside = [member for member in placement.members() if member in file.hosts]
        if outside:
            raise inventory.error(f"set {name} uses host {outside[0]}, which is in no set; move it into this set")
        for host in placement.hosts.values():
            if host.name in file.hosts:
                continue
            if host.name in names:
                raise inventory.error(f"sets {names[host.name]} and {name} both have host {host.name}; one must not")
            names[host.name] = name
            where = (host.address, host.port)
            if where in addresses:
                other, of = addresses[where]
                raise inventory.error(
                    f"hosts {other} of set {of} and {host.name} of set {name} have the address "
                    f"'{host.address}'; each machine is one host",
                )
            addresses[where] = host.name, name
    return found


def _placed(
    inventory: Inventory,
    set_name: str,
    entries: Mapping[str, HostEntry],
    link_entries: Mapping[str, LinkEntry],
    nodes: Sequence[Node],
    links: Sequence[LinkSpec],
) -> Placement:
    boxes = {entry.box for entry in link_entries.values()}
    names = [node.name for node in nodes]
    hosts = [
        Host(
            name=name,
            address=entry.address or name,
            port=entry.port,
            interfaces=entry.interfaces,
            # A host with the name of a node plays it, unless it is a link box.
            plays=entry.plays or (name if name in names and name not in boxes else None),
            also=tuple(entry.also),
            machine=entry.machine or "",
        )
        for name, entry in entries.items()
    ]
    places = [
        LinkPlacement(link, entry.box, tuple(entry.interfaces), entry.real, entry.queue_at)
        for link, entry in link_entries.items()
    ]
    try:
        return place(hosts, places, nodes, links, inventory.file.addresses, set_name)
    except TestbedError as error:
        raise inventory.error(f"set {set_name}: {error}" if set_name else str(error)) from None


def host_entry(inventory: Inventory, name: str) -> HostEntry:
    """A host's entry, of the lab or of one of its sets."""
    file = inventory.file
    return next(
        hosts[name] for hosts in (file.hosts, *(host_set.hosts for host_set in file.sets.values())) if name in hosts
    )


def host_variables(inventory: Inventory, name: str) -> dict[str, Any]:
    """Variables of Ansible's roles that the file sets for a host."""
    return {**inventory.file.vars, **host_entry(inventory, name).vars}


def serial_lines(inventory: Inventory, hosts: Sequence[str]) -> dict[tuple[str, str], SerialEnd]:
    """Serial devices behind interfaces that the roles `ppp` and `slip` create, by host and interface."""
    return {
        (host, line["interface"]): SerialEnd(line["device"], int(line.get("speed", _default_speed(variable))))
        for host in hosts
        for variable in LINE_VARIABLES
        for line in host_variables(inventory, host).get(variable, [])
    }


def radios(inventory: Inventory, hosts: Sequence[str]) -> set[tuple[str, str]]:
    """Interfaces that the role `wifi` sets up, as (host, interface)."""
    return {
        (host, radio["interface"])
        for host in hosts
        for radio in host_variables(inventory, host).get(RADIO_VARIABLE, [])
    }


def _default_speed(variable: str) -> int:
    """Speed in bit/s of lines that name none."""
    options = role_options()[variable.partition("_")[0]]
    return int(options[variable]["options"]["speed"]["default"])
