"""Figures of a run for its page and its API: those of the registry, kept as long as the run's tables do not change."""

from __future__ import annotations

import math
from dataclasses import replace

from analysis.captures import RunData
from analysis.figures import run as figures
from analysis.figures.model import Figure
from analysis.figures.registry import FIGURES, LEAST_SLICE_S, Asked, draw, side_of
from analysis.handle import StoredRun
from analysis.routes import direction_name
from analysis.runs import RunView, Unmeasured
from web.cache import derived

#: Points of a series at most; extremes are kept where there are more, and retransmissions and losses all stay.
POINTS = 4000


def figure(run: StoredRun, kind: str, of: str, span_s: float = math.inf) -> Figure:
    """A figure of a run; without data, it says why.

    Args:
        run: of the store.
        kind: of the registry.
        of: a flow, a side of the network that receives, or a line; empty: all of them.
        span_s: of the period that is shown. Slices are about a hundredth of it.
    """
    duration_s = float(run.row.duration_s)
    # Halved as often as the period fits twice into the run, so that few widths are made.
    halvings = max(math.floor(math.log2(duration_s / max(span_s, 1e-6))), 0)
    slice_s = max(duration_s / 100 / 2**halvings, LEAST_SLICE_S) if FIGURES[kind].sliced else duration_s
    asked = Asked(0.0, duration_s, slice_s, "kbit/s")

    def make() -> Figure:
        return replace(draw(view(run), kind, [of] if of else [], asked), title="")

    def size(made: Figure) -> int:
        return sum(int(line.points.estimated_size()) for line in made.series)

    try:
        return derived(run.folder, (kind, of, slice_s), make, size)
    except Unmeasured as error:
        return figures.nothing(sentence(error))


def view(run: StoredRun) -> RunView:
    """A run whose tables are read in part, when they are needed. Its connections are kept."""
    known = derived(
        run.folder,
        ("view",),
        lambda: run.view(lazy=True),
        lambda made: int(made.connections.estimated_size()) if isinstance(made, RunData) else 0,
    )
    # A view keeps what was asked of it, which must not outlast the request.
    return replace(known) if isinstance(known, RunData) else known


def captured(run: StoredRun) -> RunData:
    """A run's captures.

    Raises:
        Unmeasured: it has none.
    """
    seen = view(run)
    if not isinstance(seen, RunData):
        raise Unmeasured("this run kept no captures")
    return seen


def sentence(error: Exception) -> str:
    """An error as a sentence of a page."""
    return f"{str(error)[0].upper()}{str(error)[1:]}."


def names(run: StoredRun, kind: str) -> list[str]:
    """What a figure of this kind can show: flows, sides that receive, or lines."""
    scenario = run.row.documents.scenario
    if FIGURES[kind].per == "line":
        return [
            f"{link.name}/{direction_name(port)}" for link in scenario.links for port in range(max(len(link.ends), 2))
        ]
    flows = [spec.name for spec in scenario.workload]
    return flows if FIGURES[kind].single else flows + [side_of(spec.to) for spec in scenario.workload]
