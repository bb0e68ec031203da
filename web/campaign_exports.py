"""A campaign as files and JSON: figures, the picture of its network, its table, its file, its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from flask import Blueprint, Response, abort, g, jsonify, request

from analysis.attempts import attempts_of
from analysis.exports.si import unit_name
from analysis.figures.means import Means
from analysis.figures.model import csv_text
from analysis.metrics.registry import estimate
from analysis.store.rows import CampaignRow, PointRow
from experiments import api
from experiments.papers.figure import CampaignFigure
from testbed.scenario import Scenario
from web import answers, campaign_data, topology
from web.campaign_data import head, points
from web.figures import answer, attachment, picture_file

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


@blueprint.get("/campaigns/<campaign_id>/tradeoff.<kind>")
def tradeoff(campaign_id: str, kind: str) -> Response:
    """Both directions against each other, as SVG, PDF, PNG or CSV; arguments as the page has them."""
    campaign = head(campaign_id)
    axes = campaign_data.axes_of(campaign_id)
    answered = answers.of(campaign, campaign_data.metric_figure(campaign), axes)
    if answered is None or answered.figure is None:
        abort(404, "This campaign has no second direction to compare.")
    drawn = answered.figure
    return answer(drawn, kind, f"{campaign.name}-trade-off", lambda: drawn.as_csv(drawn.x.label))


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
        abort(404, "This network has no picture.")
    return picture_file(topology.draw(scenario), kind, name)


@blueprint.get("/api/campaigns")
def all_as_json() -> Response:
    """Every campaign, as `./backchannel results --json` prints them, with its start time."""
    keys = ("id", "name", "title", "state", "runs", "valid", "invalid", "backend", "started")
    words = request.args.get("q", "").split()
    campaigns_ = g.store.campaigns(
        words, limit=MOST_CAMPAIGNS, offset=(campaign_data.page_number() - 1) * MOST_CAMPAIGNS
    )
    return jsonify([{key: getattr(campaign, key) for key in keys} for campaign in campaigns_])


@blueprint.get("/api/campaigns/<campaign_id>")
def as_json(campaign_id: str) -> Response:
    """Its results, as `./backchannel results --json` prints them, point by point as they are computed."""
    campaign, all_points, store = head(campaign_id), points(campaign_id), g.store
    attempts = attempts_of(store, campaign_id)

    def parts() -> Iterator[str]:
        about = json.dumps({"campaign": campaign.id, "name": campaign.name, "state": campaign.state})
        yield f'{about[:-1]}, "points": ['
        for count, point in enumerate(all_points):
            with_members = replace(point, members=store.members(campaign_id, [point.number]))
            document = api.point_document(with_members, store.table(campaign_id, [point.number]), attempts)
            yield f"{',' if count else ''}\n{json.dumps(document)}"
        yield "]}\n"

    return Response(parts(), mimetype="application/json")


@blueprint.get("/api/campaigns/<campaign_id>/progress")
def progress(campaign_id: str) -> Response:
    """State, number of runs and valid runs, and the progress of running ones."""
    campaign = head(campaign_id)
    return jsonify({key: getattr(campaign, key) for key in ("state", "runs", "valid", "progress")})


@blueprint.get("/api/campaigns/<campaign_id>/runs")
def runs_as_json(campaign_id: str) -> Response:
    """A page of its runs with their metrics; same arguments as the page."""
    head(campaign_id)
    query = campaign_data.asked(campaign_id)
    page = campaign_data.runs(campaign_id, query)
    parameters = {point.number: dict(point.parameters) for point in points(campaign_id)}
    notes = campaign_data.notes(campaign_id)
    rows = [
        {
            **{name: value for name, value in vars(run).items() if name != "metrics"},
            "note": notes.get(run.run_id),
            "parameters": parameters.get(run.point, {}),
            "metrics": [
                {"name": name, "subject": subject, "value": row.value, "unit": row.unit}
                for (name, subject), row in run.metrics.items()
            ],
        }
        for run in page.runs
    ]
    return jsonify({"total": page.total, "page": query.page, "per_page": query.per_page, "runs": rows})


#: Of a line of the table of means, after the swept fields.
MEANS = (
    "metric",
    "flow",
    "unit",
    "runs",
    "mean",
    "low_95",
    "high_95",
    "standard_deviation",
    "values",
    "attempts",
    "marked",
)
#: Of a line of the table of runs. A run without a valid result has one line without a metric.
VALUES = ("point", "repetition", "run_id", "state", "seed", "metric", "flow", "unit", "value")


@blueprint.get("/campaigns/<campaign_id>.csv")
def as_csv(campaign_id: str) -> Response:
    """Its means: a line for each point, metric and flow, in SI units, with the values in order of the repetitions."""
    campaign, store = head(campaign_id), g.store
    attempts = attempts_of(store, campaign_id)

    def lines(point: PointRow) -> Iterator[Sequence[object]]:
        rows = store.table(campaign_id, [point.number])
        for row in sorted(rows, key=lambda row: (campaign_data.order(row.name), row.subject)):
            tried = attempts[point.number]
            yield [
                row.name,
                row.subject,
                unit_name(row.unit),
                row.n,
                row.mean,
                *estimate(row.name, row.unit, row.values).ends,
                row.sd,
                " ".join(map(str, row.values)),
                tried.total,
                "; ".join(tried.reasons),
            ]

    return _table(campaign, campaign.name, MEANS, lines)


@blueprint.get("/campaigns/<campaign_id>/runs.csv")
def runs_as_csv(campaign_id: str) -> Response:
    """Its runs: a line for each run, metric and flow, in SI units."""
    campaign, store = head(campaign_id), g.store

    def lines(point: PointRow) -> Iterator[Sequence[object]]:
        for row in store.values(campaign_id, [point.number]):
            yield [
                point.number,
                row.repetition + 1,
                row.run_id,
                "valid",
                row.seed,
                row.name,
                row.subject,
                unit_name(row.unit),
                row.value,
            ]
        for member in store.members(campaign_id, [point.number]):
            if member.state != "valid":
                yield [point.number, member.repetition + 1, member.run_id, member.state, "", "", "", "", ""]

    return _table(campaign, f"{campaign.name}-runs", VALUES, lines)


def _table(
    campaign: CampaignRow, name: str, columns: Sequence[str], lines: Callable[[PointRow], Iterable[Sequence[object]]]
) -> Response:
    """A CSV file that is sent point by point: the swept fields, then columns."""
    all_points = points(campaign.id)
    fields = [field for field, _ in all_points[0].parameters] if all_points else []

    def parts() -> Iterator[str]:
        yield csv_text([*fields, *columns], ())
        for point in all_points:
            values = [dict(point.parameters).get(field, "") for field in fields]
            yield csv_text((), ([*values, *line] for line in lines(point)))

    return attachment(parts(), "csv", name)


@blueprint.get("/campaigns/<campaign_id>.yaml")
def as_yaml(campaign_id: str) -> Response:
    """Its campaign file."""
    campaign = head(campaign_id)
    return attachment(campaign.text, "yaml", campaign.name)
