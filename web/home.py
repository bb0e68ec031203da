"""Home: running campaigns, what needs attention, the scorecard in one strip, the latest results."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Blueprint, Response, g, jsonify, render_template

from analysis.store import requests
from analysis.store.rows import CampaignRow
from experiments.api import campaign_text
from web import answers, campaign_data, scorecard
from web.cache import cached, of_one_moment

blueprint = Blueprint("home", __name__)

#: The campaign of the first-time page.
FIRST = "quickstart.yaml"
#: Causes of invalid and failed runs that the page lists.
MOST_CAUSES = 8
#: Valid runs of a campaign whose answer the page gives.
MOST_ANSWERED = 1000


@blueprint.get("/")
@of_one_moment
def index() -> str:
    """Home."""
    store = g.store
    total = cached(("count",), lambda: store.count_campaigns())
    newest = cached(("newest campaigns",), lambda: store.campaigns(limit=6))
    return render_template(
        "home.html",
        running=cached(("running",), lambda: store.campaigns(state="running")),
        asked=[
            request_ for request_ in requests.recent(store, 8) if request_.state in (requests.WAITING, requests.FAILED)
        ],
        runners=requests.runners(store),
        campaigns=newest,
        total=total,
        first_campaign="" if total else campaign_text(FIRST),
        showed=_showed(newest),
        newest=cached(("newest",), lambda: store.newest()),
        causes=cached(("causes",), lambda: store.causes()[:MOST_CAUSES]),
        unfinished=cached(("unfinished",), lambda: store.campaigns(state="incomplete", limit=5)),
        counts=cached(("counts",), lambda: store.counts()),
        card=scorecard.read(),
    )


def _showed(campaigns: Sequence[CampaignRow]) -> dict[str, str]:
    """What each campaign showed: the first sentence of its answer; of none that is too large to be answered at once."""
    shown = {}
    for listed in campaigns:
        if not 0 < listed.valid <= MOST_ANSWERED:
            continue
        # With its file, which a list lacks: it names the published values.
        campaign = campaign_data.head(listed.id)
        means = campaign_data.metric_figure(campaign)
        answer = answers.of(campaign, means, campaign_data.axes_of(campaign.id))
        if answer is not None and answer.sentences:
            shown[campaign.id] = answer.sentences[0]
    return shown


@blueprint.get("/api/attention")
def attention_as_json() -> Response:
    """Invalid runs, failed runs and unfinished campaigns; the latest 100 of each."""
    store, most = g.store, 100
    runs = {"invalid": store.invalid(most), "failed": store.failed(most)}
    return jsonify(runs | {"unfinished": store.campaigns(state="incomplete", limit=most)})
