"""The most that links carry in the long run, from which captures derive the size of their buffers.

A fast link beside a slow one carries little more than the slow one.
"""

from __future__ import annotations

from collections.abc import Collection

from testbed.addressing import Plan, next_hop
from testbed.scenario import Flow, LinkSpec, Scenario

#: Slow start sends two segments for each one that leaves the narrowest link of its path.
OVERSHOOT = 2.0


def greatest_load_bps(scenario: Scenario, plan: Plan, real: Collection[str] = ()) -> dict[str, float | None]:
    """Greatest long-term load of each link, both directions together, in bit/s; None where it has no bound.

    Args:
        scenario: what is run.
        plan: its network.
        real: names of real links, which may be faster than the scenario declares.
    """
    rates = {link.name: None if link.name in real else greatest_rate_bps(link) for link in scenario.links}
    # The load of a link: the narrowest link of each path over it, once for all its connections, and each source that
    # has a rate.
    loads: dict[str, dict[tuple[str, str], float]] = {name: {} for name in rates}
    # Programs of a user send what they like, and a session has no other traffic.
    boundless: set[str] = set() if scenario.workload else set(rates)
    for flow in scenario.workload:
        path = links_of(plan, flow)
        limited = {name: rate for name in path if (rate := rates[name]) is not None}
        source_bps = source_rate_bps(flow)
        if flow.kind == "command":
            boundless |= path
            continue
        if source_bps is not None:
            source, rate_bps = ("source", flow.name), source_bps
        elif limited:
            narrowest = min(limited, key=lambda name: limited[name])
            source, rate_bps = ("link", narrowest), OVERSHOOT * limited[narrowest]
        else:
            boundless |= path
            continue
        for name in path:
            loads[name][source] = rate_bps
    greatest: dict[str, float | None] = {}
    for name, rate in rates.items():
        bound = None if name in boundless else sum(loads[name].values())
        greatest[name] = min((limit for limit in (rate, bound) if limit is not None), default=None)
    return greatest


def source_rate_bps(flow: Flow) -> float | None:
    """Rate of a flow's source, of both directions together, in bit/s; None where congestion control sets it."""
    options = flow.options
    # Of IP, UDP and RTP.
    rtp_headers_bytes = 60 if flow.ip == 6 else 40
    if flow.kind == "cbr":
        return float(options["rate_bps"])
    if flow.kind == "probe":
        return 2 * 8 * float(options.get("packet_bytes", 64)) / float(options.get("interval_s", 0.05))
    if flow.kind == "call":
        # Speech of at most 64 kbit/s, and headers for each frame.
        return 64_000 + 8 * rtp_headers_bytes / float(options.get("frame_s", 0.02))
    if flow.kind == "video":
        # The last packet of a frame may hold little: one packet more for each frame.
        longest = float(options.get("packet_bytes", 1200))
        rate_bps, frames_per_s = float(options.get("rate_bps", 1.5e6)), float(options.get("frames_per_s", 30))
        return rate_bps * longest / (longest - rtp_headers_bytes) + 8 * rtp_headers_bytes * frames_per_s
    return None


def greatest_rate_bps(link: LinkSpec) -> float | None:
    """A link's greatest rate, both directions together; None where a direction has none."""
    total = 0.0
    for _, direction in link.directions():
        if direction.rate_bps is None:
            return None
        changes = [change.rate_bps for change in direction.schedule if change.rate_bps is not None]
        total += max(direction.rate_bps, *changes) if changes else direction.rate_bps
    return total


def links_of(plan: Plan, flow: Flow) -> set[str]:
    """Links of a flow's data and of its acks."""
    return links_between(plan, flow.from_, flow.to) | links_between(plan, flow.to, flow.from_)


def links_between(plan: Plan, start: str, end: str) -> set[str]:
    """Links on the path from one node to another's address.

    Raises:
        TestbedError: there is no path.
    """
    links: set[str] = set()
    node, address = start, plan.nodes[end].address
    while node != end:
        interface, peer = next_hop(plan, node, address)
        links.add(interface.link)
        node = peer.node
    return links
