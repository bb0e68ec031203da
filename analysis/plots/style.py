"""How figures look: sizes, colours, markers, in one place; and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.plots import page
from testbed import units

#: Inches: the column of a two-column paper, and half as high again for legends.
WIDTH_IN, HEIGHT_IN = 5.0, 3.2

#: Distinct for colour-blind readers (Okabe and Ito 2008), dark ones first for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DATA, AGAIN, ACK, SACK, WINDOW, DROP = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999", "#D55E00"

#: A series of more points than this is drawn as an image inside the vector file, at RASTER_DPI.
MOST_VECTORS = 20_000
RASTER_DPI = 400

#: What a file name may end in.
FORMATS = ("svg", "pdf", "png", "html")

_SETTINGS: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8, "xtick.labelsize": 8,
    "ytick.labelsize": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#dddddd", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.2,
    "legend.frameon": False, "svg.hashsalt": "backchannel", "svg.fonttype": "path", "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}  # fmt: skip


@contextmanager
def figure(title: str = "", width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, in this style. No window, no global state."""
    with matplotlib.rc_context(_SETTINGS):
        made = Figure(figsize=(width_in, height_in))
        axes = made.add_subplot()
        if title:
            axes.set_title(title, loc="left")
        yield made, axes


def save(made: Figure, path: Path) -> None:
    """Writes a figure as its file's ending says. Equal figures give equal files: no date, no random name inside.

    Raises:
        AnalysisError: another ending, or the file cannot be written.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise AnalysisError(f"{path}: a figure's name ends in {', '.join('.' + one for one in FORMATS)}")
    # The dates that would be written otherwise.
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending, {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if ending == "html":
            path.write_text(page.page(made), encoding="utf-8")
            return
        with matplotlib.rc_context(_SETTINGS):
            made.savefig(path, format=ending, dpi=RASTER_DPI, metadata=metadata)
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror or error}") from None


def scale(values: Sequence[float], unit: str) -> tuple[float, str]:
    """Size and name of the unit in which an axis up to the greatest of the values reads best.

    Args:
        values: in the SI unit; what is not finite does not count.
        unit: a metric's unit.
    """
    greatest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return units.scale_of(greatest, unit) if greatest > 0 else units.scale_of(1.0, unit)


def label(title: str, unit_name: str) -> str:
    """An axis title: "Throughput (Mbit/s)"."""
    return f"{title} ({unit_name})" if unit_name else title
