"""Imports a lent lab: reads its description, matches it with a campaign, and writes an inventory.

The inventory is written once `experiments.inventory` accepts it.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from experiments import inventory
from experiments.foreign_labs import chameleon, cloudlab, enoslib, fabric
from experiments.foreign_labs.asking import with_names
from experiments.foreign_labs.lent import LeasedLab, instant, wrong
from experiments.foreign_labs.matching import matched
from experiments.language import campaign
from experiments.language.problems import CampaignError
from testbed.errors import TestbedError
from testbed.leases import HostLease
from testbed.tunnels import Jump, SshOptions

#: Reader, description of its files, and how many it takes at most, by the name of the system.
SYSTEMS: Mapping[str, tuple[Callable[[Sequence[Path]], LeasedLab], str, int]] = {
    cloudlab.NAME: (cloudlab.read, cloudlab.FILES, 1),
    fabric.NAME: (fabric.read, fabric.FILES, 10),
    chameleon.NAME: (chameleon.read, chameleon.FILES, 10),
    enoslib.NAME: (enoslib.read, enoslib.FILES, 1),
}


@dataclass(frozen=True)
class LabImportRequest:
    """A user's request to import a lab."""

    system: str
    files: tuple[Path, ...]
    campaign: Path
    inventory: Path
    #: Node by host, where names differ.
    plays: Mapping[str, str]
    #: Networks of links that several could carry.
    carried: Mapping[str, Sequence[str]]
    #: Ask hosts for the names of their interfaces.
    ask: bool = False
    user: str | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    proxy_jump: str | None = None
    proxy_key: Path | None = None
    lease_ends: str | None = None


def import_lab(request: LabImportRequest, now_s: float) -> list[str]:
    """Writes the inventory of a lent lab. Returns lines for the user.

    Args:
        request: the files and options.
        now_s: seconds since the epoch.

    Raises:
        CampaignError: a file is wrong, or the inventory would be.
        TestbedError: the hosts do not fit the campaign, or do not answer.
    """
    reader, described, most = SYSTEMS[request.system]
    if len(request.files) > most:
        raise wrong(str(request.files[most]), 0, "", f"is one file too many: {request.system} has {described}")
    lent = reader(request.files)
    scenario = campaign.load(request.campaign).runs[0].scenario
    ssh = _ssh(request, lent)
    if request.ask:
        lent = replace(lent, hosts=tuple(with_names(lent.hosts, _options(request, ssh))))
    ends = lent.ends
    if request.lease_ends is not None:
        try:
            ends = instant(request.lease_ends)
        except ValueError as error:
            raise wrong("--lease-ends", 0, "", str(error)) from None
    if ends is not None and ends.timestamp() <= now_s:
        raise TestbedError(f"{HostLease(ends).state(now_s)}; extend it, and save its description again")
    fields: dict[str, Any] = {
        "plugin": "backchannel",
        "campaign": os.path.relpath(request.campaign, request.inventory.absolute().parent),
        "ssh": ssh,
        **({} if ends is None else {"lease_ends": ends.isoformat()}),
    }
    if any(host.address.startswith("10.") for host in lent.hosts):
        # The hosts themselves have addresses of the usual range.
        fields["addresses"] = "198.18.0.0/15"
    matching = matched(lent, scenario.nodes, scenario.links, request.plays, request.carried)
    write(request.inventory, {**fields, **matching})
    boxes = sum("plays" not in host for host in matching["hosts"].values())
    unused = [host.name for host in lent.hosts if host.name not in matching["hosts"]]
    lines = [f"{request.inventory}: {len(matching['hosts'])} hosts, {boxes} of them link boxes"]
    if unused:
        lines.append(f"not used: {', '.join(unused)}")
    if ends is not None:
        lines.append(HostLease(ends).state(now_s))
    return [*lines, f"next: ./backchannel testbed site --inventory {shlex.quote(str(request.inventory))}"]


def _ssh(request: LabImportRequest, lent: LeasedLab) -> dict[str, Any]:
    """The field `ssh`, with what the description says of logins and keys."""
    if request.proxy_jump is not None:
        try:
            Jump.parse(request.proxy_jump)
        except ValueError as error:
            raise wrong("--proxy-jump", 0, "", str(error)) from None
    fields: dict[str, Any] = {}
    for name, option, described in (
        ("user", request.user, {host.user for host in lent.hosts}),
        ("key", request.key, {host.key for host in lent.hosts}),
    ):
        values = sorted(value for value in described if value)
        if option is None and len(values) > 1:
            raise TestbedError(
                f"hosts have several values of '{name}' ({', '.join(values)}), and an inventory has one: choose it "
                f"with --{name}"
            )
        if option is not None or values:
            fields[name] = str(option) if option is not None else values[0]
    more = {"known_hosts": request.known_hosts, "proxy_jump": request.proxy_jump, "proxy_key": request.proxy_key}
    fields |= {name: str(value) for name, value in more.items() if value is not None}
    # Relative to the inventory, not to the working folder.
    for name in ("key", "known_hosts", "proxy_key"):
        if name in fields and not fields[name].startswith(("/", "~")):
            fields[name] = os.path.relpath(fields[name], request.inventory.absolute().parent)
    return fields


def _options(request: LabImportRequest, ssh: Mapping[str, Any]) -> SshOptions:
    """Connections as the inventory will have them, with the login of Ansible: that of the agent does not exist yet."""
    file = inventory.InventoryFile.model_validate({"plugin": "backchannel", "ssh": ssh})
    return replace(inventory.Inventory(request.inventory, file).ssh_options(), user=file.ssh.user)


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Writes an inventory that is valid for its campaign.

    Raises:
        CampaignError: it is not, or the file exists.
    """
    if path.exists():
        raise wrong(str(path), 0, "", "exists; remove it, or name another file with --inventory")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".yml", dir=path.absolute().parent)
    except OSError as error:
        raise wrong(str(path), 0, "", f"cannot be written: {error.strerror}") from None
    new = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            yaml = YAML()
            yaml.default_flow_style = None
            yaml.width = 120
            yaml.dump(dict(fields), file)
        new.chmod(0o644)
        lab = inventory.read(new)
        assert lab.campaign is not None
        scenario = campaign.load(lab.campaign).runs[0].scenario
        inventory.placements(lab, scenario.nodes, scenario.links)
        new.rename(path)
    except CampaignError as error:
        # Without lines, because the file that has them is removed.
        raise CampaignError(str(path), [replace(problem, line=0) for problem in error.problems]) from None
    finally:
        new.unlink(missing_ok=True)
