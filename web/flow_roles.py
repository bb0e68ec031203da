"""Which flows of two networks are compared: by name, by role, or as somebody says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.figures.registry import side_of
from testbed.scenario import Flow


def matched(reference: Sequence[Flow], flows: Sequence[Flow], by_hand: Mapping[str, str]) -> dict[str, str]:
    """Flows of another network to those of the reference that they are compared with; without a match, none.

    A flow of the same name is the match. Otherwise it is the first free flow of the same kind between the same sides of
    the network, then, where the networks have other sides, the first free one of the same kind. Flows of a group count
    by the name of the group.

    Args:
        reference: flows of the first subject.
        flows: of another.
        by_hand: names of flows to names of the reference, or to "" for no match; it comes before all else. Names that
            the other network does not have are of a third one.
    """
    reference_names = list(_named(reference))
    mine = {name: by_hand[name] for name in _named(flows) if name in by_hand}
    free = [name for name in reference_names if name not in mine.values()]
    assigned = {name: of for name, of in mine.items() if of in reference_names}
    open_flows = {name: flow for name, flow in _named(flows).items() if name not in mine}
    for name in [name for name in open_flows if name in free]:
        assigned[name] = name
        free.remove(name)
        del open_flows[name]
    roles = {name: _role(flow) for name, flow in _named(reference).items()}
    for alike in (_same_role, _same_kind_elsewhere):
        for name, flow in list(open_flows.items()):
            match = next((other for other in free if alike(roles[other], _role(flow))), None)
            if match is not None:
                assigned[name] = match
                free.remove(match)
                del open_flows[name]
    return assigned


def _named(flows: Sequence[Flow]) -> dict[str, Flow]:
    by_name: dict[str, Flow] = {}
    for flow in flows:
        by_name.setdefault(flow.group or flow.name, flow)
    return by_name


def _same_role(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    return one == other


def _same_kind_elsewhere(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    # Between the same sides, a flow of the other direction does not match.
    return one[0] == other[0] and {*one[1:]} != {*other[1:]}


def _role(flow: Flow) -> tuple[str, str, str]:
    return flow.kind, side_of(flow.from_), side_of(flow.to)
