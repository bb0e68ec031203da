"""Pages of campaigns: the list, one campaign with its figures, table and runs, and requests to rerun or cancel it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flask import Blueprint, abort, current_app, flash, g, jsonify, redirect, render_template, request, url_for
from markupsafe import Markup

from analysis.answer import starved_of
from analysis.attempts import attempts_of
from analysis.estimates import Estimate
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.question import better_of, judges
from analysis.results import Quantity
from analysis.store import removal, requests
from analysis.store.rows import CampaignRow, MemberRow, PointRow
from experiments.api import field_labels
from experiments.papers.declared import CampaignFile
from testbed import fidelity
from testbed.scenario import Scenario
from testbed.units import number_of
from web import answers, campaign_data, topology
from web.cache import cached, of_one_moment
from web.campaign_data import head, points
from web.run_view import sentence

blueprint = Blueprint("campaigns", __name__)

#: Points of a page of the table, campaigns of a page of the list.
POINTS, CAMPAIGNS = 25, 40
#: Runs behind a page of the table, about; never fewer points than FEWEST.
BEHIND, FEWEST = 500, 10


@dataclass(frozen=True)
class Mark:
    """How a mean of the table is drawn and called."""

    #: The mean, or the means of two groups, and the interval, as shares of the greatest end in the table.
    middles: list[float]
    interval: tuple[float, float] | None
    #: "best", "starves" (below a tenth of a fair share of the link) or empty.
    word: str


@blueprint.get("/campaigns")
def index() -> str:
    """All campaigns, filtered by `q`."""
    words = request.args.get("q", "").split()
    page, key = campaign_data.page_number(), tuple(words)
    total = cached(("campaigns", key), lambda: g.store.count_campaigns(words))
    campaigns_ = cached(
        ("campaigns", key, page), lambda: g.store.campaigns(words, limit=CAMPAIGNS, offset=(page - 1) * CAMPAIGNS)
    )
    pages = math.ceil(total / CAMPAIGNS)
    return render_template(
        "index.html", campaigns=campaigns_, q=request.args.get("q", ""), page=page, pages=pages, total=total
    )


@blueprint.get("/campaigns/<campaign_id>")
@of_one_moment
def show(campaign_id: str) -> str:
    """One campaign."""
    campaign, all_points = head(campaign_id), points(campaign_id)
    axes = campaign_data.axes_of(campaign_id)
    means, of_file = campaign_data.metric_figure(campaign), campaign_data.file_figure(campaign)
    at = max(request.args.get("points", 1, int), 1)
    per_page = max(min(POINTS, BEHIND // max(campaign.repetitions, 1)), FEWEST)
    some = all_points[(at - 1) * per_page : at * per_page]
    scenario = campaign_data.scenario(campaign_id)
    return render_template(
        "campaign.html",
        campaign=campaign,
        question=_question(campaign, axes, len(all_points)),
        asked=campaign_data.question_of(campaign_id),
        aside=g.store.aside(campaign_id),
        goes=cached(("goes", campaign_id), lambda: g.store.would_go(campaign_id)),
        ignored=campaign_data.ignored(campaign_id, axes),
        description=CampaignFile(campaign.text).description,
        axes=axes,
        points=some,
        point_pages=math.ceil(len(all_points) / per_page),
        point_page=at,
        all_points=len(all_points),
        per_page=per_page,
        kinds=campaign_data.kinds(campaign_id),
        means=means,
        figure=means.figure() if means else None,
        answer=answers.of(campaign, means, axes),
        of_file=of_file,
        file_figure=of_file.figure() if of_file else None,
        query=request.query_string.decode("latin1"),
        causes=cached(("causes", campaign_id), lambda: g.store.causes(campaign_id)),
        table=points_table(campaign_id, some),
        again=lambda **changes: campaign_data.address("campaigns.show", campaign_id, changes),
        topology=cached(("topology", campaign_id), lambda: network_picture(scenario)),
        wider=fidelity.wider(scenario.fidelity) if scenario else [],
        asked_for=requests.recent(g.store, 3, campaign_id),
        runners=requests.runners(g.store),
        selected={name: request.args.get(f"fix.{name}", "") for name in axes},
    )


#: State of a campaign after an action, "" for a listed one, and what the page says.
ASIDE: dict[str, tuple[removal.State | Literal[""], str]] = {
    "archive": ("archived", "The {} is archived: it is in no list any more, and nothing of it is lost."),
    "delete": ("deleted", "The {} is deleted. It can be restored for a day; then its files go."),
    "restore": ("", "It is listed again."),
}


def set_aside(action: str, campaign_id: str = "", run_id: str = "") -> tuple[str, str]:
    """Archives, deletes or restores a campaign, or archives or deletes a run of a collection.

    Returns:
        Id of the campaign that the next page shows, and a message.
    """
    state, message = ASIDE[action]
    try:
        if not state:
            campaign_id = g.store.restore(campaign_id)
        elif run_id:
            campaign_id = g.store.set_run_aside(run_id, state)
        else:
            g.store.set_aside(campaign_id, state)
    except removal.RemovalError as error:
        abort(409, sentence(error))
    return campaign_id, message.format("run" if run_id else "campaign")


@blueprint.post("/campaigns/<campaign_id>/<action>")
def act(campaign_id: str, action: str) -> Any:
    """Requests a rerun (all runs), a resume (missing runs) or a cancellation; archives, deletes or restores."""
    campaign = head(campaign_id)
    if action in ASIDE:
        shown, message = set_aside(action, campaign.id)
        flash(message)
        return redirect(url_for("campaigns.show", campaign_id=shown))
    flash(request_action(campaign, action)[1])
    return redirect(url_for("campaigns.show", campaign_id=campaign.id))


@blueprint.post("/api/campaigns/<campaign_id>/<action>")
def act_by_json(campaign_id: str, action: str) -> Any:
    """Requests a rerun, a resume or a cancellation; archives, deletes or restores."""
    if action in ASIDE:
        shown, message = set_aside(action, head(campaign_id).id)
        return jsonify({"campaign": shown, "message": message})
    number, message = request_action(head(campaign_id), action)
    return jsonify({"request": number, "message": message}), 202


def request_action(campaign: CampaignRow, action: str) -> tuple[int, str]:
    """Enters a request for a campaign; returns its number and a message."""
    overrides = [f"{name}={value}" for name, value in campaign.overrides.items()]
    if requests.release_lost(g.store):
        # The campaign may have lost its runner.
        campaign = g.store.campaign_head(campaign.id) or campaign
    if action == "cancel":
        if campaign.state != "running":
            abort(409, f"This campaign is {campaign.state}; only a running or waiting campaign can be cancelled.")
        number = requests.ask_cancel(g.store, campaign.id)
        return number, "The campaign stops in a few seconds. Results so far are kept."
    if action not in ("rerun", "resume"):
        abort(404, f"Unknown action {action}; allowed: rerun, resume, cancel, archive, delete, restore.")
    if campaign.state == "running":
        abort(409, "This campaign is running.")
    if not campaign.text:
        abort(409, "These results come from no campaign file, so they cannot be run again here.")
    number = requests.ask_run(g.store, campaign.file, campaign.text, overrides, force=action == "rerun")
    waiting = (
        "A runner will start it."
        if requests.runners(g.store)
        else (f"No runner is connected: {current_app.jinja_env.globals['runner_command']} starts one.")
    )
    return number, f"Request {number} submitted. {waiting}"


def network_picture(scenario: Scenario | None) -> Markup:
    """The picture of a network as part of a page: from left to right, and upright for phones."""
    if scenario is None or not scenario.links:
        return Markup("")
    upright = topology.draw_upright(scenario)
    wide = Markup('<div class="{}">{}</div>').format(
        "wide-only" if upright else "", topology.draw(scenario).svg(page=True)
    )
    return wide + Markup('<div class="upright">{}</div>').format(upright.svg(page=True)) if upright else wide


def points_table(campaign_id: str, some: Sequence[PointRow]) -> Markup:
    """Means of a page of points, each by its values."""

    def compute() -> Markup:
        tabled = campaign_data.tabled(campaign_id)
        of_flow = [key for key in tabled if key[1] and (key[0] not in METRICS or METRICS[key[0]].per == "flow")]
        numbers = [point.number for point in some]
        members: dict[int, list[MemberRow]] = {number: [] for number in numbers}
        for member in g.store.members(campaign_id, numbers):
            members[member.point].append(member)
        rows = campaign_data.means(campaign_id, tabled, members)
        flows = list(dict.fromkeys(subject for _, subject in of_flow)) or [""]
        return Markup(
            render_template(
                "_table.html",
                campaign_id=campaign_id,
                field_labels=field_labels([*campaign_data.axes_of(campaign_id)]),
                points=some,
                members=members,
                flows=flows,
                of_flow=list(dict.fromkeys(name for name, _ in of_flow)),
                others=[key for key in tabled if key not in of_flow],
                attempts=attempts_of(g.store, campaign_id),
                cells={(row.point, row.name, row.subject): row for row in rows},
                marks={flow: _marks(campaign_id, of_flow[0][0], flow, some) for flow in flows} if of_flow else {},
            )
        )

    return cached(("table", campaign_id, tuple(point.number for point in some)), compute)


def _marks(campaign_id: str, metric: str, flow: str, some: Sequence[PointRow]) -> dict[int, Mark]:
    """The mark of each of some points that has the metric, beside all points of the campaign."""
    rows = campaign_data.summary(campaign_id, metric, flow)
    shown = {point.number for point in some}
    estimates = {row.point: estimate(metric, row.unit, row.values) for row in rows if row.point in shown}
    reach = max((abs(end) for made in estimates.values() for end in (*made.values, *made.ends) if end), default=0.0)
    if len(rows) < 2 or not reach:
        return {}
    better = better_of(metric)
    best = (min if better == "less" else max)(row.mean for row in rows) if better else None
    quantity = Quantity(metric, flow, rows[0].unit)
    scenario = campaign_data.scenario(campaign_id)
    if scenario is not None and not all(
        judges(metric, one) for one in scenario.workload if flow in (one.name, one.group)
    ):
        better = None

    def mark(number: int, made: Estimate) -> Mark:
        middles = [statistics.fmean(group) for group in made.groups] or [made.mean]
        interval = None if made.interval is None else (made.interval.low / reach, made.interval.high / reach)
        word = "best" if better and made.mean == best else ""
        if starved_of(campaign_data.scenario_of_point(campaign_id, number), quantity, made.mean):
            word = "starves"
        return Mark([middle / reach for middle in middles], interval, word)

    return {number: mark(number, made) for number, made in estimates.items()}


def _question(campaign: CampaignRow, axes: Mapping[str, Sequence[str]], combinations: int) -> str:
    """What the campaign varies, in a sentence."""
    if not axes:
        return f"One combination, {number_of(campaign.repetitions, 'repetition')}."
    parts = []
    for name, values in axes.items():
        shown = (
            ", ".join(values)
            if len(values) <= 6
            else f"{values[0]}, {values[1]}, ... {values[-1]}: {len(values)} values"
        )
        parts.append(f"{name.replace('network.', '').replace('.', ' ')} ({shown})")
    runs = "One run" if campaign.repetitions == 1 else f"{campaign.repetitions} runs"
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    if campaign.runs != combinations * campaign.repetitions:
        # Imports of one label are repetitions of each other, and a simulation without chance is made once.
        return f"Varies {listed}. {number_of(campaign.runs, 'run')} at {number_of(combinations, 'combination')}."
    return f"Varies {listed}. {runs} at each combination."
