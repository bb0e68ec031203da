"""Any runs or points of campaigns beside each other: plots on one time axis, and differences with their intervals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, abort, g, jsonify, render_template, request, url_for
from markupsafe import Markup

from analysis.metrics import METRICS
from analysis.store import browse
from experiments.show import point_label
from web import sweep
from web.drawing import SERIES
from web.intervals import Difference, difference, half_width

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
    #: (metric, flow) to {seed: value}.
    values: dict[tuple[str, str], dict[int, float]]
    units: dict[str, str]


@blueprint.get("/compare")
def show() -> str:
    """`run` and `point` (CAMPAIGN:NUMBER) name them, each as often as wanted; the others are held against the first."""
    subjects = _subjects()
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
    return render_template(
        "compare.html",
        subjects=subjects,
        rows=_rows(subjects),
        flows=flows,
        flow=request.args.get("flow") or (flows[0] if flows else ""),
        links=links,
        queue=request.args.get("queue") or studied.replace("/forward", "/reverse"),
        duration=max((browse.duration(g.store, one.run_id) for one in subjects), default=1.0),
        campaigns=browse.campaigns(g.store, limit=12) if not subjects else [],
        most=MOST,
        without=_without,
        picture=_picture(subjects),
    )


@blueprint.get("/api/compare")
def as_json() -> Response:
    """The same for scripts: means, intervals and differences against the first, in SI units."""
    subjects = _subjects()
    told = []
    for row in _rows(subjects):
        cells = [
            {
                "of": one.key, "n": cell["n"], "mean": cell["mean"], "half_interval_95": cell["half"],
                "difference": None if cell["off"] is None else cell["off"].mean,
                "difference_half_interval_95": None if cell["off"] is None else cell["off"].half,
                "method": None if cell["off"] is None else cell["off"].kind,
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
    found = [
        (_run if kind == "run" else _point)(name, f"s{number % SERIES}") for number, (kind, name) in enumerate(asked)
    ]
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
    if home is not None:
        label = ", ".join(
            part for part in (point_label(dict(home["parameters"])), f"repetition {home['repetition'] + 1}") if part
        )
    return Subject(
        f"run:{run_id}", label, url_for("runs.show", run_id=run_id), run_id, ink,
        {(one["name"], one["subject"]): {run["seed"]: one["value"]} for one in run["metrics"]},
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
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        values.setdefault((row["name"], row["subject"]), {})[row["seed"]] = row["value"]
    label = point_label(dict(point["parameters"])) or campaign["title"]
    return Subject(
        f"point:{name}", label, url_for("campaigns.show", campaign_id=campaign_id), rows[0]["run_id"], ink, values,
        {row["name"]: row["unit"] for row in rows},
    )  # fmt: skip


def _rows(subjects: list[Subject]) -> list[dict[str, Any]]:
    """Per metric and flow what each gives, and how it differs from the first."""
    names = list(METRICS)
    kinds = dict.fromkeys(kind for one in subjects for kind in one.values)
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
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"n": len(values), "mean": statistics.fmean(values), "sd": sd, "half": half_width(sd, len(values))}


def _picture(subjects: list[Subject]) -> Markup:
    """Bars of one metric, one a subject."""
    rows = _rows(subjects)
    wanted = request.args.get("metric", "")
    row = next((one for one in rows if f"{one['name']}/{one['subject']}" == wanted), rows[0] if rows else None)
    if row is None or len(subjects) < 2:
        return Markup("")
    title = METRICS[row["name"]].title if row["name"] in METRICS else row["name"]
    figure = sweep.Figure(
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
    )  # fmt: skip
    return Markup(sweep.draw(figure).svg(page=True))


def _without(key: str) -> str:
    kind, _, name = key.partition(":")
    arguments = request.args.copy()
    arguments.setlist(kind, [one for one in arguments.getlist(kind) if one != name])
    return f"{url_for('compare.show')}?{urlencode([(k, v) for k, values in arguments.lists() for v in values])}"
