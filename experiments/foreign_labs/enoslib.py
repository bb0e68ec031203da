"""EnOSlib: roles with their hosts, each as `Host.to_dict` gives it, as YAML or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from experiments.foreign_labs.files import rows_of
from experiments.foreign_labs.lent import LeasedLab, LentHost, Nic, Rows, host_name, lent_lab

NAME = "enoslib"
FILES = "the roles (YAML or JSON)"


def read(paths: Sequence[Path]) -> LeasedLab:
    """Reads roles. A role with one host gives it the name; a host is called by its alias otherwise.

    Networks are those of the addresses of a host's devices, which `enoslib.sync_info` finds.

    Raises:
        CampaignError: a host has no address, or an address is none.
    """
    (path,) = paths
    values, rows = rows_of(path)
    found: dict[str, LentHost] = {}
    for role, entries in values.items():
        members = rows.sequence(entries, (role,))
        for number, entry in enumerate(members):
            at = (role, number)
            row = rows.mapping(entry, at)
            address = rows.need(row, at, "address")
            name = role if len(members) == 1 else rows.text(row, at, "alias") or address
            if address in found and len(members) > 1:
                continue  # of a role before
            port = rows.text(row, at, "port") or "22"
            if not port.isdecimal():
                raise rows.error((*at, "port"), f"'{port}' is not a port")
            found[address] = LentHost(
                host_name(name),
                address,
                _nics(rows, row, at, address),
                rows.text(row, at, "user"),
                rows.text(row, at, "keyfile"),
                int(port),
            )
    return lent_lab(str(path), list(found.values()))


def _nics(rows: Rows, row: dict[str, Any], at: tuple[str | int, ...], management: str) -> tuple[Nic, ...]:
    nics = []
    for number, device in enumerate(rows.sequence(row.get("net_devices") or [], (*at, "net_devices"))):
        place = (*at, "net_devices", number)
        fields = rows.mapping(device, place)
        name = rows.need(fields, place, "name")
        for position, entry in enumerate(rows.sequence(fields.get("addresses") or [], (*place, "addresses"))):
            where = (*place, "addresses", position)
            text = rows.need(rows.mapping(entry, where), where, "ip", "address")
            try:
                interface = ip_interface(text)
            except ValueError:
                raise rows.error(where, f"'{text}' is not an address with its prefix, such as 10.1.0.1/24") from None
            if interface.version == 4 and not interface.is_loopback and str(interface.ip) != management:
                nics.append(Nic(str(interface.network), name, None, str(interface.ip)))
    return tuple(nics)
