"""CloudLab and other GENI testbeds: a manifest RSpec of version 3, as the portal shows and `geni-lib` saves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.foreign_labs.files import Element, xml_of
from experiments.foreign_labs.lent import (
    LeasedLab,
    LentHost,
    Nic,
    hardware_address,
    host_name,
    instant,
    lent_lab,
    wrong,
)

NAME = "cloudlab"
FILES = "the manifest (XML)"


def read(paths: Sequence[Path]) -> LeasedLab:
    """Reads one manifest.

    Raises:
        CampaignError: it is not a manifest, or a node has no login or two networks for one interface.
    """
    (path,) = paths
    file = str(path)
    root = xml_of(path)
    if root.tag != "rspec" or root.attributes.get("type") != "manifest":
        raise wrong(file, root.line, "", 'is not a manifest: its root must be <rspec type="manifest">, not a request')
    networks: dict[str, str] = {}
    for link in root.all("link"):
        name = _need(file, link, "client_id")
        for reference in link.all("interface_ref"):
            end = _need(file, reference, "client_id")
            other = networks.setdefault(end, name)
            if other != name:
                raise wrong(file, reference.line, end, f"belongs to two links, {other} and {name}; one is expected")
    hosts = []
    for node in root.all("node"):
        name = _need(file, node, "client_id")
        logins = [login for services in node.all("services") for login in services.all("login")]
        if not logins:
            raise wrong(file, node.line, name, "has no <login>, so nobody can reach it; is the experiment ready?")
        login = logins[0]
        port = login.attributes.get("port", "22")
        if not port.isdecimal():
            raise wrong(file, login.line, f"{name}.port", f"'{port}' is not a port")
        nics = []
        for interface in node.all("interface"):
            network = networks.get(_need(file, interface, "client_id"))
            if network is None:
                continue  # joined to nothing
            addresses = [ip.attributes.get("address") for ip in interface.all("ip")]
            mac = hardware_address(interface.attributes.get("mac_address", ""))
            nics.append(Nic(network, None, mac, addresses[0] if addresses else None))
        hosts.append(
            LentHost(
                host_name(name),
                _need(file, login, "hostname"),
                tuple(nics),
                login.attributes.get("username"),
                port=int(port),
            )
        )
    expires = root.attributes.get("expires")
    try:
        ends = None if expires is None else instant(expires)
    except ValueError as error:
        raise wrong(file, root.line, "expires", str(error)) from None
    return lent_lab(file, hosts, ends)


def _need(file: str, element: Element, attribute: str) -> str:
    value = element.attributes.get(attribute)
    if not value:
        raise wrong(file, element.line, "", f"<{element.tag}> has no attribute '{attribute}'")
    return value
