"""A campaign as files and JSON: figures, the picture of its network, its table, its file, its runs."""

from __future__ import annotations

from flask import Blueprint, Response, abort, g, jsonify, request

from analysis.attempts import attempts_of
from analysis.figures.means import Means
from analysis.figures.model import csv_text
from analysis.figures.published import CampaignFigure
from analysis.metrics.registry import estimate
from analysis.store import browse
from experiments import api
from testbed.scenario import Scenario
from web import campaign_data, topology
from web.campaign_data import head, points
from web.figures import answer, attachment

blueprint = Blueprint("campaign_exports", __name__)

#: Campaigns of one answer.
MOST_CAMPAIGNS = 500


@blueprint.get("/campaigns/<campaign_id>/figure.<kind>")
def figure(campaign_id: str, kind: str) -> Response:
    """Its figure as SVG, PDF, PNG or CSV; arguments as the page has them."""
    campaign = head(campaign_id)
    made = campaign_data.metric_figure(campaign)
    return _file(made, kind, f"{campaign.name}-{made.metric if made else ''}", "This campaign has no valid run yet.")


@blueprint.get("/campaigns/<campaign_id>/own-figure.<kind>")
def file_figure(campaign_id: str, kind: str) -> Response:
    """The figure that its file defines, as SVG, PDF, PNG or CSV."""
    campaign = head(campaign_id)
    made = campaign_data.file_figure(campaign)
    return _file(made, kind, f"{campaign.name}-figure", "There is no `figure` in this campaign's file.")


def _file(made: Means | CampaignFigure | None, kind: str, name: str, why_none: str) -> Response:
    if made is None:
        abort(404, why_none)
    return answer(made.figure(), kind, name, made.as_csv)


@blueprint.get("/campaigns/<campaign_id>/network.<kind>")
def network(campaign_id: str, kind: str) -> Response:
    """Its network as SVG or PDF, with the values of the first point."""
    return network_file(campaign_data.scenario(campaign_id), kind, f"{head(campaign_id).name}-network")


def network_file(scenario: Scenario | None, kind: str, name: str) -> Response:
    """The picture of a network as SVG or PDF."""
    if not scenario or not scenario.links:
        abort(404, "There is no picture of this network.")
    if kind not in ("svg", "pdf"):
        abort(404, f"There is no picture as {kind}; there are: svg, pdf.")
    picture = topology.draw(scenario)
    return attachment(picture.svg() if kind == "svg" else picture.pdf(), kind, name)


@blueprint.get("/api/campaigns")
def all_as_json() -> Response:
    """Every campaign, as `./backchannel results --json` prints them, with its start time."""
    keys = ("id", "name", "title", "state", "runs", "valid", "invalid", "backend", "started")
    words = request.args.get("q", "").split()
    found = browse.campaigns(g.store, words, MOST_CAMPAIGNS, (campaign_data.page_number() - 1) * MOST_CAMPAIGNS)
    return jsonify([{key: getattr(one, key) for key in keys} for one in found])


@blueprint.get("/api/campaigns/<campaign_id>")
def as_json(campaign_id: str) -> Response:
    """Its results, as `./backchannel results --json` prints them."""
    campaign = g.store.campaign(campaign_id)
    if campaign is None:
        abort(404, f"There is no campaign {campaign_id} here.")
    return Response(
        api.results_json(campaign, g.store.table(campaign_id), attempts_of(g.store, campaign_id)),
        mimetype="application/json",
    )


@blueprint.get("/api/campaigns/<campaign_id>/progress")
def progress(campaign_id: str) -> Response:
    """State, number of runs and valid runs, and the progress of running ones."""
    campaign = head(campaign_id)
    return jsonify({key: getattr(campaign, key) for key in ("state", "runs", "valid", "progress")})


@blueprint.get("/api/campaigns/<campaign_id>/runs")
def runs_as_json(campaign_id: str) -> Response:
    """A page of its runs with their metrics; same arguments as the page."""
    head(campaign_id)
    query = campaign_data.asked()
    page = campaign_data.runs(campaign_id, query)
    parameters = {point.number: dict(point.parameters) for point in points(campaign_id)}
    rows = [
        {
            **{name: value for name, value in vars(one).items() if name != "metrics"},
            "parameters": parameters.get(one.point, {}),
            "metrics": [
                {"name": name, "subject": subject, "value": row.value, "unit": row.unit}
                for (name, subject), row in one.metrics.items()
            ],
        }
        for one in page.runs
    ]
    return jsonify({"total": page.total, "page": query.page, "per_page": query.per_page, "runs": rows})


@blueprint.get("/campaigns/<campaign_id>.csv")
def as_csv(campaign_id: str) -> Response:
    """Its table: a line for each point, metric and flow, in SI units."""
    campaign = head(campaign_id)
    rows = browse.summary(g.store, campaign_id)
    rows.sort(key=lambda row: (row.point, campaign_data.order(row.name), row.subject))
    parameters = {point.number: dict(point.parameters) for point in points(campaign_id)}
    fields = list(next(iter(parameters.values()), {}))
    attempts = attempts_of(g.store, campaign_id)
    lines = (
        [
            *(parameters[row.point].get(name, "") for name in fields), row.name, row.subject, row.unit,
            row.n, row.mean, *estimate(row.name, row.unit, row.values).ends, row.sd,
            attempts[row.point].total, "; ".join(attempts[row.point].reasons),
        ]
        for row in rows
    )  # fmt: skip
    text = csv_text(
        [
            *fields,
            "metric",
            "flow",
            "unit",
            "runs",
            "mean",
            "low_95",
            "high_95",
            "standard_deviation",
            "attempts",
            "marked",
        ],
        lines,
    )
    return attachment(text, "csv", campaign.name)


@blueprint.get("/campaigns/<campaign_id>.yaml")
def as_yaml(campaign_id: str) -> Response:
    """Its campaign file."""
    campaign = head(campaign_id)
    headers = {"Content-Disposition": f'attachment; filename="{campaign.name}.yaml"'}
    return Response(campaign.text, mimetype="text/plain; charset=utf-8", headers=headers)
