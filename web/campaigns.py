"""Pages of campaigns: all of them; one with its question, figure, table and runs; requests about it; exports."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Hashable, Mapping
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, abort, flash, g, jsonify, redirect, render_template, request, url_for
from markupsafe import Markup
from werkzeug.datastructures import MultiDict

from analysis import drawn
from analysis.metrics import METRICS
from analysis.scorecard import file_of
from analysis.store import browse, requests
from experiments.labels import point_label, results_json
from experiments.reproduce import FOLDER
from testbed import fidelity
from web import published, scorecard, sweep, topology
from web.cache import kept, lasting

blueprint = Blueprint("campaigns", __name__)

#: Rows of a page of runs, points of a page of the table, campaigns of a page of the list.
RUNS, POINTS, CAMPAIGNS = 25, 25, 40
#: Pages that an address may ask for, so that no database is asked for more rows than it counts.
MOST_PAGES = 10**9
#: Runs behind a page of the table, about; never fewer points than FEWEST.
BEHIND, FEWEST = 500, 10


@blueprint.get("/campaigns")
def index() -> str:
    """All campaigns, filtered by `q`."""
    words = request.args.get("q", "").split()
    page, key = _page(), tuple(words)
    total = kept(("campaigns", key), lambda: browse.count_campaigns(g.store, words))
    found = kept(("campaigns", key, page), lambda: browse.campaigns(g.store, words, CAMPAIGNS, (page - 1) * CAMPAIGNS))
    pages = math.ceil(total / CAMPAIGNS)
    return render_template(
        "index.html", campaigns=found, q=request.args.get("q", ""), page=page, pages=pages, total=total
    )


@blueprint.get("/campaigns/<campaign_id>")
def show(campaign_id: str) -> str:
    """One campaign."""
    campaign, points = _head(campaign_id), _points(campaign_id)
    axes, kinds = sweep.axes_of(points), _kinds(campaign_id)
    figure = _figure(campaign, points)
    own = _own_figure(campaign)
    at = max(request.args.get("points", 1, int), 1)
    per_page = max(min(POINTS, BEHIND // max(campaign["repetitions"], 1)), FEWEST)
    some = points[(at - 1) * per_page : at * per_page]
    asked = _asked()
    found, total = _runs(campaign_id, points, asked)
    scenario = _scenario(campaign_id)
    return render_template(
        "campaign.html",
        campaign=campaign,
        question=_question(campaign, axes),
        description=" ".join(str(file_of(campaign["text"]).get("description") or "").split()),
        axes=axes,
        points=some,
        point_pages=math.ceil(len(points) / per_page),
        point_page=at,
        all_points=len(points),
        per_page=per_page,
        kinds=[(one["name"], one["subject"]) for one in kinds],
        figure=figure,
        picture=_picture(campaign_id, figure),
        own=own,
        own_picture=Markup(published.draw(own).svg(page=True)) if own else "",
        table=_table(campaign_id, list(axes), some),
        rows=_rows(campaign_id, points, asked, found),
        runs=found,
        total=total,
        asked=asked,
        pages=max(math.ceil(total / asked.per_page), 1),
        again=lambda **changes: _address(campaign_id, changes),
        topology=kept(("topology", campaign_id), lambda: _drawn(scenario)),
        wider=fidelity.wider(fidelity.limits_of(scenario or {})),
        asked_for=requests.recent(g.store, 3, campaign_id),
        runners=requests.runners(g.store),
        selected={name: request.args.get(f"fix.{name}", "") for name in axes},
    )


@blueprint.get("/campaigns/<campaign_id>/figure.<kind>")
def figure(campaign_id: str, kind: str) -> Response:
    """Its figure as SVG, PDF or CSV; arguments as the page has them."""
    campaign = _head(campaign_id)
    made = _figure(campaign, _points(campaign_id))
    if made is None:
        abort(404, "This campaign has no valid run yet, so there is no figure.")
    return export(sweep.draw(made), kind, f"{campaign['name']}-{made.metric}", sweep.as_csv(made))


@blueprint.get("/campaigns/<campaign_id>/own-figure.<kind>")
def own_figure(campaign_id: str, kind: str) -> Response:
    """The figure that its file asks for, as SVG, PDF or CSV."""
    campaign = _head(campaign_id)
    made = _own_figure(campaign)
    if made is None:
        abort(404, "This campaign's file says nothing of a figure.")
    return export(published.draw(made), kind, f"{campaign['name']}-figure", published.as_csv(made))


def _own_figure(campaign: dict[str, Any]) -> drawn.Drawn | None:
    key = ("own-figure", campaign["id"])
    return kept(key, lambda: drawn.of_campaign(g.store, campaign["id"], campaign["text"], FOLDER))


@blueprint.get("/campaigns/<campaign_id>/network.<kind>")
def network(campaign_id: str, kind: str) -> Response:
    """Its network as SVG or PDF, as the first point has it."""
    campaign, scenario = _head(campaign_id), _scenario(campaign_id)
    if not scenario or not scenario.get("links"):
        abort(404, "There is no picture of this network.")
    return export(topology.draw(scenario), kind, f"{campaign['name']}-network")


def export(drawing: Any, kind: str, name: str, table: str | None = None) -> Response:
    """A drawing as a file; what has no values has no CSV."""
    match kind:
        case "svg":
            body, mimetype = drawing.svg(), "image/svg+xml"
        case "pdf":
            body, mimetype = drawing.pdf(), "application/pdf"
        case "csv" if table is not None:
            body, mimetype = table, "text/csv"
        case _:
            abort(404, f"There is no figure as {kind}; there are: svg, pdf{'' if table is None else ', csv'}.")
    return Response(body, mimetype=mimetype, headers={"Content-Disposition": f'attachment; filename="{name}.{kind}"'})


@blueprint.get("/api/campaigns")
def all_as_json() -> Response:
    """Every campaign, as `./backchannel results --json` prints them, with when they started."""
    keys = ("id", "name", "title", "state", "runs", "valid", "invalid", "backend", "started")
    words = request.args.get("q", "").split()
    found = browse.campaigns(g.store, words, 500, (_page() - 1) * 500)
    return jsonify([{key: one[key] for key in keys} for one in found])


@blueprint.get("/api/campaigns/<campaign_id>")
def as_json(campaign_id: str) -> Response:
    """Its results, as `./backchannel results --json` prints them."""
    campaign = g.store.campaign(campaign_id)
    if campaign is None:
        abort(404, f"There is no campaign {campaign_id} here.")
    return Response(results_json(campaign, g.store.table(campaign_id)), mimetype="application/json")


@blueprint.get("/api/campaigns/<campaign_id>/progress")
def progress(campaign_id: str) -> Response:
    """State, valid runs, and what is running."""
    campaign = _head(campaign_id)
    return jsonify({key: campaign[key] for key in ("state", "runs", "valid", "progress")})


@blueprint.get("/api/campaigns/<campaign_id>/runs")
def runs_as_json(campaign_id: str) -> Response:
    """A page of its runs, with their metrics; the same arguments as the page."""
    _head(campaign_id)
    points, asked = _points(campaign_id), _asked()
    found, total = _runs(campaign_id, points, asked)
    parameters = {point["number"]: dict(point["parameters"]) for point in points}
    told = [
        {
            **{key: one[key] for key in ("run_id", "point", "repetition", "state", "problems", "landed", "seed")},
            "parameters": parameters.get(one["point"], {}),
            "metrics": [
                {"name": name, "subject": subject, "value": row["value"], "unit": row["unit"]}
                for (name, subject), row in one["metrics"].items()
            ],
        }
        for one in found
    ]
    return jsonify({"total": total, "page": asked.page, "per_page": asked.per_page, "runs": told})


@blueprint.get("/campaigns/<campaign_id>.csv")
def as_csv(campaign_id: str) -> Response:
    """Its table: a line per point, metric and flow; SI units."""
    campaign = _head(campaign_id)
    rows = sorted(browse.summary(g.store, campaign_id), key=_row_order)
    parameters = {point["number"]: dict(point["parameters"]) for point in _points(campaign_id)}
    fields = list(next(iter(parameters.values()), {}))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*fields, "metric", "flow", "unit", "runs", "mean", "standard_deviation"])
    for row in rows:
        own = [parameters[row["point"]].get(name, "") for name in fields]
        sd = "" if row["sd"] is None else row["sd"]
        writer.writerow([*own, row["name"], row["subject"], row["unit"], row["n"], row["mean"], sd])
    headers = {"Content-Disposition": f'attachment; filename="{campaign["name"]}.csv"'}
    return Response(text.getvalue(), mimetype="text/csv", headers=headers)


@blueprint.get("/campaigns/<campaign_id>.yaml")
def as_yaml(campaign_id: str) -> Response:
    """The file that made it."""
    campaign = _head(campaign_id)
    headers = {"Content-Disposition": f'attachment; filename="{campaign["name"]}.yaml"'}
    return Response(campaign["text"], mimetype="text/plain; charset=utf-8", headers=headers)


@blueprint.post("/campaigns/<campaign_id>/<action>")
def act(campaign_id: str, action: str) -> Any:
    """Rerun (all of it), resume (what is missing) or cancel."""
    campaign = _head(campaign_id)
    flash(do(campaign, action)[1])
    return redirect(url_for("campaigns.show", campaign_id=campaign["id"]))


@blueprint.post("/api/campaigns/<campaign_id>/<action>")
def act_by_json(campaign_id: str, action: str) -> Any:
    """Asks for a rerun, a resume or a cancel."""
    number, said = do(_head(campaign_id), action)
    return jsonify({"request": number, "message": said}), 202


def do(campaign: dict[str, Any], action: str) -> tuple[int, str]:
    """Enters a request for a campaign; gives its number and what to tell."""
    overrides = [f"{name}={value}" for name, value in campaign["overrides"].items()]
    if requests.release_lost(g.store):
        # It may be one of those that nobody is at any more.
        campaign = browse.campaign_head(g.store, campaign["id"]) or campaign
    if action == "cancel":
        if campaign["state"] != "running":
            abort(409, f"This campaign is {campaign['state']}; there is nothing to cancel.")
        return requests.ask_cancel(g.store, campaign["id"]), "It will stop in a few seconds; what has landed stays."
    if action not in ("rerun", "resume"):
        abort(404, f"There is no action {action}; there are: rerun, resume, cancel.")
    if campaign["state"] == "running":
        abort(409, "This campaign is running.")
    if not campaign["text"]:
        abort(409, "These results were not made from a campaign file here.")
    number = requests.ask_run(g.store, campaign["file"], campaign["text"], overrides, force=action == "rerun")
    there = (
        "A runner takes it up." if requests.runners(g.store) else "No runner is there: ./backchannel runner starts one."
    )
    return number, f"Asked for. {there}"


def _page() -> int:
    return min(max(request.args.get("page", 1, int), 1), MOST_PAGES)


def _head(campaign_id: str) -> dict[str, Any]:
    campaign = kept(("head", campaign_id), lambda: browse.campaign_head(g.store, campaign_id))
    if campaign is None:
        abort(404, f"There is no campaign {campaign_id} here.")
    return campaign


def _points(campaign_id: str) -> list[dict[str, Any]]:
    return kept(("points", campaign_id), lambda: browse.points(g.store, campaign_id))


def _kinds(campaign_id: str) -> list[dict[str, Any]]:
    """Metrics that there are but for details, each with its flow; a group of flows stands before its members."""

    def make() -> list[dict[str, Any]]:
        # Details are for the run's own page and for files.
        shown = [row for row in browse.kinds(g.store, campaign_id) if not is_detail(row["name"])]
        return sorted(shown, key=lambda one: (order(one["name"]), len(one["subject"]), one["subject"]))

    return kept(("kinds", campaign_id), make)


def _runs(campaign_id: str, points: list[dict[str, Any]], asked: browse.Asked) -> tuple[list[dict[str, Any]], int]:
    def make() -> tuple[list[dict[str, Any]], int]:
        found, total = browse.runs(g.store, campaign_id, asked, _matching(points, asked.words))
        # What was tried and gave nothing says why.
        failed = g.store.last_problems([one["run_id"] for one in found if one["state"] == browse.MISSING])
        return [{**one, "problems": failed.get(one["run_id"], one["problems"])} for one in found], total

    return kept(("runs", campaign_id, asked), make)


def _scenario(campaign_id: str) -> dict[str, Any] | None:
    """Of the first run that is there."""
    return kept(("scenario", campaign_id), lambda: browse.first_scenario(g.store, campaign_id))


def _drawn(scenario: dict[str, Any] | None) -> Markup:
    return Markup(topology.draw(scenario).svg(page=True)) if scenario and scenario.get("links") else Markup("")


def _table(campaign_id: str, fields: list[str], points: list[dict[str, Any]]) -> Markup:
    """Means of a page of points, made once for everybody."""

    def make() -> Markup:
        tabled = _tabled(campaign_id)
        numbers = [point["number"] for point in points]
        members: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers}
        for one in browse.members(g.store, campaign_id, numbers):
            members[one["point"]].append(one)
        rows = _means(campaign_id, tabled, members)
        return Markup(
            render_template(
                "_table.html",
                campaign_id=campaign_id,
                fields=fields,
                points=points,
                members=members,
                flows=list(dict.fromkeys(subject for _, subject in tabled if subject)) or [""],
                of_flow=list(dict.fromkeys(name for name, subject in tabled if subject)),
                of_run=list(dict.fromkeys(name for name, subject in tabled if not subject)),
                cells={(row["point"], row["name"], row["subject"]): row for row in rows},
            )
        )

    return kept(("table", campaign_id, tuple(point["number"] for point in points)), make)


def _tabled(campaign_id: str) -> list[tuple[str, str]]:
    """Metrics of the table, each with its flow. Lines of the network have figures; of a group of flows, it alone."""
    workload = (_scenario(campaign_id) or {}).get("workload", [])
    groups = {str(flow["group"]) for flow in workload if flow.get("group")}
    return [
        (one["name"], one["subject"])
        for one in _kinds(campaign_id)
        if (one["name"] not in METRICS or METRICS[one["name"]].per in ("flow", "run"))
        and ":" not in one["subject"]
        and one["subject"].rpartition("-")[0] not in groups
    ]


def _means(
    campaign_id: str, tabled: list[tuple[str, str]], members: Mapping[int, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Means of points. A landed run never changes: only points to which another has come are taken anew."""
    keys: dict[Hashable, int] = {
        (
            campaign_id,
            number,
            *tabled,
            *((one["run_id"], one["landed"]) for one in own if one["state"] == "valid"),
        ): number
        for number, own in members.items()
    }

    def make(missing: list[Hashable]) -> dict[Hashable, list[dict[str, Any]]]:
        found: dict[Hashable, list[dict[str, Any]]] = {key: [] for key in missing}
        key_of = {keys[key]: key for key in missing}
        for row in browse.summary(g.store, campaign_id, tabled, list(key_of)):
            found[key_of[row["point"]]].append(row)
        return found

    return [row for rows in lasting(keys, make).values() for row in rows]


def _rows(campaign_id: str, points: list[dict[str, Any]], asked: browse.Asked, found: list[dict[str, Any]]) -> Markup:
    """A page of runs as lines of a table, made once for everybody, and anew for how long ago each landed."""
    minute = int(time.time() // 60)
    parameters = {point["number"]: point["parameters"] for point in points}
    return kept(
        ("rows", campaign_id, asked, minute, request.query_string),
        lambda: Markup(
            render_template(
                "_runs.html",
                campaign_id=campaign_id,
                runs=found,
                parameters=parameters,
                columns=_columns(campaign_id),
                asked=asked,
                again=lambda **changes: _address(campaign_id, changes),
            )
        ),
    )


def is_detail(name: str) -> bool:
    """Whether a metric is one of those that only its run's page shows."""
    return bool(getattr(METRICS.get(name), "detail", False))


def _row_order(row: dict[str, Any]) -> tuple[int, int, str]:
    return (row["point"], order(row["name"]), row["subject"])


def _asked() -> browse.Asked:
    return browse.Asked(
        state=request.args.get("state", ""),
        words=tuple(request.args.get("q", "").lower().split()),
        sort=request.args.get("sort", "point"),
        descending=request.args.get("order") == "desc",
        page=_page(),
        per_page=RUNS,
    )


def _matching(points: list[dict[str, Any]], words: Any) -> list[int] | None:
    """Points whose parameters hold every word; None when nothing is searched."""
    if not words:
        return None
    return [
        point["number"]
        for point in points
        if all(word in " ".join(f"{name}={value}" for name, value in point["parameters"]).lower() for word in words)
    ]


def _figure(campaign: dict[str, Any], points: list[dict[str, Any]]) -> sweep.Figure | None:
    kinds = _kinds(campaign["id"])
    if not kinds:
        return None
    units = {(one["name"], one["subject"]): one["unit"] for one in kinds}
    metric, _, subject = request.args.get("metric", "").partition("/")
    published = scorecard.published_for(campaign)
    if (metric, subject) not in units:
        # What was published first; else what stands first.
        wanted = [(one["metric"], one["subject"]) for one in published] + [(kinds[0]["name"], kinds[0]["subject"])]
        metric, subject = next(one for one in wanted if one in units)
    rows = kept(
        ("figure", campaign["id"], metric, subject),
        lambda: browse.summary(g.store, campaign["id"], [(metric, subject)]),
    )
    axes = sweep.axes_of(points)
    x_field = request.args.get("x", "")
    if x_field not in axes:
        x_field = sweep.default_x(axes)
    fixed = {
        name: request.args[f"fix.{name}"] for name, values in axes.items() if request.args.get(f"fix.{name}") in values
    }
    fixed.pop(x_field, None)
    title = METRICS[metric].title if metric in METRICS else metric
    return sweep.make(
        points,
        rows,
        title=f"{title}, {subject}" if subject else title,
        unit=units[metric, subject],
        metric=metric,
        subject=subject,
        x_field=x_field,
        fixed=fixed,
        published=published,
    )


def _picture(campaign_id: str, figure: sweep.Figure | None) -> Markup:
    """The figure as part of the page, drawn once for everybody who asks for the same."""
    if figure is None:
        return Markup("")
    key = ("picture", campaign_id, request.query_string, figure.metric, figure.subject, figure.has_published)
    return kept(key, lambda: Markup(sweep.draw(figure).svg(page=True)))


def _columns(campaign_id: str) -> list[tuple[str, str]]:
    """Metrics in the table of runs: few enough to be read."""
    wanted = ("throughput", "goodput", "retransmissions", "completion_time", "fairness_index")
    return [(one["name"], one["subject"]) for one in _kinds(campaign_id) if one["name"] in wanted][:8]


def _question(campaign: dict[str, Any], axes: dict[str, list[str]]) -> str:
    """What the campaign asks, in a sentence."""
    if not axes:
        return f"One point, {campaign['repetitions']} repetition{'s' if campaign['repetitions'] != 1 else ''}."
    parts = []
    for name, values in axes.items():
        shown = ", ".join(values) if len(values) <= 6 else f"{values[0]} to {values[-1]} ({len(values)} values)"
        parts.append(f"{name.replace('network.', '').replace('.', ' ')} is {shown}")
    runs = "One run" if campaign["repetitions"] == 1 else f"{campaign['repetitions']} runs"
    return f"What changes when {'; and when '.join(parts)}? {runs} at each point."


def order(name: str) -> int:
    """The place of a metric among all."""
    names = list(METRICS)
    return names.index(name) if name in names else len(names)


def _address(campaign_id: str, changes: dict[str, Any]) -> str:
    """The address of this page with other arguments; empty ones go."""
    arguments: MultiDict[str, str] = request.args.copy()
    for key, value in changes.items():
        arguments.setlist(key.replace("__", "."), [] if value in ("", None) else [str(value)])
    query = urlencode([(key, value) for key, values in arguments.lists() for value in values])
    return url_for("campaigns.show", campaign_id=campaign_id) + (f"?{query}" if query else "")


def short_label(parameters: list[tuple[str, str]]) -> str:
    """What tells a point from the others: with one axis, its value alone."""
    if len(parameters) == 1:
        return parameters[0][1]
    return point_label(dict(parameters)) or "all runs"
