"""The picture of a scenario's network: nodes from left to right, and on each line its rates, delays and queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.units import show
from web.drawing import SERIES, Drawing, Line, Rect, Text, fitted, text_width

NODE_WIDTH, NODE_HEIGHT = 96.0, 40.0
ROW = 74.0
#: Nodes of a column that are drawn; of more, the first few and how many there are.
MOST_ROWS = 6


def draw(scenario: Mapping[str, Any]) -> Drawing:
    """Draws it. Equal branches beyond a few are counted instead of drawn."""
    nodes = {node["name"]: node for node in scenario["nodes"]}
    links = scenario["links"]
    columns = _columns(list(nodes), links)
    drawn: dict[str, tuple[float, float]] = {}
    hidden = {number: max(len(names) - MOST_ROWS, 0) for number, names in enumerate(columns)}
    # A hidden branch is left out in every column it runs through: columns of hosts are in the order of their links.
    widths = _gaps(columns, links)
    rows = max(min(len(names), MOST_ROWS) + bool(hidden[number]) for number, names in enumerate(columns))
    flows = _flows(scenario)
    height = max(rows * ROW, 120.0) + 24
    width = sum(widths) + NODE_WIDTH * len(columns) + 24
    drawing = Drawing(width, height + 22 * len(flows) + (8 if flows else 0), _description(scenario))
    x = 12.0
    for number, names in enumerate(columns):
        shown = names[:MOST_ROWS]
        top = height / 2 - (len(shown) + bool(hidden[number])) * ROW / 2
        for row, name in enumerate(shown):
            drawn[name] = (x + NODE_WIDTH / 2, top + (row + 0.5) * ROW)
        if hidden[number]:
            at = (x + NODE_WIDTH / 2, top + (len(shown) + 0.5) * ROW - 8)
            drawing.add(Text(at, f"and {hidden[number]} more", "soft", 11, "middle"))
        x += NODE_WIDTH + (widths[number] if number < len(widths) else 0)
    crowded = len(links) > 6
    labelled: set[str] = set()
    for link in links:
        here = [drawn[end] for end in link["ends"] if end in drawn]
        if len(here) == 2:
            look = _look(link)
            _link(drawing, link, here, label=not crowded or look not in labelled)
            labelled.add(look)
    for name, (cx, cy) in drawn.items():
        _node(drawing, nodes[name], cx, cy)
    for number, (text, ink) in enumerate(flows):
        y = height + 12 + 22 * number
        drawing.add(Line([(16, y), (40, y)], ink, 2), Line([(47, y), (39, y - 4), (39, y + 4)], ink, closed=True))
        drawing.add(Text((56, y), text, "ink", 12))
    return drawing


def _columns(names: Sequence[str], links: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Nodes by their distance from one end of the longest way through the network."""
    beside: dict[str, list[str]] = {name: [] for name in names}
    for link in links:
        for end in link["ends"]:
            beside[end] += [other for other in link["ends"] if other != end]

    def distances(start: str) -> dict[str, int]:
        found, todo = {start: 0}, deque([start])
        while todo:
            here = todo.popleft()
            for other in beside[here]:
                if other not in found:
                    found[other] = found[here] + 1
                    todo.append(other)
        return found

    # In a network without loops, the farthest from anywhere is an end of the longest way.
    far = distances(names[0])
    end = max(far, key=lambda name: (far[name], -list(names).index(name)))
    way = distances(end)
    other = max(way, key=lambda name: way[name])
    # As the file tells it: what it names first stands on the left.
    if list(names).index(other) < list(names).index(end):
        way = distances(other)
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(way.get(name, 0), []).append(name)
    return [found[number] for number in sorted(found)]


def _gaps(columns: Sequence[Sequence[str]], links: Sequence[Mapping[str, Any]]) -> list[float]:
    """Room between two columns: what the labels of their lines need."""
    column = {name: number for number, names in enumerate(columns) for name in names}
    gaps = [90.0] * (len(columns) - 1)
    for link in links:
        at = sorted(column[end] for end in link["ends"])
        if len(at) == 2 and at[1] == at[0] + 1:
            longest = max((text_width(line, 10.5) for lines in _labels(link) for line in lines), default=0.0)
            gaps[at[0]] = max(gaps[at[0]], min(longest + 28, 300))
    return gaps


def _node(drawing: Drawing, node: Mapping[str, Any], cx: float, cy: float) -> None:
    host = node["kind"] == "host"
    drawing.add(
        Rect(
            cx - NODE_WIDTH / 2,
            cy - NODE_HEIGHT / 2,
            NODE_WIDTH,
            NODE_HEIGHT,
            "raised",
            "ink" if host else "soft",
            6 if host else 20,
        )
    )
    below = node["stack"]["name"] if "stack" in node else node["kind"].replace("-", " ")
    drawing.add(Text((cx, cy - 7), fitted(node["name"], 12, NODE_WIDTH - 10), "ink", 12, "middle", bold=True))
    drawing.add(Text((cx, cy + 9), fitted(below, 10.5, NODE_WIDTH - 10), "soft", 10.5, "middle"))


def _link(drawing: Drawing, link: Mapping[str, Any], here: Sequence[tuple[float, float]], label: bool) -> None:
    (x0, y0), (x1, y1) = here
    turned = x0 > x1
    if turned:
        (x0, y0), (x1, y1) = (x1, y1), (x0, y0)
    start, end = (x0 + NODE_WIDTH / 2, y0), (x1 - NODE_WIDTH / 2, y1)
    slow = link["name"] in ("bottleneck", "line", "air")
    drawing.add(Line([start, end], "s0" if slow else "soft", 2.4 if slow else 1.6))
    if not label:
        return
    above, below = _labels(link) if not turned else _labels(link)[::-1]
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    # On a slope the label stands beside the line, not on it.
    room = 300.0
    for number, line in enumerate(reversed(above)):
        drawing.add(
            Text((x, y - 12 - 13 * number), fitted(line, 10.5, room), "ink" if slow else "soft", 10.5, "middle")
        )
    for number, line in enumerate(below):
        drawing.add(
            Text((x, y + 13 + 13 * number), fitted(line, 10.5, room), "ink" if slow else "soft", 10.5, "middle")
        )


def _labels(link: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What stands above a line (forward) and below it (reverse)."""
    forward, reverse = _direction(link["forward"], "→"), _direction(link["reverse"], "←")
    if link["forward"] == link["reverse"]:
        forward[0] = "↔" + forward[0][1:]
        reverse = []
    extra = []
    if link["kind"] != "point-to-point":
        extra.append(link["kind"])
    extra += [f"{box['name']} at {link['ends'][box.get('end', 0)]}" for box in link.get("middleboxes", [])]
    return ([", ".join(extra)] if extra else []) + forward, reverse


def _direction(direction: Mapping[str, Any], arrow: str) -> list[str]:
    rate = show(direction["rate_bps"], "rate") if direction.get("rate_bps") else "no rate limit"
    queue = direction["queue"]
    lines = [f"{arrow} {rate}, {show(direction['delay_s'], 'time')}"]
    lines.append(f"{queue['name']}{f', {_limit(queue)}' if _limit(queue) else ''}")
    errors = [error["name"] for error in direction.get("errors", [])]
    if errors:
        lines.append(f"errors: {', '.join(errors)}")
    if direction.get("schedule"):
        lines.append(f"{len(direction['schedule'])} changes")
    if direction.get("options", {}).get("header_compression"):
        lines.append(direction["options"]["header_compression"])
    if direction.get("options", {}).get("device_buffer_bytes"):
        lines.append(f"device holds {show(direction['options']['device_buffer_bytes'], 'bytes')}")
    return lines


def _limit(queue: Mapping[str, Any]) -> str:
    options = queue["options"]
    if options.get("limit_packets"):
        return f"{options['limit_packets']:g} packets"
    return show(options["limit_bytes"], "bytes") if options.get("limit_bytes") else ""


def _look(link: Mapping[str, Any]) -> str:
    return repr(_labels(link))


def _flows(scenario: Mapping[str, Any]) -> list[tuple[str, str]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for flow in scenario["workload"]:
        groups.setdefault(flow.get("group") or flow["name"], []).append(flow)
    lines = []
    for number, (name, flows) in enumerate(groups.items()):
        flow = flows[0]
        size = show(flow["bytes"], "bytes") if flow.get("bytes") else "until the end"
        starts = [float(one.get("start_s", 0.0)) for one in flows]
        if len(flows) == 1:
            told = f"{name}: {flow['from']} to {flow['to']}, {size}, from {show(starts[0], 'time')} on"
        else:
            ends = [flow[end].rstrip("0123456789") + "s" for end in ("from", "to")]
            told = f"{name}: {len(flows)} flows, {ends[0]} to {ends[1]}, {size}"
        lines.append((told, f"s{number % SERIES}"))
    return lines[:8]


def _description(scenario: Mapping[str, Any]) -> str:
    told = []
    for link in scenario["links"][:8]:
        above, below = _labels(link)
        told.append(f"{' to '.join(link['ends'])}: {', '.join([*above, *below])}")
    more = f"; and {len(scenario['links']) - 8} more lines" if len(scenario["links"]) > 8 else ""
    return f"Network. {'; '.join(told)}{more}"
