"""Pages of campaigns: all of them, one with its table and charts, its progress and its exports."""

from __future__ import annotations

import csv
import io
from typing import Any

from flask import Blueprint, Response, abort, g, jsonify, render_template, request

from analysis.metrics import METRICS
from experiments.show import point_label, results_json
from web.charts import Bar, BarChart

blueprint = Blueprint("campaigns", __name__)


@blueprint.get("/")
def index() -> str:
    """All campaigns, filtered by `q`."""
    words = request.args.get("q", "").lower().split()
    found = [
        one
        for one in g.store.campaigns()
        if all(word in f"{one['id']} {one['name']} {one['title']}".lower() for word in words)
    ]
    return render_template("index.html", campaigns=found, q=request.args.get("q", ""))


@blueprint.get("/campaigns/<campaign_id>")
def show(campaign_id: str) -> str:
    """One campaign."""
    campaign, rows = _load(campaign_id)
    rows = [row for row in rows if row["name"] in METRICS and not METRICS[row["name"]].detail]
    drawn = charts(campaign, rows)
    # A line's metrics have charts; the table's lines are flows.
    rows = [row for row in rows if METRICS[row["name"]].per in ("flow", "run")]
    cells = {(row["point"], row["name"], row["subject"]): row for row in rows}
    of_flow = sorted({row["name"] for row in rows if row["subject"]}, key=lambda name: _order((name, "")))
    of_run = sorted({row["name"] for row in rows if not row["subject"]}, key=lambda name: _order((name, "")))
    return render_template(
        "campaign.html",
        campaign=campaign,
        flows=list(dict.fromkeys(row["subject"] for row in rows if row["subject"])) or [""],
        of_flow=of_flow,
        of_run=of_run,
        cells=cells,
        charts=drawn,
        fields=[field for field, _ in campaign["points"][0]["parameters"]],
    )


@blueprint.get("/api/campaigns/<campaign_id>")
def as_json(campaign_id: str) -> Response:
    """Its results, as `./backchannel results --json` prints them."""
    return Response(results_json(*_load(campaign_id)), mimetype="application/json")


@blueprint.get("/api/campaigns/<campaign_id>/progress")
def progress(campaign_id: str) -> Response:
    """State, valid runs, and what is running."""
    campaign, _ = _load(campaign_id)
    return jsonify({key: campaign[key] for key in ("state", "runs", "valid", "progress")})


@blueprint.get("/campaigns/<campaign_id>.csv")
def as_csv(campaign_id: str) -> Response:
    """Its table: a line per point, metric and flow; SI units."""
    campaign, rows = _load(campaign_id)
    parameters = {point["number"]: dict(point["parameters"]) for point in campaign["points"]}
    fields = list(next(iter(parameters.values()), {}))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*fields, "metric", "flow", "unit", "runs", "mean", "standard_deviation"])
    for row in rows:
        own = [parameters[row["point"]][field] for field in fields]
        sd = "" if row["sd"] is None else row["sd"]
        writer.writerow([*own, row["name"], row["subject"], row["unit"], row["n"], row["mean"], sd])
    headers = {"Content-Disposition": f'attachment; filename="{campaign["name"]}.csv"'}
    return Response(text.getvalue(), mimetype="text/csv", headers=headers)


def charts(campaign: dict[str, Any], rows: list[dict[str, Any]]) -> list[BarChart]:
    """A bar chart per metric and flow: one bar a point, with its standard deviation."""
    labels = {point["number"]: _short_label(point["parameters"]) for point in campaign["points"]}
    groups: dict[tuple[str, str], list[Bar]] = {}
    for row in rows:
        bar = Bar(labels[row["point"]], row["mean"], row["sd"] or 0.0)
        groups.setdefault((row["name"], row["subject"]), []).append(bar)
    return [
        BarChart(f"{METRICS[name].title}{f', {subject}' if subject else ''}", METRICS[name].unit, groups[name, subject])
        for name, subject in sorted(groups, key=_order)
        if name in METRICS
    ]


def _short_label(parameters: list[tuple[str, str]]) -> str:
    """What tells a point from the others: with one axis, its value alone."""
    if len(parameters) == 1:
        return parameters[0][1]
    return point_label(dict(parameters)) or "all runs"


def _order(kind: tuple[str, str]) -> tuple[int, str]:
    names = list(METRICS)
    return (names.index(kind[0]) if kind[0] in names else len(names), kind[1])


def _load(campaign_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    campaign = g.store.campaign(campaign_id)
    if campaign is None:
        abort(404, f"There is no campaign {campaign_id} here.")
    return campaign, g.store.table(campaign_id)
