"""What may pass a link in the long run: how much room captures need.

A fast link beside a slow one carries little more than the slow one, whatever its own rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.addressing import Plan, way

#: Slow start sends two segments for each that leaves the narrowest line of its path.
OVERSHOOT = 2.0


def passing_bps(scenario: Mapping[str, Any], plan: Plan) -> dict[str, float | None]:
    """Most that passes each link in the long run, both directions together, in bit/s; None where nobody can tell."""
    own = {link["name"]: greatest_rate_bps(link) for link in scenario["links"]}
    # What loads a link: the narrowest line of a path, once for all connections over it; each source that nothing slows
    # down.
    loads: dict[str, dict[tuple[str, str], float]] = {name: {} for name in own}
    boundless: set[str] = set()
    for flow in scenario["workload"]:
        path = links_between(plan, flow["from"], flow["to"]) | links_between(plan, flow["to"], flow["from"])
        known = {name: rate for name in path if (rate := own[name]) is not None}
        if flow["kind"] == "cbr":
            load, rate_bps = ("source", flow["name"]), float(flow["options"]["rate_bps"])
        elif known:
            narrowest = min(known, key=lambda name: known[name])
            load, rate_bps = ("line", narrowest), OVERSHOOT * known[narrowest]
        else:
            boundless |= path
            continue
        for name in path:
            loads[name][load] = rate_bps
    most: dict[str, float | None] = {}
    for name, rate in own.items():
        bound = None if name in boundless else sum(loads[name].values())
        most[name] = min((one for one in (rate, bound) if one is not None), default=None)
    return most


def greatest_rate_bps(link: Mapping[str, Any]) -> float | None:
    """A link's own greatest rate, both directions together; None where one is not declared."""
    total = 0.0
    for name in ("forward", "reverse"):
        if link[name].get("rate_bps") is None:
            return None
        steps = [link[name], *link[name].get("schedule", [])]
        total += max(step["rate_bps"] for step in steps if step.get("rate_bps") is not None)
    return total


def links_between(plan: Plan, start: str, end: str) -> set[str]:
    """Links on a packet's way from a node to another's address.

    Raises:
        TestbedError: there is no way.
    """
    found: set[str] = set()
    node, address = start, plan.nodes[end].address
    while node != end:
        out, into = way(plan, node, address)
        found.add(out.link)
        node = into.node
    return found
