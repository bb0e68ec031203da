"""Drawings of lines, boxes, marks and text, written as SVG (for a page, or to stand alone) or as PDF.

A shape has an ink, not a colour: on a page the style sheet colours it, light or dark; in a file the print palette does.
Coordinates are in points from the top left.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Point = tuple[float, float]

#: Ink to colour, on paper. The six series colours differ in lightness too, for those who see few hues and for print.
PRINT = {
    "ink": "#1c2321", "soft": "#5d6966", "line": "#d5dbd8", "paper": "#ffffff", "raised": "#f4f6f4",
    "s0": "#1f5fa8", "s1": "#c8541c", "s2": "#2f8f4e", "s3": "#8a4fb0", "s4": "#a57c00", "s5": "#1c9a9a",
    "s6": "#b0306a", "s7": "#5b6670", "mark": "#d1351c",
}  # fmt: skip
SERIES = 8
DASHES = ((), (6.0, 3.0), (2.0, 2.5), (8.0, 3.0, 2.0, 3.0))
MARKERS = ("circle", "square", "diamond", "triangle")

#: Advance widths of Helvetica for the characters 32 to 126, in thousandths of the size (Adobe's metrics of the font).
_TABLE = """
    278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556
    556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778
    722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222
    500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584
"""
_WIDTHS = [int(word) for word in _TABLE.split()]


def text_width(text: str, size: float) -> float:
    """About how wide a text is."""
    return sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else 556 for c in text) * size / 1000


def fitted(text: str, size: float, width: float) -> str:
    """A text cut to a width, with an ellipsis where it was longer."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


@dataclass(frozen=True)
class Line:
    """A line through points, or a closed shape filled with the ink."""

    points: Sequence[Point]
    ink: str = "ink"
    width: float = 1.0
    dash: Sequence[float] = ()
    closed: bool = False


@dataclass(frozen=True)
class Rect:
    """A box, filled with `ink`, with an outline if there is one."""

    x: float
    y: float
    width: float
    height: float
    ink: str = "ink"
    outline: str = ""
    radius: float = 0.0
    title: str = ""


@dataclass(frozen=True)
class Dot:
    """A mark at a point; `filled` or only its outline."""

    at: Point
    ink: str = "ink"
    size: float = 3.0
    shape: str = "circle"
    filled: bool = True
    title: str = ""


@dataclass(frozen=True)
class Text:
    """One line of text; `anchor` is start, middle or end; turned a quarter to the left if it is upright."""

    at: Point
    text: str
    ink: str = "ink"
    size: float = 11.0
    anchor: str = "start"
    bold: bool = False
    upright: bool = False


Shape = Line | Rect | Dot | Text

#: Characters that Helvetica's encoding lacks, by ones it has.
_FOR_PDF = str.maketrans({"→": "»", "←": "«", "↔": "«»", "≤": "<=", "≥": ">=", "−": "-"})


@dataclass
class Drawing:
    """A sheet with shapes on it, in the order in which they are painted."""

    width: float
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Puts shapes on top."""
        self.shapes.extend(shapes)

    def svg(self, page: bool = False) -> str:
        """As SVG: for a page its inks are classes, otherwise it carries its colours."""
        size = "" if page else f' width="{self.width:g}" height="{self.height:g}"'
        family = "" if page else ' font-family="Helvetica, Arial, sans-serif"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"{size}{family} '
            f'role="img" aria-label="{_attribute(self.title)}" class="drawing">'
        ]
        if not page:
            parts.append(f"<title>{escape(self.title)}</title>")
            parts.append(f'<rect width="100%" height="100%" fill="{PRINT["paper"]}"/>')
        paint = _on_page if page else _on_paper
        parts += [_svg(shape, paint) for shape in self.shapes]
        return "\n".join([*parts, "</svg>"])

    def pdf(self) -> bytes:
        """As one PDF page of the drawing's size, all of it vectors, in Helvetica."""
        body = "\n".join(self._pdf_commands()).encode("cp1252", errors="replace")
        packed = zlib.compress(body, 9)
        title = self.title.encode("utf-16-be").hex().upper()
        objects = [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {self.width:g} {self.height:g}] /Contents 4 0 R /Resources "
            "<< /Font << /F1 5 0 R /F2 6 0 R >> >> >>".encode(),
            f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode() + packed + b"\nendstream",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
            f"<< /Title <FEFF{title}> /Producer (Backchannel) >>".encode(),
        ]
        out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
        offsets = []
        for number, content in enumerate(objects, 1):
            offsets.append(len(out))
            out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
        table = len(out)
        out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
        out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
        out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 7 0 R >>\nstartxref\n{table}\n%%EOF\n".encode()
        return bytes(out)

    def _pdf_commands(self) -> Iterable[str]:
        # PDF counts from the bottom; turning the sheet over would mirror the text, so each y is turned instead.
        def y(value: float) -> float:
            return self.height - value

        for shape in self.shapes:
            match shape:
                case Line():
                    if len(shape.points) < 2:
                        continue
                    path = " l ".join(
                        f"{px:.2f} {y(py):.2f}" + (" m" if not n else "") for n, (px, py) in enumerate(shape.points)
                    )
                    path = path.replace(" m l ", " m ") + " l"
                    if shape.closed:
                        yield f"{_rgb(shape.ink)} rg {path} h f"
                    else:
                        dash = " ".join(f"{one:g}" for one in shape.dash)
                        yield f"{_rgb(shape.ink)} RG {shape.width:g} w 1 j [{dash}] 0 d {path} S [] 0 d"
                case Rect():
                    box = f"{shape.x:.2f} {y(shape.y + shape.height):.2f} {shape.width:.2f} {shape.height:.2f} re"
                    yield f"{_rgb(shape.ink)} rg {box} f"
                    if shape.outline:
                        yield f"{_rgb(shape.outline)} RG 0.8 w {box} S"
                case Dot():
                    corners = _corners(shape)
                    if corners:
                        first, *others = [f"{px:.2f} {y(py):.2f}" for px, py in corners]
                        path = f"{first} m " + " ".join(f"{one} l" for one in others) + " h"
                    else:
                        path = _circle(shape.at[0], y(shape.at[1]), shape.size)
                    ink = _rgb(shape.ink)
                    yield f"{ink} rg {path} f" if shape.filled else f"{ink} RG 1.3 w {path} S"
                case Text():
                    size = shape.size
                    wide = text_width(shape.text, size) * (1.06 if shape.bold else 1)
                    back = {"start": 0.0, "middle": wide / 2, "end": wide}[shape.anchor]
                    px, py = shape.at
                    turn = f"0 1 -1 0 {px + 0.35 * size:.2f} {y(py) - back:.2f}" if shape.upright else (
                        f"1 0 0 1 {px - back:.2f} {y(py) - 0.35 * size:.2f}"
                    )  # fmt: skip
                    told = shape.text.translate(_FOR_PDF).replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
                    font = "F2" if shape.bold else "F1"
                    yield f"BT {_rgb(shape.ink)} rg /{font} {size:g} Tf {turn} Tm ({told}) Tj ET"


def _on_page(ink: str, kind: str) -> str:
    return f'class="{kind}-{ink}"'


def _on_paper(ink: str, kind: str) -> str:
    return f'{kind}="{PRINT[ink]}"'


def _svg(shape: Shape, paint: object) -> str:
    assert callable(paint)
    match shape:
        case Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            if shape.closed:
                return f'<polygon points="{points}" {paint(shape.ink, "fill")}/>'
            dash = f' stroke-dasharray="{" ".join(f"{one:g}" for one in shape.dash)}"' if shape.dash else ""
            return (
                f'<polyline points="{points}" fill="none" {paint(shape.ink, "stroke")} stroke-width="{shape.width:g}" '
                f'stroke-linejoin="round"{dash}/>'
            )
        case Rect():
            # One class attribute alone is read: an outline is a shape of its own.
            wide, high = max(shape.width, 0.0), max(shape.height, 0.0)
            box = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            box += f' rx="{shape.radius:g}"' if shape.radius else ""
            filled = _titled("rect", f"{box} {paint(shape.ink, 'fill')}", shape.title)
            return filled + (f'<rect {box} fill="none" {paint(shape.outline, "stroke")}/>' if shape.outline else "")
        case Dot():
            look = (
                paint(shape.ink, "fill")
                if shape.filled
                else f'fill="none" stroke-width="1.5" {paint(shape.ink, "stroke")}'
            )
            corners = _corners(shape)
            if corners:
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
                return _titled("polygon", f'points="{points}" {look}', shape.title)
            x, y = shape.at
            return _titled("circle", f'cx="{x:.1f}" cy="{y:.1f}" r="{shape.size:g}" {look}', shape.title)
        case Text():
            x, y = shape.at
            turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if shape.upright else ""
            bold = ' font-weight="600"' if shape.bold else ""
            return (
                f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" text-anchor="{shape.anchor}" font-size="{shape.size:g}"'
                f"{bold} {paint(shape.ink, 'fill')}{turn}>{escape(shape.text)}</text>"
            )


def _titled(tag: str, attributes: str, title: str) -> str:
    return f"<{tag} {attributes}><title>{escape(title)}</title></{tag}>" if title else f"<{tag} {attributes}/>"


def _corners(dot: Dot) -> list[Point]:
    (x, y), r = dot.at, dot.size
    match dot.shape:
        case "square":
            r *= 0.9
            return [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
        case "diamond":
            r *= 1.3
            return [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
        case "triangle":
            r *= 1.25
            return [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)]
        case "cross":
            # Its own outline, as one shape.
            a, b = r, r / 3
            turned = [
                (-a, -b),
                (-b, -b),
                (-b, -a),
                (b, -a),
                (b, -b),
                (a, -b),
                (a, b),
                (b, b),
                (b, a),
                (-b, a),
                (-b, b),
                (-a, b),
            ]
            return [(x + px * 0.707 - py * 0.707, y + px * 0.707 + py * 0.707) for px, py in turned]
    return []


def _circle(x: float, y: float, r: float) -> str:
    # Four Bezier quarters; 0.5523 makes them round.
    k = 0.5523 * r
    quarters = (
        (x + r, y + k, x + k, y + r, x, y + r),
        (x - k, y + r, x - r, y + k, x - r, y),
        (x - r, y - k, x - k, y - r, x, y - r),
        (x + k, y - r, x + r, y - k, x + r, y),
    )
    return f"{x + r:.2f} {y:.2f} m " + " ".join(
        " ".join(f"{one:.2f}" for one in quarter) + " c" for quarter in quarters
    )


def _rgb(ink: str) -> str:
    text = PRINT[ink].lstrip("#")
    return " ".join(f"{int(text[at : at + 2], 16) / 255:.3f}" for at in (0, 2, 4))


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})
