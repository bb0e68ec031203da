"""The picture of a scenario's network: nodes from left to right, and on each link its rates, delays and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.scenario import LinkSpec, Node, Scenario
from web.crossing import STUDIED, distances, link_under_study
from web.network_words import description, flow_lines, link_labels
from web.picture import Box, Label, Picture, Wire

NODE_WIDTH, NODE_HEIGHT = 96.0, 40.0
ROW = 76.0
#: Beside the outer columns; labels under nodes are wider than the nodes.
MARGIN, MARGIN_BESIDE_LABELS = 12.0, 34.0
#: Nodes of a column that are drawn; the others are counted.
MOST_ROWS = 6
#: Widest label of a link, in points.
LABEL_ROOM = 300.0
#: Distance of each of two links between the same nodes from the line between their middles.
TWIN = 9.0

#: Of the upright picture: its width and the height of a label's line, in points; nodes of a row that are drawn.
UPRIGHT_WIDTH, LINE, MOST_BESIDE = 380.0, 13.0, 3

#: Nodes' middles.
Places = Mapping[str, tuple[float, float]]


def draw(scenario: Scenario) -> Picture:
    """The picture. Equal branches beyond a few are counted instead of drawn."""
    nodes = {node.name: node for node in scenario.nodes}
    links = scenario.links
    columns = _columns(list(nodes), links, link_under_study(scenario))
    hidden = [max(len(names) - MOST_ROWS, 0) for names in columns]
    gaps = _gaps(columns, links)
    rows = max(min(len(names), MOST_ROWS) + bool(extra) for names, extra in zip(columns, hidden, strict=True))
    height = max(rows * ROW, 120.0) + 24
    margin = MARGIN_BESIDE_LABELS if any(_outer_end(link, links) for link in links) else MARGIN
    width = sum(gaps) + NODE_WIDTH * len(columns) + 2 * margin
    picture = Picture(width, 0.0, description(scenario))
    places: dict[str, tuple[float, float]] = {}
    x = margin
    for number, names in enumerate(columns):
        shown = names[:MOST_ROWS]
        top = height / 2 - (len(shown) + bool(hidden[number])) * ROW / 2
        for row, name in enumerate(shown):
            places[name] = (x + NODE_WIDTH / 2, top + (row + 0.5) * ROW)
        if hidden[number]:
            y = top + (len(shown) + 0.5) * ROW - 8
            picture.labels.append(Label(x + NODE_WIDTH / 2, y, f"and {hidden[number]} more", "soft"))
        x += NODE_WIDTH + (gaps[number] if number < len(gaps) else 0)
    crowded = len(links) > 6
    labelled: set[str] = set()
    for link in links:
        if len(link.ends) != 2 or not all(end in places for end in link.ends):
            continue
        aside = _aside(link, links)
        _add_link(picture, link, places, aside)
        look = repr(link_labels(link))
        if not crowded or look not in labelled:
            _add_label(picture, link, places, aside, _outer_end(link, links))
        labelled.add(look)
    for name, (cx, cy) in places.items():
        _add_node(picture, nodes[name], cx, cy)
    picture.height = _add_flows(picture, scenario, height, 12)
    return picture


def _add_flows(picture: Picture, scenario: Scenario, top: float, size: float) -> float:
    """Adds the key of the flows; returns the height of the picture with it."""
    flows = flow_lines(scenario)
    for number, (text, colour) in enumerate(flows):
        y = top + 12 + 22 * number
        picture.wires.append(Wire(16, y, 46, y, colour, 2, arrow=True))
        picture.labels.append(Label(56, y, _fitted(text, size, picture.width - 56), size=size, centred=False))
    return top + 22 * len(flows) + (8 if flows else 0)


def _text_width(text: str, size: float) -> float:
    """About how wide a text is in a proportional font."""
    return len(text) * size * 0.54


def _fitted(text: str, size: float, width: float) -> str:
    """A text cut to a width, with an ellipsis where it was longer."""
    most = max(int(width / (size * 0.54)), 1)
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _columns(names: Sequence[str], links: Sequence[LinkSpec], studied: LinkSpec | None) -> list[list[str]]:
    """Nodes in columns: by their distance from the link under study, each on its side of it.

    In a network that this link does not divide: by their distance from one end of the longest path.
    """
    apart = [link for link in links if link is not studied]
    if studied is not None:
        left, right = (distances(end, names, apart) for end in studied.ends)
        if left.keys().isdisjoint(right) and len(left) + len(right) == len(names):
            # The node that the file names first is on the left.
            if names[0] in right:
                left, right = right, left
            place = {name: -far for name, far in left.items()} | {name: far + 1 for name, far in right.items()}
            return _by_column(place, names)
    # In a network without loops, the node farthest from any other is an end of the longest path.
    far = distances(names[0], names, links)
    end = max(far, key=lambda name: (far[name], -names.index(name)))
    path = distances(end, names, links)
    other = max(path, key=lambda name: path[name])
    if names.index(other) < names.index(end):
        path = distances(other, names, links)
    return _by_column(path, names)


def _by_column(place: Mapping[str, int], names: Sequence[str]) -> list[list[str]]:
    columns: dict[int, list[str]] = {}
    for name in names:
        columns.setdefault(place.get(name, 0), []).append(name)
    return [columns[number] for number in sorted(columns)]


def _gaps(columns: Sequence[Sequence[str]], links: Sequence[LinkSpec]) -> list[float]:
    """Room between two columns, for the labels of their links."""
    column = {name: number for number, names in enumerate(columns) for name in names}
    gaps = [90.0] * (len(columns) - 1)
    for link in links:
        at = sorted(column[end] for end in link.ends)
        if len(at) == 2 and at[1] == at[0] + 1:
            longest = max((_text_width(line, 10.5) for lines in link_labels(link) for line in lines), default=0.0)
            gaps[at[0]] = max(gaps[at[0]], min(longest + 28, 300))
    return gaps


def _add_node(picture: Picture, node: Node, cx: float, cy: float) -> None:
    host = node.kind == "host"
    left, top = cx - NODE_WIDTH / 2, cy - NODE_HEIGHT / 2
    picture.boxes.append(Box(left, top, NODE_WIDTH, NODE_HEIGHT, "ink" if host else "soft", 6 if host else 20))
    below = node.stack.name if node.stack else node.kind.replace("-", " ")
    picture.labels += [
        Label(cx, cy - 7, _fitted(node.name, 12, NODE_WIDTH - 6), size=12, bold=True),
        Label(cx, cy + 9, _fitted(below, 10.5, NODE_WIDTH - 6), "soft", 10.5),
    ]


def _outer_end(link: LinkSpec, links: Sequence[LinkSpec]) -> str:
    """The end beside which a link's label is drawn: in a fan of links the end they do not share; empty: the middle."""
    between = {frozenset(other.ends) for other in links}
    at_end = [sum(end in ends for ends in between) for end in link.ends]
    if max(at_end) < 3 or min(at_end) > 1:
        return ""
    return link.ends[at_end.index(1)]


def _aside(link: LinkSpec, links: Sequence[LinkSpec]) -> int:
    """-1 and 1 for the first and the second of two links between the same nodes; 0 for other links."""
    twins = [other.name for other in links if set(other.ends) == set(link.ends)]
    return 0 if len(twins) < 2 else -1 if twins[0] == link.name else 1


def _add_link(picture: Picture, link: LinkSpec, places: Places, aside: int) -> None:
    (x0, y0), (x1, y1) = sorted(places[end] for end in link.ends)
    y0, y1 = y0 + TWIN * aside, y1 + TWIN * aside
    picture.wires.append(Wire(x0 + NODE_WIDTH / 2, y0, x1 - NODE_WIDTH / 2, y1, *_stroke(link)))


def _stroke(link: LinkSpec) -> tuple[str, float]:
    """Colour and width of a link's line."""
    return ("s0", 2.4) if link.name in STUDIED else ("soft", 1.6)


def draw_upright(scenario: Scenario) -> Picture | None:
    """The picture from top to bottom, for narrow screens. None for a network with a link that skips a column."""
    nodes, links = {node.name: node for node in scenario.nodes}, scenario.links
    rows = _columns(list(nodes), links, link_under_study(scenario))
    row_of = {name: number for number, names in enumerate(rows) for name in names}
    below: dict[int, list[LinkSpec]] = {number: [] for number in range(len(rows))}
    for link in links:
        ends = sorted(row_of[end] for end in link.ends)
        if len(ends) != 2 or ends[1] != ends[0] + 1:
            return None
        below[ends[0]].append(link)
    picture, places, y = Picture(UPRIGHT_WIDTH, 0.0, description(scenario)), dict[str, tuple[float, float]](), MARGIN
    for number, names in enumerate(rows):
        y += NODE_HEIGHT / 2
        shown = names if len(names) <= MOST_BESIDE else names[: MOST_BESIDE - 1]
        hidden = names[len(shown) :]
        slot = UPRIGHT_WIDTH / (len(shown) + bool(hidden))
        places |= {name: ((place + 0.5) * slot, y) for place, name in enumerate(shown)}
        if hidden:
            picture.labels.append(Label(UPRIGHT_WIDTH - slot / 2, y, f"and {len(hidden)} more", "soft"))
        y += NODE_HEIGHT / 2
        # Beside a single link, else where a fan leaves room, for its first link.
        labels = list(dict.fromkeys(tuple(_upright_labels(link, row_of)) for link in below[number]))
        is_fan = len({link.ends for link in below[number]}) > 1
        lines = [line for texts in (labels[:1] if is_fan else labels) for line in texts]
        if is_fan and len(labels) > 1:
            lines.append("others differ")
        if not below[number]:
            continue
        gap = (1.6 if is_fan else 1.0) * LINE * len(lines) + 20
        top = (
            y + (gap - LINE * len(lines)) / 2
            if not is_fan
            else y + 4
            if len(names) == 1
            else y + gap - LINE * len(lines)
        )
        left = 4.0 if is_fan else UPRIGHT_WIDTH / 2 + 10
        for at, text in enumerate(lines):
            fitted = _fitted(text, 10.5, UPRIGHT_WIDTH - left)
            picture.labels.append(Label(left, top + (at + 0.5) * LINE, fitted, size=10.5, centred=False))
        y += gap
    for link in links:
        if all(end in places for end in link.ends):
            (x0, y0), (x1, y1) = sorted((places[end] for end in link.ends), key=lambda place: place[1])
            aside = TWIN * _aside(link, links)
            line = (x0 + aside, y0 + NODE_HEIGHT / 2, x1 + aside, y1 - NODE_HEIGHT / 2)
            picture.wires.append(Wire(*line, *_stroke(link)))
    for name, place in places.items():
        _add_node(picture, nodes[name], *place)
    picture.height = _add_flows(picture, scenario, y + 4, 10.5)
    return picture


def _upright_labels(link: LinkSpec, row_of: Mapping[str, int]) -> list[str]:
    """The labels of a link that is drawn from top to bottom."""
    arrows = "↓↑" if row_of[link.ends[0]] < row_of[link.ends[1]] else "↑↓"
    turned = str.maketrans("→←↔", f"{arrows}↕")
    return [text.translate(turned) for texts in link_labels(link) for text in texts]


def _add_label(picture: Picture, link: LinkSpec, places: Places, aside: int, outer: str) -> None:
    above, below = link_labels(link)
    if outer:
        x, y = places[outer]
        y, lines = y + NODE_HEIGHT / 2 - 3, [[], [*above, *below]]
    else:
        (x0, y0), (x1, y1) = (places[end] for end in link.ends)
        x, y, lines = (x0 + x1) / 2, (y0 + y1) / 2 + TWIN * aside, [above, below] if x0 < x1 else [below, above]
        if aside:
            lines = [[*above, *below], []][::-aside]
    colour = "ink" if link.name in STUDIED else "soft"
    for side, texts in zip((-1, 1), lines, strict=True):
        for number, text in enumerate(texts[::side]):
            at = y + side * (12.5 + 13 * number)
            picture.labels.append(Label(x, at, _fitted(text, 10.5, LABEL_ROOM), colour, 10.5))
