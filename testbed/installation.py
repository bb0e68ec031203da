"""What plays a scenario's nodes and links in a lab. It is part of the ids of runs on real hosts."""

from __future__ import annotations

from collections.abc import Mapping

from agents.messages import Health
from testbed.documents import Model
from testbed.placement import QUEUE_PREFIX, LinkPlacement, Placement, box_interfaces


class HostPart(Model):
    """A host of an installation."""

    #: Node that it plays; None for a link box.
    plays: str | None
    #: Release of its kernel.
    kernel: str
    #: Number and model of its processors, in a lab with several sets of hosts.
    processors: str | None = None


class LinkPart(Model):
    """A link of an installation."""

    #: "box", or the kind of a real link.
    carried_by: str
    #: Node whose queue policy runs before a real link.
    queue_at: str | None
    #: Every interface that the link uses, as "HOST INTERFACE: DRIVER IDENTIFIERS".
    interfaces: tuple[str, ...]


class Installation(Model):
    """Hosts and links of a lab, or of one of its sets, under one topology."""

    hosts: Mapping[str, HostPart]
    links: Mapping[str, LinkPart]
    #: Name of the set of hosts, in a lab with several.
    set: str | None = None

    def identity(self) -> Installation:
        """What enters the ids of runs.

        In a lab with sets it has no names of sets, hosts and interfaces: sets with equal kernels, processors, network
        hardware and carriers of links can make each other's runs. In another lab the names are part of it.
        """
        if self.set is None:
            return self
        roles = {
            name: host.plays or "box of " + ", ".join(link for link, part in self.links.items() if _uses(part, name))
            for name, host in self.hosts.items()
        }

        def anonymous(interface: str) -> str:
            names, _, hardware = interface.partition(": ")
            return f"{roles[names.split(' ')[0]]}: {hardware}"

        return Installation(
            hosts={roles[name]: host for name, host in self.hosts.items()},
            links={
                name: part.replace(interfaces=tuple(anonymous(interface) for interface in part.interfaces))
                for name, part in self.links.items()
            },
        )


def _uses(link: LinkPart, host: str) -> bool:
    return any(interface.startswith(f"{host} ") for interface in link.interfaces)


def installation(placement: Placement, healths: Mapping[str, Health]) -> Installation:
    """Describes a placement on hosts whose agents gave these answers."""
    plays = {host: node for node, host in placement.host_of.items()}

    def shown(host: str, name: str) -> str:
        return f"{host} {name}: {healths[host].interfaces.get(name, 'unknown')}"

    def host_part(name: str) -> HostPart:
        # Fields that are not set are absent from ids.
        more = {"processors": healths[name].processors} if placement.set else {}
        return HostPart(plays=plays.get(name), kernel=healths[name].kernel, **more)

    def link(place: LinkPlacement) -> LinkPart:
        ends = placement.plan.links[place.link]
        used = [shown(placement.host_of[end.node], end.name.removeprefix(QUEUE_PREFIX)) for end in ends]
        if place.box is not None:
            used += [shown(place.box, name) for name in box_interfaces(placement.plan, place)]
        return LinkPart(
            carried_by="box" if place.real is None else place.real, queue_at=place.queue_at, interfaces=tuple(used)
        )

    return Installation.make(
        hosts={name: host_part(name) for name in dict.fromkeys(placement.members())},
        links={name: link(placement.links[name]) for name in placement.plan.links},
        set=placement.set or None,
    )


def difference(one: Installation, other: Installation) -> str | None:
    """The first difference of two sets' identities, for people; None if runs of one set may be made by the other."""
    first, second = one.identity(), other.identity()
    for role, host in first.hosts.items():
        counterpart = second.hosts.get(role)
        if counterpart is None:
            return f"the host of '{role}' in set {one.set} has no match in set {other.set}"
        for name in ("kernel", "processors"):
            here, elsewhere = getattr(host, name), getattr(counterpart, name)
            if here != elsewhere:
                return f"{name} of '{role}': {here} in set {one.set}, {elsewhere} in set {other.set}"
    for name, link in first.links.items():
        if link != second.links.get(name):
            return f"link '{name}': {_shown(link)} in set {one.set}, {_shown(second.links[name])} in set {other.set}"
    return None if first == second else f"sets {one.set} and {other.set} have other hosts"


def _shown(link: LinkPart) -> str:
    return f"{link.carried_by} over {', '.join(link.interfaces)}"
