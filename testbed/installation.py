"""What plays a scenario's nodes and links in a lab. It is part of the ids of runs on real hosts."""

from __future__ import annotations

from collections.abc import Mapping

from agents.messages import Health
from testbed.placement import QUEUE_PREFIX, LinkPlacement, Placement, box_interfaces
from testbed.scenario import Model


class HostPart(Model):
    """A host of an installation."""

    #: Node that it plays; None for a link box.
    plays: str | None
    #: Release of its kernel.
    kernel: str


class LinkPart(Model):
    """A link of an installation."""

    #: "box", or the kind of a real link.
    carried_by: str
    #: Node whose queue policy runs before a real link.
    queue_at: str | None
    #: Every interface that the link uses, as "HOST INTERFACE: DRIVER IDENTIFIERS".
    interfaces: tuple[str, ...]


class Installation(Model):
    """Hosts and links of a lab under one topology."""

    hosts: Mapping[str, HostPart]
    links: Mapping[str, LinkPart]


def installation(placement: Placement, healths: Mapping[str, Health]) -> Installation:
    """Describes a placement on hosts whose agents gave these answers."""
    plays = {host: node for node, host in placement.host_of.items()}

    def shown(host: str, name: str) -> str:
        return f"{host} {name}: {healths[host].interfaces.get(name, 'unknown')}"

    def link(place: LinkPlacement) -> LinkPart:
        ends = placement.plan.links[place.link]
        used = [shown(placement.host_of[end.node], end.name.removeprefix(QUEUE_PREFIX)) for end in ends]
        if place.box is not None:
            used += [shown(place.box, name) for name in box_interfaces(placement.plan, place)]
        return LinkPart(
            carried_by="box" if place.real is None else place.real, queue_at=place.queue_at, interfaces=tuple(used)
        )

    return Installation(
        hosts={
            name: HostPart(plays=plays.get(name), kernel=healths[name].kernel)
            for name in dict.fromkeys(placement.members())
        },
        links={name: link(placement.links[name]) for name in placement.plan.links},
    )
