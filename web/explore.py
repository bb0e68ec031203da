"""The explorer of a campaign: one metric over any fields, its panels and its runs; the address holds the whole view."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from flask import Blueprint, Response, abort, g, render_template, request, url_for

from analysis.figures import explorer, means
from analysis.figures.cells import Sample
from analysis.figures.explorer import KINDS, SLOTS, Layout, View
from analysis.figures.model import csv_text
from analysis.results import ValueRow
from analysis.statistics import RunKey
from analysis.store.rows import CampaignRow
from web import campaign_data
from web.cache import cached
from web.campaign_data import Kind, head, points
from web.figures import answer, attachment, embedded

blueprint = Blueprint("explore", __name__)

#: Pinned runs of a view, and rows of the table of its means.
MOST_PINS, MOST_ROWS = 25, 400


@dataclass(frozen=True)
class Explored:
    """A view of a metric, with the fields' values that it keeps."""

    kind: Kind
    #: Swept fields and all of their values.
    axes: Mapping[str, Sequence[str]]
    chosen: Mapping[str, Sequence[str]]
    view: View

    @cached_property
    def cells_of(self) -> dict[str, list[int]]:
        """The cells of each run."""
        by_run: dict[str, list[int]] = {}
        for panel in self.view.panels:
            for cell in panel.cells:
                for sample in cell.samples:
                    by_run.setdefault(sample.run_id, []).append(cell.number)
        return by_run

    def runs_in(self, box: Box) -> tuple[str, ...]:
        """Ids of the runs in a box over one of the panels."""
        panel = self.view.panels[box.panel]
        cells, runs = explorer.selected(panel.figure, box.x, box.y)
        of_cells = {sample.run_id for cell in panel.cells if cell.number in cells for sample in cell.samples}
        return tuple(sorted(runs | of_cells))


@dataclass(frozen=True)
class Box:
    """A box that was dragged over a panel, in units of its axes."""

    panel: int
    x: tuple[float, float]
    #: None: all of the panel's height.
    y: tuple[float, float] | None


@blueprint.get("/campaigns/<campaign_id>/explore")
def show(campaign_id: str) -> str:
    """Panels and runs of the view that the address describes."""
    campaign = head(campaign_id)
    axes = campaign_data.axes_of(campaign_id)
    explored, query = _explored(campaign), campaign_data.asked(campaign_id)
    ignored = campaign_data.ignored(campaign_id, axes)
    box = _box(len(explored.view.panels) if explored else 0)
    if request.args.get("box") and box is None:
        ignored.append("The box over a figure is not PANEL:FROM:TO:FROM:TO of a panel here. It is left out.")
    if explored and box:
        inside = explored.runs_in(box)
        query = replace(query, only=tuple(run_id for run_id in inside if query.only is None or run_id in query.only))
    page = campaign_data.runs(campaign_id, query)
    wanted = tuple(request.args.getlist("pin")[:MOST_PINS])
    pinned = campaign_data.runs(campaign_id, replace(query, state="", words=(), points=None, only=wanted, page=1)).runs
    pins = [pin.run_id for pin in pinned]
    ignored += [
        f"Unknown run '{run_id}': not in this campaign, so it is not pinned." for run_id in wanted if run_id not in pins
    ]
    layout = explored.view.layout if explored else Layout("means")
    return render_template(
        "explore.html",
        campaign=campaign,
        ignored=ignored,
        explored=explored,
        axes=axes,
        kinds_of=_by_subject(campaign_data.all_kinds(campaign_id)),
        against=_against(campaign_id),
        limits=campaign_data.limits(campaign_id)[0],
        kind_names=KINDS,
        slots=SLOTS,
        layout=layout,
        figures=[embedded(panel.figure) for panel in explored.view.panels] if explored else [],
        file=_file_address(campaign_id),
        most_rows=MOST_ROWS,
        box=box,
        asked=query,
        runs=page.runs,
        pinned=pinned,
        pins=pins,
        notes=campaign_data.notes(campaign_id),
        tags=campaign_data.tags(campaign_id),
        total=page.total,
        pages=max(math.ceil(page.total / query.per_page), 1),
        columns=campaign_data.columns(campaign_id),
        parameters={point.number: dict(point.parameters) for point in points(campaign_id)},
        again=lambda **changes: campaign_data.address("explore.show", campaign_id, changes),
        short=means.short,
        place_label=means.place_label,
    )


@blueprint.get("/campaigns/<campaign_id>/explore.<kind>")
def file(campaign_id: str, kind: str) -> Response:
    """A panel (`panel`, from 0) as SVG, PDF, PNG or CSV; without it, the means of all panels as CSV."""
    campaign = head(campaign_id)
    explored = _explored(campaign)
    if explored is None:
        abort(404, "This campaign has no valid run yet.")
    name, number = f"{campaign.name}-{explored.kind.metric}", request.args.get("panel", -1, int)
    if number < 0 and kind == "csv":
        return attachment(_means(explored), "csv", name)
    if not 0 <= number < len(explored.view.panels):
        abort(404, f"Unknown panel {number}; allowed: 0 to {len(explored.view.panels) - 1}.")
    figure = explored.view.panels[number].figure
    return answer(figure, kind, f"{name}-{number}", lambda: figure.as_csv(figure.x.label or "x"))


def _means(explored: Explored) -> str:
    """A line for each cell, in SI units."""
    fields = list(explored.axes)
    columns = [*fields, "metric", "flow", "unit", "runs", "points", "mean", "low_95", "high_95"]
    kind = explored.kind
    rows = []
    for panel in explored.view.panels:
        for cell in panel.cells:
            made = cell.estimate
            numbers = ["", "", ""] if made is None else [made.mean, *made.ends]
            place = [cell.place.get(name, "") for name in fields]
            rows.append([*place, kind.metric, kind.subject, kind.unit, cell.runs, cell.points, *numbers])
    return csv_text(columns, rows)


def _explored(campaign: CampaignRow) -> Explored | None:
    """The view that the address asks for; None without results."""
    kind = campaign_data.chosen_kind(campaign)
    if kind is None:
        return None
    axes = campaign_data.axes_of(campaign.id)
    chosen = campaign_data.filtered(axes)
    layout = _layout(chosen)
    across = _against(campaign.id) if layout.kind == "against" else None
    within = campaign_data.within_limits(campaign.id)
    key = (
        "explored",
        campaign.id,
        kind.key,
        layout,
        across,
        within,
        tuple((name, *values) for name, values in chosen.items()),
    )
    return cached(key, lambda: _made(campaign.id, kind, axes, chosen, layout, across, within))


def _made(
    campaign_id: str,
    kind: Kind,
    axes: Mapping[str, list[str]],
    chosen: Mapping[str, list[str]],
    layout: Layout,
    across: Kind | None,
    within: frozenset[str] | None,
) -> Explored:
    parameters = {point.number: dict(point.parameters) for point in points(campaign_id)}
    kept = set(campaign_data.chosen_points(campaign_id, chosen))
    values = _values(campaign_id, kind)
    samples = [
        Sample(row.point, RunKey(row.repetition, row.seed), row.run_id, parameters[row.point], row.value)
        for row in values
        if row.point in kept and (within is None or row.run_id in within)
    ]
    of_x = None
    if across is not None:
        by_run = {row.run_id: row.value for row in _values(campaign_id, across)}
        of_x = explorer.Across(across.label, across.unit, by_run)
    return Explored(kind, axes, chosen, explorer.view(samples, chosen, layout, kind, kind.label, of_x))


def _values(campaign_id: str, kind: Kind) -> Sequence[ValueRow]:
    """The metric's values of all valid runs."""
    return cached(("values", campaign_id, kind.key), lambda: g.store.values(campaign_id, only=[kind[:2]]))


def _against(campaign_id: str) -> Kind | None:
    """The metric on the x axis of a view of two metrics; without one in the address, the second."""
    known = {kind.key: kind for kind in campaign_data.all_kinds(campaign_id)}
    usual = [kind.key for kind in campaign_data.kinds(campaign_id)][1:2]
    return next((known[key] for key in [request.args.get("against", ""), *usual] if key in known), None)


def _layout(axes: Mapping[str, Sequence[str]]) -> Layout:
    """The kind of view and the fields in its slots; a field is drawn once."""
    usual = explorer.default_layout(axes)
    asked = {slot: request.args.get(slot, "") for slot in SLOTS}
    chosen = {slot: name for slot, name in asked.items() if name in axes or name == "none"}
    slots: dict[str, str] = {}
    for slot in [*chosen, *(slot for slot in SLOTS if slot not in chosen)]:
        name = chosen.get(slot, getattr(usual, slot))
        slots[slot] = "" if name == "none" or name in slots.values() else name
    kind = request.args.get("kind", "")
    if kind not in KINDS:
        kind = usual.kind if slots["x"] and (usual.kind != "heatmap" or slots["colour"]) else "means"
    log = tuple(axis for axis in ("x", "y") if axis in request.args.getlist("log"))
    return Layout(kind, **slots, log=log)


def _box(panels: int) -> Box | None:
    """The box that the address names: PANEL:FROM:TO, or with FROM:TO of the y axis."""
    panel, *ends = request.args.get("box", "").split(":")
    try:
        numbers = [float(end) for end in ends]
        number = int(panel)
    except ValueError:
        return None
    if not 0 <= number < panels or len(numbers) not in (2, 4) or not all(map(math.isfinite, numbers)):
        return None
    return Box(number, (numbers[0], numbers[1]), (numbers[2], numbers[3]) if len(numbers) == 4 else None)


def _by_subject(kinds: Sequence[Kind]) -> dict[str, list[Kind]]:
    """Metrics by what they are of: directions first, then the whole run, then lines and links."""
    by_subject: dict[str, list[Kind]] = {}
    for kind_ in sorted(kinds, key=lambda kind: "/" in kind.subject or ":" in kind.subject):
        by_subject.setdefault(kind_.subject or "whole run", []).append(kind_)
    return by_subject


def _file_address(campaign_id: str) -> str:
    """Address of the files of this view; KIND stands for the suffix."""
    query = request.query_string.decode("latin1")
    return url_for("explore.file", campaign_id=campaign_id, kind="KIND") + f"?{query}{'&' if query else ''}"
