"""Any runs or points of campaigns beside each other: plots on one time axis, and differences with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, abort, g, jsonify, render_template, request, url_for
from markupsafe import Markup

from analysis.metrics import METRICS
from analysis.statistics import Difference, RunKey, difference, half_width, mean, sd
from analysis.store import browse
from experiments.labels import point_label
from web import plotfile, sweep
from web.cache import kept
from web.campaigns import export, is_detail
from web.drawing import SERIES
from web.runs import as_table, load, period_asked, plotted

blueprint = Blueprint("compare", __name__)

#: More could not be told apart.
MOST = 8


@dataclass(frozen=True)
class Subject:
    """One of those that are compared."""

    #: "run:ID" or "point:CAMPAIGN:NUMBER".
    key: str
    label: str
    address: str
    #: Whose plots stand for it.
    run_id: str
    ink: str
    #: (metric, flow) to the values of its runs.
    values: dict[tuple[str, str], dict[RunKey, float]]
    units: dict[str, str]


@blueprint.get("/compare")
def show() -> str:
    """`run` and `point` (CAMPAIGN:NUMBER) name them, each as often as wanted; the others are held against the first."""
    subjects = _subjects()
    rows = _shown(subjects)
    scenario = browse.scenario(g.store, subjects[0].run_id) if subjects else None
    flows = [flow["name"] for flow in scenario["workload"]] if scenario else []
    links = (
        [
            f"{link['name']}/{side}"
            for link in scenario["links"]
            for side in ("forward", "reverse")
            if link[side].get("rate_bps")
        ]
        if scenario
        else []
    )
    studied = next(
        (one for one in links if one.startswith(("bottleneck/", "air/", "line/"))), links[0] if links else ""
    )
    flow = request.args.get("flow") or (flows[0] if flows else "")
    queue = request.args.get("queue") or studied.replace("/forward", "/reverse")
    return render_template(
        "compare.html",
        subjects=subjects,
        rows=rows,
        flows=flows,
        flow=flow,
        links=links,
        queue=queue,
        duration=max((browse.duration(g.store, one.run_id) for one in subjects), default=1.0),
        campaigns=browse.campaigns(g.store, limit=12) if not subjects else [],
        most=MOST,
        without=_without,
        picture=_picture(subjects, rows),
        overlays=[
            (kind, word, of, [{"label": one.label, "ink": one.ink, "url": _plot_of(one, kind, of)} for one in subjects])
            for kind, word, of in _overlays(flow, queue)
        ],
        told=_told(),
    )


@blueprint.get("/compare/figure.<kind>")
def figure(kind: str) -> Response:
    """Its bars as SVG, PDF or CSV; arguments as the page has them."""
    subjects = _subjects()
    made = _figure(subjects, _shown(subjects))
    if made is None:
        abort(404, "There is a figure of two or more runs or points.")
    return export(sweep.draw(made), kind, f"compare-{made.metric}", sweep.as_csv(made))


@blueprint.get("/compare/plots/<kind>.<form>")
def plot_file(kind: str, form: str) -> Response:
    """Plots laid over each other as SVG, PDF or CSV, over the period that is asked for."""
    subjects = _subjects()
    if not subjects:
        abort(404, "There is nothing to lay over each other: 'run' and 'point' name it.")
    of = request.args.get("flow", "")
    word = next((word for known, word, _ in _overlays(of, of) if known == kind), None)
    if word is None:
        abort(404, f"There is no such plot {kind}; there are: {', '.join(OVERLAID)}.")
    lines: list[dict[str, Any]] = []
    unit = ""
    period = (0.0, max(browse.duration(g.store, one.run_id) for one in subjects))
    for one in subjects:
        run = load(one.run_id)
        period = period_asked(period[1])
        answer = plotted(run, kind, *period)
        unit = unit or str(answer["y"])
        own = [line for line in answer["series"] if _is_overlaid(kind, line)]
        lines += [
            {**line, "name": f"{one.label}: {line['name']}" if len(own) > 1 else one.label, "ink": one.ink}
            for line in own
        ]
    whole = {"y": unit, "series": lines}
    name = f"compare-{kind}{f'-{of}' if of else ''}".replace("/", "-")
    return export(plotfile.draw(word, whole, *period), form, name, as_table(whole))


@blueprint.get("/api/compare")
def as_json() -> Response:
    """The same for scripts: means, intervals and differences against the first, in SI units."""
    subjects = _subjects()
    told = []
    for row in _rows(subjects):
        cells = [
            {
                "of": one.key, "n": cell["n"], "mean": cell["mean"], "half_interval_95": cell["half"],
                "difference": None if cell["off"] is None else cell["off"].value,
                "difference_half_interval_95": None if cell["off"] is None else cell["off"].half,
                "method": None if cell["off"] is None else cell["off"].method,
            }
            for one, cell in zip(subjects, row["cells"], strict=True)
            if cell is not None
        ]  # fmt: skip
        told.append({"metric": row["name"], "flow": row["subject"], "unit": row["unit"], "cells": cells})
    return jsonify({"subjects": [{"of": one.key, "label": one.label} for one in subjects], "metrics": told})


def _subjects() -> list[Subject]:
    asked = [("run", one) for one in request.args.getlist("run")] + [
        ("point", one) for one in request.args.getlist("point")
    ]
    asked = list(dict.fromkeys(asked))
    if len(asked) > MOST:
        abort(400, f"At most {MOST} can be compared at once; these are {len(asked)}.")
    makers = {"run": _run, "point": _point}

    def make(kind: str, name: str, ink: str) -> Subject:
        return kept(("subject", kind, name, ink), lambda: makers[kind](name, ink))

    found = [make(kind, name, f"s{number % SERIES}") for number, (kind, name) in enumerate(asked)]
    labels = [one.label for one in found]
    # Equal points of several campaigns are told apart by their number.
    return [
        one if labels.count(one.label) == 1 else Subject(**{**one.__dict__, "label": f"{one.label} ({number + 1})"})
        for number, one in enumerate(found)
    ]


def _run(run_id: str, ink: str) -> Subject:
    run = g.store.run(run_id)
    if run is None:
        abort(404, f"There is no run {run_id} here.")
    home = run["campaigns"][0] if run["campaigns"] else None
    label = f"run {run_id[:8]}"
    key = RunKey(home["repetition"] if home else 0, run["seed"])
    if home is not None:
        label = ", ".join(
            part for part in (point_label(dict(home["parameters"])), f"repetition {home['repetition'] + 1}") if part
        )
    return Subject(
        f"run:{run_id}", label, url_for("runs.show", run_id=run_id), run_id, ink,
        {(one["name"], one["subject"]): {key: one["value"]} for one in run["metrics"]},
        {one["name"]: one["unit"] for one in run["metrics"]},
    )  # fmt: skip


def _point(name: str, ink: str) -> Subject:
    campaign_id, _, number = name.partition(":")
    campaign = browse.campaign_head(g.store, campaign_id)
    point = next((one for one in browse.points(g.store, campaign_id) if str(one["number"]) == number), None)
    if campaign is None or point is None:
        abort(404, f"There is no point {number or '?'} of a campaign {campaign_id} here.")
    rows = browse.point_metrics(g.store, campaign_id, point["number"])
    if not rows:
        abort(404, f"Point {number} of {campaign['title']} has no valid run yet.")
    values: dict[tuple[str, str], dict[RunKey, float]] = {}
    for row in rows:
        values.setdefault((row["name"], row["subject"]), {})[RunKey(row["repetition"], row["seed"])] = row["value"]
    label = point_label(dict(point["parameters"])) or campaign["title"]
    return Subject(
        f"point:{name}", label, url_for("campaigns.show", campaign_id=campaign_id), rows[0]["run_id"], ink, values,
        {row["name"]: row["unit"] for row in rows},
    )  # fmt: skip


def _rows(subjects: list[Subject], details: bool = True) -> list[dict[str, Any]]:
    """Per metric and flow what each gives, and how it differs from the first."""
    names = list(METRICS)
    kinds = dict.fromkeys(kind for one in subjects for kind in one.values if details or not is_detail(kind[0]))
    ordered = sorted(kinds, key=lambda kind: (names.index(kind[0]) if kind[0] in names else len(names), kind[1]))
    rows = []
    for name, subject in ordered:
        unit = next(one.units[name] for one in subjects if name in one.units)
        first = subjects[0].values.get((name, subject), {})
        cells: list[dict[str, Any] | None] = []
        for number, one in enumerate(subjects):
            values = one.values.get((name, subject))
            if not values:
                cells.append(None)
                continue
            off: Difference | None = difference(first, values) if number and first else None
            cells.append({**_mean(list(values.values())), "off": off})
        rows.append({"name": name, "subject": subject, "unit": unit, "cells": cells})
    return rows


def _mean(values: list[float]) -> dict[str, Any]:
    return {
        "n": len(values), "mean": mean(values), "sd": sd(values), "half": half_width(sd(values), len(values)),
    }  # fmt: skip


def _shown(subjects: list[Subject]) -> list[dict[str, Any]]:
    """Rows but for details, which are for a run's own page and for scripts."""
    return kept(
        ("compared", tuple((one.key, one.label) for one in subjects)),
        lambda: _rows(subjects, details=False),
    )


def _figure(subjects: list[Subject], rows: list[dict[str, Any]]) -> sweep.Figure | None:
    """Bars of one metric, one a subject."""
    wanted = request.args.get("metric", "")
    row = next((one for one in rows if f"{one['name']}/{one['subject']}" == wanted), rows[0] if rows else None)
    if row is None or len(subjects) < 2:
        return None
    title = METRICS[row["name"]].title if row["name"] in METRICS else row["name"]
    return sweep.Figure(
        title=f"{title}, {row['subject']}" if row["subject"] else title, metric=row["name"],
        subject=row["subject"], unit=row["unit"],
        x_field="",
        places=[one.label for one in subjects], sizes=None, kind="",
        series=[
            sweep.Series("", [
                sweep.Value(one.label, cell["mean"], cell["half"], cell["n"], 0)
                for one, cell in zip(subjects, row["cells"], strict=True) if cell is not None
            ])
        ],
        inks={one.label: one.ink for one in subjects},
    )  # fmt: skip


def _picture(subjects: list[Subject], rows: list[dict[str, Any]]) -> Markup:
    made = _figure(subjects, rows)
    return Markup("" if made is None else sweep.draw(made).svg(page=True))


#: Plots that are laid over each other. Of each kind, the lines that stand for a run; plots.js chooses alike.
OVERLAID = ("sequence", "throughput", "rtt", "cwnd", "queue")


def _is_overlaid(kind: str, line: dict[str, Any]) -> bool:
    if kind == "sequence":
        return bool(line["name"] == "acknowledged")
    return bool(line["style"] != "marks" and line["name"] != "ssthresh")


def _overlays(flow: str, queue: str) -> list[tuple[str, str, str]]:
    """Kind, title, and whose."""
    words = ("Acknowledged", "Throughput", "Round-trip time", "Congestion window", "Queue")
    of = [queue if kind == "queue" else flow for kind in OVERLAID]
    return [(kind, f"{word}, {whose}", whose) for kind, word, whose in zip(OVERLAID, words, of, strict=True)]


def _plot_of(one: Subject, kind: str, of: str) -> str:
    return url_for("runs.plot", run_id=one.run_id, kind=kind, flow=of)


def _told() -> dict[str, list[str]]:
    """What names the subjects in an address."""
    return {key: request.args.getlist(key) for key in ("run", "point")}


def _without(key: str) -> str:
    kind, _, name = key.partition(":")
    arguments = request.args.copy()
    arguments.setlist(kind, [one for one in arguments.getlist(kind) if one != name])
    return f"{url_for('compare.show')}?{urlencode([(k, v) for k, values in arguments.lists() for v in values])}"
