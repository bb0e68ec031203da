"""What the picture of a network says of links and flows."""

from __future__ import annotations

from analysis.figures.model import COLOURS
from testbed import units
from testbed.scenario import DirectionSpec, Flow, LinkSpec, Named, Scenario


def link_labels(link: LinkSpec) -> tuple[list[str], list[str]]:
    """The labels above a link (forward) and below it (reverse)."""
    forward, reverse = _direction(link.forward, "→"), _direction(link.reverse, "←")
    if link.forward == link.reverse:
        forward[0] = "↔" + forward[0][1:]
        reverse = []
    extra = []
    if link.kind != "point-to-point":
        extra.append(link.kind)
    extra += [f"{box.name} at {link.ends[box.end]}" for box in link.middleboxes]
    return ([", ".join(extra)] if extra else []) + forward, reverse


def _direction(direction: DirectionSpec, arrow: str) -> list[str]:
    rate = units.show(direction.rate_bps, "rate") if direction.rate_bps else "no rate limit"
    queue, options = direction.queue, direction.options
    lines = [f"{arrow} {rate}, {units.show_delay(direction.delay_s, direction.jitter_s)}"]
    lines.append(f"{queue.name}{f', {_limit(queue)}' if _limit(queue) else ''}")
    if direction.errors:
        lines.append(f"errors: {', '.join(error.name for error in direction.errors)}")
    if direction.schedule:
        lines.append(f"{len(direction.schedule)} changes")
    if options.get("header_compression"):
        lines.append(options["header_compression"])
    if options.get("device_buffer_bytes"):
        lines.append(f"device holds {units.show(options['device_buffer_bytes'], 'bytes')}")
    if options.get("clock_tick_s"):
        lines.append(f"sends every {units.show(options['clock_tick_s'], 'time')}")
    return lines


def _limit(queue: Named) -> str:
    options = queue.options
    packets = f"{options['limit_packets']:g} packets" if options.get("limit_packets") else ""
    bytes_ = units.show(options["buffer_bytes"], "bytes") if options.get("buffer_bytes") else ""
    return ", ".join(filter(None, (packets, bytes_)))


def flow_lines(scenario: Scenario) -> list[tuple[str, str]]:
    """The key of the flows: text and colour of each group."""
    groups: dict[str, list[Flow]] = {}
    for flow in scenario.workload:
        groups.setdefault(flow.group or flow.name, []).append(flow)
    lines = []
    for number, (name, flows) in enumerate(groups.items()):
        flow = flows[0]
        size = units.show(flow.bytes, "bytes") if flow.bytes else "until the end"
        if len(flows) == 1:
            text = f"{name}: {flow.from_} to {flow.to}, {size}, from {units.show(flow.start_s, 'time')} on"
        else:
            ends = [end.rstrip("0123456789") + "s" for end in (flow.from_, flow.to)]
            text = f"{name}: {len(flows)} flows, {ends[0]} to {ends[1]}, {size}"
        lines.append((text, COLOURS[number % len(COLOURS)]))
    return lines[:8]


def description(scenario: Scenario) -> str:
    """The network in words, for those who do not see the picture."""
    parts = []
    for link in scenario.links[:8]:
        above, below = link_labels(link)
        parts.append(f"{' to '.join(link.ends)}: {', '.join([*above, *below])}")
    more = f"; and {len(scenario.links) - 8} more links" if len(scenario.links) > 8 else ""
    return f"Network. {'; '.join(parts)}{more}"
