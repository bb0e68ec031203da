"""Runs or points of campaigns beside each other: figures on one time axis, and differences with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from flask import Blueprint, Response, abort, g, jsonify, render_template, request, url_for

from analysis.comparison import DIFFERING
from analysis.figures.means import Group, Mean, Means
from analysis.figures.model import COLOURS, Figure, Series
from analysis.figures.registry import FIGURES, RunKind
from analysis.metrics import title_of
from analysis.question import Question
from analysis.runs import Flow, Line
from analysis.statistics import RunKey
from experiments.api import point_label
from testbed.scenario import Scenario
from web import flow_roles, run_view, runs
from web.cache import cached
from web.campaign_data import apart, head, points, question_of
from web.compared import Row, Subject, difference_json, note_on, rows_of, verdicts
from web.figures import answer

blueprint = Blueprint("compare", __name__)

#: More could not be told apart.
MOST = 8


@blueprint.get("/compare")
def show() -> str:
    """`run` and `point` (CAMPAIGN:NUMBER), repeatable, name the subjects; the first is the reference."""
    subjects = _subjects()
    rows = _by_weight(_shown(subjects))
    scenario = _scenario(subjects[0]) if subjects else None
    flows = [flow.name for flow in scenario.workload] if scenario else []
    links = (
        [
            f"{link.name}/{side}"
            for link in scenario.links
            for side, direction in link.directions()
            if direction.rate_bps
        ]
        if scenario
        else []
    )
    studied = next(
        (link for link in links if link.startswith(("bottleneck/", "air/", "line/"))), links[0] if links else ""
    )
    flow = request.args.get("flow") or (flows[0] if flows else "")
    queue = request.args.get("queue") or studied.replace("/forward", "/reverse")
    means = _means(subjects, rows)
    bars = means.figure() if means else None
    return render_template(
        "compare.html",
        subjects=subjects,
        rows=rows,
        # Without a difference, what the campaigns ask about; of runs that are not judged, all.
        first_rows=sum(map(_tells, rows)) or sum(not row.exploratory for row in rows) or len(rows),
        flows=flows,
        flow=flow,
        links=links,
        queue=queue,
        duration=max((g.store.duration(subject.run_id) for subject in subjects), default=1.0),
        campaigns=g.store.campaigns(limit=12) if not subjects else [],
        most=MOST,
        without=_without,
        matches=_matches(subjects),
        reference_flows=_flow_names(subjects[0]) if subjects else [],
        comparisons=note_on(rows),
        verdicts=verdicts(subjects, rows),
        means=means,
        figure=bars,
        overlays=_overlays(flow, queue, bool(subjects) and all(map(_is_counted, subjects))),
        named=_named(),
    )


@blueprint.get("/compare/figure.<kind>")
def figure(kind: str) -> Response:
    """Its bars as SVG, PDF, PNG or CSV; arguments as the page has them."""
    subjects = _subjects()
    made = _means(subjects, _shown(subjects))
    if made is None:
        abort(404, "A figure needs two or more runs or combinations.")
    return answer(made.figure(), kind, f"compare-{made.metric}", made.as_csv)


@blueprint.get("/compare/plots/<kind>.<form>")
def plot_file(kind: str, form: str) -> Response:
    """Figures laid over each other, as SVG, PDF, PNG or CSV, over a period."""
    complete, (low, high) = _laid_over(kind)
    of = request.args.get("flow", "")
    name = f"compare-{kind}{f'-{of}' if of else ''}".replace("/", "-")
    title = next(word for known, word, _ in _overlays(of, of) if known == kind)
    drawn = replace(complete.within(low, high), title=title)
    return answer(drawn, form, name, lambda: complete.cut(low, high).as_csv("time_s"))


@blueprint.get("/api/compare/<kind>")
def plot(kind: str) -> Response:
    """Figures laid over each other: axes and series; `from` and `to` (s) choose a part."""
    complete, (low, high) = _laid_over(kind)
    return jsonify(complete.within(low, high, run_view.POINTS).as_json())


def _laid_over(kind: str) -> tuple[Figure, tuple[float, float]]:
    subjects = _subjects()
    if not subjects:
        abort(
            404,
            "There is nothing to compare: an address has run=ID for runs and point=CAMPAIGN:NUMBER for combinations.",
        )
    if kind not in overlaid():
        abort(404, f"Unknown plot {kind}; allowed: {', '.join(overlaid())}.")
    wanted = request.args.get("flow", "")
    period = runs.period_asked(max(g.store.duration(subject.run_id) for subject in subjects))
    flows = _flow_names(subjects[0])
    series: list[Series] = []
    figures: list[Figure] = []
    for subject in subjects:
        run, of = runs.stored(subject.run_id), wanted
        if figures:
            named = {other: name for name, other in _matched(subject, subjects[0]).items()}
            of = named.get(wanted, wanted)
            if wanted in flows and wanted not in named or of and of not in run_view.names(run, kind):
                # It has nothing that is compared with this flow or queue of the first.
                continue
        drawn = runs.figure(run, kind, of)
        figures.append(drawn)
        lines = FIGURES[kind].overlaid(drawn)
        series += [
            replace(
                line, name=f"{subject.label}: {line.name}" if len(lines) > 1 else subject.label, colour=subject.colour
            )
            for line in lines
        ]
    shown = next((figure_ for figure_ in figures if figure_.series), figures[0])
    return replace(shown, series=tuple(series)), period


@blueprint.get("/api/compare")
def as_json() -> Response:
    """Means, intervals and differences from the first subject, in SI units."""
    subjects = _subjects()
    metrics = []
    for row in rows_of(subjects, _asked):
        cells = [
            {
                "of": subject.key,
                "n": cell.estimate.n,
                "mean": cell.estimate.mean,
                "low_95": cell.estimate.ends[0],
                "high_95": cell.estimate.ends[1],
                "values": cell.estimate.values,
                **difference_json(cell.compared),
            }
            for subject, cell in zip(subjects, row.cells, strict=True)
            if cell is not None
        ]
        metrics.append({"metric": row.name, "flow": row.subject, "unit": row.unit, "cells": cells})
    return jsonify(
        {"subjects": [{"of": subject.key, "label": subject.label} for subject in subjects], "metrics": metrics}
    )


def _subjects() -> list[Subject]:
    asked = list(dict.fromkeys((kind, name) for kind in ("run", "point") for name in request.args.getlist(kind)))
    if len(asked) > MOST:
        abort(400, f"At most {MOST} can be compared at once; these are {len(asked)}.")
    makers = {"run": _run, "point": _point}

    def make(kind: str, name: str, colour: str) -> Subject:
        return cached(("subject", kind, name, colour), lambda: makers[kind](name, colour))

    subjects = [make(kind, name, COLOURS[number % len(COLOURS)]) for number, (kind, name) in enumerate(asked)]
    if len({subject.campaign_id for subject in subjects}) > 1:
        alike = len({subject.campaign for subject in subjects}) == 1
        origins = [apart(subject.campaign_id) if alike else subject.campaign for subject in subjects]
        subjects = [
            replace(subject, label=f"{origin}: {subject.label}" if origin else subject.label)
            for subject, origin in zip(subjects, origins, strict=True)
        ]
    subjects = [subjects[0], *(_renamed(subject, subjects[0]) for subject in subjects[1:])] if subjects else []
    labels = [subject.label for subject in subjects]
    # Equal points of several campaigns are numbered.
    return [
        subject if labels.count(subject.label) == 1 else replace(subject, label=f"{subject.label} ({number + 1})")
        for number, subject in enumerate(subjects)
    ]


def _by_hand() -> dict[str, str]:
    """What the address says of flows: `as` is FLOW:FLOW OF THE FIRST, or FLOW: for none."""
    pairs = (text.partition(":") for text in request.args.getlist("as"))
    return {name: other for name, colon, other in pairs if name and colon and other != "auto"}


def _scenario(subject: Subject) -> Scenario | None:
    """The scenario of the run that represents it."""
    scenario: Scenario | None = cached(("scenario", subject.run_id), lambda: g.store.scenario(subject.run_id))
    return scenario


def _flow_names(subject: Subject) -> list[str]:
    scenario = _scenario(subject)
    return list(dict.fromkeys(flow.group or flow.name for flow in scenario.workload)) if scenario else []


def _matched(subject: Subject, first: Subject) -> dict[str, str]:
    reference, other = _scenario(first), _scenario(subject)
    return flow_roles.matched(reference.workload, other.workload, _by_hand()) if reference and other else {}


def _renamed(subject: Subject, first: Subject) -> Subject:
    """The subject with its flows called as those of the first with which they are compared."""
    names = {name: other for name, other in _matched(subject, first).items() if name != other}
    if not names:
        return subject
    # A name that now means another flow no longer means its own.
    taken = set(names.values())
    values = {
        (metric, names.get(of, of)): runs_
        for (metric, of), runs_ in subject.values.items()
        if of in names or of not in taken
    }
    return replace(subject, values=values)


def _matches(subjects: Sequence[Subject]) -> dict[str, str]:
    """Flows of the others that the first does not have, to the flow that they are compared with, or ""."""
    if not subjects:
        return {}
    known, by_hand = _flow_names(subjects[0]), _by_hand()
    pairs: dict[str, str] = {}
    for subject in subjects[1:]:
        matched = _matched(subject, subjects[0])
        pairs |= {name: matched.get(name, "") for name in _flow_names(subject) if name not in known or name in by_hand}
    return pairs


def _tells(row: Row) -> bool:
    """Whether a row shows a difference, or is the metric that the address asks for."""
    wanted = request.args.get("metric", "") == f"{row.name}/{row.subject}"
    return wanted or any(cell is not None and cell.verdict in DIFFERING for cell in row.cells)


def _by_weight(rows: Sequence[Row]) -> list[Row]:
    """The chosen metric first, then rows that show a difference, then the others."""
    wanted = request.args.get("metric", "")
    return sorted(rows, key=lambda row: (f"{row.name}/{row.subject}" != wanted, not _tells(row)))


def _run(run_id: str, colour: str) -> Subject:
    run = runs.load(run_id)
    home = run.campaigns[0] if run.campaigns else None
    label = f"run {run_id[:8]}"
    key = RunKey(home.repetition if home else 0, run.seed)
    if home is not None:
        label = ", ".join(
            part for part in (point_label(dict(home.parameters)), f"repetition {home.repetition + 1}") if part
        )
    return Subject(
        f"run:{run_id}",
        label,
        home.id if home else "",
        home.name if home else "",
        home.title if home else "",
        url_for("runs.show", run_id=run_id),
        run_id,
        colour,
        {(metric.name, metric.subject): {key: metric.value} for metric in run.metrics},
        {metric.name: metric.unit for metric in run.metrics},
    )


def _point(name: str, colour: str) -> Subject:
    campaign_id, _, number = name.partition(":")
    campaign = head(campaign_id)
    point = next((point for point in points(campaign_id) if str(point.number) == number), None)
    if point is None:
        abort(404, f"Unknown parameter combination {number or '?'} of campaign {campaign_id}.")
    rows = g.store.values(campaign_id, [point.number])
    if not rows:
        abort(404, f"Combination {number} of {campaign.title} has no valid run yet.")
    values: dict[tuple[str, str], dict[RunKey, float]] = {}
    for row in rows:
        values.setdefault((row.name, row.subject), {})[RunKey(row.repetition, row.seed)] = row.value
    label = point_label(dict(point.parameters)) or "all runs"
    return Subject(
        f"point:{name}",
        label,
        campaign.id,
        campaign.name,
        campaign.title,
        url_for("campaigns.show", campaign_id=campaign_id),
        rows[0].run_id,
        colour,
        values,
        {row.name: row.unit for row in rows},
    )


def _asked(first: Subject, other: Subject) -> Question | None:
    """What the campaigns of two subjects ask."""
    mine, theirs = (question_of(subject.campaign_id) if subject.campaign_id else None for subject in (first, other))
    if mine is None or theirs is None or first.campaign_id == other.campaign_id:
        return mine or theirs
    return mine.to(theirs)


def _shown(subjects: Sequence[Subject]) -> list[Row]:
    """Rows without details, which are on a run's own page and in the JSON."""
    key = ("compared", tuple((subject.key, subject.label) for subject in subjects), tuple(request.args.getlist("as")))
    return cached(key, lambda: rows_of(subjects, _asked, details=False))


def _means(subjects: Sequence[Subject], rows: Sequence[Row]) -> Means | None:
    """Bars of the metric that the address asks for, one for each subject."""
    wanted = request.args.get("metric", "")
    row = next((row for row in rows if f"{row.name}/{row.subject}" == wanted), rows[0] if rows else None)
    if row is None or len(subjects) < 2:
        return None
    title = title_of(row.name)
    drawn = [
        Mean(subject.label, cell.estimate)
        for subject, cell in zip(subjects, row.cells, strict=True)
        if cell is not None
    ]
    return Means(
        title=f"{title}, {row.subject}" if row.subject else title,
        metric=row.name,
        subject=row.subject,
        unit=row.unit,
        x_field="",
        places=[subject.label for subject in subjects],
        sizes=None,
        kind="",
        groups=[Group("", drawn)],
        colours={subject.label: subject.colour for subject in subjects},
    )


def overlaid() -> dict[str, RunKind]:
    """The figures of runs that are laid over each other."""
    return {name: kind for name, kind in FIGURES.items() if kind.overlay}


def _overlays(flow: str, queue: str, counted: bool = False) -> list[tuple[str, str, str]]:
    """Kind, title, and the flow or queue; of runs with counters, what counters have."""
    return [
        (name, f"{kind.overlay}, {of}", of)
        for name, kind in overlaid().items()
        if not counted or kind.subject in (Flow, Line)
        for of in [queue if kind.per == "line" else flow]
    ]


def _is_counted(subject: Subject) -> bool:
    """Whether the run that represents it has counters instead of captures."""
    return cached(("counted", subject.run_id), lambda: runs.stored(subject.run_id).is_counted)


def _named() -> dict[str, list[str]]:
    """What names the subjects in an address."""
    return {key: request.args.getlist(key) for key in ("run", "point", "as")}


def _without(key: str) -> str:
    kind, _, name = key.partition(":")
    arguments = request.args.copy()
    arguments.setlist(kind, [value for value in arguments.getlist(kind) if value != name])
    return f"{url_for('compare.show')}?{urlencode([(k, v) for k, values in arguments.lists() for v in values])}"
