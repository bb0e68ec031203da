"""FABRIC: what fablib's `slice.list_nodes`, `slice.list_interfaces` and `slice.toJson` give with `output="json"`.

Fields have fablib's names, or those that its tables show ("Management IP").
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from experiments.foreign_labs.files import rows_of
from experiments.foreign_labs.lent import (
    ROWS,
    LeasedLab,
    LentHost,
    Nic,
    Rows,
    hardware_address,
    host_name,
    instant,
    lent_lab,
    wrong,
)

NAME = "fabric"
FILES = "the JSON of list_nodes, of list_interfaces, and of the slice (toJson) for its lease"
#: Names of fablib's tables, for its fields.
SHOWN = {"lease_expiration_(utc)": "lease_end", "physical_device": "physical_dev", "device": "dev"}


def read(paths: Sequence[Path]) -> LeasedLab:
    """Reads the files of one slice, in any order.

    Raises:
        CampaignError: a file is none of them, or an interface is on an unknown node.
    """
    nodes: list[tuple[str, str, str | None]] = []
    nics: dict[str, list[tuple[Nic, Rows, int]]] = {}
    ends: datetime | None = None
    for path in paths:
        values, rows = rows_of(path)
        entries = rows.sequence(values[ROWS], (ROWS,)) if ROWS in values else [values]
        for number, entry in enumerate(entries):
            at = (ROWS, number) if ROWS in values else ()
            row = _plain(rows.mapping(entry, at))
            if "lease_end" in row:
                try:
                    ends = instant(rows.need(row, at, "lease_end"))
                except ValueError as error:
                    raise rows.error(at, f"lease_end: {error}") from None
            elif "management_ip" in row and "network" not in row:
                address = rows.need(row, at, "management_ip")
                nodes.append((rows.need(row, at, "name"), address, rows.text(row, at, "username")))
            elif "node" in row and "network" in row:
                network = rows.text(row, at, "network")
                if network is None:
                    continue
                name = rows.text(row, at, "physical_dev", "dev")
                mac = hardware_address(rows.text(row, at, "mac") or "")
                nic = Nic(network, name, mac, rows.text(row, at, "ip_addr"))
                nics.setdefault(rows.need(row, at, "node"), []).append((nic, rows, number))
            else:
                raise rows.error(at, f"is not one of the expected files: {FILES}")
    node_names = [name for name, *_ in nodes]
    for node, found in nics.items():
        if node not in node_names:
            _, rows, number = found[0]
            raise rows.error(
                (ROWS, number), f"its node '{node}' is unknown; nodes are {', '.join(node_names) or 'missing'}"
            )
    hosts = [
        LentHost(host_name(name), address, tuple(nic for nic, *_ in nics.get(name, [])), user)
        for name, address, user in nodes
    ]
    if not hosts:
        raise wrong(str(paths[0]), 0, "", f"has no node with a management address; give {FILES}")
    return lent_lab(str(paths[0]), hosts, ends)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    keys = {key: str(key).lower().replace(" ", "_") for key in row}
    return {SHOWN.get(name, name): row[key] for key, name in keys.items()}
