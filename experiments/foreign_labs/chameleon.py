"""Chameleon and other OpenStack clouds: `openstack server list -f json`, and Blazar's `openstack reservation lease show
-f json` for the lease's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from experiments.foreign_labs.files import rows_of
from experiments.foreign_labs.lent import ROWS, LeasedLab, LentHost, Nic, Rows, host_name, instant, lent_lab

NAME = "chameleon"
FILES = "the JSON of `openstack server list`, and of `openstack reservation lease show` for the lease"
#: Login of Chameleon's images.
USER = "cc"


def read(paths: Sequence[Path]) -> LeasedLab:
    """Reads a list of servers, and a lease.

    A server is reached at its floating address: the last one of the network that has several; otherwise at its first.

    Raises:
        CampaignError: a file is neither, or a server is not active or has no address.
    """
    hosts: list[LentHost] = []
    ends: datetime | None = None
    for path in paths:
        values, rows = rows_of(path)
        if ROWS not in values:
            try:
                found = instant(rows.need(values, (), "end_date"))
            except ValueError as error:
                raise rows.error(("end_date",), str(error)) from None
            ends = found if ends is None else min(ends, found)
            continue
        for number, row in enumerate(rows.sequence(values[ROWS], (ROWS,))):
            hosts.append(_host(rows, rows.mapping(row, (ROWS, number)), (ROWS, number)))
    return lent_lab(str(paths[0]), hosts, ends)


def _host(rows: Rows, row: dict[str, Any], at: tuple[str | int, ...]) -> LentHost:
    name, status = rows.need(row, at, "Name"), rows.need(row, at, "Status")
    if status != "ACTIVE":
        raise rows.error(at, f"server {name} is {status}; wait until it is ACTIVE")
    networks = _networks(rows, row.get("Networks"), (*at, "Networks"))
    if not networks:
        raise rows.error(at, f"server {name} has no address")
    management = next((network for network, addresses in networks.items() if len(addresses) > 1), next(iter(networks)))
    nics = [Nic(network, address=addresses[0]) for network, addresses in networks.items() if network != management]
    return LentHost(host_name(name), networks[management][-1], tuple(nics), USER)


def _networks(rows: Rows, value: Any, at: tuple[str | int, ...]) -> dict[str, list[str]]:
    """IPv4 addresses by network. Older clients write one text: "net=1.2.3.4, 5.6.7.8; other=..."."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(";") if part.strip()]
        value = {name.strip(): re.split(r"[,\s]+", addresses.strip()) for name, _, addresses in pairs}
    found: dict[str, list[str]] = {}
    for name, addresses in rows.mapping(value, at).items():
        for address in rows.sequence(addresses, (*at, name)):
            try:
                version = ip_address(str(address)).version
            except ValueError:
                raise rows.error((*at, name), f"'{address}' is not an address") from None
            if version == 4:
                found.setdefault(str(name), []).append(str(address))
    return found
