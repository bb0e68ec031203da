"""Mermaid's `graph TD` as an SVG picture, for the site of the documentation, which loads no script from the network.

Layers are longest paths (Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11(2), 1981): a link over several of them gets a
bend in each, and a few sweeps by barycentres order a layer's nodes and bends. GitHub draws the same text by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from statistics import mean
from typing import Any

#: Sizes in CSS pixels.
CHARACTER, PADDING, HEIGHT, GAP, RISE = 7.6, 20, 30, 14, 66
NODE = re.compile(r"(\w[\w-]*)(?:\[([^\]]+)\])?")
SWEEPS = 24


@dataclass
class Node:
    """A box, or a bend of an arrow if it has no label."""

    label: str
    layer: int = 0
    x: float = 0.0
    above: list[Node] = field(default_factory=list)
    below: list[Node] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Width in pixels."""
        return len(self.label) * CHARACTER + PADDING if self.label else PADDING


def parse(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Labels of nodes by name, and arrows.

    Raises:
        ValueError: a line is not of the part of Mermaid's language that this module draws.
    """
    first, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    if first != "graph TD":
        raise ValueError(f"a diagram starts with 'graph TD', not '{first}'")
    labels: dict[str, str] = {}
    arrows: list[tuple[str, str]] = []
    for line in lines:
        groups: list[list[str]] = []
        for part in line.split("-->"):
            nodes = [NODE.fullmatch(word.strip()) for word in part.split(" & ")]
            if not all(nodes):
                raise ValueError(f"'{line}' is not drawn: nodes are NAME or NAME[LABEL], joined by ' & ' and '-->'")
            for node in filter(None, nodes):
                labels[node[1]] = node[2] or labels.get(node[1], node[1])
            groups.append([node[1] for node in nodes if node])
        arrows += [(a, b) for above, below in pairwise(groups) for a in above for b in below]
    return labels, arrows


def layered(labels: dict[str, str], arrows: list[tuple[str, str]]) -> list[list[Node]]:
    """Nodes and bends by layer, from left to right, with their places.

    Raises:
        ValueError: the arrows make a circle.
    """
    nodes = {name: Node(label) for name, label in labels.items()}
    for _ in nodes:
        for above, below in arrows:
            nodes[below].layer = max(nodes[below].layer, nodes[above].layer + 1)
    if any(nodes[below].layer <= nodes[above].layer for above, below in arrows):
        raise ValueError("the arrows of a diagram make a circle")
    layers: list[list[Node]] = [[] for _ in range(max(node.layer for node in nodes.values()) + 1)]
    for node in nodes.values():
        layers[node.layer].append(node)
    for above, below in arrows:
        last = nodes[above]
        for number in range(last.layer + 1, nodes[below].layer):
            bend = Node("", number)
            layers[number].append(bend)
            _join(last, bend)
            last = bend
        _join(last, nodes[below])
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = [mean(other.x for other in (node.above if down else node.below) or [node]) for node in layer]
            if sweep < SWEEPS:
                _order(layer, wanted)
            else:
                _relax(layer, wanted)
    return layers


def _join(above: Node, below: Node) -> None:
    above.below.append(below)
    below.above.append(above)


def _apart(left: Node, right: Node) -> float:
    return (left.width + right.width) / 2 + GAP


def _order(layer: list[Node], wanted: list[float]) -> None:
    """Sorts a layer by the places of its neighbours, and packs it around 0."""
    places = {id(node): place for node, place in zip(layer, wanted, strict=True)}
    layer.sort(key=lambda node: places[id(node)])
    layer[0].x = 0.0
    for left, right in pairwise(layer):
        right.x = left.x + _apart(left, right)
    middle = (layer[0].x + layer[-1].x) / 2
    for node in layer:
        node.x -= middle


def _relax(layer: list[Node], wanted: list[float]) -> None:
    """Moves the nodes of a layer towards their neighbours, as far as those beside them leave room."""
    for number, (node, place) in enumerate(zip(layer, wanted, strict=True)):
        if number > 0:
            place = max(place, layer[number - 1].x + _apart(layer[number - 1], node))
        if number + 1 < len(layer):
            place = min(place, layer[number + 1].x - _apart(node, layer[number + 1]))
        node.x = place


def _arrow(above: Node, below: Node, left: float) -> str:
    """A curve from a box over the bends to the next box."""
    stops = [below]
    while not stops[-1].label:
        stops += stops[-1].below
    x, y = above.x - left, float(above.layer * RISE + 2 + HEIGHT)
    path = f"M{x:.1f} {y}"
    for stop in stops:
        end = stop.layer * RISE + 2 + (-5 if stop.label else HEIGHT / 2)
        path += f"C{x:.1f} {(y + end) / 2} {stop.x - left:.1f} {(y + end) / 2} {stop.x - left:.1f} {end}"
        x, y = stop.x - left, end
    return path


def svg(text: str) -> str:
    """The picture of a diagram; colours and fonts are the page's."""
    layers = layered(*parse(text))
    everything = [node for layer in layers for node in layer]
    left = min(node.x - node.width / 2 for node in everything) - 2
    width = max(node.x + node.width / 2 for node in everything) + 2 - left
    height = (len(layers) - 1) * RISE + HEIGHT + 4
    paths: list[str] = []
    boxes: list[str] = []
    for node in filter(lambda node: node.label, everything):
        x, y = node.x - left, node.layer * RISE + 2
        boxes.append(f'<rect x="{x - node.width / 2:.1f}" y="{y}" width="{node.width:.1f}" height="{HEIGHT}" rx="5"/>')
        boxes.append(f'<text x="{x:.1f}" y="{y + HEIGHT / 2 + 4.5}">{escape(node.label)}</text>')
        for below in node.below:
            paths.append(f'<path d="{_arrow(node, below, left)}" marker-end="url(#arrow)"/>')
    marker = '<marker id="arrow" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
        f'<defs>{marker}<path d="M0 0L8 4L0 8z"/></marker></defs>{"".join(paths)}{"".join(boxes)}</svg>'
    )


def fence(source: str, *_: Any, **__: Any) -> str:
    """A fenced block of the language `mermaid`, as pymdownx.superfences asks for it."""
    return f'<div class="diagram">{svg(source)}</div>'
