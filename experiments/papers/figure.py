"""The figure that a campaign file asks for (analysis/figures/spec.py), from stored results, with the published values.

Only what shows results reads targets; no code path that executes a run does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from analysis.counters import CountedRun
from analysis.errors import AnalysisError
from analysis.estimates import Estimate
from analysis.figures.means import dots, ends_of, means_note
from analysis.figures.model import Axis, Figure, Marker, Row, Series, csv_text, frame_of, style_of
from analysis.figures.registry import AskedOfCampaign, campaign_figure
from analysis.figures.spec import MEASURES, FigureSpec, size_of
from analysis.handle import StoredCampaign, StoredRun
from analysis.runs import KINDS, Kind
from experiments.papers.declared import CampaignFile
from experiments.papers.scorecard import results_table
from experiments.papers.table import Table, TableCell
from experiments.papers.targets import Expected, expected_of

#: Published values: what the legend calls them, and their marker.
PUBLISHED: dict[str, tuple[str, Marker]] = {
    "eq": ("published", "diamond"),
    "approx": ("published", "diamond"),
    "le": ("published, at most", "down"),
    "ge": ("published, at least", "triangle"),
}
#: Swept values up to this number are ticks themselves.
MOST_TICKS = 12


@dataclass(frozen=True)
class Point:
    """A mean at one position, with its error bar and the values published for it; all in the axes' units."""

    x: float
    label: str
    mean: float | None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    #: Of the runs; None for a point of a distribution or of a run.
    estimate: Estimate | None = None
    #: Value and relation (eq, approx, le, ge).
    published: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Curve:
    """One series."""

    name: str
    points: Sequence[Point]


#: Points of each series, by the labels that distinguish it.
Points = dict[tuple[str, ...], list[Point]]


@dataclass(frozen=True)
class CampaignFigure:
    """The values of a campaign's figure, as its file asks for them."""

    spec: FigureSpec
    title: str
    curves: Sequence[Curve]
    #: Positions and labels of an x axis of names.
    ticks: Sequence[tuple[float, str]]

    @property
    def has_published(self) -> bool:
        """Whether published values are drawn beside the points."""
        return any(point.published for curve in self.curves for point in curve.points)

    @property
    def note(self) -> str:
        """What the error bars are, and how many runs each mean has."""
        if self.spec.kind == "time":
            return "one run each: the first repetition"
        if self.spec.kind == "cdf":
            return "runs"
        estimates = [point.estimate for curve in self.curves for point in curve.points if point.estimate is not None]
        bars = "" if self.spec.error_bars == "none" else self.spec.error_bars
        return next(iter(means_note(estimates, bars)), "no run yet")

    @property
    def is_empty(self) -> bool:
        """Whether there is no value yet."""
        return not any(curve.points for curve in self.curves)

    def figure(self) -> Figure:
        """Its description."""
        spec = self.spec
        integers = not self.ticks and not spec.x.unit and spec.kind != "cdf" and spec.x.scale == "linear"
        x = Axis(
            spec.x.title or spec.x.axis,
            spec.x.unit,
            spec.x.scale == "log",
            spec.x.range,
            spec.kind != "cdf",
            self._ticks(),
            integers,
        )
        y = Axis(spec.y.title, spec.y.unit, spec.y.scale == "log", spec.y.range)
        series = tuple(line for number, curve in enumerate(self.curves) for line in self._series(number, curve))
        return Figure(x, y, series, self.title, (self.note,), "no valid run yet")

    def as_csv(self) -> str:
        """Its points, in the axes' units."""
        spec = self.spec
        head = [spec.x.title or spec.x.axis or "x", "label", "series", spec.y.title, "low", "high", "runs", "published"]
        rows = (
            [
                point.x,
                point.label,
                curve.name,
                point.mean,
                "" if point.low is None else point.low,
                "" if point.high is None else point.high,
                point.runs,
                " ".join(f"{value:g}" for value, _ in point.published),
            ]
            for curve in self.curves
            for point in curve.points
        )
        return csv_text(head, rows)

    def _ticks(self) -> tuple[tuple[float, str], ...]:
        if self.ticks:
            return tuple(self.ticks)
        places = sorted({point.x for curve in self.curves for point in curve.points})
        few = self.spec.kind in ("lines", "scatter") and len(places) <= MOST_TICKS
        return tuple((place, f"{place:.10g}") for place in places) if few else ()

    def _series(self, number: int, curve: Curve) -> list[Series]:
        kind, look = self.spec.kind, style_of(number)
        width, shift = 0.0, 0.0
        if kind == "bars":
            width = 0.8 / max(len(self.curves), 1)
            shift = (number - (len(self.curves) - 1) / 2) * width
        rows: list[Row] = [
            {"x": point.x + shift, "y": point.mean, "low": point.low, "high": point.high, "n": point.runs}
            for point in curve.points
            if point.mean is not None
        ]
        if kind == "cdf":
            # Every distribution starts at zero.
            rows = [*(Row(x=row["x"], y=0.0) for row in rows[:1]), *rows]
        extra = () if kind in ("cdf", "time") else ("low", "high", "n")
        points = frame_of(rows, *extra)
        match kind:
            case "bars":
                series = [Series(curve.name, "bars", points, look.colour, width=width * 0.92)]
            case "scatter":
                series = [Series(curve.name, "points", points, look.colour, look.marker, 6)]
            case "lines":
                series = [Series(curve.name, "line", points, look.colour, look.marker, dash=look.dash)]
            case _:
                drawn = "steps" if kind == "cdf" else "line"
                series = [Series(curve.name, drawn, points, look.colour, dash=look.dash, size=1.2)]  # type: ignore[arg-type]
        by_relation: dict[str, list[Row]] = {}
        for point in curve.points:
            for value, relation in point.published:
                by_relation.setdefault(relation, []).append({"x": point.x + shift, "y": value})
        colour = "ink" if kind == "bars" else look.colour
        marked = ((point.x + shift, point.estimate) for point in curve.points if point.estimate is not None)
        return [*series, *dots(marked, size_of(self.spec.y.unit), colour)] + [
            Series(PUBLISHED[relation][0], "points", frame_of(rows), colour, PUBLISHED[relation][1], 7, hollow=True)
            for relation, rows in by_relation.items()
        ]


def make(
    spec: FigureSpec,
    title: str,
    table: Table,
    published: Sequence[Expected] = (),
    counted: Sequence[tuple[Mapping[str, str], CountedRun]] = (),
) -> CampaignFigure:
    """The figure's points.

    Args:
        spec: how it is drawn.
        title: the campaign's.
        table: its results in the paper's terms.
        published: `expected` of the artefact's targets.
        counted: for `time`: labels and counters of one run of each point.
    """
    if spec.kind == "time":
        return CampaignFigure(spec, spec.title or title, _over_time(spec, counted), ())
    cells = [
        (measure, cell)
        for measure in spec.y.measures
        for cell in table.cells(measure)
        if all(cell.labels.get(axis) == label for axis, label in spec.where.items())
    ]
    if spec.kind == "cdf":
        return CampaignFigure(spec, spec.title or title, _distribution(spec, cells), ())
    labels = spec.x.order or list(dict.fromkeys(_place(spec, measure, cell) for measure, cell in cells))
    places, ticks = _places(spec, labels)
    size, points = size_of(spec.y.unit), _no_points(spec, cells)
    for measure, cell in cells:
        label = _place(spec, measure, cell)
        if label not in places:
            continue
        estimate = Estimate(tuple(cell.values), other_interval=cell.other_interval)
        low, high = ends_of(estimate, spec.error_bars) if spec.error_bars != "none" else (None, None)
        contained = [
            (float(value.value) / size, value.relation)
            for value in published
            if value.measure == measure and _names_it(value.cell, cell.labels, spec.x.axis)
        ]
        points[_series(spec, measure, cell)].append(
            Point(
                places[label],
                label,
                estimate.mean / size,
                None if low is None else low / size,
                None if high is None else high / size,
                estimate.n,
                estimate,
                contained,
            )
        )
    for of_series in points.values():
        of_series.sort(key=lambda point: point.x)
    return CampaignFigure(spec, spec.title or title, [curve for curve in _curves(spec, points) if curve.points], ticks)


def _place(spec: FigureSpec, measure: str, cell: TableCell) -> str:
    return measure if spec.x.axis == MEASURES else cell.labels.get(spec.x.axis, "")


def _names_it(published: Mapping[str, object], labels: Mapping[str, str], x_axis: str) -> bool:
    """Whether a target's cell is this one, and not an average over the figure's axis."""
    named = {axis: str(label) for axis, label in published.items()}
    if x_axis not in ("", MEASURES) and x_axis in labels and x_axis not in named:
        return False
    return all(labels.get(axis) == label for axis, label in named.items())


def _places(spec: FigureSpec, labels: Sequence[str]) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Position of each label, and the ticks of an axis without numbers."""
    if spec.x.at:
        return {label: spec.x.at[label] for label in labels if label in spec.x.at}, []
    if spec.kind != "bars":
        try:
            size = size_of(spec.x.unit)
            if all(math.isfinite(float(label)) for label in labels):
                return {label: float(label) / size for label in labels}, []
        except ValueError:
            pass
    places = {label: float(number) for number, label in enumerate(labels)}
    return places, [(place, spec.names.get(label, label)) for label, place in places.items()]


def _series(spec: FigureSpec, measure: str, cell: TableCell) -> tuple[str, ...]:
    """Labels that distinguish a series, before names replace them."""
    labels = [label for axis, label in cell.labels.items() if axis != spec.x.axis and axis not in spec.where]
    return (*labels, *([measure] if spec.x.axis != MEASURES and len(spec.y.measures) > 1 else []))


def _no_points(spec: FigureSpec, cells: Sequence[tuple[str, TableCell]]) -> Points:
    return {_series(spec, measure, cell): [] for measure, cell in cells}


def _curves(spec: FigureSpec, points: Points) -> list[Curve]:
    """Series with their names, in the order that is asked for; parts that all share are omitted."""
    keys = list(points)
    shared = {
        number
        for number in range(max(map(len, keys), default=0))
        if len({key[number : number + 1] for key in keys}) == 1
    }
    declared = spec.series
    rank = {name: number for number, name in enumerate(declared)}
    keys.sort(key=lambda key: [rank.get(part, len(declared)) for part in key])
    curves = []
    for key in keys:
        parts = [spec.names.get(part, part) for number, part in enumerate(key) if number not in shared]
        curves.append(Curve(", ".join(part for part in parts if part), points[key]))
    return curves


def _distribution(spec: FigureSpec, cells: Sequence[tuple[str, TableCell]]) -> list[Curve]:
    size, points = size_of(spec.x.unit), _no_points(spec, cells)
    for measure, cell in cells:
        values = sorted(value / size for value in cell.values)
        points[_series(spec, measure, cell)] += [
            Point(value, "", (number + 1) / len(values), runs=len(values)) for number, value in enumerate(values)
        ]
    return _curves(spec, points)


def _over_time(spec: FigureSpec, counted: Sequence[tuple[Mapping[str, str], CountedRun]]) -> list[Curve]:
    points: Points = {}
    x_size, y_size = size_of(spec.x.unit or "s"), size_of(spec.y.unit)
    for labels, run in counted:
        if any(labels.get(axis) != label for axis, label in spec.where.items()):
            continue
        for subject in spec.y.of:
            for counter in spec.y.counters:
                series = _counter(counter, spec.y.bins, run, subject)
                key = (*(label for axis, label in labels.items() if axis not in spec.where), subject, counter)
                points[key] = [Point(t / x_size, "", value / y_size, runs=1) for t, value in series]
    return [curve for curve in _curves(spec, points) if curve.points]


def _counter(counter: str, step: int, run: CountedRun, subject: str) -> list[tuple[float, float]]:
    """A counter over time: the end of each bin, and the value in it."""
    every = run.every_s
    match counter:
        case "delivered" | "throughput" | "cwnd":
            flow = run.flow_bins.get(subject)
            if flow is None:
                return []
            if counter == "cwnd":
                return _binned(flow["cwnd_segments"], every, step, mean=True)
            delivered = _binned(flow["delivered_bytes"], every, step, mean=False)
            if counter == "throughput":
                return [(t, value * 8 / (every * step)) for t, value in delivered]
            total, counted = 0.0, []
            for t, value in delivered:
                total += value
                counted.append((t, total))
            return counted
        case "utility":
            ways = [_bits(run, f"{subject}/{way}", ("data",)) for way in ("forward", "reverse")]
            both = [sum(pair) for pair in zip(*ways, strict=False)]
            return _binned(both, every, step, mean=True)
    only: dict[str, tuple[Kind, ...]] = {
        "utilisation_data": ("data",),
        "utilisation_acks": ("ack",),
        "carried_other": ("other",),
    }
    kinds = only.get(counter, KINDS)
    return _binned(_bits(run, subject, kinds, rate=counter != "carried_other"), every, step, mean=True)


def _bits(run: CountedRun, direction: str, kinds: Sequence[Kind], rate: bool = True) -> list[float]:
    """Share of the rate in each bin that these kinds of packets took; without `rate` in bit/s."""
    for line in run.lines:
        if line.name == direction:
            scale = (line.rate_bps or 1.0) if rate else 1.0
            sums = zip(*(line.bytes_of(kind) for kind in kinds), strict=True)
            return [sum(parts) * 8 / run.every_s / scale for parts in sums]
    return []


def _binned(values: Sequence[float], every_s: float, step: int, *, mean: bool) -> list[tuple[float, float]]:
    binned = []
    for first in range(0, len(values), step):
        part = [value for value in values[first : first + step] if value is not None]
        if part:
            binned.append(((first + len(part)) * every_s, statistics.fmean(part) if mean else sum(part)))
    return binned


@campaign_figure("figure", "the figure that the campaign file defines under `figure`, with the published values")
def figure(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """As published."""
    drawn = of_campaign(of)
    if drawn is None:
        raise AnalysisError(f"the file of campaign {of.row.name} has no `figure`; bars and sweep draw any metric")
    if drawn.is_empty:
        raise AnalysisError(f"no value yet for the figure '{drawn.title}'")
    return drawn.figure()


def of_campaign(campaign: StoredCampaign) -> CampaignFigure | None:
    """The figure of a stored campaign, with the published values of its artefact; None if its file has none."""
    file = CampaignFile(campaign.row.text)
    described = file.figure(campaign.row.backend)
    if described is None:
        return None
    try:
        spec, results = FigureSpec.model_validate(described), results_table(campaign)
    except ValidationError:
        # A campaign that was run has a file that was checked; one that came in a bundle need not.
        return None
    counted = _first_runs(campaign) if spec.kind == "time" else []
    return make(spec, file.title, results, expected_of(file.artefact), counted)


def _first_runs(campaign: StoredCampaign) -> list[tuple[Mapping[str, str], CountedRun]]:
    """The counters of each point's first valid run, and its labels."""
    store, runs = campaign.store, list[tuple[Mapping[str, str], CountedRun]]()
    parameters = {point.number: dict(point.parameters) for point in store.points(campaign.row.id)}
    drawn = set[int]()
    for member in store.members(campaign.row.id, list(parameters)):
        run = store.run(member.run_id) if member.state == "valid" and member.point not in drawn else None
        if run is not None and (counted := StoredRun(store, run).counters) is not None:
            drawn.add(member.point)
            runs.append((parameters[member.point], counted))
    return runs
