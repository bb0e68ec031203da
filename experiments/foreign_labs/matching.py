"""Finds which host of a lent lab plays which node, and what carries each link. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Required, TypedDict

from experiments.foreign_labs.lent import LeasedLab, LentHost, Nic
from experiments.language import registry
from testbed.errors import TestbedError
from testbed.scenario import LinkSpec, Node

#: Choices of networks that are looked at for one link and box. More than one is an error in any case.
MAX_CHOICES = 1000


class HostFields(TypedDict, total=False):
    """A host of an inventory file (experiments.inventory.HostEntry)."""

    #: The node that it plays; a link box has none.
    plays: str
    address: Required[str]
    port: int
    #: Interface by link.
    interfaces: dict[str, str]


class LinkFields(TypedDict, total=False):
    """What carries a link, in an inventory file: a wire, or a box with its interfaces."""

    real: str
    box: str
    interfaces: list[str]


class Matched(TypedDict):
    """The fields `hosts` and `links` of an inventory file, by name."""

    hosts: dict[str, HostFields]
    links: dict[str, LinkFields]


@dataclass(frozen=True)
class _Carrier:
    """What could carry a link: a network between all its ends, or a host with a network to each."""

    #: Of each end, in order; of a box its own interfaces too.
    networks: tuple[str, ...]
    box: str | None = None

    @property
    def shown(self) -> str:
        names = ", ".join(dict.fromkeys(self.networks))
        return f"network {names}" if self.box is None else f"host {self.box} over {names}"


def matched(
    lab: LeasedLab,
    nodes: Sequence[Node],
    links: Sequence[LinkSpec],
    plays: Mapping[str, str],
    carried: Mapping[str, Sequence[str]],
) -> Matched:
    """The fields `hosts` and `links` of an inventory.

    Args:
        lab: whose hosts are taken.
        nodes: of the campaign.
        links: of the campaign.
        plays: node by host, where the names differ.
        carried: networks of a link, where several could carry it.

    Raises:
        TestbedError: a node without a host, a host without an interface for the experiment, a link that nothing or that
            several networks carry, or an interface without a name.
    """
    host_of = _host_of(lab, [node.name for node in nodes], plays)
    names = [link.name for link in links]
    unknown = [name for name in carried if name not in names]
    if unknown:
        raise TestbedError(f"--link: {registry.unknown('link', unknown[0], names)}")
    by_name = {host.name: host for host in lab.hosts}
    for node, name in host_of.items():
        if not by_name[name].nics:
            raise TestbedError(
                f"host {name}, which plays '{node}', has no interface for the experiment: the description has none "
                "beside the one by which it is reached"
            )
    hosts: dict[str, HostFields] = {name: _entry(by_name[name], node) for node, name in host_of.items()}
    places: dict[str, LinkFields] = {}
    used: dict[tuple[str, str], str] = {}
    for link in links:
        ends = [host_of[end] for end in link.ends]
        carrier = _carrier(link.name, ends, by_name, set(host_of.values()), carried.get(link.name))
        for host, network in zip(ends, carrier.networks, strict=True):
            hosts[host].setdefault("interfaces", {})[link.name] = _name(by_name[host], network, link.name, used)
        if carrier.box is None:
            places[link.name] = {"real": "wire"}
        else:
            box = by_name[carrier.box]
            hosts.setdefault(box.name, _entry(box, None))
            between = [_name(box, network, link.name, used) for network in carrier.networks]
            places[link.name] = {"box": box.name, "interfaces": between}
    return {"hosts": hosts, "links": places}


def _host_of(lab: LeasedLab, nodes: Sequence[str], plays: Mapping[str, str]) -> dict[str, str]:
    names = [host.name for host in lab.hosts]
    for host, node in plays.items():
        if host not in names:
            raise TestbedError(f"--plays: {registry.unknown('host', host, names)}")
        if node not in nodes:
            raise TestbedError(f"--plays: {registry.unknown('node', node, list(nodes))}")
    found: dict[str, str] = {}
    for node in nodes:
        chosen = [host for host, played in plays.items() if played == node]
        if len(chosen) > 1:
            raise TestbedError(f"--plays: hosts {' and '.join(chosen)} both play '{node}'; one must not")
        if not chosen and node in names and node not in plays:
            chosen = [node]
        if not chosen:
            raise TestbedError(
                f"no host plays node '{node}': none has its name (hosts: {', '.join(names)}); add '--plays HOST={node}'"
            )
        found[node] = chosen[0]
    return found


def _carrier(
    link: str, ends: Sequence[str], hosts: Mapping[str, LentHost], players: set[str], chosen: Sequence[str] | None
) -> _Carrier:
    on: dict[str, set[str]] = {}
    for host in hosts.values():
        for nic in host.nics:
            on.setdefault(nic.network, set()).add(host.name)
    if chosen is not None:
        unknown = [network for network in chosen if network not in on]
        if unknown:
            raise TestbedError(f"--link {link}: {registry.unknown('network', unknown[0], list(on))}")
        on = {network: joined for network, joined in on.items() if network in chosen}
    found = [_Carrier((network,) * len(ends)) for network, joined in on.items() if joined == set(ends)]
    for box in hosts:
        if box in players:
            continue
        towards = [[network for network, joined in on.items() if joined == {box, end}] for end in ends]
        choices = itertools.islice(itertools.product(*towards), MAX_CHOICES)
        found += [_Carrier(networks, box) for networks in choices]
    if not found:
        towards_ends = " and ".join(ends)
        raise TestbedError(
            f"nothing carries link '{link}': no network joins {towards_ends} alone, and no other host has a network to "
            f"each of them; networks are {_networks(on)}"
        )
    if len(found) > 1:
        several = "; ".join(carrier.shown for carrier in found)
        example = ",".join(dict.fromkeys(found[0].networks))
        raise TestbedError(
            f"link '{link}' could be carried by several: {several}; choose one, such as '--link {link}={example}'"
        )
    return found[0]


def _name(host: LentHost, network: str, link: str, used: dict[tuple[str, str], str]) -> str:
    nics = [nic for nic in host.nics if nic.network == network]
    if len(nics) > 1:
        raise TestbedError(f"host {host.name} has {len(nics)} interfaces on network {network}; link '{link}' needs one")
    nic = nics[0]
    if nic.name is None:
        known = nic.mac or nic.address or "nothing"
        raise TestbedError(
            f"host {host.name}: the description does not name the interface on network {network} ({known}); add "
            "'--ask' to ask the host for it over SSH"
        )
    other = used.setdefault((host.name, nic.name), link)
    if other != link:
        raise TestbedError(
            f"host {host.name}: interface {nic.name} carries both link '{other}' and link '{link}'; choose other "
            "networks with '--link'"
        )
    return nic.name


def _entry(host: LentHost, node: str | None) -> HostFields:
    fields: HostFields = {"plays": node, "address": host.address} if node else {"address": host.address}
    if host.port != 22:
        fields["port"] = host.port
    return fields


def _networks(on: Mapping[str, set[str]]) -> str:
    return "; ".join(f"{network} ({', '.join(sorted(hosts))})" for network, hosts in on.items()) or "missing"


def named(host: LentHost, answers: Sequence[Nic]) -> LentHost:
    """A host whose interfaces have the names that it gave itself, found by hardware address or IP address."""

    def name(nic: Nic) -> str | None:
        if nic.name is not None:
            return nic.name
        same = (
            answer.name
            for answer in answers
            if (nic.mac and answer.mac == nic.mac) or (nic.address and answer.address == nic.address)
        )
        return next(same, None)

    return replace(host, nics=tuple(replace(nic, name=name(nic)) for nic in host.nics))
