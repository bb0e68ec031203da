"""A picture of wires, boxes and labels: templates/topology.svg draws it on pages, matplotlib as PDF."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from flask import render_template
from markupsafe import Markup

from analysis.figures.model import PALETTE


@dataclass(frozen=True)
class Wire:
    """A line from left to right; with an arrow head in the key of the flows."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: str
    width: float
    arrow: bool = False


@dataclass(frozen=True)
class Box:
    """A node."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    radius: float


@dataclass(frozen=True)
class Label:
    """One line of text, centred at a point or starting there."""

    x: float
    y: float
    text: str
    colour: str = "ink"
    size: float = 11.0
    centred: bool = True
    bold: bool = False


@dataclass
class Picture:
    """A picture in points, from the top left."""

    width: float
    height: float
    description: str
    wires: list[Wire] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def svg(self, page: bool = False) -> Markup:
        """As SVG: part of a page, whose style sheet colours it, or a file with colours of its own."""
        return Markup(render_template("topology.svg", picture=self, page=page, palette=PALETTE))

    def pdf(self) -> bytes:
        """As PDF, drawn by matplotlib."""
        from matplotlib.figure import Figure
        from matplotlib.patches import FancyBboxPatch

        sheet = Figure(figsize=(self.width / 72, self.height / 72))
        axes = sheet.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        for wire in self.wires:
            ends = {"xy": (wire.x1, wire.y1), "xytext": (wire.x0, wire.y0)}
            arrow = {"arrowstyle": "-|>" if wire.arrow else "-", "color": PALETTE[wire.colour], "lw": wire.width}
            axes.annotate("", **ends, arrowprops=arrow | {"shrinkA": 0, "shrinkB": 0})  # type: ignore[arg-type]
        for box in self.boxes:
            shape = f"round,pad=0,rounding_size={box.radius}"
            outline = FancyBboxPatch(
                (box.x, box.y), box.width, box.height, boxstyle=shape, fc="#f4f6f4", ec=PALETTE[box.colour], lw=0.8
            )
            axes.add_patch(outline)
        for label in self.labels:
            axes.text(
                label.x,
                label.y,
                label.text,
                color=PALETTE[label.colour],
                size=label.size * 0.82,
                va="center",
                ha="center" if label.centred else "left",
                weight="bold" if label.bold else "normal",
            )
        file = io.BytesIO()
        sheet.savefig(file, format="pdf", metadata={"CreationDate": None})
        return file.getvalue()
